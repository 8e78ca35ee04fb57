"""One transform over up to three axes of an array of any rank: layout, plan, run.

A plan takes one loop over signals. Batch axes that lie in memory as one loop become that. Others become several runs of the plan where
these are large, and else a copy with the transformed axes last.
"""

import itertools
import math
import operator
import os

import numpy as np

from .. import _core
from .._device import DeviceArray, contiguous, device_of, stream_of
from .._errors import UnsupportedError, UnsupportedTypeError
from .._plans import PlanCache
from .._protection import compute, current, enqueue, execution

MOST_AXES = 3
SMALL_RUN = 1 << 14  # elements: below, a copy costs less than another run
MOST_RUNS = 1 << 12

plans = PlanCache()

_SINGLE = "efF"
_DOUBLE = "?bBhHiIlLqQdD"


def real_type(a):
    """float32 or float64: the precision in which an array of this type is transformed."""
    code = a.dtype.char
    if code in _SINGLE:
        return np.dtype(np.float32)
    if code in _DOUBLE:
        return np.dtype(np.float64)
    if code in "gG":
        raise UnsupportedTypeError(f"ballast.fft computes in float32 and float64, got {a.dtype}; convert the array")
    raise TypeError(f"type {a.dtype} is not supported in ballast.fft")


def complex_type(real):
    return np.dtype(np.complex64 if real.itemsize == 4 else np.complex128)


def usable(a, dtype):
    """`a` itself if the library can read it where it lies, else a copy of elements `dtype`."""
    if a.dtype != dtype or not a.dtype.isnative:
        return a.astype(dtype, order="K")
    if not a.flags.aligned:
        return a.copy()
    size = a.itemsize
    for length, stride in zip(a.shape, a.strides):
        if length > 1 and (stride <= 0 or stride % size):
            return a.copy()
    return a


def threads_of(workers):
    """scipy.fft's `workers` as a number of threads; None: that of the context."""
    if workers is None:
        return None
    workers = operator.index(workers)
    cores = os.cpu_count() or 1
    if workers < 0:
        if workers < -cores:
            raise ValueError(f"workers value out of range; got {workers}, must not be less than {-cores}")
        return workers + 1 + cores
    if workers == 0:
        raise ValueError("workers must not be zero")
    return workers


def _make(kind, twice, shape, batch, norm, strides_in, distance_in, strides_out, distance_out, where, stream):
    # Each stream has its own plan: calls of one plan share memory, so that they must follow each other.
    return _core.FftPlan(kind, twice, shape, batch, norm, strides_in, distance_in, strides_out, distance_out, where)


def _loops(src, dst, axes):
    """The batch axes as loops (count, stride in src, stride in dst) in elements; neighbours that are one loop in memory are joined."""
    given = [(src.shape[a], src.strides[a] // src.itemsize, dst.strides[a] // dst.itemsize) for a in range(src.ndim)
             if a not in axes and src.shape[a] > 1]
    given.sort(key=lambda loop: -loop[1])
    joined = []
    for count, step, step_out in given:
        if joined and joined[-1][1] == count * step and joined[-1][2] == count * step_out:
            joined[-1] = (joined[-1][0] * count, step, step_out)
        else:
            joined.append((count, step, step_out))
    return joined


def _places(loops):
    """Where the runs begin in src and in dst: every index of `loops`."""
    if not loops:
        return [0], [0]
    one = [[(i * step, i * step_out) for i in range(count)] for count, step, step_out in loops]
    pairs = [(sum(p[0] for p in each), sum(p[1] for p in each)) for each in itertools.product(*one)]
    return [p[0] for p in pairs], [p[1] for p in pairs]


def _by_copy(kind, src, dst, axes, inverse, norm, threads):
    last = tuple(range(-len(axes), 0))
    near = contiguous(np.moveaxis(src, axes, last))
    moved = np.moveaxis(dst, axes, last)
    made = np.empty(moved.shape, dst.dtype, like=dst)
    seen = run(kind, near, made, tuple(a + src.ndim for a in last), inverse, norm, threads)
    moved[...] = made
    return seen


def planned(kind, src, dst, axes, norm, threads):
    """The plan that transforms `src` into `dst` over `axes`, and where its runs begin in both; None where a copy is the better way."""
    item_in, item_out = src.itemsize, dst.itemsize
    loops = _loops(src, dst, axes) if src.ndim > len(axes) else []
    real = dst if kind == "c2r" else src
    shape = tuple(real.shape[a] for a in axes)
    points = math.prod(shape)
    batch, distance_in, distance_out = (1, 0, 0)
    if loops:
        largest = max(loops)
        loops.remove(largest)
        batch, distance_in, distance_out = largest
    runs = math.prod(count for count, _, _ in loops)
    if runs > 1 and (runs > MOST_RUNS or batch * points < SMALL_RUN):
        return None
    strides_in = tuple(src.strides[a] // item_in if src.shape[a] > 1 else 1 for a in axes)
    strides_out = tuple(dst.strides[a] // item_out if dst.shape[a] > 1 else 1 for a in axes)
    where = execution(current(), threads, device_of(src))
    plan = plans.get((kind, real.itemsize == (16 if kind == "c2c" else 8), shape, batch, norm, strides_in, distance_in, strides_out,
                      distance_out, where, stream_of(src)), points, _make)
    return plan, *_places(loops)


def run(kind, src, dst, axes, inverse, norm, threads):
    """Transforms `src` into `dst` over `axes` (≥ 0, different, at most three; the real axis of r2c and c2r last). Returns the report."""
    found = planned(kind, src, dst, axes, norm, threads)
    if found is None:
        return _by_copy(kind, src, dst, axes, inverse, norm, threads)
    plan, places_in, places_out = found
    if type(src) is DeviceArray:
        library, a = src.library, src.native
        return enqueue(plan, src.address, dst.address, inverse, places_in, places_out, library.stream(a), library.capturing(a),
                       library.owner_of_stream(a))
    return compute(plan.run, src, dst, inverse, places_in, places_out)


def resized(a, axes, lengths):
    """`a` cropped, or padded with zeros, to `lengths` along `axes`."""
    if all(a.shape[axis] == n for axis, n in zip(axes, lengths)):
        return a
    kept = [slice(None)] * a.ndim
    shape = list(a.shape)
    for axis, n in zip(axes, lengths):
        kept[axis] = slice(0, n)
        shape[axis] = n
    a = a[tuple(kept)]
    if a.shape == tuple(shape):
        return a
    made = np.zeros_like(a, shape=shape)
    made[tuple(slice(0, n) for n in a.shape)] = a
    return made


class Destination:
    """The array of results: `out` of the caller, or new memory. `array` is where the library writes; finish() returns the result."""

    def __init__(self, out, like, shape, dtype, name):
        self._out = out
        if out is None:
            self.array = np.empty_like(like, shape=shape, dtype=dtype, subok=False)
            return
        if not isinstance(out, (np.ndarray, DeviceArray)):
            raise TypeError("return arrays must be of ArrayType")
        if device_of(out) != device_of(like):
            raise UnsupportedError("out: expected an array in the memory where the input lies")
        if out.shape != tuple(shape):
            raise ValueError("output array has wrong shape.")
        if not np.can_cast(dtype, out.dtype, "same_kind"):
            raise TypeError(f"Cannot cast ufunc '{name}' output from {dtype!r} to {out.dtype!r} with casting rule 'same_kind'")
        if not out.flags.writeable:
            raise ValueError("output array is read-only")
        direct = out.dtype == dtype and out.dtype.isnative and usable(out, dtype) is out
        self.array = out if direct else np.empty(shape, dtype, like=like)

    def finish(self):
        if self._out is None or self._out is self.array:
            return self.array
        np.copyto(self._out, self.array, casting="same_kind")
        return self._out


def same_place(a, b):
    return a.shape == b.shape and a.strides == b.strides and _address(a) == _address(b)


def _address(a):
    return a.address if type(a) is DeviceArray else a.__array_interface__["data"][0]


def apart(src, dst):
    """`src`, or a copy of it where it overlaps `dst` other than in place."""
    if np.may_share_memory(src, dst) and not (src.dtype == dst.dtype and same_place(src, dst)):
        return src.copy()
    return src
