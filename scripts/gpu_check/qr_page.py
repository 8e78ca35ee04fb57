"""The page of QR: problems beside NVIDIA's libraries, batches, Q applied, the paper's figures on the scheme hybrid, and the targets."""

import re

from . import page as pages
from .page import by_variant, milliseconds
from .rows import number, rows_of

# By problem and operation: the least TFLOP/s, or the most milliseconds, of a protected call on an H100.
LEAST_TFLOPS = {
    ("f64_m1024_n1024", "geqrf"): 0.6,
    ("f64_m4096_n4096", "geqrf"): 7.5,
    ("f64_m8192_n8192", "geqrf"): 18,
    ("f64_m16384_n16384", "geqrf"): 30,
    ("f64_m32768_n32768", "geqrf"): 40,
    ("f64_m1000000_n128", "geqrf"): 8,
    ("f64_m100000_n1000", "geqrf"): 15,
    ("f32_m1024_n1024", "geqrf"): 0.6,
    ("f32_m4096_n4096", "geqrf"): 10,
    ("f32_m8192_n8192", "geqrf"): 25,
    ("f32_m16384_n16384", "geqrf"): 45,
    ("f32_m32768_n32768", "geqrf"): 60,
    ("f32_m1000000_n128", "geqrf"): 10,
    ("f32_m100000_n1000", "geqrf"): 20,
    ("f64_m8192_n8192", "ormqr"): 36,
    ("f64_m8192_n8192", "orgqr"): 36,
    ("f32_m8192_n8192", "ormqr"): 50,
    ("f32_m8192_n8192", "orgqr"): 50,
}
MOST_MILLISECONDS = {
    ("f64_m1000000_n32", "geqrf"): 0.8,
    ("f32_m1000000_n32", "geqrf"): 0.5,
    ("f64_m64_n64_b1000", "geqrf"): 0.6,
    ("f32_m64_n64_b1000", "geqrf"): 0.4,
}
LEAST_OF_RIVAL = 1.2
# TFLOP/s of MAGMA's schedule with OpenBLAS's panel on a machine with one H100; the hybrid is to be twice as fast.
MAGMA = {"f64_m8192_n8192": 1.3, "f64_m16384_n16384": 2.5}
RIVALS = ("cusolver", "cusolver 64", "cublas batched")
REPAIRS = ("repair in A'", "repair in V")
CURVES = ("off", "R", "R and Q", "repair in Q", "repair in R or A'", "repair in R or A', plain")


def shape(token):
    """(type, m, n, matrices of a batch or 0)"""
    found = re.fullmatch(r"qr_(f\d\d)_m(\d+)_n(\d+)(?:_b(\d+))?", token)
    return found[1], int(found[2]), int(found[3]), int(found[4] or 0)


def factorizations(result):
    """One entry for each problem and operation, in the order of the run."""
    seen = {}
    for row in rows_of(result, "factorization"):
        seen.setdefault((row["token"], row.get("operation", "geqrf")), {})[row["variant"]] = row
    made = []
    for (token, operation), variants in seen.items():
        time = lambda name: variants.get(name, {}).get("milliseconds")
        rate = lambda name: variants.get(name, {}).get("tflops")
        off, correct = time("off"), time("correct")
        reasons = {name: row["refused"] for name, row in variants.items() if row.get("refused")}
        rival = min((time(name) for name in RIVALS if time(name)), default=None)
        made.append(
            {
                "token": token,
                "name": token.removeprefix("qr_"),
                "operation": operation,
                "off": off,
                "correct": correct,
                "off_tflops": rate("off"),
                "correct_tflops": rate("correct"),
                "rival": rival,
                "rival_tflops": max((rate(name) for name in RIVALS if rate(name)), default=None),
                "by_rival": {name: time(name) for name in RIVALS},
                "overhead": correct / off - 1 if off and correct else None,
                "ratio": rival / correct if rival and correct else None,
                "batch": shape(token)[3],
                "reasons": reasons,
                "refused": next(iter(reasons.values()), ""),
            }
        )
    return made


def rival_time(entry, name):
    """What a rival's column says: its milliseconds, or why there are none where Ballast has some."""
    return number(entry["by_rival"][name], "{:.4g}") if entry["by_rival"][name] else entry["reasons"].get(name, "–")


def repaired(result):
    """By problem: the rows of calls with one fault, and of those beside them, by variant."""
    return by_variant(result, "repair")


def curves(result):
    """By problem: the rows of Figures 7 to 9 by variant."""
    return by_variant(result, "curve")


def more(seen, variant, than):
    """How much more time one variant takes than another."""
    times = [seen.get(name, {}).get("milliseconds") for name in (variant, than)]
    return times[0] / times[1] - 1 if all(times) else None


def targets(result):
    """(what, reached or None if not measured, the figure) for each target of the project."""
    made = pages.Targets()
    add = made.add
    entries = {(entry["name"], entry["operation"]): entry for entry in factorizations(result)}
    for (name, operation), least in LEAST_TFLOPS.items():
        add(
            f"{operation} `{name}`, protected: ≥ {least} TFLOP/s",
            entries.get((name, operation), {}).get("correct_tflops"),
            lambda v, least=least: v >= least,
            "{:.2f}",
        )
    for (name, operation), most in MOST_MILLISECONDS.items():
        add(
            f"{operation} `{name}`, protected: ≤ {most} ms",
            entries.get((name, operation), {}).get("correct"),
            lambda v, most=most: v <= most,
            "{:.2f}",
        )
    worst = min((entry for entry in entries.values() if entry["ratio"]), key=lambda entry: entry["ratio"], default=None)
    add(
        f"worst of all, protected: ≥ {LEAST_OF_RIVAL}× NVIDIA's",
        worst and worst["ratio"],
        lambda v: v >= LEAST_OF_RIVAL,
        "{:.2f}×" + (f" ({worst['operation']} `{worst['name']}`)" if worst else ""),
    )
    for large, most in ((True, 0.03), (False, 0.10)):
        worst = max(
            (entry for entry in entries.values() if entry["overhead"] is not None and (min(shape(entry["token"])[1:3]) >= 8192) == large),
            key=lambda entry: entry["overhead"],
            default=None,
        )
        add(
            f"protection, worst {'from 8192 columns on' if large else 'elsewhere'}: ≤ {most:.0%}",
            worst and worst["overhead"],
            lambda v, most=most: v <= most,
            "{:.1%}" + (f" ({worst['operation']} `{worst['name']}`)" if worst else ""),
        )
    costs = [
        (more(variants, variant, "off"), variant, token.removeprefix("qr_"))
        for token, variants in repaired(result).items()
        if shape(token)[2] >= 8192
        for variant in REPAIRS
    ]
    cost, variant, name = max((entry for entry in costs if entry[0] is not None), default=(None, "", ""))
    add(
        "protection with one repair, from 8192 columns on: ≤ 5%",
        cost,
        lambda v: v <= 0.05,
        "{:.1%}" + (f" ({variant}, `{name}`)" if name else ""),
    )
    seen = {token.removeprefix("qr_"): variants for token, variants in curves(result).items()}
    long = {name: variants for name, variants in seen.items() if shape("qr_" + name)[2] >= 10000}
    costs = [(more(variants, "R and Q", "off"), name) for name, variants in long.items() if more(variants, "R and Q", "off") is not None]
    cost, name = max(costs, default=(None, ""))
    add("hybrid, protection from 10000 columns on: ≤ 5%", cost, lambda v: v <= 0.05, "{:.1%}" + (f" (`{name}`)" if name else ""))
    for name, rate in MAGMA.items():
        add(
            f"hybrid `{name}`, protected: ≥ {2 * rate} TFLOP/s, twice MAGMA's schedule with OpenBLAS's panel",
            seen.get(name, {}).get("R and Q", {}).get("tflops"),
            lambda v, rate=rate: v >= 2 * rate,
            "{:.2f}",
        )
    return made.all


def repair_section(result):
    """Calls with one repair; nothing if none was timed."""
    lines = []
    say = lines.append
    if repaired(result):
        say("## Calls with one repair")
        say("")
        say(
            "geqrf; in brackets how much more time than without protection. repair in A': an element before the middle panel. repair in "
            "V: one after the last panel."
        )
        say("")
        rows = []
        for token, variants in repaired(result).items():
            off = variants.get("off", {}).get("milliseconds")
            cells = [
                f"{milliseconds(variants.get(name, {}).get('milliseconds'))} ({number(more(variants, name, 'off'), '{:+.1%}')})"
                for name in ("correct", *REPAIRS)
            ]
            rows.append([f"`{token}`", milliseconds(off) if off else pages.first_refusal(variants.values()), *cells])
        lines += pages.table(("problem", "off, ms", "correct", *REPAIRS), rows)
    return lines


def page(result):
    """The page of QR, as lines."""
    entries, figures = factorizations(result), curves(result)
    reached = targets(result)
    lines = pages.head(
        result,
        "QR on {device}: speed, cost of protection, the paper's measurements",
        [
            "the",
            "variants of a problem take turns in one run; ratios are of medians of that run. Host time from the call to the end of its "
            "work, operands in device memory, data random.",
        ],
        [
            "off: Ballast without protection. correct: with it, the default. × NVIDIA: their time over Ballast's with protection; of "
            "cuSOLVER's two interfaces, the better one."
        ],
        [f"- Panels of the hybrid: {row['blas']}, {row['threads']} threads" for row in rows_of(result, "panels")],
    )
    say = lines.append
    lines += pages.targets_section(reached)
    for title, chosen in (
        ("Factorizations", [entry for entry in entries if entry["operation"] == "geqrf" and not entry["batch"]]),
        ("Q applied and formed", [entry for entry in entries if entry["operation"] != "geqrf"]),
    ):
        if not chosen:
            continue
        say(f"## {title}")
        say("")
        rows = []
        for entry in chosen:
            if entry["off"] is None:
                rows.append([entry["operation"], f"`{entry['token']}`", entry["refused"] or "not measured", *[""] * 7])
                continue
            rows.append(
                [
                    entry["operation"],
                    f"`{entry['token']}`",
                    milliseconds(entry["off"]),
                    number(entry["off_tflops"]),
                    milliseconds(entry["correct"]),
                    number(entry["correct_tflops"]),
                    number(entry["overhead"], "{:+.1%}"),
                    rival_time(entry, "cusolver"),
                    rival_time(entry, "cusolver 64"),
                    number(entry["ratio"]),
                ]
            )
        lines += pages.table(
            (
                "operation",
                "problem",
                "off, ms",
                "TFLOP/s",
                "correct, ms",
                "TFLOP/s",
                "protection",
                "cuSOLVER, ms",
                "its 64-bit interface",
                "× NVIDIA, correct",
            ),
            rows,
        )
    batches = [entry for entry in entries if entry["batch"]]
    if batches:
        say("## Batches")
        say("")
        rows = []
        for entry in batches:
            if entry["off"] is None:
                rows.append([f"`{entry['token']}`", entry["batch"], entry["refused"] or "not measured", *[""] * 5])
                continue
            each = entry["correct"] and entry["correct"] * 1e3 / entry["batch"]
            rows.append(
                [
                    f"`{entry['token']}`",
                    entry["batch"],
                    milliseconds(entry["off"]),
                    milliseconds(entry["correct"]),
                    milliseconds(each),
                    number(entry["overhead"], "{:+.1%}"),
                    rival_time(entry, "cublas batched"),
                    number(entry["ratio"]),
                ]
            )
        lines += pages.table(
            ("problem", "matrices", "off, ms", "correct, ms", "a matrix, µs", "protection", "cuBLAS batched, ms", "× NVIDIA, correct"), rows
        )
    lines += repair_section(result)
    lines += paper(result, figures)
    lines += pages.verified(result)
    behind = [
        f"{entry['operation']} `{entry['token']}`: {entry['ratio']:.2f}× NVIDIA's"
        for entry in entries
        if entry["ratio"] and entry["ratio"] < LEAST_OF_RIVAL
    ]
    failed = [
        f"{row['type']} `{row['token']}`, {row.get('variant', row.get('name'))}: failed. {row.get('wrong', '')}".rstrip()
        for kind in ("curve", "rotations", "overhead")
        for row in rows_of(result, kind)
        if row.get("pass") is False
    ]
    return lines + pages.short_section(
        result,
        reached,
        behind + failed,
        f"Nothing of the targets that were measured, and no problem is less than {LEAST_OF_RIVAL}× as fast as NVIDIA's.",
    )


def paper(result, figures):
    """The section on the paper's measurements; nothing if they were not made."""
    lines = []
    say = lines.append
    measured = {token: seen for token, seen in figures.items() if seen.get("off", {}).get("milliseconds")}
    for token, seen in figures.items():
        if token not in measured:
            say(f"The paper's measurements, `{token}`: {pages.first_refusal(seen.values())}")
            say("")
    if measured:
        say("## The paper's Figures 7 to 9: the scheme hybrid")
        say("")
        say(
            "TFLOP/s, and in brackets how much more time than without protection. R: checksum columns alone; R and Q: also V, T and tau "
            "verified, and V checkpointed by the host. repair in Q: two"
        )
        say(
            "elements of a column of V, struck at the end. repair in R or A′: one element before a panel, recovered by QR update; "
            "plain: with one rotation after the other."
        )
        say("")
        rows = []
        for token, seen in measured.items():
            cells = []
            for name in CURVES:
                cost = more(seen, name, "off")
                again = seen.get(name, {}).get("recomputed", 0)
                cells.append(
                    number(seen.get(name, {}).get("tflops"))
                    + (f" ({cost:+.1%})" if name != "off" and cost is not None else "")
                    + (f", {again} computed again" if again else "")
                )
            rows.append([f"`{token}`", *cells])
        lines += pages.table(("problem", *(name.replace("A'", "A′") for name in CURVES)), rows)
    turned = by_variant(result, "rotations")
    if turned:
        say("## The paper's Figure 5: a Hessenberg matrix made triangular")
        say("")
        rows = []
        for token, seen in turned.items():
            plain, blocked = (seen.get(name, {}).get("milliseconds") for name in ("plain", "blocked"))
            type_, _, n, _ = shape(token)
            rows.append(
                [f"{n}, {type_}", milliseconds(plain), milliseconds(blocked), number(plain / blocked if plain and blocked else None)]
            )
        lines += pages.table(("n, type", "one rotation after the other, ms", "blocked and fused, ms", "×"), rows)
    overheads = rows_of(result, "overhead")
    if overheads:
        tokens = list(dict.fromkeys(row["token"] for row in overheads))
        say("## The paper's §7.1: where the time of protection goes")
        say("")
        say(
            "ms alone, each with nothing beside it; and in brackets ms by which it lengthens a call, where the difference of two kinds "
            'of call says so (docs/design/qr-hybrid.md, "The paper\'s measurements").'
        )
        say("")
        rows = []
        for source, name in dict.fromkeys((row["source"], row["name"]) for row in overheads):
            cells = []
            for token in tokens:
                row = next((row for row in overheads if row["token"] == token and row["source"] == source), {})
                cells.append(milliseconds(row.get("milliseconds")) + (f" ({row['within']:+.3g})" if row.get("within") is not None else ""))
            rows.append([f"{source}. {name}", *cells])
        rows.append(
            [
                "a call without protection",
                *(milliseconds(next(row["off"] for row in overheads if row["token"] == token)) for token in tokens),
            ]
        )
        lines += pages.table(("source", *(f"`{token}`" for token in tokens)), rows)
    return lines
