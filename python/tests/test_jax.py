"""ballast.jax beside jnp.fft and jnp.linalg in double precision: eager, jit, vmap, derivatives, reports and faults. On a GPU too, where
JAX has one."""

import logging
import time

import numpy as np
import pytest

jax = pytest.importorskip("jax")
# Programs run in the thread that calls them, where the tests arm faults. JAX reads this when it makes the client of the processor.
jax.config.update("jax_cpu_enable_async_dispatch", False)
import ballast

if not hasattr(ballast._core, "jax_handlers"):
    pytest.skip("this build has no handlers for JAX", allow_module_level=True)

import jax.numpy as jnp

import ballast.jax as mine


@pytest.fixture(autouse=True)
def double_precision():
    with jax.experimental.enable_x64() if hasattr(jax.experimental, "enable_x64") else jax.enable_x64():
        yield
    ballast.last_report()


def data(*shape, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    made = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        made = made + 1j * rng.standard_normal(shape)
    return jnp.asarray(made.astype(dtype))


def close(seen, expected, dtype=np.float64):
    # Transforms of these lengths err by less than 10 u ‖y‖; sums of gradients add some units.
    limit = 64 * np.finfo(dtype).eps
    seen, expected = np.asarray(seen), np.asarray(expected)
    assert seen.shape == expected.shape
    assert np.linalg.norm(seen - expected) <= limit * max(np.linalg.norm(expected), 1e-30)


CALLS = [("fft", True, {}), ("fft", False, {"n": 5, "axis": 1}), ("ifft", True, {"n": 11, "norm": "ortho"}), ("rfft", False, {}),
         ("rfft", False, {"axis": 0, "n": 4, "norm": "forward"}), ("irfft", True, {}), ("irfft", True, {"n": 9, "axis": 1, "norm": "ortho"}),
         ("irfft", True, {"n": 21}), ("hfft", True, {"norm": "ortho"}), ("ihfft", False, {"n": 7}), ("fft2", True, {"norm": "forward"}),
         ("ifft2", True, {"s": (4, 9)}), ("rfft2", False, {}), ("irfft2", True, {"s": (7, 5)}), ("fftn", True, {}),
         ("ifftn", True, {"axes": (2, 0), "norm": "ortho"}), ("rfftn", False, {"axes": (2, 0, 1)}), ("irfftn", True, {"norm": "forward"}),
         ("fftn", True, {"s": (2, 5), "axes": (0, 1)})]


@pytest.mark.parametrize("name, of_complex, how", CALLS)
def test_transforms(name, of_complex, how):
    x = data(3, 6, 8, dtype=np.complex128 if of_complex else np.float64)
    transform = lambda v: getattr(mine, name)(v, **how)
    expected = getattr(np.fft, name)(np.asarray(x), **how)
    compiled = jax.jit(transform)
    close(transform(x), expected)
    close(compiled(x), expected)
    single = transform(x.astype(np.complex64 if of_complex else np.float32))
    assert single.dtype in (np.float32, np.complex64)
    close(single, expected, np.float32)
    stack = jnp.stack([x, 2 * x, x - 1], axis=2)
    seen = jax.jit(jax.vmap(transform, in_axes=2, out_axes=1))(stack)
    close(seen, np.stack([compiled(x), compiled(2 * x), compiled(x - 1)], axis=1))


@pytest.mark.parametrize("name, of_complex, how", [CALLS[i] for i in (1, 4, 6, 7, 9, 14, 15, 17)])
def test_derivatives_of_transforms(name, of_complex, how):
    """jnp.fft has the same derivatives, by other formulas."""
    x, t = (data(3, 4, 6, dtype=np.complex128 if of_complex else np.float64, seed=seed) for seed in (1, 2))
    f, g = (lambda v: getattr(mine, name)(v, **how)), (lambda v: getattr(jnp.fft, name)(v, **how))
    (y, of_y), (z, of_z) = jax.jvp(f, (x,), (t,)), jax.jvp(g, (x,), (t,))
    close(y, z)
    close(of_y, of_z)
    cotangent = data(*y.shape, dtype=y.dtype, seed=3)
    close(jax.vjp(f, x)[1](cotangent)[0], jax.vjp(g, x)[1](cotangent)[0])


@pytest.mark.parametrize("name, of_complex", [("fft", True), ("rfft2", False), ("irfft", True)])
def test_second_derivatives_of_transforms(name, of_complex):
    x, t = (data(3, 5, dtype=np.complex128 if of_complex else np.float64, seed=seed) for seed in (1, 2))
    loss = lambda library: lambda v: jnp.sum(jnp.abs(getattr(library, name)(v)) ** 4)
    mixed = lambda library: jax.jit(lambda v: jax.jvp(jax.grad(loss(library)), (v,), (t,))[1])(x)
    close(mixed(mine), mixed(jnp.fft))
    twice = lambda library: jax.jit(jax.grad(lambda v: jnp.sum(jnp.abs(jax.grad(loss(library))(v)) ** 2)))(x)
    close(twice(mine), twice(jnp.fft))


def test_transforms_of_other_types_and_sizes():
    assert mine.fft(jnp.arange(6)).dtype == np.complex128
    assert mine.rfft(jnp.ones(6, jnp.float16)).dtype == np.complex64
    assert mine.fft(jnp.zeros((0, 4))).shape == (0, 4) and mine.rfft(jnp.zeros((0, 4))).shape == (0, 3)
    close(mine.fftn(data(2, 3, 4, 5, dtype=np.complex128)), np.fft.fftn(np.asarray(data(2, 3, 4, 5, dtype=np.complex128))))
    for wrong in (lambda: mine.fft(jnp.ones(4), norm="both"), lambda: mine.fft(jnp.ones(4), axis=1), lambda: mine.fft(jnp.ones(4), n=0),
                  lambda: mine.fftn(jnp.ones((4, 4)), axes=(0, 0)), lambda: mine.irfft(jnp.ones(1))):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(TypeError):
        mine.rfft(jnp.ones(4, jnp.complex64))


def signed(factors):
    """Q and R with a positive diagonal of R, which makes them unique."""
    def compute(a):
        q, r = factors(a)
        signs = jax.lax.stop_gradient(jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1)))
        return q * signs[..., None, :], r * signs[..., None]

    return compute


@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (5, 5), (2, 3, 3, 5)])
def test_qr(shape):
    a, t = data(*shape), data(*shape, seed=1)
    k = min(shape[-2:])
    for factors in (mine.qr, jax.jit(mine.qr)):
        q, r = factors(a)
        assert type(factors(a)).__name__ == "QRResult" and q.shape == (*shape[:-1], k) and r.shape == (*shape[:-2], k, shape[-1])
        close(q @ r, a)
        close(q.mT @ q, np.broadcast_to(np.eye(k), (*shape[:-2], k, k)))
        assert np.array_equal(r, np.triu(r))
    assert np.array_equal(mine.qr(a, mode="r"), r)
    mapped = jax.vmap(signed(mine.qr), in_axes=1)(jnp.stack([a, t], axis=1)) if len(shape) > 2 else jax.vmap(signed(mine.qr))(jnp.stack([a, t]))
    for seen, one, two in zip(mapped, signed(mine.qr)(a), signed(mine.qr)(t)):
        axis = 0
        close(seen, jnp.stack([one, two], axis=axis))
    factors, step = signed(mine.qr), 1e-6
    _, tangents = jax.jvp(factors, (a,), (t,))
    for tangent, above, below in zip(tangents, factors(a + step * t), factors(a - step * t)):
        # A central difference is wrong by O(step²) and by rounding / step.
        assert np.allclose(tangent, (above - below) / (2 * step), rtol=1e-5, atol=1e-5 * np.abs(tangent).max() + 1e-9)
    weights = data(*shape[:-1], k, seed=2)
    loss = lambda v: jnp.sum(factors(v)[0] * weights) + jnp.sum(factors(v)[1] ** 3)
    gradient = jax.jit(jax.grad(loss))(a)
    assert np.allclose(jnp.sum(gradient * t), jax.jvp(loss, (a,), (t,))[1], rtol=1e-10)
    with pytest.raises(TypeError):
        mine.qr(a + 0j)


def test_qr_in_single_precision_and_without_elements():
    a = data(40, 9, dtype=np.float32)
    q, r = jax.jit(mine.qr)(a)
    assert q.dtype == np.float32
    close(np.asarray(q) @ np.asarray(r), a, np.float32)  # JAX multiplies by TF32 on some devices
    for shape in ((0, 3), (3, 0), (0, 4, 2)):
        q, r = mine.qr(jnp.zeros(shape))
        assert q.shape == (*shape[:-1], min(shape[-2:])) and r.shape == (*shape[:-2], min(shape[-2:]), shape[-1])


@pytest.mark.parametrize("shape, right", [((20, 4), (20,)), ((20, 4), (20, 3)), ((6, 6), (6, 2)), ((4, 9), (4,))])
def test_lstsq(shape, right):
    a, b = data(*shape), data(*right, seed=1)
    expected = np.linalg.lstsq(np.asarray(a), np.asarray(b))
    for solve in (mine.lstsq, jax.jit(mine.lstsq)):
        x, residuals, rank, s = solve(a, b)
        assert np.allclose(x, expected[0], rtol=1e-10, atol=1e-12) and rank == min(shape) and np.allclose(s, expected[3])
        assert residuals.shape == expected[1].shape and np.allclose(residuals, expected[1])
    stack = jax.vmap(lambda v, w: mine.lstsq(v, w).x)(jnp.stack([a, 2 * a]), jnp.stack([b, b]))
    assert np.allclose(stack[1], expected[0] / 2)
    close(jax.vmap(lambda w: mine.lstsq(a, w).x)(jnp.stack([b, b]))[1], stack[0], np.float32)
    with pytest.raises(Exception, match="rank"):
        jax.block_until_ready(mine.lstsq(a.at[:, 1].set(a[:, 0]) if shape[0] >= shape[1] else a.at[1].set(a[0]), b).x)


def test_kmeans():
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((5, 6)) * 10
    points = jnp.asarray(centres[rng.integers(5, size=400)] + rng.standard_normal((400, 6)))
    first = jnp.asarray(centres + rng.standard_normal((5, 6)))
    for fit in (mine.fit, jax.jit(mine.fit)):
        centroids, labels = fit(points, first)
        distances = np.linalg.norm(np.asarray(points)[:, None] - np.asarray(centroids)[None], axis=2)
        assert np.array_equal(labels, np.argmin(distances, axis=1))
        means = np.stack([np.asarray(points)[np.asarray(labels) == j].mean(axis=0) for j in range(5)])
        assert np.allclose(centroids, means, rtol=1e-10)
        assert np.array_equal(jax.jit(mine.predict)(points, centroids), labels)
    assert np.array_equal(jax.vmap(mine.predict, in_axes=(0, None))(jnp.stack([points, points[::-1]]), centroids)[1], labels[::-1])
    with pytest.raises(ValueError):
        mine.predict(points, first[:, :3])


def told(checks):
    """The first of the reports that have these checks in all. A device is asked when its stream has passed the work: a report may have a
    part of it, the next one the rest."""
    last = first = ballast.last_report()
    total, end = first.checks, time.monotonic() + 60
    while total < checks and time.monotonic() < end:
        time.sleep(0.001)
        seen = ballast.last_report()
        total += seen.checks if seen is not last else 0
        last = seen
    assert total == checks and last.verdict == "clean"
    assert ballast.last_report() is last  # nothing has ended since
    return first


def test_reports_of_compiled_programs():
    x = data(64, 50, dtype=np.complex128)
    program, forward = jax.jit(lambda v: mine.ifft(mine.fft(v))), jax.jit(mine.fft)
    jax.block_until_ready([program(x), forward(x)])
    ballast.last_report()
    jax.block_until_ready(forward(x))
    one = 2 * ballast.last_report().checks  # of a program: its transforms have as many checks each
    assert one > 0
    for _ in range(3):
        jax.block_until_ready(program(x))
    report = told(3 * one)
    assert report.verdict == "clean" and report.problem == "fft_c2c_f64_n50_b64_fwd"
    jax.block_until_ready(program(x))
    told(one)
    with ballast.protection("off"):
        jax.block_until_ready(jax.jit(lambda v: mine.fft(v) + 1)(x))
        jax.block_until_ready(program(x))  # compiled with protection
    assert told(one).protection == "off"
    ballast.fft.fft(np.ones(4))
    assert ballast.last_report().problem == "fft_c2c_f64_n4_b1_fwd"


@pytest.fixture
def here():
    """The processor, also where JAX has a GPU: faults are armed for the host's threads."""
    with jax.default_device(jax.devices("cpu")[0]):
        yield


@pytest.mark.parametrize("site, call", [
    ("fft.stage", lambda: mine.fft(data(16, 64, dtype=np.complex128))), ("fft.stage", lambda: mine.rfft(data(16, 64))),
    ("fft.stage", lambda: mine.irfft(data(16, 33, dtype=np.complex128))), ("qr.trailing", lambda: mine.qr(data(200, 150))[1]),
    ("kmeans.product", lambda: mine.predict(data(300, 8), data(7, 8, seed=1)))])
def test_faults(faults, here, caplog, site, call):
    expected = np.asarray(call())
    ballast.last_report()
    faults(f"site={site},model=bit_flip,bit=62,seed=3")
    with caplog.at_level(logging.WARNING, "ballast"):
        repaired = np.asarray(call())
        report = ballast.last_report()
    assert report.detected == 1 and report.verdict in ("corrected", "recomputed") and len(caplog.records) == 1
    assert np.allclose(repaired, expected, rtol=1e-10, atol=1e-10)

    def reaches_the_output(seed):  # a label keeps its value if the struck product is not that of a near centroid
        faults(f"site={site},model=bit_flip,bit=62,seed={seed}")
        with ballast.protection("off"):
            return not np.allclose(np.asarray(call()), expected, rtol=1e-10, atol=1e-10, equal_nan=True)

    assert any(reaches_the_output(seed) for seed in range(3, 15))
    faults(f"site={site},model=bit_flip,bit=62,seed=3")
    with ballast.protection("detect"):
        with pytest.raises(jax.errors.JaxRuntimeError, match="could not be repaired"):
            jax.block_until_ready(call())
    assert ballast.last_report().verdict == "uncorrectable"
    faults(f"site={site},model=bit_flip,bit=62,seed=3")
    jax.block_until_ready(call())
    with ballast.protection(on_fault="raise"), pytest.raises(ballast.FaultError) as raised:
        ballast.last_report()
    assert raised.value.report.detected == 1
