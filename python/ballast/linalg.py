"""Protected QR factorization and least squares, with the functions of numpy.linalg, and scipy.linalg's qr_multiply. float32, float64,
complex64 and complex128; stacks of matrices for qr and qr_multiply. factor_rows, factor_columns and factor_grid are for groups."""

import math
import re
from typing import NamedTuple

import numpy as np

from . import _core
from ._device import as_array, device_of, on_host, singular_values, stream_of, sums_of_squares
from ._errors import InvalidArgumentError, RankDeficientError, UnsupportedError, UnsupportedTypeError
from ._exchange import exchanged
from ._factors import (ColumnFactors, GridFactors, RowFactors, block_columns, factor_columns, factor_grid, factor_rows, from_block_columns,
                       layout_part, to_block_columns)
from ._plans import PlanCache
from ._protection import call as called, compute, current, execution, record

__all__ = ["ColumnFactors", "GridFactors", "LstsqResult", "QRResult", "RowFactors", "block_columns", "factor_columns", "factor_grid", "factor_rows",
           "from_block_columns", "layout_part", "lstsq", "qr", "qr_multiply", "to_block_columns"]

_plans = PlanCache(most_plans=64, most_elements=1 << 24)
_of_numpy = _core.NumpyLinalg()  # calls on one matrix of NumPy, whose plans it has seen before
_MOST_SHORT = 1 << 15  # elements; a plan keeps the memory of its calls
_SHORT = {"reduced": 0, "complete": 1, "r": 2}  # the modes that it knows
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


_PLANS = {"f": _core.QrPlanF32, "d": _core.QrPlanF64, "F": _core.QrPlanC64, "D": _core.QrPlanC128}  # by the character of the type


def _type_of(*arrays):
    """The type in which the arrays meet, by numpy.linalg's rules: single precision if all arrays have it, complex if one is."""
    for a in arrays:
        kind, size = a.dtype.kind, a.dtype.itemsize
        if kind not in "?biufc" or size > (16 if kind == "c" else 8) or a.dtype == np.float16:
            raise UnsupportedTypeError(f"array type {a.dtype.name} is unsupported in ballast.linalg")
    letter = "f" if all(a.dtype.char in "fF" for a in arrays) else "d"
    return np.dtype(letter.upper() if any(a.dtype.kind == "c" for a in arrays) else letter)


def _of_parts(dtype):
    """The type of norms: of the real and imaginary parts of complex numbers, and that of real numbers itself."""
    return np.dtype(dtype.char.lower())


def _make(letter, rows, columns, batch, where):
    return _PLANS[letter](rows, columns, batch, where)


def _plan(like, dtype, rows, columns, batch):
    where = execution(current(), device=device_of(like))
    return _plans.get((dtype.char, rows, columns, batch, where), rows * columns * batch, _make)


def _keep(a, columns):
    """Later calls on small matrices like `a`, an array of NumPy, with Q of so many columns, take the short road."""
    if a.ndim != 2 or a.dtype.char not in _PLANS or not a.size or len(a) * max(a.shape[1], columns) > _MOST_SHORT:
        return
    m, n = a.shape
    for width in {n, max(n, columns)}:
        _of_numpy.keep(m, width, current(), _plan(a, a.dtype, m, width, 1))


def _of_library(by_column):
    """The matrices as the library takes them: one with two axes, several with three; columns are contiguous."""
    a = by_column.swapaxes(1, 2)
    return a[0] if len(a) == 1 else a


class _Factors:
    """The factors of each matrix of a stack `a` (…, m, n), by columns."""

    def __init__(self, a, pivoting):
        self.dtype = _type_of(a)
        if a.ndim < 2:
            raise np.linalg.LinAlgError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
        *stack, m, n = self.shape = a.shape
        self.like, self.stack, self.k, self.count = a, stack, min(m, n), math.prod(stack)
        self.stored = np.empty((self.count, n, m), self.dtype, like=a)
        self.stored[...] = a.swapaxes(-1, -2).reshape(self.count, n, m)
        self.tau = np.empty((self.count, self.k), self.dtype, like=a)
        self.reports = []
        self.order = np.empty((self.count, n), np.int64)  # in host memory
        self.order[...] = np.arange(n)
        if not self.stored.size:
            return
        if pivoting:
            plan = _plan(a, self.dtype, m, n, 1)
            self.reports.append(compute(plan.geqp3, _of_library(self.stored), self.order.reshape(-1), self._scalars(), stream_of(a)))
        else:
            plan = _plan(a, self.dtype, m, n, self.count)
            self.reports.append(compute(plan.geqrf, _of_library(self.stored), self.tau, stream_of(a)))

    def _scalars(self):
        return self.tau.reshape(self.count * self.k)

    def finish(self, *made, pivoting):
        """The results, with the order of the columns where it was asked for."""
        if self.reports:
            record(*self.reports)
        return (*made, self.order.reshape(*self.stack, self.shape[-1])) if pivoting else made

    def r(self, rows):
        return np.triu(self.stored.swapaxes(1, 2)[:, :rows]).reshape(*self.stack, rows, self.shape[-1])

    def q(self, rows):
        """Q with `rows` columns: k, or m."""
        (m, n), a = self.shape[-2:], self.like
        q = self.stored[:, :self.k] if rows == self.k else _widened(self.stored, m)
        if self.k and q.size:
            plan = _plan(a, self.dtype, m, n if rows == self.k else m, self.count)
            self.reports.append(compute(plan.orgqr, _of_library(q), self.tau, stream_of(a)))
        return q.swapaxes(1, 2).reshape(*self.stack, m, rows)

    def multiply(self, side, adjoint, c):
        """c ← op(Q) c or c op(Q) for each matrix of the stack `c` (count, …); Q is m × m, op(Q) Q or its conjugate transpose."""
        if self.k and c.size:
            plan = _plan(self.like, self.dtype, *self.shape[-2:], self.count)
            self.reports.append(compute(plan.ormqr, side, adjoint, _of_library(self.stored), self.tau, c[0] if len(c) == 1 else c,
                                        stream_of(self.like)))


@exchanged
def qr(a, mode="reduced", pivoting=False):
    """The QR factorization of a matrix, or of each of a stack (…, m, n), as numpy.linalg.qr. k is min(m, n).

    mode: "reduced" (Q is m × k, R is k × n), "complete" (Q is m × m, R is m × n), "r" (R alone, k × n), "raw" (LAPACK's storage of the
    reflectors, transposed as numpy returns it, and tau). "economic" and "full" are scipy.linalg.qr's names for the first two.
    pivoting: as scipy.linalg.qr: a[:, P] = Q R with a falling diagonal of R; the result has the array P (…, n) as another item, an array
    of NumPy's.
    Complex matrices give a unitary Q and a real diagonal of R. Other types than float32, float64, complex64, complex128 and integers raise UnsupportedTypeError (a TypeError).
    Q and R have no fixed signs: they are LAPACK's up to the sign of a row.
    """
    if mode not in _MODES:
        raise InvalidArgumentError(f"Unrecognized mode '{mode}': expected reduced, complete, r, raw, economic or full")
    mode = _MODES[mode]
    short = not pivoting and mode in _SHORT and type(a) is np.ndarray
    if short:
        made = called(_of_numpy.factor, a, _SHORT[mode], current())
        if made is not None:
            q, r, report = made
            record(report)
            return r if mode == "r" else QRResult(q, r)
    of = _Factors(as_array(a), pivoting)
    (m, n), k = of.shape[-2:], of.k
    if mode == "raw":
        raw = of.stored.reshape(*of.stack, n, m), of.tau.reshape(*of.stack, k)
        return of.finish(raw, pivoting=True) if pivoting else of.finish(*raw, pivoting=False)
    rows = m if mode == "complete" else k
    r = of.r(rows)
    if short:
        _keep(a, rows)
    if mode == "r":
        return of.finish(r, pivoting=True) if pivoting else of.finish(r, pivoting=False)[0]
    made = of.finish(of.q(rows), r, pivoting=pivoting)
    return made if pivoting else QRResult(*made)


@exchanged
def qr_multiply(a, c, mode="right", pivoting=False, conjugate=False):
    """The product of c and the Q of a (m × n), which is not formed, and R, as scipy.linalg.qr_multiply: (c Q, R), and with `pivoting` the
    order P of the columns as another item. k is min(m, n).

    mode: "right", c Q for c of p × m: the first k columns, p × k; "left", Q c for c of k × p: m × p. c may have one axis, and stands then
    for one row or column; the product has one axis too. a may be a stack (…, m, n) and c a stack of the same shape (…). `conjugate`: the
    conjugate of Q, not transposed, takes the place of Q, which changes nothing for real a. Both steps are protected. Errors: as qr;
    InvalidArgumentError (a ValueError) for shapes that do not fit.
    """
    if mode not in ("left", "right"):
        raise InvalidArgumentError(f"mode: expected left or right, got '{mode}'")
    a, c = as_array(a), as_array(c)
    if device_of(a) != device_of(c):
        raise UnsupportedError("c: expected an array in the memory where a lies")
    dtype = _type_of(a, c)
    if a.dtype != dtype:
        a = a.astype(dtype)
    if a.ndim < 2:
        raise np.linalg.LinAlgError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
    *stack, m, n = a.shape
    k, flat = min(m, n), c.ndim == 1
    if flat:
        c = c.reshape(1, len(c)) if mode == "right" else c.reshape(len(c), 1)
    meets = k if mode == "left" else m
    if c.ndim != a.ndim or c.shape[:-2] != a.shape[:-2] or c.shape[-2 if mode == "left" else -1] != meets:
        wanted = (*stack, k, "p") if mode == "left" else (*stack, "p", m)
        raise InvalidArgumentError(f"c: expected the shape ({', '.join(map(str, wanted))}) for a of shape {a.shape}, got {c.shape}")
    of = _Factors(a, pivoting)
    p = c.shape[-1] if mode == "left" else c.shape[-2]
    work = np.zeros((of.count, p, m), dtype, like=a)  # columns of Q c, or rows of c Q
    given = c.swapaxes(-1, -2) if mode == "left" else c
    work[:, :, :meets] = given.reshape(of.count, p, meets)
    adjoint = bool(conjugate) and dtype.kind == "c"  # conj(Q) c is the transpose of cᵀ Qᴴ, and c conj(Q) that of Qᴴ cᵀ
    if (mode == "left") != adjoint:
        of.multiply("left", adjoint, work.swapaxes(1, 2))
    else:
        of.multiply("right", adjoint, work)
    made = work.swapaxes(1, 2) if mode == "left" else work[:, :, :k]
    made = made.reshape(*stack, *made.shape[1:])
    if flat:
        made = made.reshape(made.shape[0] * made.shape[1])
    return of.finish(made, of.r(k), pivoting=pivoting)


def _widened(stored, m):
    """Room for m columns of Q after the reflectors; the unit matrix where there are none."""
    made = np.zeros((len(stored), m, m), stored.dtype, like=stored)
    made[:, : stored.shape[1]] = stored
    if not stored.size:
        made[...] = np.identity(m, stored.dtype, like=stored)
    return made


@exchanged
def lstsq(a, b, rcond=None, *, driver="gels"):
    """The least-squares solution of a x = b by QR. Returns (x, residuals, rank, s) as numpy.linalg.lstsq.

    driver="gels", for a of full rank, differs from numpy's function, which uses the singular value decomposition, where a does not have
    full rank: columns (rows where a has more columns than rows) that depend on each other to rounding, whatever their scaling, raise
    RankDeficientError, whose `rank` is the rank where the library could count it. So rank is always min(m, n) in the result. With a number
    `rcond`, a matrix whose smallest singular value is at most rcond times the largest raises RankDeficientError too.
    driver="gelsy", for a of any rank: column pivoting finds the rank, the largest r for which the leading r × r block of R has a condition
    number below 1 / rcond (None: 2 u max(m, n); negative: 2 u), and x is the solution of least norm, as by LAPACK's xGELSY. residuals is
    empty, as scipy.linalg.lstsq's for this driver.
    Complex a or b: x is complex, residuals and s are real.
    x and residuals are protected. s, the singular values, is computed from R by numpy and is not.
    """
    if driver not in ("gels", "gelsy"):
        raise InvalidArgumentError(f"driver: expected gels or gelsy, got {driver!r}")
    short = driver == "gels" and type(a) is type(b) is np.ndarray
    if short:
        made = _refusing(called, _of_numpy.solve, a, b, current())
        if made is not None:
            x, residuals, triangle, report = made
            record(report)
            s = singular_values(triangle)
            _refuse_small(s, rcond)
            return LstsqResult(x, residuals, len(s), s)
    a, b = as_array(a), as_array(b)
    if device_of(a) != device_of(b):
        raise UnsupportedError("b: expected an array in the memory where a lies")
    dtype = _type_of(a, b)
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
    if short:
        _keep(a, n)
    solve = _solved if driver == "gels" else _solved_of_any_rank
    rank, residuals, s = solve(a, stored, right, rcond)
    x = right[:, :n].T.copy()
    return LstsqResult(x[:, 0] if b.ndim == 1 else x, residuals, rank, s)


def _refusing(function, *arguments):
    """`function`, whose refusal of a matrix says the rank where the library could count it."""
    try:
        return function(*arguments)
    except RankDeficientError as refused:
        counted = re.search(r"got rank (\d+) of", str(refused))
        raise RankDeficientError(str(refused), int(counted[1]) if counted else None) from None


def _solved(a, stored, right, rcond):
    """Overwrites the columns `stored` of `a` with factors, and the right-hand sides with solutions: the rank, residuals and s."""
    (n, m), k, dtype = stored.shape, len(right), stored.dtype
    if m and n and k:
        plan = _plan(a, dtype, m, n, 1)
        record(_refusing(compute, plan.gels, stored.T, right.T, stream_of(a)))
        s = singular_values(np.triu((stored.T if m >= n else stored)[: min(m, n)]))  # the factors are those of a, or of its transpose
    else:
        s = singular_values(stored) if m and n else np.empty(0, _of_parts(dtype), like=a)
    _refuse_small(s, rcond)
    residuals = sums_of_squares(right[:, n:], 1) if m > n else np.empty(0, _of_parts(dtype), like=a)
    return min(m, n), residuals, s


def _solved_of_any_rank(a, stored, right, rcond):
    (n, m), k, dtype = stored.shape, len(right), stored.dtype
    none = np.empty(0, _of_parts(dtype), like=a)
    if not (m and n):
        return 0, none, none
    if rcond is None or rcond >= 0:
        below = -1.0 if rcond is None else float(rcond)  # the library's default is numpy's
    else:
        below = float(np.finfo(dtype).eps)
    sides = right if k else np.zeros((1, max(m, n)), dtype, like=a)  # without a side the rank is wanted
    made, rank = compute(_plan(a, dtype, m, n, 1).gelsy, stored.T, sides.T, np.empty(n, np.int64), below, stream_of(a))
    record(made)
    return rank, none, singular_values(np.triu(stored.T[: min(m, n)]))


def _refuse_small(s, rcond):
    if rcond is None or not len(s):
        return
    s = on_host(s)
    rank = int(np.count_nonzero(s > rcond * s[0]))
    if rank < len(s):
        raise RankDeficientError(f"a: expected full rank, got rank {rank} of {len(s)} by rcond = {rcond}", rank)
