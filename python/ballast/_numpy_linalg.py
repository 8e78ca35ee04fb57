"""qr and lstsq as numpy.linalg computes them, for install(): in double precision also for float32 and
complex64, which the results then are rounded to."""

import numpy as np

from . import linalg
from ._errors import UnsupportedError

__all__ = ["lstsq", "qr"]


def _in_double(*arrays):
    """The arrays, in double precision if all are of single, and whether they were."""
    given = [np.asarray(a) for a in arrays]
    if any(a.dtype not in (np.float32, np.complex64) for a in given):
        return given, False
    return [a.astype(np.result_type(a, np.float64)) for a in given], True


def _in_single(a):
    return a.astype(np.complex64 if a.dtype.kind == "c" else np.float32)


def qr(a, mode="reduced"):
    """numpy.linalg.qr."""
    if mode not in ("reduced", "complete", "r", "raw"):
        raise UnsupportedError(f"mode {mode!r}")  # numpy has deprecated some, which mean other than here
    (a,), single = _in_double(a)
    made = linalg.qr(a, mode)
    if not single:
        return made
    if not isinstance(made, tuple):
        return _in_single(made)
    rounded = [_in_single(each) for each in made]
    return type(made)(*rounded) if hasattr(made, "_fields") else tuple(rounded)


def lstsq(a, b, rcond=None):
    """numpy.linalg.lstsq, for a matrix of full rank."""
    (a, b), single = _in_double(a, b)
    made = linalg.lstsq(a, b, rcond)
    return made._replace(**{name: _in_single(getattr(made, name)) for name in ("x", "residuals", "s")}) if single else made
