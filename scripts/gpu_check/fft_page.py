"""The page of the FFT: its benchmark set, its targets, its heat map."""

import statistics

from . import page as pages
from .rows import geometric_mean, number, rows_of


def benchmark(result):
    """One entry a problem, in the order of the run."""
    problems = {}
    for row in rows_of(result, "time"):
        problems.setdefault(row["token"], {"variants": {}, "latency": False})["variants"][row["variant"]] = row
        problems[row["token"]]["latency"] |= row.get("latency", False)
    for row in rows_of(result, "fault"):
        problems.setdefault(row["token"], {"variants": {}, "latency": False})["fault"] = row
    made = []
    for token, seen in problems.items():
        variants = seen["variants"]
        median = lambda name: variants.get(name, {}).get("median")
        rivals = [(median(name), name) for name in ("cufft", "cufft patient") if median(name)]
        rival, rival_name = min(rivals) if rivals else (None, "")
        off, correct, copy = median("off"), median("correct"), median("copy")
        entry = {
            "token": token,
            "latency": seen["latency"],
            "off": off,
            "correct": correct,
            "copy": copy,
            "rival": rival,
            "rival_name": rival_name,
            "cufft": median("cufft"),
            "patient": median("cufft patient"),
            "variants": variants,
            "gbs": variants.get("off", {}).get("gbs"),
            "ratio": rival / off if rival and off else None,
            "ratio_correct": rival / correct if rival and correct else None,
            "of_copy": copy / off if copy and off else None,
            "overhead": correct / off - 1 if correct and off else None,
            "wrong": any(row.get("right") is False for row in variants.values()),
            "refused": variants.get("off", {}).get("refused")
            or variants.get("all", {}).get("refused", "")
            or variants.get("correct", {}).get("refused", ""),
            "spread": max((row["high"] / row["low"] - 1 for row in variants.values() if row.get("low")), default=None),
        }
        fault = seen.get("fault", {})
        if fault.get("struck") is not None:
            entry["fault_seconds"] = max(fault["struck"] - fault["waiting"], 0.0)
            entry["fault_repaired"] = fault["repaired"] / max(fault["calls"], 1)
        made.append(entry)
    return made


def parse(token):
    _, kind, type_, n, batch, _ = token.split("_")
    return kind, type_, [int(each) for each in n[1:].split("x")], int(batch[1:])


def targets(result, entries):
    """(what, reached or None if not measured, the figure) for each target of the project."""
    made = pages.Targets()
    add = made.add
    timed = [entry for entry in entries if entry["ratio"]]
    worst = min(timed, key=lambda entry: entry["ratio"], default=None)
    add(
        "unprotected, worst: ≥ 0.95× cuFFT",
        worst and worst["ratio"],
        lambda v: v >= 0.95,
        "{:.2f}×" + (f" ({worst['token']})" if worst else ""),
    )
    add("unprotected, geometric mean: ≥ 1.2× cuFFT", geometric_mean([entry["ratio"] for entry in timed]), lambda v: v >= 1.2, "{:.2f}×")
    one_pass, fast = [], []
    for entry in entries:
        kind, type_, n, _ = parse(entry["token"])
        power = len(n) == 1 and kind == "c2c" and n[0] & (n[0] - 1) == 0 and not entry["latency"]
        exponent = n[0].bit_length() - 1
        if power and exponent <= (17 if type_ == "f32" else 16) and entry["of_copy"]:
            one_pass.append((entry["of_copy"], entry["token"]))
        if power and (15 <= exponent <= 17 if type_ == "f32" else 14 <= exponent <= 16) and entry["ratio"]:
            fast.append((entry["ratio"], entry["token"]))
    for what, values, least, form in (
        ("one-pass lengths, worst: ≥ 90 % of copy", one_pass, 0.9, "{:.0%}"),
        ("f32 2^15…2^17, f64 2^14…2^16: ≥ 1.5× cuFFT", fast, 1.5, "{:.2f}×"),
    ):
        value, token = min(values, default=(None, ""))
        add(what, value, lambda v, least=least: v >= least, form + (f" ({token})" if token else ""))
    protected = [entry for entry in entries if entry["overhead"] is not None]
    mean = geometric_mean([1 + entry["overhead"] for entry in protected])
    add("protection, geometric mean: ≤ 5 %", mean and mean - 1, lambda v: v <= 0.05, "{:.1%}")
    worst = max(protected, key=lambda entry: entry["overhead"], default=None)
    add("protection, worst: ≤ 12 %", worst and worst["overhead"], lambda v: v <= 0.12, "{:.1%}" + (f" ({worst['token']})" if worst else ""))
    faults = [entry["fault_seconds"] for entry in entries if "fault_seconds" in entry]
    add("30 faults a second: ≤ 1 % more", 30 * max(faults) if faults else None, lambda v: v <= 0.01, "{:.2%}")
    calls = [row for row in rows_of(result, "first call") if row.get("first")]
    add(
        "first call of a new problem, median: ≤ 0.4 s",
        statistics.median(row["first"] for row in calls) if calls else None,
        lambda v: v <= 0.4,
        "{:.2f} s",
    )
    add("first call of a new problem, worst: ≤ 2 s", max((row["first"] for row in calls), default=None), lambda v: v <= 2, "{:.2f} s")
    add(
        "the same plan again, median: ≤ 0.2 ms",
        statistics.median(row["again"] for row in calls) * 1e3 if calls else None,
        lambda v: v <= 0.2,
        "{:.2f} ms",
    )
    compared = [row for row in rows_of(result, "check") if row.get("rival_room")]
    worst = max(compared, key=lambda row: row["error_to_rival"] - row["rival_room"], default=None)
    add(
        "accuracy: not worse than cuFFT's, but for chance",
        worst and worst["error_to_rival"],
        lambda v: v <= worst["rival_room"],
        "{:.3f}×" + (f" ({worst['token']}, chance: {worst['rival_room']:.3f})" if worst else ""),
    )
    return made.all


def heat(result):
    cells = {(row["log_n"], row["log_batch"]): row for row in rows_of(result, "cell")}
    return {
        place: {"off": row["cufft"] / row["off"], "correct": row["cufft"] / row["correct"] if row.get("correct") else None}
        for place, row in cells.items()
        if row.get("cufft") and row.get("off")
    }


def scheme_section(entries):
    """The times of the schemes over those without protection; nothing if none was timed."""
    lines = []
    say = lines.append
    schemes = list(
        dict.fromkeys(
            name
            for entry in entries
            for name in entry["variants"]
            if name not in ("off", "correct", "cufft", "cufft patient", "copy", "all")
        )
    )
    rows = [(scheme, [entry["variants"].get(scheme, {}).get("median") for entry in entries]) for scheme in ["correct", *schemes]]
    shown = [i for i, entry in enumerate(entries) if entry["off"] and any(values[i] for scheme, values in rows if scheme != "correct")]
    if shown:
        say("## Schemes: time over Ballast's own without protection")
        say("")
        lines += pages.table(
            ["scheme", *(f"`{entries[i]['token']}`" for i in shown)],
            [
                [
                    "the default" if scheme == "correct" else f"`{scheme}`",
                    *(number(values[i] and values[i] / entries[i]["off"] - 1, "{:+.1%}") for i in shown),
                ]
                for scheme, values in rows
                if any(values[i] for i in shown)
            ],
        )
    return lines


def first_call_section(result):
    """The first calls of new problems; nothing if none was timed."""
    lines = []
    say = lines.append
    calls = [row for row in rows_of(result, "first call") if row.get("first")]
    if calls:
        say("## The first call")
        say("")
        ordered = sorted(row["first"] for row in calls)
        say(
            "Random problems that the bundle may not know, with an empty cache of kernels. first: from the plan's constructor to the "
            "result. by: whose kernels computed it. own kernels: when those "
            "of the problem took over. again: the constructor and the launch of the same plan, host time, median of nine. difference: of "
            "both results. "
            f"First calls: median {ordered[len(ordered) // 2]:.3f} s, longest {ordered[-1]:.3f} s."
        )
        say("")
        lines += pages.table(
            ("problem", "first, s", "by", "own kernels, s", "again, ms", "difference, of its bound"),
            [
                (
                    f"`{row['token']}`",
                    f"{row['first']:.3f}",
                    "fallback" if row.get("fallback") else "own",
                    f"{row.get('switched', row['first']):.2f}",
                    f"{row['again'] * 1e3:.3f}",
                    number(row.get("difference_in_bounds")),
                )
                for row in calls
            ],
        )
    return lines


def heat_section(result):
    """The heat maps; nothing if they were not made."""
    lines = []
    say = lines.append
    map_ = heat(result)
    if map_:
        most = max(b for _, b in map_)
        for key, name in (("off", "without protection"), ("correct", "with protection")):
            say(f"## Heat map: cuFFT's time (default plan) over Ballast's {name}, C2C f32")
            say("")
            say("Rows: log₂ N. Columns: log₂ batch, within 2 GB.")
            say("")
            say("```text")
            say("  N " + "".join(f"{b:>5}" for b in range(most + 1)))
            for n in sorted({length for length, _ in map_}):
                cells = ((map_.get((n, b)) or {}).get(key) for b in range(most + 1))
                say((f"{n:>3} " + "".join(f"{number(cell, '{:.2f}') if cell else '':>5}" for cell in cells)).rstrip())
            say("```")
            say("")
    return lines


def page(result):
    """The page of the FFT, as lines."""
    entries = benchmark(result)
    reached = targets(result, entries)
    lines = pages.head(
        result,
        "FFT on {device}: speed, cost of protection, accuracy",
        [
            "the repetitions of all",
            "columns of a row are interleaved at random in one run, each the replay of a captured graph timed by events; ratios are of "
            "medians of that run.",
            "Data are random, outputs poisoned first and compared afterwards, and buffers rotated where they would stay in the L2 cache.",
        ],
        [
            "off: Ballast without protection. correct: with it, the default. of copy: the time of a device copy of the same bytes over "
            "Ballast's. × cuFFT: cuFFT's time over Ballast's, cuFFT",
            "being the better of its default plan and one with the property PATIENT_JIT. GB/s: bytes of input and output over the time, "
            "whatever a transform moves in between.",
        ],
    )
    say = lines.append
    lines += pages.targets_section(reached)
    say("## Benchmark set")
    say("")
    milliseconds = lambda seconds: pages.milliseconds(seconds and seconds * 1e3)
    rows = []
    for entry in entries:
        if entry["off"] is None:
            rows.append([f"`{entry['token']}`", entry["refused"] or "not measured", *[""] * 8])
            continue
        rows.append(
            [
                f"`{entry['token']}`",
                milliseconds(entry["off"]),
                f"{entry['gbs']:.0f}",
                number(entry["of_copy"], "{:.0%}"),
                milliseconds(entry["cufft"]),
                milliseconds(entry["patient"]),
                number(entry["ratio"]),
                milliseconds(entry["correct"]),
                number(entry["overhead"], "{:+.1%}"),
                number(entry["ratio_correct"]),
            ]
        )
    lines += pages.table(
        (
            "problem",
            "off, ms",
            "GB/s",
            "of copy",
            "cuFFT, ms",
            "patient, ms",
            "× cuFFT, off",
            "correct, ms",
            "protection",
            "× cuFFT, correct",
        ),
        rows,
    )
    lines += scheme_section(entries)
    costs = [entry for entry in entries if "fault_seconds" in entry]
    if costs:
        say("## Under faults")
        say("")
        say(
            "A call with one fault in its output against the same call with a fault that never comes, both with the kernels that can "
            "inject: what a repair costs, and what 30 of them a second do."
        )
        say("")
        lines += pages.table(
            ("problem", "one repair, µs", "30 a second"),
            [(f"`{entry['token']}`", f"{entry['fault_seconds'] * 1e6:.1f}", f"{30 * entry['fault_seconds']:+.2%}") for entry in costs],
        )
    lines += first_call_section(result)
    lines += pages.verified(result)
    lines += heat_section(result)
    behind = [f"`{entry['token']}`: {entry['ratio']:.2f}× cuFFT" for entry in entries if entry["ratio"] and entry["ratio"] < 1]
    return lines + pages.short_section(result, reached, behind, "Nothing of the targets, and no problem of the set is slower than cuFFT.")
