"""The command on the ranks of MPI: the same bits as on one rank, one report, errors that are told once.

Usage: mpi_command_test.py RANKS[,RANKS…] COMMAND PROGRAM MPIRUN [OPTION…]; COMMAND is the one without MPI.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

POINTS, FEATURES, CLUSTERS = 1003, 5, 6


def main():
    ranks = [int(each) for each in sys.argv[1].split(",")]
    alone, program, mpirun = sys.argv[2], sys.argv[3], sys.argv[4:]

    def run(count, *arguments):
        return subprocess.run([*mpirun, "-n", str(count), program, *map(str, arguments)], capture_output=True, text=True, timeout=120)

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
            report = json.loads(done.stdout)  # fails unless there is one
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
            assert abs(json.loads(done.stdout)["inertia"] - expected[0]) < 1e-4 * expected[0], (file, done)

        text = run(ranks[-1], "kmeans", folder / "f32.npy", "-k", 3)
        assert text.stdout.count("verdict clean") == 1, text
        for arguments, status, words in [
            (("kmeans", folder / "none.npy", "-k", 3), 2, "does not exist"),
            (("kmeans", folder / "f32.npy"), 2, "-k"),
            (("kmeans", folder / "f32.npy", "-k", POINTS + 1), 2, "at most the number of points"),
            (("kmeans", folder / "f32.npy", "-k", 3, "--weights", folder / "f32.npy"), 2, "weights"),
            (("kmeans", folder / "f32.npy", "-k", 3, "--labels", folder / "missing" / "labels.npy"), 2, "missing"),
            (("kmeans", folder / "f32.npy", "-k", 3, "--inject", "site=kmeans.sum"), 2, "--inject"),
        ]:
            done = run(ranks[-1], *arguments)
            assert done.returncode == status, (status, done)
            assert words in done.stderr and done.stderr.count("ballast: ") + done.stderr.count("ballast kmeans: ") <= 1, done
    print(f"ranks {sys.argv[1]}: the same bits as on one rank, one report")


if __name__ == "__main__":
    main()
