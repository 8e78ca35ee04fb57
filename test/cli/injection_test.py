"""Faults of each operation, site and model, through the command."""

import json
import subprocess
import unittest

import numpy as np

from support import BALLAST, DATA, WithFolder, run, run_json


class Injection(WithFolder):
    """Every operation, site and model that `ballast info --json` lists, through the command."""

    COMMANDS = {
        "fft": ("fft", DATA / "sunspots.csv", "--real", "-o"),
        # Two iterations: later ones would heal what a fault did.
        "kmeans": ("kmeans", DATA / "iris.csv", "-k", 3, "--max-iter", 2, "--centroids"),
        "mini_batch": ("kmeans", DATA / "iris.csv", "-k", 3, "--batch-size", 30, "--max-iter", 2, "--max-no-improvement", 3, "--reassignment-ratio", 0.9,
                       "--centroids"),
        "qr": ("lstsq", DATA / "longley-a.csv", DATA / "longley-b.csv", "-o"),
    }
    # Sites that another command of the operation reaches.
    PIVOTED = {"qr.column_norm", "qr.pivot", "qr.permutation"}
    TOLERANCE = {"fft": 1e-12, "kmeans": 1e-12, "mini_batch": 1e-12, "qr": 1e-9}
    # Copies between processor and GPU: no backend of the host has such a place. backend_qr_cuda strikes it.
    ON_A_GPU = {"qr.transfer"}

    def result(self, operation, *more):
        """The JSON object, and what the run gave: the output's values and, for K-Means, the sizes and the inertia."""
        out = self.dir / "result.npy"
        out.unlink(missing_ok=True)
        command = (*self.COMMANDS[operation], out, *more, "--json")
        if any(f"site={site}," in word for word in more for site in self.PIVOTED):
            command = (*command, "--rcond", 1e-12)
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
        parts = [np.load(out).ravel().view(float)] + [np.atleast_1d(np.array(seen[key], dtype=float)) for key in ("sizes", "inertia", "iterations", "pivots") if key in seen]
        return seen, np.concatenate(parts)

    def test_walk(self):
        info = json.loads(run("info", "--json").stdout)
        data_sites = {(row["operation"], row["name"]) for row in info["site_details"] if row["data"]}
        self.assertEqual(set(info["sites"]), set(self.COMMANDS))
        for operation, sites in info["sites"].items():
            for site in sites:
                clean_report, clean = self.result(operation, *(("--rcond", "1e-12") if site in self.PIVOTED else ()))
                self.assertEqual(clean_report["verdict"], "clean")
                detected = 0
                seed = 5 if site in self.PIVOTED else 3  # of a norm that decides something
                for model in info["models"]:
                    fault = f"site={site},model={model},seed={seed}" + (",bit=62" if model in ("bit_flip", "two_bits", "vector_mask") else "")
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
