"""ballast.torch beside torch.fft and torch.linalg, and PyTorch's own checks of operators and gradients."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
import ballast
import ballast.torch as mine


def data(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_transforms(norm):
    x, z = data(3, 6, 8), data(3, 6, 8, dtype=torch.complex128)
    for name, of, more in (("fft", z, {}), ("fft", x, {"n": 5, "dim": 1}), ("ifft", z, {"n": 11}), ("fftn", z, {}), ("fftn", z, {"s": (4, 9)}),
                           ("ifftn", z, {"dim": (0, 2)}), ("fft2", x, {}), ("ifft2", z, {}), ("rfft", x, {}), ("rfft", x, {"dim": 0, "n": 4}),
                           ("rfftn", x, {}), ("rfft2", x, {"s": (4, 9)}), ("irfft", z, {}), ("irfft", z, {"n": 9, "dim": 1}),
                           ("irfft", z, {"n": 21}), ("irfftn", z, {}), ("irfft2", z, {"s": (7, 5)})):
        seen, expected = getattr(mine, name)(of, norm=norm, **more), getattr(torch.fft, name)(of, norm=norm, **more)
        assert seen.dtype == expected.dtype and torch.allclose(seen, expected, rtol=1e-12, atol=1e-12), (name, more)
    assert ballast.last_report().problem.startswith("fft_c2r")
    with pytest.raises(RuntimeError):
        mine.fft(x, norm="both")


OPERATORS = [
    (torch.ops.ballast.fft_c2c, (data(2, 3, 5, dtype=torch.complex128), [-1], 0, True)),
    (torch.ops.ballast.fft_c2c, (data(4, 3, 6, dtype=torch.complex128).transpose(0, 2), [-3, -1], 1, False)),
    (torch.ops.ballast.fft_r2c, (data(3, 7), -1, 2)),
    (torch.ops.ballast.fft_r2c, (data(3, 6, 2), -2, 0)),
    (torch.ops.ballast.fft_c2r, (data(3, 4, dtype=torch.complex128), -1, 2, 6)),
    (torch.ops.ballast.fft_c2r, (data(3, 4, dtype=torch.complex128), -1, 0, 7)),
    (torch.ops.ballast.fft_c2r, (data(2, 5, 3, dtype=torch.complex128), -2, 1, 6)),
    (torch.ops.ballast.qr, (data(5, 3),)),
    (torch.ops.ballast.qr, (data(3, 5),)),
    (torch.ops.ballast.qr, (data(2, 4, 4),)),
    (torch.ops.ballast.qr, (data(5, 3, dtype=torch.complex128),)),
    (torch.ops.ballast.qr, (data(3, 5, dtype=torch.complex128),)),
    (torch.ops.ballast.qr, (data(2, 4, 4, dtype=torch.complex128),)),
]


@pytest.mark.parametrize("op, given", OPERATORS)
def test_opcheck_and_gradcheck(op, given):
    given = (given[0].clone().requires_grad_(), *given[1:])
    torch.library.opcheck(op.default, given)

    def function(x):
        made = op(x, *given[1:])
        if op is not torch.ops.ballast.qr:
            return made
        signs = torch.sign(made[1].diagonal(dim1=-2, dim2=-1).real).detach()
        return made[0] * signs[..., None, :], made[1] * signs[..., None]

    torch.autograd.gradcheck(function, (given[0],))
    if op is not torch.ops.ballast.qr:
        torch.autograd.gradgradcheck(function, (given[0],))


def test_vmap_and_compile():
    x = data(4, 6, 8)
    assert torch.allclose(torch.func.vmap(mine.rfft, in_dims=1)(x), torch.fft.rfft(x.movedim(1, 0)))
    q, r = torch.func.vmap(lambda a: tuple(mine.qr(a)), in_dims=2)(x)
    assert torch.allclose(q @ r, x.movedim(2, 0))
    compiled = torch.compile(lambda a: mine.irfft(mine.rfft(a) * 2, 8), fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x), 2 * x)


def test_install_takes_torch():
    x, half = data(4, 8), data(4, 8).to(torch.bfloat16)
    expected, before = torch.fft.rfft(x), torch.fft.rfft
    ballast.install()
    try:
        calls = ballast._forward.protected_calls()
        assert torch.allclose(torch.fft.rfft(x), expected) and torch.allclose(torch.fft.fftn(x, dim=(0, 1)), torch.fft.fft2(x))
        q, r = torch.linalg.qr(x.T)
        assert torch.allclose(q @ r, x.T) and isinstance(torch.linalg.qr(x.T), torch.return_types.linalg_qr)
        assert ballast._forward.protected_calls() == calls + 5
        z = torch.complex(x, x.flip(0))
        for given in (z, z.mT, z.conj(), torch.stack([z, 2 * z]).to(torch.complex64)):
            q, r = torch.linalg.qr(given)
            assert torch.allclose(q @ r, given, atol=1e-5) and q.dtype == r.dtype == given.dtype
        assert ballast.last_report().problem.startswith("qr_c64") and ballast._forward.protected_calls() == calls + 9
        with pytest.warns(ballast.FallbackWarning, match="complete"):
            torch.linalg.qr(x.T, mode="complete")
        with pytest.warns(ballast.FallbackWarning, match="out"):
            torch.fft.rfft(x, out=torch.empty_like(expected))
        with pytest.raises((RuntimeError, ValueError)), pytest.warns(ballast.FallbackWarning, match="bfloat16"):
            torch.fft.rfft(half)
        with pytest.raises(RuntimeError, match="normalization"), pytest.warns(ballast.FallbackWarning):
            torch.fft.rfft(x, norm="both")
    finally:
        ballast.uninstall()
    assert torch.fft.rfft is before


def test_install_takes_torch_that_is_imported_later():
    program = ("import ballast; ballast.install(); import torch; torch.fft.fft(torch.ones(8)); "
               "assert ballast._forward.protected_calls() == 1; ballast.uninstall()")
    subprocess.run([sys.executable, "-c", program], check=True)


def test_calls_that_ask_for_more_than_values_reach_the_operators():
    """A tensor's values alone are computed without PyTorch's dispatcher; everything else must not be."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Dispatched(TorchDispatchMode):
        seen = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen.append(str(function))
            return function(*args, **(kwargs or {}))

    class Called(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            Dispatched.seen.append(str(function))
            return function(*args, **(kwargs or {}))

    x = torch.randn(3, 8, dtype=torch.complex128)
    expected = torch.fft.fft(x)
    assert torch.allclose(mine.fft(x), expected)
    assert torch.allclose(mine.fft(x.conj()), torch.fft.fft(x.conj()))
    for mode in (Dispatched(), Called()):
        Dispatched.seen.clear()
        with mode:
            assert torch.allclose(mine.fft(x), expected)
        assert any("ballast" in each for each in Dispatched.seen)
    with FakeTensorMode():
        assert type(mine.rfft(torch.randn(4, 8))).__name__ == "FakeTensor"
    assert torch.allclose(torch.func.vmap(mine.fft)(x), expected)
    given = x.clone().requires_grad_()
    assert mine.fft(given).grad_fn is not None
    with torch.no_grad():
        assert not mine.fft(given).requires_grad and torch.allclose(mine.fft(given), expected)
    for wrong in (2, -3):
        with pytest.raises(IndexError, match="out of range"):
            mine.fft(x, dim=wrong)


@pytest.mark.parametrize("name", ["fft", "ifftn", "rfft", "rfftn", "irfft", "irfftn"])
def test_forward_mode_and_torch_func(name):
    """Registered gradients alone would lose the tangents, and refuse torch.func's transforms."""
    func, f, g = torch.func, getattr(mine, name), getattr(torch.fft, name)
    x, t = (torch.complex(data(3, 4), data(4, 3).T), torch.complex(data(3, 4).flip(0), data(3, 4)))
    if name.startswith("rfft"):
        x, t = x.real.clone(), t.imag.clone()
    seen, expected = func.jvp(f, (x,), (t,)), func.jvp(g, (x,), (t,))
    assert torch.allclose(seen[0], expected[0]) and torch.allclose(seen[1], expected[1])
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, t)
        assert torch.allclose(torch.autograd.forward_ad.unpack_dual(f(dual)).tangent, expected[1])

    def cubes(transform):
        return lambda v: (transform(v if name.startswith("rfft") else torch.complex(v, v * v)).abs() ** 3).sum()

    v = data(3, 4)
    assert torch.allclose(func.grad(cubes(f))(v), func.grad(cubes(g))(v))
    assert torch.allclose(func.hessian(cubes(f))(v), func.hessian(cubes(g))(v))
    assert torch.allclose(func.vmap(func.grad(cubes(f)))(v[:, None]), func.vmap(func.grad(cubes(g)))(v[:, None]))


def with_positive_diagonal(q, r):
    signs = torch.sign(r.diagonal(dim1=-2, dim2=-1).real).detach()
    return q * signs[..., None, :], r * signs[..., None]


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 4)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradient_of_qr_is_torchs(shape, dtype):
    def gradient(factor):
        a = data(*shape, dtype=dtype).requires_grad_()
        made = torch.zeros(())
        for part in with_positive_diagonal(*factor(a)):
            weights = torch.arange(1, part.numel() + 1, dtype=torch.float64).reshape(part.shape).to(dtype)
            if dtype.is_complex:
                weights = weights * torch.exp(1j * weights)
            made = made + (part * weights).real.sum()
        made.backward()
        return a.grad

    assert torch.allclose(gradient(mine.qr), gradient(torch.linalg.qr), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 4)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_qr_in_forward_mode_and_under_torch_func(shape, dtype):
    def factors(a):
        return with_positive_diagonal(*mine.qr(a))

    func, a, t, step = torch.func, data(*shape, dtype=dtype), data(*shape, dtype=dtype).flip(0), 1e-6
    _, tangents = func.jvp(factors, (a,), (t,))
    for tangent, above, below in zip(tangents, factors(a + step * t), factors(a - step * t)):
        # A central difference is wrong by O(step²) and by rounding / step.
        assert torch.allclose(tangent, (above - below) / (2 * step), rtol=1e-6, atol=1e-6 * float(tangent.abs().max()))

    def loss(v):
        q, r = factors(v)
        return (q * torch.arange(q.numel()).reshape(q.shape)).real.sum() + r.abs().pow(2).sum()

    given = a.clone().requires_grad_()
    gradient, = torch.autograd.grad(loss(given), given)
    assert torch.allclose(func.grad(loss)(a), gradient)
    if not dtype.is_complex:  # jacfwd takes derivatives by real numbers only
        assert torch.allclose(func.jacfwd(loss)(a), gradient)
    assert torch.allclose(func.vmap(func.grad(loss))(torch.stack([a, a]))[1], gradient)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "rfft2", "fftn", "ifftn", "rfftn"])
def test_tensors_in_host_memory_take_the_short_road(name, monkeypatch):
    from ballast.fft import _repeated

    seen = []
    planned = _repeated.planned
    monkeypatch.setattr(_repeated, "planned", lambda *args: seen.append(args[0]) or planned(*args))
    ballast.fft.clear_plans()
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(4, 6, 10, dtype=dtype)
        if not name.startswith("rfft"):
            x = torch.complex(x, x.flip(0))
        for given in (x, x[:, 1:5], x.transpose(0, 1), x.clone().requires_grad_()):
            for _ in range(2):
                made, expected = getattr(ballast.fft, name)(given), getattr(torch.fft, name)(given)
                assert made.dtype == expected.dtype and made.shape == expected.shape and not made.requires_grad
                assert torch.allclose(made, expected, atol=1e-4 if dtype == torch.float32 else 1e-12)
                assert torch.allclose(getattr(mine, name)(given), expected, atol=1e-4 if dtype == torch.float32 else 1e-12)
    assert seen
    few = len(seen)
    getattr(ballast.fft, name)(x)
    assert len(seen) == few  # found again
    assert ballast.last_report().checks > 0


@pytest.mark.parametrize("name", ["fft_c2c", "fft_r2c", "fft_c2r"])
def test_operators_called_by_name(name):
    """The short way of a plain call gives what the dispatcher's long way gives: values, gradients of two orders, and no graph where none is
    wanted. A mode sees the operator."""
    from torch.utils._python_dispatch import TorchDispatchMode

    op, rest = getattr(torch.ops.ballast, name), {"fft_c2c": ([-1], 1, True), "fft_r2c": (-1, 1), "fft_c2r": (-1, 1, 10)}[name]
    plain = torch.randn(4, 6, dtype=torch.float64 if name == "fft_r2c" else torch.complex128)
    seen = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    def results(x):
        x = x.detach().clone().requires_grad_()
        y = op(x, *rest)
        first, = torch.autograd.grad(y.abs().square().square().sum(), x, create_graph=True)
        second, = torch.autograd.grad(first.abs().square().sum(), x)
        return y.detach(), first.detach(), second

    for x in (plain, plain.conj(), plain.T.contiguous().T, plain.expand(2, 4, 6), plain[:, ::2].repeat(1, 2)):
        value = op(x, *rest)
        assert not value.requires_grad and value.is_contiguous()
        with Record():
            assert torch.equal(op(x, *rest), value)
            long_way = results(x)
        assert any(name in each for each in seen)
        for one, other in zip(results(x), long_way):
            assert torch.allclose(one, other, rtol=1e-12, atol=1e-10)
    wanted = plain.clone().requires_grad_()
    assert op(wanted, *rest).requires_grad
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            assert not op(wanted, *rest).requires_grad
