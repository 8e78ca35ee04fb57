"""The table that gpu-check ends with."""

import itertools

from . import calls, kinds, kmeans_page, python_package, qr_page
from .fft_page import benchmark, heat, targets
from .rows import WIDTH, geometric_mean, number, rows_of


def summary(result):
    info = result["info"]
    device = info.get("device") or "no GPU: " + info.get("unavailable", "not asked")
    yield (
        f"Ballast {info.get('version', '?')} on {device}; driver CUDA {info.get('driver', '–')}, cuFFT {info.get('cufft') or '–'}; "
        f"{result['seconds']:.0f} s"
    )
    width = 18 if any(stage["name"] in python_package.STAGES for stage in result["stages"]) else 10
    for stage in result["stages"]:
        yield f"{stage['name']:<{width}} {stage['status']:<12} {stage['seconds']:6.1f} s  {stage['detail']}"


def kernels_and_checks(result):
    broken = [row for row in rows_of(result, "kernel") if not row.get("pass")]
    for row in broken[:4]:
        why = (row.get("wrong") or row.get("refused", "")).strip().splitlines() or [""]
        yield f"  FAILED kernel of {row['token']}: {next((line for line in why if 'error' in line), why[0])}"
    checks = rows_of(result, "check")
    if checks:
        yield ""
        yield f"{'verified':<11} {'cases':>6} {'failed':>6}   worst error of its bound   worst error of cuFFT's   faults repaired / silent"
        for group in dict.fromkeys(row["group"] for row in checks):
            rows = [row for row in checks if row["group"] == group]
            bound = max((row["error_in_bounds"] for row in rows if row.get("error_in_bounds") is not None), default=None)
            rival = max((row["error_to_rival"] for row in rows if row.get("error_to_rival") is not None), default=None)
            repaired = sum(row.get("corrected", 0) + row.get("recomputed", 0) for row in rows)
            struck = (
                f"{repaired} of {sum(row.get('trials', 0) for row in rows)} / {sum(row.get('silent', 0) for row in rows)}"
                if group == "faults"
                else ""
            )
            yield (
                f"{group:<11} {len(rows):6} {sum(not row['pass'] for row in rows):6}   {number(bound):>24}   {number(rival):>22}   {struck}"
            )
        alone = [row["no_rival"] for row in checks if row.get("no_rival")]
        if alone:
            yield f"  {len(alone)} cases were not compared with cuFFT: {alone[0]}"
        refused = rows_of(result, "scheme")
        if refused:
            yield f"  refused schemes: {', '.join(row['scheme'] for row in refused)}: {refused[0]['refused']}"
        failures = [row for row in checks if not row["pass"]]
        alike = {}
        for row in failures:
            alike.setdefault((row["group"], row["token"]), []).append(row)
        for (group, token), rows in list(alike.items())[:12]:
            more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
            yield f"  FAILED {group} {token} [{rows[0]['manner']}]{more} {rows[0].get('wrong', '')}"
        if len(alike) > 12:
            yield f"  … {len(alike) - 12} more problems in the JSON"


def strikes(result):
    struck = rows_of(result, "strike")
    if struck:
        yield ""
        yield (
            f"{'struck':<30} {'protect':<7} {'n':>6} {'masked':>6} {'repair':>6} {'wrong':>5} {'unc.':>4} {'crash':>5} {'round':>5} {'<=flr':>5} "
            f"{'mater.':>6} {'99 %':>7}"
        )
        for row in struck:
            if "strikes" not in row:
                yield f"{row['token']:<30} {row['protection']:<7} FAILED {row.get('wrong', '')}"
                continue
            yield (
                f"{row['token']:<30} {row['protection']:<7} {row['strikes']:6} {row['masked']:6} {row['repaired']:6} {row['wrong']:5} "
                f"{row['uncorrectable']:4} {row['failed'] + row['crashed'] + row['hung']:5} {row['rounding']:5} "
                f"{row['below_floor']:5} {row['material']:6} {row['bound_99']:7.1g}"
            )
        # Other: uncorrectable, an exception, a crash, no end.
        places = [dict(row, other=row["uncorrectable"] + row["failed"] + row["crashed"] + row["hung"]) for row in rows_of(result, "strike place")]
        for row in sorted(places, key=lambda row: -(row["material"] + row["wrong"] + row["other"]))[:20]:
            instruction, _, source = row["site"].partition("\t")
            floors = "NaN or Inf" if row["floors"] is None else f"{row['floors']:.2g} floors"
            yield f"  {row['material']:3} silent, {row['wrong']} wrong, {row['other']} other, {floors}: {instruction[:60]} {source}"[:110]


def fft_times(result):
    entries = benchmark(result)
    if entries:
        yield ""
        yield (
            f"{'problem':<32} {'GB/s':>6} {'ms':>8} {'of copy':>8} {'x cuFFT':>8} {'protected':>9} {'protection':>11} "
            f"{'cuFFT: best ms':>15}"
        )
        for entry in entries:
            name = entry["token"].removeprefix("fft_")
            if entry["off"] is None:
                yield f"{name:<32} {entry['refused'] or 'not measured'}"
                continue
            milliseconds = lambda seconds: number(seconds and seconds * 1e3, "{:.4f}" if entry["off"] < 1e-4 else "{:.3f}")
            yield (
                f"{name:<32} {entry['gbs']:6.0f} {milliseconds(entry['off']):>8} {number(entry['of_copy'], '{:.0%}'):>8} "
                f"{number(entry['ratio']):>8} "
                f"{number(entry['ratio_correct']):>9} {number(entry['overhead'], '{:+.1%}'):>11} {milliseconds(entry['rival']):>8} "
                f"{entry['rival_name'].removeprefix('cufft') or ' default':<8}"
                + (" WRONG" if entry["wrong"] else "")
            )
        schemes = [
            name
            for entry in entries
            for name in entry["variants"]
            if name not in ("off", "correct", "cufft", "cufft patient", "copy", "all")
        ]
        with_schemes = [entry for entry in entries if entry["off"] and any(name in entry["variants"] for name in schemes)]
        if with_schemes:
            yield "overhead by scheme: " + "  ".join(
                f"[{i}] {entry['token'].removeprefix('fft_c2c_')}" for i, entry in enumerate(with_schemes)
            )
            for scheme in ["correct", *dict.fromkeys(schemes)]:
                costs = [entry["variants"].get(scheme, {}).get("median") for entry in with_schemes]
                if any(costs):
                    yield f"  {scheme:<24}" + "".join(
                        f"{number(cost and cost / entry['off'] - 1, '{:+.1%}'):>10}" for cost, entry in zip(costs, with_schemes)
                    )
        costs = [entry for entry in entries if "fault_seconds" in entry]
        if costs:
            yield "one repaired fault, µs: " + "  ".join(
                f"{entry['fault_seconds'] * 1e6:.1f} ({entry['token'].removeprefix('fft_c2c_').split('_b')[0]})" for entry in costs
            )
        yield ""
        for what, reached, value in targets(result, entries):
            yield f"{'–' if reached is None else 'reached' if reached else 'MISSED':<8} {what}: {value}"


def kmeans_iterations(result):
    entries = kmeans_page.iterations(result)
    if entries:
        yield ""
        yield (
            f"{'problem':<32} {'ms/iteration':>13} {'protected':>10} {'protection':>11} {'points ready, ms':>17} {'PyTorch':>9} "
            f"{'flash':>8}"
        )
        for entry in entries:
            yield (
                f"{entry['name']:<32} {number(entry['off'], '{:.4f}'):>13} {number(entry['correct'], '{:.4f}'):>10} "
                f"{number(entry['overhead'], '{:+.1%}'):>11} {number(entry['preparation']):>17} "
                f"{number(entry['rivals'].get('PyTorch'), '{:.4f}'):>9} {number(entry['rivals'].get('flash-kmeans'), '{:.4f}'):>8} "
                f"{entry['refused'] if entry['off'] is None else ''}".rstrip()
            )
        mean = geometric_mean([1 + entry["overhead"] for entry in entries if entry["overhead"] is not None])
        yield f"protection of an iteration, geometric mean: {number(mean and mean - 1, '{:+.1%}')}"
        for name in dict.fromkeys(name for entry in entries for name in entry["ratios"]):
            ratios = kmeans_page.times_as_fast(entries, name)
            yield (
                f"protected, times as fast as {name}: {geometric_mean(ratios):.2f} in the geometric mean, {min(ratios):.2f} to "
                f"{max(ratios):.2f}"
            )


def kmeans_steps(result):
    steps = kmeans_page.steps(result)
    if steps:
        columns = [(scheme, "off", "none") for scheme in (*kmeans_page.PLAIN, kmeans_page.OURS)]
        columns += [
            (scheme, "correct", faults)
            for scheme in ("warp_checksum", "detect_recompute", "threadblock_checksum", kmeans_page.OURS)
            for faults in ("none", "idle", "struck")
        ]
        yield ""
        yield "microseconds of the distance step; +: instrumented kernels without faults, *: with them"
        marks = {"none": "", "idle": "+", "struck": "*"}
        yield f"{'problem':<24}" + "".join(f"{scheme[:8] + marks[faults]:>10}" for scheme, _, faults in columns)
        for token, seen in steps.items():
            times = [seen.get(column, {}).get("milliseconds") for column in columns]
            yield f"{token.removeprefix('kmeans_'):<24}" + "".join(f"{number(time and 1e3 * time, '{:.1f}'):>10}" for time in times)


def qr_times(result):
    entries = qr_page.factorizations(result)
    if entries:
        yield ""
        yield (
            f"{'problem':<26} {'off, ms':>9} {'TFLOP/s':>8} {'protected':>10} {'TFLOP/s':>8} {'protection':>11} {'NVIDIA, ms':>13} "
            f"{'protected x':>12}"
        )
        for entry in entries:
            name = entry["name"] if entry["operation"] == "geqrf" else f"{entry['operation']} {entry['name']}"
            yield (
                f"{name:<26} {number(entry['off'], '{:.3f}'):>9} {number(entry['off_tflops']):>8} "
                f"{number(entry['correct'], '{:.3f}'):>10} {number(entry['correct_tflops']):>8} "
                f"{number(entry['overhead'], '{:+.1%}'):>11} {number(entry['rival'], '{:.3f}'):>13} {number(entry['ratio']):>12} "
                f"{entry['refused']}"
            )


def qr_hybrid(result):
    figures = qr_page.curves(result)
    if figures:
        yield ""
        yield "hybrid, ms" + " " * 10 + "".join(f"{name:>14}" for name in ("off", "R", "R and Q", "fault in Q", "fault in A'", "plain"))
        for token, seen in figures.items():
            times = [seen.get(name, {}).get("milliseconds") for name in qr_page.CURVES]
            refused = next((row["refused"] for row in seen.values() if row.get("refused")), "")
            yield f"{token.removeprefix('qr_'):<20}" + "".join(f"{number(time, '{:.2f}'):>14}" for time in times)
            if refused:
                yield f"  {refused}"
        for row in (row for kind in ("curve", "rotations", "overhead") for row in rows_of(result, kind) if row.get("pass") is False):
            yield f"  FAILED {row['token']}, {row.get('variant', row.get('name'))}: {row.get('wrong', '')}"
        overheads = {}
        for row in rows_of(result, "overhead"):
            overheads.setdefault(row["token"], []).append(row)
        for token, seen in overheads.items():
            cells = (
                f"{row['source']}: {row['milliseconds']:.3g}" + (f" ({row['within']:+.2g})" if row.get("within") is not None else "")
                for row in seen
            )
            yield f"  {token.removeprefix('qr_')}, §7.1, ms alone (in a call) " + "  ".join(cells)
        turned = {}
        for row in rows_of(result, "rotations"):
            turned.setdefault(row["token"], {})[row["variant"]] = row["milliseconds"]
        for token, seen in turned.items():
            yield (
                f"  {token.removeprefix('qr_')}, Figure 5: rotations one after the other {seen['plain']:.3g} ms, blocked "
                f"{seen['blocked']:.3g} ms"
            )


def tuned_and_heat(result):
    tuned = [row for row in rows_of(result, "tuned") if row.get("seconds")]
    for row in sorted(tuned, key=lambda row: row["seconds"] / row["default_seconds"])[:30]:
        yield f"tuned {row['token'].removeprefix('fft_'):<36} {row['default_seconds'] / row['seconds']:.2f}x  {row['policy']}"
    map_ = heat(result)
    if map_:
        yield ""
        yield f"heat map, {len(map_)} cells: cuFFT's time over Ballast's (geometric mean / least), protected in brackets"
        lengths = sorted({n for n, _ in map_})
        parts = []
        for n in lengths:
            off = [cell["off"] for (length, _), cell in map_.items() if length == n]
            correct = [cell["correct"] for (length, _), cell in map_.items() if length == n and cell["correct"]]
            parts.append(f"2^{n}: {geometric_mean(off):.2f}/{min(off):.2f} ({number(geometric_mean(correct))})")
        for first in range(0, len(parts), 4):
            yield "  " + "  ".join(f"{part:<25}" for part in parts[first : first + 4])


def table(result):
    parts = (summary, kernels_and_checks, strikes, fft_times, kmeans_iterations, kmeans_steps, qr_times, qr_hybrid, calls.table, kinds.table, tuned_and_heat, python_package.table)
    lines = [line[:WIDTH] for line in itertools.chain.from_iterable(part(result) for part in parts)]
    return lines[:100]
