"""The functions of numpy.fft, and hfft2, ihfft2, hfftn and ihfftn of scipy.fft."""

import operator
import warnings

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from .._device import as_array
from .._exchange import exchanged
from .._protection import record
from . import _engine
from ._engine import MOST_AXES, Destination, apart, complex_type, real_type, resized, run, threads_of, usable
from ._quick import forget, quick, quick_tensor

_SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def _norm(norm):
    if norm not in _SWAPPED:
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    return norm or "backward"


def clear_plans():
    """Frees the plans that earlier calls have left."""
    _engine.plans.clear()
    forget()


# ---- The three kinds over different axes

def _check_lengths(lengths):
    for n in lengths:
        if n < 1:
            raise ValueError(f"Invalid number of FFT data points ({n}) specified.")


def _groups(axes):
    """`axes` in parts of at most three, the last part first."""
    parts = []
    while axes:
        parts.append(axes[-MOST_AXES:])
        axes = axes[:-MOST_AXES]
    return parts


def _over_groups(src, dst, groups, inverse, norm, threads):
    """c2c over each group of axes: from `src` to `dst`, then within `dst`."""
    reports = []
    for group in groups:
        reports.append(run("c2c", src, dst, group, inverse, norm, threads))
        src = dst
    return reports


def _c2c(a, lengths, axes, inverse, norm, out, threads, overwrite, name):
    real = real_type(a)
    _check_lengths(lengths)
    kind = complex_type(real)
    a = resized(a, axes, lengths)
    if out is None and overwrite and a.dtype == kind and a.flags.writeable and usable(a, kind) is a:
        out = a
    place = Destination(out, a, a.shape, kind, name)
    if place.array.size:
        src = apart(usable(a, kind), place.array)
        record(*_over_groups(src, place.array, _groups(axes), inverse, norm, threads))
    return place.finish()


def _r2c(a, lengths, axes, norm, out, threads, name):
    real = real_type(a)
    if a.dtype.kind == "c":
        raise TypeError(f"x must be a real sequence: '{name}' did not contain a loop for elements of type {a.dtype!r}")
    _check_lengths(lengths)
    a = resized(a, axes, lengths)
    shape = list(a.shape)
    shape[axes[-1]] = lengths[-1] // 2 + 1
    place = Destination(out, a, shape, complex_type(real), name)
    if place.array.size:
        src = usable(a, real)
        if np.may_share_memory(src, place.array):
            src = src.copy()
        first, *rest = _groups(axes)
        reports = [run("r2c", src, place.array, first, False, norm, threads)]
        reports += _over_groups(place.array, place.array, rest, False, norm, threads)
        record(*reports)
    return place.finish()


def _c2r(a, lengths, axes, norm, out, threads, name):
    real = real_type(a)
    _check_lengths(lengths)
    kind = complex_type(real)
    halves = (*lengths[:-1], lengths[-1] // 2 + 1)
    a = resized(a, axes, halves)
    shape = list(a.shape)
    shape[axes[-1]] = lengths[-1]
    place = Destination(out, a, shape, real, name)
    if place.array.size:
        src = usable(a, kind)
        if np.may_share_memory(src, place.array):
            src = src.copy()
        # The transform of the real axis alone comes last: it ignores the imaginary parts that numpy.fft ignores, for any data.
        reports = []
        if len(axes) > 1:
            work = np.empty_like(src)
            reports = _over_groups(src, work, _groups(axes[:-1]), True, norm, threads)
            src = work
        reports.append(run("c2r", src, place.array, axes[-1:], True, norm, threads))
        record(*reports)
    return place.finish()


# ---- One axis

def _one(a, n, axis, halved=False):
    """The array, its length along `axis` and the axis ≥ 0. `halved`: the default length is that of the real side."""
    a = as_array(a)
    if n is None:
        axis = normalize_axis_index(axis, a.ndim)
        n = 2 * (a.shape[axis] - 1) if halved else a.shape[axis]
    else:
        n = operator.index(n)
        _check_lengths((n,))
        axis = normalize_axis_index(axis, a.ndim)
    return a, (n,), (axis,)


@quick("fft")
def fft(a, n=None, axis=-1, norm=None, out=None, *, workers=None, overwrite_x=False):
    """The discrete Fourier transform along one axis, as numpy.fft.fft."""
    a, n, axis = _one(a, n, axis)
    return _c2c(a, n, axis, False, _norm(norm), out, threads_of(workers), overwrite_x, "fft")


@quick("ifft")
def ifft(a, n=None, axis=-1, norm=None, out=None, *, workers=None, overwrite_x=False):
    """The inverse of fft along one axis, as numpy.fft.ifft."""
    a, n, axis = _one(a, n, axis)
    return _c2c(a, n, axis, True, _norm(norm), out, threads_of(workers), overwrite_x, "ifft")


@quick("rfft")
def rfft(a, n=None, axis=-1, norm=None, out=None, *, workers=None, overwrite_x=False):
    """The transform of real input along one axis, its n/2 + 1 non-redundant numbers, as numpy.fft.rfft."""
    a, n, axis = _one(a, n, axis)
    return _r2c(a, n, axis, _norm(norm), out, threads_of(workers), "rfft")


@quick("irfft")
def irfft(a, n=None, axis=-1, norm=None, out=None, *, workers=None, overwrite_x=False):
    """The inverse of rfft: real output of length n (default 2(m − 1)), as numpy.fft.irfft."""
    a, n, axis = _one(a, n, axis, halved=True)
    return _c2r(a, n, axis, _norm(norm), out, threads_of(workers), "irfft")


@exchanged
def hfft(a, n=None, axis=-1, norm=None, out=None, *, workers=None, overwrite_x=False):
    """The transform of a signal with Hermitian symmetry, of which the first half is given: real output, as numpy.fft.hfft."""
    a, n, axis = _one(a, n, axis, halved=True)
    return _c2r(np.conjugate(a), n, axis, _SWAPPED[_norm(norm)], out, threads_of(workers), "hfft")


@exchanged
def ihfft(a, n=None, axis=-1, norm=None, out=None, *, workers=None, overwrite_x=False):
    """The inverse of hfft: the first half of a signal with Hermitian symmetry, as numpy.fft.ihfft."""
    a, n, axis = _one(a, n, axis)
    made = _r2c(a, n, axis, _SWAPPED[_norm(norm)], out, threads_of(workers), "ihfft")
    return np.conjugate(made, out=made)


# ---- Several axes

def _several(a, s, axes, halved=False):
    """The array, the lengths and the axes ≥ 0, by numpy.fft's rules, with its warnings. Axes may repeat."""
    a = as_array(a)
    given = s is not None
    if s is None:
        s = list(a.shape) if axes is None else [a.shape[axis] for axis in axes]
    s = list(s)
    if axes is None:
        if given:
            warnings.warn("`axes` should not be `None` if `s` is not `None` (deprecated in NumPy 2.0): pass the axes", DeprecationWarning,
                          stacklevel=3)
        axes = range(-len(s), 0)
    axes = list(axes)
    if len(s) != len(axes):
        raise ValueError("Shape and axes have different lengths.")
    if halved and not given:
        s[-1] = 2 * (a.shape[axes[-1]] - 1)
    if None in s:
        warnings.warn("Passing an array containing `None` values to `s` is deprecated in NumPy 2.0: pass the length, or -1",
                      DeprecationWarning, stacklevel=3)
    whole = [2 * (a.shape[axis] - 1) if halved and i + 1 == len(axes) and n is None else a.shape[axis] if n in (None, -1) else
             operator.index(n) for i, (n, axis) in enumerate(zip(s, axes))]
    return a, tuple(whole), tuple(normalize_axis_index(axis, a.ndim) for axis in axes)


def _steps(a, lengths, axes, inverse, norm, out, threads, name):
    """c2c over axes of which some repeat: one after the other, the last first, as numpy.fft does."""
    for n, axis in reversed(list(zip(lengths[1:], axes[1:]))):
        a = _c2c(a, (n,), (axis,), inverse, norm, None, threads, False, name)
    return _c2c(a, lengths[:1], axes[:1], inverse, norm, out, threads, False, name)


def _complex_several(a, s, axes, inverse, norm, out, workers, overwrite, name):
    norm = _norm(norm)
    a, lengths, axes = _several(a, s, axes)
    if not axes:
        return a
    if len(set(axes)) < len(axes):
        return _steps(a, lengths, axes, inverse, norm, out, threads_of(workers), name)
    return _c2c(a, lengths, axes, inverse, norm, out, threads_of(workers), overwrite, name)


@quick_tensor("fftn")
def fftn(a, s=None, axes=None, norm=None, out=None, *, workers=None, overwrite_x=False):
    """The transform over several axes, as numpy.fft.fftn."""
    return _complex_several(a, s, axes, False, norm, out, workers, overwrite_x, "fft")


@quick_tensor("ifftn")
def ifftn(a, s=None, axes=None, norm=None, out=None, *, workers=None, overwrite_x=False):
    """The inverse of fftn, as numpy.fft.ifftn."""
    return _complex_several(a, s, axes, True, norm, out, workers, overwrite_x, "ifft")


@quick_tensor("fft2")
def fft2(a, s=None, axes=(-2, -1), norm=None, out=None, *, workers=None, overwrite_x=False):
    """The transform over two axes, as numpy.fft.fft2."""
    return _complex_several(a, s, axes, False, norm, out, workers, overwrite_x, "fft")


@quick_tensor("ifft2")
def ifft2(a, s=None, axes=(-2, -1), norm=None, out=None, *, workers=None, overwrite_x=False):
    """The inverse of fft2, as numpy.fft.ifft2."""
    return _complex_several(a, s, axes, True, norm, out, workers, overwrite_x, "ifft")


def _forward_real(a, s, axes, norm, out, workers):
    a, lengths, axes = _several(a, s, axes)
    threads = threads_of(workers)
    if not axes:
        raise ValueError("at least 1 axis must be transformed")
    if len(set(axes)) < len(axes):
        made = _r2c(a, lengths[-1:], axes[-1:], norm, None, threads, "rfft")
        return _steps(made, lengths[:-1], axes[:-1], False, norm, out, threads, "fft")
    return _r2c(a, lengths, axes, norm, out, threads, "rfft")


def _inverse_real(a, s, axes, norm, out, workers):
    a, lengths, axes = _several(a, s, axes, halved=True)
    threads = threads_of(workers)
    if len(set(axes)) < len(axes):
        a = _steps(a, lengths[:-1], axes[:-1], True, norm, None, threads, "ifft")
        return _c2r(a, lengths[-1:], axes[-1:], norm, out, threads, "irfft")
    return _c2r(a, lengths, axes, norm, out, threads, "irfft")


@quick_tensor("rfftn")
def rfftn(a, s=None, axes=None, norm=None, out=None, *, workers=None, overwrite_x=False):
    """The transform of real input over several axes; the last of them is halved, as numpy.fft.rfftn."""
    return _forward_real(a, s, axes, _norm(norm), out, workers)


@exchanged
def irfftn(a, s=None, axes=None, norm=None, out=None, *, workers=None, overwrite_x=False):
    """The inverse of rfftn, as numpy.fft.irfftn."""
    if axes is not None and len(axes) == 0 or axes is None and np.ndim(a) == 0:
        raise ValueError("at least 1 axis must be transformed")
    return _inverse_real(a, s, axes, _norm(norm), out, workers)


@quick_tensor("rfft2")
def rfft2(a, s=None, axes=(-2, -1), norm=None, out=None, *, workers=None, overwrite_x=False):
    """rfftn over two axes, as numpy.fft.rfft2."""
    return rfftn(a, s, axes, norm, out, workers=workers)


@exchanged
def irfft2(a, s=None, axes=(-2, -1), norm=None, out=None, *, workers=None, overwrite_x=False):
    """irfftn over two axes, as numpy.fft.irfft2."""
    return irfftn(a, s, axes, norm, out, workers=workers)


@exchanged
def hfftn(x, s=None, axes=None, norm=None, overwrite_x=False, workers=None):
    """The transform over several axes of an array with Hermitian symmetry, whose last axis is halved: real, as scipy.fft.hfftn."""
    if s is not None and axes is None:
        axes = range(-len(s), 0)
    return _inverse_real(np.conjugate(x), s, axes, _SWAPPED[_norm(norm)], None, workers)


@exchanged
def ihfftn(x, s=None, axes=None, norm=None, overwrite_x=False, workers=None):
    """The inverse of hfftn, as scipy.fft.ihfftn."""
    if s is not None and axes is None:
        axes = range(-len(s), 0)
    made = _forward_real(x, s, axes, _SWAPPED[_norm(norm)], None, workers)
    return np.conjugate(made, out=made)


@exchanged
def hfft2(x, s=None, axes=(-2, -1), norm=None, overwrite_x=False, workers=None):
    """hfftn over two axes, as scipy.fft.hfft2."""
    return hfftn(x, s, axes, norm, overwrite_x, workers)


@exchanged
def ihfft2(x, s=None, axes=(-2, -1), norm=None, overwrite_x=False, workers=None):
    """The inverse of hfft2, as scipy.fft.ihfft2."""
    return ihfftn(x, s, axes, norm, overwrite_x, workers)
