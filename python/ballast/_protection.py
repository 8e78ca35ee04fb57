"""The settings of calls, and what happens after a call: the last report, log, warning, error."""

import atexit
import contextlib
import contextvars
import functools
import logging
import sys
import threading
import warnings
from collections import deque
from typing import NamedTuple

from . import _core
from ._device import DeviceArray
from ._errors import FaultError, FaultWarning, InvalidArgumentError, UnsupportedError
from ._report import Report

__all__ = ["last_report", "protection", "synchronize"]

_log = logging.getLogger("ballast")
_log.addHandler(logging.NullHandler())
_of_thread = threading.local()


class Settings(NamedTuple):
    protection: str = "correct"
    backend: str = "auto"
    device: int = -1
    threads: int = 0
    on_fault: str = "ignore"


_current = contextvars.ContextVar("ballast.protection", default=Settings())


@functools.lru_cache(maxsize=256)
def _execution(protection, backend, device, threads):
    return _core.Execution(backend, device, threads, protection, "")


def current():
    """The settings of this context."""
    return _current.get()


def execution(settings, threads=None, device=None):
    """The library's execution for `settings`. `threads` replaces its number of threads; `device` is that of the arrays, None for the host's."""
    if device is not None and settings.backend not in ("auto", "cuda"):
        raise UnsupportedError(f'backend "{settings.backend}": expected "auto" or "cuda" for arrays in the memory of a device')
    return _execution(settings.protection, settings.backend if device is None else "cuda", settings.device if device is None else device,
                      settings.threads if threads is None else threads)


class protection(contextlib.ContextDecorator):
    """Sets the protection of the calls inside, as a `with` block or a decorator. Arguments that are None stay as they are outside.

    level: "off" (compute only), "detect" (a fault raises FaultError) or "correct" (faults are repaired; the default).
    backend: "auto", "cpu", "cuda" or "reference". device: the CUDA device's number, -1 for the current one.
    threads: the most threads of the host, 0 for every core.
    on_fault: after a repaired fault: "ignore" (the default), "warn" (FaultWarning) or "raise" (FaultError). A fault that was not repaired
    always raises FaultError. Every fault is logged by the logger "ballast" too.

    The settings belong to the context (contextvars): other threads and other asyncio tasks do not see them.
    """

    def __init__(self, level=None, *, backend=None, device=None, threads=None, on_fault=None):
        if on_fault not in (None, "ignore", "warn", "raise"):
            raise InvalidArgumentError(f'on_fault: expected "ignore", "warn" or "raise", got {on_fault!r}')
        given = {"protection": level, "backend": backend, "device": device, "threads": threads, "on_fault": on_fault}
        self._given = {name: value for name, value in given.items() if value is not None}
        execution(Settings(**self._given))  # the library refuses what has no meaning
        self._tokens = []

    def _recreate_cm(self):
        made = protection()
        made._given = self._given
        return made

    def __enter__(self):
        self._tokens.append(_current.set(_current.get()._replace(**self._given)))
        return self

    def __exit__(self, *_):
        _current.reset(self._tokens.pop())
        return False


def last_report():
    """The report of the last call of this thread; None before the first. Waits for the call where it runs on a stream."""
    seen = getattr(_of_thread, "report", None)
    if type(seen) is _Enqueued:
        seen = seen.report()
    return seen


def compute(function, *arguments):
    """Calls the library and returns what it returns. A FaultError leaves its report as the last."""
    try:
        return function(*[each.tensor() if type(each) is DeviceArray else each for each in arguments])
    except FaultError as fault:
        _of_thread.report = fault.report
        _write_log(fault.report)
        raise


def record(first, *later):
    """Concludes a call that had the reports `first` and `later`: they become one, the last report, and its faults are told. Reports of
    enqueued work are told later."""
    if type(first) is _core.Pending:
        _of_thread.report = _Enqueued((first, *later), _current.get())
        _tell_of_ended_calls()
        return
    for part in later:
        first.merge(part)
    _of_thread.report = report = Report(first)
    if first.detected:
        _tell(report)


def _write_log(report):
    for event in report.events:
        level = logging.ERROR if event.action == "uncorrectable" else logging.WARNING
        _log.log(level, "%s: %s", report.problem, event, extra={"ballast_event": event, "ballast_problem": report.problem})


def _tell(report, how=None):
    _write_log(report)
    how = how or _current.get().on_fault
    if how == "warn":
        warnings.warn(str(report), FaultWarning, stacklevel=_level_of_caller())
    elif how == "raise":
        raise FaultError(str(report), report)


# ---- Work on streams

_waiting = deque()  # enqueued calls whose findings nobody has seen yet, in order
_captured = []  # those that were enqueued while their stream was captured into a graph
_lock = threading.Lock()


class _Enqueued:
    """A call that runs on a stream. Its findings are told when a later call, last_report() or synchronize() sees that it has ended."""

    def __init__(self, parts, settings):
        self._parts, self._settings, self._report = parts, settings, None
        self._own = threading.Lock()
        try:
            for part in parts:
                part.ready()  # marks the stream
        except InvalidArgumentError:
            self._again = True  # whoever replays the graph asks for the findings
            with _lock:
                _captured.append(self)
        else:
            self._again = False
            with _lock:
                _waiting.append(self)

    def ready(self):
        return self._report is not None or all(part.ready() for part in self._parts)

    def report(self):
        """Waits, and returns the findings: of a captured call, those since the last time."""
        with self._own:
            if self._report is not None:
                return self._report
            parts = self._parts
            try:
                first, *later = [compute(part.get) for part in parts]
            except FaultError as fault:
                self._keep(fault.report)
                raise
            for part in later:
                first.merge(part)
            seen = Report(first)
            self._keep(seen)
        if first.detected:
            _tell(seen, self._settings.on_fault)
        return seen

    def _keep(self, report):
        if not self._again:
            self._report, self._parts = report, ()


def _tell_of_ended_calls():
    while True:
        with _lock:
            if not _waiting or not _waiting[0].ready():
                return
            ended = _waiting.popleft()
        ended.report()


def synchronize():
    """Waits for the calls on streams, of all threads, and tells their faults: logs, warns, raises FaultError as the calls' settings say.

    Without it a call that has ended is told by a later call on a device, by last_report(), or when the program ends. Replays of captured
    graphs are told by synchronize() and last_report() only.
    """
    with _lock:
        enqueued = [*_waiting, *_captured]
        _waiting.clear()
    fault = None
    for each in enqueued:
        try:
            each.report()
        except FaultError as seen:
            fault = fault or seen
    if fault is not None:
        raise fault


@atexit.register
def _last_words():
    try:
        synchronize()
    except FaultError as fault:
        print(f"ballast: a fault that no call has told: {fault}", file=sys.stderr)


def _level_of_caller():
    """The stacklevel, for _tell, of the first frame outside of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "ballast":
        frame, level = frame.f_back, level + 1
    return level
