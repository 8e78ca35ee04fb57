"""ballast.fft against NumPy's transforms in long double, and its rules for types, shapes, memory, plans and threads."""

import concurrent.futures
import itertools
import threading

import numpy as np
import pytest

import ballast
from ballast.fft import _engine

LENGTHS = [1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 30, 31, 64, 97, 100, 127, 128, 210, 251, 256, 1000, 1021, 1024, 2187, 4096, 5003]


def tolerance(points, dtype):
    """The relative error in the 2-norm that rounding can explain. One transform of N points has at most 5 u (log₂ N + 1) (Higham, chapter
    24, radix 2; mixed radices less a point). Lengths with large primes pass through two transforms of up to 4 N points and two products."""
    u = np.finfo(dtype).eps / 2
    return 5 * u * 3 * (np.log2(4 * points) + 1)


def check(seen, expected, points):
    assert seen.shape == expected.shape
    wide = np.clongdouble if seen.dtype.kind == "c" else np.longdouble
    error = np.linalg.norm((seen.astype(wide) - expected.astype(wide)).ravel())
    assert error <= tolerance(points, seen.dtype) * np.linalg.norm(expected.ravel())


def random(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    made = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        made = made + 1j * rng.standard_normal(shape)
    return made.astype(dtype)


def wide(a):
    return a.astype(np.clongdouble if a.dtype.kind == "c" else np.longdouble)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name, dtype, result", [
    ("fft", np.complex64, np.complex64), ("ifft", np.complex128, np.complex128), ("fft", np.float64, np.complex128),
    ("rfft", np.float32, np.complex64), ("rfft", np.float64, np.complex128), ("ihfft", np.float64, np.complex128)])
def test_one_axis(name, n, dtype, result):
    a = random((3, n), dtype, n)
    for norm in ("backward", "ortho", "forward"):
        seen = getattr(ballast.fft, name)(a, norm=norm)
        assert seen.dtype == result
        check(seen, getattr(np.fft, name)(wide(a), norm=norm), n)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name, dtype, result", [("irfft", np.complex64, np.float32), ("irfft", np.complex128, np.float64),
                                                 ("hfft", np.complex128, np.float64)])
def test_one_axis_to_real(name, n, dtype, result):
    a = random((3, n // 2 + 1), dtype, n)
    for norm in (None, "ortho", "forward"):
        seen = getattr(ballast.fft, name)(a, n, norm=norm)
        assert seen.dtype == result
        check(seen, getattr(np.fft, name)(wide(a), n, norm=norm), n)


SHAPE = (3, 4, 5, 6, 2)


@pytest.mark.parametrize("axes", [axes for count in range(1, 6) for axes in itertools.combinations(range(5), count)][::2] +
                         [(3, 0), (4, 1, 2), (2, 0, 4, 1), (-1, 0)])
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
def test_several_axes_of_any_rank(name, axes):
    a = random(SHAPE, np.float64 if name == "rfftn" else np.complex128, len(axes))
    for order in "CF":
        given = np.asarray(a, order=order)
        seen = getattr(ballast.fft, name)(given, axes=axes)
        check(seen, getattr(np.fft, name)(wide(a), axes=axes), a.size)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
@pytest.mark.parametrize("s", [(2, 7), (6, 3), (-1, 4)])
def test_cropped_and_padded(name, s):
    a = random((4, 5, 6), np.float64 if name == "rfftn" else np.complex128)
    check(getattr(ballast.fft, name)(a, s=s, axes=(2, 0)), getattr(np.fft, name)(wide(a), s=s, axes=(2, 0)), a.size)


def test_repeated_axes_are_transformed_again():
    a = random((4, 5), np.complex128)
    check(ballast.fft.fftn(a, axes=(0, 1, 0)), np.fft.fftn(wide(a), axes=(0, 1, 0)), 80)
    b = random((4, 5), np.float64)
    check(ballast.fft.rfftn(b, axes=(0, 0, 1)), np.fft.rfftn(wide(b), axes=(0, 0, 1)), 80)


def test_hermitian_over_several_axes_are_scipys():
    scipy_fft = pytest.importorskip("scipy.fft")
    a, b = random((3, 4, 5), np.complex128), random((3, 4, 5), np.float64)
    for name, given in (("hfft2", a), ("hfftn", a), ("ihfft2", b), ("ihfftn", b)):
        for norm in (None, "ortho", "forward"):
            check(getattr(ballast.fft, name)(given, norm=norm), getattr(scipy_fft, name)(given, norm=norm), 120)
    check(ballast.fft.hfftn(a, s=(3, 6)), scipy_fft.hfftn(a, s=(3, 6)), 120)


@pytest.mark.parametrize("step", [2, -1, 3])
def test_strided_and_reversed_views(step):
    a = random((30, 36), np.complex128)[::step, ::step]
    for axis in (0, 1):
        check(ballast.fft.fft(a, axis=axis), np.fft.fft(wide(a), axis=axis), 36)
    real = random((30, 36), np.float64)[::step, ::step]
    check(ballast.fft.rfft2(real), np.fft.rfft2(wide(real)), 1080)


def test_views_of_records_broadcasts_and_other_byte_orders():
    records = np.zeros(40, np.dtype([("a", "i1"), ("z", "c16"), ("b", "f4")]))
    records["z"] = random(40, np.complex128)
    check(ballast.fft.fft(records["z"]), np.fft.fft(wide(records["z"])), 40)
    repeated = np.broadcast_to(random(24, np.complex128), (5, 24))
    check(ballast.fft.fft(repeated), np.fft.fft(wide(repeated)), 24)
    check(ballast.fft.fft2(repeated), np.fft.fft2(wide(repeated)), 120)
    swapped = random(24, np.float64).astype(">f8")
    check(ballast.fft.rfft(swapped), np.fft.rfft(wide(swapped)), 24)
    frozen = random(24, np.complex128)
    frozen.flags.writeable = False
    check(ballast.fft.fft(frozen), np.fft.fft(wide(frozen)), 24)


@pytest.mark.parametrize("dtype, result", [(np.float16, np.complex64), (np.int8, np.complex128), (bool, np.complex128),
                                           (np.uint64, np.complex128), (np.float32, np.complex64)])
def test_types(dtype, result):
    a = np.array([1, 0, 1, 1, 0], dtype)
    for name in ("fft", "rfft", "ihfft"):
        assert getattr(ballast.fft, name)(a).dtype == result
        check(getattr(ballast.fft, name)(a), getattr(np.fft, name)(a.astype(np.float64)), 5)


def test_refused_types():
    for dtype in (np.longdouble, np.clongdouble):
        with pytest.raises(ballast.UnsupportedTypeError, match="float64"):
            ballast.fft.fft(np.ones(4, dtype))
    for wrong in (np.array(["a", "b"]), np.array([1, None]), np.array([1, 2], "M8[s]")):
        with pytest.raises(TypeError):
            ballast.fft.fft(wrong)
    with pytest.raises(TypeError, match="real sequence"):
        ballast.fft.rfft(np.ones(4, complex))


def test_infinities_and_nans_are_no_faults():
    a = random(64, np.complex128)
    a[3] = np.nan
    seen = ballast.fft.fft(a)
    assert np.isnan(seen).all() and ballast.last_report().detected == 0


def test_empty_batches_and_no_points():
    assert ballast.fft.fft(np.ones((0, 5))).shape == (0, 5)
    assert ballast.fft.rfftn(np.ones((3, 0, 5)), axes=(0, 2)).shape == (3, 0, 3)
    with pytest.raises(ValueError, match="Invalid number of FFT data points"):
        ballast.fft.fft(np.ones((5, 0)))
    with pytest.raises(ValueError, match="Invalid number of FFT data points"):
        ballast.fft.irfft(np.ones(1))


def test_out_that_overlaps_the_input():
    a = random((8, 12), np.complex128)
    for view, other in ((lambda b: b, lambda b: b), (lambda b: b[:-1], lambda b: b[1:]), (lambda b: b[::2], lambda b: b[1::2]),
                        (lambda b: b[:8, :8], lambda b: b[:8, :8].T)):
        memory = a.copy()
        expected = np.fft.fft2(wide(view(memory)))
        out = other(memory)
        assert ballast.fft.fft2(view(memory), out=out) is out
        check(out, expected, 96)
    memory = np.zeros(18, np.float64)
    memory[:16] = random(16, np.float64)
    expected = np.fft.rfft(wide(memory[:16]))
    check(ballast.fft.rfft(memory[:16], out=memory.view(np.complex128)), expected, 16)


def test_out_of_another_type():
    a = random(16, np.complex64)
    out = np.empty(16, np.complex128)
    assert ballast.fft.fft(a, out=out) is out
    check(out.astype(np.complex64), np.fft.fft(wide(a)), 16)
    with pytest.raises(TypeError, match="Cannot cast"):
        ballast.fft.fft(a, out=np.empty(16))
    with pytest.raises(TypeError, match="ArrayType"):
        ballast.fft.fft(a, out=[0] * 16)
    with pytest.raises(ValueError, match="wrong shape"):
        ballast.fft.fft(a, out=np.empty(15, complex))
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        ballast.fft.fft(a, out=out)


def test_overwrite_uses_the_memory_of_the_input_only_if_asked():
    a = random(256, np.complex128)
    kept = a.copy()
    ballast.fft.fft(a)
    assert np.array_equal(a, kept)
    assert ballast.fft.fft(a, overwrite_x=True) is a
    check(a, np.fft.fft(wide(kept)), 256)


def test_workers_is_the_number_of_threads_and_changes_no_bit():
    a = random((64, 1000), np.complex128)
    expected = ballast.fft.fft(a)
    for workers in (1, 2, -1):
        assert np.array_equal(ballast.fft.fft(a, workers=workers), expected)
    for wrong in (0, -10000):
        with pytest.raises(ValueError, match="workers"):
            ballast.fft.fft(a, workers=wrong)
    with pytest.raises(TypeError):
        ballast.fft.fft(a, workers="all")


def test_axis_out_of_range_is_numpys_error():
    for axis in (2, -3):
        with pytest.raises(np.exceptions.AxisError):
            ballast.fft.fft(np.ones((2, 2)), axis=axis)
    with pytest.raises(ValueError, match="different lengths"):
        ballast.fft.fftn(np.ones((2, 2)), s=(2,), axes=(0, 1))


def test_plans_are_kept_and_bounded():
    ballast.fft.clear_plans()
    cache = _engine.plans
    before = cache.misses
    for _ in range(3):
        ballast.fft.fft(np.ones(96))
    assert cache.misses == before + 1 and len(cache) == 1
    small = type(cache)(most_plans=3, most_elements=100)
    for n in range(10):
        assert small.get((n,), 20, lambda n: n) == n
    assert len(small) == 3
    small.get((99,), 90, lambda n: n)
    assert len(small) == 1
    small.get((100,), 1000, lambda n: n)  # one that is too large by itself serves its call and is not kept
    assert len(small) == 0 and small._elements == 0


def test_threads_share_plans():
    ballast.fft.clear_plans()
    a = random((4, 500), np.complex128)
    expected = {n: ballast.fft.fft(a, n) for n in range(490, 500)}
    wrong = []

    def work(seed):
        for n in np.random.default_rng(seed).integers(490, 500, 60):
            if not np.array_equal(ballast.fft.fft(a, int(n)), expected[int(n)]):
                wrong.append(n)
            if n == 495:
                ballast.fft.clear_plans()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_lengths_that_are_fast():
    scipy_fft = pytest.importorskip("scipy.fft")
    for n in list(range(1, 300)) + [1021, 5003, 99991]:
        for real in (False, True):
            assert ballast.fft.next_fast_len(n, real) == scipy_fft.next_fast_len(n, real)
            assert ballast.fft.prev_fast_len(n, real) == scipy_fft.prev_fast_len(n, real)
    with pytest.raises(ValueError):
        ballast.fft.next_fast_len(-1)


@pytest.mark.parametrize("shape, axis", [((40, 700, 30), 1), ((3, 50, 40), 1), ((2, 3, 4000, 5), 2), ((5000, 3, 2), 1)])
def test_middle_axes_by_runs_and_by_copies(shape, axis):
    a = random(shape, np.float64)
    check(ballast.fft.rfft(a, axis=axis), np.fft.rfft(wide(a), axis=axis), shape[axis])
    z = random(shape, np.complex128)
    check(ballast.fft.ifft(z, axis=axis), np.fft.ifft(wide(z), axis=axis), shape[axis])


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "rfft2", "fftn", "ifftn", "rfftn"])
@pytest.mark.parametrize("single", [False, True])
def test_repeated_calls(name, single):
    """The second call of a shape is found by the extension: it sees which arrays are others, and keeps the settings apart."""
    ballast.fft.clear_plans()
    real = name.startswith("rfft")
    dtype = {(True, False): np.float64, (True, True): np.float32, (False, False): np.complex128, (False, True): np.complex64}[real, single]
    x = random((3, 4, 6), dtype)
    transform, limit = getattr(ballast.fft, name), 64 * np.finfo(dtype).eps
    first = transform(x)

    class Other(np.ndarray):
        pass

    bytes_ = np.empty(x.nbytes + 1, np.uint8)[1:]
    bytes_[...] = x.view(np.uint8).reshape(-1)
    for a in (x, x.copy(), x[::-1], x[:, ::2], x.transpose(1, 0, 2), np.asfortranarray(x), x.view(Other), x.astype(x.dtype.newbyteorder()),
              bytes_.view(dtype).reshape(x.shape), x[:2], x[0], x[None, :, None], x.reshape(3, 2, 2, 6), x.tolist()):
        if name in ("fft2", "ifft2", "rfft2") and np.ndim(a) < 2:
            continue
        expected = getattr(np.fft, name)(np.asarray(a))
        for _ in range(3):
            seen = transform(a)
            assert seen.shape == expected.shape and np.linalg.norm(seen - expected) <= limit * np.linalg.norm(expected)
            assert type(seen) is np.ndarray and not np.may_share_memory(seen, x)
    for _ in range(2):
        with ballast.protection("off"):
            off = transform(x)
            assert ballast.last_report().protection == "off" and ballast.last_report().checks == 0
        again = transform(x)
        report = ballast.last_report()
        assert report is ballast.last_report() and report.protection == "correct" and report.checks > 0
        assert np.array_equal(again, first) and np.allclose(off, first, rtol=1e-3)
    ballast.fft.clear_plans()
    assert np.array_equal(transform(x), first)
    with pytest.raises(ballast.UnsupportedTypeError):
        transform(x.real.astype(np.longdouble))


def test_more_repeated_calls_than_are_kept():
    for _ in range(2):
        for n in range(1, 700):
            assert ballast.fft.fft(np.ones(n, complex))[0] == pytest.approx(n)


def test_repeated_calls_of_threads():
    x = random((64,), np.complex128)
    expected = ballast.fft.fft(x)

    def work(number):
        for _ in range(200):
            assert np.array_equal(ballast.fft.fft(x), expected) and ballast.last_report().verdict == "clean"
            if number == 0:
                ballast.fft.clear_plans()
        return True

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
