"""QR on groups: factors of a tall matrix by rows, and of any matrix by block columns or on a grid of ranks."""

import numpy as np

from . import _core
from ._device import DeviceArray, as_array
from ._errors import InvalidArgumentError, UnsupportedError, UnsupportedTypeError
from ._exchange import taken
from ._protection import call, current, execution, prepares_call, record

__all__ = ["ColumnFactors", "GridFactors", "RowFactors", "block_columns", "factor_columns", "factor_grid", "factor_rows", "from_block_columns",
           "layout_part", "to_block_columns"]

_ROWS = {"f": _core.RowFactorsF32, "d": _core.RowFactorsF64}
_COLUMNS = {"f": _core.ColumnFactorsF32, "d": _core.ColumnFactorsF64, "F": _core.ColumnFactorsC64, "D": _core.ColumnFactorsC128}
_GRIDS = {"f": _core.GridFactorsF32, "d": _core.GridFactorsF64, "F": _core.GridFactorsC64, "D": _core.GridFactorsC128}


def _where(name):
    settings = current()
    if settings.group is None and not isinstance(settings.device, tuple):
        raise InvalidArgumentError(f"{name}: expected protection(group=…) or protection(device=[…]) around the call, got neither")
    return execution(settings), settings.group is None


def _matrix(a, name, types, axes=(2,)):
    """A NumPy array of one of the types, over the memory of an array of another library; integers become float64."""
    a = as_array(taken(a))
    if isinstance(a, DeviceArray):
        raise UnsupportedError(f"{name}: expected an array in host memory on a group, got one of a device")
    if a.ndim not in axes:
        raise InvalidArgumentError(f"{name}: expected {' or '.join(map(str, axes))} axes, got {a.ndim}")
    if a.dtype.kind in "?biu":
        a = a.astype(np.float64)
    if a.dtype.char not in types:
        raise UnsupportedTypeError(f"{name}: expected {' or '.join(np.dtype(each).name for each in types)}, got {a.dtype.name}")
    return a


def _beside(b, name, dtype):
    """An operand beside factors, with two axes, and whether it had one."""
    b = _matrix(b, name, _COLUMNS, (1, 2))
    if not np.can_cast(b.dtype, dtype, "same_kind"):
        raise UnsupportedTypeError(f"{name}: expected numbers that the factors' type {dtype.name} holds, got {b.dtype.name}")
    flat, b = b.ndim == 1, b.astype(dtype, copy=False)
    return np.asfortranarray(b[:, None] if flat else b), flat


class _Factors:
    def __init__(self, made, dtype):
        self._made, self.dtype, self._group = made, np.dtype(dtype), current().group
        record(made.report)

    def _result(self, rows, columns):
        return np.empty((rows, columns), self.dtype, order="F")

    def _compute(self, function, *arguments, out):
        record(call(function, *arguments, out))
        return out

    def _product(self, c, name, function, rows, *more):
        c, flat = _beside(c, name, self.dtype)
        out = self._compute(function, c, *more, out=self._result(rows, c.shape[1]))
        return out[:, 0] if flat else out


class _Stored(_Factors):
    """Factors in the form of geqrf; `shape` is that of the whole matrix."""

    def __init__(self, made, dtype, shape, own):
        super().__init__(made, dtype)
        self.shape, self._own = shape, own  # own: the shape of this rank's part

    @property
    def tau(self):
        """The factors τ of all reflectors, on every rank."""
        out = np.empty(min(self.shape), self.dtype)
        self._made.tau(out)
        return out

    @property
    def storage(self):
        """This rank's part of the matrix as geqrf leaves it: R, and the reflectors below it."""
        out = self._result(*self._own)
        self._made.storage(out)
        return out


class RowFactors(_Factors):
    """A = Q R of a tall matrix (m × n) whose rows are divided; Q stays in factors. R and solutions are the same on all ranks."""

    def __init__(self, made, rows, columns, dtype):
        super().__init__(made, dtype)
        self._rows, self._columns = rows, columns

    @property
    def R(self):
        """n × n, upper triangular, on every rank."""
        out = self._result(self._columns, self._columns)
        self._made.r(out)
        return out

    @prepares_call
    def Q(self):
        """This rank's rows of Q."""
        return self._compute(self._made.q, out=self._result(self._rows, self._columns))

    @prepares_call
    def multiply(self, c, adjoint=False):
        """This rank's rows of Q c, c (n × p) the same on all ranks; with `adjoint` Qᵀ c (n × p), of this rank's rows of c."""
        return self._product(c, "c", self._made.multiply, self._columns if adjoint else self._rows, bool(adjoint))

    @prepares_call
    def solve(self, b):
        """The least-squares solution (n × p) for this rank's rows of b. Dependent columns: RankDeficientError."""
        return self._product(b, "b", self._made.solve, self._columns)


class ColumnFactors(_Stored):
    """A = Q R of any matrix (m × n) whose block columns are divided; Q stays in factors, in the form of geqrf."""

    def __init__(self, made, rows, own, dtype, block, place):
        super().__init__(made, dtype, (rows, made.columns), (rows, own))
        self.block, self._place = block, place  # place: this rank and their number; None on devices

    def _of_q(self):
        k = min(self.shape)
        return k if self._place is None else len(_core.block_columns(k, self.block, self._place[1], self._place[0]))

    @property
    def R(self):
        """This rank's columns of R, min(m, n) × its number of columns; on devices all."""
        out = self._result(min(self.shape), self._own[1])
        self._made.r(out)
        return out

    @prepares_call
    def Q(self):
        """This rank's columns of Q, those that block_columns(min(m, n), block) names; on devices all."""
        return self._compute(self._made.q, out=self._result(self.shape[0], self._of_q()))

    @prepares_call
    def multiply(self, c, adjoint=False):
        """Q c, or Qᴴ c with `adjoint`, for this rank's own c, m × p with any p."""
        return self._product(c, "c", self._made.multiply, self.shape[0], bool(adjoint))

    @prepares_call
    def solve(self, b):
        """The least-squares solution (n × p) for this rank's own b (m × p), m ≥ n. Dependent columns: RankDeficientError on all ranks."""
        return self._product(b, "b", self._made.solve, self.shape[1])

    @property
    def storage(self):
        """This rank's columns as geqrf leaves them, which from_block_columns takes."""
        if self._made.on_devices:
            raise UnsupportedError("storage: expected factors of ranks, got those of devices")
        return super().storage


class GridFactors(_Stored):
    """A = Q R of any matrix (m × n) that lies on a grid of ranks in ScaLAPACK's layout. Its parts have the same layout."""

    def __init__(self, made, dtype, shape, rows, columns):
        super().__init__(made, dtype, shape, (len(rows), len(columns)))
        self._below = sum(i < min(shape) for i in rows), sum(j < min(shape) for j in columns)

    @property
    def R(self):
        """This rank's part of R: of its rows those below min(m, n), all its columns."""
        out = self._result(self._below[0], self._own[1])
        self._made.r(out)
        return out

    @prepares_call
    def Q(self):
        """This rank's part of Q: all its rows, of its columns those below min(m, n)."""
        return self._compute(self._made.q, out=self._result(self._own[0], self._below[1]))

    @prepares_call
    def multiply(self, c, adjoint=False):
        """Q c, or Qᴴ c with `adjoint`: this rank's rows of the columns of its process column, as many on all ranks of it."""
        return self._product(c, "c", self._made.multiply, self._own[0], bool(adjoint))

    @prepares_call
    def solve(self, b):
        """The least-squares solution for b as in `multiply`, m ≥ n: of this rank's rows those below n. Dependent columns: RankDeficientError on
        all ranks."""
        return self._product(b, "b", self._made.solve, self._below[0])


@prepares_call
def factor_rows(a):
    """Factors a tall matrix of float32 or float64 whose rows lie on the ranks of protection(group=…): `a` has this rank's, any number of
    them. With protection(device=[…]) `a` has all rows, and the devices share them. Returns RowFactors."""
    where, _ = _where("factor_rows")
    a = _matrix(a, "a", _ROWS)
    made = call(_ROWS[a.dtype.char].of, a, where)
    return RowFactors(made, *a.shape, a.dtype)


@prepares_call
def factor_columns(a, block=64):
    """Factors a matrix of any shape whose columns lie on the ranks of protection(group=…) block by block in turn: `a` has this rank's
    columns, those that block_columns names. float32, float64, complex64 and complex128. With protection(device=[…]) `a` has all columns,
    real ones. block: 1 to 96 columns, on devices up to 1024. Returns ColumnFactors."""
    where, on_devices = _where("factor_columns")
    a = np.asfortranarray(_matrix(a, "a", _COLUMNS))
    made = call(_COLUMNS[a.dtype.char].of, a, int(block), where)
    group = current().group
    return ColumnFactors(made, *a.shape, a.dtype, int(block), None if on_devices else (group.rank, group.size))


def block_columns(n, block=64, rank=None, size=None):
    """The numbers of the columns, of n, that a rank has: an array. rank, size: those of protection(group=…) if not given."""
    if rank is None or size is None:
        group = current().group
        if group is None:
            raise InvalidArgumentError("block_columns: expected rank and size, or protection(group=…) around the call, got neither")
        rank, size = group.rank if rank is None else rank, group.size if size is None else size
    return np.array(_core.block_columns(int(n), int(block), int(size), int(rank)), np.int64)


def _layout(desc, grid, order):
    desc = [int(each) for each in desc]
    if len(desc) != 9:
        raise InvalidArgumentError(f"desc: expected the 9 numbers of ScaLAPACK's array descriptor, got {len(desc)}")
    if order not in ("row", "col"):
        raise InvalidArgumentError(f"order: expected row or col, got {order!r}")
    grid = [int(each) for each in grid]
    if len(grid) != 2:
        raise InvalidArgumentError(f"grid: expected the numbers of its rows and columns, got {len(grid)} numbers")
    return desc, *grid, order == "col"


def layout_part(desc, grid, rank=None, *, order="row"):
    """The numbers, in a whole matrix in ScaLAPACK's layout, of the rows and of the columns that a rank has: two arrays. The arguments are
    those of factor_grid. rank: that of protection(group=…) if not given."""
    if rank is None:
        group = current().group
        if group is None:
            raise InvalidArgumentError("layout_part: expected rank, or protection(group=…) around the call, got neither")
        rank = group.rank
    return tuple(np.array(each, np.int64) for each in _core.layout_part(*_layout(desc, grid, order), int(rank)))


@prepares_call
def factor_grid(local, desc, grid, *, order="row"):
    """Factors a matrix of any shape that lies on the ranks of protection(group=…) in ScaLAPACK's layout, where it lies; a call of all ranks.
    local: this rank's part, float32, float64, complex64 or complex128: its rows and columns, those that layout_part names; or one axis,
    column by column, LLD_ apart. desc: the array descriptor, DTYPE_ = 1, CTXT_ (not read), M_, N_, MB_, NB_, RSRC_, CSRC_, LLD_ (not read for
    two axes). grid: rows and columns of the grid of processes; order: "row" or "col", as BLACS numbers them. Returns GridFactors."""
    where, on_devices = _where("factor_grid")
    if on_devices:
        raise UnsupportedError("factor_grid: expected protection(group=…) around the call, got a list of devices")
    local = _matrix(local, "local", _GRIDS, (1, 2))
    desc, *rest = _layout(desc, grid, order)
    group = current().group
    if rest[0] * rest[1] != group.size:
        raise InvalidArgumentError(f"grid: expected rows × columns of the group's {group.size} ranks, got {rest[0]} × {rest[1]}")
    rows, columns = _core.layout_part(desc, *rest, group.rank)
    if local.ndim == 2:
        if local.shape != (len(rows), len(columns)):
            raise InvalidArgumentError(f"local: expected {len(rows)} × {len(columns)}, this rank's part, got {local.shape[0]} × {local.shape[1]}")
        desc[8] = max(1, len(rows))
        local = local.ravel(order="F")
    made = call(_GRIDS[local.dtype.char].of, np.ascontiguousarray(local), desc, *rest, where)
    return GridFactors(made, local.dtype, (desc[2], desc[3]), rows, columns)


@prepares_call
def to_block_columns(local, desc, grid, block=64, *, order="row"):
    """Takes a matrix in ScaLAPACK's layout to block columns: returns this rank's, as factor_columns takes them. local: the rank's part, column
    by column, LLD_ apart, in one axis. desc: the array descriptor. grid: rows and columns of the grid of processes; order: "row" or "col",
    as BLACS numbers them. A call of all ranks."""
    where, _ = _where("to_block_columns")
    local = np.ascontiguousarray(_matrix(local, "local", _COLUMNS, (1,)))
    layout = _layout(desc, grid, order)
    out = np.empty((layout[0][2], len(block_columns(layout[0][3], block))), local.dtype, order="F")
    record(call(_COLUMNS[local.dtype.char].from_layout, local, *layout, int(block), where, out))
    return out


@prepares_call
def from_block_columns(columns, local, desc, grid, block=64, *, order="row"):
    """Stores this rank's block columns, such as ColumnFactors.storage, in ScaLAPACK's layout in `local`, an array of one axis without gaps. The
    other arguments are those of to_block_columns."""
    where, _ = _where("from_block_columns")
    columns = np.asfortranarray(_matrix(columns, "columns", _COLUMNS))
    if type(local) is not np.ndarray or local.ndim != 1 or local.dtype != columns.dtype or not local.flags.c_contiguous or not local.flags.writeable:
        raise InvalidArgumentError(f"local: expected a writable array of {columns.dtype.name} with one axis without gaps")
    record(call(_COLUMNS[columns.dtype.char].to_layout, columns, int(block), local, *_layout(desc, grid, order), where))
