"""ballast.linalg against NumPy's in double and long double, with the tolerances of Householder QR."""

import numpy as np
import pytest

import ballast

SHAPES = [(1, 1), (5, 5), (40, 7), (7, 40), (300, 33), (257, 257), (3, 60, 20), (2, 3, 8, 12), (1000, 9, 5), (2, 300, 280)]


REAL = [np.float32, np.float64]
TYPES = [*REAL, np.complex64, np.complex128]


def random(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    made = rng.standard_normal(shape)
    return (made + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else made).astype(dtype)


def wide(a):
    """In double precision."""
    return a.astype(np.result_type(a, np.float64))


def widest(a):
    """In long double."""
    return a.astype(np.result_type(a, np.longdouble))


def small(difference, a, factor=1):
    """Householder QR: ‖A − QR‖_F and ‖I − QᴴQ‖_F are at most c m n u (Higham, theorem 19.4), with c about 10, times ‖A‖_F. The bound of an
    elementary operation on complex numbers is that of real ones times at most 2 √2 (Higham, lemma 3.5)."""
    m, n = a.shape[-2:]
    bound = 10 * m * n * np.finfo(difference.dtype).eps / 2 * factor
    return (np.linalg.norm(difference, axis=(-2, -1)) <= bound * np.linalg.norm(wide(a), axis=(-2, -1))).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode, same", [("reduced", "economic"), ("complete", "full")])
def test_qr(shape, dtype, mode, same):
    a = random(shape, dtype)
    seen, expected = ballast.linalg.qr(a, mode), np.linalg.qr(a, mode)
    q, r = seen
    assert q is seen.Q and q.dtype == r.dtype == dtype and q.shape == expected.Q.shape and r.shape == expected.R.shape
    assert small((widest(q) @ widest(r) - a).astype(dtype), a)
    unit = np.eye(q.shape[-1])
    product = widest(q.swapaxes(-1, -2).conj()) @ widest(q)
    assert small((product - unit).astype(dtype), a, 1 / np.linalg.norm(wide(a), axis=(-2, -1)).min())
    assert np.array_equal(r, np.triu(r)) and not np.diagonal(r, axis1=-2, axis2=-1).imag.any()
    # Q and R are unique up to the signs of the diagonal of R. The first row of R is compared.
    assert np.allclose(np.abs(r[..., 0, :]), np.abs(expected.R[..., 0, :]), rtol=0, atol=10 * np.prod(shape[-2:]) * np.finfo(dtype).eps)
    again = ballast.linalg.qr(a, same)
    assert np.array_equal(again.Q, q) and np.array_equal(again.R, r)
    assert np.array_equal(ballast.linalg.qr(a, "r"), r[..., : min(shape[-2:]), :])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_raw_is_lapacks_storage(shape, dtype):
    a = random(shape, dtype)
    h, tau = ballast.linalg.qr(a, "raw")
    expected = np.linalg.qr(a, "raw")
    assert h.shape == expected[0].shape and tau.shape == expected[1].shape
    k = min(shape[-2:])
    v = np.tril(h.swapaxes(-1, -2)[..., :k], -1) + np.eye(shape[-2], k)
    q = np.broadcast_to(np.eye(shape[-2], dtype=dtype), (*shape[:-2], shape[-2], shape[-2])).copy()
    for j in reversed(range(k)):
        x = v[..., j, None]
        q -= tau[..., j, None, None] * x @ (x.swapaxes(-1, -2).conj() @ q)
    assert small(q @ np.triu(h.swapaxes(-1, -2)) - a, a)


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0), (0, 3, 3), (2, 0, 3)])
@pytest.mark.parametrize("mode", ["reduced", "complete", "r", "raw"])
@pytest.mark.parametrize("dtype", [float, complex])
def test_empty_matrices(shape, mode, dtype):
    seen, expected = ballast.linalg.qr(np.empty(shape, dtype), mode), np.linalg.qr(np.empty(shape, dtype), mode)
    for one, other in zip(seen if isinstance(seen, tuple) else [seen], expected if isinstance(expected, tuple) else [expected]):
        assert one.shape == other.shape and one.dtype == other.dtype and np.array_equal(one, other)


def test_inputs_stay_as_they_are_and_may_be_views():
    a = random((60, 40), np.float64)
    kept = a.copy()
    for view in (a[::2, ::3], a.T, a[::-1], np.asfortranarray(a)):
        q, r = ballast.linalg.qr(view)
        assert small(q @ r - view, view)
    ballast.linalg.lstsq(a, np.ones(60))
    assert np.array_equal(a, kept)


def _all_of(a, b):
    made = [each for mode in ("reduced", "complete", "r") for each in [ballast.linalg.qr(a, mode)]]
    return [part for each in made for part in (each if isinstance(each, tuple) else (each,))] + list(ballast.linalg.lstsq(a, b))


@pytest.mark.parametrize("shape", [(1, 1), (8, 8), (40, 7), (7, 40), (33, 32), (5, 1)])
@pytest.mark.parametrize("right", [(), (3,)])
@pytest.mark.parametrize("dtype", TYPES)
def test_the_short_road_has_the_results_of_the_general_one(shape, right, dtype):
    road = ballast.linalg._of_numpy
    settings = ballast._protection.current()
    a, b = random(shape, dtype), random((shape[0], *right), dtype, 1)
    wide_a, wide_b = random((2 * shape[0], 3 * shape[1]), dtype, 2), random((2 * shape[0], *(2 * k for k in right)), dtype, 3)
    views = wide_a[::-2, ::3], wide_b[::2, ::2] if right else wide_b[::2]
    for x, y in ((a, b), views, (np.asfortranarray(a), np.asfortranarray(b))):
        road.clear()
        assert road.factor(x, 0, settings) is None and road.solve(x, y, settings) is None
        expected = _all_of(x, y)
        assert road.factor(x, 1, settings) is not None and road.solve(x, y, settings) is not None
        seen = _all_of(x, y)
        *seen, rank, s = seen
        *expected, expected_rank, expected_s = expected
        *seen, residuals = seen
        *expected, expected_residuals = expected
        for one, other in zip(seen, expected, strict=True):
            assert np.array_equal(one, other) and one.dtype == other.dtype and one.flags.writeable
        # Sums in another order, and another function's rounding.
        assert residuals.dtype == expected_residuals.dtype and residuals.shape == expected_residuals.shape
        assert np.allclose(residuals, expected_residuals, rtol=10 * shape[0] * np.finfo(dtype).eps)
        assert rank == expected_rank and np.array_equal(s, expected_s)
        with ballast.protection("off"):  # other settings, another plan
            assert road.factor(x, 0, ballast._protection.current()) is None
    # Arrays that it does not read.
    swapped = a.astype(a.dtype.newbyteorder())
    unaligned = np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(shape)
    for other in (swapped, unaligned, a[None], a.astype(np.float16) if a.dtype.kind != "c" else a[0]):
        assert road.factor(other, 0, settings) is None
    assert np.array_equal(ballast.linalg.qr(swapped).R, ballast.linalg.qr(a).R)
    assert np.array_equal(ballast.linalg.qr(unaligned).R, ballast.linalg.qr(a).R)


def test_plans_of_large_matrices_do_not_stay():
    a = random((400, 100), np.float64)
    ballast.linalg.qr(a)
    assert ballast.linalg._of_numpy.factor(a, 0, ballast._protection.current()) is None


def test_types():
    assert ballast.linalg.qr(np.array([[1, 2], [3, 4]])).Q.dtype == np.float64
    for dtype in (np.clongdouble, np.float16, np.longdouble, object):
        with pytest.raises(TypeError) as seen:
            ballast.linalg.qr(np.ones((2, 2), dtype))
        assert isinstance(seen.value, ballast.UnsupportedError)
    single, double, integers = np.eye(2, dtype=np.float32), np.eye(2), np.eye(2, dtype=int)
    for a, b, met in ((single, single * np.complex64(1j), np.complex64), (double, single * np.complex64(1j), np.complex128),
                      (single * np.complex64(1j), integers, np.complex128), (single, double * 1j, np.complex128)):
        seen = ballast.linalg.lstsq(a, b)
        assert seen.x.dtype == met and seen.s.dtype == np.linalg.lstsq(a.astype(met), b)[3].dtype
        assert ballast.linalg.lstsq(a, b, driver="gelsy").x.dtype == met
        product, r = ballast.linalg.qr_multiply(a, b)
        assert product.dtype == r.dtype == met
    with pytest.raises(ballast.InvalidArgumentError, match="reduced"):
        ballast.linalg.qr(np.ones((2, 2)), "both")
    with pytest.raises(np.linalg.LinAlgError):
        ballast.linalg.qr(np.ones(3))


def test_report_has_both_operations():
    a = random((40, 10), np.float64)
    ballast.linalg.qr(a, "r")
    factored = ballast.last_report()
    ballast.linalg.qr(a)
    assert ballast.last_report().checks > factored.checks > 0


@pytest.mark.parametrize("m, n", [(20, 20), (50, 7), (7, 50), (300, 120), (1, 1), (5, 1), (1, 5)])
@pytest.mark.parametrize("right", [(), (1,), (4,)])
@pytest.mark.parametrize("dtype", TYPES)
def test_lstsq(m, n, right, dtype):
    a, b = random((m, n), dtype, 1), random((m, *right), dtype, 2)
    seen, expected = ballast.linalg.lstsq(a, b), np.linalg.lstsq(wide(a), wide(b))
    assert seen.residuals.dtype == seen.s.dtype == np.empty(0, dtype).real.dtype
    assert seen.rank == expected[2] and ballast.last_report().condition >= 1
    condition = expected[3][0] / expected[3][-1]
    # Higham, theorem 20.3: relative error c m n u κ (1 + κ ‖r‖ / (‖A‖‖x‖)), c about 10.
    residual = np.linalg.norm(wide(a) @ expected[0] - b) / (expected[3][0] * np.linalg.norm(expected[0]))
    bound = 10 * m * n * np.finfo(dtype).eps / 2 * condition * (1 + condition * residual)
    assert seen.x.shape == expected[0].shape and seen.x.dtype == dtype
    assert np.linalg.norm(seen.x - expected[0]) <= bound * np.linalg.norm(expected[0])
    assert seen.residuals.shape == expected[1].shape and seen.s.shape == expected[3].shape
    width = 10 * m * n * np.finfo(dtype).eps
    assert np.allclose(seen.residuals, expected[1], rtol=width, atol=width * np.square(np.abs(b)).sum())
    assert np.allclose(seen.s, expected[3], rtol=0, atol=width * expected[3][0])


@pytest.mark.parametrize("m, n, k", [(0, 3, 2), (3, 0, 2), (4, 3, 0), (3, 4, 0), (0, 0, 1)])
def test_lstsq_of_nothing(m, n, k):
    a, b = random((m, n), np.float64), random((m, k), np.float64)
    seen, expected = ballast.linalg.lstsq(a, b), np.linalg.lstsq(a, b)
    for one, other in zip(seen, expected):
        assert np.shape(one) == np.shape(other) and np.allclose(one, other)


def test_lstsq_without_full_rank_says_the_rank():
    a = random((30, 6), np.float64)
    a[:, 4] = a[:, 1] + a[:, 2]
    with pytest.raises(ballast.RankDeficientError, match="rank 5 of 6") as seen:
        ballast.linalg.lstsq(a, np.ones(30))
    assert seen.value.rank == 5 and isinstance(seen.value, np.linalg.LinAlgError)
    nearly = random((30, 2), np.float64) * [1, 1e-9]
    assert ballast.linalg.lstsq(nearly, np.ones(30)).rank == 2
    with pytest.raises(ballast.RankDeficientError) as seen:
        ballast.linalg.lstsq(nearly, np.ones(30), rcond=1e-6)
    assert seen.value.rank == 1


def test_lstsq_refuses():
    for a, b in ((np.ones(3), np.ones(3)), (np.ones((3, 2)), np.ones(4)), (np.ones((3, 2)), np.ones((3, 1, 1)))):
        with pytest.raises(np.linalg.LinAlgError):
            ballast.linalg.lstsq(a, b)
    with pytest.raises(TypeError):
        ballast.linalg.lstsq(np.ones((3, 2), np.clongdouble), np.ones(3))
    with pytest.raises(ballast.RankDeficientError) as seen:
        ballast.linalg.lstsq(np.ones((3, 2)) * 1j, np.ones(3))
    assert seen.value.rank == 1


@pytest.mark.parametrize("shape", [(1, 1), (40, 7), (7, 40), (120, 120)])
@pytest.mark.parametrize("dtype", TYPES)
def test_qr_with_pivoting(shape, dtype):
    a = random(shape, dtype)
    for mode in ("reduced", "complete"):
        q, r, order = ballast.linalg.qr(a, mode, pivoting=True)
        assert np.array_equal(np.sort(order), np.arange(shape[1]))
        assert q.dtype == r.dtype == dtype and not np.diag(r).imag.any()
        assert small((widest(q) @ widest(r) - a[:, order]).astype(dtype), a)
        for k in range(min(shape)):
            assert np.linalg.norm(wide(r[k:, k:]), axis=0).max() <= abs(r[k, k]) * (1 + 1e-4)
    only, same = ballast.linalg.qr(a, "r", pivoting=True)
    assert np.array_equal(only, r[: min(shape)]) and np.array_equal(same, order)
    (raw, tau), same = ballast.linalg.qr(a, "raw", pivoting=True)
    assert np.array_equal(np.triu(raw.T)[: min(shape)], only) and np.array_equal(same, order) and tau.shape == (min(shape),)
    stack = random((2, 3, *shape), dtype, 5)
    for mode in ("reduced", "complete", "r", "raw"):
        seen = ballast.linalg.qr(stack, mode, pivoting=True)
        for i in np.ndindex(2, 3):
            one = ballast.linalg.qr(stack[i], mode, pivoting=True)
            for of_stack, alone in zip(_flat(seen), _flat(one)):  # Q of a batch has another rounding
                assert np.allclose(of_stack[i], alone, rtol=0, atol=10 * shape[0] * shape[1] * np.finfo(dtype).eps * np.abs(alone).max())


def _flat(made):
    return [each for one in made for each in (one if isinstance(one, tuple) else (one,))]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 3, 3), (2, 0, 3)])
def test_qr_with_pivoting_of_nothing(shape):
    q, r, order = ballast.linalg.qr(np.empty(shape), pivoting=True)
    k = min(shape[-2:])
    assert q.shape == (*shape[:-1], k) and r.shape == (*shape[:-2], k, shape[-1]) and order.shape == (*shape[:-2], shape[-1])
    assert np.array_equal(order, np.broadcast_to(np.arange(shape[-1]), order.shape))


@pytest.mark.parametrize("shape", [(1, 1), (9, 4), (4, 9), (300, 33), (2, 3, 9, 4), (3, 4, 9)])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", ["left", "right"])
@pytest.mark.parametrize("pivoting, conjugate", [(False, False), (False, True), (True, False), (True, True)])
def test_qr_multiply(shape, dtype, mode, pivoting, conjugate):
    """Beside the product with qr's Q in long double: that of applied reflectors has an error of at most c m n u ‖C‖ (Higham, lemma 19.3)."""
    *stack, m, n = shape
    k = min(m, n)
    a, c = random(shape, dtype), random((*stack, k, 5) if mode == "left" else (*stack, 5, m), dtype, 1)
    kept = a.copy(), c.copy()
    made, r, *order = ballast.linalg.qr_multiply(a, c, mode, pivoting, conjugate)
    assert ballast.last_report().checks > 0 and np.array_equal(a, kept[0]) and np.array_equal(c, kept[1])
    q, same, *expected = ballast.linalg.qr(a, pivoting=pivoting)
    assert np.array_equal(r, same) and all(np.array_equal(x, y) for x, y in zip(order, expected)) and len(order) == pivoting
    q = widest(q.conj() if conjugate else q)
    product = q @ c if mode == "left" else c @ q
    assert made.dtype == dtype and made.shape == product.shape
    bound = 20 * m * n * np.finfo(dtype).eps / 2
    assert (np.linalg.norm((made - product).astype(wide(made).dtype), axis=(-2, -1)) <= bound * np.linalg.norm(wide(c), axis=(-2, -1))).all()
    if not stack:
        linear = ballast.linalg.qr_multiply(a, c[:, 0] if mode == "left" else c[0], mode, pivoting, conjugate)[0]
        assert linear.ndim == 1 and np.allclose(linear, made[:, 0] if mode == "left" else made[0], rtol=0, atol=bound * np.linalg.norm(c))


def test_qr_multiply_as_scipy():
    linalg = pytest.importorskip("scipy.linalg")
    for m, n in ((7, 4), (4, 7), (5, 5)):
        for mode in ("left", "right"):
            for pivoting in (False, True):
                a, c = random((m, n), np.float64), random((min(m, n), 3) if mode == "left" else (3, m), np.float64, 1)
                for c in (c, c[:, 0] if mode == "left" else c[0]):
                    seen = ballast.linalg.qr_multiply(a, c, mode, pivoting)
                    expected = linalg.qr_multiply(a, c, mode, pivoting)
                    signs = np.sign(np.diag(seen[1]) * np.diag(expected[1]))
                    assert np.allclose(seen[1] * signs[:, None], expected[1]) and all(map(np.array_equal, seen[2:], expected[2:]))
                    assert seen[0].shape == expected[0].shape
                    if (signs > 0).all():
                        assert np.allclose(seen[0], expected[0])


def test_qr_multiply_of_complex_numbers_as_scipy():
    """c Q without R's signs is (c Q) diag(signs); Q c is taken of c whose rows have them."""
    linalg = pytest.importorskip("scipy.linalg")
    for m, n in ((7, 4), (4, 7), (5, 5)):
        a, k = random((m, n), complex), min(m, n)
        signs = np.sign(np.diag(ballast.linalg.qr(a, "r")).real * np.diag(linalg.qr(a, mode="economic")[1]).real)
        for conjugate in (False, True):
            c = random((3, m), complex, 1)
            seen, expected = (f(a, c, "right", conjugate=conjugate) for f in (ballast.linalg.qr_multiply, linalg.qr_multiply))
            assert np.allclose(seen[0] * signs, expected[0]) and np.allclose(seen[1] * signs[:, None], expected[1])
            c = random((k, 3), complex, 1)
            seen = ballast.linalg.qr_multiply(a, c * signs[:, None], "left", conjugate=conjugate)
            assert np.allclose(seen[0], linalg.qr_multiply(a, c, "left", conjugate=conjugate)[0])


def test_qr_multiply_refuses():
    a = np.ones((4, 3))
    for c, mode, expected in ((np.ones((4, 2)), "left", r"expected the shape \(3, p\)"), (np.ones((2, 3)), "right", r"expected the shape \(p, 4\)"),
                              (np.ones((1, 2, 4)), "right", "got"), (np.ones(4), "left", "expected the shape"), (np.ones(4), "up", "left or right")):
        with pytest.raises(ballast.InvalidArgumentError, match=expected):
            ballast.linalg.qr_multiply(a, c, mode)
    with pytest.raises(TypeError):
        ballast.linalg.qr_multiply(a, np.ones((1, 4), np.clongdouble))
    with pytest.raises(np.linalg.LinAlgError):
        ballast.linalg.qr_multiply(np.ones(3), np.ones(3))
    assert ballast.linalg.qr_multiply(a, np.ones((0, 4)))[0].shape == (0, 3)


@pytest.mark.parametrize("m, n", [(20, 20), (50, 7), (7, 50), (1, 1), (120, 90)])
@pytest.mark.parametrize("missing", [0, 1, 3])
@pytest.mark.parametrize("right", [(), (2,)])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_lstsq_of_any_rank(m, n, missing, right, dtype):
    rank = max(1, min(m, n) - missing)
    a = random((m, rank), dtype) @ random((rank, n), dtype, 1)
    b = random((m, *right), dtype, 2)
    seen, expected = ballast.linalg.lstsq(a, b, driver="gelsy"), np.linalg.lstsq(a, b)
    assert seen.rank == rank == expected[2] and seen.residuals.size == 0 and seen.x.shape == expected[0].shape
    condition = expected[3][0] / expected[3][rank - 1]
    bound = 100 * m * n * np.finfo(float).eps * condition**2
    assert np.linalg.norm(seen.x - expected[0]) <= bound * np.linalg.norm(expected[0])
    assert np.allclose(seen.s, expected[3], rtol=0, atol=10 * m * n * np.finfo(float).eps * expected[3][0])


def test_lstsq_of_any_rank_cuts_where_it_is_told():
    a = random((30, 2), np.float64) * [1, 1e-9]
    assert ballast.linalg.lstsq(a, np.ones(30), driver="gelsy").rank == 2
    cut = ballast.linalg.lstsq(a, np.ones(30), 1e-6, driver="gelsy")
    assert cut.rank == 1 and np.allclose(cut.x, np.linalg.lstsq(a, np.ones(30), 1e-6)[0])
    for a, b in ((np.ones((0, 3)), np.ones((0, 2))), (np.ones((3, 0)), np.ones((3, 2))), (np.ones((4, 3)), np.ones((4, 0)))):
        seen = ballast.linalg.lstsq(a, b, driver="gelsy")
        assert seen.x.shape == (a.shape[1], b.shape[1]) and seen.rank == (1 if a.size else 0)
    with pytest.raises(ballast.InvalidArgumentError, match="gels or gelsy"):
        ballast.linalg.lstsq(np.eye(2), np.ones(2), driver="gelsd")
