"""torch.fft's transforms and torch.linalg.qr with PyTorch's signatures, for install(). What Ballast cannot take raises UnsupportedError."""

import functools

import torch

from . import torch as _mine
from ._errors import UnsupportedError

_TYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
FFT = tuple(name for name in _mine.__all__ if name not in ("QRResult", "qr"))


def _check(given, types, out):
    if out is not None:
        raise UnsupportedError("out is given")
    if not isinstance(given, torch.Tensor) or given.layout != torch.strided or given.device.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"expected a dense tensor of the CPU or of a CUDA device, got {type(given).__name__}")
    if given.dtype not in types:
        raise UnsupportedError(f"tensors of {given.dtype}")


def _transform(function):
    @functools.wraps(function)
    def call(input, *args, out=None, **kwargs):
        _check(input, _TYPES, out)
        return function(input, *args, **kwargs)

    return call


def qr(A, mode="reduced", *, out=None):
    """torch.linalg.qr in mode "reduced"; of complex matrices on the CPU."""
    _check(A, _TYPES, out)
    if mode != "reduced":
        raise UnsupportedError(f'mode "{mode}"')
    return torch.return_types.linalg_qr(_mine.qr(A))


globals().update({name: _transform(getattr(_mine, name)) for name in FFT})
