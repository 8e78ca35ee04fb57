"""Groups of processes: an engine of Python between threads, mpi4py and torch.distributed (where they are installed), and what is refused."""

import importlib.util
import pathlib
import queue
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

import ballast
from ballast import _group
from ballast.sklearn import KMeans, MiniBatchKMeans, SphericalKMeans
from processes import on_gloo, on_mpi4py

POINTS = np.random.default_rng(4).standard_normal((900, 3)) + 8 * (np.arange(900) % 4)[:, None]

# A program of one rank: `over` is the communicator that the lines before it make.
PROGRAM = """
import sys
import numpy as np
import ballast
from ballast.sklearn import KMeans
rows = np.random.default_rng(4).standard_normal((900, 3)) + 8 * (np.arange(900) % 4)[:, None]
own = np.array_split(rows, size)[rank]
with ballast.protection(group=over, threads=1):
    model = KMeans(n_clusters=4, random_state=1).fit(own)
    labels = model.predict(own)
assert (labels == model.labels_).all() and model.report_.verdict == "clean"
assert ballast.group(over).size == size
open(f"{sys.argv[1]}/made-{rank}", "w").write(f"{model.cluster_centers_.tobytes().hex()} {model.labels_.sum()}")
"""


class Engine:
    """A rank of threads. `damaged`: the number of a message in which a bit is flipped."""

    def __init__(self, boxes, rank, damaged=-1):
        self.boxes, self.rank, self.size, self.damaged, self.sent, self.gone = boxes, rank, len(boxes), damaged, 0, set()

    def send(self, to, message):
        if self.sent == self.damaged:
            message = message[:-1] + bytes([message[-1] ^ 4])
        self.sent += 1
        self.boxes[to].put((self.rank, message))

    def receive(self, seconds):
        try:
            return self.boxes[self.rank].get(timeout=seconds) if seconds > 0 else self.boxes[self.rank].get_nowait()
        except queue.Empty:
            return None

    def lost(self, rank):
        return rank in self.gone


def on_threads(ranks, work, damaged=-1):
    boxes, made, raised = [queue.SimpleQueue() for _ in range(ranks)], [None] * ranks, []

    def run(rank):
        try:
            made[rank] = work(rank, Engine(boxes, rank, damaged if rank == ranks - 1 else -1))
        except BaseException as wrong:
            raised.append(wrong)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if raised:
        raise raised[0]
    return made


def fit(ranks, damaged=-1, **more):
    def work(rank, engine):
        with ballast.protection(group=ballast.group(engine, resend_after=0.01, patience=20), threads=1):
            model = KMeans(n_clusters=4, random_state=1, **more).fit(np.array_split(POINTS, ranks)[rank])
            assert (model.predict(np.array_split(POINTS, ranks)[rank]) == model.labels_).all()
        return model

    made = on_threads(ranks, work, damaged)
    assert all((each.cluster_centers_ == made[0].cluster_centers_).all() and each.inertia_ == made[0].inertia_ for each in made)
    return made[0].cluster_centers_.tobytes(), np.concatenate([each.labels_ for each in made]).tobytes(), made[0].inertia_, made[0].report_


def test_the_same_bits_for_any_number_of_ranks():
    one = fit(1)
    assert fit(2)[:3] == one[:3] and fit(3)[:3] == one[:3]
    labels = np.frombuffer(one[1], np.int32)
    assert (labels == np.tile(labels[:4], 225)).mean() > 0.99  # four clouds of points
    assert fit(2, init=POINTS[:4])[0] == fit(1, init=POINTS[:4])[0]


def test_a_rank_without_rows():
    def work(rank, engine):
        own = POINTS if rank == 1 else POINTS[:0]
        with ballast.protection(group=ballast.group(engine, resend_after=0.01, patience=20), threads=1):
            model = KMeans(n_clusters=4, random_state=1).fit(own)
            assert (model.predict(own) == model.labels_).all() and model.transform(own).shape == (len(own), 4)
        return model

    first, second = on_threads(2, work)
    assert first.labels_.shape == (0,) and first.cluster_centers_.tobytes() == second.cluster_centers_.tobytes() == fit(1)[0]
    assert second.labels_.tobytes() == fit(1)[1]


def test_a_damaged_message_is_sent_again():
    clean, seen = fit(2), []
    for number in (0, 3, 6, 9):
        made = fit(2, number)
        assert made[:3] == clean[:3]
        seen.append(made[3].detected)
    assert sum(seen) > 0 and clean[3].detected == 0


def test_a_lost_rank_is_named():
    engine = Engine([queue.SimpleQueue(), queue.SimpleQueue()], 0)
    engine.gone = {1}
    with pytest.raises(ballast.RankLostError, match="lost 1") as lost:
        ballast.group(engine, resend_after=0.01).barrier()
    assert lost.value.ranks == [1]


def test_a_communicator_with_a_lost_rank_gets_a_new_group():
    engine = Engine([queue.SimpleQueue(), queue.SimpleQueue()], 0)
    first = _group.joined(engine)
    assert _group.joined(engine) is first
    engine.gone = {1}
    with ballast.protection(group=engine, threads=1), pytest.raises(ballast.RankLostError):
        KMeans(n_clusters=2, random_state=0).fit(POINTS)
    second = _group.joined(engine)
    assert second is not first and second.size == 2
    _group.forget(second)


class FailingNccl:
    """A library of NCCL whose rank 0 makes no id."""

    def __init__(self):
        for name in ("ncclGetErrorString", "ncclGetUniqueId", "ncclCommInitRank", "ncclCommDestroy"):
            setattr(self, name, lambda *given, name=name: b"no interface" if name == "ncclGetErrorString" else 2)


def test_all_ranks_hear_that_nccl_makes_no_id(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: False)))
    monkeypatch.setattr(_group.ctypes, "CDLL", lambda file: FailingNccl())
    sent = queue.SimpleQueue()

    class Dist:
        def __init__(self, rank):
            self.rank = rank

        def get_rank(self, over):
            return self.rank

        def get_world_size(self, over):
            return 2

        def get_process_group_ranks(self, over):
            return [0, 1]

        def broadcast_object_list(self, known, src, group):
            if self.rank == 0:
                sent.put(list(known))
            else:
                known[:] = sent.get(timeout=20)

    def work(rank, engine):
        with pytest.raises(ballast.DeviceError, match="ncclGetUniqueId: expected success, got no interface on rank 0"):
            _group._over_nccl(Dist(rank), None, (5, 0.02, 20.0))
        return True

    assert on_threads(2, work) == [True, True]


def test_an_error_of_the_engine_is_that_of_the_call():
    engine = Engine([queue.SimpleQueue(), queue.SimpleQueue()], 0)
    engine.send = lambda to, message: 1 / 0
    with pytest.raises(ZeroDivisionError):
        ballast.group(engine).barrier()


def test_refusals():
    engine = Engine([queue.SimpleQueue()], 0)
    own = ballast.group(engine)
    assert (own.rank, own.size) == (0, 1)
    with pytest.raises(ballast.InvalidArgumentError, match="int without"):
        ballast.group(5)
    with pytest.raises(ballast.InvalidArgumentError, match="tries: expected at least 1, got 0"):
        ballast.group(engine, tries=0)
    with pytest.raises(ballast.InvalidArgumentError, match="got a list"):
        ballast.protection(group=own, device=[0, 1])
    with ballast.protection(group=own):
        with pytest.raises(ballast.InvalidArgumentError, match="random_state: expected an integer"):
            KMeans(n_clusters=2).fit(POINTS)
        with pytest.raises(ballast.UnsupportedError, match="got a function"):
            KMeans(n_clusters=2, random_state=0, init=lambda X, k, random_state: X[:k]).fit(POINTS)
        for other in (MiniBatchKMeans, SphericalKMeans):
            with pytest.raises(ballast.UnsupportedError, match="group"):
                other(n_clusters=2, random_state=0).fit(POINTS)
        with pytest.raises(ballast.UnsupportedError):
            ballast.fft.fft(POINTS)
        with pytest.raises(ballast.UnsupportedError):
            ballast.linalg.qr(POINTS)


def expect_results(folder, ranks):
    """Each rank has written its centroids and the sum of its labels: those of one rank, to the bit."""
    centroids, labels = fit(1)[:2]
    lines = [(folder / f"made-{rank}").read_text().split() for rank in range(ranks)]
    assert {bytes.fromhex(line[0]) for line in lines} == {centroids}
    assert sum(int(line[1]) for line in lines) == np.frombuffer(labels, np.int32).sum()


def test_mpi4py(tmp_path):
    on_mpi4py(PROGRAM, 3, tmp_path)
    expect_results(tmp_path, 3)


def test_torch_gloo(tmp_path):
    on_gloo(PROGRAM, 3, tmp_path)
    expect_results(tmp_path, 3)


def test_example_of_torchrun():
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs PyTorch")
    example = pathlib.Path(__file__).parents[2] / "examples" / "kmeans_torchrun.py"
    made = subprocess.run([sys.executable, "-B", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(example), "3001"],
                          capture_output=True, text=True, timeout=240)
    assert made.returncode == 0 and "centroids at [0, 20, 40, 60, 80]" in made.stdout, (made.stdout, made.stderr)
    assert "rank 1 of 2: " in made.stdout
