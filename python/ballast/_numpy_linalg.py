"""qr and lstsq as numpy.linalg computes them, for install(): in double precision also for float32, which the result then is rounded to."""

import numpy as np

from . import linalg
from ._errors import UnsupportedError

__all__ = ["lstsq", "qr"]


def _in_double(*arrays):
    """The arrays, as float64 if all are float32, and the type of the results; None where it is that of the computation."""
    given = [np.asarray(a) for a in arrays]
    if any(a.dtype != np.float32 for a in given):
        return given, None
    return [a.astype(np.float64) for a in given], np.float32


def qr(a, mode="reduced"):
    """numpy.linalg.qr."""
    if mode not in ("reduced", "complete", "r", "raw"):
        raise UnsupportedError(f"mode {mode!r}")  # numpy has deprecated some, which mean other than here
    (a,), dtype = _in_double(a)
    made = linalg.qr(a, mode)
    if dtype is None:
        return made
    if not isinstance(made, tuple):
        return made.astype(dtype)
    rounded = [each.astype(dtype) for each in made]
    return type(made)(*rounded) if hasattr(made, "_fields") else tuple(rounded)


def lstsq(a, b, rcond=None):
    """numpy.linalg.lstsq, for a matrix of full rank."""
    (a, b), dtype = _in_double(a, b)
    made = linalg.lstsq(a, b, rcond)
    return made if dtype is None else made._replace(**{name: getattr(made, name).astype(dtype) for name in ("x", "residuals", "s")})
