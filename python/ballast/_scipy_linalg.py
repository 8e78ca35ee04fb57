"""qr and lstsq with scipy.linalg's signatures and results, for install(). What Ballast cannot take raises UnsupportedError."""

import numpy as np

from . import linalg
from ._errors import UnsupportedError

__all__ = ["lstsq", "qr"]


def _matrix(a, check_finite):
    a = np.asarray_chkfinite(a) if check_finite else np.asarray(a)
    if a.ndim != 2:
        raise UnsupportedError(f"expected one matrix, got an array with {a.ndim} axes")
    if not a.size:
        raise UnsupportedError("the matrix has no element")
    return a


def qr(a, overwrite_a=False, lwork=None, mode="full", pivoting=False, check_finite=True):
    """scipy.linalg.qr in the modes full, r and economic."""
    if lwork is not None:
        raise UnsupportedError("lwork is given")
    if mode not in ("full", "r", "economic"):
        raise UnsupportedError(f"mode {mode!r}")
    a = _matrix(a, check_finite)
    if mode == "r":  # scipy's has all rows
        r, *order = linalg.qr(a, "r", pivoting) if pivoting else (linalg.qr(a, "r"),)
        whole = np.zeros(a.shape, r.dtype)
        whole[: len(r)] = r
        return (whole, *order)
    return tuple(linalg.qr(a, mode, pivoting))


def lstsq(a, b, cond=None, overwrite_a=False, overwrite_b=False, check_finite=True, lapack_driver=None):
    """scipy.linalg.lstsq for a matrix of full rank."""
    if lapack_driver not in (None, "gelsd", "gelss"):
        raise UnsupportedError(f"lapack_driver {lapack_driver!r}")
    a = _matrix(a, check_finite)
    b = np.asarray_chkfinite(b) if check_finite else np.asarray(b)
    if b.ndim not in (1, 2) or len(b) != len(a) or not b.size:
        raise UnsupportedError("the right-hand side has another shape than scipy's usual ones")
    made = linalg.lstsq(a, b, cond)
    residuals = made.residuals if len(a) > a.shape[1] and made.rank == a.shape[1] else np.empty(0, made.x.dtype)
    if b.ndim == 1 and residuals.size:
        residuals = residuals[0]
    return made.x, residuals, made.rank, made.s
