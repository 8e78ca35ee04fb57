"""`ballast fft` and `ballast convolve`: results against NumPy."""

import unittest

import numpy as np

from support import DATA, WithFolder, run, run_json


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

    def test_any_number_of_axes(self):
        values = self.random.normal(size=(2, 3, 4, 3, 2))
        source = self.save("in.npy", values)
        for axes in ((0, 1, 2, 3, 4), (4, 0, 2, 1), (1, 3), (0, 2, 4)):
            seen = run_json("fft", source, "-o", self.dir / "out.npy", "--axes", ",".join(map(str, axes)))
            np.testing.assert_allclose(np.load(self.dir / "out.npy"), np.fft.fftn(values, axes=axes), atol=1e-12)
            self.assertEqual((seen["verdict"], seen["problem"].split("_")[3]), ("clean", "n" + "x".join(str(values.shape[a]) for a in axes)))
            self.assertTrue(seen["problem"].endswith(f"_b{values.size // np.prod([values.shape[a] for a in axes])}_fwd"))
            run("fft", source, "--real", "-o", self.dir / "half.npy", "--axes", ",".join(map(str, axes)))
            np.testing.assert_allclose(np.load(self.dir / "half.npy"), np.fft.rfftn(values, axes=axes), atol=1e-12)

    @staticmethod
    def matrix(kind, n):
        j, k = np.meshgrid(np.arange(n), np.arange(n))
        if kind == "dht":
            return np.cos(2 * np.pi * j * k / n) + np.sin(2 * np.pi * j * k / n)
        if kind == "r2hc":
            return np.where(2 * k <= n, np.cos(2 * np.pi * j * k / n), -np.sin(2 * np.pi * j * (n - k) / n))
        if kind == "hc2r":
            return np.linalg.inv(Fft.matrix("r2hc", n)) * n
        half = {"1": (0, 0), "2": (0.5, 0), "3": (0, 0.5), "4": (0.5, 0.5)}[kind[3]]
        if kind[:3] == "dst":
            if kind[3] == "1":
                return 2 * np.sin(np.pi * (j + 1) * (k + 1) / (n + 1))
            made = 2 * np.sin(np.pi * (j + (half[0] or 1)) * (k + (half[1] or 1)) / n)
            if kind[3] == "3":
                made[:, -1] /= 2
            return made
        made = 2 * np.cos(np.pi * (j + half[0]) * (k + half[1]) / (n - (kind[3] == "1")))
        if kind[3] in "13":
            made[:, 0] /= 2
        if kind[3] == "1":
            made[:, -1] /= 2
        return made

    def test_real_to_real_against_their_matrices(self):
        kinds = ("r2hc", "hc2r", "dht", "dct1", "dct2", "dct3", "dct4", "dst1", "dst2", "dst3", "dst4")
        values = self.random.normal(size=(5, 4, 6))
        source = self.save("in.npy", values)
        for number, kind in enumerate(kinds):
            other = kinds[(number + 3) % len(kinds)]
            for given, axes in ((kind, (-1,)), (f"{kind},{other}", (0, 2)), (kind, (1, 0))):
                text = ",".join(map(str, axes))
                seen = run_json("fft", source, "--kind", given, "--axes", text, "-o", self.dir / "out.npy")
                expected = values
                for axis, each in zip(axes, (given.split(",") * 2)[:2]):
                    expected = np.moveaxis(np.tensordot(self.matrix(each, values.shape[axis]), expected, (1, axis)), 0, axis)
                out = np.load(self.dir / "out.npy")
                np.testing.assert_allclose(out, expected, atol=1e-11, err_msg=given)
                self.assertEqual((seen["verdict"], out.dtype), ("clean", np.float64))
                self.assertIn(f"fft_{given.replace(',', 'x')}_f64_", seen["problem"])
                run("fft", self.dir / "out.npy", "--kind", given, "--axes", text, "--inverse", "-o", self.dir / "back.npy")
                np.testing.assert_allclose(np.load(self.dir / "back.npy"), values, atol=1e-13)

    def test_real_to_real_says_what_it_expects(self):
        source = self.save("in.npy", self.random.normal(size=(3, 1)))
        for arguments, said in (
            (("--kind", "dct5"), '--kind: expected r2hc, hc2r, dht, dct1 to dct4 or dst1 to dst4, got "dct5"'),
            (("--kind", "dct2,dct2"), "--kind: expected one kind, or 1, one for each of --axes, got 2"),
            (("--kind", "dct2", "--real"), "--kind: expected alone or with --inverse, got it with --real"),
            (("--kind", "dct1"), "fft_dct1_f64_n1_b3_fwd: shape: expected at least 2 points for dct1, got 1"),
            (("--kind", "dct2", "--length", 3), "--length: expected only with --real --inverse"),
        ):
            self.assertIn(said, run("fft", source, *arguments, status=2).stderr)
        numbers = self.save("c.npy", np.array([1j, 2]))
        self.assertIn("c.npy: --kind: expected real values, got complex ones", run("fft", numbers, "--kind", "dct2", status=2).stderr)

    def test_lists_of_devices(self):
        array = self.save("a.npy", np.ones((4, 6), complex))
        refused = lambda *options: run("fft", array, "--devices", *options, status=2).stderr
        self.assertIn("--devices: expected numbers of devices", refused("0,x"))
        self.assertIn("expected c2c, r2c or c2r of one array without gaps for devices", refused("0,1"))  # rows are a batch
        self.assertIn("one array without gaps", refused("0,1", "--axes", "1,0"))
        self.assertIn("expected backend cuda for devices", refused("0,1", "--axes", "0,1", "--backend", "cpu"))
        line = self.save("l.npy", np.ones(8))
        self.assertIn("expected a transposed spectrum of real data of one dimension", run("fft", line, "--real", "--devices", "0,1", status=2).stderr)
        self.assertIn("another kind", run("fft", line, "--kind", "dct2", "--devices", "0,1", status=2).stderr)

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

    def test_large_numbers_whose_result_is_in_range(self):
        for dtype, large in (("c16", 1.7e308), ("c8", 3e38), ("f8", 1.7e308), ("f4", 3e38)):
            for n in (8, 7, 97, 1009):  # by factors, and by a convolution
                out, half = self.dir / "out.npy", self.dir / "half.npy"
                source = self.save("in.npy", np.full(n, large, dtype))
                seen = run_json("fft", source, "--inverse", "-o", out)
                self.assertEqual((seen["not_finite"], seen["verdict"]), (0, "clean"))
                np.testing.assert_allclose(np.load(out) / large, np.eye(1, n)[0], atol=1e-5 if "4" in dtype or "c8" == dtype else 1e-13)
                if dtype[0] == "f":
                    run("fft", source, "--real", "--norm", "forward", "-o", half)
                    run("fft", half, "--real", "--inverse", "--length", n, "--norm", "forward", "-o", out)
                    np.testing.assert_allclose(np.load(out) / np.load(source), np.ones(n), rtol=1e-4)

    def test_signals_of_a_batch_are_scaled_each_by_itself(self):
        for axis in (0, 1):
            signals = self.random.normal(size=(3, 16)) * np.array([[1e307], [1e-300], [1]])
            source = self.save("in.npy", signals if axis == 1 else np.asfortranarray(signals.T))
            run("fft", source, "--axes", axis, "--norm", "ortho", "-o", self.dir / "out.npy")
            out = np.load(self.dir / "out.npy")
            expected = np.fft.fft(signals / 16, norm="ortho") * 16
            for seen, right in zip(out if axis == 1 else out.T, expected):
                # NumPy's norm would square numbers beyond the range of double.
                size = np.abs(right).max()
                self.assertLess(np.linalg.norm(seen / size - right / size), 1e-14)

    def test_results_beyond_the_range_are_told(self):
        source = self.save("in.npy", np.array([1.7e308, 1.7e308, 0, 0]))
        done = run("fft", source, "-o", self.dir / "out.npy")
        self.assertIn("of 4 results are NaN or Inf: all input is finite", done.stdout)
        out = np.load(self.dir / "out.npy")
        seen = run_json("fft", source)
        self.assertEqual(seen["not_finite"], np.count_nonzero(~np.isfinite(out)))
        self.assertEqual((out[0].real, out[2]), (np.inf, 0))
        np.testing.assert_allclose(out[1] / 1.7e308, 1 - 1j, rtol=1e-15)
        seen = run_json("fft", self.save("in.npy", np.array([1.0, np.nan, 1, np.inf])))
        self.assertEqual((seen["not_finite"], seen["inputs"][0]["not_finite"]), (4, 2))
        self.assertIn("4 of 4 results are NaN or Inf: so are 2 of the input", run("fft", self.dir / "in.npy").stdout)
        self.assertNotIn("NaN", run("fft", DATA / "sunspots.csv").stdout)

    def test_numbers_outside_the_range_of_f32(self):
        for source in (self.save("in.npy", np.array([1.0, 1e300])), self.save("c.npy", np.array([1.0, 1e300j])), self.save("i.npy", np.array([[-4e38, 1]]))):
            said = run("fft", source, "--precision", "f32", "-o", self.dir / "out.npy", status=2).stderr
            self.assertIn(f"{source.name}: --precision f32: expected values of at most 3.4e38, got ", said)
            self.assertFalse((self.dir / "out.npy").exists())
        self.assertIn("--precision f32", run("kmeans", self.dir / "in.npy", "-k", 1, "--precision", "f32", status=2).stderr)
        self.assertIn("--precision f32", run("qr", self.dir / "in.npy", "--precision", "f32", status=2).stderr)
        source = self.save("in.npy", np.array([1.0, 1e-300, 0, 1e-310]))
        self.assertIn("2 values are below the range of f32 and became 0", run("fft", source, "--precision", "f32").stdout)
        self.assertEqual(run_json("fft", source)["inputs"][0]["notes"], [])

    def test_half_spectrum_of_one_element_needs_a_length(self):
        source = self.save("in.npy", np.array([5 + 0j]))
        self.assertIn("--length: expected 1", run("fft", source, "--real", "--inverse", status=2).stderr)
        run("fft", source, "--real", "--inverse", "--length", 1, "-o", self.dir / "out.npy")
        np.testing.assert_array_equal(np.load(self.dir / "out.npy"), [5])


class Convolve(WithFolder):
    def test_every_mode_against_direct_sums(self):
        for dtype, tolerance in (("f4", 1e-5), ("f8", 1e-13), ("c16", 1e-13)):
            x, h = (self.random.normal(size=n).astype(dtype) for n in (200, 23))
            if dtype[0] == "c":
                x, h = (each + 1j * self.random.normal(size=each.shape) for each in (x, h))
            first, second = self.save("x.npy", x), self.save("h.npy", h)
            for mode in ("full", "same", "valid"):
                seen = run_json("convolve", first, second, "--mode", mode, "-o", self.dir / "out.npy")
                out, expected = np.load(self.dir / "out.npy"), np.convolve(x.astype("c16"), h.astype("c16"), mode)
                self.assertEqual((seen["verdict"], seen["shape"], out.dtype), ("clean", list(expected.shape), x.dtype))
                self.assertLess(np.linalg.norm(out - expected), tolerance * np.linalg.norm(x) * np.linalg.norm(h))
            run("convolve", first, second, "--correlate", "-o", self.dir / "out.npy")
            expected = np.correlate(x.astype("c16"), h.astype("c16"), "full")
            self.assertLess(np.linalg.norm(np.load(self.dir / "out.npy") - expected), 4 * tolerance * np.linalg.norm(x) * np.linalg.norm(h))

    def test_arrays_in_either_order_and_refusals(self):
        x, h = self.random.normal(size=(6, 7)), self.random.normal(size=(3, 2))
        expected = np.zeros((8, 8))
        for i in range(3):
            for j in range(2):
                expected[i:i + 6, j:j + 7] += h[i, j] * x
        for order in "CF":
            first, second = self.save("x.npy", np.array(x, order=order)), self.save("h.npy", np.array(h, order=order))
            run("convolve", first, second, "-o", self.dir / "out.npy")
            np.testing.assert_allclose(np.load(self.dir / "out.npy"), expected, atol=1e-13)
        self.assertIn("expected 2 axes, those of ", run("convolve", first, self.save("flat.npy", h[0]), status=2).stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
