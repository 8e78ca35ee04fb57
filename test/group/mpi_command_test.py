"""The command on the ranks of MPI, kmeans and qr: the same bits as on one rank, one report, errors that are told once.

Usage: mpi_command_test.py RANKS[,RANKS…] COMMAND PROGRAM DAMAGE MPIRUN [OPTION…]; COMMAND is the one without MPI, DAMAGE the library made of
damaged_mpi.c, or none.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

POINTS, FEATURES, CLUSTERS = 1003, 5, 6


def factor_matrices(ranks, run, alone, folder, random):
    """`qr` by block columns: A = Q R and QᵀQ = I, the bits of one rank, and the R of the command without MPI to rounding."""
    np.save(folder / "batch.npy", np.ones((2, 3, 3)))
    (folder / "short.npy").write_bytes((folder / "batch.npy").read_bytes()[:-1])
    cases = [("square.npy", random.normal(size=(150, 150)), 16), ("tall.npy", random.normal(size=(203, 40)).astype(np.float32), 7), ("wide.npy", random.normal(size=(30, 77)), 64),
             ("few.npy", random.normal(size=(2, 5)), 2), ("complex.npy", random.normal(size=(90, 60)) + 1j * random.normal(size=(90, 60)), 13),
             ("turned.npy", np.asfortranarray(random.normal(size=(64, 48))), 10), ("vector.npy", random.normal(size=19), 1)]
    for file, A, block in cases:
        np.save(folder / file, A)

        def factor(count):
            outputs = folder / "q.npy", folder / "r.npy"
            for each in outputs:
                each.unlink(missing_ok=True)
            done = run(count, "qr", folder / file, "--block", block, "--q", outputs[0], "--r", outputs[1], "--json")
            assert done.returncode == 0, done
            report = report_of(done)
            assert report["verdict"] == "clean" and report["ranks"] == count and report["report"]["checks"] > 0, report
            assert report["inputs"][0]["shape"] == list(A.shape), report
            columns = A.shape[1] if A.ndim == 2 else 1
            assert report["problem"].endswith(f"_m{len(A)}_n{columns}") and report["scheme"] == "block_checksum", report
            return report, np.load(outputs[0]), np.load(outputs[1])

        matrix = A.reshape(len(A), -1)
        unit = np.finfo(A.dtype).eps / 2
        report, Q, R = factor(1)
        assert Q.dtype == A.dtype, (file, Q.dtype)
        expect_factors(file, A, report, Q, R)
        for count in ranks:
            _, other_q, other_r = factor(count)
            assert other_q.shape == Q.shape and other_q.tobytes() == Q.tobytes(), (file, count)
            assert other_r.shape == R.shape and other_r.tobytes() == R.tobytes(), (file, count)
        done = subprocess.run([alone, "qr", folder / file, "--r", folder / "alone.npy"], capture_output=True, text=True)
        assert done.returncode == 0, done
        # Rows of R have one sign in both, and move by the condition of A, which is moderate: a random matrix of this size.
        other = np.load(folder / "alone.npy").reshape(R.shape)
        assert np.allclose(other, R, rtol=0, atol=1e5 * unit * np.linalg.norm(matrix)), file
    text = run(ranks[-1], "qr", folder / "square.npy")
    assert text.returncode == 0 and text.stdout.count("verdict clean") == 1, text


def report_of(done):
    """The one report that a run has printed."""
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError as seen:
        raise AssertionError(f"expected one report, got {done}") from seen


def expect_factors(file, A, report, Q, R):
    """A = Q R and QᴴQ = I, as in the tests of QR on groups: over the norm of A, and over that of the identity."""
    matrix = A.reshape(len(A), -1)
    steps, number = min(matrix.shape), Q.dtype
    unit, wide = np.finfo(number).eps / 2, np.result_type(number, np.float64)
    assert R.dtype == number and Q.shape == (len(A), steps) and R.shape == (steps, matrix.shape[1]), (file, Q.shape, R.shape)
    limit = 8 * steps * unit
    assert np.linalg.norm(matrix - Q.astype(wide) @ R.astype(wide)) <= limit * np.linalg.norm(matrix), file
    assert np.linalg.norm(Q.conj().T.astype(wide) @ Q.astype(wide) - np.eye(steps)) <= limit * np.sqrt(steps), file
    assert np.array_equal(R, np.triu(R)) and report["residual"] <= limit and report["orthogonality"] <= limit, (file, report)


def factor_on_grids(ranks, run, alone, folder, random):
    """`qr --grid`: A = Q R and QᴴQ = I on each grid of each number of ranks, and the R of the command without MPI to rounding."""
    cases = [("square.npy", random.normal(size=(90, 90)), 16), ("tall.npy", random.normal(size=(203, 40)).astype(np.float32), 7),
             ("wide.npy", random.normal(size=(30, 77)), 64), ("few.npy", random.normal(size=(2, 5)), 2),
             ("complex.npy", np.asfortranarray(random.normal(size=(90, 60)) + 1j * random.normal(size=(90, 60))), 13),
             ("turned.npy", np.asfortranarray(random.normal(size=(64, 48)).astype(np.float32)), 10), ("vector.npy", random.normal(size=19), 3),
             ("integers.npy", random.integers(-99, 99, size=(33, 21)).astype(">i4"), 4), ("table.csv", random.normal(size=(25, 9)), 2)]
    for file, A, block in cases:
        if file.endswith("npy"):
            np.save(folder / file, A)
        else:
            np.savetxt(folder / file, A, delimiter=",", fmt="%.17g")
        done = subprocess.run([alone, "qr", folder / file, "--r", folder / "alone.npy"], capture_output=True, text=True)
        assert done.returncode == 0, done
        other = np.load(folder / "alone.npy")
        for grid in [(rows, count // rows) for count in ranks for rows in range(1, count + 1) if count % rows == 0]:
            outputs = folder / "q.npy", folder / "r.npy"
            for each in outputs:
                each.unlink(missing_ok=True)
            done = run(grid[0] * grid[1], "qr", folder / file, "--grid", f"{grid[0]}x{grid[1]}", "--block", block, "--q", outputs[0], "--r", outputs[1], "--json")
            assert done.returncode == 0, (file, grid, done)
            report = report_of(done)
            assert report["verdict"] == "clean" and report["grid"] == list(grid) and report["block"] == block, report
            assert report["ranks"] == grid[0] * grid[1] and report["inputs"][0]["shape"] == list(A.shape), report
            assert report["problem"].endswith(f"_m{len(A)}_n{A.size // len(A)}") and report["report"]["checks"] > 0, report
            Q, R = map(np.load, outputs)
            expect_factors(file, A, report, Q, R)
            # Both have LAPACK's signs; the condition of A is moderate.
            assert np.allclose(other.reshape(R.shape), R, rtol=0, atol=1e5 * np.finfo(R.dtype).eps / 2 * np.linalg.norm(A)), (file, grid)


def damage_messages(count, run, folder, damage):
    """A bit of a message of the last rank, on a grid: the bits of a clean run; without protection other bits, or no result."""
    grid, outputs = (2, count // 2) if count % 2 == 0 else (count, 1), (folder / "q.npy", folder / "r.npy")

    def factor(number, level):
        for each in outputs:
            each.unlink(missing_ok=True)
        before = ["env", f"LD_PRELOAD={damage}", f"BALLAST_TEST_DAMAGE={count - 1},{number}"]
        done = run(count, "qr", folder / "square.npy", "--grid", f"{grid[0]}x{grid[1]}", "--block", 16, "--q", outputs[0], "--r", outputs[1], "--json", "--protect", level,
                   before=before if number >= 0 else [])
        if done.returncode != 0:
            return None, 0
        return tuple(np.load(each).tobytes() for each in outputs), report_of(done)["report"]["detected"]

    clean, none = factor(-1, "correct")
    assert clean is not None and none == 0
    seen = 0
    for number in range(0, 40, 5):
        found, detected = factor(number, "correct")
        assert found == clean, number
        seen += detected
    assert seen > 0
    bare, _ = factor(-1, "off")
    assert any(factor(number, "off")[0] != bare for number in range(2, 40)), "without protection no damaged message reached the results"


def main():
    ranks = [int(each) for each in sys.argv[1].split(",")]
    alone, program, damage, mpirun = sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:]

    def run(count, *arguments, before=()):
        return subprocess.run([*mpirun, "-n", str(count), *before, program, *map(str, arguments)], capture_output=True, text=True, timeout=120)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        random = np.random.default_rng(5)
        points = random.normal(size=(POINTS, FEATURES)) + 6 * random.integers(0, CLUSTERS, size=(POINTS, 1))
        weights = random.uniform(0.5, 2, size=POINTS)
        files = {"f32.npy": points.astype(np.float32), "f64.npy": points, "fortran.npy": np.asfortranarray(points)}
        for file, values in files.items():
            np.save(folder / file, values)
        np.save(folder / "weights.npy", weights)
        np.savetxt(folder / "table.csv", points, delimiter=",")

        def fit(count, file, *more):
            outputs = folder / "labels.npy", folder / "centroids.npy"
            for each in outputs:
                each.unlink(missing_ok=True)
            done = run(count, "kmeans", folder / file, "-k", CLUSTERS, "--seed", 3, "--labels", outputs[0], "--centroids", outputs[1], "--json", *more)
            assert done.returncode == 0, done
            report = report_of(done)
            assert report["verdict"] == "clean" and report["ranks"] == count and sum(report["sizes"]) == POINTS, report
            assert report["inputs"][0]["shape"] == [POINTS, FEATURES], report
            return report["inertia"], report["iterations"], np.load(outputs[0]), np.load(outputs[1])

        for file, more in [("f32.npy", ()), ("f64.npy", ("--weights", folder / "weights.npy")), ("fortran.npy", ()), ("table.csv", ())]:
            expected = fit(1, file, *more)
            for count in ranks:
                found = fit(count, file, *more)
                assert found[:2] == expected[:2], (file, count, found[:2], expected[:2])
                assert np.array_equal(found[2], expected[2]) and np.array_equal(found[3].view(np.uint8), expected[3].view(np.uint8)), (file, count)
            done = subprocess.run([alone, "kmeans", folder / file, "-k", str(CLUSTERS), "--seed", "3", "--json", *map(str, more)], capture_output=True, text=True)
            assert abs(report_of(done)["inertia"] - expected[0]) < 1e-4 * expected[0], (file, done)

        factor_matrices(ranks, run, alone, folder, random)
        factor_on_grids(ranks, run, alone, folder, random)
        if damage != "none" and ranks[-1] > 1:
            damage_messages(ranks[-1], run, folder, damage)

        text = run(ranks[-1], "kmeans", folder / "f32.npy", "-k", 3)
        assert text.stdout.count("verdict clean") == 1, text
        for arguments, status, words in [
            (("kmeans", folder / "none.npy", "-k", 3), 2, "does not exist"),
            (("kmeans", folder / "f32.npy"), 2, "-k"),
            (("kmeans", folder / "f32.npy", "-k", POINTS + 1), 2, "at most the number of points"),
            (("kmeans", folder / "f32.npy", "-k", 3, "--weights", folder / "f32.npy"), 2, "weights"),
            (("kmeans", folder / "f32.npy", "-k", 3, "--labels", folder / "missing" / "labels.npy"), 2, "missing"),
            (("kmeans", folder / "f32.npy", "-k", 3, "--inject", "site=kmeans.sum"), 2, "--inject"),
            (("qr", folder / "none.npy"), 2, "does not exist"),
            (("qr", folder / "short.npy"), 2, "truncated"),
            (("qr", folder / "f64.npy", "--block", 0), 2, "at least 1"),
            (("qr", folder / "f64.npy", "--block", 97), 2, "1 to 96"),
            (("qr", folder / "f64.npy", "--pivot"), 2, "--pivot"),
            (("qr", folder / "f64.npy", "--devices", "0,1"), 2, "--devices"),
            (("qr", folder / "batch.npy"), 2, "expected a matrix"),
            (("qr", folder / "batch.npy", "--grid", f"1x{ranks[-1]}"), 2, "expected a matrix (1 or 2 axes) on a grid"),
            (("qr", folder / "short.npy", "--grid", f"1x{ranks[-1]}"), 2, "truncated"),
            (("qr", folder / "f64.npy", "--grid", f"2x{ranks[-1]}"), 2, f"rows × columns of the job's {ranks[-1]} ranks, got 2 × {ranks[-1]}"),
            (("qr", folder / "f64.npy", "--grid", "0x2"), 2, "such as 2x3, got \"0x2\""),
            (("qr", folder / "f64.npy", "--grid", "2,2"), 2, "such as 2x3, got \"2,2\""),
            (("qr", folder / "f64.npy", "--grid", f"{ranks[-1]}x1x"), 2, "such as 2x3"),
            (("qr", folder / "f64.npy", "--grid", f"1x{ranks[-1]}", "--block", 0), 2, "at least 1"),
            (("qr", folder / "f64.npy", "--grid", f"1x{ranks[-1]}", "--pivot"), 2, "--pivot"),
            (("qr", folder / "f64.npy", "--r", folder / "missing" / "r.npy"), 2, "missing"),
        ]:
            done = run(ranks[-1], *arguments)
            assert done.returncode == status, (status, done)
            assert words in done.stderr and done.stderr.count("ballast: ") + done.stderr.count("ballast kmeans: ") + done.stderr.count("ballast qr: ") <= 1, done
    print(f"ranks {sys.argv[1]}: the same bits as on one rank, one report")


if __name__ == "__main__":
    main()
