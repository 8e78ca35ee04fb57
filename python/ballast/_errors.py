"""Exceptions. Each C++ error class has one here; those that Python has a name for are also that."""

import numpy as np

from ._report import Report

__all__ = ["DeviceError", "Error", "FaultError", "FaultWarning", "InvalidArgumentError", "OutOfMemoryError", "RankDeficientError",
           "RankLostError", "UnsupportedError"]


class Error(Exception):
    """Base of everything that Ballast raises."""


class InvalidArgumentError(Error, ValueError):
    """An argument has no meaning. Nothing was computed."""


class RankDeficientError(Error, np.linalg.LinAlgError):
    """A least-squares problem whose matrix does not have full rank.

    rank: the rank, or None where only a bound is known. The message names a dependent column.
    """

    def __init__(self, message, rank=None):
        super().__init__(message)
        self.rank = rank


class UnsupportedError(Error):
    """The call has a meaning, but this build or this machine cannot run it."""


class UnsupportedTypeError(UnsupportedError, TypeError):
    """Ballast does not compute with elements of this type."""


class DeviceError(Error):
    """A device or its driver failed. The message holds the driver's words."""


class RankLostError(Error):
    """A rank of a group has ended or does not answer. ranks: the numbers of those that are lost."""

    def __init__(self, message, ranks=()):
        super().__init__(message)
        self.ranks = list(ranks)


class OutOfMemoryError(Error, MemoryError):
    """Host or device memory ran out."""


class FaultError(Error):
    """A fault that was detected and not repaired; or, with on_fault="raise", any fault.

    report: the findings of the call. After an unrepaired fault the outputs are not to be used.
    """

    def __init__(self, message, report):
        self.report = report if isinstance(report, Report) else Report(report)
        super().__init__(message)

    def __reduce__(self):
        return FaultError, (str(self), self.report)


class FaultWarning(RuntimeWarning):
    """A fault was detected and repaired (on_fault="warn")."""
