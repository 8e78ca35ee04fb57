"""Protected QR factorization and least squares, with the functions of numpy.linalg. float32 and float64; stacks of matrices for qr."""

import re
from typing import NamedTuple

import numpy as np

from . import _core
from ._device import as_array, device_of, on_host, singular_values, stream_of, sums_of_squares
from ._errors import InvalidArgumentError, RankDeficientError, UnsupportedError, UnsupportedTypeError
from ._exchange import exchanged
from ._plans import PlanCache
from ._protection import compute, current, execution, record

__all__ = ["LstsqResult", "QRResult", "lstsq", "qr"]

_plans = PlanCache(most_plans=64, most_elements=1 << 24)
_MODES = {"reduced": "reduced", "economic": "reduced", "complete": "complete", "full": "complete", "r": "r", "raw": "raw"}


class QRResult(NamedTuple):
    """Q with orthonormal columns and R upper triangular: A = Q R."""

    Q: np.ndarray
    R: np.ndarray


class LstsqResult(NamedTuple):
    """numpy.linalg.lstsq's four results."""

    x: np.ndarray
    residuals: np.ndarray
    rank: int
    s: np.ndarray


def _real_type(*arrays):
    """float32 if all arrays have it, else float64, by numpy.linalg's rules for types."""
    for a in arrays:
        if a.dtype.kind == "c":
            raise UnsupportedTypeError(f"ballast.linalg computes with real numbers, got {a.dtype}")
        if a.dtype.kind not in "?biuf" or a.dtype.itemsize > 8 or a.dtype == np.float16:
            raise UnsupportedTypeError(f"array type {a.dtype.name} is unsupported in ballast.linalg")
    return np.dtype(np.float32 if all(a.dtype == np.float32 for a in arrays) else np.float64)


def _make(twice, rows, columns, batch, where):
    return (_core.QrPlanF64 if twice else _core.QrPlanF32)(rows, columns, batch, where)


def _plan(like, dtype, rows, columns, batch):
    where = execution(current(), device=device_of(like))
    return _plans.get((dtype.itemsize == 8, rows, columns, batch, where), rows * columns * batch, _make)


def _of_library(by_column):
    """The matrices as the library takes them: one with two axes, several with three; columns are contiguous."""
    a = by_column.swapaxes(1, 2)
    return a[0] if len(a) == 1 else a


@exchanged
def qr(a, mode="reduced", pivoting=False):
    """The QR factorization of a matrix, or of each of a stack (…, m, n), as numpy.linalg.qr. k is min(m, n).

    mode: "reduced" (Q is m × k, R is k × n), "complete" (Q is m × m, R is m × n), "r" (R alone, k × n), "raw" (LAPACK's storage of the
    reflectors, transposed as numpy returns it, and tau). "economic" and "full" are scipy.linalg.qr's names for the first two.
    pivoting: as scipy.linalg.qr, of one matrix: a[:, P] = Q R with a falling diagonal of R; the result has the array P as another item,
    an array of NumPy's.
    Complex matrices raise UnsupportedTypeError (a TypeError). Q and R have no fixed signs: they are LAPACK's up to the sign of a row.
    """
    if mode not in _MODES:
        raise InvalidArgumentError(f"Unrecognized mode '{mode}': expected reduced, complete, r, raw, economic or full")
    mode = _MODES[mode]
    a = as_array(a)
    dtype = _real_type(a)
    if a.ndim < 2:
        raise np.linalg.LinAlgError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
    *stack, m, n = a.shape
    k, count = min(m, n), int(np.prod(stack, dtype=np.int64))
    stored = np.empty((count, n, m), dtype, like=a)
    stored[...] = a.swapaxes(-1, -2).reshape(count, n, m)
    tau = np.empty((count, k), dtype, like=a)
    if pivoting and stack:
        raise UnsupportedError("pivoting=True of a stack of matrices")
    order = np.arange(n, dtype=np.int64)
    reports = []
    if stored.size and pivoting:
        reports.append(compute(_plan(a, dtype, m, n, count).geqp3, _of_library(stored), order, tau[0], stream_of(a)))
    elif stored.size:
        reports.append(compute(_plan(a, dtype, m, n, count).geqrf, _of_library(stored), tau, stream_of(a)))
    if mode == "raw":
        _conclude(reports)
        raw = stored.reshape(*stack, n, m), tau.reshape(*stack, k)
        return (raw, order) if pivoting else raw
    rows = m if mode == "complete" else k
    r = np.triu(stored.swapaxes(1, 2)[:, :rows]).reshape(*stack, rows, n)
    if mode == "r":
        _conclude(reports)
        return (r, order) if pivoting else r
    q = stored[:, :k] if rows == k else _widened(stored, m)
    if k and q.size:
        plan = _plan(a, dtype, m, n, count) if rows == k else _plan(a, dtype, m, m, count)
        reports.append(compute(plan.orgqr, _of_library(q), tau, stream_of(a)))
    _conclude(reports)
    q = q.swapaxes(1, 2).reshape(*stack, m, rows)
    return (q, r, order) if pivoting else QRResult(q, r)


def _widened(stored, m):
    """Room for m columns of Q after the reflectors; the unit matrix where there are none."""
    made = np.zeros((len(stored), m, m), stored.dtype, like=stored)
    made[:, : stored.shape[1]] = stored
    if not stored.size:
        made[...] = np.identity(m, stored.dtype, like=stored)
    return made


def _conclude(reports):
    if reports:
        record(*reports)


@exchanged
def lstsq(a, b, rcond=None):
    """The least-squares solution of a x = b for a of full rank, by QR. Returns (x, residuals, rank, s) as numpy.linalg.lstsq.

    It differs from numpy's function, which uses the singular value decomposition, where a does not have full rank: columns (rows where a
    has more columns than rows) that depend on each other to rounding, whatever their scaling, raise RankDeficientError, whose `rank` is
    the rank where the library could count it. So rank is always min(m, n) in the result. With a number `rcond`, a matrix whose smallest
    singular value is at most rcond times the largest raises RankDeficientError too.
    x and residuals are protected. s, the singular values, is computed from R by numpy and is not.
    """
    a, b = as_array(a), as_array(b)
    if device_of(a) != device_of(b):
        raise UnsupportedError("b: expected an array in the memory where a lies")
    dtype = _real_type(a, b)
    if a.ndim != 2:
        raise np.linalg.LinAlgError(f"{a.ndim}-dimensional array given. Array must be two-dimensional")
    if b.ndim not in (1, 2):
        raise np.linalg.LinAlgError(f"{b.ndim}-dimensional array given. Array must be one- or two-dimensional")
    (m, n), k = a.shape, b.shape[1] if b.ndim == 2 else 1
    if m != b.shape[0]:
        raise np.linalg.LinAlgError("Incompatible dimensions")
    stored = np.empty((n, m), dtype, like=a)  # by columns
    stored[...] = a.T
    right = np.zeros((k, max(m, n)), dtype, like=a)
    right[:, :m] = b.reshape(m, k).T
    if m and n and k:
        record(_solved(_plan(a, dtype, m, n, 1), stored, right, stream_of(a)))
    if not (m and n):
        s = np.empty(0, dtype, like=a)
    elif k:
        factors = stored.T if m >= n else stored  # of a, or of its transpose
        s = singular_values(np.triu(factors[: min(m, n)]))
    else:
        s = singular_values(stored)
    _refuse_small(s, rcond)
    x = right[:, :n].T.copy()
    residuals = sums_of_squares(right[:, n:], 1) if m > n else np.empty(0, dtype, like=a)
    return LstsqResult(x[:, 0] if b.ndim == 1 else x, residuals, min(m, n), s)


def _solved(plan, stored, right, stream):
    try:
        return compute(plan.gels, stored.T, right.T, stream)
    except RankDeficientError as refused:
        counted = re.search(r"got rank (\d+) of", str(refused))
        raise RankDeficientError(str(refused), int(counted[1]) if counted else None) from None


def _refuse_small(s, rcond):
    if rcond is None or not len(s):
        return
    s = on_host(s)
    rank = int(np.count_nonzero(s > rcond * s[0]))
    if rank < len(s):
        raise RankDeficientError(f"a: expected full rank, got rank {rank} of {len(s)} by rcond = {rcond}", rank)
