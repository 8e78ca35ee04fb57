"""Calls on PyTorch's tensors: a repeated call finds its plan and the layout of its result by one look-up, and the extension gets
addresses."""

import sys
from collections import OrderedDict

from .._device import taken_from_device
from .._protection import call as called, current, enqueue, record
from ._engine import MOST_AXES, planned

MOST_CALLS = 512
_calls = OrderedDict()
LAST = tuple(tuple(range(-count, 0)) for count in range(MOST_AXES + 1))
# Kind, inverse, and the number of last axes; None: all.
USUAL = {"fft": ("c2c", False, 1), "ifft": ("c2c", True, 1), "rfft": ("r2c", False, 1), "irfft": ("c2r", True, 1),
          "fft2": ("c2c", False, 2), "ifft2": ("c2c", True, 2), "rfft2": ("r2c", False, 2),
          "fftn": ("c2c", False, None), "ifftn": ("c2c", True, None), "rfftn": ("r2c", False, None)}


def forget():
    """Frees the plans of all calls."""
    _calls.clear()


class _Call:
    """What calls of one key share: whether the result has the operand's shape, type and strides, its shape and type, the axes ≥ 0, and a
    plan for each stream; on the host for stream 0."""

    __slots__ = ("alike", "axes", "dtype", "library", "plans", "shape")

    def __init__(self, alike, shape, dtype, axes, library):
        self.alike, self.shape, self.dtype, self.axes, self.library, self.plans = alike, shape, dtype, axes, library, {}


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
    library = taken_from_device(x).library if x.is_cuda else None
    return _Call(kind == "c2c" and x.is_contiguous(), shape, dtype, tuple(axis + x.dim() for axis in axes), library)


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
    made = torch.empty_like(x) if call.alike else torch.empty(call.shape, dtype=call.dtype, device=x.device)
    stream = call.library.raw_stream(x.get_device()) if call.library is not None else 0
    found = call.plans.get(stream)
    if found is None:
        found = _planned(kind, x, made, call, norm)
        if found is None:
            _calls[key] = None
            return None
        call.plans[stream] = found
    plan, places_in, places_out = found
    if call.library is not None:
        record(enqueue(plan, x.data_ptr(), made.data_ptr(), inverse, places_in, places_out, stream, call.library.capturing(x)))
        return made
    report = called(plan.run_at, x.data_ptr(), made.data_ptr(), inverse, places_in, places_out)
    if report is None:
        return None
    record(report)
    return made


def _planned(kind, x, made, call, norm):
    if call.library is not None:
        return planned(kind, taken_from_device(x), taken_from_device(made), call.axes, norm, None)
    return planned(kind, x.numpy(), made.numpy(), call.axes, norm, None)


def usual(name, x):
    """The usual call of the function `name`: the last axes of a tensor, no other argument. None where it is another."""
    kind, inverse, count = USUAL[name]
    count = x.dim() if count is None else count
    return transformed(kind, x, LAST[count], "backward", inverse) if count <= MOST_AXES else None
