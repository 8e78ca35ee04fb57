"""qr, qr_multiply and lstsq with scipy.linalg's signatures and results, for install(). What Ballast cannot take raises UnsupportedError."""

import numpy as np

from . import linalg
from ._errors import UnsupportedError

__all__ = ["lstsq", "qr", "qr_multiply"]


def _matrix(a, check_finite, most_axes=None):
    """The array, with two axes or, where `most_axes` is None, more."""
    a = np.asarray_chkfinite(a) if check_finite else np.asarray(a)
    if a.ndim < 2 or most_axes and a.ndim > most_axes:
        raise UnsupportedError(f"expected {'one matrix' if most_axes else 'a matrix or a stack'}, got an array with {a.ndim} axes")
    if not a.size:
        raise UnsupportedError("the matrix has no element")
    return a


def _padded(r, m):
    """R with m rows: scipy's has all."""
    whole = np.zeros((*r.shape[:-2], m, r.shape[-1]), r.dtype)
    whole[..., : r.shape[-2], :] = r
    return whole


def qr(a, overwrite_a=False, lwork=None, mode="full", pivoting=False, check_finite=True):
    """scipy.linalg.qr."""
    if mode not in ("full", "r", "economic", "raw"):
        raise UnsupportedError(f"mode {mode!r}")
    int(overwrite_a)  # scipy raises TypeError where it is no number
    a = _matrix(a, check_finite, most_axes=2 if mode == "raw" else None)
    if lwork not in (None, -1) and lwork < max(a.shape[-2:]):
        raise UnsupportedError(f"lwork = {lwork}")  # LAPACK says whether it is too small; Ballast needs none
    made, order = linalg.qr(a, mode, pivoting), ()
    if pivoting:
        *made, order = made
        made, order = made[0] if len(made) == 1 else made, (order.astype(np.int32),)
    if mode == "r":
        whole = _padded(made, a.shape[-2])
        return whole if a.ndim > 2 and not pivoting else (whole, *order)
    if mode == "raw":
        h, tau = made
        h = h.swapaxes(-1, -2)
        return ((h, tau), np.triu(h[..., : min(a.shape[-2:]), :]), *order)
    return (*made, *order)


def qr_multiply(a, c, mode="right", pivoting=False, conjugate=False, overwrite_a=False, overwrite_c=False):
    """scipy.linalg.qr_multiply."""
    a, c = _matrix(a, True, most_axes=2), np.asarray_chkfinite(c)
    if mode not in ("left", "right") or c.ndim not in (1, 2) or not c.size:
        raise UnsupportedError("the mode, or the shape of c, is another than scipy's usual ones")
    if c.shape[0 if mode == "left" else -1] != (min(a.shape) if mode == "left" else len(a)):
        raise UnsupportedError(f"c has the shape {c.shape} where a has {a.shape}")  # with overwrite_c, scipy takes c with all rows
    made = linalg.qr_multiply(a, c, mode, pivoting, conjugate)
    return (*made[:2], *(order.astype(np.int32) for order in made[2:]))


def lstsq(a, b, cond=None, overwrite_a=False, overwrite_b=False, check_finite=True, lapack_driver=None):
    """scipy.linalg.lstsq; with other drivers than gelsy for a matrix of full rank."""
    if lapack_driver not in (None, "gelsd", "gelss", "gelsy"):
        raise UnsupportedError(f"lapack_driver {lapack_driver!r}")
    a = _matrix(a, check_finite, most_axes=2)
    b = np.asarray_chkfinite(b) if check_finite else np.asarray(b)
    if b.ndim not in (1, 2) or len(b) != len(a) or not b.size:
        raise UnsupportedError("the right-hand side has another shape than scipy's usual ones")
    if lapack_driver == "gelsy":
        if cond is not None and not 0 <= cond < 1:
            raise UnsupportedError(f"cond = {cond}")
        made = linalg.lstsq(a, b, -1 if cond is None else cond, driver="gelsy")
        return made.x, np.empty(0, made.x.dtype), made.rank, None
    made = linalg.lstsq(a, b, cond)
    residuals = made.residuals if len(a) > a.shape[1] and made.rank == a.shape[1] else np.empty(0, made.x.dtype)
    if b.ndim == 1 and residuals.size:
        residuals = residuals[0]
    return made.x, residuals, made.rank, made.s
