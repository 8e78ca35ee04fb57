"""The Fourier transforms of scipy.fft with its signatures and rules, and a backend for it.

    with scipy.fft.set_backend(ballast.scipy_fft): ...

Calls of scipy.fft's complex, real, Hermitian, cosine and sine transforms are then computed by Ballast. Other calls (fht, long double) are
forwarded to SciPy, not protected; ballast.forwarded() counts them and BALLAST_ON_FALLBACK says what happens: allow, warn (the default) or
error. This module imports scipy.fft only as a backend.
"""

import functools

import numpy as np

from . import fft as _fft
from ._errors import UnsupportedError
from ._forward import forward, protected
from .fft import dct, dctn, dst, dstn, idct, idctn, idst, idstn, next_fast_len, prev_fast_len
from .fft._helper import lengths_and_axes

__ua_domain__ = "numpy.scipy.fft"
_NORMS = (None, "backward", "ortho", "forward")


def _check(norm, plan):
    if norm not in _NORMS:
        raise ValueError(f"Invalid norm value {norm!r}, should be \"backward\", \"ortho\" or \"forward\"")
    if plan is not None:
        raise NotImplementedError("Passing a precomputed plan is not yet supported by scipy.fft functions")


def _one_axis(function):
    @functools.wraps(function)
    def call(x, n=None, axis=-1, norm=None, overwrite_x=False, workers=None, *, plan=None):
        _check(norm, plan)
        return function(x, n, axis, norm, workers=workers, overwrite_x=overwrite_x)

    del call.__wrapped__  # its signature is not that of this function
    call.__module__ = __name__
    return call


def _several_axes(function, default=None, halved=False, real=False):
    @functools.wraps(function)
    def call(x, s=None, axes=default, norm=None, overwrite_x=False, workers=None, *, plan=None):
        _check(norm, plan)
        x = np.asarray(x)
        whole, axes = lengths_and_axes(x, s, axes, halved)
        if not axes:
            if real or halved:
                raise ValueError("at least 1 axis must be transformed")
            return x.astype(np.result_type(x, np.complex64))
        return function(x, whole, axes, norm, workers=workers, overwrite_x=overwrite_x)

    del call.__wrapped__
    call.__module__ = __name__
    return call


fft, ifft, rfft, irfft, hfft, ihfft = map(_one_axis, (_fft.fft, _fft.ifft, _fft.rfft, _fft.irfft, _fft.hfft, _fft.ihfft))
_TWO = (-2, -1)
fftn, ifftn = map(_several_axes, (_fft.fftn, _fft.ifftn))
fft2, ifft2 = (_several_axes(function, _TWO) for function in (_fft.fft2, _fft.ifft2))
rfftn, ihfftn = (_several_axes(function, None, real=True) for function in (_fft.rfftn, _fft.ihfftn))
rfft2, ihfft2 = (_several_axes(function, _TWO, real=True) for function in (_fft.rfft2, _fft.ihfft2))
irfftn, hfftn = (_several_axes(function, None, halved=True) for function in (_fft.irfftn, _fft.hfftn))
irfft2, hfft2 = (_several_axes(function, _TWO, halved=True) for function in (_fft.irfft2, _fft.hfft2))

__all__ = ["dct", "dctn", "dst", "dstn", "fft", "fft2", "fftn", "hfft", "hfft2", "hfftn", "idct", "idctn", "idst", "idstn", "ifft", "ifft2",
           "ifftn", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "next_fast_len", "prev_fast_len", "rfft", "rfft2", "rfftn"]
_TRANSFORMS = frozenset(__all__) - {"next_fast_len", "prev_fast_len"}


def __ua_function__(method, args, kwargs):
    """scipy.fft calls this for each of its functions."""
    import scipy.fft

    name = method.__name__

    def forwarded(why):
        forward(f"scipy.fft.{name}", why)
        with scipy.fft.set_backend("scipy"):
            return method(*args, **kwargs)

    if name not in _TRANSFORMS:
        return forwarded("Ballast has no such transform")
    try:
        made = globals()[name](*args, **kwargs)
    except UnsupportedError as why:
        return forwarded(str(why))
    protected()
    return made
