"""QR on groups of processes: by rows and by block columns, on an engine of Python between threads, mpi4py and torch.distributed."""

import numpy as np
import pytest

import ballast
from ballast import linalg
from processes import on_gloo, on_mpi4py
from test_group import Engine, on_threads

TYPES = ["float32", "float64", "complex64", "complex128"]

# A program of one rank: `over` is the communicator that the lines before it make.
PROGRAM = """
import sys
import numpy as np
import ballast
from ballast import linalg
A = np.random.default_rng(8).standard_normal((60, 45))
with ballast.protection(group=over, threads=1):
    own = linalg.block_columns(45, 8)
    factors = linalg.factor_columns(A[:, own], 8)
    X = factors.solve(A.sum(1))
    tall = linalg.factor_rows(np.array_split(A, size)[rank][:, :5])
    Y = tall.solve(np.array_split(A, size)[rank][:, :5].sum(1))
assert np.allclose(X, 1, atol=1e-11) and np.allclose(Y, 1, atol=1e-12)
np.save(f"{sys.argv[1]}/storage-{rank}.npy", factors.storage)
open(f"{sys.argv[1]}/made-{rank}", "w").write(f"{factors.tau.tobytes().hex()} {X.tobytes().hex()}")
"""


def random(shape, dtype, seed=1):
    draw = np.random.default_rng(seed)
    made = draw.standard_normal(shape)
    return (made + 1j * draw.standard_normal(shape) if np.dtype(dtype).kind == "c" else made).astype(dtype)


def in_group(ranks, work, damaged=-1, level="correct"):
    """What work(rank) returns on each rank, with protection(group=…) around it."""
    def run(rank, engine):
        with ballast.protection(level, group=ballast.group(engine, resend_after=0.01, patience=20), threads=1):
            return work(rank)

    return on_threads(ranks, run, damaged)


def columns_on(ranks, A, b, block, **more):
    """The whole Q, R and storage, x, Qᴴb, tau, and how many faults were detected."""
    m, n = A.shape
    k = min(m, n)

    def work(rank):
        own, of_q = linalg.block_columns(n, block), linalg.block_columns(k, block)
        factors = linalg.factor_columns(A[:, own], block)
        seen = ballast.last_report().detected
        assert ballast.last_report().problem.endswith(f"_m{m}_n{n}")
        q = factors.Q()
        seen += ballast.last_report().detected
        assert factors.shape == A.shape
        x = factors.solve(b) if m >= n else None
        seen += ballast.last_report().detected
        return own, of_q, q, factors.R, factors.storage, x, factors.multiply(b, adjoint=True), factors.tau, seen

    made = in_group(ranks, work, **more)
    q, r, storage = (np.empty(shape, A.dtype) for shape in ((m, k), (k, n), (m, n)))
    for own, of_q, its_q, its_r, its_storage, *_ in made:
        q[:, of_q], r[:, own], storage[:, own] = its_q, its_r, its_storage
    same = [(x, p, tau) for *_, x, p, tau, _ in made]
    assert all(np.array_equal(one, two) for each in same for one, two in zip(each, same[0]) if one is not None)
    return q, r, storage, *same[0], sum(each[-1] for each in made)


def alike(one, two):
    return all(a is b is None or np.array_equal(a, b) for a, b in zip(one[:-1], two[:-1]))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(50, 37), (31, 31), (20, 45)])
def test_block_columns_meet_the_definitions_with_the_same_bits(dtype, shape):
    A, b = random(shape, dtype), random((shape[0], 2), dtype, 2)
    one = columns_on(1, A, b, 6)
    for ranks in (2, 3):
        assert alike(columns_on(ranks, A, b, 6), one)
    q, r, _, x, projected, tau, detected = one
    wide = np.result_type(A, np.float64)
    u = np.finfo(A.dtype).eps / 2
    q, r, a = q.astype(wide), r.astype(wide), A.astype(wide)
    assert np.linalg.norm(q @ r - a) <= 8 * max(shape) * u * np.linalg.norm(a)
    assert np.linalg.norm(q.conj().T @ q - np.eye(len(r))) <= 8 * max(shape) * u * np.sqrt(len(r))
    assert np.array_equal(r, np.triu(r)) and len(tau) == min(shape) and detected == 0
    assert np.linalg.norm(projected[: len(r)] - q.conj().T @ b) <= 8 * max(shape) * u * np.linalg.norm(b)
    if x is not None:
        assert np.linalg.norm(a.conj().T @ (a @ x - b)) <= 8 * max(shape) * u * np.linalg.norm(a) ** 2 * np.linalg.norm(x)


def test_rows_meet_the_definitions():
    A, b = random((70, 6), "float64"), random((70, 2), "float64", 2)
    for dtype, u in (("float32", 2.0**-24), ("float64", 2.0**-53)):
        a = A.astype(dtype)

        def work(rank):
            own, right = np.array_split(a, 3)[rank], np.array_split(b.astype(dtype), 3)[rank]
            factors = linalg.factor_rows(own)
            q = factors.Q()
            assert np.linalg.norm(q @ factors.R - own) <= 8 * 70 * u * np.linalg.norm(own)
            assert np.linalg.norm(factors.multiply(np.eye(6)) - q) <= 8 * 70 * u * np.sqrt(6)
            return factors.R, factors.solve(right), factors.multiply(right, adjoint=True), factors.solve(right[:, 0]), q

        made = in_group(3, work)
        assert all(np.array_equal(one[part], made[0][part]) for one in made for part in range(4))
        q = np.concatenate([each[4] for each in made]).astype(float)
        assert np.linalg.norm(q.T @ q - np.eye(6)) <= 8 * 70 * u * np.sqrt(6)
        x = np.linalg.lstsq(a.astype(float), b.astype(dtype).astype(float), rcond=None)[0]
        assert np.linalg.norm(made[0][1] - x) <= 100 * 70 * u * np.linalg.norm(x)  # the condition number is below 3
        assert np.array_equal(made[0][3], made[0][1][:, 0])


def test_a_damaged_message_is_sent_again_and_reaches_the_result_without_protection():
    A, b = random((30, 30), "float64"), random((30, 1), "float64", 2)
    clean, seen = columns_on(2, A, b, 4), 0
    for number in range(0, 30, 3):
        made = columns_on(2, A, b, 4, damaged=number)
        assert alike(made, clean)
        seen += made[-1]
    assert seen > 0

    def wrong(number):
        try:
            return not alike(columns_on(2, A, b, 4, damaged=number, level="off"), clean)
        except (ballast.Error, AssertionError):  # ranks that differ, or a call that ended
            return True

    assert any(wrong(number) for number in range(30))


@pytest.mark.parametrize("order", ["row", "col"])
def test_the_layout_of_scalapack(order):
    m, n, mb, nb, rows, columns = 23, 17, 3, 2, 3, 1
    A = random((m, n), "complex128")

    def work(rank):
        row, column = (rank // columns, rank % columns) if order == "row" else (rank % rows, rank // rows)
        mine = A[(np.arange(m) // mb % rows == row)][:, np.arange(n) // nb % columns == column]
        local = np.ravel(mine, order="F")
        desc = (1, 0, m, n, mb, nb, 0, 0, len(mine))
        found = linalg.to_block_columns(local, desc, (rows, columns), 4, order=order)
        assert np.array_equal(found, A[:, linalg.block_columns(n, 4)])
        back = np.zeros_like(local)
        linalg.from_block_columns(found, back, desc, (rows, columns), 4, order=order)
        assert np.array_equal(back, local)
        with pytest.raises(ballast.InvalidArgumentError, match="rows × columns of the group's 3 ranks, got 2 × 2"):
            linalg.to_block_columns(local, desc, (2, 2), 4)
        return True

    assert all(in_group(3, work))


def test_dependent_columns_are_refused_on_all_ranks():
    A = random((30, 20), "float64")
    A[:, 14] = A[:, 1]

    def work(rank):
        factors = linalg.factor_columns(A[:, linalg.block_columns(20, 4)], 4)
        with pytest.raises(ballast.RankDeficientError, match="column 14"):
            factors.solve(A[:, 0])
        return True

    assert all(in_group(3, work))


def test_refusals():
    A = random((9, 9), "float64")
    with pytest.raises(ballast.InvalidArgumentError, match="protection"):
        linalg.factor_columns(A)
    with pytest.raises(ballast.InvalidArgumentError, match="rank and size"):
        linalg.block_columns(9)
    assert linalg.block_columns(9, 2, 1, 2).tolist() == [2, 3, 6, 7]
    with pytest.raises(ballast.InvalidArgumentError, match="rank below size"):
        linalg.block_columns(9, 2, 2, 2)

    def work(rank):
        with pytest.raises(ballast.InvalidArgumentError, match="expected 1 to 96 columns, got 97"):
            linalg.factor_columns(A, 97)
        with pytest.raises(ballast.InvalidArgumentError, match="a: expected 2 axes, got 1"):
            linalg.factor_columns(A[0])
        with pytest.raises(ballast.UnsupportedTypeError, match="float32 or float64, got complex128"):
            linalg.factor_rows(A + 0j)
        factors = linalg.factor_columns(A, 9)  # the ranks have nine columns each
        with pytest.raises(ballast.UnsupportedTypeError, match="float64 holds, got complex128"):
            factors.multiply(A + 0j)
        with pytest.raises(ballast.InvalidArgumentError, match="C: expected 9 rows, got 8"):
            factors.multiply(A[:8])
        with pytest.raises(ballast.InvalidArgumentError, match="at least as many rows as columns"):
            factors.solve(A)
        with pytest.raises(ballast.InvalidArgumentError, match="9 numbers"):
            linalg.to_block_columns(A.ravel(), (1, 2), (1, 2))
        with pytest.raises(ballast.InvalidArgumentError, match="order: expected row or col"):
            linalg.to_block_columns(A.ravel(), range(9), (1, 2), order="left")
        return True

    assert all(in_group(2, work))


def test_a_lost_rank_is_named():
    engine = Engine([None, None], 0)
    engine.send, engine.receive, engine.gone = lambda to, message: None, lambda seconds: None, {1}
    with ballast.protection(group=ballast.group(engine, resend_after=0.01)):
        with pytest.raises(ballast.RankLostError, match="lost 1") as lost:
            linalg.factor_columns(random((9, 9), "float64"), 3)
    assert lost.value.ranks == [1]


def expect_results(folder, ranks):
    """Each rank has the taus and the solution of one rank, and its columns of the factors, to the bit."""
    A = np.random.default_rng(8).standard_normal((60, 45))
    _, _, storage, x, _, tau, _ = columns_on(1, A, A.sum(1), 8)
    for rank in range(ranks):
        its = [bytes.fromhex(each) for each in (folder / f"made-{rank}").read_text().split()]
        assert its == [tau.tobytes(), x.tobytes()]
        assert np.array_equal(np.load(folder / f"storage-{rank}.npy"), storage[:, linalg.block_columns(45, 8, rank, ranks)])


@pytest.mark.parametrize("ranks", [2, 3])
def test_mpi4py(tmp_path, ranks):
    on_mpi4py(PROGRAM, ranks, tmp_path)
    expect_results(tmp_path, ranks)


@pytest.mark.parametrize("ranks", [2, 3])
def test_torch_gloo(tmp_path, ranks):
    on_gloo(PROGRAM, ranks, tmp_path)
    expect_results(tmp_path, ranks)
