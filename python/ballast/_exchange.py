"""Arrays of other libraries: taken through DLPack without a copy, and results given back in the library of the input."""

import functools
import importlib
import sys

import numpy as np

from ._device import DeviceArray, on_device, taken_from_device

__all__ = ["exchanged", "given_back", "taken"]


def _library(a):
    return type(a).__module__.partition(".")[0]


def foreign(a):
    """Whether `a` is an array of a library other than NumPy. An object that only hands its attributes on to an array is none."""
    kind = type(a)
    return not isinstance(a, (np.ndarray, np.generic)) and (hasattr(kind, "__dlpack__") or hasattr(kind, "__cuda_array_interface__"))


def taken(a, bfloat16=False):
    """`a` as a NumPy array over the same memory, or as a DeviceArray; lists, scalars and NumPy's arrays as they are. `bfloat16`: see
    taken_from_device."""
    if not foreign(a):
        return a
    if on_device(a):
        return taken_from_device(a, bfloat16) if bfloat16 else taken_from_device(a)
    if _library(a) == "torch":  # DLPack does not take these three
        a = a.detach().resolve_conj().resolve_neg()
    return np.from_dlpack(a)


def _from_dlpack(library):
    module = sys.modules[library]
    if library == "jax" or library == "jaxlib":
        return importlib.import_module("jax.dlpack").from_dlpack
    return module.from_dlpack


def given_back(made, like):
    """`made`, a NumPy array, a DeviceArray or a tuple of these and numbers, in the library of `like`. Integers that a call on a device made on
    the host, such as a permutation of columns, stay arrays of NumPy: not every library takes those to its device."""
    if isinstance(made, tuple):
        stays = lambda one: on_device(like) and isinstance(one, np.ndarray) and one.dtype.kind == "i"
        each = [given_back(one, like) if isinstance(one, (np.ndarray, DeviceArray)) and not stays(one) else one for one in made]
        return type(made)(*each) if hasattr(made, "_fields") else tuple(each)
    if isinstance(made, DeviceArray):
        if _library(like) == _library(made.native) or not hasattr(type(like), "__dlpack__"):
            return made.native
        return _from_dlpack(_library(like))(made.native)
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
