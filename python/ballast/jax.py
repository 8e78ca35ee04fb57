"""jnp.fft's functions, QR, least squares and K-Means as calls of XLA: jit, vmap, derivatives. Arrays of the CPU and of CUDA devices.

fft, ifft, rfft, irfft, hfft, ihfft, fft2, ifft2, rfft2, irfft2, fftn, ifftn, rfftn and irfftn have jnp.fft's arguments and derivatives of
any order in both modes. So has qr (the mode "reduced"); lstsq, predict and fit have no derivatives. float32, float64 and their complex
types; double precision needs JAX's option jax_enable_x64, as in all of JAX.

The settings of ballast.protection are those of the moment when JAX traces a function: a function that jit has compiled keeps them. A
fault that cannot be repaired is an error of JAX (jax.errors.JaxRuntimeError, "DATA_LOSS"). ballast.last_report() has the findings of all
calls that have ended since it was last asked.
"""

import functools
import math
import operator
from typing import NamedTuple

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching, mlir

from . import _core
from ._errors import InvalidArgumentError, UnsupportedTypeError
from ._protection import current

__all__ = ["LstsqResult", "QRResult", "fft", "fft2", "fftn", "fit", "hfft", "ifft", "ifft2", "ifftn", "ihfft", "irfft", "irfft2", "irfftn",
           "lstsq", "predict", "qr", "rfft", "rfft2", "rfftn"]

if not hasattr(_core, "jax_handlers"):
    raise ImportError("this build of ballast has no handlers for JAX: jaxlib's headers were not there when it was built")
for _platform, _device in (("cpu", False), ("CUDA", True)):
    for _name, _handler in _core.jax_handlers(_device).items():
        jax.ffi.register_ffi_target(_name, _handler, platform=_platform)


def _settings():
    """The attributes of each call, as pairs."""
    now = current()
    return ("protection", now.protection), ("backend", now.backend), ("threads", np.int64(now.threads)), ("sampled", np.int64(now.sampled))


def _float(x):
    """`x` as an array of float32, float64 or one of their complex types."""
    x = jnp.asarray(x)
    if not (jnp.issubdtype(x.dtype, jnp.inexact) and x.dtype.itemsize >= 4):
        x = x.astype(jnp.promote_types(x.dtype, jnp.float32) if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.result_type(float))
    return x


def _real(dtype):
    return jnp.finfo(dtype).dtype


def _complex(dtype):
    return jnp.result_type(dtype, jnp.complex64)


# ---- Transforms: a primitive of JAX over the last axes, since a call of XLA alone has no transpose

_transform_p = jax.extend.core.Primitive("ballast_fft")
_SWAPPED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}  # the same factor in the other direction


def _transform(x, kind, axes, inverse, norm, length=None, settings=None):
    """`kind` over the last `axes` axes; c2r: over one, of `length` numbers."""
    return _transform_p.bind(x, kind=kind, axes=axes, inverse=inverse, norm=norm, length=length, settings=settings or _settings())


@_transform_p.def_abstract_eval
def _made(x, *, kind, axes, inverse, norm, length, settings):
    if kind == "r2c":
        return x.update(shape=(*x.shape[:-1], x.shape[-1] // 2 + 1), dtype=_complex(x.dtype))
    return x.update(shape=(*x.shape[:-1], length), dtype=_real(x.dtype)) if kind == "c2r" else x


def _called(x, *, kind, axes, inverse, norm, length, settings):
    made = _made(jax.typeof(x), kind=kind, axes=axes, inverse=inverse, norm=norm, length=length, settings=settings)
    call = jax.ffi.ffi_call("ballast_fft", jax.ShapeDtypeStruct(made.shape, made.dtype))
    return call(x, kind=kind, axes=np.int64(axes), inverse=inverse, norm=norm, **dict(settings))


mlir.register_lowering(_transform_p, mlir.lower_fun(_called, multiple_results=False))


@functools.lru_cache(maxsize=512)
def _compiled(**parameters):
    return jax.jit(functools.partial(_transform_p.bind, **parameters))


@_transform_p.def_impl
def _computed(x, **parameters):
    return _compiled(**parameters)(x)


def _over_batch(operands, places, **parameters):
    return _transform_p.bind(jnp.moveaxis(operands[0], places[0], 0), **parameters), 0


batching.primitive_batchers[_transform_p] = _over_batch


def _halves(length, dtype):
    """How often each number of half a spectrum stands for itself and its conjugate."""
    twice = np.full(length // 2 + 1, 2)
    twice[0] = 1
    if length % 2 == 0:
        twice[-1] = 1
    return jnp.asarray(twice, dtype)


def _transposed(cotangent, x, *, kind, axes, inverse, norm, length, settings):
    """Of y = s F x: s F, which is symmetric. Of y = s (the half of F x), x real: x̄ = s Re Σ ȳ_k w^{jk} over the half, which is the c2r of
    conj ȳ, divided by how often c2r counts each number. c2r is the transpose of that."""
    swapped = _SWAPPED[norm]
    if kind == "c2c":
        return [_transform(cotangent, kind, axes, inverse, norm, None, settings)]
    if kind == "c2r":
        made = _transform(cotangent, "r2c", 1, False, swapped, None, settings)
        return [jnp.conj(made) * _halves(length, _real(made.dtype))]
    n = x.aval.shape[-1]
    half = jnp.conj(cotangent) / _halves(n, _real(cotangent.dtype))
    if axes > 1:
        half = _leading(half, axes - 1, swapped, True, settings)
    return [_transform(half, "c2r", 1, True, swapped, n, settings)]


ad.deflinear2(_transform_p, _transposed)


def _leading(x, count, norm, inverse, settings):
    """c2c over the `count` axes before the last."""
    return jnp.moveaxis(_transform(jnp.moveaxis(x, -1, -1 - count), "c2c", count, inverse, norm, None, settings), -1 - count, -1)


def _norm(norm):
    if norm not in (None, *_SWAPPED):
        raise ValueError(f'norm: expected "backward", "ortho" or "forward", got {norm!r}')
    return norm or "backward"


def _lengths(x, s, axes, halved=False):
    """The axes ≥ 0, different, and their lengths; halved: the last is that of the real side."""
    if axes is None:
        axes = range(-len(s), 0) if s is not None else range(x.ndim)
    axes = [operator.index(axis) for axis in axes]
    for axis in axes:
        if not -x.ndim <= axis < x.ndim:
            raise ValueError(f"axes: expected numbers of an array with {x.ndim} axes, got {axis}")
    axes = [axis % x.ndim for axis in axes]
    if not axes or len(set(axes)) < len(axes):
        raise ValueError(f"axes: expected one or more different axes, got {axes}")
    if s is None:
        s = [x.shape[axis] for axis in axes]
        if halved:
            s[-1] = 2 * (s[-1] - 1)
    s = [operator.index(n) for n in s]
    if len(s) != len(axes) or min(s) < 1:
        raise ValueError(f"s: expected a length of 1 or more for each of {len(axes)} axes, got {s}")
    return axes, s


def _resized(x, axes, lengths):
    for axis, n in zip(axes, lengths):
        if n < x.shape[axis]:
            x = jax.lax.slice_in_dim(x, 0, n, axis=axis)
        elif n > x.shape[axis]:
            x = jnp.pad(x, [(0, n - x.shape[a] if a == axis else 0) for a in range(x.ndim)])
    return x


def _over(x, axes, transform):
    """`transform` of x with `axes` moved to the end."""
    last = range(-len(axes), 0)
    return jnp.moveaxis(transform(jnp.moveaxis(x, axes, last)), last, axes)


def _complex_transform(x, s, axes, norm, inverse):
    x, norm = _float(x), _norm(norm)
    axes, s = _lengths(x, s, axes)
    x = _resized(x.astype(_complex(x.dtype)), axes, s)
    if not x.size:
        return x
    return _over(x, axes, lambda near: _transform(near, "c2c", len(axes), inverse, norm))


def _forward_real(x, s, axes, norm):
    x, norm = _float(x), _norm(norm)
    if jnp.iscomplexobj(x):
        raise TypeError(f"x: expected real numbers, got {x.dtype}")
    axes, s = _lengths(x, s, axes)
    x = _resized(x, axes, s)
    if not x.size:
        return jnp.zeros([n // 2 + 1 if a == axes[-1] else n for a, n in enumerate(x.shape)], _complex(x.dtype))
    return _over(x, axes, lambda near: _transform(near, "r2c", len(axes), False, norm))


def _inverse_real(x, s, axes, norm):
    x, norm = _float(x), _norm(norm)
    axes, s = _lengths(x, s, axes, halved=True)
    x = _resized(x.astype(_complex(x.dtype)), axes, [*s[:-1], s[-1] // 2 + 1])
    if not x.size:
        return jnp.zeros([s[-1] if a == axes[-1] else n for a, n in enumerate(x.shape)], _real(x.dtype))
    settings = _settings()

    def transform(half):
        if len(axes) > 1:
            half = _leading(half, len(axes) - 1, norm, True, settings)
        return _transform(half, "c2r", 1, True, norm, s[-1], settings)

    return _over(x, axes, transform)


def _one(n):
    return None if n is None else (n,)


def fft(a, n=None, axis=-1, norm=None):
    """jnp.fft.fft."""
    return _complex_transform(a, _one(n), (axis,), norm, False)


def ifft(a, n=None, axis=-1, norm=None):
    """jnp.fft.ifft."""
    return _complex_transform(a, _one(n), (axis,), norm, True)


def rfft(a, n=None, axis=-1, norm=None):
    """jnp.fft.rfft."""
    return _forward_real(a, _one(n), (axis,), norm)


def irfft(a, n=None, axis=-1, norm=None):
    """jnp.fft.irfft."""
    return _inverse_real(a, _one(n), (axis,), norm)


def hfft(a, n=None, axis=-1, norm=None):
    """jnp.fft.hfft."""
    return _inverse_real(jnp.conj(jnp.asarray(a)), _one(n), (axis,), _SWAPPED[_norm(norm)])


def ihfft(a, n=None, axis=-1, norm=None):
    """jnp.fft.ihfft."""
    return jnp.conj(_forward_real(a, _one(n), (axis,), _SWAPPED[_norm(norm)]))


def fftn(a, s=None, axes=None, norm=None):
    """jnp.fft.fftn."""
    return _complex_transform(a, s, axes, norm, False)


def ifftn(a, s=None, axes=None, norm=None):
    """jnp.fft.ifftn."""
    return _complex_transform(a, s, axes, norm, True)


def rfftn(a, s=None, axes=None, norm=None):
    """jnp.fft.rfftn: the last of `axes` is halved."""
    return _forward_real(a, s, axes, norm)


def irfftn(a, s=None, axes=None, norm=None):
    """jnp.fft.irfftn: the inverse of rfftn."""
    return _inverse_real(a, s, axes, norm)


def fft2(a, s=None, axes=(-2, -1), norm=None):
    """jnp.fft.fft2."""
    return _complex_transform(a, s, axes, norm, False)


def ifft2(a, s=None, axes=(-2, -1), norm=None):
    """jnp.fft.ifft2."""
    return _complex_transform(a, s, axes, norm, True)


def rfft2(a, s=None, axes=(-2, -1), norm=None):
    """jnp.fft.rfft2."""
    return _forward_real(a, s, axes, norm)


def irfft2(a, s=None, axes=(-2, -1), norm=None):
    """jnp.fft.irfft2."""
    return _inverse_real(a, s, axes, norm)


# ---- QR and least squares. XLA hands matrices over by columns and in memory of their own, where the library computes in place.

class QRResult(NamedTuple):
    """Q with orthonormal columns and R upper triangular: A = Q R."""

    Q: jax.Array
    R: jax.Array


class LstsqResult(NamedTuple):
    """jnp.linalg.lstsq's four results."""

    x: jax.Array
    residuals: jax.Array
    rank: int
    s: jax.Array


def _like(shape, x):
    return jax.ShapeDtypeStruct(shape, x.dtype)


def _columns(x):
    """The layout of a stack of matrices that lie by columns, the slowest axis first."""
    return (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _factors(a, settings):
    *stack, m, n = a.shape
    k = min(m, n)
    if not a.size:
        return jnp.zeros((*stack, m, k), a.dtype), jnp.zeros((*stack, k, n), a.dtype)
    layout = _columns(a)
    factor = jax.ffi.ffi_call("ballast_geqrf", (_like(a.shape, a), _like((*stack, k), a)), vmap_method="broadcast_all",
                              input_layouts=(layout,), output_layouts=(layout, None), input_output_aliases={0: 0})
    stored, tau = factor(a, **dict(settings))
    form = jax.ffi.ffi_call("ballast_orgqr", _like((*stack, m, k), a), vmap_method="broadcast_all", input_layouts=(layout, None),
                            output_layouts=layout, input_output_aliases={0: 0})
    return form(stored[..., :k], tau, **dict(settings)), jnp.triu(stored[..., :k, :])


@_factors.defjvp
def _factors_jvp(settings, primals, tangents):
    """From QᵀQ = I and A = QR: dQ = (dA R⁻¹ − Q C) + Q Ω and dR = (C − Ω) R, where C = Qᵀ dA R⁻¹ and Ω is skew-symmetric with C's part below
    the diagonal. With more columns than rows this holds for the first columns, and the others are R2 = Qᵀ A2."""
    (a,), (of_a,) = primals, tangents
    q, r = _factors(a, settings)
    k = q.shape[-1]
    if not a.size:
        return (q, r), (jnp.zeros_like(q), jnp.zeros_like(r))
    product = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    x = jax.lax.linalg.triangular_solve(r[..., :k], of_a[..., :k])
    c = product(q.mT, x)
    below = jnp.tril(c, -1)
    c = c - below + below.mT
    of_q, of_r = x - product(q, c), product(c, r[..., :k])
    if r.shape[-1] > k:
        of_r = jnp.concatenate([of_r, product(of_q.mT, a[..., k:]) + product(q.mT, of_a[..., k:])], axis=-1)
    return (q, r), (of_q, of_r)


def _matrix(a, name, axes):
    a = _float(a)
    if jnp.iscomplexobj(a):
        raise UnsupportedTypeError(f"{name}: ballast.jax factors real matrices, got {a.dtype}")
    if a.ndim < axes:
        raise ValueError(f"{name}: expected {axes} axes or more, got {a.ndim}")
    return a


def qr(a, mode="reduced"):
    """The QR factorization of a matrix, or of each of a stack (…, m, n), as jnp.linalg.qr in the mode "reduced" or "r"."""
    if mode not in ("reduced", "r"):
        raise InvalidArgumentError(f'mode: expected "reduced" or "r", got {mode!r}')
    made = QRResult(*_factors(_matrix(a, "a", 2), _settings()))
    return made.R if mode == "r" else made


def lstsq(a, b):
    """The least-squares solution of a x = b for a of full rank, by QR: (x, residuals, rank, s) as jnp.linalg.lstsq. A matrix of lower rank
    is an error of JAX (FAILED_PRECONDITION), and rank is min(m, n). s, the singular values, is computed from R by JAX and is not
    protected."""
    a, b = _matrix(a, "a", 2), _matrix(b, "b", 1)
    if a.ndim != 2 or b.ndim > 2 or a.shape[0] != b.shape[0]:
        raise ValueError(f"expected a matrix and right-hand sides of as many rows, got shapes {a.shape} and {b.shape}")
    a, b = (each.astype(jnp.promote_types(a.dtype, b.dtype)) for each in (a, b))
    m, n = a.shape
    right = b.reshape(m, math.prod(b.shape[1:]))
    if not (a.size and right.size):
        raise ValueError(f"expected matrices with elements, got shapes {a.shape} and {b.shape}")
    right = _resized(right, (0,), (max(m, n),))
    layout = _columns(a)
    solve = jax.ffi.ffi_call("ballast_gels", (_like(a.shape, a), _like(right.shape, right)), vmap_method="broadcast_all",
                             input_layouts=(layout, layout), output_layouts=(layout, layout), input_output_aliases={0: 0, 1: 1})
    stored, made = solve(a, right, **dict(_settings()))
    k = min(m, n)
    s = jnp.linalg.svd(jnp.triu((stored if m >= n else stored.T)[:k]), compute_uv=False)
    residuals = jnp.sum(made[n:] ** 2, axis=0) if m > n else jnp.zeros((0,), a.dtype)
    return LstsqResult(made[:n].reshape(n, *b.shape[1:]), residuals, k, s)


# ---- K-Means

def _clusters(points, centroids):
    points, centroids = _matrix(points, "points", 2), _matrix(centroids, "centroids", 2)
    if points.ndim != 2 or centroids.ndim != 2 or points.shape[1] != centroids.shape[1]:
        raise ValueError(f"expected points and centroids with as many features, got shapes {points.shape} and {centroids.shape}")
    return points, centroids.astype(points.dtype)


def predict(points, centroids):
    """The nearest of the centroids (k, n) for each of the points (m, n): int32."""
    points, centroids = _clusters(points, centroids)
    call = jax.ffi.ffi_call("ballast_kmeans_predict", jax.ShapeDtypeStruct(points.shape[:1], jnp.int32), vmap_method="sequential")
    return call(points, centroids, **dict(_settings()))


def fit(points, centroids, max_iter=300, tol=1e-4):
    """Lloyd's algorithm from the given centroids (k, n): the new centroids, and the label of each of the points (m, n). It ends when no
    label changes, when the centroids' squared shift is at most tol times the mean of the features' variances, or after max_iter steps."""
    points, centroids = _clusters(points, centroids)
    made = (_like(centroids.shape, points), jax.ShapeDtypeStruct(points.shape[:1], jnp.int32))
    call = jax.ffi.ffi_call("ballast_kmeans_fit", made, vmap_method="sequential")
    return tuple(call(points, centroids, max_iter=np.int64(max_iter), tol=np.float64(tol), **dict(_settings())))
