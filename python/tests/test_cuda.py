"""Arrays in the memory of a CUDA device: PyTorch, CuPy, JAX, and what has __cuda_array_interface__. Needs a device and PyTorch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
import ballast
import ballast.torch as mine


def data(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0)).cuda()


def tolerance(dtype):
    return {"rtol": 2e-4, "atol": 2e-4} if dtype in (torch.float32, torch.complex64) else {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_transforms(dtype):
    x = data(4, 6, 8, dtype=dtype)
    for given in (x, x.transpose(0, 2), x[:, 1:5], x.conj()):
        for name, args in (("fft", ()), ("ifft", (11,)), ("fftn", ()), ("ifftn", ((4, 9), (0, 2))), ("irfft", ()), ("irfftn", ()), ("hfft", ())):
            made, expected = getattr(ballast.fft, name)(given, *args), getattr(torch.fft, name)(given, *args)
            assert made.device == given.device and made.dtype == expected.dtype
            assert torch.allclose(made, expected, **tolerance(dtype)), name
    real = x.real
    for name in ("rfft", "rfft2", "rfftn", "ihfft", "fft"):
        assert torch.allclose(getattr(ballast.fft, name)(real), getattr(torch.fft, name)(real), **tolerance(dtype)), name
    assert ballast.last_report().backend == "cuda" and ballast.last_report().verdict == "clean"
    with pytest.raises(ballast.UnsupportedError, match="backend"), ballast.protection(backend="cpu"):
        ballast.fft.fft(x)


def test_expanded_and_strided():
    x = data(8, dtype=torch.complex64)
    for given in (x.expand(3, 8), x[None].expand(2, 3, 8), data(8, 6, dtype=torch.complex64).T, data(16, dtype=torch.complex64)[::2]):
        for function in (ballast.fft.fft, mine.fft):
            assert torch.allclose(function(given), torch.fft.fft(given), **tolerance(torch.complex64))


def test_long_and_batched():
    for shape in ((1 << 20,), (64, 1 << 14), (3, 1000, 120), (10007,)):
        x = data(*shape, dtype=torch.complex64)
        assert torch.allclose(ballast.fft.fft(x), torch.fft.fft(x), rtol=1e-3, atol=2e-2)


def test_out_in_place_and_streams():
    x = data(64, 4096, dtype=torch.complex64)
    expected, out = torch.fft.fft(x), torch.empty_like(x)
    ballast.fft.fft(x)  # compiles
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        torch.cuda._sleep(200_000_000)
        assert ballast.fft.fft(x, out=out) is out
        assert not other.query()  # nothing has waited
    other.synchronize()
    assert torch.allclose(out, expected, rtol=1e-3, atol=1e-2)
    assert ballast.fft.fft(x, out=x) is x
    assert torch.allclose(x, expected, rtol=1e-3, atol=1e-2)
    ballast.synchronize()
    assert ballast.last_report().verdict == "clean" and ballast.last_report().checks > 0


def test_repeated_calls_on_several_streams_and_threads():
    import threading

    wrong = []

    def work(seed):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for step in range(40):
                x = torch.randn(16, 512 << (step % 3), dtype=torch.complex64, device="cuda", generator=torch.Generator("cuda").manual_seed(seed + step))
                made = mine.ifft(ballast.fft.fft(x))
                if not torch.allclose(made, x, rtol=1e-3, atol=1e-3):
                    wrong.append((seed, step))

    threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    ballast.synchronize()
    assert not wrong


def test_a_graph_is_captured_and_replayed():
    x, out = data(32, 1024, dtype=torch.complex64), torch.empty(32, 1024, dtype=torch.complex64, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        ballast.fft.fft(x, out=out)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        ballast.fft.fft(x, out=out)
    for seed in range(3):
        x.copy_(torch.randn(32, 1024, dtype=torch.complex64))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.allclose(out, torch.fft.fft(x), rtol=1e-3, atol=1e-2)
        assert ballast.last_report().verdict == "clean"
    ballast.synchronize()


def test_a_call_leaves_the_capture_of_another_stream():
    x = data(4, 1009, dtype=torch.complex64)
    expected, out, counter = torch.fft.fft(x), torch.empty_like(x), torch.zeros(1000, device="cuda")
    capturing, other = torch.cuda.Stream(), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    # In this mode an allocation by any thread ends the capture, unless the thread says that it does not belong to it.
    with torch.cuda.graph(graph, stream=capturing, capture_error_mode="global"):
        counter += 1
        with torch.cuda.stream(other):
            ballast.fft.fft(x, out=out)  # a first call: it allocates and loads kernels
        counter += 1
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    ballast.synchronize()
    assert (counter == 6).all() and ballast.last_report().verdict == "clean"
    assert torch.allclose(out, expected, rtol=1e-3, atol=1e-2)


def test_operators_gradients_and_compilation():
    for op, given in ((torch.ops.ballast.fft_c2c, (data(2, 3, 5, dtype=torch.complex128), [-1], 0, True)),
                      (torch.ops.ballast.fft_r2c, (data(3, 7), -1, 2)),
                      (torch.ops.ballast.fft_c2r, (data(3, 4, dtype=torch.complex128), -1, 0, 7)), (torch.ops.ballast.qr, (data(5, 3),))):
        given = (given[0].clone().requires_grad_(), *given[1:])
        torch.library.opcheck(op.default, given)

        def function(x):
            made = op(x, *given[1:])
            if op is not torch.ops.ballast.qr:
                return made
            signs = torch.sign(made[1].diagonal(dim1=-2, dim2=-1)).detach()
            return made[0] * signs[..., None, :], made[1] * signs[..., None]

        torch.autograd.gradcheck(function, (given[0],))
    x = data(4, 64)
    compiled = torch.compile(lambda a: mine.irfft(mine.rfft(a) * 2, 64), fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x), 2 * x)
    assert torch.allclose(torch.func.vmap(mine.rfft, in_dims=1)(data(4, 6, 8)), torch.fft.rfft(data(4, 6, 8).movedim(1, 0)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_qr_and_least_squares(dtype):
    near = {"rtol": 1e-3, "atol": 1e-3} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-9}
    for shape in ((300, 40), (40, 300), (20, 30, 30), (2, 3, 8, 5), (600, 600)):
        a = data(*shape, dtype=dtype)
        for mode in ("reduced", "complete"):
            q, r = ballast.linalg.qr(a, mode)
            assert q.device == a.device and torch.allclose(q @ r, a, **near) and torch.equal(r, r.triu())
            assert torch.allclose(q.mT @ q, torch.eye(q.shape[-1], dtype=dtype, device="cuda"), **near)
    for m, n in ((500, 40), (40, 500)):
        a, b = data(m, n, dtype=dtype), data(m, 3, dtype=dtype)
        seen = ballast.linalg.lstsq(a, b)
        assert torch.allclose(seen.x, torch.linalg.pinv(a) @ b, **near)
        assert torch.allclose(seen.s, torch.linalg.svdvals(a), **near) and seen.rank == 40
    with pytest.raises(ballast.RankDeficientError):
        ballast.linalg.lstsq(torch.ones(50, 2, device="cuda", dtype=dtype), torch.ones(50, device="cuda", dtype=dtype))


def test_kmeans():
    pytest.importorskip("sklearn")
    from ballast.sklearn import KMeans

    centres = 20 * torch.randn(5, 16, generator=torch.Generator().manual_seed(1))
    points = (centres.repeat_interleave(400, 0) + torch.randn(2000, 16, generator=torch.Generator().manual_seed(2))).cuda()
    model = KMeans(5, n_init=3, random_state=0).fit(points)
    assert model.labels_.device == points.device and model.cluster_centers_.dtype == torch.float32
    on_host = KMeans(5, n_init=3, random_state=0).fit(points.cpu().numpy())
    assert abs(model.inertia_ / on_host.inertia_ - 1) < 1e-4
    assert torch.equal(model.predict(points), model.labels_)
    distances = torch.cdist(points.double(), model.cluster_centers_.double())
    assert torch.allclose(model.transform(points).double(), distances, rtol=1e-3, atol=1e-3)
    assert torch.equal(distances.argmin(1).int(), model.labels_)
    assert model.report_.backend == "cuda" and model.report_.verdict == "clean"
    given = KMeans(5, init=centres.numpy(), max_iter=5).fit(points, sample_weight=torch.ones(2000, device="cuda"))
    assert abs(given.inertia_ / on_host.inertia_ - 1) < 1e-4 and given.score(points) == pytest.approx(-given.inertia_, rel=1e-5)
    with pytest.raises(ValueError, match="features"):
        model.predict(points[:, :3])
    with pytest.raises(ValueError, match="n_clusters"):
        KMeans(9).fit(points[:4])


def test_cupy():
    cupy = pytest.importorskip("cupy")
    x = cupy.random.standard_normal((4, 6, 8)) + 0j
    for given in (x, x.transpose(2, 0, 1), x[:, ::2]):
        for name in ("fft", "ifftn", "irfft", "hfft"):
            made = getattr(ballast.fft, name)(given)
            assert isinstance(made, cupy.ndarray) and cupy.allclose(made, getattr(cupy.fft, name)(given))
    a = cupy.random.standard_normal((50, 7))
    q, r = ballast.linalg.qr(a)
    assert isinstance(q, cupy.ndarray) and cupy.allclose(q @ r, a)
    assert cupy.allclose(ballast.linalg.lstsq(a, a[:, 0]).x, cupy.eye(7)[0])
    for _ in range(3):
        with cupy.cuda.Stream(non_blocking=True) as stream:
            made = ballast.fft.fft(x)
            stream.synchronize()
            assert cupy.allclose(made, cupy.fft.fft(x))
        del stream
        ballast.synchronize()


def test_jax():
    jax = pytest.importorskip("jax")
    if not any(each.platform == "gpu" for each in jax.devices()):
        pytest.skip("JAX has no device")
    x = jax.numpy.asarray(np.random.default_rng(0).standard_normal((4, 256)).astype(np.float32))
    made = ballast.fft.rfft(x)
    assert isinstance(made, jax.Array) and np.allclose(made, np.fft.rfft(np.asarray(x)), atol=1e-3)
    q, r = ballast.linalg.qr(x.T)
    assert isinstance(q, jax.Array) and np.allclose(np.asarray(q) @ np.asarray(r), x.T, atol=1e-3)  # JAX would multiply in TF32


def test_cuda_array_interface():
    class Interface:
        def __init__(self, of):
            self.of = of

        @property
        def __cuda_array_interface__(self):
            return self.of.__cuda_array_interface__

    x = data(4, 64)
    made = ballast.fft.rfft(Interface(x))
    assert np.allclose(made.get() if hasattr(made, "get") else made.cpu(), np.fft.rfft(x.cpu()))
