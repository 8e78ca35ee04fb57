"""The settings of calls, and what happens after a call: the last report, log, warning, error."""

import atexit
import contextlib
import contextvars
import functools
import itertools
import logging
import sys
import threading
import warnings
from typing import NamedTuple

from . import _core
from ._device import DeviceArray
from ._errors import Error, FaultError, FaultWarning, InvalidArgumentError, RankLostError, UnsupportedError
from ._group import forget, joined
from ._report import Report

__all__ = ["last_report", "protection", "synchronize"]

_log = logging.getLogger("ballast")
_log.addHandler(logging.NullHandler())
_of_thread = threading.local()
_of_programs = getattr(_core, "jax_report", None)  # of what JAX has compiled (ballast.jax)


class Settings(NamedTuple):
    protection: str = "correct"
    backend: str = "auto"
    device: int | tuple = -1
    threads: int = 0
    on_fault: str = "ignore"
    sampled: int = 1
    group: object = None


@functools.lru_cache(maxsize=256)
def _same(settings):
    """Of equal settings the first: the extension knows them by their address."""
    return settings


_current = contextvars.ContextVar("ballast.protection", default=_same(Settings()))


@functools.lru_cache(maxsize=256)
def _execution(protection, backend, device, threads, sampled, group):
    devices = device if isinstance(device, tuple) else ()
    return _core.Execution(backend, -1 if devices else device, threads, protection, "", list(devices), sampled, group)


def current():
    """The settings of this context."""
    return _current.get()


def execution(settings, threads=None, device=None):
    """The library's execution for `settings`. `threads` replaces its number of threads; `device` is that of the arrays, None for the host's."""
    if device is not None and settings.backend not in ("auto", "cuda"):
        raise UnsupportedError(f'backend "{settings.backend}": expected "auto" or "cuda" for arrays in the memory of a device')
    if device is None or isinstance(settings.device, tuple):
        device = settings.device
        backend = settings.backend
    else:
        backend = "cuda"
    return _execution(settings.protection, backend, device,
                      settings.threads if threads is None else threads, settings.sampled, settings.group)


class protection(contextlib.ContextDecorator):
    """Sets the protection of the calls inside, as a `with` block or a decorator. Arguments that are None stay as they are outside.

    level: "off" (compute only), "detect" (a fault raises FaultError) or "correct" (faults are repaired; the default); "final_only" for
    K-Means, whose last iteration and results are then protected, and other calls refuse it.
    sampled: of so many calls of the same problem one has this protection, the others none; last_report().protection says which this was.
    backend: "auto", "cpu", "cuda" or "reference". device: the CUDA device's number, -1 for the current one. A list of numbers divides the
    points of K-Means, and an array that is transformed along all axes (up to three), among these devices; ballast.linalg.factor_rows and
    factor_columns take one, too; other calls refuse it.
    threads: the most threads of the host, 0 for every core.
    group: a group of processes (ballast.group), or a communicator that it takes: K-Means inside is one fit of the rows of all, and
    ballast.linalg.factor_rows, factor_columns and factor_grid factor one matrix; other calls refuse it.
    on_fault: after a repaired fault: "ignore" (the default), "warn" (FaultWarning) or "raise" (FaultError). A fault that was not repaired
    always raises FaultError. Every fault is logged by the logger "ballast" too.

    The settings belong to the context (contextvars): other threads and other asyncio tasks do not see them.
    """

    def __init__(self, level=None, *, backend=None, device=None, threads=None, on_fault=None, sampled=None, group=None):
        if on_fault not in (None, "ignore", "warn", "raise"):
            raise InvalidArgumentError(f'on_fault: expected "ignore", "warn" or "raise", got {on_fault!r}')
        if isinstance(device, (list, tuple)):
            if not device:
                raise InvalidArgumentError("device: expected a number, or a list of one or more, got none")
            device = tuple(device)
        given = {"protection": level, "backend": backend, "device": device, "threads": threads, "on_fault": on_fault,
                 "sampled": sampled, "group": None if group is None else joined(group)}
        self._given = {name: value for name, value in given.items() if value is not None}
        execution(Settings(**self._given))  # the library refuses what has no meaning
        self._tokens = []

    def _recreate_cm(self):
        made = protection()
        made._given = self._given
        return made

    def __enter__(self):
        self._tokens.append(_current.set(_same(_current.get()._replace(**self._given))))
        return self

    def __exit__(self, *_):
        _current.reset(self._tokens.pop())
        return False


def last_report():
    """The report of the last call of this thread; None before the first. Waits for the call where it runs on a stream. Calls of programs
    that JAX has compiled run on its threads: if such calls have ended since this was last asked, the report is theirs, as one."""
    _tell_of_programs()
    seen = getattr(_of_thread, "report", None)
    if type(seen) is _core.Report:
        seen = _of_thread.report = Report(seen)
    return seen.report() if type(seen) is _Enqueued else seen


def _tell_of_programs():
    """Makes the findings of programs the last report of this thread. A fault that JAX has raised an error for is only logged."""
    first, untold = _of_programs() if _of_programs is not None else (None, False)
    if first is None:
        return
    seen = _of_thread.report = Report(first)
    if first.detected:
        _tell(seen, raised=not untold)


def call(function, *arguments):
    """Calls the library and returns what it returns. A FaultError leaves its report as the last."""
    try:
        return function(*arguments)
    except FaultError as fault:
        _of_thread.report = fault.report
        _write_log(fault.report)
        raise
    except RankLostError:
        forget(_current.get().group)
        raise


def prepares_call(function):
    """A decorator of functions that check and convert arguments and then make a call on the group of the settings, or on that of self: an
    exception before the call has begun is told to the other ranks, so that they do not wait for this one."""

    @functools.wraps(function)
    def prepared(*arguments, **more):
        group = getattr(arguments[0], "_group", None) if arguments else None
        group = _current.get().group if group is None else group
        if group is None:
            return function(*arguments, **more)
        before = group.calls
        try:
            return function(*arguments, **more)
        except BaseException:
            if group.calls == before:
                with contextlib.suppress(Error):  # the first error is the one to tell
                    group.leave_call()
            raise

    return prepared


def compute(function, *arguments):
    """call() with arguments that may be DeviceArrays."""
    return call(function, *[each.tensor() if isinstance(each, DeviceArray) else each for each in arguments])


def record(first, *later, checks=0, events=(), false_alarms=0):
    """Concludes a call that had the reports `first` and `later`: they become one, the last report, and its faults are told. Reports of
    enqueued work are told later. `checks`, `events` and `false_alarms` are those of checks in Python; an event that says "uncorrectable"
    raises FaultError. A clean report becomes an object of Python where somebody asks for it."""
    if not (later or checks or events) and type(first) is _core.Report and not first.detected:
        _of_thread.report = first
        return
    if type(first) is _core.Pending:
        _of_thread.report = _Enqueued((first, *later), _current.get())
        if next(_enqueued) % _TOLD_AFTER == 0:
            synchronize()
        return
    for part in later:
        first.merge(part)
    report = Report(first)
    if checks:
        report = report.with_checks(checks, events, false_alarms)
    _of_thread.report = report
    if first.detected or events:
        _tell(report)


def conclude(made):
    """record() of a usual call of NumpyCalls: returns its result."""
    result, report = made
    if report.detected:
        record(report)
    else:
        _of_thread.report = report
    return result


def _write_log(report):
    for event in report.events:
        level = logging.ERROR if event.action == "uncorrectable" else logging.WARNING
        _log.log(level, "%s: %s", report.problem, event, extra={"ballast_event": event, "ballast_problem": report.problem})


def _tell(report, how=None, raised=False):
    """`raised`: the caller has seen an error for what was not repaired."""
    _write_log(report)
    how = how or _current.get().on_fault
    if report.uncorrectable and not raised or how == "raise":
        raise FaultError(str(report), report)
    if how == "warn":
        warnings.warn(str(report), FaultWarning, stacklevel=level_of_caller())


# ---- Work on streams

_outstanding = {}  # of each plan: its last enqueued call, and the stream, which must not be destroyed before. Plans belong to one stream
_captured = []  # calls that were enqueued while their stream was captured into a graph, with their settings
_lock = threading.Lock()
_enqueued = itertools.count(1)
_TOLD_AFTER = 4096  # enqueued calls


def enqueue(plan, address_in, address_out, inverse, places_in, places_out, stream, captured, kept=None):
    """Enqueues a call of `plan`. Its memory holds the findings until somebody asks; the next call of the plan inherits both. `kept` owns
    the stream."""
    if not captured:
        if isinstance(getattr(_of_thread, "report", None), _Enqueued):
            _of_thread.report = None
        _outstanding.pop(plan, None)
    made = plan.enqueue(address_in, address_out, inverse, places_in, places_out, stream)
    if captured:
        with _lock:
            _captured.append((made, _current.get(), kept))
    else:
        _outstanding[plan] = made, kept
    return made


class _Enqueued:
    """The report, to come, of a call that runs on a stream."""

    __slots__ = ("_parts", "_settings")

    def __init__(self, parts, settings):
        self._parts, self._settings = parts, settings

    def report(self):
        """Waits, and returns the findings since the last time."""
        first, *later = [compute(part.get) for part in self._parts]
        for part in later:
            first.merge(part)
        seen = Report(first)
        if first.detected:
            _tell(seen, self._settings.on_fault)
        return seen


def synchronize():
    """Waits for the calls on streams, of all threads, and tells their faults: logs, warns, raises FaultError, as the settings of each
    problem's last call say; those of programs of JAX that have ended, by the settings of this context.

    Without it last_report() tells those of the last call and of earlier calls of the same problem, and every 4096th call on a device and
    the end of the program tell all. Replays of captured graphs are told here, and by last_report() after the call that was captured.
    """
    with _lock:
        ended = list(_outstanding.values())  # with their streams, until they have been asked
        _outstanding.clear()
        given = [_Enqueued((part,), _current.get()) for part, _ in ended]
        given += [_Enqueued((part,), settings) for part, settings, _ in _captured]
    fault = None
    for told in (*(each.report for each in given), _tell_of_programs):
        try:
            told()
        except FaultError as seen:
            fault = fault or seen
    if fault is not None:
        raise fault


@atexit.register
def _last_words():
    try:
        synchronize()
    except Error as seen:
        print(f"ballast: at the end of the program: {seen}", file=sys.stderr)


def level_of_caller():
    """The stacklevel, for the function that calls this, of the first frame outside of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "ballast":
        frame, level = frame.f_back, level + 1
    return level
