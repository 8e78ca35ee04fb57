"""The command as a user runs it: results against NumPy, JSON, exit statuses, files whole or untouched.

Usage: cli_test.py PATH_OF_BALLAST [unittest's arguments]
"""

import json
import os
import re
import resource
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import numpy as np

BALLAST = os.path.abspath(sys.argv.pop(1))
DATA = Path(__file__).resolve().parents[2] / "examples" / "data"


def run(*arguments, status=0):
    done = subprocess.run([BALLAST, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    if done.returncode != status:
        raise AssertionError(f"{arguments}: expected exit status {status}, got {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def run_json(*arguments, status=0):
    return json.loads(run(*arguments, "--json", status=status).stdout)


class WithFolder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = Path(self.folder.name)
        self.random = np.random.default_rng(1)

    def tearDown(self):
        self.folder.cleanup()

    def save(self, name, values):
        np.save(self.dir / name, values)
        return self.dir / name


class Fft(WithFolder):
    def test_every_type_order_and_axis_against_numpy(self):
        for dtype, tolerance in (("f4", 1e-5), ("f8", 1e-13), ("c8", 1e-5), ("c16", 1e-13)):
            values = self.random.normal(size=(6, 10, 15)).astype(dtype)
            if dtype[0] == "c":
                values = values + 1j * self.random.normal(size=values.shape).astype(values.real.dtype)
            for order in "CF":
                source = self.save("in.npy", np.array(values, order=order))
                for axes in ((-1,), (0,), (1,), (0, 1), (1, 2), (0, 2), (0, 1, 2), (2, 0)):
                    seen = run_json("fft", source, "-o", self.dir / "out.npy", "--axes", ",".join(map(str, axes)))
                    out = np.load(self.dir / "out.npy")
                    self.assertEqual(out.dtype, np.result_type(values.dtype, np.complex64))
                    expected = np.fft.fftn(values.astype("c16"), axes=axes)
                    self.assertLess(np.linalg.norm(out - expected), tolerance * np.linalg.norm(expected), (dtype, order, axes))
                    self.assertEqual(seen["verdict"], "clean")
                    self.assertEqual(seen["shape"], list(values.shape))

    def test_real_and_back(self):
        for n in (1, 2, 9, 10):
            values = self.random.normal(size=(4, n))
            source = self.save("in.npy", values)
            run("fft", source, "--real", "-o", self.dir / "half.npy")
            np.testing.assert_allclose(np.load(self.dir / "half.npy"), np.fft.rfft(values), atol=1e-13)
            run("fft", self.dir / "half.npy", "--real", "--inverse", "--length", n, "-o", self.dir / "back.npy")
            np.testing.assert_allclose(np.load(self.dir / "back.npy"), values, atol=1e-13)

    def test_norms_and_inverse(self):
        values = self.random.normal(size=40) + 1j * self.random.normal(size=40)
        source = self.save("in.npy", values)
        for norm in ("backward", "ortho", "forward"):
            run("fft", source, "--norm", norm, "-o", self.dir / "f.npy")
            np.testing.assert_allclose(np.load(self.dir / "f.npy"), np.fft.fft(values, norm=norm), atol=1e-12)
            run("fft", source, "--norm", norm, "--inverse", "-o", self.dir / "i.npy")
            np.testing.assert_allclose(np.load(self.dir / "i.npy"), np.fft.ifft(values, norm=norm), atol=1e-12)

    def test_precision_option_and_csv_output(self):
        source = self.save("in.npy", self.random.normal(size=8))
        seen = run_json("fft", source, "--precision", "f32", "-o", self.dir / "out.csv")
        self.assertIn("_f32_", seen["problem"])
        rows = [complex(line) for line in (self.dir / "out.csv").read_text().split()]
        np.testing.assert_allclose(rows, np.fft.fft(np.load(source)), rtol=1e-5, atol=1e-5)
        run("fft", self.dir / "out.csv", "--inverse", "-o", self.dir / "back.npy")
        np.testing.assert_allclose(np.load(self.dir / "back.npy"), np.load(source), atol=1e-5)

    def test_solar_cycle(self):
        seen = run_json("fft", DATA / "sunspots.csv", "--real")
        self.assertAlmostEqual(seen["peak"]["period"], 11.04, delta=0.1)

    def test_in_place_output_over_the_input(self):
        values = self.random.normal(size=16)
        source = self.save("in.npy", values)
        run("fft", source, "-o", source)
        np.testing.assert_allclose(np.load(source), np.fft.fft(values), atol=1e-13)

    def test_nan_and_inf_are_no_fault(self):
        values = self.random.normal(size=(3, 32))
        values[1, 5] = np.nan
        values[2, 7] = np.inf
        seen = run_json("fft", self.save("in.npy", values), "-o", self.dir / "out.npy")
        out = np.load(self.dir / "out.npy")
        self.assertEqual(seen["verdict"], "clean")
        np.testing.assert_allclose(out[0], np.fft.fft(values[0]), atol=1e-12)
        self.assertTrue(np.isnan(out[1]).all())
        self.assertFalse(np.isfinite(out[2]).any())


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
            self.assertEqual((one["inertia"], one["iterations"], one["ended"]), (seen["inertia"][b], seen["iterations"][b], seen["ended"][b]))
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
        self.assertEqual((seen["converged"], seen["ended"]), (False, "max_iter"))
        self.assertEqual(run_json("kmeans", DATA / "iris.csv", "-k", 3, "--tol", 0)["ended"], "labels unchanged")
        self.assertEqual(run_json("kmeans", DATA / "iris.csv", "-k", 3, "--tol", 10)["ended"], "tolerance")

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

    def test_given_centroids_and_weights(self):
        points = np.array([[0.0], [1.0], [10.0], [11.0]])
        centroids = self.save("c.npy", np.array([[0.0], [10.0]]))
        weights = self.save("w.npy", np.array([3.0, 1.0, 1.0, 1.0]))
        run("kmeans", self.save("p.npy", points), "-k", 2, "--init", centroids, "--weights", weights, "--centroids", self.dir / "out.npy")
        np.testing.assert_allclose(np.load(self.dir / "out.npy"), [[0.25], [10.5]])

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


class Qr(WithFolder):
    def test_factors(self):
        for shape in ((30, 7), (7, 30), (12, 12), (1, 1), (200, 150)):
            for dtype, tolerance in (("f8", 1e-13), ("f4", 1e-5)):
                A = self.random.normal(size=shape).astype(dtype)
                seen = run_json("qr", self.save("a.npy", np.asfortranarray(A)), "--q", self.dir / "q.npy", "--r", self.dir / "r.npy")
                Q, R = np.load(self.dir / "q.npy"), np.load(self.dir / "r.npy")
                self.assertLess(np.linalg.norm(Q @ R - A), tolerance * np.linalg.norm(A))
                self.assertLess(np.linalg.norm(Q.T @ Q - np.eye(Q.shape[1])), tolerance * 10)
                np.testing.assert_array_equal(R, np.triu(R))
                self.assertLess(seen["residual"], tolerance)
                self.assertLess(seen["orthogonality"], tolerance)

    def test_products_in_fp32_are_an_option(self):
        A = self.save("a.npy", self.random.normal(size=(40, 20)).astype("f4"))
        run("qr", A, "--r", self.dir / "r.npy", "--backend", "cpu")
        run("qr", A, "--r", self.dir / "r32.npy", "--backend", "cpu", "--no-tf32x3")  # the host has no TF32: the same bits
        np.testing.assert_array_equal(np.load(self.dir / "r.npy"), np.load(self.dir / "r32.npy"))

    def test_longley_to_nine_digits(self):
        seen = run_json("lstsq", DATA / "longley-a.csv", DATA / "longley-b.csv", "-o", self.dir / "x.npy")
        certified = np.loadtxt(DATA / "longley-x.csv", skiprows=4)
        x = np.load(self.dir / "x.npy")[:, 0]
        np.testing.assert_allclose(x, certified, rtol=1e-9)
        np.testing.assert_array_equal(seen["x"][0], x)

    def test_several_right_hand_sides_and_least_norm(self):
        for shape in ((20, 5), (5, 20)):
            A, B = self.random.normal(size=shape), self.random.normal(size=(shape[0], 3))
            run("lstsq", self.save("a.npy", A), self.save("b.npy", B), "-o", self.dir / "x.npy")
            np.testing.assert_allclose(np.load(self.dir / "x.npy"), np.linalg.lstsq(A, B, rcond=None)[0], rtol=1e-9, atol=1e-9)

    def test_batches(self):
        for shape in ((6, 12, 5), (3, 5, 12), (40, 8, 8), (2, 70, 66), (1, 1, 1)):
            for dtype, tolerance in (("f8", 1e-13), ("f4", 1e-5)):
                A = self.random.normal(size=shape).astype(dtype)
                seen = run_json("qr", self.save("a.npy", A), "--q", self.dir / "q.npy", "--r", self.dir / "r.npy")
                Q, R = np.load(self.dir / "q.npy"), np.load(self.dir / "r.npy")
                rank = min(shape[1:])
                self.assertEqual(Q.shape, (*shape[:2], rank))
                self.assertEqual(R.shape, (shape[0], rank, shape[2]))
                self.assertEqual(seen["problem"], f"qr_{'f64' if dtype == 'f8' else 'f32'}_m{shape[1]}_n{shape[2]}_b{shape[0]}")
                for a, q, r in zip(A, Q, R):
                    self.assertLess(np.linalg.norm(q @ r - a), tolerance * np.linalg.norm(a))
                    np.testing.assert_array_equal(r, np.triu(r))
                self.assertLess(seen["residual"], tolerance)
                self.assertLess(seen["orthogonality"], tolerance)
        A, B = self.random.normal(size=(5, 9, 4)), self.random.normal(size=(5, 9, 2))
        seen = run_json("lstsq", self.save("a.npy", A), self.save("b.npy", np.asfortranarray(B)), "-o", self.dir / "x.npy")
        X = np.load(self.dir / "x.npy")
        for a, b, x, norms in zip(A, B, X, seen["residual"]):
            np.testing.assert_allclose(x, np.linalg.lstsq(a, b, rcond=None)[0], rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(norms, np.linalg.norm(a @ x - b, axis=0), rtol=1e-6)
        run("qr", self.save("a.npy", A), "--q", self.dir / "q.csv", status=2)
        run("lstsq", self.save("a.npy", A), self.save("b.npy", B[:4]), status=2)
        run("lstsq", self.save("a.npy", A), self.save("b.npy", B[0]), status=2)
        struck = run_json("qr", self.save("a.npy", A), "--inject", "site=qr.panel,model=nan,seed=1")
        self.assertEqual(struck["verdict"], "recomputed")
        self.assertLess(struck["report"]["events"][0]["index"], 5)

    def test_wrong_shapes(self):
        a, b = self.save("a.npy", np.ones((4, 2))), self.save("b.npy", np.ones(5))
        self.assertIn("rows", run("lstsq", a, b, status=2).stderr)
        run("qr", self.save("e.npy", np.zeros((0, 3))), status=2)
        run("qr", self.save("c.npy", np.ones((3, 3)) * 1j), status=2)


class Files(WithFolder):
    def npy(self, header, body=b"", magic=b"\x93NUMPY\x01\x00"):
        text = header.encode() if isinstance(header, str) else header
        path = self.dir / "bad.npy"
        path.write_bytes(magic + struct.pack("<H", len(text)) + text + body)
        return path

    def check_bad(self, path):
        out = self.dir / "out.npy"
        out.write_bytes(b"precious")
        done = run("fft", path, "-o", out, status=2)
        self.assertIn(str(path.name), done.stderr)
        self.assertEqual(out.read_bytes(), b"precious")
        self.assertEqual(sorted(p.name for p in self.dir.iterdir() if "partial" in p.name), [])

    def test_each_damaged_npy(self):
        good = "{'descr': '<f8', 'fortran_order': False, 'shape': (4,), }"
        for header, body, magic in (
            (good, bytes(31), None), (good, bytes(33), None), (good.replace("<f8", "<i8"), bytes(32), None),
            (good.replace("<f8", ">f8"), bytes(32), None), (good.replace("4,", "4611686018427387904, 4"), bytes(32), None),
            (good.replace("4,", "99999999999999999999"), bytes(32), None), (good.replace("4,", "-4,"), bytes(32), None),
            (good.replace("False", "Maybe"), bytes(32), None), (good.replace("'shape'", "'form'"), bytes(32), None),
            ("not a dictionary", bytes(32), None), ("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (4,)}", bytes(32), None),
            (good, bytes(32), b"\x93NUMPY\x09\x00"), (good, bytes(32), b"PK\x03\x04...."), ("", b"", None), (b"\xff" * 40, b"", None),
        ):
            with self.subTest(header=header, magic=magic):
                self.check_bad(self.npy(header, body, magic or b"\x93NUMPY\x01\x00"))
        path = self.dir / "short.npy"
        for size in range(0, 12):
            path.write_bytes(b"\x93NUMPY\x01\x00\x46\x00{'"[:size])
            self.check_bad(path)
        huge = self.dir / "huge.npy"
        huge.write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 0xFFFFFFF0) + b"{}")
        self.check_bad(huge)

    def test_missing_folder_and_wrong_ending(self):
        self.check_bad(self.dir / "absent.npy")
        (self.dir / "folder.npy").mkdir()
        self.check_bad(self.dir / "folder.npy")
        (self.dir / "x.txt").write_text("1,2")
        self.check_bad(self.dir / "x.txt")

    def test_bad_csv(self):
        path = self.dir / "bad.csv"
        for text in ("", "# nothing\n", "a,b\n", "1,2\n3\n", "1,x\n", "1,2\nx,2\n", "1e999\n", "1,2\0\n", "a,1\n2,3\n"):
            with self.subTest(text=text):
                path.write_text(text)
                self.check_bad(path)

    def test_csv_forms(self):
        path = self.dir / "form.csv"
        for text in ("x;y\r\n1;2\r\n3;4\r\n", "# c\n\n1\t2\n3\t4\n", '"x","y"\n1, 2\n+3,4.0e0\n', "\ufeff1,2\n3,4"):
            path.write_text(text, newline="")
            run("fft", path, "-o", self.dir / "out.npy")
            np.testing.assert_allclose(np.load(self.dir / "out.npy"), np.fft.fft([[1, 2], [3, 4]]))

    def test_csv_that_is_not_what_it_seems_is_refused_with_line_and_reason(self):
        path = self.dir / "x.csv"
        for text, *parts in (
            ("1,5;2,5\n", "line 1, column 2", "one kind of separator", "decimal point"),
            ("1;2\n3,4\n", "line 2, column 1", "one kind of separator"),
            ("1\t2\n3;4\n", "line 2", "'tab' and ';'"),
            ('"1,5"\n', "line 1, column 1", 'got "1,5"'),
            ('1,"2,5"\n', "line 1, column 2", 'got "2,5"'),
            ('1,"2\n', "line 1, column 2", "closing quote"),
            ('1,"2"3\n', "line 1, column 2", "separator behind the closing quote"),
            ("1.0.0\n2\n", "line 1, column 1", 'got "1.0.0"'),
            ("# a comment\n12:30,1\n13:30,2\n", "line 2, column 1", 'got "12:30"'),
            ("0x10,0x20\n1,2\n", "line 1, column 1", 'got "0x10"'),
            ("1 2 3\n4 5 6\n", "line 1, column 1", 'got "1 2 3"'),
            ("1e999,2\n1,2\n", "line 1, column 1", "a double can hold"),
            ("x,2.5\n1,2\n", "line 1, column 2", "a name as in the rest of this header"),
            ("x\n1,2\n", "line 2", "expected 1 columns", "got 2"),
            ("x,y\n1,2\nz,4\n", "line 3, column 1", 'got "z"'),
            ("1,2,\n", "line 1, column 3", 'got ""'),
        ):
            with self.subTest(text=text):
                path.write_text(text)
                done = run("fft", path, "-o", self.dir / "out.npy", status=2)
                for part in ("x.csv: ", *parts):
                    self.assertIn(part, done.stderr)
                self.assertFalse((self.dir / "out.npy").exists())
        for text in ('"length, cm";"a ""b"""\n1;2\n3;4\n', ",y\n1,2\n3,4\n", 'x,y\n"1","2"\n"3",4\n', "°C,µ\n1,2\n3,4\n"):
            path.write_text(text)
            run("fft", path, "-o", self.dir / "out.npy")
            np.testing.assert_allclose(np.load(self.dir / "out.npy"), np.fft.fft([[1, 2], [3, 4]]))

    def test_unwritable_places(self):
        source = self.save("in.npy", np.ones(4))
        for place in (self.dir / "no" / "such" / "folder.npy", self.dir, self.dir / "out.txt", "/proc/out.npy"):
            run("fft", source, "-o", place, status=2)
        three = self.save("three.npy", np.ones((2, 2, 2)))
        run("fft", three, "-o", self.dir / "out.csv", status=2)
        run("qr", self.save("a.npy", np.ones((3, 2))), "--q", self.dir / "same.npy", "--r", self.dir / "same.npy", status=2)

    def test_numpy_format_2_and_empty_axes(self):
        path = self.dir / "v2.npy"
        with open(path, "wb") as out:
            np.lib.format.write_array(out, np.arange(4.0), version=(2, 0))
        run("fft", path, "-o", self.dir / "out.npy")
        np.testing.assert_allclose(np.load(self.dir / "out.npy"), np.fft.fft(np.arange(4.0)), atol=1e-14)
        run("fft", self.save("scalar.npy", np.array(1.0)), status=2)
        run("fft", self.save("empty.npy", np.zeros((3, 0))), status=2)


class Outputs(WithFolder):
    """What lies at the place of an output, what signals leave behind, and what others do there meanwhile."""

    STRIKE = ("--inject", "site=fft.stage,model=bit_flip,bit=62,seed=1")

    def setUp(self):
        super().setUp()
        self.matrix = self.save("a.npy", self.random.normal(size=(5, 3)))
        self.q, self.r, self.fifo = self.dir / "q.npy", self.dir / "r.npy", self.dir / "events"

    def partial(self):
        return [each for each in self.dir.iterdir() if "partial" in each.name]

    def start_and_stop_before_names_are_given(self, *before):
        """A run with two files and a FIFO that nobody reads: it waits when the files are complete under their temporary names."""
        os.mkfifo(self.fifo)
        running = subprocess.Popen([*before, BALLAST, "qr", self.matrix, "--q", self.q, "--r", self.r, "--events", self.fifo],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(running.stderr.close)
        self.addCleanup(running.wait)
        self.addCleanup(running.kill)
        end = time.monotonic() + 20
        while len(self.partial()) < 2 or any(each.stat().st_size == 0 for each in self.partial()):
            self.assertIsNone(running.poll(), "it did not wait for the reader of the FIFO")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        return running

    def go_on(self, running):
        with open(self.fifo) as events:
            events.read()
        return running.communicate(timeout=60)[1]

    def test_fifos_and_devices_are_written_through(self):
        os.mkfifo(self.fifo)
        with subprocess.Popen([BALLAST, "fft", DATA / "sunspots.csv", "--events", self.fifo, "--quiet", *self.STRIKE]) as running:
            reader = os.open(self.fifo, os.O_RDONLY | os.O_NONBLOCK)
            running.wait(60)
            self.assertEqual(running.returncode, 0)
            self.assertEqual(json.loads(os.read(reader, 1 << 16))["action"], "recomputed")
            os.close(reader)
        self.assertTrue(stat.S_ISFIFO(self.fifo.stat().st_mode))
        ours, theirs = os.openpty()
        name = os.ttyname(theirs)
        run("fft", DATA / "sunspots.csv", "--events", name, *self.STRIKE)
        self.assertTrue(stat.S_ISCHR(os.stat(name).st_mode))
        self.assertIn(b"recomputed", os.read(ours, 1 << 16))
        os.close(ours)
        os.close(theirs)

    def test_arrays_go_into_a_fifo(self):
        path = self.dir / "pipe.csv"
        os.mkfifo(path)
        with subprocess.Popen([BALLAST, "fft", DATA / "sunspots.csv", "-o", path, "--quiet"]) as running:
            self.assertEqual(len(path.read_text().split()), 309)
            self.assertEqual(running.wait(60), 0)

    def test_the_file_of_standard_output_is_written_through(self):
        log, link = self.dir / "log", self.dir / "stdout"
        link.symlink_to("/proc/self/fd/1")  # as /dev/stdout, which a command that fails here would replace
        with open(log, "w") as out:
            out.write("before\n")
            out.flush()
            subprocess.run([BALLAST, "fft", DATA / "sunspots.csv", "--events", link, *self.STRIKE], stdout=out, check=True)
            out.write("after\n")
        lines = log.read_text().splitlines()
        self.assertEqual((lines[0], lines[-1]), ("before", "after"))
        self.assertEqual(json.loads(lines[1])["action"], "recomputed")
        self.assertIn("verdict recomputed", "".join(lines))

    def test_what_standard_output_does_not_take_is_a_failure(self):
        for arguments in (("fft", DATA / "sunspots.csv"), ("fft", DATA / "sunspots.csv", "--json"), ("info",), ("--help",), ("--version",)):
            with self.subTest(arguments=arguments), open("/dev/full", "w") as full:
                done = subprocess.run([BALLAST, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, 1)
                self.assertIn("No space left", done.stderr)
        # A closed one: no output file may become it.
        out = self.dir / "out.npy"
        done = subprocess.run(["sh", "-c", '"$0" fft "$1" -o "$2" >&-', BALLAST, DATA / "sunspots.csv", out], stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)
        self.assertEqual(np.load(out).shape, (309,))

    def test_signals_leave_nothing_behind(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGABRT, signal.SIGQUIT):
            with self.subTest(signal=number):
                self.q.write_bytes(b"precious")
                running = self.start_and_stop_before_names_are_given()
                running.send_signal(number)
                self.assertEqual(running.wait(60), -number)
                self.assertEqual(self.partial(), [])
                self.assertEqual(self.q.read_bytes(), b"precious")
                self.assertFalse(self.r.exists())
                self.fifo.unlink()

    def test_what_a_killed_run_leaves_blocks_nobody(self):
        running = self.start_and_stop_before_names_are_given()
        running.kill()
        running.wait()
        left = len(self.partial())
        self.assertGreater(left, 0)
        run("qr", self.matrix, "--q", self.q, "--r", self.r)
        self.assertEqual(len(self.partial()), left)
        self.assertEqual(np.load(self.q).shape, (5, 3))

    def test_an_ignored_signal_stays_ignored(self):
        running = self.start_and_stop_before_names_are_given("sh", "-c", 'trap "" HUP; exec "$0" "$@"')
        running.send_signal(signal.SIGHUP)
        self.assertEqual(self.go_on(running), "")
        self.assertEqual(running.returncode, 0)
        self.assertTrue(self.q.exists())

    def test_a_set_of_outputs_appears_together_or_not_at_all(self):
        for existed in (True, False):
            with self.subTest(existed=existed):
                if existed:
                    self.q.write_bytes(b"precious")
                else:
                    self.q.unlink()
                running = self.start_and_stop_before_names_are_given()
                self.r.mkdir()
                said = self.go_on(running)
                self.assertEqual(running.returncode, 1)
                self.assertIn("r.npy: expected a file to replace, got a folder", said)
                self.assertEqual(self.q.read_bytes() if self.q.exists() else None, b"precious" if existed else None)
                self.assertEqual(self.partial(), [])
                self.r.rmdir()
                self.fifo.unlink()

    def test_replacing_keeps_mode_and_owner(self):
        os.umask(0o022)
        self.q.write_bytes(b"old")
        self.q.chmod(0o640)
        if os.geteuid() == 0:
            os.chown(self.q, 12345, 23456)
        before = self.q.stat()
        run("qr", self.matrix, "--q", self.q, "--r", self.r)
        after = self.q.stat()
        self.assertEqual(np.load(self.q).shape, (5, 3))
        self.assertEqual((after.st_mode, after.st_uid, after.st_gid), (before.st_mode, before.st_uid, before.st_gid))
        self.assertEqual(stat.S_IMODE(self.r.stat().st_mode), 0o644)

    @unittest.skipUnless(os.geteuid() == 0, "needs files of two users")
    def test_a_file_of_another_user_is_not_taken_from_them(self):
        self.dir.chmod(0o777)
        self.matrix.chmod(0o644)
        self.q.write_bytes(b"precious")
        self.q.chmod(0o666)

        def as_another():
            os.setgroups([])
            os.setgid(12345)
            os.setuid(12345)

        done = subprocess.run([BALLAST, "qr", self.matrix, "--q", self.q], capture_output=True, text=True, preexec_fn=as_another, cwd="/")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("same owner", done.stderr)
        self.assertEqual((self.q.read_bytes(), self.q.stat().st_uid), (b"precious", 0))
        self.assertEqual(self.partial(), [])

    def test_links(self):
        """The file that a link names is replaced, not the link; a link that comes later is not followed."""
        target = self.dir / "target.npy"
        target.write_bytes(b"old")
        self.q.symlink_to("target.npy")
        run("qr", self.matrix, "--q", self.q)
        self.assertTrue(self.q.is_symlink())
        self.assertEqual(np.load(target).shape, (5, 3))
        run("qr", self.matrix, "--q", self.q, "--r", target, status=2)
        self.q.unlink()
        victim = self.dir / "victim"
        victim.write_bytes(b"precious")
        running = self.start_and_stop_before_names_are_given()
        self.q.symlink_to(victim)
        for each in self.partial():
            each.unlink()
            each.symlink_to(victim)
        self.go_on(running)
        self.assertEqual(victim.read_bytes(), b"precious")

    def test_long_names(self):
        path = self.dir / ("n" * 251 + ".npy")
        run("qr", self.matrix, "--q", path)
        self.assertEqual(np.load(path).shape, (5, 3))


class Limits(WithFolder):
    """More threads than a process can have: fewer are used, or memory is short and the command says so."""

    def run_limited(self, kind, most, *arguments, user=None):
        def limit():
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            resource.setrlimit(kind, (most, most))

        return subprocess.run([BALLAST, *map(str, arguments)], capture_output=True, text=True, preexec_fn=limit, cwd="/", timeout=100,
                              env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})  # it makes its own when it is loaded, and ends where it cannot

    def test_threads_under_a_limit_of_memory(self):
        source = self.save("p.npy", self.random.normal(size=(20000, 8)).astype("f4"))
        for megabytes in (300, 400, 600, 1000, 2000, 4000, 8000):
            for threads in (8, 64, 4096):
                with self.subTest(megabytes=megabytes, threads=threads):
                    done = self.run_limited(resource.RLIMIT_AS, megabytes << 20, "kmeans", source, "-k", 5, "--max-iter", 3, "--threads", threads)
                    self.assertIn(done.returncode, (0, 2) if megabytes < 1000 else (0,), done.stderr)
                    if done.returncode == 2:
                        self.assertIn("not enough memory", done.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "limits of processes are those of a user without others")
    def test_threads_under_a_limit_of_processes(self):
        self.dir.chmod(0o755)
        source = self.save("p.npy", self.random.normal(size=(20000, 8)).astype("f4"))
        clean = run_json("kmeans", source, "-k", 5, "--max-iter", 3)
        for processes in (2, 5, 40):
            for threads in (2, 64, 4096):
                with self.subTest(processes=processes, threads=threads):
                    done = self.run_limited(resource.RLIMIT_NPROC, processes, "kmeans", source, "-k", 5, "--max-iter", 3, "--json", "--threads", threads,
                                            user=45678)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(json.loads(done.stdout)["inertia"], clean["inertia"])


class Usage(WithFolder):
    def test_help_and_version(self):
        self.assertIn("kmeans", run("--help").stdout)
        for command in ("fft", "kmeans", "qr", "lstsq"):
            text = run(command, "--help").stdout
            for option in ("--protect", "--inject", "--backend", "--threads", "--events", "--json", "--quiet", "--scheme", "--precision"):
                self.assertIn(option, text)
        self.assertRegex(run("--version").stdout, r"^\d+\.\d+\.\d+")

    def test_bad_usage(self):
        iris = DATA / "iris.csv"
        for arguments in ((), ("nonsense",), ("fft",), ("fft", iris, "--colour", "red"), ("kmeans", iris), ("kmeans", iris, "-k", "three"),
                          ("kmeans", iris, "-k", "99999999999999999999"), ("kmeans", iris, "-k", 2, "--backend", "tpu"),
                          ("kmeans", iris, "-k", 2, "--scheme", "magic"), ("kmeans", iris, "-k", 2, "--threads", "-1"),
                          ("fft", iris, "--axes", "2"), ("fft", iris, "--axes", "0,0"), ("fft", iris, "--axes", "x"), ("fft", iris, "--length", "4"),
                          ("fft", iris, "--inject", "site=nowhere"), ("fft", iris, "--inject", "site=qr.tau"), ("fft", iris, "--inject", "model=nan"),
                          ("qr", iris, "--events", "/no/such/folder/e.jsonl")):
            with self.subTest(arguments=arguments):
                done = run(*arguments, status=2)
                self.assertTrue(done.stderr.strip())
                self.assertEqual(done.stdout, "")

    def test_bad_usage_gets_proper_messages(self):
        iris = DATA / "iris.csv"
        for arguments, message in (
            (("kmeans", iris, "-k", 3, "--seed", "-1"), 'ballast kmeans: --seed: expected an integer of at least 0, got "-1"'),
            (("kmeans", iris, "-k", "072"), 'ballast kmeans: -k: expected an integer of at least 1, got "072"'),
            (("kmeans", iris, "-k", 3, "--tol", "small"), 'ballast kmeans: --tol: expected a number, got "small"'),
            (("fft", iris, "--length", "0"), 'ballast fft: --length: expected an integer of at least 1, got "0"'),
            (("fft", iris, "--axes", "0,x"), 'ballast fft: --axes: expected an integer, got "x"'),
            (("fft", iris, "--threads", "1e3"), 'ballast fft: --threads: expected an integer of at least 0, got "1e3"'),
            (("fft", iris, "--protect", "maybe"), 'ballast fft: --protect: expected one of off, detect, correct, got "maybe"'),
            (("fft", iris, "--colour", "red"), "ballast fft: not expected: --colour red"),
            (("nonsense",), 'ballast: expected a subcommand (kmeans, fft, qr, lstsq, bench, tune, info), got "nonsense"'),
            ((), "ballast: expected a subcommand (kmeans, fft, qr, lstsq, bench, tune, info), got none"),
            (("tune", "fft_c2c_f32_n072_b1_fwd"), "072"),
        ):
            with self.subTest(arguments=arguments):
                self.assertIn(message, run(*arguments, status=2).stderr)

    def test_bytes_of_names_reach_terminal_and_json_escaped(self):
        name = os.fsencode(self.dir) + b"/\x1b[31m\xff\ny\xe2\x80\xae\xc3\xa9.npy"
        shown = "/\\x1b[31m\\xff\\ny\\u{202e}é.npy"
        for arguments in (("fft", name), ("fft", DATA / "iris.csv", "-o", name + b".txt"), ("fft", DATA / "iris.csv", name),
                          ("fft", DATA / "iris.csv", "--backend", name), (name,)):
            done = subprocess.run([BALLAST, *arguments], capture_output=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(shown, done.stderr.decode())
        folder = self.dir / "\udcff\x1b"
        done = subprocess.run([BALLAST, "info", "--json"], capture_output=True, env={**os.environ, "BALLAST_CACHE_DIR": folder})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(json.loads(done.stdout)["cuda"]["cache"].endswith("/\\xff\\x1b"))

    def test_cuda_computes_or_says_why_not(self):
        values = self.random.normal(size=(40, 1000)).astype("f4")
        source, out = self.save("in.npy", values), self.dir / "out.npy"
        about = run_json("info")
        why = about["cuda"]["unavailable"]
        self.assertEqual(not why, "cuda" in about["backends"])
        token = "fft_c2c_f32_n1024_b16_fwd"
        if not why:
            seen = run_json("fft", source, "--backend", "cuda", "-o", out)
            self.assertEqual((seen["backend"], seen["verdict"]), ("cuda", "clean"))
            expected = np.fft.fft(values)
            self.assertLess(np.linalg.norm(np.load(out) - expected), 1e-6 * np.linalg.norm(expected))
            return
        done = run("fft", source, "--backend", "cuda", "-o", out, status=2)
        self.assertIn(why, done.stderr)
        self.assertIn("cpu", done.stderr)  # what there is instead
        self.assertEqual(done.stdout, "")
        self.assertFalse(out.exists())
        done = run("bench", token, "--backend", "cuda", "--peers", status=2)
        self.assertTrue(why in done.stderr or "ballast-bench is not installed" in done.stderr, done.stderr)
        table = self.dir / "tuning.txt"
        for tuned in (token, "kmeans_f32_m1024_n8_k4"):
            done = run("tune", "--backend", "cuda", tuned, "-o", table, status=2)
            self.assertIn(why, done.stderr)
            self.assertFalse(table.exists())

    def test_tune_refuses_what_it_cannot_tune(self):
        for arguments in (("--backend", "cpu"), ("fft_nonsense",), ("--colour",)):
            done = run("tune", *arguments, status=2)
            self.assertTrue(done.stderr.strip())

    def test_info_about_cuda_is_consistent(self):
        cuda = run_json("info")["cuda"]
        self.assertEqual(cuda["available"], cuda["unavailable"] == "")
        self.assertEqual(cuda["compiler"] == "", cuda["without_compiler"] != "")
        self.assertEqual(cuda["bundle"] != "", cuda["bundle_kernels"] > 0)
        self.assertEqual(cuda["bundle"] == "", cuda["without_bundle"] != "")
        if cuda["available"]:
            self.assertEqual(run_json("fft", DATA / "sunspots.csv", "--backend", "cuda")["backend"], "cuda")
        else:
            for command in (["fft", DATA / "sunspots.csv"], ["kmeans", DATA / "iris.csv", "-k", 3], ["qr", DATA / "longley-a.csv"]):
                done = run(*command, "--backend", "cuda", status=2)
                self.assertIn("(cpu, reference), got cuda", done.stderr)
                self.assertIn(cuda["unavailable"], done.stderr)
            self.assertIn(cuda["unavailable"], run("info").stdout)

    def test_a_cache_that_cannot_be_written_is_told(self):
        for folder, state in ((self.dir / "new" / "cache", "writable"), (DATA / "iris.csv" / "cache", "not writable: ")):
            done = subprocess.run([BALLAST, "info", "--json"], capture_output=True, text=True, env={**os.environ, "BALLAST_CACHE_DIR": str(folder)})
            cuda = json.loads(done.stdout)["cuda"]
            self.assertEqual(cuda["cache"], str(folder))
            self.assertTrue(cuda["cache_state"].startswith(state), cuda["cache_state"])
        self.assertFalse((self.dir / "new").exists())
        shared = self.dir / "shared"
        shared.mkdir()
        shared.chmod(0o775)
        for folder, state in (("relative/cache", "writable"), ("shared", "not writable: ")):
            done = subprocess.run([BALLAST, "info", "--json"], capture_output=True, text=True, env={**os.environ, "BALLAST_CACHE_DIR": folder}, cwd=self.dir)
            cuda = json.loads(done.stdout)["cuda"]
            self.assertEqual(cuda["cache"], str(self.dir / folder))
            self.assertTrue(cuda["cache_state"].startswith(state), cuda["cache_state"])
        self.assertIn("expected that only user", cuda["cache_state"])

    def test_quiet_prints_nothing(self):
        done = run("fft", DATA / "sunspots.csv", "--quiet")
        self.assertEqual(done.stdout + done.stderr, "")

    def test_json_has_the_documented_keys(self):
        for arguments in (("fft", DATA / "sunspots.csv"), ("kmeans", DATA / "iris.csv", "-k", 3), ("qr", DATA / "iris.csv"),
                          ("lstsq", DATA / "longley-a.csv", DATA / "longley-b.csv")):
            seen = run_json(*arguments)
            for key in ("operation", "problem", "backend", "protection", "scheme", "seconds", "verdict", "report"):
                self.assertIn(key, seen)
            for key in ("checks", "detected", "corrected", "recomputed", "uncorrectable", "events"):
                self.assertIn(key, seen["report"])
            self.assertEqual(seen["operation"], arguments[0])
            self.assertGreater(seen["report"]["checks"], 0)
            self.assertEqual(run_json(*arguments, "--protect", "off")["report"]["checks"], 0)


class Injection(WithFolder):
    """Every operation, site and model that `ballast info --json` lists, through the command."""

    COMMANDS = {
        "fft": ("fft", DATA / "sunspots.csv", "--real", "-o"),
        # Two iterations: later ones would heal what a fault did.
        "kmeans": ("kmeans", DATA / "iris.csv", "-k", 3, "--max-iter", 2, "--centroids"),
        "qr": ("lstsq", DATA / "longley-a.csv", DATA / "longley-b.csv", "-o"),
    }
    TOLERANCE = {"fft": 1e-12, "kmeans": 1e-12, "qr": 1e-9}
    # What goes between processor and GPU: no backend of the host has such a place. backend_qr_cuda strikes it.
    ON_A_GPU = {"qr.transfer"}

    def result(self, operation, *more):
        """The JSON object, and what the run gave: the output's values and, for K-Means, the sizes and the inertia."""
        out = self.dir / "result.npy"
        out.unlink(missing_ok=True)
        command = (*self.COMMANDS[operation], out, *more, "--json")
        done = subprocess.run([BALLAST, *map(str, command)], capture_output=True, text=True, timeout=300)
        self.assertIn(done.returncode, (0, 2, 3), f"{command}\n{done.stderr}")
        if done.returncode == 2:  # an unprotected fault that made R singular
            self.assertIn("off", more)
            self.assertIn("full rank", done.stderr)
            return None, None
        seen = json.loads(done.stdout)
        self.assertEqual(done.returncode == 3, seen["verdict"] == "uncorrectable")
        self.assertEqual(out.exists(), done.returncode == 0)
        if not out.exists():
            return seen, None
        parts = [np.load(out).ravel().view(float)] + [np.atleast_1d(np.array(seen[key], dtype=float)) for key in ("sizes", "inertia", "iterations") if key in seen]
        return seen, np.concatenate(parts)

    def test_walk(self):
        info = json.loads(run("info", "--json").stdout)
        data_sites = {(row["operation"], row["name"]) for row in info["site_details"] if row["data"]}
        self.assertEqual(set(info["sites"]), set(self.COMMANDS))
        for operation, sites in info["sites"].items():
            clean_report, clean = self.result(operation)
            self.assertEqual(clean_report["verdict"], "clean")
            for site in sites:
                detected = 0
                for model in info["models"]:
                    fault = f"site={site},model={model},seed=3" + (",bit=62" if model in ("bit_flip", "two_bits", "vector_mask") else "")
                    seen, result = self.result(operation, "--inject", fault)
                    with self.subTest(fault=fault, verdict=seen["verdict"]):
                        if seen["verdict"] == "uncorrectable":
                            self.assertEqual(model, "stuck_at")
                        else:
                            np.testing.assert_allclose(result, clean, rtol=0, atol=self.TOLERANCE[operation] * np.abs(clean).max())
                    detected += seen["report"]["detected"]
                with self.subTest(site=site):
                    if site in self.ON_A_GPU:
                        self.assertEqual(detected, 0)
                        continue
                    self.assertGreater(detected, 0, "no fault at this site was ever detected")
                    if (operation, site) in data_sites:
                        self.assertTrue(self.reaches_the_output(operation, site, clean), "with protection off no fault at this site reached the output")

    def reaches_the_output(self, operation, site, clean):
        for seed in range(1, 5):
            for visit in (0, 1, 2):
                for model in ("bit_flip,bit=62", "random_value", "zero"):
                    fault = f"site={site},model={model},seed={seed},visit={visit}"
                    _, result = self.result(operation, "--inject", fault, "--protect", "off")
                    if result is None or not np.array_equal(result, clean, equal_nan=True):
                        return True
        return False

    def test_faults_are_injected_whatever_other_arguments_say(self):
        for word in ("tune", "bench"):
            seen = json.loads(subprocess.run([BALLAST, "fft", DATA / "sunspots.csv", "--events", word, "--json", "--inject",
                                              "site=fft.stage,model=bit_flip,bit=62,seed=1"], capture_output=True, text=True, check=True, cwd=self.dir).stdout)
            self.assertEqual(seen["report"]["detected"], 1)
            self.assertIn("recomputed", (self.dir / word).read_text())

    def test_event_log_and_status_3(self):
        log = self.dir / "events.jsonl"
        out = self.dir / "out.npy"
        out.write_bytes(b"precious")
        done = run("fft", DATA / "sunspots.csv", "-o", out, "--events", log, "--inject", "site=fft.output,model=stuck_at,seed=1", status=3)
        self.assertIn("could not be repaired", done.stderr)
        self.assertEqual(out.read_bytes(), b"precious")
        events = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual([e["action"] for e in events], ["uncorrectable"])
        seen = run_json("fft", DATA / "sunspots.csv", "--protect", "detect", "--inject", "site=fft.output,model=bit_flip,bit=62,seed=1", status=3)
        self.assertEqual(seen["verdict"], "uncorrectable")


if __name__ == "__main__":
    unittest.main(verbosity=1)
