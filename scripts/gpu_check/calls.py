"""The stage `calls`: whole calls as users make them, warm and cold, beside rivals; and its page, docs/benchmarks/calls.md."""

import os
import re
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from . import page as pages
from .rows import geometric_mean, number, rows_of

RIVALS = 0.25  # the share of the rivals in what first calls leave
COLD = {"kmeans": 20, "qr": 50}  # seconds of first calls: QR compiles most of its kernels
NO_GPU = 4  # exit status
LEAST = {"kmeans": 1.5, "qr": 2.5}  # × the best rival in the geometric mean, protected
TITLES = {"kmeans": "K-Means", "qr": "QR"}
# The problems whose first call is timed, in a process of its own each: by the stage `calls` the first `AMONG_CALLS`, by the stage
# `first_call` all. The bundle has passes of their own for the first two of K-Means, but not for the others.
FIRST_CALLS = {
    "kmeans": (
        "kmeans_f32_m1048576_n128_k128",
        "kmeans_f32_m131072_n8_k8",
        "kmeans_f64_m1048576_n16_k64",
        "kmeans_f32_m100003_n37_k50",
        "kmeans_f32_m20011_n300_k700",
        "kmeans_f64_m50021_n75_k11",
    ),
    "qr": (
        "qr_f64_m1000000_n32",
        "qr_f32_m2048_n2048",
        "qr_f64_m200_n200",
        "qr_f64_m17_n17_b301",
        "qr_f32_m100_n60_b1000",
        "qr_f64_m1000_n20_b200",
    ),
}
AMONG_CALLS = {"kmeans": 3, "qr": 1}
FIRST_CALL_LIMITS = {"kmeans": (50, 300), "qr": (300, 300)}  # milliseconds with the bundle: the median, the most
OURS = ("off", "correct", "final_only", "sampled")
SHOWN = 25  # calls in the table


# ---- The stage ----


def run(check, made, limit):
    """Warm calls, the same by PyTorch and flash-kmeans where they are installed, and first calls."""
    cold = min(COLD[check.algorithm], limit / 3)
    check.run_program(made, (1 - RIVALS) * (limit - cold), "calls")
    if made["status"] in ("no GPU", "failed"):
        return
    # The rivals take points in a matrix.
    timed = [row["token"] for row in made["rows"] if row["type"] == "call" and row["variant"] in OURS and not row["token"].endswith("_csr")]
    tokens = list(dict.fromkeys(timed))
    if tokens:
        script = Path(__file__).with_name("calls_rivals.py")
        seconds = RIVALS * (limit - cold)
        python = shutil.which("python3") or sys.executable
        status, output = check.execute("calls-rivals", [python, script, "--seconds", max(seconds - 10, 2), *tokens], seconds)
        made["rows"] += check.rows_in(output)
        if status not in (0, None):
            made.update(status="failed", detail=f"rivals: exit status {status}: {check.tail('calls-rivals')}")
    first_calls(check, made, cold, FIRST_CALLS[check.algorithm][: AMONG_CALLS[check.algorithm]])


def run_first_calls(check, made, limit):
    """The stage `first_call`: first calls alone, of the problems that --problems names or of the list."""
    problems = check.wanted.problems or FIRST_CALLS.get(check.algorithm)
    if not problems:
        made.update(status="not run", detail=f"expected {' or '.join(FIRST_CALLS)}, got {check.algorithm}; the stage first_calls is that of fft")
        return
    made["status"] = "passed"
    first_calls(check, made, limit, problems)


def first_calls(check, made, limit, problems):
    """Each problem in a process of its own with an empty cache of kernels: with the bundle beside the programs, if there is one, and
    without."""
    ways = (["bundle"] if check.bundle_file().exists() else []) + ["compiled"]
    share = limit / (len(problems) * len(ways))
    with tempfile.TemporaryDirectory(dir=check.out) as folder:
        program = check.programs / "ballast-gpu-check-production"
        alone = Path(folder) / "bin" / program.name  # no bundle lies beside this one
        alone.parent.mkdir()
        shutil.copy(program, alone)
        for number_, (token, way) in enumerate((token, way) for token in problems for way in ways):
            cache = Path(folder) / str(number_)
            cache.mkdir()
            command = [program if way == "bundle" else alone, "first_call", "--only", check.algorithm, token]
            status, output = check.execute("first-call", command, share, {"BALLAST_CACHE_DIR": str(cache)})
            if status == NO_GPU:
                made.update(status="no GPU", detail=check.tail("first-call"))
                return
            rows = check.rows_in(output)
            found = [row for row in rows if row["type"] == "first call"]
            if not made["rows"]:
                made["rows"] += [row for row in rows if row["type"] == "info"]  # the stage `first_call` has no other program that tells of the device
            made["rows"] += [dict(row, kernels=way) for row in found]
            if not found:
                why = f"longer than {share:.0f} s" if status is None else check.tail("first-call")
                made["rows"].append({"type": "first call", "token": token, "kernels": way, "refused": why})
                if status is not None:
                    made.update(status="failed", detail=f"first call of {token}: {why}")


# ---- The page ----


def calls_of(result):
    """One entry for each problem and call, in the order of the run."""
    seen = {}
    for row in rows_of(result, "call"):
        seen.setdefault((row["token"], row.get("call")), {})[row["variant"]] = row
    profiles = {(row["token"], row["call"]): row for row in rows_of(result, "call profile") if row["variant"] == "correct"}
    parts = {}
    for row in rows_of(result, "call part"):
        if row["variant"] == "correct":
            parts.setdefault((row["token"], row["call"]), []).append(row)
    iterations = {(row["token"], row["call"]): row["iterations"] for row in rows_of(result, "call detail")}
    made = []
    for (token, call), variants in seen.items():
        time = lambda name: variants.get(name, {}).get("milliseconds")
        # Rivals make all iterations; a fit ends before, if no label changes.
        asked = re.fullmatch(r"fit, (\d+) iterations?", call or "")
        early = asked is not None and iterations.get((token, call), int(asked[1])) < int(asked[1])
        rivals = {name: time(name) for name in variants if name not in OURS and time(name) and not early}
        rival = min(rivals, key=rivals.get, default=None)
        off, correct = time("off"), time("correct")
        made.append(
            {
                "token": token,
                "call": call,
                "off": off,
                "correct": correct,
                "overhead": correct / off - 1 if off and correct else None,
                "cheaper": {name: time(name) / off - 1 for name in ("final_only", "sampled") if time(name) and off},
                "rival": rivals.get(rival),
                "rival_name": rival or "",
                "ratio": rivals[rival] / correct if rival and correct else None,
                "early": iterations[token, call] if early else None,
                "refused": pages.first_refusal(variants.values()),
                "profile": profiles.get((token, call)),
                "parts": sorted(parts.get((token, call), []), key=lambda row: -row["milliseconds"]),
            }
        )
    return made


def ratios_of(entries, algorithm):
    return [entry["ratio"] for entry in entries if entry["ratio"] and entry["token"].startswith(algorithm)]


def first_call_times(result, algorithm, kernels):
    rows = rows_of(result, "first call")
    return [row["milliseconds"] for row in rows if row.get("kernels") == kernels and "milliseconds" in row and row["token"].startswith(algorithm)]


def targets(entries, result):
    made = pages.Targets()
    for algorithm, least in LEAST.items():
        ratios = ratios_of(entries, algorithm)
        title = TITLES[algorithm]
        made.at_least(f"{title}, protected: ≥ {least}× the best rival in the geometric mean", geometric_mean(ratios), least, "{:.2f}×")
        made.at_least(f"{title}, protected: no call slower than the best rival", min(ratios, default=None), 1.0, "{:.2f}×")
    for algorithm, (median, most) in FIRST_CALL_LIMITS.items():
        times = first_call_times(result, algorithm, "bundle")
        title = TITLES[algorithm]
        made.at_most(f"{title}, first call with the bundle, median: ≤ {median} ms", statistics.median(times) if times else None, median, "{:.0f} ms")
        made.at_most(f"{title}, first call with the bundle, the longest: ≤ {most} ms", max(times, default=None), most, "{:.0f} ms")
    return made.all


def warm_section(entries, algorithm):
    rows = []
    for entry in entries:
        if entry["correct"] is None:
            rows.append([f"`{entry['token']}`", entry["call"] or "", entry["refused"], *[""] * 4])
            continue
        rows.append(
            [
                f"`{entry['token']}`",
                entry["call"],
                pages.milliseconds(entry["off"]),
                pages.milliseconds(entry["correct"]),
                number(entry["overhead"], "{:+.0%}"),
                f"{pages.milliseconds(entry['rival'])} ({entry['rival_name']})"
                if entry["rival"]
                else f"– (ended after {entry['early']})"
                if entry["early"]
                else "–",
                number(entry["ratio"]),
            ]
        )
    columns = ("problem", "call", "off, ms", "correct, ms", "protection", "best rival, ms", "× rival, correct")
    return [f"## {TITLES[algorithm]}", "", *pages.table(columns, rows)]


def cheaper_section(entries):
    """What protection of a part of the work costs."""
    rows = [
        [f"`{entry['token']}`", entry["call"], pages.milliseconds(entry["off"])]
        + [number(share, "{:+.0%}") for share in (entry["cheaper"].get("final_only"), entry["cheaper"].get("sampled"), entry["overhead"])]
        for entry in entries
        if entry["cheaper"]
    ]
    if not rows:
        return []
    return [
        "## Protection of a part of the work",
        "",
        "The time of a call over that of off. final_only: the last iteration and the results of a fit. sampled: one call of ten, the mean",
        "of ten calls. correct: everything. [protection.md](../protection.md) says what each finds.",
        "",
        *pages.table(("problem", "call", "off, ms", "final_only", "sampled(10)", "correct"), rows),
    ]


def cold_section(result):
    seen = {}
    for row in rows_of(result, "first call"):
        if row.get("kernels"):
            seen.setdefault(row["token"], {})[row["kernels"]] = row
    if not seen:
        return []
    cell = lambda row: "–" if row is None else row.get("refused") or number(row["milliseconds"], "{:.0f}")
    rows = [[f"`{token}`", cell(by.get("bundle")), cell(by.get("compiled"))] for token, by in seen.items()]
    return [
        "## First calls",
        "",
        "Milliseconds of the first call of a process, protected, with an empty cache of kernels. The CUDA context exists, and the operands",
        "lie on the device. bundle: with the bundle beside the programs. compiled: without one.",
        "",
        *pages.table(("problem", "bundle", "compiled"), rows),
    ]


def profile_section(entries):
    rows = []
    for entry in entries:
        seen = entry["profile"]
        if seen is None:
            continue
        part = lambda place: next((f"{row['part']} {row['milliseconds']:.3g} ({row['count']})" for row in entry["parts"] if row["place"] == place), "–")
        rows.append(
            [
                f"`{entry['token']}`",
                entry["call"],
                pages.milliseconds(seen["milliseconds"]),
                pages.milliseconds(seen["device"]),
                seen["operations"],
                part("device"),
                part("host"),
            ]
        )
    if not rows:
        return []
    return [
        "## What the calls do",
        "",
        "One protected call, measured: between two events, each kernel, product, copy and fill; by the host's clock, what the host waits",
        "for. The measurement makes the call longer. In brackets how often.",
        "",
        *pages.table(("problem", "call", "ms", "device busy", "operations", "longest on the device", "longest of the host"), rows),
    ]


def page(result):
    """The page of whole calls, as lines."""
    entries = calls_of(result)
    reached = targets(entries, result)
    lines = pages.head(
        result,
        "Whole calls on {device}: what users of K-Means and QR wait for",
        [
            "host time from the call",
            "until its results lie in device memory, operands on the device, plan and kernels ready, after one call that does not count. "
            "Variants",
            "of a call take turns; rivals from Python run after them, in the same way. Data are normally distributed and repeat after 2²⁴ "
            "numbers.",
        ],
        ["off: Ballast without protection. correct: with it, the default. × rival: the best rival's time over that of correct."],
    )
    lines += pages.targets_section(reached)
    for algorithm in TITLES:
        own = [entry for entry in entries if entry["token"].startswith(algorithm)]
        if own:
            lines += warm_section(own, algorithm)
    for name, why in dict.fromkeys((row["variant"], row["unavailable"]) for row in rows_of(result, "call rival") if row.get("unavailable")):
        lines += [f"{name} was not measured: {why}", ""]
    lines += cheaper_section(entries)
    lines += cold_section(result)
    lines += profile_section(entries)
    behind = [
        f"`{entry['token']}`, {entry['call']}: {entry['ratio']:.2f}× {entry['rival_name']}"
        for entry in sorted((entry for entry in entries if entry["ratio"]), key=lambda entry: entry["ratio"])
        if entry["ratio"] < 1
    ]
    return lines + pages.short_section(result, reached, behind, "Nothing of the targets that were measured.")


def first_call_table(result):
    for algorithm, title in TITLES.items():
        for kernels in ("bundle", "compiled"):
            times = first_call_times(result, algorithm, kernels)
            if times:
                yield f"{title}, first calls, {kernels}: median {statistics.median(times):.0f} ms, {min(times):.0f} to {max(times):.0f}"


def table(result):
    yield from first_call_table(result)
    entries = calls_of(result)
    if not entries:
        return
    yield ""
    yield f"{'whole calls, the slowest beside a rival':<52} {'off, ms':>9} {'protected':>9} {'rival':>9} {'x':>6}"
    for entry in sorted((entry for entry in entries if entry["ratio"]), key=lambda entry: entry["ratio"])[:SHOWN]:
        name = f"{entry['token'].removeprefix('kmeans_').removeprefix('qr_')}, {entry['call']}"
        yield (
            f"{name:<52} {pages.milliseconds(entry['off']):>9} {pages.milliseconds(entry['correct']):>9} "
            f"{pages.milliseconds(entry['rival']):>9} {number(entry['ratio']):>6} {entry['rival_name']}"
        )
    for algorithm, title in TITLES.items():
        ratios = ratios_of(entries, algorithm)
        if ratios:
            mean = geometric_mean(ratios)
            yield f"{title}: {mean:.2f} times as fast as the best rival in the geometric mean, {min(ratios):.2f} to {max(ratios):.2f}"
    refused = [entry for entry in entries if entry["correct"] is None]
    for entry in refused[:4]:
        yield f"  not measured: {entry['token']}, {entry['call'] or 'all calls'}: {entry['refused']}"
    if len(refused) > 4:
        yield f"  … {len(refused) - 4} more in the JSON"
