"""The usual call: a contiguous array, its last axis, no other argument. Its plan is found by one look-up."""

import functools
from collections import OrderedDict

import numpy as np

from .._exchange import exchanged
from .._protection import compute, current, execution, record
from . import _repeated
from ._engine import complex_type, plan_of_lines, real_type
from ._repeated import usual

MOST_CALLS = 512
_calls = OrderedDict()
_KINDS = {"fft": ("c2c", False), "ifft": ("c2c", True), "rfft": ("r2c", False), "irfft": ("c2r", True)}


def forget():
    """Frees the plans of all calls."""
    _calls.clear()
    _repeated.forget()


def _prepared(name, a):
    """The plan, the result's shape and type, and whether it is the inverse; None where the general road is to be taken."""
    kind, inverse = _KINDS[name]
    if a.dtype.char not in ("fd" if kind == "r2c" else "FD") or not a.dtype.isnative or not a.size or not a.ndim or not a.flags.c_contiguous:
        return None
    m = a.shape[-1]
    n = 2 * (m - 1) if kind == "c2r" else m
    if n < 1:
        return None
    real = real_type(a)
    ends = n // 2 + 1 if kind == "r2c" else n
    plan = plan_of_lines(kind, real.itemsize == 8, n, a.size // m, m, ends, execution(current()))
    return plan, (*a.shape[:-1], ends), real if kind == "c2r" else complex_type(real), inverse


def quick_tensor(name):
    """Makes a function of several axes take the usual call on a tensor of PyTorch by the short road; arrays of other libraries are taken
    too."""

    def decorate(function):
        general = exchanged(function)

        @functools.wraps(function)
        def call(a, *args, **kwargs):
            if type(a) is np.ndarray or args or kwargs or type(a).__module__ != "torch" or type(a).__name__ != "Tensor":
                return general(a, *args, **kwargs)
            made = usual(name, a)
            return general(a) if made is None else made

        return call

    return decorate


def quick(name):
    """Makes a function of one axis take the usual call by this road, and others as it is; arrays of other libraries are taken too."""

    def decorate(function):
        general = exchanged(function)

        @functools.wraps(function)
        def call(a, *args, **kwargs):
            if args or kwargs:
                return general(a, *args, **kwargs)
            if type(a) is not np.ndarray:
                made = usual(name, a) if type(a).__module__ == "torch" and type(a).__name__ == "Tensor" else None
                return general(a) if made is None else made
            key = (name, a.shape, a.strides, a.dtype, current())
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
            report = compute(plan.run_whole, a, made, inverse)
            if report is None:
                return general(a)
            record(report)
            return made

        return call

    return decorate
