"""ballast.linalg against NumPy's in double and long double, with the tolerances of Householder QR."""

import numpy as np
import pytest

import ballast

SHAPES = [(1, 1), (5, 5), (40, 7), (7, 40), (300, 33), (257, 257), (3, 60, 20), (2, 3, 8, 12), (1000, 9, 5), (2, 300, 280)]


def random(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def small(difference, a, factor=1):
    """Householder QR: ‖A − QR‖_F and ‖I − QᵀQ‖_F are at most c m n u (Higham, theorem 19.4), with c about 10, times ‖A‖_F."""
    m, n = a.shape[-2:]
    bound = 10 * m * n * np.finfo(difference.dtype).eps / 2 * factor
    return (np.linalg.norm(difference, axis=(-2, -1)) <= bound * np.linalg.norm(a.astype(float), axis=(-2, -1))).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mode, same", [("reduced", "economic"), ("complete", "full")])
def test_qr(shape, dtype, mode, same):
    a = random(shape, dtype)
    seen, expected = ballast.linalg.qr(a, mode), np.linalg.qr(a, mode)
    q, r = seen
    assert q is seen.Q and q.dtype == r.dtype == dtype and q.shape == expected.Q.shape and r.shape == expected.R.shape
    assert small((q.astype(np.longdouble) @ r.astype(np.longdouble) - a).astype(dtype), a)
    unit = np.eye(q.shape[-1])
    product = q.swapaxes(-1, -2).astype(np.longdouble) @ q.astype(np.longdouble)
    assert small((product - unit).astype(dtype), a, 1 / np.linalg.norm(a.astype(float), axis=(-2, -1)).min())
    assert np.array_equal(r, np.triu(r))
    again = ballast.linalg.qr(a, same)
    assert np.array_equal(again.Q, q) and np.array_equal(again.R, r)
    assert np.array_equal(ballast.linalg.qr(a, "r"), r[..., : min(shape[-2:]), :])


@pytest.mark.parametrize("shape", SHAPES)
def test_raw_is_lapacks_storage(shape):
    a = random(shape, np.float64)
    h, tau = ballast.linalg.qr(a, "raw")
    expected = np.linalg.qr(a, "raw")
    assert h.shape == expected[0].shape and tau.shape == expected[1].shape
    k = min(shape[-2:])
    v = np.tril(h.swapaxes(-1, -2)[..., :k], -1) + np.eye(shape[-2], k)
    q = np.broadcast_to(np.eye(shape[-2]), (*shape[:-2], shape[-2], shape[-2])).copy()
    for j in reversed(range(k)):
        x = v[..., j, None]
        q -= tau[..., j, None, None] * x @ (x.swapaxes(-1, -2) @ q)
    assert small(q @ np.triu(h.swapaxes(-1, -2)) - a, a)


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0), (0, 3, 3), (2, 0, 3)])
@pytest.mark.parametrize("mode", ["reduced", "complete", "r", "raw"])
def test_empty_matrices(shape, mode):
    seen, expected = ballast.linalg.qr(np.empty(shape), mode), np.linalg.qr(np.empty(shape), mode)
    for one, other in zip(seen if isinstance(seen, tuple) else [seen], expected if isinstance(expected, tuple) else [expected]):
        assert one.shape == other.shape and np.array_equal(one, other)


def test_inputs_stay_as_they_are_and_may_be_views():
    a = random((60, 40), np.float64)
    kept = a.copy()
    for view in (a[::2, ::3], a.T, a[::-1], np.asfortranarray(a)):
        q, r = ballast.linalg.qr(view)
        assert small(q @ r - view, view)
    ballast.linalg.lstsq(a, np.ones(60))
    assert np.array_equal(a, kept)


def test_types():
    assert ballast.linalg.qr(np.array([[1, 2], [3, 4]])).Q.dtype == np.float64
    for dtype in (np.complex64, np.complex128, np.float16, np.longdouble, object):
        with pytest.raises(TypeError) as seen:
            ballast.linalg.qr(np.ones((2, 2), dtype))
        assert isinstance(seen.value, ballast.UnsupportedError)
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
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lstsq(m, n, right, dtype):
    a, b = random((m, n), dtype, 1), random((m, *right), dtype, 2)
    seen, expected = ballast.linalg.lstsq(a, b), np.linalg.lstsq(a.astype(float), b.astype(float))
    assert seen.rank == expected[2] and ballast.last_report().condition >= 1
    condition = expected[3][0] / expected[3][-1]
    # Higham, theorem 20.3: relative error c m n u κ (1 + κ ‖r‖ / (‖A‖‖x‖)), c about 10.
    residual = np.linalg.norm(a.astype(float) @ expected[0] - b) / (expected[3][0] * np.linalg.norm(expected[0]))
    bound = 10 * m * n * np.finfo(dtype).eps / 2 * condition * (1 + condition * residual)
    assert seen.x.shape == expected[0].shape and seen.x.dtype == dtype
    assert np.linalg.norm(seen.x - expected[0]) <= bound * np.linalg.norm(expected[0])
    assert seen.residuals.shape == expected[1].shape and seen.s.shape == expected[3].shape
    wide = 10 * m * n * np.finfo(dtype).eps
    assert np.allclose(seen.residuals, expected[1], rtol=wide, atol=wide * np.square(b).sum())
    assert np.allclose(seen.s, expected[3], rtol=0, atol=wide * expected[3][0])


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
        ballast.linalg.lstsq(np.ones((3, 2), complex), np.ones(3))


@pytest.mark.parametrize("shape", [(1, 1), (40, 7), (7, 40), (120, 120)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_qr_with_pivoting(shape, dtype):
    a = random(shape, dtype)
    for mode in ("reduced", "complete"):
        q, r, order = ballast.linalg.qr(a, mode, pivoting=True)
        assert np.array_equal(np.sort(order), np.arange(shape[1]))
        assert small((q.astype(np.longdouble) @ r.astype(np.longdouble) - a[:, order]).astype(dtype), a)
        for k in range(min(shape)):
            assert np.linalg.norm(r[k:, k:].astype(float), axis=0).max() <= abs(r[k, k]) * (1 + 1e-4)
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
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mode", ["left", "right"])
@pytest.mark.parametrize("pivoting", [False, True])
def test_qr_multiply(shape, dtype, mode, pivoting):
    """Beside the product with qr's Q in long double: that of applied reflectors has an error of at most c m n u ‖C‖ (Higham, lemma 19.3)."""
    *stack, m, n = shape
    k = min(m, n)
    a, c = random(shape, dtype), random((*stack, k, 5) if mode == "left" else (*stack, 5, m), dtype, 1)
    kept = a.copy(), c.copy()
    made, r, *order = ballast.linalg.qr_multiply(a, c, mode, pivoting)
    assert ballast.last_report().checks > 0 and np.array_equal(a, kept[0]) and np.array_equal(c, kept[1])
    q, same, *expected = ballast.linalg.qr(a, pivoting=pivoting)
    assert np.array_equal(r, same) and all(np.array_equal(x, y) for x, y in zip(order, expected)) and len(order) == pivoting
    q = q.astype(np.longdouble)
    product = q @ c if mode == "left" else c @ q
    assert made.dtype == dtype and made.shape == product.shape
    bound = 20 * m * n * np.finfo(dtype).eps / 2
    assert (np.linalg.norm((made - product).astype(float), axis=(-2, -1)) <= bound * np.linalg.norm(c.astype(float), axis=(-2, -1))).all()
    if not stack:
        linear = ballast.linalg.qr_multiply(a, c[:, 0] if mode == "left" else c[0], mode, pivoting)[0]
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


def test_qr_multiply_refuses():
    a = np.ones((4, 3))
    for c, mode, expected in ((np.ones((4, 2)), "left", r"expected the shape \(3, p\)"), (np.ones((2, 3)), "right", r"expected the shape \(p, 4\)"),
                              (np.ones((1, 2, 4)), "right", "got"), (np.ones(4), "left", "expected the shape"), (np.ones(4), "up", "left or right")):
        with pytest.raises(ballast.InvalidArgumentError, match=expected):
            ballast.linalg.qr_multiply(a, c, mode)
    with pytest.raises(TypeError):
        ballast.linalg.qr_multiply(a, np.ones((1, 4), complex))
    with pytest.raises(np.linalg.LinAlgError):
        ballast.linalg.qr_multiply(np.ones(3), np.ones(3))
    assert ballast.linalg.qr_multiply(a, np.ones((0, 4)))[0].shape == (0, 3)


@pytest.mark.parametrize("m, n", [(20, 20), (50, 7), (7, 50), (1, 1), (120, 90)])
@pytest.mark.parametrize("missing", [0, 1, 3])
@pytest.mark.parametrize("right", [(), (2,)])
def test_lstsq_of_any_rank(m, n, missing, right):
    rank = max(1, min(m, n) - missing)
    a = random((m, rank), np.float64) @ random((rank, n), np.float64, 1)
    b = random((m, *right), np.float64, 2)
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
