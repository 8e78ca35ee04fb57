"""Groups over NCCL: a process of torch.distributed for each of two CUDA devices. Fits have the bits of one device; errors and lost ranks end a
call on all. `gpu-check --only python` runs this file; without two devices its tests are skipped."""

import pathlib
import subprocess
import sys

import pytest

from processes import on_nccl

# A program of one rank: `over` is the communicator that the lines before it make. Rows of ranks begin at multiples of 1024.
POINTS = """
import sys
import numpy as np
import ballast
from ballast.sklearn import KMeans
m = 20001
points = (np.random.default_rng(4).standard_normal((m, 17)) + 8 * (np.arange(m) % 4)[:, None]).astype(np.float32)
first, last = (0, 10240) if rank == 0 else (10240, m)
"""

FITS = POINTS + """
def bits(array):
    return (array.cpu().numpy() if hasattr(array, "cpu") else np.asarray(array)).tobytes()

there = lambda rows: torch.from_numpy(rows).cuda()
for init in ("k-means++", "random", points[:5]):
    for on_device in (True, False):
        place = there if on_device else (lambda rows: rows)
        begin = init if isinstance(init, str) else place(init)
        for weights in (None, 1 + (np.arange(m) % 3).astype(np.float32)):
            of = lambda at, first, last: None if weights is None else at(weights[first:last])
            # On arrays of a device the library draws the first centroids in a call without a group, too.
            alone = KMeans(n_clusters=5, n_init=1, random_state=1, init=init if isinstance(init, str) else there(init))
            alone.fit(there(points), sample_weight=of(there, 0, m))
            alone_scores = alone.transform(there(points))
            with ballast.protection(group=over):
                model = KMeans(n_clusters=5, n_init=1, random_state=1, init=begin).fit(place(points[first:last]), sample_weight=of(place, first, last))
                labels = model.predict(place(points[first:last]))
                scores = model.transform(place(points[first:last]))
            assert bits(model.cluster_centers_) == bits(alone.cluster_centers_), (init, on_device)
            assert bits(model.labels_) == bits(labels) == bits(alone.labels_[first:last])
            assert bits(scores) == bits(alone_scores[first:last])
            assert (model.inertia_, model.n_iter_) == (alone.inertia_, alone.n_iter_) and model.report_.verdict == "clean"
made = ballast.group(over)
assert (made.rank, made.size) == (rank, size)
made.barrier()
print("compared", flush=True)
"""

QR = """
import numpy as np
import ballast
from ballast import linalg
A = np.random.default_rng(8).standard_normal((3000, 40))
own = np.array_split(A, size)[rank]
with ballast.protection(group=over):
    factors = linalg.factor_rows(own)
    X, R, Q = factors.solve(own.sum(1)), factors.R, factors.Q()
assert np.allclose(X, 1, atol=1e-10) and np.allclose(Q @ R, own, atol=1e-12)
assert np.allclose(np.abs(R), np.abs(np.linalg.qr(A, mode="r")), atol=1e-10)
print("solved", flush=True)
"""

# Rank 1 refuses its arguments before a call; then both make a right one.
REFUSED = POINTS + """
with ballast.protection(group=over):
    try:
        KMeans(n_clusters=5, random_state=1 if rank == 0 else None).fit(points[first:last])
        print("no error")
    except ballast.Error as seen:
        print(f"{type(seen).__name__}: {seen}")
    model = KMeans(n_clusters=5, random_state=1).fit(points[first:last])
    print("then", model.report_.verdict, flush=True)
"""

# Rank 1 ends without a word. Rank 0 must hear of it in time, and end its process itself: torch's own group waits for the other one.
LOST = POINTS + """
import os, time
made = ballast.group(over, patience=4)
with ballast.protection(group=made):
    KMeans(n_clusters=5, random_state=1).fit(points[first:last])
    if rank == 1:
        os._exit(9)
    begin = time.monotonic()
    try:
        KMeans(n_clusters=5, random_state=1).fit(points[first:last])
        print("no error")
    except ballast.RankLostError as seen:
        print("lost", seen.ranks, time.monotonic() - begin < 15)
with ballast.protection(device=0):
    print("then", KMeans(n_clusters=5, random_state=1).fit(points).report_.verdict, flush=True)
sys.stdout.flush()
os._exit(0)
"""


def outputs(program, folder, statuses=(0, 0)):
    texts, seen = on_nccl(program, 2, folder)
    assert tuple(seen) == statuses, texts
    return [text for text, _ in texts]


def test_fits_have_the_bits_of_one_device(tmp_path):
    assert outputs(FITS, tmp_path) == ["compared\n"] * 2


def test_least_squares_by_rows(tmp_path):
    assert outputs(QR, tmp_path) == ["solved\n"] * 2


def test_a_refusal_of_one_rank_ends_the_call_on_both(tmp_path):
    first, second = outputs(REFUSED, tmp_path)
    assert "rank 1" in first.splitlines()[0] and "InvalidArgumentError: random_state" in second.splitlines()[0], (first, second)
    assert first.splitlines()[1] == second.splitlines()[1] == "then clean"


def test_a_rank_that_ends_is_named(tmp_path):
    assert outputs(LOST, tmp_path, (0, 9))[0] == "lost [1] True\nthen clean\n"


def test_example_of_torchrun(tmp_path):
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs 2 CUDA devices, found {torch.cuda.device_count()}")
    example = pathlib.Path(__file__).parents[2] / "examples" / "kmeans_torchrun.py"
    made = subprocess.run([sys.executable, "-B", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(example), "300001"],
                          capture_output=True, text=True, timeout=240)
    assert made.returncode == 0 and "centroids at [0, 20, 40, 60, 80]" in made.stdout, (made.stdout, made.stderr)
