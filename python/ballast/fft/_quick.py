"""The usual call: a contiguous array, its last axes, no other argument. Its plan is found by one look-up."""

import functools
from collections import OrderedDict

import numpy as np

from .. import _core
from .._exchange import exchanged
from .._protection import call as called, conclude, current, record
from . import _repeated
from ._engine import MOST_AXES, complex_type, planned, real_type
from ._repeated import USUAL, usual

MOST_CALLS = 512
_calls = OrderedDict()
_of_numpy = []  # the extension's tables of usual calls, one for each function


def forget():
    """Frees the plans of all calls."""
    _calls.clear()
    for each in _of_numpy:
        each.clear()
    _repeated.forget()


def _prepared(name, a):
    """The plan, the result's shape and type, and whether it is the inverse; None where the general road is to be taken."""
    kind, inverse, count = USUAL[name]
    count = a.ndim if count is None else count
    if a.dtype.char not in ("fd" if kind == "r2c" else "FD") or not a.dtype.isnative or not a.size or not a.flags.c_contiguous:
        return None
    if not 0 < count <= min(a.ndim, MOST_AXES):
        return None
    m = a.shape[-1]
    ends = {"c2c": m, "r2c": m // 2 + 1, "c2r": 2 * (m - 1)}[kind]
    if ends < 1:
        return None
    real = real_type(a)
    shape, dtype = (*a.shape[:-1], ends), real if kind == "c2r" else complex_type(real)
    # All axes before the transformed ones are one loop.
    found = planned(kind, a, np.empty(shape, dtype), tuple(range(a.ndim - count, a.ndim)), "backward", None)
    return found[0], shape, dtype, inverse


def quick(name):
    """Makes a function take the usual call by this road, and others as it is; arrays of other libraries are taken too."""

    def decorate(function):
        general = exchanged(function)
        known = _core.NumpyCalls()
        _of_numpy.append(known)

        @functools.wraps(function)
        def call(a, *args, **kwargs):
            if args or kwargs:
                return general(a, *args, **kwargs)
            if type(a) is not np.ndarray:
                made = usual(name, a) if type(a).__module__ == "torch" and type(a).__name__ == "Tensor" else None
                return general(a) if made is None else made
            settings = current()
            made = called(known.run, a, settings)
            if made is not None:
                return conclude(made)
            key = (name, a.shape, a.strides, a.dtype, settings)
            found = _calls.get(key)
            if found is None:
                found = _prepared(name, a)
                if found is None:
                    return general(a)
                _calls[key] = found
                while len(_calls) > MOST_CALLS:
                    _calls.popitem(last=False)
            plan, shape, dtype, inverse = found
            made = np.empty(shape, dtype)
            report = called(plan.run_whole, a, made, inverse)
            if report is None:
                return general(a)
            record(report)
            known.keep(a, made, settings, plan, inverse)
            return made

        return call

    return decorate
