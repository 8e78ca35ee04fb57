"""The settings of calls, and what happens after a call: the last report, log, warning, error."""

import contextlib
import contextvars
import functools
import logging
import sys
import threading
import warnings
from typing import NamedTuple

from . import _core
from ._errors import FaultError, FaultWarning, InvalidArgumentError
from ._report import Report

__all__ = ["last_report", "protection"]

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


def execution(settings, threads=None):
    """The library's execution for `settings`; `threads` replaces its number of threads."""
    return _execution(settings.protection, settings.backend, settings.device, settings.threads if threads is None else threads)


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
    """The report of the last call of this thread; None before the first."""
    return getattr(_of_thread, "report", None)


def compute(function, *arguments):
    """Calls the library and returns what it returns. A FaultError leaves its report as the last."""
    try:
        return function(*arguments)
    except FaultError as fault:
        _of_thread.report = fault.report
        _write_log(fault.report)
        raise


def record(first, *later):
    """Concludes a call that had the reports `first` and `later`: they become one, the last report, and its faults are told."""
    for part in later:
        first.merge(part)
    _of_thread.report = report = Report(first)
    if first.detected:
        _tell(report)


def _write_log(report):
    for event in report.events:
        level = logging.ERROR if event.action == "uncorrectable" else logging.WARNING
        _log.log(level, "%s: %s", report.problem, event, extra={"ballast_event": event, "ballast_problem": report.problem})


def _tell(report):
    _write_log(report)
    how = _current.get().on_fault
    if how == "warn":
        warnings.warn(str(report), FaultWarning, stacklevel=_level_of_caller())
    elif how == "raise":
        raise FaultError(str(report), report)


def _level_of_caller():
    """The stacklevel, for _tell, of the first frame outside of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "ballast":
        frame, level = frame.f_back, level + 1
    return level
