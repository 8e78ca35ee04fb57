"""The road of arrays in a device's memory, over arrays of the host: everything but the device itself. Tests of a real device are in
test_cuda.py."""

import importlib.util

import numpy as np
import pytest

import ballast
from ballast import _core, _device, _exchange, _protection
from ballast.fft import _engine, _transforms

try:
    import torch
except ImportError:
    torch = None


class Device:
    """The device of CuPy's arrays, which is entered to allocate on it."""

    id = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


class Near(np.ndarray):
    """NumPy's array in the place of CuPy's."""

    device = Device()


class NumPyAsCuPy(_device._CuPy):
    def __init__(self):
        self.cupy = np

    def address(self, a):
        return a.ctypes.data

    def stream(self, a):
        return 0

    def empty(self, like, shape, dtype):
        return np.empty(shape, dtype).view(Near)

    def zeros(self, like, shape, dtype):
        return np.zeros(shape, dtype).view(Near)

    def identity(self, like, n, dtype):
        return np.eye(n, dtype=dtype).view(Near)

    def contiguous(self, a):
        return super().contiguous(a).view(Near)

    def upper(self, a):
        return super().upper(a).view(Near)

    def singular_values(self, a):
        return super().singular_values(a).view(Near)

    def to_host(self, a):
        return np.asarray(a)


@pytest.fixture(params=["cupy", "torch"])
def device(request, monkeypatch):
    """Makes arrays of one library, which the package takes for arrays of a device while it computes on the host; and back to NumPy."""
    if request.param == "torch" and torch is None:
        pytest.skip("PyTorch is not installed")
    kind = Near if request.param == "cupy" else torch.Tensor
    monkeypatch.setattr(_exchange, "foreign", lambda a: isinstance(a, kind))
    monkeypatch.setattr(_exchange, "on_device", lambda a: isinstance(a, kind))
    if request.param == "cupy":
        library = NumPyAsCuPy()
        monkeypatch.setattr(_exchange, "taken_from_device", lambda a, bfloat16=False: _device.DeviceArray(library, a))
    else:
        monkeypatch.setattr(_device._Torch, "stream", lambda self, a: 0)
        monkeypatch.setattr(_device._Torch, "device", lambda self, a: 0)
    monkeypatch.setattr(_device.DeviceArray, "tensor", lambda self: np.asarray(self.native))
    where = _core.Execution("cpu", -1, 0, "correct", "")
    modules = [_engine, ballast.linalg]
    if importlib.util.find_spec("sklearn") is not None:
        modules.append(ballast.sklearn)
        monkeypatch.setattr(ballast.sklearn, "foreign", lambda a: isinstance(a, kind))
        monkeypatch.setattr(ballast.sklearn, "on_device", lambda a: isinstance(a, kind))
    for module in modules:
        monkeypatch.setattr(module, "execution", lambda *args, **kwargs: where)

    def run(kind, src, dst, axes, inverse, norm, threads):
        found = _engine.planned(kind, src, dst, axes, norm, threads)
        if found is None:
            return _engine._by_copy(kind, src, dst, axes, inverse, norm, threads)
        plan, places_in, places_out = found
        return _protection.compute(plan.run, src, dst, inverse, places_in, places_out)

    monkeypatch.setattr(_engine, "run", run)
    monkeypatch.setattr(_transforms, "run", run)

    def make(values):
        return values.copy().view(Near) if kind is Near else torch.from_numpy(values.copy())

    make.kind = kind
    return make


def data(*shape, dtype=np.float64):
    rng = np.random.default_rng(0)
    if np.dtype(dtype).kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("name, args, kwargs", [
    ("fft", (), {}), ("fft", (5,), {"axis": 1}), ("fft", (11,), {"axis": 0, "norm": "ortho"}), ("ifft", (), {"axis": 1}), ("fftn", (), {}),
    ("fftn", ((4, 9),), {"axes": (0, 2)}), ("ifftn", (), {"axes": (0, 0)}), ("hfft", (), {}), ("irfft", (), {"n": 9}), ("irfftn", (), {}),
    ("irfft2", (), {})])
def test_complex_transforms(device, name, args, kwargs):
    x = device(data(3, 6, 8, dtype=np.complex128))
    for given in (x, x.swapaxes(0, 2), x[:, 1:5], x.conj()):
        made = getattr(ballast.fft, name)(given, *args, **kwargs)
        assert isinstance(made, device.kind)
        plain = given.resolve_conj() if hasattr(given, "resolve_conj") else given
        assert np.allclose(made, getattr(np.fft, name)(np.asarray(plain), *args, **kwargs))


@pytest.mark.parametrize("name", ["rfft", "rfftn", "rfft2", "ihfft", "fft", "fft2"])
def test_real_input(device, name):
    for values in (data(3, 6, 8), data(3, 6, 8, dtype=np.float32), np.arange(96).reshape(3, 4, 8), np.ones((4, 6), bool)):
        made = getattr(ballast.fft, name)(device(values))
        assert np.asarray(made).dtype == (np.complex64 if values.dtype == np.float32 else np.complex128)
        assert np.allclose(made, getattr(np.fft, name)(values), rtol=1e-4, atol=1e-5)


def test_types_that_numpy_does_not_have(device):
    if device.kind is Near:
        pytest.skip("CuPy has NumPy's types")
    with pytest.raises(ballast.UnsupportedTypeError, match="bfloat16"):
        ballast.fft.fft(torch.ones(4, dtype=torch.bfloat16))


def test_out_and_in_place(device):
    values = data(4, 8, dtype=np.complex128)
    x, out, expected = device(values), device(np.empty_like(values)), np.fft.fft(values)
    assert ballast.fft.fft(x, out=out) is out and np.allclose(out, expected)
    assert ballast.fft.fft(x, out=x) is x and np.allclose(x, expected)
    wide = device(np.zeros((4, 16), complex))
    assert np.allclose(ballast.fft.ifft(out, out=wide[:, ::2]), np.fft.ifft(expected)) and np.abs(np.asarray(wide)[:, 1::2]).max() == 0
    overlapping = device(np.concatenate([expected, expected]))
    assert np.allclose(ballast.fft.fft(overlapping[:4], out=overlapping[2:6]), np.fft.fft(expected))
    with pytest.raises(ballast.UnsupportedError, match="out"):
        ballast.fft.fft(x, out=np.empty((4, 8), complex))


def test_qr_and_least_squares(device):
    for values in (data(7, 3), data(3, 7), data(2, 5, 5, dtype=np.float32), data(4, 2, 6, 3)):
        a, near = device(values), 1e-5
        for mode in ("reduced", "complete"):
            q, r = ballast.linalg.qr(a, mode)
            assert isinstance(q, device.kind) and q.shape[-1] == r.shape[-2]
            q, r = np.asarray(q), np.asarray(r)
            assert np.allclose(q @ r, values, atol=near) and np.allclose(q.swapaxes(-1, -2) @ q, np.eye(q.shape[-1]), atol=near)
            assert np.array_equal(r, np.triu(r))
        assert np.allclose(ballast.linalg.qr(a, "r"), ballast.linalg.qr(a)[1])
        h, tau = ballast.linalg.qr(a, "raw")
        assert np.allclose(h, np.linalg.qr(values, "raw")[0], atol=1e-4) and tau.shape[-1] == min(a.shape[-2:])
    assert np.array_equal(ballast.linalg.qr(device(data(4, 0)), "complete")[0], np.eye(4))
    for values in (data(9, 4), data(4, 9)):
        for right in (data(len(values)), data(len(values), 2)):
            seen, expected = ballast.linalg.lstsq(device(values), device(right)), np.linalg.lstsq(values, right)
            for mine, theirs in zip(seen, expected):
                assert np.allclose(mine, theirs)
    with pytest.raises(ballast.RankDeficientError):
        ballast.linalg.lstsq(device(np.ones((5, 2))), device(np.ones(5)))
    with pytest.raises(ballast.RankDeficientError, match="rcond"):
        ballast.linalg.lstsq(device(np.diag([1, 1e-5])), device(np.ones(2)), rcond=1e-3)
    with pytest.raises(ballast.UnsupportedError, match="b: "):
        ballast.linalg.lstsq(device(data(5, 2)), data(5))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_matrices_small_and_large(device, dtype):
    for shape in ((40, 7), (300, 3), (300, 280)):
        values, right = data(*shape, dtype=dtype), data(shape[0], 2, dtype=dtype)
        q, r = (np.asarray(each) for each in ballast.linalg.qr(device(values)))
        near = 1e-4 if dtype == np.complex64 else 1e-11
        assert np.allclose(q @ r, values, atol=near) and np.allclose(q.conj().T @ q, np.eye(shape[1]), atol=near)
        assert np.array_equal(np.diag(r).imag, np.zeros(shape[1]))
        x = np.asarray(ballast.linalg.lstsq(device(values), device(right), driver="gels")[0])
        gradient = values.conj().T @ (values @ x - right)
        assert np.abs(gradient).max() < near * np.linalg.norm(values) * np.linalg.norm(right)
        q, r, order = (np.asarray(each) for each in ballast.linalg.qr(device(values), pivoting=True))
        assert np.allclose(q @ r, values[:, order], atol=near) and np.all(np.diff(np.abs(np.diag(r))) <= near)
        values[:, -1] = 1j * values[:, 0]  # of rank n - 1
        found, _, rank, _ = ballast.linalg.lstsq(device(values), device(right), driver="gelsy")
        assert rank == shape[1] - 1
        gradient = values.conj().T @ (values @ np.asarray(found) - right)
        assert np.abs(gradient).max() < near * np.linalg.norm(values) * np.linalg.norm(right)


def test_kmeans(device):
    pytest.importorskip("sklearn")
    from ballast.sklearn import KMeans

    centres = 20 * data(5, 16)
    values = (np.repeat(centres, 40, 0) + data(200, 16)).astype(np.float32)
    points = device(values)
    for how in ({"n_init": 3}, {"init": "random", "n_init": 8}, {"init": centres}, {"init": lambda X, k, random_state: centres}):
        model = KMeans(5, random_state=0, **how).fit(points)
        assert isinstance(model.labels_, device.kind) and isinstance(model.cluster_centers_, device.kind)
        expected = np.linalg.norm(values[:, None] - np.asarray(model.cluster_centers_), axis=2)
        assert np.array_equal(model.labels_, expected.argmin(1)) and np.array_equal(model.predict(points), model.labels_)
        assert np.allclose(model.transform(points), expected, rtol=1e-4)
        assert model.inertia_ == pytest.approx((expected.min(1) ** 2).sum(), rel=1e-5) and model.report_.verdict == "clean"
    weighted = KMeans(5, init=centres).fit(points, sample_weight=device(np.full(200, 2.0)))
    assert weighted.inertia_ == pytest.approx(2 * model.inertia_, rel=1e-5) and weighted.score(points) == pytest.approx(-model.inertia_, rel=1e-5)
    with pytest.warns(UserWarning, match="distinct clusters"):
        KMeans(3, random_state=0).fit(device(np.ones((10, 2))))
    for wrong, words in ((points[:, 0], "2D"), (points[:3], "n_clusters"), (device(np.ones((4, 2), complex)), "Complex")):
        with pytest.raises(ValueError, match=words):
            KMeans(5).fit(wrong)
    with pytest.raises(ValueError, match="features"):
        model.predict(points[:, :3])
    with pytest.raises(ValueError, match="sample_weight"):
        KMeans(5).fit(points, sample_weight=device(np.ones(3)))


def test_kmeans_of_16_bits(device, monkeypatch):
    """Points of float16 and bfloat16 go to the library as they are: the results are those of the same numbers in float32."""
    pytest.importorskip("sklearn")
    from ballast.sklearn import KMeans, SphericalKMeans

    given = []
    compute = ballast.sklearn.compute
    monkeypatch.setattr(ballast.sklearn, "compute", lambda function, X, *rest: given.append(X.native.dtype) or compute(function, X, *rest))
    centres = 20 * data(5, 16)
    halves = device((np.repeat(centres, 40, 0) + data(200, 16)).astype(np.float16))
    for kind in (KMeans, SphericalKMeans):
        model, wide = kind(5, init=centres).fit(halves), kind(5, init=centres).fit(device(np.asarray(halves).astype(np.float32)))
        assert given[-2] == halves.dtype and model.report_.problem.startswith("kmeans_f16_m200_n16_k5")
        assert np.array_equal(model.cluster_centers_, wide.cluster_centers_) and np.array_equal(model.labels_, wide.labels_)
        assert np.array_equal(model.predict(halves), model.labels_) and model.cluster_centers_.dtype == wide.cluster_centers_.dtype
        assert np.array_equal(model.transform(halves), wide.transform(device(np.asarray(halves).astype(np.float32))))
    if device.kind is not Near:
        brains = torch.from_numpy(np.asarray(halves).astype(np.float32)).to(torch.bfloat16)
        model, wide = KMeans(5, init=centres).fit(brains), KMeans(5, init=centres).fit(brains.float())
        assert model.report_.problem == "kmeans_bf16_m200_n16_k5" and model.cluster_centers_.dtype == torch.float32
        assert torch.equal(model.cluster_centers_, wide.cluster_centers_) and torch.equal(model.predict(brains), wide.labels_)


class Plan:
    """Stands for a plan on a device: the findings of its calls gather in its memory until somebody asks."""

    def __init__(self, source):
        self.source, self.calls, self.told, self.broken = source, 0, 0, False

    def enqueue(self, *where):
        self.calls += 1
        return self

    def get(self):
        self.told, self.calls = self.told + self.calls, 0
        if self.broken:
            self.broken = False
            raise ballast.FaultError("persists", self.source)
        return self.source


def enqueue(plan, captured=False):
    _protection.record(_protection.enqueue(plan, 0, 0, False, [0], [0], 0, captured))


@pytest.fixture
def source():
    ballast.synchronize()
    ballast.fft.fft(np.ones(8, complex))
    yield ballast.last_report()._source
    _protection._captured.clear()


@pytest.fixture(autouse=True)
def pending(monkeypatch):
    monkeypatch.setattr(_core, "Pending", Plan)


def test_findings_of_enqueued_calls_are_told(source):
    one, other = Plan(source), Plan(source)
    enqueue(one), enqueue(other), enqueue(one)
    assert one.told == 0 and ballast.last_report().verdict == "clean"
    assert (one.told, other.told) == (2, 0)  # of its earlier call, too
    ballast.synchronize()
    assert (one.told, other.told) == (2, 1)
    one.broken = True
    enqueue(one), enqueue(other)
    with pytest.raises(ballast.FaultError, match="persists"):
        ballast.synchronize()
    assert (one.told, other.told) == (3, 2)
    ballast.synchronize()  # told once
    assert ballast.last_report().verdict == "clean"


def test_all_is_told_after_many_calls(source, monkeypatch):
    one, other = Plan(source), Plan(source)
    monkeypatch.setattr(_protection, "_TOLD_AFTER", 8)
    enqueue(other)
    for _ in range(16):
        enqueue(one)
    assert one.told >= 8 and other.told == 1


def test_findings_of_a_captured_call_are_told_again_and_again(source):
    part = Plan(source)
    enqueue(part, captured=True)
    for replays in range(1, 4):
        part.calls = 1
        ballast.synchronize()
        assert part.told == replays
