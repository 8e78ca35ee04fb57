"""Calls on PyTorch's tensors: a repeated call finds its plan and the layout of its result by one look-up. On a device the extension gets
addresses, on the host NumPy's views."""

import sys
from collections import OrderedDict

from .._device import taken_from_device
from .._protection import compute, current, enqueue, record
from ._engine import MOST_AXES, planned

MOST_CALLS = 512
_calls = OrderedDict()
_LAST = tuple(tuple(range(-count, 0)) for count in range(MOST_AXES + 1))
# Kind, inverse, and the number of last axes; None: all.
_USUAL = {"fft": ("c2c", False, 1), "ifft": ("c2c", True, 1), "rfft": ("r2c", False, 1), "irfft": ("c2r", True, 1),
          "fft2": ("c2c", False, 2), "ifft2": ("c2c", True, 2), "rfft2": ("r2c", False, 2),
          "fftn": ("c2c", False, None), "ifftn": ("c2c", True, None), "rfftn": ("r2c", False, None)}


def forget():
    """Frees the plans of all calls."""
    _calls.clear()


class _Call:
    """What calls of one key share: the result's shape and type, the axes ≥ 0, and a plan for each stream; on the host for stream 0."""

    __slots__ = ("axes", "dtype", "library", "plans", "shape")

    def __init__(self, shape, dtype, axes, library):
        self.shape, self.dtype, self.axes, self.library, self.plans = shape, dtype, axes, library, {}


def _types(kind, torch):
    """Of each type of tensor that `kind` takes: the result's."""
    pairs = ((torch.float32, torch.complex64), (torch.float64, torch.complex128))
    if kind == "c2c":
        return {wide: wide for _, wide in pairs}
    return dict(pairs) if kind == "r2c" else {wide: narrow for narrow, wide in pairs}


def _prepared(kind, x, axes, n):
    """None where the general road is to be taken."""
    dtype = _types(kind, sys.modules["torch"]).get(x.dtype)
    if dtype is None or not (x.is_cuda or x.is_cpu) or not x.numel() or not 0 < len(set(axes)) == len(axes) <= MOST_AXES:
        return None
    if not -x.dim() <= min(axes) <= max(axes) < 0:
        return None
    if any(step < 1 for m, step in zip(x.shape, x.stride()) if m > 1):  # an expanded tensor
        return None
    shape, last = list(x.shape), axes[-1]
    if kind == "r2c":
        shape[last] = shape[last] // 2 + 1
    elif kind == "c2r":
        shape[last] = 2 * (shape[last] - 1) if n is None else n
        if shape[last] < 1 or x.shape[last] != shape[last] // 2 + 1:
            return None
    return _Call(shape, dtype, tuple(axis + x.dim() for axis in axes), taken_from_device(x).library if x.is_cuda else None)


def transformed(kind, x, axes, norm, inverse, n=None):
    """The transform of `x` over `axes` (counted from the end), in a new tensor. c2r: one axis, n numbers, by default 2(m − 1). None where
    the call is to take the general road."""
    torch = sys.modules["torch"]
    if x.layout is not torch.strided or x.is_conj() or x.is_neg():
        return None
    key = (kind, x.dtype, x.shape, x.stride(), axes, norm, inverse, n, x.device, current())
    call = _calls.get(key, key)
    if call is key:
        call = _calls[key] = _prepared(kind, x, axes, n)
        while len(_calls) > MOST_CALLS:
            _calls.popitem(last=False)
    if call is None:
        return None
    if x.requires_grad:
        x = x.detach()
    made = torch.empty(call.shape, dtype=call.dtype, device=x.device)
    on_device = call.library is not None
    stream = call.library.raw_stream(x.get_device()) if on_device else 0
    given = (x, made) if on_device else (x.numpy(), made.numpy())
    plan = call.plans.get(stream)
    if plan is None:
        plan = planned(kind, *(map(taken_from_device, given) if on_device else given), call.axes, norm, None)
        if plan is None:
            _calls[key] = None
            return None
        call.plans[stream] = plan
    if on_device:
        record(enqueue(plan[0], x.data_ptr(), made.data_ptr(), inverse, plan[1], plan[2], stream, call.library.capturing(x)))
    else:
        record(compute(plan[0].run, *given, inverse, plan[1], plan[2]))
    return made


def usual(name, x):
    """The usual call of the function `name`: the last axes of a tensor, no other argument. None where it is another."""
    kind, inverse, count = _USUAL[name]
    count = x.dim() if count is None else count
    return transformed(kind, x, _LAST[count], "backward", inverse) if count <= MOST_AXES else None
