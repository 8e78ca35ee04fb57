"""Parts that the pages of all algorithms share: the head, the targets, tables, what was verified, and what falls short."""

from .rows import number, rows_of


def table(columns, rows):
    """The lines of a table, and an empty line."""
    line = lambda cells: "|" + "".join(f" {cell} |" if cell != "" else " |" for cell in cells)
    return [line(columns), "|" + "---|" * len(columns), *map(line, rows), ""]


def milliseconds(value):
    return number(value, "{:.4g}")


def first_refusal(rows):
    """Why a problem has no time: the reason of the first of its rows that has one."""
    return next((row["refused"] for row in rows if row.get("refused")), "not measured")


def by_variant(result, kind):
    """{token: {variant: row}} of the rows of a kind, in the order of the run."""
    made = {}
    for row in rows_of(result, kind):
        made.setdefault(row["token"], {})[row["variant"]] = row
    return made


class Targets:
    """The targets of the project for one algorithm: (what, reached or None if not measured, the figure)."""

    def __init__(self):
        self.all = []

    def add(self, what, value, good, form="{:.2f}"):
        self.all.append((what, None if value is None else good(value), number(value, form)))

    def at_least(self, what, value, least, form="{:.2f}"):
        self.add(what, value, lambda v: v >= least, form)

    def at_most(self, what, value, most, form="{:.2f}"):
        self.add(what, value, lambda v: v <= most, form)


def head(result, title, method, legend, machine_more=()):
    """The lines of a page before its first section. `method`: how the times were measured, after "Medians;". `legend`: the
    meaning of the columns."""
    return [
        f"# {title.format(device=result['info']['device'])}",
        "",
        f"{made_by(result)} Medians; {method[0]}",
        *method[1:],
        "",
        *machine(result),
        *machine_more,
        "",
        *legend,
        "",
    ]


def made_by(result):
    seconds = f"{result['seconds']:.0f} s"
    return f"Made by `{result['command']}` on {result['date']} ({seconds}), and written from its JSON by `scripts/gpu-check --report`."


def machine(result):
    """The lines of a page that say what it was measured on."""
    info, host = result["info"], result["host"]
    return [
        f"- GPU: {info['device']}, compute capability {info['capability']}, {info['multiprocessors']} multiprocessors, "
        f"{info['memory_bytes'] / 2**30:.0f} GiB, "
        f"{info['l2_bytes'] / 2**20:.0f} MiB of L2" + (f" (`nvidia-smi`: {host['nvidia_smi']})" if host.get("nvidia_smi") else ""),
        f"- Driver for CUDA {info['driver']}; cuFFT {info.get('cufft') or '–'}; {host.get('nvcc', '')}; {host.get('compiler', '')}; "
        f"host: {host.get('processor', '')}, {host.get('cores')} cores",
        f"- Ballast {info['version']}",
    ]


def targets_section(targets):
    verdict = {None: "not measured", True: "reached", False: "**missed**"}
    return ["## Targets", "", *table(("target", "", "measured"), ((what, verdict[reached], value) for what, reached, value in targets))]


def verified(result):
    """The section of a page on what was verified."""
    lines = []
    checks = rows_of(result, "check")
    if checks:
        lines += ["## What was verified in the same run", ""]
        rival = any(row.get("error_to_rival") is not None for row in checks)
        rows = []
        for group in dict.fromkeys(row["group"] for row in checks):
            of_group = [row for row in checks if row["group"] == group]
            worst = lambda key: number(max((row[key] for row in of_group if row.get(key) is not None), default=None))
            rows.append(
                [
                    group,
                    len(of_group),
                    sum(not row["pass"] for row in of_group),
                    worst("error_in_bounds"),
                    *([worst("error_to_rival")] if rival else []),
                ]
            )
        lines += table(("group", "cases", "failed", "worst error, of its bound", *(["worst error, of cuFFT's"] if rival else [])), rows)
        faults = [row for row in checks if row.get("trials") and "silent" in row]
        if faults:
            total = lambda key: sum(row[key] for row in faults)
            lines += [
                f"Injected faults: {total('trials')}; repaired in place {total('corrected')}, by computing again {total('recomputed')}, "
                f"reported {total('uncorrectable')} (protection `detect`, or a stuck bit); "
                f"changed the output unseen above the floor: {total('silent')}.",
                "",
            ]
    for stage in result["stages"]:
        if stage["name"] in ("memcheck", "racecheck"):
            lines += [f"compute-sanitizer {stage['name']}: {stage['status']}. {stage['detail']}", ""]
    return lines


def short_section(result, targets, points, nothing):
    """The section on what falls short: missed targets, then `points`, or `nothing`. Then the stages that did not pass."""
    points = [*(f"{what}: {value}" for what, reached, value in targets if reached is False), *points]
    unfinished = [
        f"- stage {stage['name']}: {stage['status']}; {stage['detail']}"
        for stage in result["stages"]
        if stage["status"] != "passed" or "skipped" in stage["detail"]
    ]
    return ["## What falls short", "", *([f"- {point}" for point in points] or [nothing]), *unfinished, ""]
