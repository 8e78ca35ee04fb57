"""`ballast qr` and `ballast lstsq`: results against the definition and NumPy."""

import itertools
import unittest

import numpy as np

from support import DATA, WithFolder, run, run_json


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

    def test_lists_of_devices(self):
        tall, wide, batch = (self.save(f"{name}.npy", np.ones(shape)) for name, shape in (("t", (9, 2)), ("w", (2, 9)), ("b", (2, 9, 2))))
        complex_one = self.save("c.npy", np.ones((9, 2), complex))
        for operands in (("qr",), ("lstsq", tall)):
            def refused(matrix, *options, operands=operands):
                return run(operands[0], matrix, *operands[1:], "--devices", "0,1", *options, status=2).stderr

            self.assertIn("--devices: expected numbers of devices", run(operands[0], tall, *operands[1:], "--devices", "0,x", status=2).stderr)
            self.assertIn("expected one matrix", refused(batch))
            self.assertIn("expected real values, got complex ones", refused(complex_one))
            self.assertIn("expected without --no-tf32x3", refused(tall, "--no-tf32x3"))
            self.assertIn("expected backend cuda for devices", refused(tall, "--backend", "cpu"))
        self.assertIn("expected at least as many rows as columns", run("lstsq", wide, wide, "--devices", "0,1", status=2).stderr)
        self.assertIn("expected backend cuda for devices", run("qr", wide, "--devices", "0,1", "--backend", "cpu", status=2).stderr)
        self.assertIn("block: expected 1 to 1024 columns, got 1025",
                      run("qr", wide, "--devices", "0,1", "--block", "1025", "--backend", "cpu", status=2).stderr)
        self.assertIn("--block: expected with --devices", run("qr", wide, "--block", "4", status=2).stderr)
        self.assertIn("expected one matrix without --pivot", run("qr", tall, "--pivot", "--devices", "0,1", status=2).stderr)
        self.assertIn("expected without --rcond", run("lstsq", tall, tall, "--rcond", "-1", "--devices", "0,1", status=2).stderr)

    def test_complex_matrices(self):
        def numbers(shape, dtype):
            return (self.random.normal(size=shape) + 1j * self.random.normal(size=shape)).astype(dtype)

        for dtype, token, tolerance in (("c16", "c128", 1e-13), ("c8", "c64", 1e-5)):
            for shape in ((30, 7), (7, 30), (12, 12), (1, 1), (4, 9, 5), (4, 5, 9)):
                A = numbers(shape, dtype)
                seen = run_json("qr", self.save("a.npy", A), "--q", self.dir / "q.npy", "--r", self.dir / "r.npy")
                Q, R = np.load(self.dir / "q.npy"), np.load(self.dir / "r.npy")
                self.assertEqual(Q.dtype, A.dtype)
                self.assertTrue(seen["problem"].startswith(f"qr_{token}_m{shape[-2]}_n{shape[-1]}"), seen["problem"])
                self.assertGreater(seen["report"]["checks"], 0)
                self.assertLess(np.linalg.norm(Q @ R - A), tolerance * np.linalg.norm(A))
                adjoint = np.conj(np.swapaxes(Q, -1, -2))
                self.assertLess(np.linalg.norm(adjoint @ Q - np.eye(Q.shape[-1])), tolerance * 10)
                np.testing.assert_array_equal(R, np.triu(R))
                np.testing.assert_array_equal(np.diagonal(R, axis1=-2, axis2=-1).imag, 0)
                self.assertLess(seen["residual"], tolerance)
                self.assertLess(seen["orthogonality"], tolerance)
                if shape == (12, 12) or shape == (1, 1):
                    continue
                B = numbers((*shape[:-1], 2), dtype)
                seen = run_json("lstsq", self.dir / "a.npy", self.save("b.npy", B), "-o", self.dir / "x.npy")
                X = np.load(self.dir / "x.npy")
                np.testing.assert_allclose(X, np.linalg.pinv(A) @ B, rtol=0, atol=tolerance * 1000)
                if len(shape) == 2:
                    np.testing.assert_allclose(np.array(seen["x"]) @ [1, 1j], X.T, rtol=1e-6)
                    np.testing.assert_allclose(seen["residual"], np.linalg.norm(A @ X - B, axis=0), atol=tolerance * 100)
        # A real right-hand side of a complex matrix, and text.
        b = self.random.normal(size=shape[1])
        A = self.save("a.npy", numbers((5, 3), "c16"))
        np.savetxt(self.dir / "b.csv", b[:5] if len(b) >= 5 else self.random.normal(size=5))
        self.assertIn("i", run("lstsq", A, self.dir / "b.csv").stdout.split("x =")[1])
        self.assertEqual(run_json("qr", A, "--scheme", "qr_update")["scheme"], "qr_update")

    def numbers(self, shape, complex):
        return self.random.normal(size=shape) + (1j * self.random.normal(size=shape) if complex else 0)

    def test_pivots(self):
        for shape, complex in itertools.product(((30, 7), (7, 30), (60, 60), (5, 1), (1, 5)), (False, True)):
            A = self.numbers(shape, complex) * 2.0 ** self.random.permutation(shape[1])
            seen = run_json("qr", self.save("a.npy", A), "--pivot", "--q", self.dir / "q.npy", "--r", self.dir / "r.npy")
            Q, R, order = np.load(self.dir / "q.npy"), np.load(self.dir / "r.npy"), seen["pivots"]
            self.assertTrue(seen["problem"].startswith("qr_c128" if complex else "qr_f64"), seen["problem"])
            self.assertEqual(sorted(order), list(range(shape[1])))
            self.assertLess(np.linalg.norm(Q @ R - A[:, order]), 1e-13 * np.linalg.norm(A))
            self.assertLess(seen["residual"], 1e-13)
            for k in range(len(R)):
                self.assertLessEqual(np.linalg.norm(R[k:, k:], axis=0).max(), abs(R[k, k]) * (1 + 1e-6))
        self.assertIn("one matrix for --pivot", run("qr", self.save("a.npy", np.ones((2, 3, 3))), "--pivot", status=2).stderr)

    def test_least_squares_of_any_rank(self):
        for shape, complex in itertools.product(((20, 8), (8, 20)), (False, True)):
            A = self.numbers((shape[0], 3), complex) @ self.numbers((3, shape[1]), complex)
            B = self.numbers((shape[0], 2), complex)
            seen = run_json("lstsq", self.save("a.npy", A), self.save("b.npy", B), "--rcond", "1e-10", "-o", self.dir / "x.npy")
            self.assertEqual(seen["rank"], 3)
            np.testing.assert_allclose(np.load(self.dir / "x.npy"), np.linalg.lstsq(A, B, rcond=1e-10)[0], rtol=1e-9, atol=1e-9)
            self.assertEqual(run_json("lstsq", self.dir / "a.npy", self.dir / "b.npy", "--rcond", "-1")["rank"], 3)
        self.assertIn("rcond", run("lstsq", self.dir / "a.npy", self.dir / "b.npy", "--rcond", "2", status=2).stderr)

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
                self.assertEqual(seen["problem"], f"qr_{'f64' if dtype == 'f8' else 'f32'}_m{shape[1]}_n{shape[2]}" + f"_b{shape[0]}" * (shape[0] > 1))
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

    def test_dependent_columns_are_refused_with_the_rank(self):
        t = np.arange(1.0, 11)
        b = self.save("b.npy", self.random.normal(size=10))
        for dtype in ("f8", "f4"):
            A = self.save("a.npy", np.column_stack([np.ones(10), t, t < 6, t > 5]).astype(dtype))
            said = run("lstsq", A, b, "--precision", "f64" if dtype == "f8" else "f32", "-o", self.dir / "x.npy", status=2).stderr
            self.assertRegex(said, "expected full rank, got rank 3 of 4: column [023] depends on the others")
            self.assertFalse((self.dir / "x.npy").exists())
            x = np.array(run_json("lstsq", A, b, "--any-rank")["x"][0])
            self.assertEqual(x.shape, (4,))
        wide = self.save("w.npy", np.array([[1.0, 2, 3], [2, 4, 6]]))
        self.assertIn("rank 1 of 2: row", run("lstsq", wide, self.save("c.npy", np.array([1.0, 2])), status=2).stderr)
        line = self.save("l.npy", np.column_stack([np.ones(10), t]))
        seen = run_json("lstsq", line, b)
        self.assertEqual(seen["rank"], 2)
        self.assertTrue(1 < seen["condition"] < 20, seen["condition"])
        self.assertIn("rank 2, condition number about", run("lstsq", line, b).stdout)

    def test_results_beyond_the_range_are_told(self):
        A, b = self.save("a.npy", np.array([[1e-200]])), self.save("b.npy", np.array([1e200]))
        self.assertEqual(run_json("lstsq", A, b)["not_finite"], 1)
        self.assertIn("1 of 1 results are NaN or Inf: all input is finite", run("lstsq", A, b).stdout)
        self.assertEqual(run_json("qr", A)["not_finite"], 0)

    def test_wrong_shapes(self):
        a, b = self.save("a.npy", np.ones((4, 2))), self.save("b.npy", np.ones(5))
        self.assertIn("rows", run("lstsq", a, b, status=2).stderr)
        run("qr", self.save("e.npy", np.zeros((0, 3))), status=2)


if __name__ == "__main__":
    unittest.main(verbosity=1)
