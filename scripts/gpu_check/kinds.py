"""The stage `kinds`: complex QR, column pivoting, layouts, transforms of reals, convolutions and points in half precision, beside rivals;
and its page, docs/benchmarks/kinds.md."""

import shutil
import sys
from pathlib import Path

from . import page as pages
from .rows import geometric_mean, number, rows_of

COMPILE, RIVALS = 0.6, 0.35  # the most of the time for kernels, where no bundle has them; the share of the rivals in the rest
OURS = ("off", "correct")
SHOWN = 45  # rows in the table
# The groups of the page: title, the beginnings of their tokens or None for the rest, target × the best rival of the geometric mean.
GROUPS = (
    ("QR of complex matrices", lambda token: token.startswith(("geqrf_", "ormqr_", "orgqr_", "gels_")), 1.8),
    ("QR with column pivoting", lambda token: token.startswith("geqp3_"), 10),
    ("Points in half precision", lambda token: token.startswith(("kmeans_f16", "kmeans_bf16")), 1.3),
    ("Spherical K-Means", lambda token: token.startswith("kmeans_") and token.endswith("_spherical"), None),
    ("Convolutions", lambda token: token.startswith(("convolve_", "correlate_")), None),
    ("Transforms of any rank, with strides and in loops", lambda token: "fft_c2c" in token or "fft_r2c" in token, 1),
    ("Transforms of reals", lambda token: token.startswith("fft_"), 3),
)


def run(check, made, limit):
    """Compiles the kernels on all cores, times the problems, then their rivals from Python."""
    part = dict(made, rows=[])
    spent = check.time()
    check.run_program(part, COMPILE * limit, "kernels", "kinds-kernels", more=["--groups", "kinds"])
    made["rows"] += part["rows"]
    if part["status"] == "no GPU":
        made.update(status="no GPU", detail=part["detail"])
        return
    left = limit - (check.time() - spent)
    check.run_program(made, (1 - RIVALS) * left, "kinds", more=check.wanted.problems or [])
    if made["status"] == "no GPU":
        return
    left = limit - (check.time() - spent)
    tokens = list(dict.fromkeys(row["token"] for row in made["rows"] if row["type"] == "kind"))
    if not tokens:
        return
    script = Path(__file__).with_name("kinds_rivals.py")
    python = shutil.which("python3") or sys.executable
    status, output = check.execute("kinds-rivals", [python, script, "--seconds", max(left - 10, 2), *tokens], left)
    made["rows"] += check.rows_in(output)
    if status not in (0, None):
        made.update(status="failed", detail=f"rivals: exit status {status}: {check.tail('kinds-rivals')}")


def entries_of(result):
    """One entry for each problem and call, in the order of the run."""
    seen = {}
    for row in rows_of(result, "kind"):
        seen.setdefault((row["token"], row.get("call")), {})[row["variant"]] = row
    checks = {}
    for row in rows_of(result, "check"):
        if row["group"] == "kinds":
            checks.setdefault(row["token"], []).append(row)
    made = []
    for (token, call), variants in seen.items():
        time = lambda name: variants.get(name, {}).get("milliseconds")
        rivals = {name: time(name) for name in variants if name not in OURS and time(name)}
        rival = min(rivals, key=rivals.get, default=None)
        off, correct = time("off"), time("correct")
        own = checks.get(token, [])
        made.append(
            {
                "token": token,
                "call": call or "",
                "off": off,
                "correct": correct,
                "overhead": correct / off - 1 if off and correct else None,
                "rival": rivals.get(rival),
                "rival_name": rival or "",
                "ratio": rivals[rival] / correct if rival and correct else None,
                "right": all(row["pass"] for row in own) if own else None,
                "error": max((row["error_in_bounds"] for row in own if row.get("error_in_bounds") is not None), default=None),
                "refused": pages.first_refusal(variants.values()),
            }
        )
    return made


def grouped(entries):
    """[(title, its entries, target)]: each entry in the first group that takes it."""
    made = [(title, [], target) for title, _, target in GROUPS]
    for entry in entries:
        place = next((i for i, (_, takes, _) in enumerate(GROUPS) if takes(entry["token"])), None)
        if place is not None:
            made[place][1].append(entry)
    return [group for group in made if group[1]]


def targets(entries):
    made = pages.Targets()
    for title, own, target in grouped(entries):
        if target is not None:
            mean = geometric_mean([entry["ratio"] for entry in own])
            made.at_least(f"{title}, protected: ≥ {target}× the best rival in the geometric mean", mean, target, "{:.2f}×")
    return made.all


def right(entry):
    return "–" if entry["right"] is None else f"yes, {number(entry['error'])}" if entry["right"] else "**no**"


def page(result):
    """The page of the stage, as lines."""
    entries = entries_of(result)
    reached = targets(entries)
    lines = pages.head(
        result,
        "Complex QR, pivoting, real-to-real, layouts, convolutions and half precision on {device}",
        [
            "host time from the call until its results",
            "lie in memory, plan and kernels ready, after one call that does not count; short transforms: of many calls at a time. Variants of a",
            "call take turns; rivals from Python run after them, in the same way.",
        ],
        [
            "off: Ballast without protection. correct: with it, the default. × rival: the best rival's time over that of correct. right: whether",
            "the results, without and with protection, agree with references in higher precision, and the largest error in its bounds.",
        ],
    )
    lines += pages.targets_section(reached)
    columns = ("problem", "call", "off, ms", "correct, ms", "protection", "best rival, ms", "× rival, correct", "right")
    for title, own, _ in grouped(entries):
        rows = []
        for entry in own:
            if entry["correct"] is None:
                rows.append([f"`{entry['token']}`", entry["call"], entry["refused"], *[""] * 4, right(entry)])
                continue
            rows.append(
                [
                    f"`{entry['token']}`",
                    entry["call"],
                    pages.milliseconds(entry["off"]),
                    pages.milliseconds(entry["correct"]),
                    number(entry["overhead"], "{:+.0%}"),
                    f"{pages.milliseconds(entry['rival'])} ({entry['rival_name']})" if entry["rival"] else "–",
                    number(entry["ratio"]),
                    right(entry),
                ]
            )
        lines += [f"## {title}", "", *pages.table(columns, rows)]
    refused = dict.fromkeys(
        (row["variant"], row["refused"]) for row in rows_of(result, "kind") if row["variant"] not in (*OURS, "all") and row.get("refused")
    )
    for name, why in [*refused, *dict.fromkeys((row["variant"], row["unavailable"]) for row in rows_of(result, "kind rival"))]:
        lines += [f"{name} was not measured: {why}", ""]
    behind = [
        f"`{entry['token']}`, {entry['call']}: {entry['ratio']:.2f}× {entry['rival_name']}"
        for entry in sorted((entry for entry in entries if entry["ratio"]), key=lambda entry: entry["ratio"])
        if entry["ratio"] < 1
    ]
    wrong = [f"`{entry['token']}`: a wrong result" for entry in entries if entry["right"] is False]
    return lines + pages.short_section(result, reached, [*dict.fromkeys(wrong), *behind], "Nothing of the targets that were measured.")


def table(result):
    entries = entries_of(result)
    if not entries:
        return
    yield ""
    yield f"{'kinds':<56} {'off, ms':>9} {'protected':>9} {'rival':>9} {'x':>6} right"
    for entry in entries[:SHOWN]:
        name = f"{entry['token']}{', ' + entry['call'] if entry['token'].startswith('kmeans') else ''}"
        if entry["correct"] is None:
            yield f"{name:<56} {entry['refused']}"
            continue
        yield (
            f"{name:<56} {pages.milliseconds(entry['off']):>9} {pages.milliseconds(entry['correct']):>9} "
            f"{pages.milliseconds(entry['rival']) if entry['rival'] else '–':>9} {number(entry['ratio']):>6} {right(entry)}"
        )
