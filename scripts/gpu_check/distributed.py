"""`gpu-check --only distributed`: all devices of the machine beside one of them, K-Means also beside PyTorch, and the page."""

import shutil
import sys
from pathlib import Path

from .rows import number, rows_of

# Shares of the budget.
STAGES = {"distributed": 320, "distributed_rivals": 60}
ALGORITHM = "kmeans"  # whose program runs the stage
ALGORITHMS = ("kmeans", "qr", "fft")  # whose kernels it needs
# By problem: how many times one device's iterations two devices make, protected (targets of the design, for two H100).
LEAST_RATIO = {"kmeans_f32_m4194304_n128_k1000": 1.85, "kmeans_f32_m10485760_n32_k64": 1.7}


def run(check, made, limit):
    check.run_program(made, limit, "distributed")
    compared = rows_of({"stages": [made]}, "distributed")
    wrong = [row for row in compared if not row["pass"]]
    said = [f"{len(compared)} fits compared, {len(wrong)} differ"] if compared else []
    said += [f"{row['token']} on {row['devices']}: {row.get('wrong', 'other bits or an alarm')}" for row in wrong[:2]]
    calls = rows_of({"stages": [made]}, "distributed call")
    failed = [row for row in calls if not row["pass"]]
    said += [f"{len(calls)} calls of QR and FFT, {len(failed)} wrong"] if calls else []
    said += [f"{row['token']} on {row['devices'] or 'one'}: {row.get('wrong', 'an error above its limit or an alarm')}" for row in failed[:2]]
    times = {}
    for row in rows_of({"stages": [made]}, "distributed time"):
        if row["protection"] == "correct" and "milliseconds" in row:
            times.setdefault(row["token"], []).append(f"{row['devices'] or 'one'}: {row['milliseconds']:.3g} ms")
    said += [f"{token}: {', '.join(each)}" for token, each in times.items()]
    roads = {(row["devices"], row["road"]) for row in calls if row.get("road", "none") != "none"}
    said += [f"road on {devices}: {road}" for devices, road in sorted(roads)]
    made["detail"] = "; ".join(filter(None, [*said, made["detail"]]))


def rivals(check, made, limit):
    """PyTorch on one device and on all, where it is installed, on the problems that this run timed."""
    tokens = list(dict.fromkeys(row["token"] for stage in check.stages for row in stage["rows"] if row["type"] == "distributed time"))
    if not tokens:
        made["detail"] = "no problem was timed"
        return
    script = Path(__file__).resolve().parent / "distributed_rivals.py"
    status, output = check.execute("distributed_rivals", [shutil.which("python3") or sys.executable, script, "--seconds", max(limit - 10, 2), *tokens], limit)
    made["rows"] = check.rows_in(output)
    made["status"] = "out of time" if status is None else "passed" if status == 0 else "failed"
    made["detail"] = "; ".join(dict.fromkeys(f"{row['name']}: {row['unavailable']}" for row in made["rows"] if "unavailable" in row))
    if status not in (0, None):
        made["detail"] = f"exit status {status}: {check.tail('distributed_rivals')}"


def page(result):
    """The lines of the page, without its reasons."""
    counts = [row["count"] for row in rows_of(result, "devices")]
    compared = rows_of(result, "distributed")
    failed = [row for row in compared if not row["pass"]]
    lines = [
        "# Several GPUs of one machine",
        "",
        f"Made by `scripts/gpu-check --report` from a run of `{result['command']}` on {result['date']}: {counts[0] if counts else '?'} × "
        f"{result['info']['device']}, {result['host'].get('nvidia_smi', '')}.",
        "",
        "## The same bits",
        "",
        f"{len(compared)} fits on lists of devices, with and without protection, were compared with the same fit on one device without a group: "
        f"centroids, labels, inertia and iterations. {len(failed)} differed in a bit or raised an alarm.",
        "",
    ]
    if failed:
        lines += ["| problem | devices | protection | what |", "|---|---|---|---|"]
        lines += [f"| {row['token']} | {row['devices']} | {row['protection']} | {row.get('wrong', 'other bits or an alarm')} |" for row in failed]
        lines.append("")
    lines += [
        "## K-Means",
        "",
        "Milliseconds of one Lloyd iteration, from two fits of different length, and of a whole fit of at most 104 iterations from points in pageable host "
        "memory; the median of three. One: a call without a group. Speed-up: one over all, protected.",
        "",
        "| problem | one, off | one, correct | all, off | all, correct | speed-up | target | PyTorch, one | PyTorch, all | fit: one | fit: all |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    times, by_torch = {}, {}
    for row in rows_of(result, "distributed time"):
        times.setdefault(row["token"], {})[row["devices"], row["protection"]] = row
    for row in rows_of(result, "rival"):
        by_torch.setdefault(row.get("token"), {})[row["name"]] = row
    show = lambda value: number(value) if value is not None else "—"
    for token, seen in times.items():
        all_devices = max((devices for devices, _ in seen), key=lambda devices: devices.count(","))
        at = lambda devices, level, key="milliseconds": seen.get((devices, level), {}).get(key)
        one, more = at("", "correct"), at(all_devices, "correct")
        torch = by_torch.get(token, {})
        lines.append("| " + " | ".join([
            token.removeprefix("kmeans_"), show(at("", "off")), show(one), show(at(all_devices, "off")), show(more), f"{one / more:.2f}" if one and more else "—",
            str(LEAST_RATIO.get(token, "—")), show(torch.get("torch, 1", {}).get("milliseconds")), show(torch.get("torch, all", {}).get("milliseconds")),
            show(at("", "correct", "call")), show(at(all_devices, "correct", "call"))]) + " |")
    lines.append("")
    lines += calls_of(result)
    if counts and counts[0] == 1:
        lines += ["There was one device: \"all\" are two ranks on it.", ""]
    missing = list(dict.fromkeys(f"{row['name']}: {row['unavailable']}" for row in rows_of(result, "rival") if "unavailable" in row))
    if missing:
        lines += ["Not timed: " + "; ".join(missing) + ".", ""]
    return lines


def calls_of(result):
    """The table of whole calls of QR and FFT."""
    seen = {}
    for row in rows_of(result, "distributed call"):
        seen.setdefault((row["token"], row["call"]), {})[row["devices"], row["protection"]] = row
    if not seen:
        return []
    lines = [
        "## QR and FFT",
        "",
        "Milliseconds of whole calls with operands in pageable host memory, or in the memory of the devices that use them where the call says so, the median of three; one: a call without a group. Speed-up: one over all, "
        "protected. Error: of the result on all devices, over its limit. Road: peer, blocks go from device to device; host, through its memory. "
        "In device memory, protected: of one device a call whose operands lie there; of all the steps of a call, from operands in the memory of the "
        "devices to a result there.",
        "",
        "| problem | call | one, off | one, correct | all, off | all, correct | speed-up | error / limit | road | in device memory: one | all | speed-up |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines_divided = divided_of(seen)
    resident = {token: rows for (token, call), rows in seen.items() if call == "forward, in device memory"}
    for (token, call), rows in seen.items():
        if call == "forward, in device memory" or ", divided" in call:
            continue
        all_devices = max((devices for devices, _ in rows), key=lambda devices: devices.count(","))
        at = lambda devices, level, key="milliseconds": rows.get((devices, level), {}).get(key)
        show = lambda value: number(value) if value is not None else "—"
        one, more = at("", "correct"), at(all_devices, "correct")
        row = rows.get((all_devices, "correct"), {})
        error = f"{row['error'] / row['limit']:.2g}" if row.get("limit") else row.get("wrong", "—")
        ratio = f"{one / more:.2f}" if one and more else "—"
        times = [show(each) for each in (at("", "off"), one, at(all_devices, "off"), more)]
        there = [resident.get(token, {}).get(("", "correct"), {}).get("milliseconds"), row.get("inside")]
        ratio_there = f"{there[0] / there[1]:.2f}" if all(there) else "—"
        lines.append("| " + " | ".join([token, call, *times, ratio, error, row.get("road", "—"), *map(show, there), ratio_there]) + " |")
    return [*lines, "", *lines_divided]


def divided_of(seen):
    """The table of transforms whose operands lie divided on the devices."""
    rows = [(token, call, at) for (token, call), at in seen.items() if ", divided" in call and not call.endswith("after lines")]
    if not rows:
        return []
    lines = [
        "Operands divided on the devices, in milliseconds, the median of nine: the steps of a call, from operands in the memory of the devices to a "
        "result there, and the part of it in which the first device only exchanged. Apart: the same with each exchange after all lines before it, and "
        "all of the exchange. Whole call: with the start of the threads and, in natural order, the copy to the result's place. One: a call on one "
        "device with its operands there.",
        "",
        "| problem | order | devices | protection | one | all | speed-up | only exchange | apart: all | apart: exchange | whole call | error / limit |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    show = lambda value: number(value) if value is not None else "—"
    for token, call, at in rows:
        apart = seen.get((token, call + ", exchange after lines"), {})
        for (devices, level), row in at.items():
            one = seen.get((token, "forward, in device memory"), {}).get(("", level), {}).get("milliseconds")
            other = apart.get((devices, level), {})
            inside = row.get("inside")
            ratio = f"{one / inside:.2f}" if one and inside else "—"
            error = f"{row['error'] / row['limit']:.2g}" if row.get("limit") else row.get("wrong", "—")
            lines.append("| " + " | ".join([
                token, call.removeprefix("forward, divided, "), devices, level, show(one), show(inside), ratio, show(row.get("exchange")), show(other.get("inside")),
                show(other.get("exchange")), show(row.get("milliseconds")), error]) + " |")
    return [*lines, ""]
