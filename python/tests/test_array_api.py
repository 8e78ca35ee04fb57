"""The Array API's fft and linalg.qr on arrays of array_api_strict, which has nothing that the standard does not name. Their results are
arrays of that library with the standard's types. python/conformance/run.py runs the standard's own suite."""

import warnings

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    xp = pytest.importorskip("array_api_strict")
import ballast

COMPLEX = {xp.float32: xp.complex64, xp.float64: xp.complex128, xp.complex64: xp.complex64, xp.complex128: xp.complex128}
REAL = {xp.complex64: xp.float32, xp.complex128: xp.float64}


def data(dtype, shape=(3, 4, 6)):
    random = np.random.default_rng(0)
    made = random.standard_normal(shape)
    if dtype in REAL:
        made = made + 1j * random.standard_normal(shape)
    return xp.asarray(made.astype(str(dtype).rsplit(".", 1)[-1]))


def plain(x):
    return np.from_dlpack(x)


def close(made, expected, dtype):
    assert type(made) is type(xp.asarray(0)) and made.dtype == dtype and made.shape == expected.shape
    u = 1e-5 if dtype in (xp.float32, xp.complex64) else 1e-13
    return np.allclose(plain(made), expected, rtol=0, atol=72 * u * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize("single", [True, False])
def test_one_axis(name, norm, single):
    real = name in ("rfft", "ihfft")
    x = data({(True, True): xp.float32, (True, False): xp.float64, (False, True): xp.complex64, (False, False): xp.complex128}[real, single])
    result = COMPLEX[x.dtype] if name not in ("irfft", "hfft") else REAL[x.dtype]
    for n in (None, 5, 9):
        for axis in (-1, 0):
            made = getattr(ballast.fft, name)(x, n=n, axis=axis, norm=norm)
            wide = plain(x).astype(np.complex128 if not real else np.float64)
            assert close(made, getattr(np.fft, name)(wide, n=n, axis=axis, norm=norm), result)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
@pytest.mark.parametrize("single", [True, False])
def test_several_axes(name, single):
    real = name == "rfftn"
    x = data({(True, True): xp.float32, (True, False): xp.float64, (False, True): xp.complex64, (False, False): xp.complex128}[real, single])
    result = REAL[x.dtype] if name == "irfftn" else COMPLEX[x.dtype]
    for s, axes in ((None, None), (None, (0, 2)), ((5, 8), (1, 2))):
        made = getattr(ballast.fft, name)(x, s=s, axes=axes)
        wide = plain(x).astype(np.float64 if real else np.complex128)
        assert close(made, getattr(np.fft, name)(wide, s=s, axes=axes), result)


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("dtype", [xp.float32, xp.float64, xp.complex64, xp.complex128])
@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (2, 3, 6, 4)])
def test_qr(mode, dtype, shape):
    x = data(dtype, shape)
    q, r = ballast.linalg.qr(x, mode=mode)
    m, n = shape[-2:]
    inner = min(m, n) if mode == "reduced" else m
    assert q.shape == (*shape[:-2], m, inner) and r.shape == (*shape[:-2], inner, n)
    assert close(xp.matmul(q, r), plain(x), dtype)
    adjoint = xp.matrix_transpose(xp.conj(q) if dtype in REAL else q)
    assert close(xp.matmul(adjoint, q), np.broadcast_to(np.eye(inner), (*shape[:-2], inner, inner)), dtype)
    assert np.array_equal(plain(r), np.triu(plain(r)))
