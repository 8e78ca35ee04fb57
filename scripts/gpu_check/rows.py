"""What the rows of gpu-check say, for its table and its pages."""

import math

WIDTH = 110  # of the table


def rows_of(result, kind):
    return [row for stage in result["stages"] for row in stage["rows"] if row["type"] == kind]


def geometric_mean(values):
    values = [value for value in values if value and value > 0]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def number(value, form="{:.2f}"):
    return form.format(value) if value is not None else "–"


def made_by(result):
    return f"Made by `{result['command']}` on {result['date']} ({result['seconds']:.0f} s), and written from its JSON by `scripts/gpu-check --report`."


def machine(result):
    """The lines of a page that say what it was measured on."""
    info, host = result["info"], result["host"]
    return [f"- GPU: {info['device']}, compute capability {info['capability']}, {info['multiprocessors']} multiprocessors, {info['memory_bytes'] / 2**30:.0f} GiB, "
            f"{info['l2_bytes'] / 2**20:.0f} MiB of L2" + (f" (`nvidia-smi`: {host['nvidia_smi']})" if host.get("nvidia_smi") else ""),
            f"- Driver for CUDA {info['driver']}; cuFFT {info.get('cufft') or '–'}; {host.get('nvcc', '')}; {host.get('compiler', '')}; host: {host.get('processor', '')}, {host.get('cores')} cores",
            f"- Ballast {info['version']}"]


def verified(result):
    """The section of a page on what was verified."""
    lines = []
    say = lines.append
    checks = rows_of(result, "check")
    if checks:
        say("## What was verified in the same run")
        say("")
        rival = any(row.get("error_to_rival") is not None for row in checks)
        say("| group | cases | failed | worst error, of its bound |" + (" worst error, of cuFFT's |" if rival else ""))
        say("|---|---|---|---|" + ("---|" if rival else ""))
        for group in dict.fromkeys(row["group"] for row in checks):
            rows = [row for row in checks if row["group"] == group]
            worst = lambda key: number(max((row[key] for row in rows if row.get(key) is not None), default=None))
            say(f"| {group} | {len(rows)} | {sum(not row['pass'] for row in rows)} | {worst('error_in_bounds')} |" + (f" {worst('error_to_rival')} |" if rival else ""))
        faults = [row for row in checks if row.get("trials") and "silent" in row]
        if faults:
            total = lambda key: sum(row[key] for row in faults)
            say("")
            say(f"Injected faults: {total('trials')}; repaired in place {total('corrected')}, by computing again {total('recomputed')}, reported {total('uncorrectable')} (protection `detect`, or a stuck bit); "
                f"changed the output unseen above the floor: {total('silent')}.")
        say("")
    for stage in result["stages"]:
        if stage["name"] in ("memcheck", "racecheck"):
            say(f"compute-sanitizer {stage['name']}: {stage['status']}. {stage['detail']}")
            say("")
    return lines


def unfinished(result):
    """The stages that did not pass, as points of a list."""
    return [f"- stage {stage['name']}: {stage['status']}; {stage['detail']}" for stage in result["stages"] if stage["status"] != "passed" or "skipped" in stage["detail"]]
