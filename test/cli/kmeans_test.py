"""`ballast kmeans`: results against the definition."""

import json
import re
import unittest

import numpy as np

from support import DATA, WithFolder, run, run_json


class Kmeans(WithFolder):
    def test_iris(self):
        seen = run_json("kmeans", DATA / "iris.csv", "-k", 3, "--n-init", 5, "--labels", self.dir / "l.npy", "--centroids", self.dir / "c.npy")
        self.assertAlmostEqual(seen["inertia"], 78.85, delta=0.01)
        labels, centroids = np.load(self.dir / "l.npy"), np.load(self.dir / "c.npy")
        self.assertEqual(labels.dtype, np.int32)
        points = np.loadtxt(DATA / "iris.csv", delimiter=",", skiprows=3)
        distances = ((points[:, None, :] - centroids[None]) ** 2).sum(axis=2)
        np.testing.assert_array_equal(labels, distances.argmin(axis=1))
        self.assertAlmostEqual(seen["inertia"], distances.min(axis=1).sum(), delta=1e-9)
        self.assertEqual(sorted(seen["sizes"]), sorted(np.bincount(labels).tolist()))

    def test_a_batch_is_a_fit_of_each(self):
        points = np.random.default_rng(5).normal(size=(3, 40, 2))
        points[:, ::2] += 9
        source = self.save("p.npy", points)
        seen = run_json("kmeans", source, "-k", 2, "--seed", 4, "--labels", self.dir / "l.npy", "--centroids", self.dir / "c.npy")
        labels, centroids = np.load(self.dir / "l.npy"), np.load(self.dir / "c.npy")
        self.assertEqual((labels.shape, centroids.shape), ((3, 40), (3, 2, 2)))
        self.assertEqual(seen["problem"], "kmeans_f64_m40_n2_k2_b3")
        for b in range(3):
            one = run_json("kmeans", self.save("one.npy", points[b]), "-k", 2, "--seed", 4 + b, "--labels", self.dir / "own.npy")
            self.assertEqual((one["inertia"], one["iterations"], one["stopped"]), (seen["inertia"][b], seen["iterations"][b], seen["stopped"][b]))
            np.testing.assert_array_equal(np.load(self.dir / "own.npy"), labels[b])
        points[2, 7, 1] = np.nan
        self.assertIn("fit 2: ", run("kmeans", self.save("p.npy", points), "-k", 2, status=2).stderr)
        run("kmeans", source, "-k", 2, "--verbose", status=2)

    def test_same_seed_same_result_for_any_threads_and_backend_is_reported(self):
        results = []
        for threads in (1, 2):
            seen = run_json("kmeans", DATA / "iris.csv", "-k", 4, "--seed", 7, "--threads", threads)
            self.assertEqual(seen["backend"], "cpu")
            results.append((seen["inertia"], seen["iterations"], seen["sizes"]))
        self.assertEqual(results[0], results[1])
        self.assertEqual(run_json("kmeans", DATA / "iris.csv", "-k", 4, "--backend", "reference")["backend"], "reference")

    def test_verbose_tells_each_iteration_and_what_ended_the_run(self):
        done = run("kmeans", DATA / "iris.csv", "-k", 3, "--n-init", 2, "--max-iter", 4, "--tol", 0, "--verbose", "--json")
        told = re.findall(r"^run (\d), iteration (\d): inertia ([0-9.]+)$", done.stderr, re.M)
        self.assertEqual([(int(r), int(i)) for r, i, _ in told], [(r, i) for r in (1, 2) for i in (1, 2, 3, 4)])
        for r in (0, 4):
            values = [float(value) for _, _, value in told[r:r + 4]]
            self.assertEqual(values, sorted(values, reverse=True))
        seen = json.loads(done.stdout)
        self.assertEqual((seen["converged"], seen["stopped"]), (False, "max_iter"))
        self.assertEqual(run_json("kmeans", DATA / "iris.csv", "-k", 3, "--tol", 0)["stopped"], "labels unchanged")
        self.assertEqual(run_json("kmeans", DATA / "iris.csv", "-k", 3, "--tol", 10)["stopped"], "tolerance")

    def test_k_means_parallel_is_a_choice_of_first_centroids(self):
        seen = run_json("kmeans", DATA / "iris.csv", "-k", 3, "--init", "k-means||", "--oversampling", 4, "--rounds", 3, "--seed", 2)
        self.assertEqual(seen["verdict"], "clean")
        self.assertLess(seen["inertia"], 150)
        again = run_json("kmeans", DATA / "iris.csv", "-k", 3, "--init", "k-means||", "--oversampling", 4, "--rounds", 3, "--seed", 2,
                         "--backend", "reference")
        self.assertEqual((again["sizes"], again["iterations"]), (seen["sizes"], seen["iterations"]))
        done = run("kmeans", DATA / "iris.csv", "-k", 3, "--init", "k-means||", "--oversampling", 0, status=2)
        self.assertIn("oversampling: expected a finite number > 0, got 0", done.stderr)
        self.assertIn("--rounds: expected an integer of at least 1",
                      run("kmeans", DATA / "iris.csv", "-k", 3, "--init", "k-means||", "--rounds", 0, status=2).stderr)

    def test_lists_of_devices(self):
        for wrong in ("0,x", "0,,1", "1,", "0;1"):
            done = run("kmeans", DATA / "iris.csv", "-k", 3, "--devices", wrong, status=2)
            self.assertIn("--devices: expected numbers of devices", done.stderr)
        batch = self.save("b.npy", np.zeros((2, 4, 1)))
        self.assertIn("a single fit, got a batch", run("kmeans", batch, "-k", 1, "--devices", "0,1", status=2).stderr)
        self.assertIn("expected backend cuda for devices",
                      run("kmeans", DATA / "iris.csv", "-k", 3, "--devices", "0,1", "--backend", "cpu", status=2).stderr)

    def test_given_centroids_and_weights(self):
        points = np.array([[0.0], [1.0], [10.0], [11.0]])
        centroids = self.save("c.npy", np.array([[0.0], [10.0]]))
        weights = self.save("w.npy", np.array([3.0, 1.0, 1.0, 1.0]))
        run("kmeans", self.save("p.npy", points), "-k", 2, "--init", centroids, "--weights", weights, "--centroids", self.dir / "out.npy")
        np.testing.assert_allclose(np.load(self.dir / "out.npy"), [[0.25], [10.5]])

    def test_compressed_rows_are_the_same_points(self):
        random = np.random.default_rng(8)
        dense = random.random((200, 30)) * (random.random((200, 30)) < 0.2)
        dense[:, 29] = 0
        rows, columns = np.nonzero(dense)
        offsets = np.searchsorted(rows, np.arange(201))
        first = self.save("first.npy", dense[:4])
        results = {}
        for kind in (np.int32, np.int64):
            parts = [self.save("v.npy", dense[rows, columns]), "--row-offsets", self.save("o.npy", offsets.astype(kind)), "--row-columns",
                     self.save("c.npy", columns.astype(kind)), "--features", 30]
            seen = run_json("kmeans", *parts, "-k", 4, "--init", first, "--labels", self.dir / "l.npy", "--centroids", self.dir / "m.npy")
            self.assertEqual(seen["problem"], "kmeans_f64_m200_n30_k4_csr")
            results[kind] = np.load(self.dir / "l.npy"), np.load(self.dir / "m.npy"), seen["inertia"]
        beside = run_json("kmeans", self.save("d.npy", dense), "-k", 4, "--init", first, "--labels", self.dir / "d-l.npy")
        for labels, centroids, inertia in results.values():
            np.testing.assert_array_equal(labels, np.load(self.dir / "d-l.npy"))
            self.assertAlmostEqual(inertia, beside["inertia"], delta=1e-9)
            self.assertEqual(centroids.shape, (4, 30))
        short = [*parts[:-2], "-k", 4]
        self.assertIn("n29", run_json("kmeans", *short)["problem"])
        run("kmeans", *parts[:3], "-k", 4, status=2)
        chosen = run_json("kmeans", *parts, "-k", 4, "--init", "k-means||")
        self.assertEqual(chosen["verdict"], "clean")
        self.assertLess(chosen["inertia"], 1.5 * beside["inertia"])
        self.save("c.npy", columns + 0.5)
        self.assertIn("expected integers", run("kmeans", *parts, "-k", 4, status=2).stderr)

    def test_spherical_clusters_directions(self):
        random = np.random.default_rng(3)
        points = np.repeat(np.eye(3), 20, axis=0) + 0.1 * random.random((60, 3))
        points *= random.integers(1, 1000, size=(60, 1))
        source = self.save("p.npy", points)
        seen = run_json("kmeans", source, "-k", 3, "--spherical", "--labels", self.dir / "l.npy", "--centroids", self.dir / "c.npy")
        self.assertEqual(seen["problem"], "kmeans_f64_m60_n3_k3_spherical")
        labels, centroids = np.load(self.dir / "l.npy"), np.load(self.dir / "c.npy")
        np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, rtol=1e-14)
        cosines = (points / np.linalg.norm(points, axis=1, keepdims=True)) @ centroids.T
        np.testing.assert_array_equal(labels, cosines.argmax(axis=1))
        self.assertAlmostEqual(seen["inertia"], (1 - cosines.max(axis=1)).sum(), delta=1e-12)
        self.assertEqual(len(set(labels.reshape(3, 20)[:, 0])), 3)
        points[7] = 0
        self.assertIn("row 7", run("kmeans", self.save("p.npy", points), "-k", 3, "--spherical", status=2).stderr)

    def test_mini_batches(self):
        random = np.random.default_rng(4)
        points = np.repeat(10 * np.eye(4), 250, axis=0) + random.normal(size=(1000, 4))
        source = self.save("p.npy", points)
        parts = [source, "-k", 4, "--batch-size", 100, "--labels", self.dir / "l.npy", "--centroids", self.dir / "c.npy"]
        seen = run_json("kmeans", *parts)
        self.assertEqual(seen["problem"], "kmeans_f64_m1000_n4_k4_mini100")
        self.assertEqual(seen["verdict"], "clean")
        self.assertEqual((seen["stopped"], seen["converged"], sum(seen["sizes"])), ("no improvement", True, 1000))
        labels, centroids = np.load(self.dir / "l.npy"), np.load(self.dir / "c.npy")
        distances = ((points[:, None] - centroids) ** 2).sum(axis=2)
        np.testing.assert_array_equal(labels, distances.argmin(axis=1))
        self.assertAlmostEqual(seen["inertia"], distances.min(axis=1).sum(), delta=1e-9 * seen["inertia"])
        self.assertEqual(sorted(seen["sizes"]), [250] * 4)
        limited = run_json("kmeans", *parts, "--max-iter", 1, "--max-no-improvement", 50, "--reassignment-ratio", 0, "--init-size", 40,
                           "--weights", self.save("w.npy", random.random(1000)))
        self.assertEqual((limited["stopped"], limited["iterations"]), ("max_iter", 10))
        self.assertIn("step 1: inertia", run("kmeans", *parts, "--verbose").stderr)
        self.assertIn("steps (converged", run("kmeans", *parts).stdout)
        for wrong in (("--spherical",), ("--devices", "0"), ("--batch-size", 0), ("--reassignment-ratio", -1), ("--tol", -1), ("--tol", -2)):
            run("kmeans", *parts, *wrong, status=2)
        run("kmeans", self.save("b.npy", points.reshape(2, 500, 4)), *parts[1:], status=2)

    def test_what_has_no_meaning_is_refused(self):
        points = self.save("p.npy", self.random.normal(size=(5, 2)))
        bad = self.random.normal(size=(5, 2))
        bad[2, 1] = np.nan
        for arguments in ((points, "-k", 6), (points, "-k", 0), (points, "-k", -1), (self.save("nan.npy", bad), "-k", 2),
                          (self.save("empty.npy", np.zeros((0, 3))), "-k", 1), (self.save("c.npy", np.ones((4, 2)) * 1j), "-k", 2),
                          (self.save("4d.npy", np.zeros((2, 2, 2, 2))), "-k", 2), (points, "-k", 2, "--max-iter", 0), (points, "-k", 2, "--tol", "-1"),
                          (points, "-k", 2, "--init", self.save("wrong.npy", np.zeros((3, 2)))),
                          (points, "-k", 2, "--weights", self.save("w.npy", -np.ones(5)))):
            labels = self.dir / "labels.npy"
            done = run("kmeans", *arguments, "--labels", labels, status=2)
            self.assertTrue(done.stderr.strip())
            self.assertEqual(done.stdout, "")
            self.assertFalse(labels.exists())


if __name__ == "__main__":
    unittest.main(verbosity=1)
