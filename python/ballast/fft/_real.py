"""The cosine and sine transforms of scipy.fft, types 1 to 4."""

import math

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from .._device import DeviceArray, as_array
from .._exchange import exchanged
from .._protection import current, record
from .._report import compared
from ._engine import MOST_AXES, complex_type, real_type, resized, run, threads_of, usable
from ._helper import lengths_and_axes

_NORMS = {None: "backward", "backward": "backward", "ortho": "ortho", "forward": "forward"}
_OPPOSITE = {1: 1, 2: 3, 3: 2, 4: 4}
_MOST_ATTEMPTS = 3


def _times(values, factor):
    return values * factor


def _edges(family, kind):
    """The places along an axis that `orthogonalize` multiplies by √2 before a transform of type `kind`, and by 1/√2 after it."""
    if family == "dct":
        return {1: ((0, -1), (0, -1)), 2: ((), (0,)), 3: ((0,), ())}.get(kind, ((), ()))
    return {2: ((), (-1,)), 3: ((-1,), ())}.get(kind, ((), ()))


class _Findings:
    """What the comparisons of multiplied edges saw."""

    def __init__(self):
        self.level = current().protection
        self.checks, self.events, self.reports = 0, [], []

    def scale(self, a, axes, places, factor):
        """Multiplies these places along each axis, in `a`."""
        for axis in axes:
            for place in places:
                edge = (*(slice(None),) * axis, slice(place, place + 1 or None))
                if isinstance(a, DeviceArray):
                    a.multiply(edge, factor)
                elif self.level == "off":
                    a[edge] = _times(a[edge], factor)
                else:
                    self._scale_checked(a, edge, factor)

    def _scale_checked(self, a, edge, factor):
        """Two products of two readings must have the same bits, and so must what is stored."""
        seen, attempts = -1, 1 if self.level == "detect" else _MOST_ATTEMPTS
        for _ in range(attempts):
            one, other = _times(a[edge], factor), _times(a[edge], factor)
            wrong = self._compare(one, other)
            if seen >= 0:
                self.events.append(compared("fft.edges", seen, "recomputed"))
            seen = wrong
            if wrong < 0:
                break
        for product in (one, other)[:attempts] if seen < 0 else ():
            a[edge] = product
            wrong = self._compare(a[edge], other if product is one else one)
            if seen >= 0:
                self.events.append(compared("fft.edges", seen, "recomputed"))
            seen = wrong
            if wrong < 0:
                break
        if seen >= 0:
            self.events.append(compared("fft.edges", seen, "uncorrectable"))

    def _compare(self, one, other):
        """The number of the first element with other bits, -1 where there is none."""
        self.checks += 1
        word = f"u{one.itemsize}"
        wrong = np.flatnonzero(np.ascontiguousarray(one).view(word) != np.ascontiguousarray(other).view(word))
        return int(wrong[0]) if len(wrong) else -1

    def record(self):
        if self.reports:
            record(*self.reports, checks=self.checks, events=tuple(self.events))


def _over(src, dst, family, kind, axes, inverse, norm, threads, orthogonal, findings):
    """The real `src` into `dst`; `src` is changed where its edges are multiplied, so that it is a copy there."""
    before, after = _edges(family, _OPPOSITE[kind] if inverse else kind) if orthogonal else ((), ())
    if before:
        src = src.copy()
        findings.scale(src, axes, before, math.sqrt(2))
    rest = axes
    while rest:
        group, rest = rest[-MOST_AXES:], rest[:-MOST_AXES]
        findings.reports.append(run(f"{family}{kind}", src, dst, group, inverse, norm, threads))
        src = dst
    findings.scale(dst, axes, after, math.sqrt(0.5))


def _transformed(a, family, kind, lengths, axes, norm, workers, orthogonalize, inverse):
    if kind not in _OPPOSITE:
        raise ValueError(f"type: expected 1, 2, 3 or 4, got {kind!r}")
    if norm not in _NORMS:
        raise ValueError(f'Invalid norm value {norm!r}, should be "backward", "ortho" or "forward"')
    if kind == 1 and family == "dct" and min(lengths) < 2:
        raise ValueError("DCT-I is not defined for size < 2")
    real, threads = real_type(a), threads_of(workers)
    orthogonal = norm == "ortho" if orthogonalize is None else bool(orthogonalize)
    paired = a.dtype.kind == "c"
    dtype = complex_type(real) if paired else real
    src = usable(resized(a, axes, lengths), dtype)
    made = np.empty_like(src, shape=src.shape, dtype=dtype, subok=False)
    if made.size:
        findings = _Findings()
        # Both parts of complex numbers are transformed, each by itself.
        for of_src, of_made in ((src.real, made.real), (src.imag, made.imag)) if paired else ((src, made),):
            _over(of_src, of_made, family, kind, axes, inverse, _NORMS[norm], threads, orthogonal, findings)
        findings.record()
    return made


def _one(family, inverse, text):
    def call(x, type=2, n=None, axis=-1, norm=None, overwrite_x=False, workers=None, orthogonalize=None):
        x = as_array(x)
        axis = normalize_axis_index(axis, x.ndim)
        length = x.shape[axis] if n is None else n
        if length < 1:
            raise ValueError(f"invalid number of data points ({length}) specified")
        return _transformed(x, family, type, (length,), (axis,), norm, workers, orthogonalize, inverse)

    return _named(call, f"i{family}" if inverse else family, text)


def _several(family, inverse, text):
    def call(x, type=2, s=None, axes=None, norm=None, overwrite_x=False, workers=None, *, orthogonalize=None):
        x = as_array(x)
        lengths, axes = lengths_and_axes(x, s, axes)
        if not axes:
            return x
        return _transformed(x, family, type, lengths, tuple(axes), norm, workers, orthogonalize, inverse)

    return _named(call, f"i{family}n" if inverse else f"{family}n", text)


def _named(call, name, text):
    call.__name__ = call.__qualname__ = name
    call.__module__ = "ballast.fft"
    call.__doc__ = f"""{text}, as scipy.fft.{name}.

    type: 1, 2, 3 or 4. norm: "backward" (the default; the inverse divides), "ortho" or "forward". orthogonalize: multiplies the first or
    last number of an axis by √2 or 1/√2 so that the matrix of the transform with norm="ortho" is orthogonal; the default is norm == "ortho".
    The real and the imaginary parts of complex input are transformed. overwrite_x is accepted and changes nothing. The multiplications of
    orthogonalize are computed twice and compared on the host (site "fft.edges"); on a device they are not protected.
    """
    return exchanged(call)


dct = _one("dct", False, "The discrete cosine transform along one axis")
idct = _one("dct", True, "The inverse of dct along one axis")
dst = _one("dst", False, "The discrete sine transform along one axis")
idst = _one("dst", True, "The inverse of dst along one axis")
dctn = _several("dct", False, "The discrete cosine transform over several axes")
idctn = _several("dct", True, "The inverse of dctn")
dstn = _several("dst", False, "The discrete sine transform over several axes")
idstn = _several("dst", True, "The inverse of dstn")
