"""`gpu-check --only distributed`: all devices of the machine beside one of them, K-Means also beside PyTorch, and the page."""

import os
import shutil
import sys
from pathlib import Path

from .rows import number, rows_of

# Shares of the budget.
STAGES = {"distributed": 250, "distributed_rivals": 80, "nccl": 160}
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
    """PyTorch and cufftXt on one device and on all, where they are installed, on the problems that this run timed."""
    timed = ("distributed time", "distributed call")
    tokens = list(dict.fromkeys(row["token"] for stage in check.stages for row in stage["rows"] if row["type"] in timed and not row["token"].startswith("qr_")))
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


def nccl_library(named, folders):
    """The libnccl.so.2 to run on: the named file, that of $NCCL_HOME, that of a Python package among `folders`, or one of the system; or None."""
    if named:
        return Path(named)
    home = os.environ.get("NCCL_HOME")
    places = [Path(home) / "lib", Path(home) / "lib64", Path(home)] if home else []
    places += [Path(folder) / "nvidia" / part for folder in folders if folder for part in ("nccl/lib", "cu13/lib")]
    places += [Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64"), Path("/usr/local/lib"), Path("/usr/local/cuda/lib64")]
    return next((place / "libnccl.so.2" for place in places if (place / "libnccl.so.2").exists()), None)


def nccl(check, made, limit, library):
    """A process for each device over `library`: the bits and errors of one device, faults, killed processes, times."""
    if library is None:
        made["detail"] = "no libnccl.so.2 beside Python's packages or in the system; --nccl or $NCCL_HOME can name it"
        return
    check.run_program(made, limit, "nccl", more=["--nccl", library])
    rows = [row for row in made["rows"] if row["type"].startswith("nccl")]
    version = next((row["version"] for row in rows if "version" in row), None)
    said = [f"NCCL {version}"] if version else []
    for kind, words in (("nccl fit", "fits compared"), ("nccl transform", "transforms"), ("nccl qr", "calls of QR"), ("nccl faults", "kinds of faults"),
                        ("nccl loss", "lost ranks"), ("nccl scene", "scenes")):
        of = [row for row in rows if row["type"] == kind]
        said += [f"{len(of)} {words}, {sum(not row['pass'] for row in of)} wrong"] if of else []
    said += [f"{row['name']}: {row['wrong']}" for row in rows if row["type"] == "nccl failure"][:2]
    said += [f"{row['name']}: {row['wrong']}" for row in rows if row["type"] == "nccl scene" and not row["pass"]][:2]
    for row in rows:
        if row["type"] == "nccl time" and row["protection"] == "correct" and "milliseconds" in row:
            said.append(f"{row['token']} on {row['ranks']}: {row['milliseconds']:.3g} ms")
    made["detail"] = "; ".join(filter(None, [*said, made["detail"]]))


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
    times, by_rival = {}, {}
    for row in rows_of(result, "distributed time"):
        times.setdefault(row["token"], {})[row["devices"], row["protection"]] = row
    for row in rows_of(result, "rival"):
        by_rival.setdefault(row.get("token"), {})[row["name"]] = row
    show = lambda value: number(value) if value is not None else "—"
    for token, seen in times.items():
        all_devices = max((devices for devices, _ in seen), key=lambda devices: devices.count(","))
        at = lambda devices, level, key="milliseconds": seen.get((devices, level), {}).get(key)
        one, more = at("", "correct"), at(all_devices, "correct")
        torch = by_rival.get(token, {})
        lines.append("| " + " | ".join([
            token.removeprefix("kmeans_"), show(at("", "off")), show(one), show(at(all_devices, "off")), show(more), f"{one / more:.2f}" if one and more else "—",
            str(LEAST_RATIO.get(token, "—")), show(torch.get("torch, 1", {}).get("milliseconds")), show(torch.get("torch, all", {}).get("milliseconds")),
            show(at("", "correct", "call")), show(at(all_devices, "correct", "call"))]) + " |")
    lines.append("")
    lines += calls_of(result)
    lines += cufft_of(by_rival)
    lines += nccl_of(result)
    if counts and counts[0] == 1:
        lines += ["There was one device: \"all\" are two ranks on it.", ""]
    missing = {}
    for row in rows_of(result, "rival"):
        if "unavailable" in row:
            missing.setdefault(f"{row['name']}: {row['unavailable']}", []).append(row.get("token"))
    skipped = list(dict.fromkeys(row["token"] for row in rows_of(result, "skipped") if "token" in row))
    said = [f"{what} ({', '.join(tokens)})" if all(tokens) else what for what, tokens in missing.items()]
    said += [f"rows of {', '.join(skipped)}: no time was left"] if skipped else []
    if said:
        lines += ["Not timed: " + "; ".join(said) + ".", ""]
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
        "Milliseconds of whole calls with operands in pageable host memory, or in the memory of the devices that use them where the call says so, the median of three; "
        "one call where they lie in pageable memory and have 512 MiB or more; one: a call without a group. Speed-up: one over all, protected. Error: of the result on all devices, over its limit. Road: peer, blocks go from device to device; host, through its memory. "
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


def cufft_of(by_rival):
    """The table of cuFFT on one device and cufftXt on all."""
    rows = [(token, rivals) for token, rivals in by_rival.items() if "cuFFT, 1" in rivals]
    if not rows:
        return []
    lines = [
        "cuFFT on one device, and cufftXt on all: milliseconds of a transform of data in device memory, the median of nine by the host's clock. Permuted: the order in "
        "which cufftXt leaves its result; natural: with its copy to natural order. Speed-up: one over all.",
        "",
        "| problem | cuFFT, one | cufftXt, permuted | natural | speed-up, permuted | natural |",
        "|---|---|---|---|---|---|",
    ]
    for token, rivals in rows:
        times = [rivals.get(name, {}).get("milliseconds") for name in ("cuFFT, 1", "cufftXt, permuted", "cufftXt, natural")]
        ratios = [f"{times[0] / more:.2f}" if times[0] and more else "—" for more in times[1:]]
        lines.append("| " + " | ".join([token, *(number(each) if each is not None else "—" for each in times), *ratios]) + " |")
    return [*lines, ""]


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


def nccl_of(result):
    """The section of a process for each device."""
    scenes = rows_of(result, "nccl scene")
    if not scenes:
        return []
    show = lambda value: number(value) if value is not None else "—"
    made = next((row for row in rows_of(result, "nccl group")), {})
    fits, faults, losses = rows_of(result, "nccl fit"), rows_of(result, "nccl faults"), rows_of(result, "nccl loss")
    wrong = [row for row in fits + faults + losses + scenes + rows_of(result, "nccl failure") if not row["pass"]]
    lines = [
        "## A process for each GPU: NCCL",
        "",
        f"{made.get('ranks', '?')} processes over NCCL {made.get('version', '?')}. {len(fits)} fits of K-Means were compared by the ranks with the fit on one device: "
        f"centroids, the rank's labels, inertia and iterations; {sum(not row['pass'] for row in fits)} differed in a bit or raised an alarm. "
        f"{len(scenes)} sets of processes were started; {sum(not row['pass'] for row in scenes)} had a process that failed or did not end.",
        "",
    ]
    if faults:
        lines += ["Faults of what NCCL moves: the sender's bytes are damaged on their way, or a sum.", "",
                  "| call | fault | protection | calls | struck | detected | wrong results |", "|---|---|---|---|---|---|---|"]
        lines += [f"| {row['call']} | {row['fault']} | {row['protection']} | {row['cases']} | {row['struck']} | {row['detected']} | {row['wrong']} |" for row in faults]
        lines.append("")
    if losses:
        lines += ["A process was killed during calls of the others. They found it in the time below, named it, and made a new group with the results of one device.", "",
                  "| during | at its operation | patience, s | found after, s | named | right |", "|---|---|---|---|---|---|"]
        lines += [f"| {row['during']} | {row['number']} | {row['patience']:g} | {number(row['seconds'])} | {row['named'] or '—'} | {'yes' if row['pass'] else '**no**'} |"
                  for row in losses]
        lines.append("")
    times = {}
    for row in rows_of(result, "nccl time"):
        times.setdefault(row["token"], {})[row["ranks"] > 1, row["protection"]] = row
    if times:
        lines += ["Milliseconds of an iteration of K-Means, points in device memory, the median of five.", "",
                  "| problem | one, off | one, correct | all, off | all, correct | speed-up | fit: one | fit: all |", "|---|---|---|---|---|---|---|---|"]
        for token, rows in times.items():
            at = lambda many, level, key="milliseconds": rows.get((many, level), {}).get(key)
            one, more = at(False, "correct"), at(True, "correct")
            lines.append("| " + " | ".join([token, show(at(False, "off")), show(one), show(at(True, "off")), show(more), f"{one / more:.2f}" if one and more else "—",
                                            show(at(False, "correct", "call")), show(at(True, "correct", "call"))]) + " |")
        lines.append("")
    transforms = {}
    for row in rows_of(result, "nccl transform"):
        if row["rank"] == 0:
            transforms.setdefault(row["token"], {})[row["ranks"] > 1, row["order"], row["protection"]] = row
    if transforms:
        lines += ["Milliseconds of transforms, operands in device memory, the median of five. Speed-up: one over all, protected. Error: over its limit, the larger of both orders.", "",
                  "| problem | one, off | one, correct | transposed, off | transposed, correct | natural, off | natural, correct | speed-up, transposed | natural | error / limit |",
                  "|---|---|---|---|---|---|---|---|---|---|"]
        for token, rows in transforms.items():
            at = lambda many, order, level: rows.get((many, order, level), {}).get("milliseconds")
            one, turned, natural = at(False, "natural", "correct"), at(True, "transposed", "correct"), at(True, "natural", "correct")
            errors = [row["error"] / row["limit"] for row in rows.values() if row.get("limit") and row.get("error") is not None]
            ratio = lambda more: f"{one / more:.2f}" if one and more else "—"
            lines.append("| " + " | ".join([token, show(at(False, "natural", "off")), show(one), show(at(True, "transposed", "off")), show(turned), show(at(True, "natural", "off")),
                                            show(natural), ratio(turned), ratio(natural), f"{max(errors):.2g}" if errors else "—"]) + " |")
        lines.append("")
    if wrong:
        lines += ["Failed: " + "; ".join(f"{row['type']} {row.get('name', row.get('token', row.get('call', row.get('during', ''))))}: {row.get('wrong', '')}" for row in wrong[:8]) + ".", ""]
    return lines
