"""Repeated calls on PyTorch's tensors of a device: the plan is found by one look-up, and the extension gets addresses."""

import sys
from collections import OrderedDict

from .._device import taken_from_device
from .._protection import current, enqueue, record
from ._engine import planned

MOST_CALLS = 512
_calls = OrderedDict()
_KINDS = {"fft": ("c2c", False), "ifft": ("c2c", True), "rfft": ("r2c", False), "irfft": ("c2r", True)}


def forget():
    """Frees the plans of all calls."""
    _calls.clear()


def repeated(x, made, kind, axes, norm, inverse):
    """Transforms `x` into `made`, which share no memory, over `axes` (≥ 0, different, at most three). Returns whether it could."""
    device = x.get_device()
    key = (kind, x.dtype, x.shape, x.stride(), made.stride(), axes, norm, inverse, device, current())
    found = _calls.get(key)
    if found is None:
        library = taken_from_device(x).library
        found = _calls[key] = (library, {})
        while len(_calls) > MOST_CALLS:
            _calls.popitem(last=False)
    library, by_stream = found
    stream = library.raw_stream(device)
    plan = by_stream.get(stream)
    if plan is None:
        if any(step < 1 for n, step in zip(x.shape, x.stride()) if n > 1):  # an expanded tensor
            return False
        plan = planned(kind, taken_from_device(x), taken_from_device(made), axes, norm, None)
        if plan is None:
            return False
        by_stream[stream] = plan
    record(enqueue(plan[0], x.data_ptr(), made.data_ptr(), inverse, plan[1], plan[2], stream, library.capturing(x)))
    return True


def usual(name, x):
    """The usual call of the function `name`: the last axis of a tensor of a device, no other argument. None where it is another."""
    kind, inverse = _KINDS[name]
    if not x.is_cuda or not x.dim() or not x.numel() or x.is_conj() or x.is_neg():
        return None
    complex_input = x.is_complex()
    if complex_input == (kind == "r2c"):
        return None
    torch = sys.modules["torch"]
    m, dtype = x.shape[-1], x.dtype
    if kind == "c2c":
        if dtype not in (torch.complex64, torch.complex128):
            return None
        shape = x.shape
    elif kind == "r2c":
        if dtype not in (torch.float32, torch.float64):
            return None
        shape, dtype = (*x.shape[:-1], m // 2 + 1), torch.complex64 if dtype == torch.float32 else torch.complex128
    else:
        if m < 2 or dtype not in (torch.complex64, torch.complex128):
            return None
        shape, dtype = (*x.shape[:-1], 2 * (m - 1)), torch.float32 if dtype == torch.complex64 else torch.float64
    made = torch.empty(shape, dtype=dtype, device=x.device)
    return made if repeated(x.detach() if x.requires_grad else x, made, kind, (x.dim() - 1,), "backward", inverse) else None
