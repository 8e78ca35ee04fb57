"""QR on a grid of processes in ScaLAPACK's layout, on an engine of Python between threads, mpi4py and torch.distributed."""

import numpy as np
import pytest

import ballast
from ballast import linalg
from processes import on_gloo, on_mpi4py
from test_group import Engine, on_threads
from test_group_qr import TYPES, in_group, random

# A program of one rank: `over` is the communicator that the lines before it make.
PROGRAM = """
import sys
import numpy as np
import ballast
from ballast import linalg
A = np.random.default_rng(8).standard_normal((60, 45))
grid = (2, size // 2) if size % 2 == 0 else (size, 1)
desc = (1, 0, 60, 45, 8, 8, 0, 0, 0)
with ballast.protection(group=over, threads=1):
    rows, columns = linalg.layout_part(desc, grid)
    factors = linalg.factor_grid(A[np.ix_(rows, columns)], desc, grid)
    X = factors.solve(A.sum(1)[rows])
assert np.allclose(X, 1, atol=1e-11) and len(X) == sum(rows < 45)
np.save(f"{sys.argv[1]}/storage-{rank}.npy", factors.storage)
open(f"{sys.argv[1]}/made-{rank}", "w").write(factors.tau.tobytes().hex())
"""


def owned(size, block, source, processes, process):
    """The indices that a process has, by ScaLAPACK's definition."""
    return np.flatnonzero((np.arange(size) // block + source) % processes == process)


def grid_on(grid, A, b, block=(4, 4), source=(0, 0), order="row", gap=0, arm=None, **more):
    """The whole Q, R, storage, x, Qᴴb and Q Qᴴb, then tau, and how many faults were detected. The columns of b lie on the process columns in
    turn. arm: a function that rank 1 calls first."""
    (m, n), p, ranks = A.shape, b.shape[1], grid[0] * grid[1]
    k = min(m, n)

    def work(rank):
        row, column = divmod(rank, grid[1]) if order == "row" else divmod(rank, grid[0])[::-1]
        rows, columns = owned(m, block[0], source[0], grid[0], row), owned(n, block[1], source[1], grid[1], column)
        sides = owned(p, 1, source[1], grid[1], column)
        desc = (1, 0, m, n, *block, *source, max(1, len(rows)) + gap)
        named = linalg.layout_part(desc, grid, order=order)
        assert np.array_equal(named[0], rows) and np.array_equal(named[1], columns)
        local = A[np.ix_(rows, columns)]
        if gap:  # one axis, LLD_ apart
            room = np.full((len(rows) + gap, len(columns)), np.nan, A.dtype, order="F")
            room[: len(rows)] = local
            local = room.ravel(order="F")
        if arm is not None and rank == 1:
            arm()
        factors = linalg.factor_grid(local, desc, grid, order=order)
        seen = ballast.last_report().detected
        assert ballast.last_report().problem.endswith(f"_m{m}_n{n}") and factors.shape == A.shape
        mine = b[np.ix_(rows, sides)]
        made = []
        for compute in (factors.Q, lambda: factors.multiply(mine, adjoint=True), lambda: factors.multiply(made[1]),
                        lambda: factors.solve(mine) if m >= n else None):
            made.append(compute())
            seen += ballast.last_report().detected
        q, projected, back, x = made
        return (rows, columns, sides), q, factors.R, factors.storage, x, projected, back, factors.tau, seen

    made = in_group(ranks, work, **more)
    shapes = [(m, k), (k, n), (m, n), (n, p), (m, p), (m, p)]
    whole = [np.full(shape, np.nan, A.dtype) for shape in shapes]
    for (rows, columns, sides), *parts, _, _ in made:
        axes = [(rows, columns[columns < k]), (rows[rows < k], columns), (rows, columns), (rows[rows < n], sides), (rows, sides), (rows, sides)]
        for to, part, at in zip(whole, parts, axes):
            if part is not None:
                to[np.ix_(*at)] = part
    assert all(np.array_equal(each[-2], made[0][-2]) for each in made)
    if m < n:
        whole[3] = None
    return *whole, made[0][-2], sum(each[-1] for each in made)


def alike(one, two):
    return all(a is b is None or np.array_equal(a, b) for a, b in zip(one[:-1], two[:-1]))


def expect_definitions(A, b, made):
    q, r, storage, x, projected, back, tau, _ = made
    wide = np.result_type(A, np.float64)
    u = np.finfo(A.dtype).eps / 2
    q, r, a, limit = q.astype(wide), r.astype(wide), A.astype(wide), 8 * max(A.shape) * u
    k = len(r)
    assert np.linalg.norm(q @ r - a) <= limit * np.linalg.norm(a)
    assert np.linalg.norm(q.conj().T @ q - np.eye(k)) <= limit * np.sqrt(k)
    assert np.array_equal(r, np.triu(r)) and np.array_equal(np.triu(storage)[:k], r) and len(tau) == k
    assert np.linalg.norm(projected[:k] - q.conj().T @ b) <= limit * np.linalg.norm(b)
    assert np.linalg.norm(back - b) <= limit * np.linalg.norm(b)
    if x is not None:
        assert np.linalg.norm(a.conj().T @ (a @ x - b)) <= limit * np.linalg.norm(a) ** 2 * np.linalg.norm(x)


@pytest.mark.parametrize("dtype", TYPES)
def test_the_definitions_on_grids(dtype):
    for grid, shape, more in [((2, 2), (50, 37), {}), ((3, 1), (31, 31), {"block": (5, 3)}), ((1, 2), (20, 45), {}),
                              ((2, 2), (40, 25), {"order": "col", "source": (1, 1), "gap": 3}), ((2, 1), (9, 9), {"block": (16, 4)})]:
        A, b = random(shape, dtype), random((shape[0], 3), dtype, 2)
        made = grid_on(grid, A, b, **more)
        expect_definitions(A, b, made)
        assert made[-1] == 0


def test_a_damaged_message_is_sent_again_and_reaches_the_result_without_protection():
    A, b = random((30, 30), "float64"), random((30, 2), "float64", 2)
    clean, seen = grid_on((2, 1), A, b), 0
    for number in range(0, 60, 6):
        made = grid_on((2, 1), A, b, damaged=number)
        assert alike(made, clean)
        seen += made[-1]
    assert seen > 0

    def wrong(number):
        try:
            return not alike(grid_on((2, 1), A, b, damaged=number, level="off"), clean)
        except (ballast.Error, AssertionError):  # ranks that differ, or a call that ended
            return True

    assert any(wrong(number) for number in range(30))


@pytest.mark.parametrize("site", ["qr.trailing", "qr.reflector", "qr.q"])
def test_a_strike_of_a_rank_is_repaired_and_reaches_the_result_without_protection(faults, site):
    A, b = random((30, 30), "float64"), random((30, 2), "float64", 2)
    clean, seen, reached = grid_on((2, 2), A, b, level="off"), 0, 0
    for seed in range(6):
        arm = lambda: faults(f"site={site},model=bit_flip,bit=61,seed={seed}")
        made = grid_on((2, 2), A, b, arm=arm)
        expect_definitions(A, b, made)
        seen += made[-1]
        try:
            reached += not alike(grid_on((2, 2), A, b, arm=arm, level="off"), clean)
        except (ballast.Error, AssertionError):
            reached += 1
    assert seen > 0 and reached > 0


def test_dependent_columns_are_refused_on_all_ranks():
    A = random((30, 20), "float64")
    A[:, 14] = A[:, 1]
    desc = (1, 0, 30, 20, 4, 4, 0, 0, 0)

    def work(rank):
        rows, columns = linalg.layout_part(desc, (2, 2))
        factors = linalg.factor_grid(A[np.ix_(rows, columns)], desc, (2, 2))
        with pytest.raises(ballast.RankDeficientError, match="column 14"):
            factors.solve(A[rows, 0])
        return True

    assert all(in_group(4, work))


def test_refusals():
    A = random((9, 9), "float64")
    desc = (1, 0, 9, 9, 2, 2, 0, 0, 9)
    with pytest.raises(ballast.InvalidArgumentError, match="protection"):
        linalg.factor_grid(A, desc, (1, 1))
    with pytest.raises(ballast.InvalidArgumentError, match="expected rank, or"):
        linalg.layout_part(desc, (1, 1))
    with pytest.raises(ballast.InvalidArgumentError, match="rank: expected 0 to 3, got 4"):
        linalg.layout_part(desc, (2, 2), 4)
    with pytest.raises(ballast.InvalidArgumentError, match="1 row or more and 1 column or more, got 0 × 2"):
        linalg.layout_part(desc, (0, 2), 0)
    rows, columns = linalg.layout_part((1, 0, 9, 7, 2, 3, 0, 1, 0), (2, 2), 1)
    assert rows.tolist() == [0, 1, 4, 5, 8] and columns.tolist() == [0, 1, 2, 6]
    with ballast.protection(device=[0, 1]):
        with pytest.raises(ballast.UnsupportedError, match="got a list of devices"):
            linalg.factor_grid(A, desc, (1, 2))

    told = {}  # by the text that is expected: the classes and messages of both ranks

    def refusal(text, error, function, *arguments, **more):
        with pytest.raises(ballast.Error) as seen:
            function(*arguments, **more)
        told.setdefault(text, (error, []))[1].append(seen.value)

    def work(rank):
        def refused(text, local=A[:, :5], desc=desc, grid=(1, 2), error=ballast.InvalidArgumentError, **more):
            refusal(text, error, linalg.factor_grid, local, desc, grid, **more)

        def changed(place, value):
            return desc[:place] + (value,) + desc[place + 1:]

        refused("DTYPE_ 1", desc=changed(0, 502))
        refused("M_ and N_ of 1 or more", desc=changed(2, 0))
        refused("MB_ and NB_ of 1 or more", desc=changed(4, 0))
        refused("CSRC_ below 2, got 0 and 2", desc=changed(7, 2))
        refused("9 numbers", desc=desc[:8])
        refused("group's 2 ranks, got 2 × 2", grid=(2, 2))
        refused("its rows and columns, got 3 numbers", grid=(1, 2, 1))
        refused("order: expected row or col", order="left")
        refused("this rank's part, got 9 × 3", A[:, :3])
        refused("local: expected 1 or 2 axes, got 3", A[None])
        refused("float64 or complex64 or complex128, got float16", A.astype(np.float16), error=ballast.UnsupportedTypeError)
        refused("LLD_ of the rank's 9 rows or more, got 8", A.ravel(), changed(8, 8))
        refused("elements or more for 9 × ", A[0])
        own = A[:, linalg.layout_part(desc, (1, 2))[1]]
        factors = linalg.factor_grid(own, desc, (1, 2))
        refusal("float64 holds, got complex128", ballast.UnsupportedTypeError, factors.multiply, A + 0j)
        refusal("C: expected 9 rows, got 8", ballast.InvalidArgumentError, factors.multiply, A[:8])
        wide = linalg.factor_grid(own[:4], changed(2, 4), (1, 2))
        refusal("at least as many rows as columns", ballast.InvalidArgumentError, wide.solve, own[:4])
        tall = linalg.factor_grid(A[linalg.layout_part(desc, (2, 1))[0]], desc, (2, 1))
        refusal("as many columns on all ranks of a process column", ballast.InvalidArgumentError, tall.multiply, np.ones((5 - rank, 1 + rank)))
        return True

    assert all(in_group(2, work))
    for text, (error, seen) in told.items():
        assert len(seen) == 2 and all(isinstance(each, error) and text in str(each) for each in seen), (text, seen)


# A program of one rank: Python refuses arguments of the last rank, while the others make the call.
REFUSED_ON_ONE = """
import time
import numpy as np
import pytest
import ballast
from ballast import linalg
from ballast.sklearn import KMeans

def refusals(over, rank, size):
    A = np.random.default_rng(8).standard_normal((12, 12))
    grid, desc, wrong, start = (size, 1), (1, 0, 12, 12, 2, 2, 0, 0, 0), rank == size - 1, time.monotonic()
    with ballast.protection(group=ballast.group(over, patience=120), threads=1):
        rows, columns = linalg.layout_part(desc, grid)
        own = A[np.ix_(rows, columns)]
        factors = linalg.factor_grid(own, desc, grid)
        model = KMeans(3, random_state=1).fit(A)
        calls = [lambda: linalg.factor_grid(own.astype(np.float16 if wrong else np.float64), desc, grid),
                 lambda: linalg.factor_grid(own[:, wrong:], desc, grid),
                 lambda: factors.multiply(own if not wrong else own + 0j),
                 lambda: factors.solve(own[None] if wrong else own),
                 lambda: linalg.factor_rows(A + 0j if wrong else A),
                 lambda: linalg.factor_columns(A[0] if wrong else A, 4),
                 lambda: linalg.to_block_columns(own.ravel("F"), (1, 0, 12, 12, 2, 2, 0, 0, len(rows)), grid if not wrong else (1,)),
                 lambda: KMeans(3, random_state=1).fit(np.full((4, 3), np.nan) if wrong else A),
                 lambda: KMeans(3, random_state=None if wrong else 1).fit(A),
                 lambda: model.predict(A[:, :5] if wrong else A),
                 lambda: model.transform("none" if wrong else A)]
        for number, call in enumerate(calls):
            with pytest.raises((ballast.Error, ValueError, TypeError)) as seen:
                call()
            assert wrong != (f"rank {size - 1} of the group left the call" in str(seen.value)), (number, seen.value)
        assert ballast.last_report() is not None
        assert np.array_equal(linalg.factor_grid(own, desc, grid).tau, factors.tau)  # the group goes on
    assert time.monotonic() - start < 60
    return True
"""


def test_what_python_refuses_on_one_rank_ends_the_call_on_all(tmp_path):
    made = {}
    exec(REFUSED_ON_ONE, made)
    assert all(on_threads(3, lambda rank, engine: made["refusals"](engine, rank, 3)))


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_python_refuses_on_one_rank_ends_the_call_on_all_of_mpi4py(tmp_path, ranks):
    on_mpi4py(REFUSED_ON_ONE + "\nassert refusals(over, rank, size)\n", ranks, tmp_path)


def test_a_lost_rank_is_named():
    engine = Engine([None, None], 0)
    engine.send, engine.receive, engine.gone = lambda to, message: None, lambda seconds: None, {1}
    with ballast.protection(group=ballast.group(engine, resend_after=0.01)):
        with pytest.raises(ballast.RankLostError, match="lost 1") as lost:
            linalg.factor_grid(random((9, 5), "float64"), (1, 0, 9, 9, 5, 5, 0, 0, 9), (1, 2))
    assert lost.value.ranks == [1]


def expect_results(folder, ranks):
    """Each rank has the taus and its part of the factors that ranks as threads have, to the bit."""
    A = np.random.default_rng(8).standard_normal((60, 45))
    grid = (2, ranks // 2) if ranks % 2 == 0 else (ranks, 1)
    _, _, storage, *_, tau, _ = grid_on(grid, A, A.sum(1, keepdims=True), (8, 8))
    for rank in range(ranks):
        assert bytes.fromhex((folder / f"made-{rank}").read_text()) == tau.tobytes()
        own = np.ix_(*linalg.layout_part((1, 0, 60, 45, 8, 8, 0, 0, 0), grid, rank))
        assert np.array_equal(np.load(folder / f"storage-{rank}.npy"), storage[own])


@pytest.mark.parametrize("ranks", [3, 4])
def test_mpi4py(tmp_path, ranks):
    on_mpi4py(PROGRAM, ranks, tmp_path)
    expect_results(tmp_path, ranks)


@pytest.mark.parametrize("ranks", [2, 4])
def test_torch_gloo(tmp_path, ranks):
    on_gloo(PROGRAM, ranks, tmp_path)
    expect_results(tmp_path, ranks)
