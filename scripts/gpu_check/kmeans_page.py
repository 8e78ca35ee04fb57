"""The page of K-Means: iterations beside rivals, batches, the sweeps of FT K-Means' schemes, and the targets."""

import re

from . import page as pages
from .page import by_variant
from .rows import geometric_mean, number, rows_of

# By problem: the most milliseconds of a protected iteration on an H100.
MOST_MILLISECONDS = {
    "f32_m131072_n8_k8": 0.018,
    "f32_m131072_n64_k8": 0.03,
    "f32_m131072_n128_k128": 0.055,
    "f32_m1048576_n16_k64": 0.055,
    "f32_m10485760_n32_k64": 0.62,
    "f32_m1048576_n128_k128": 0.28,
    "f32_m1048576_n64_k1024": 0.55,
    "f32_m262144_n256_k1024": 0.55,
    "f32_m65536_n1024_k256": 0.19,
    "f32_m4194304_n128_k1000": 4.1,
}
LEAST_TFLOPS = {"f64_m4194304_n128_k1000": 36.8}  # 55 % of what the tensor cores' clock allows
MOST_OVERHEAD = {"f32": 0.03, "f64": 0.06}
FLASH = "flash-kmeans"
LEAST_OF_FLASH = {"geometric mean": 3, "least": 1.4}
# The columns of the sweeps: (scheme, protection). Ours is row_checksum.
PLAIN = ("naive", "gemm", "fused", "broadcast", "tensor")
CHECKED = ("detect_recompute", "warp_checksum", "threadblock_checksum")
OURS = "row_checksum"


def shape(token):
    """(type, points, features, clusters, data sets of a batch or 0)"""
    found = re.fullmatch(r"kmeans_(f\d\d)_m(\d+)_n(\d+)_k(\d+)(?:_b(\d+))?", token)
    return found[1], int(found[2]), int(found[3]), int(found[4]), int(found[5] or 0)


def iterations(result):
    """One entry for each problem whose iterations were timed, in the order of the run."""
    rivals = {}
    for row in rows_of(result, "rival"):
        rivals.setdefault(row.get("token"), {})[row["name"]] = row
    made = []
    for token, variants in by_variant(result, "iteration").items():
        time = lambda name: variants.get(name, {}).get("milliseconds")
        off, correct = time("off"), time("correct")
        type_, m, n, k, batch = shape(token)
        by_rival = {name: row["milliseconds"] for name, row in rivals.get(token, {}).items() if row.get("milliseconds")}
        made.append(
            {
                "token": token,
                "name": token.removeprefix("kmeans_"),
                "type": type_,
                "batch": batch,
                "off": off,
                "correct": correct,
                "one_by_one": time("one by one"),
                "preparation": variants.get("correct", {}).get("preparation"),
                "overhead": correct / off - 1 if off and correct else None,
                "tflops": 2e-9 * m * n * k / correct if correct else None,
                "rivals": by_rival,
                "ratios": {name: value / correct for name, value in by_rival.items() if correct},
                "refused": pages.first_refusal(variants.values()),
            }
        )
    return made


def steps(result):
    """By problem: the rows of the sweeps by scheme, protection and faults."""
    made = {}
    for row in rows_of(result, "step"):
        made.setdefault(row["token"], {})[row["scheme"], row.get("protection"), row.get("faults")] = row
    return made


def times_as_fast(entries, name):
    return [entry["ratios"][name] for entry in entries if name in entry["ratios"]]


def targets(entries):
    """(what, reached or None if not measured, the figure) for each target of the project."""
    made = pages.Targets()
    by_name = {entry["name"]: entry for entry in entries}
    for name, most in MOST_MILLISECONDS.items():
        made.at_most(f"an iteration of `{name}`, protected: ≤ {most} ms", by_name.get(name, {}).get("correct"), most, "{:.4f}")
    for name, least in LEAST_TFLOPS.items():
        made.at_least(f"an iteration of `{name}`, protected: ≥ {least} TFLOP/s", by_name.get(name, {}).get("tflops"), least, "{:.1f}")
    for type_, most in MOST_OVERHEAD.items():
        mean = geometric_mean(
            [1 + entry["overhead"] for entry in entries if entry["overhead"] is not None and entry["type"] == type_ and not entry["batch"]]
        )
        made.at_most(f"protection of an iteration, {type_}, geometric mean: ≤ {most:.0%}", mean and mean - 1, most, "{:.1%}")
    ratios = times_as_fast(entries, FLASH)
    for what, value in (("geometric mean", geometric_mean(ratios)), ("least", min(ratios, default=None))):
        made.at_least(f"protected beside {FLASH}, {what}: ≥ {LEAST_OF_FLASH[what]}×", value, LEAST_OF_FLASH[what], "{:.2f}×")
    return made.all


def rival_section(result, entries):
    """The sentences on rivals: how much faster Ballast is, and why some were not measured."""
    lines = []
    for name in dict.fromkeys(name for entry in entries for name in entry["ratios"]):
        ratios = times_as_fast(entries, name)
        lines += [
            f"Protected, Ballast is {geometric_mean(ratios):.2f} times as fast as {name} in the geometric mean: "
            f"{min(ratios):.2f} to {max(ratios):.2f} times.",
            "",
        ]
    wrong = [row["wrong_labels"] for row in rows_of(result, "rival") if row.get("wrong_labels") is not None]
    if wrong:
        lines += [f"{FLASH} has {min(wrong):.2%} to {max(wrong):.2%} of its labels wrong. Ballast's are exact.", ""]
    for name, why in dict.fromkeys((row["name"], row["unavailable"]) for row in rows_of(result, "rival") if row.get("unavailable")):
        lines += [f"{name} was not measured: {why}", ""]
    return lines


def iteration_section(result, entries):
    names = list(dict.fromkeys(name for entry in entries for name in entry["rivals"]))
    rows = []
    for entry in entries:
        if entry["off"] is None:
            rows.append([f"`{entry['token']}`", entry["refused"], *[""] * (4 + len(names))])
            continue
        rows.append(
            [
                f"`{entry['token']}`",
                number(entry["off"], "{:.4f}"),
                number(entry["correct"], "{:.4f}"),
                number(entry["overhead"], "{:+.1%}"),
                number(entry["tflops"], "{:.1f}"),
                number(entry["preparation"]),
                *(pages.milliseconds(entry["rivals"].get(name)) for name in names),
            ]
        )
    return [
        "## Iterations",
        "",
        *pages.table(
            ("problem", "off, ms", "correct, ms", "protection", "TFLOP/s", "points ready, ms", *(f"{name}, ms" for name in names)), rows
        ),
        *rival_section(result, entries),
    ]


def batch_section(entries):
    lines = [
        "## Many small fits in one launch",
        "",
        "Milliseconds of an iteration of the whole batch: fits from given centroids, with preparation, labels and copies, over the",
        "iterations. One by one: the same fits, protected, by the scheme row_checksum.",
        "",
    ]
    rows = []
    for entry in entries:
        if entry["off"] is None:
            rows.append([f"`{entry['token']}`", entry["batch"], entry["refused"], *[""] * 4])
            continue
        one_by_one = entry["one_by_one"]
        rows.append(
            [
                f"`{entry['token']}`",
                entry["batch"],
                number(entry["off"], "{:.3f}"),
                number(entry["correct"], "{:.3f}"),
                number(entry["overhead"], "{:+.1%}"),
                pages.milliseconds(one_by_one),
                number(one_by_one / entry["correct"] if one_by_one and entry["correct"] else None, "{:.3g}"),
            ]
        )
    return lines + pages.table(("problem", "fits", "off", "correct", "protection", "one by one", "×"), rows)


def step_sections(result):
    """The sweeps of the paper: the schemes beside each other on clean data, and under injection."""
    swept = steps(result)
    lines = []
    microseconds = lambda seen, *key: number(seen.get(key, {}).get("milliseconds") and 1e3 * seen[key]["milliseconds"], "{:.1f}")
    types = dict.fromkeys(shape(token)[0] for token in swept)
    if swept:
        lines += [
            "## The sweeps of FT K-Means (its Figures 7 to 11)",
            "",
            "The distance step (labels without sums) in µs on clean data, by the paper's schemes and by ours (row_checksum).",
            "",
        ]
    for type_ in types:
        rows = []
        for token, seen in ((token, seen) for token, seen in swept.items() if shape(token)[0] == type_):
            _, m, n, k, _ = shape(token)
            rows.append(
                [
                    m,
                    n,
                    k,
                    *(microseconds(seen, scheme, "off", "none") for scheme in PLAIN),
                    *(microseconds(seen, scheme, "correct", "none") for scheme in CHECKED),
                    microseconds(seen, OURS, "off", "none"),
                    microseconds(seen, OURS, "correct", "none"),
                ]
            )
        lines += [f"{type_}:", "", *pages.table(("m", "n", "k", *PLAIN, *CHECKED, "ours, off", "ours, correct"), rows)]
    struck = {token: seen for token, seen in swept.items() if any(faults == "struck" for _, _, faults in seen)}
    if not struck:
        return lines
    lines += [
        "## The same under injection (its Figures 15 to 18)",
        "",
        "µs: production kernels / instrumented kernels without a fault / with faults.",
        "",
    ]
    for type_ in types:
        rows = []
        for token, seen in ((token, seen) for token, seen in struck.items() if shape(token)[0] == type_):
            _, m, n, k, _ = shape(token)
            rows.append(
                [
                    m,
                    n,
                    k,
                    *(
                        " / ".join(microseconds(seen, scheme, "correct", faults) for faults in ("none", "idle", "struck"))
                        for scheme in (*CHECKED, OURS)
                    ),
                ]
            )
        if rows:
            lines += [f"{type_}:", "", *pages.table(("m", "n", "k", *CHECKED, "ours"), rows)]
    for type_ in types:
        costs = {}
        for token, seen in struck.items():
            for scheme in (*CHECKED, OURS):
                idle, hit = (seen.get((scheme, "correct", faults), {}).get("milliseconds") for faults in ("idle", "struck"))
                if shape(token)[0] == type_ and idle and hit:
                    costs.setdefault(scheme, []).append(hit / idle)
        if costs:
            lines += [
                f"Faults cost, {type_}, third number over second in the geometric mean: "
                + ", ".join(f"{scheme} {geometric_mean(values):.2f}" for scheme, values in costs.items())
                + ".",
                "",
            ]
    return lines


def page(result):
    """The page of K-Means, as lines."""
    entries = iterations(result)
    alone, batches = [entry for entry in entries if not entry["batch"]], [entry for entry in entries if entry["batch"]]
    reached = targets(entries)
    lines = pages.head(
        result,
        "K-Means on {device}: speed and cost of protection",
        [
            "an",
            "iteration is the difference of two runs, of 4 and of 36 iterations, by the host's clock; off and correct take turns. Points "
            "lie",
            "on the device and are normally distributed, and the first of them are the first centroids. The first iteration of a run "
            "adds all",
            "rows and takes longer.",
        ],
        [
            "off: Ballast without protection. correct: with it, the default. Labels are exact in both. TFLOP/s: 2 m n k over",
            "the protected time. points ready: from the call to the first iteration.",
        ],
    )
    lines += pages.targets_section(reached)
    if alone:
        lines += iteration_section(result, alone)
    if batches:
        lines += batch_section(batches)
    lines += step_sections(result)
    lines += pages.verified(result)
    failed = [
        f"step `{row['token']}`, {row['scheme']}: {row.get('refused') or str(row.get('different_labels')) + ' labels differ'}"
        for row in rows_of(result, "step")
        if row.get("refused") or row.get("pass") is False
    ]
    return lines + pages.short_section(result, reached, failed, "Nothing of the targets that were measured.")
