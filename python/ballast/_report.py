"""Reports: what the checks of a call saw."""

import html
import time
from typing import NamedTuple

__all__ = ["Event", "Report", "compared"]

_VERDICTS = ("clean", "corrected", "recomputed", "uncorrectable")


class Event(NamedTuple):
    """One detected fault.

    site: the check that fired. index: its location (signal, row of points, column), -1 if the check cannot place it. residual exceeded
    threshold. action: "corrected", "recomputed" or "uncorrectable". device, thread, multiprocessor: where the check ran. time: seconds
    since the Unix epoch. damaged: the event itself was hit while it waited in the log; believe only its existence.
    """

    site: str
    index: int
    residual: float
    threshold: float
    action: str
    device: str
    thread: int
    multiprocessor: int
    time: float
    damaged: bool

    def __str__(self):
        place = "" if self.index < 0 else f"[{self.index}]"
        return f"{self.site}{place}: residual {self.residual:.3g} above {self.threshold:.3g}, {self.action}, on {self.device}"


def compared(site, index, action):
    """The event of a comparison of bits in Python. As for the library's seals, the residual is NaN and the threshold 0."""
    return Event(site, index, float("nan"), 0.0, action, "cpu", -1, -1, time.time(), False)


def _duration(seconds):
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _field(name, text):
    return property(lambda self: self._read()[name], doc=text)


class Report:
    """The findings of one call. Immutable."""

    __slots__ = ("_source", "_values")

    def __init__(self, source):
        """`source`: what the library returned, or a dict as to_dict() makes it."""
        if isinstance(source, dict):
            self._source, self._values = None, dict(source, events=[Event(**each) for each in source["events"]])
        else:
            self._source, self._values = source, None

    def with_checks(self, checks, events, false_alarms):
        """This report and the findings of checks in Python."""
        values = self.to_dict()
        values["checks"] += checks
        values["false_alarms"] += false_alarms
        values["detected"] += len(events)
        values["events"] += [each._asdict() for each in events]
        for each in events:
            values[each.action] += 1
        values["verdict"] = max([values["verdict"], *(each.action for each in events)], key=_VERDICTS.index)
        return Report(values)

    def _read(self):
        if self._values is None:
            values = self._source.values()
            values["events"] = [Event(**each) for each in values["events"]]
            self._values, self._source = values, None
        return self._values

    verdict = _field("verdict", '"clean", "corrected", "recomputed" or "uncorrectable".')
    checks = _field("checks", "Comparisons of a residual with its threshold.")
    detected = _field("detected", "Comparisons that failed, one for each fault.")
    corrected = _field("corrected", "Faults that were repaired in place.")
    recomputed = _field("recomputed", "Faults that were repaired by computing again.")
    uncorrectable = _field("uncorrectable", "Faults that were not repaired.")
    false_alarms = _field("false_alarms", "Among `recomputed`: the check was hit, not the data.")
    problem = _field("problem", "The one-line name of the problem.")
    backend = _field("backend", 'The backend that computed: "cpu", "cuda" or "reference".')
    protection = _field("protection", 'Of this call: "off", "detect", "correct" or "final_only".')
    sampled = _field("sampled", "Of so many calls one is protected.")
    scheme = _field("scheme", "How the algorithm encoded and repaired.")
    fallback_kernels = _field("fallback_kernels", "Why fallback kernels computed; empty if they did not.")
    seconds = _field("seconds", "Wall time of the call in the library.")
    condition = _field("condition", "Least squares: the condition number of the scaled matrix; else NaN.")

    @property
    def events(self):
        """One Event for each fault, at most 4096; the counts are complete."""
        return tuple(self._read()["events"])

    def to_dict(self):
        """All values as plain types; pandas.DataFrame(report.to_dict()["events"]) is a table of the faults."""
        values = dict(self._read())
        values["events"] = [each._asdict() for each in values["events"]]
        return values

    def __reduce__(self):
        return Report, (self.to_dict(),)

    def __eq__(self, other):
        # repr shows NaN, the condition of most calls, as equal to itself.
        return isinstance(other, Report) and repr(self.to_dict()) == repr(other.to_dict())

    __hash__ = None

    def _counts(self):
        words = [f"{self.checks} checks"]
        for name in ("detected", "corrected", "recomputed", "uncorrectable", "false_alarms"):
            if getattr(self, name):
                words.append(f"{getattr(self, name)} {name.replace('_', ' ')}")
        return ", ".join(words)

    def __repr__(self):
        return f"<ballast.Report {self.verdict}: {self.problem}, {self._counts()}, {self.backend}, {_duration(self.seconds)}>"

    def __str__(self):
        lines = [f"{self.verdict}: {self.problem} on {self.backend}, protection {self.protection}, {self._counts()}"]
        shown = self.events[:10]
        lines += [f"  {each}" for each in shown]
        if len(self.events) > len(shown):
            lines.append(f"  and {len(self.events) - len(shown)} more")
        return "\n".join(lines)

    def _repr_html_(self):
        colour = {"clean": "#1a7f37", "corrected": "#9a6700", "recomputed": "#9a6700"}.get(self.verdict, "#cf222e")
        head = (f'<b style="color:{colour}">{html.escape(self.verdict)}</b> <code>{html.escape(self.problem)}</code> '
                f"on {html.escape(self.backend)}, protection {html.escape(self.protection)}: {self._counts()}, {_duration(self.seconds)}")
        if not self.events:
            return f"<div>{head}</div>"
        rows = "".join(
            f"<tr><td>{html.escape(e.site)}</td><td>{e.index}</td><td>{e.residual:.3g}</td><td>{e.threshold:.3g}</td>"
            f"<td>{html.escape(e.action)}</td><td>{html.escape(e.device)}</td>"
            f"<td>{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(e.time))}</td></tr>" for e in self.events[:50])
        more = f"<div>and {len(self.events) - 50} more</div>" if len(self.events) > 50 else ""
        titles = "".join(f"<th>{name}</th>" for name in ("site", "index", "residual", "threshold", "action", "device", "time (UTC)"))
        return f"<div>{head}<table><tr>{titles}</tr>{rows}</table>{more}</div>"
