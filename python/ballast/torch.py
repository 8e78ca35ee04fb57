"""torch.fft's functions and torch.linalg.qr as operators that PyTorch knows: autograd in both modes, torch.func, torch.compile. Tensors of
the CPU and of CUDA devices, there on the current stream.

fft, ifft, rfft, irfft, fft2, ifft2, rfft2, irfft2, fftn, ifftn, rfftn and irfftn have torch.fft's arguments; qr has torch.linalg.qr's mode
"reduced". float32 and float64 and their complex types; complex matrices on the CPU alone. Results are contiguous. The library's settings
and reports are those of the rest of the package: ballast.protection, ballast.last_report().
"""

from typing import NamedTuple

import torch
import torch.autograd.forward_ad as _forward_mode
from torch import Tensor

from . import fft as _fft
from . import linalg as _linalg
from .fft._repeated import transformed

__all__ = ["QRResult", "fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "irfft", "irfft2", "irfftn", "qr", "rfft", "rfft2", "rfftn"]

# Scaling, as PyTorch's own operators take it: by 1, by 1/√n, by 1/n.
_NONE, _ROOT, _WHOLE = 0, 1, 2
_FORWARD = {None: _NONE, "backward": _NONE, "ortho": _ROOT, "forward": _WHOLE}
_INVERSE = {None: _WHOLE, "backward": _WHOLE, "ortho": _ROOT, "forward": _NONE}
_FULL = (torch.float32, torch.float64, torch.complex64, torch.complex128)
_FORWARD_NAME = ("backward", "ortho", "forward")
_INVERSE_NAME = ("forward", "ortho", "backward")


def _complex(dtype):
    return torch.complex64 if dtype in (torch.float32, torch.complex64) else torch.complex128


def _real(dtype):
    return torch.float32 if dtype in (torch.float32, torch.complex64) else torch.float64


# ---- Operators. `dim` counts from the end, so that a batch axis in front changes nothing.

torch.library.define("ballast::fft_c2c", "(Tensor x, int[] dim, int scaling, bool forward) -> Tensor")
torch.library.define("ballast::fft_r2c", "(Tensor x, int dim, int scaling) -> Tensor")
torch.library.define("ballast::fft_c2r", "(Tensor x, int dim, int scaling, SymInt n) -> Tensor")
torch.library.define("ballast::qr", "(Tensor a) -> (Tensor, Tensor)")


@torch.library.register_fake("ballast::fft_c2c")
def _c2c_like(x, dim, scaling, forward):
    return x.new_empty(x.shape)


def _c2c(x, dim, scaling, forward):
    norm = (_FORWARD_NAME if forward else _INVERSE_NAME)[scaling]
    made = transformed("c2c", x, tuple(dim), norm, not forward)
    if made is None:
        made = (_fft.fftn if forward else _fft.ifftn)(x, axes=tuple(dim), norm=norm, out=x.new_empty(x.shape))
    return made


@torch.library.register_fake("ballast::fft_r2c")
def _r2c_like(x, dim, scaling):
    shape = list(x.shape)
    shape[dim] = shape[dim] // 2 + 1
    return x.new_empty(shape, dtype=_complex(x.dtype))


def _r2c(x, dim, scaling):
    made = transformed("r2c", x, (dim,), _FORWARD_NAME[scaling], False)
    if made is None:
        made = _fft.rfft(x, axis=dim, norm=_FORWARD_NAME[scaling], out=_r2c_like(x, dim, scaling))
    return made


@torch.library.register_fake("ballast::fft_c2r")
def _c2r_like(x, dim, scaling, n):
    shape = list(x.shape)
    shape[dim] = n
    return x.new_empty(shape, dtype=_real(x.dtype))


def _c2r(x, dim, scaling, n):
    made = transformed("c2r", x, (dim,), _INVERSE_NAME[scaling], True, n)
    if made is None:
        made = _fft.irfft(x, n, axis=dim, norm=_INVERSE_NAME[scaling], out=_c2r_like(x, dim, scaling, n))
    return made


@torch.library.register_fake("ballast::qr")
def _qr_like(a):
    *stack, m, n = a.shape
    k = min(m, n)
    return a.new_empty((*stack, m, k)), a.new_empty((*stack, k, n))


def _qr(a):
    return tuple(each.contiguous() for each in _linalg.qr(a))


for _name, _kernel in (("fft_c2c", _c2c), ("fft_r2c", _r2c), ("fft_c2r", _c2r), ("qr", _qr)):
    torch.library.impl(f"ballast::{_name}", ("CPU", "CUDA"), _kernel)


# ---- Gradients

_ops = torch.ops.ballast
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transform = torch._C._functorch.peek_interpreter_stack


def _keep(names):
    def setup(ctx, inputs, output):
        for name, value in zip(names, inputs[1:]):
            setattr(ctx, name, value)
        ctx.length = inputs[0].shape[inputs[1]] if isinstance(inputs[1], int) else 0

    return setup


def _c2c_gradient(ctx, gradient):
    return _linear(_ops.fft_c2c, gradient, ctx.dim, ctx.scaling, not ctx.forward), None, None, None


def _r2c_gradient(ctx, gradient):
    # The adjoint of "transform, then keep the first half": pad with zeros, transform by the conjugate, take the real part.
    short = ctx.length - gradient.shape[ctx.dim]
    padding = [0, 0] * (-ctx.dim - 1) + [0, short]
    whole = torch.nn.functional.pad(gradient, padding)
    return _linear(_ops.fft_c2c, whole, [ctx.dim], ctx.scaling, False).real, None, None


def _c2r_gradient(ctx, gradient):
    made = _linear(_ops.fft_r2c, gradient, ctx.dim, ctx.scaling)
    # Each number but the first, and the last of an even length, stands for itself and for its conjugate.
    twice = gradient.shape[ctx.dim] - made.shape[ctx.dim]
    weights = torch.ones(made.shape[ctx.dim], dtype=_real(made.dtype), device=made.device)
    weights[1:1 + twice] = 2
    made = made * weights.reshape(-1, *[1] * (-ctx.dim - 1))
    short = ctx.length - made.shape[ctx.dim]
    if short:  # numbers beyond n/2 + 1 were not read
        made = torch.nn.functional.pad(made, [0, 0] * (-ctx.dim - 1) + [0, short])
    return made, None, None, None


_GRADIENTS = {_ops.fft_c2c: (_c2c_gradient, _keep(("dim", "scaling", "forward"))), _ops.fft_r2c: (_r2c_gradient, _keep(("dim", "scaling"))),
              _ops.fft_c2r: (_c2r_gradient, _keep(("dim", "scaling", "n")))}
for _op, (_gradient, _setup) in _GRADIENTS.items():
    torch.library.register_autograd(f"ballast::{_op.__name__}", _gradient, setup_context=_setup)


class _Linear(torch.autograd.Function):
    """A transform with derivatives in both modes."""

    @staticmethod
    def forward(x, op, *rest):
        return op(x, *rest)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.op, *ctx.rest = inputs
        _GRADIENTS[ctx.op][1](ctx, (x, *ctx.rest), output)

    @staticmethod
    def backward(ctx, gradient):
        made, *none = _GRADIENTS[ctx.op][0](ctx, gradient)
        return made, None, *none

    @staticmethod
    def jvp(ctx, tangent, *_):
        return _linear(ctx.op, tangent, *ctx.rest)

    @staticmethod
    def vmap(info, in_dims, x, op, *rest):
        return _linear(op, x.movedim(in_dims[0], 0), *rest), 0


class _Eager(torch.autograd.Function):
    """A transform with its gradient for calls that _eager() takes. PyTorch's registered gradients cost several times as much."""

    @staticmethod
    def forward(ctx, x, op, *rest):
        ctx.op = op
        _GRADIENTS[op][1](ctx, (x, *rest), None)
        return _KERNELS[op](x, *rest)

    backward = staticmethod(_Linear.backward)


_KERNELS = {_ops.fft_c2c: _c2c, _ops.fft_r2c: _r2c, _ops.fft_c2r: _c2r}


def _further_modes():
    """Whether forward mode or torch.func asks for derivatives, which registered gradients do not give: the tangent would be lost."""
    return not torch.compiler.is_compiling() and (_forward_mode._current_level >= 0 or _transform() is not None)


def _eager(x):
    """Whether the dispatcher has nothing to add but the gradient of reverse mode: no forward mode, no vmap, no mode that records calls, no
    tracing. Compilation sees the operators."""
    return (not torch.compiler.is_compiling() and type(x) is Tensor and (x.is_cpu or x.is_cuda) and not _dispatch_modes()
            and not _function_modes() and _transform() is None and _forward_mode._current_level < 0 and not torch._C._is_tracing())


def _wants_gradient(x):
    return x.requires_grad and torch.is_grad_enabled()


def _linear(op, x, *rest):
    if _eager(x):
        return _Eager.apply(x, op, *rest) if _wants_gradient(x) else _KERNELS[op](x, *rest)
    return _Linear.apply(x, op, *rest) if _further_modes() else op(x, *rest)


def _with_short_way(op):
    """Makes a call of the registered operator that _eager() takes leave the dispatcher at its first kernel, that of autograd. Other calls go
    on to the kernel that register_autograd has made, which is made again here: a key of one device has its own."""
    gradient, setup = _GRADIENTS[op]
    kernel = _KERNELS[op]
    registered = _autograd.make_autograd_impl(op.default, _autograd.Info(gradient, setup))

    def call(keys, x, *rest):
        if not _eager(x):
            return registered(keys, x, *rest)
        return _Eager.apply(x, op, *rest) if _wants_gradient(x) else kernel(x, *rest)

    for key in ("AutogradCPU", "AutogradCUDA"):
        _library.impl(op.__name__, call, key, with_keyset=True)


try:  # not in PyTorch's documentation: where it is missing, operators take the longer way
    import torch._library.autograd as _autograd
except ImportError:
    _autograd = None
if hasattr(_autograd, "make_autograd_impl") and hasattr(_autograd, "Info"):
    _library = torch.library.Library("ballast", "FRAGMENT")
    for _op in _GRADIENTS:
        _with_short_way(_op)


def _keep_factors(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], *output)


def _qr_gradient(ctx, of_q, of_r):
    """Source: S. F. Walter and L. Lehmann, Algorithmic differentiation of linear algebra functions, 2010, section 3.1. With more columns than
    rows A = Q [R1 R2], where R2 = QᴴA2 adds A2 gᴴ to the gradient of Q. ᴴ is the conjugate transpose; the diagonal of R is real, so
    that only the real part of the diagonal of dR R⁻¹ is free."""
    a, q, r = ctx.saved_tensors
    k = q.shape[-1]
    further = a[..., k:]
    of_further = of_r[..., k:]
    if further.shape[-1]:
        of_q = of_q + further @ of_further.mH
    r, of_r = r[..., :k], of_r[..., :k]
    m = (of_r @ r.mH - q.mH @ of_q).triu()
    m = m + m.mH - torch.diag_embed(m.diagonal(dim1=-2, dim2=-1).real)
    of_a = torch.linalg.solve_triangular(r.mH, of_q + q @ m, upper=False, left=False)
    return torch.cat([of_a, q @ of_further], dim=-1) if further.shape[-1] else of_a


torch.library.register_autograd("ballast::qr", _qr_gradient, setup_context=_keep_factors)


class _Factors(torch.autograd.Function):
    """Reduced QR with derivatives in both modes."""

    @staticmethod
    def forward(a):
        return _ops.qr(a)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], *output)
        ctx.save_for_forward(inputs[0], *output)

    backward = staticmethod(_qr_gradient)

    @staticmethod
    def jvp(ctx, tangent):
        """From QᴴQ = I and A = QR: dQ = (dA R⁻¹ − Q C) + Q Ω and dR = (C − Ω) R, where C = Qᴴ dA R⁻¹ and Ω is skew-Hermitian with C's part
        below the diagonal and the imaginary part of C's diagonal, since R's is real. With more columns than rows this holds for the first
        columns A1, and R2 = Qᴴ A2."""
        a, q, r = ctx.saved_tensors
        k = q.shape[-1]
        x = torch.linalg.solve_triangular(r[..., :k], tangent[..., :k], upper=True, left=False)
        c = q.mH @ x
        below = c.tril(-1)
        c = c - below + below.mH
        if c.is_complex():
            c = c - 1j * torch.diag_embed(c.diagonal(dim1=-2, dim2=-1).imag)
        of_q, of_r = x - q @ c, c @ r[..., :k]
        if r.shape[-1] > k:
            of_r = torch.cat([of_r, of_q.mH @ a[..., k:] + q.mH @ tangent[..., k:]], dim=-1)
        return of_q, of_r

    @staticmethod
    def vmap(info, in_dims, a):
        return _factors(a.movedim(in_dims[0], 0)), (0, 0)


def _factors(a):
    return _Factors.apply(a) if _further_modes() else _ops.qr(a)


def _batched(op):
    def over(info, in_dims, x, *rest):
        made = op(x.movedim(in_dims[0], 0), *rest)
        return made, tuple(0 for _ in made) if isinstance(made, tuple) else 0

    return over


for _name in ("fft_c2c", "fft_r2c", "fft_c2r", "qr"):
    torch.library.register_vmap(f"ballast::{_name}", _batched(getattr(_ops, _name)))


# ---- torch.fft's functions

def _dims(x, dim):
    """Axes counted from the end."""
    count = x.ndim
    for d in dim:
        if not -count <= d < count:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-count}, {count - 1}], but got {d})")
    return [d - count if d >= 0 else d for d in dim]


def _resized(x, n, dim):
    have = x.shape[dim]
    if n is None or n == have:
        return x
    return x.narrow(dim, 0, n) if n < have else torch.nn.functional.pad(x, [0, 0] * (-dim - 1) + [0, n - have])


def _float(x):
    return x if x.dtype.is_floating_point or x.dtype.is_complex else x.to(torch.get_default_dtype())


def _scaling(norm, of):
    if norm not in of:
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    return of[norm]


def _straight(kind, x, lengths, dim, norm, inverse):
    """The transform of a tensor from which nothing but values and the gradient of reverse mode is wanted, where nothing is to be prepared;
    else None."""
    if lengths is not None or norm not in _FORWARD or not _eager(x):
        return None
    if type(dim) is int:
        dim = (dim if dim < 0 else dim - x.dim(),)
    if type(dim) is not tuple:
        return None
    if not _wants_gradient(x):
        return transformed(kind, x, dim, norm or "backward", inverse)
    if len(dim) > 1 or not -x.dim() <= dim[0] < 0 or x.is_complex() == (kind == "r2c") or x.dtype not in _FULL:
        return None
    scaling = (_INVERSE if inverse else _FORWARD)[norm]
    if kind == "c2c":
        return _Eager.apply(x, _ops.fft_c2c, dim, scaling, not inverse)
    if kind == "r2c":
        return _Eager.apply(x, _ops.fft_r2c, dim[0], scaling)
    n = 2 * (x.shape[dim[0]] - 1)
    return _Eager.apply(x, _ops.fft_c2r, dim[0], scaling, n) if n else None


def _over(x, s, dim, norm, table, forward):
    x = _float(x)
    if dim is None:
        dim = range(-(len(s) if s is not None else x.ndim), 0)
    dim = _dims(x, dim)
    if s is not None:
        for n, d in zip(s, dim):
            x = _resized(x, None if n == -1 else n, d)
    return _linear(_ops.fft_c2c, x.to(_complex(x.dtype)), dim, _scaling(norm, table), forward)


def fft(input: Tensor, n=None, dim=-1, norm=None) -> Tensor:
    """torch.fft.fft."""
    made = _straight("c2c", input, n, dim, norm, False)
    return _over(input, None if n is None else [n], [dim], norm, _FORWARD, True) if made is None else made


def ifft(input: Tensor, n=None, dim=-1, norm=None) -> Tensor:
    """torch.fft.ifft."""
    made = _straight("c2c", input, n, dim, norm, True)
    return _over(input, None if n is None else [n], [dim], norm, _INVERSE, False) if made is None else made


def fftn(input: Tensor, s=None, dim=None, norm=None) -> Tensor:
    """torch.fft.fftn."""
    return _over(input, s, dim, norm, _FORWARD, True)


def ifftn(input: Tensor, s=None, dim=None, norm=None) -> Tensor:
    """torch.fft.ifftn."""
    return _over(input, s, dim, norm, _INVERSE, False)


def fft2(input: Tensor, s=None, dim=(-2, -1), norm=None) -> Tensor:
    """torch.fft.fft2."""
    made = _straight("c2c", input, s, dim, norm, False)
    return fftn(input, s, dim, norm) if made is None else made


def ifft2(input: Tensor, s=None, dim=(-2, -1), norm=None) -> Tensor:
    """torch.fft.ifft2."""
    made = _straight("c2c", input, s, dim, norm, True)
    return ifftn(input, s, dim, norm) if made is None else made


def rfftn(input: Tensor, s=None, dim=None, norm=None) -> Tensor:
    """torch.fft.rfftn: the last axis of `dim` is halved."""
    x = _float(input)
    if x.is_complex():
        raise RuntimeError(f"rfftn expects a real input tensor, but got {x.dtype}")
    dim = _dims(x, dim if dim is not None else range(-(len(s) if s is not None else x.ndim), 0))
    scaling = _scaling(norm, _FORWARD)
    if s is not None:
        for n, d in zip(s, dim):
            x = _resized(x, None if n == -1 else n, d)
    if 1 < len(dim) <= len(set(dim)) and _eager(x) and not _wants_gradient(x):
        made = transformed("r2c", x, tuple(dim), _FORWARD_NAME[scaling], False)
        if made is not None:
            return made
    made = _linear(_ops.fft_r2c, x, dim[-1], scaling)
    return _linear(_ops.fft_c2c, made, dim[:-1], scaling, True) if len(dim) > 1 else made


def irfftn(input: Tensor, s=None, dim=None, norm=None) -> Tensor:
    """torch.fft.irfftn: the inverse of rfftn."""
    x = _float(input)
    x = x.to(_complex(x.dtype))
    dim = _dims(x, dim if dim is not None else range(-(len(s) if s is not None else x.ndim), 0))
    lengths = list(s) if s is not None else [None] * len(dim)
    scaling = _scaling(norm, _INVERSE)
    n = 2 * (x.shape[dim[-1]] - 1) if lengths[-1] in (None, -1) else lengths[-1]
    for length, d in zip(lengths[:-1], dim[:-1]):
        x = _resized(x, None if length == -1 else length, d)
    if len(dim) > 1:
        x = _linear(_ops.fft_c2c, x, dim[:-1], scaling, False)
    return _linear(_ops.fft_c2r, _resized(x, n // 2 + 1, dim[-1]), dim[-1], scaling, n)


def rfft(input: Tensor, n=None, dim=-1, norm=None) -> Tensor:
    """torch.fft.rfft."""
    made = _straight("r2c", input, n, dim, norm, False)
    return rfftn(input, None if n is None else [n], [dim], norm) if made is None else made


def irfft(input: Tensor, n=None, dim=-1, norm=None) -> Tensor:
    """torch.fft.irfft."""
    made = _straight("c2r", input, n, dim, norm, True)
    return irfftn(input, None if n is None else [n], [dim], norm) if made is None else made


def rfft2(input: Tensor, s=None, dim=(-2, -1), norm=None) -> Tensor:
    """torch.fft.rfft2."""
    made = _straight("r2c", input, s, dim, norm, False)
    return rfftn(input, s, dim, norm) if made is None else made


def irfft2(input: Tensor, s=None, dim=(-2, -1), norm=None) -> Tensor:
    """torch.fft.irfft2."""
    return irfftn(input, s, dim, norm)


class QRResult(NamedTuple):
    """Q with orthonormal columns and R upper triangular: A = Q R."""

    Q: Tensor
    R: Tensor


def qr(A: Tensor) -> QRResult:
    """torch.linalg.qr in mode "reduced", of a matrix or of a stack. Complex matrices on a device raise UnsupportedError."""
    return QRResult(*_factors(A))
