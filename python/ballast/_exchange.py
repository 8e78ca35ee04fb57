"""Arrays of other libraries: taken through DLPack without a copy, and results given back in the library of the input."""

import functools
import importlib
import sys

import numpy as np

from ._errors import UnsupportedError

__all__ = ["exchanged", "given_back", "taken"]

_HOST = (1, 3)  # DLPack's devices: memory of the host, and such memory that is pinned for CUDA


def _library(a):
    return type(a).__module__.partition(".")[0]


def foreign(a):
    """Whether `a` is an array of a library other than NumPy. An object that only hands its attributes on to an array is none."""
    return not isinstance(a, (np.ndarray, np.generic)) and hasattr(type(a), "__dlpack__")


def taken(a):
    """`a` as a NumPy array over the same memory; lists, scalars and NumPy's arrays as they are. Arrays in the memory of a device raise
    UnsupportedError."""
    if not foreign(a):
        return a
    if a.__dlpack_device__()[0] not in _HOST:
        raise UnsupportedError(f"{type(a).__module__}.{type(a).__qualname__}: expected an array in the memory of the host, got one on a device")
    if _library(a) == "torch":  # DLPack does not take these three
        a = a.detach().resolve_conj().resolve_neg()
    return np.from_dlpack(a)


def _from_dlpack(library):
    module = sys.modules[library]
    if library == "jax" or library == "jaxlib":
        return importlib.import_module("jax.dlpack").from_dlpack
    return module.from_dlpack


def given_back(made, like):
    """The NumPy array `made`, or a tuple of arrays and numbers, in the library of `like`."""
    if isinstance(made, tuple):
        each = [given_back(one, like) if isinstance(one, np.ndarray) else one for one in made]
        return type(made)(*each) if hasattr(made, "_fields") else tuple(each)
    if not made.dtype.isnative or any(step < 0 for step in made.strides):
        made = made.copy()
    return _from_dlpack(_library(like))(made)


def exchanged(function):
    """`function`, whose first argument, `out` and right-hand side may be arrays of other libraries."""

    @functools.wraps(function)
    def call(a, *args, **kwargs):
        if type(a) is np.ndarray or not foreign(a):
            return function(a, *args, **kwargs)
        out = kwargs.get("out")
        if out is not None:
            kwargs["out"] = taken(out)
        made = function(taken(a), *map(taken, args), **kwargs)
        return out if out is not None else given_back(made, a)

    return call
