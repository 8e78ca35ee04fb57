#!/usr/bin/env python3
"""The strike program itself: without protection strikes reach the output, with it every one has an outcome, and a stop that changes nothing
changes nothing. Usage: strike_test.py PROGRAM"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = ""
# Problems for two threads, with calls of about a millisecond.
PROBLEMS = ["fft_c2c_f32_n1000_b256_fwd", "kmeans_f64_m10000_n16_k16", "geqrf_f32_m384_n256"]
OUTCOMES = ["masked", "repaired", "wrongly repaired", "uncorrectable", "failed", "crashed", "hung", "rounding", "below floor", "material"]
STRIKES = 80


def strike(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=300)


class StrikeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "strikes.json"
            cls.done = strike(*PROBLEMS, "--strikes", str(STRIKES), "--unprotected", str(STRIKES), "--json", str(output))
            cls.results = json.loads(output.read_text())["results"] if output.exists() else []

    def counts(self, protection, name, targets=("numbers", "bits", "masks", "general", "none")):
        return sum(each["targets"][target][name] for each in self.results if each["protection"] == protection for target in targets)

    def test_runs(self):
        # 3: there were strikes that no check covers. `make strike` judges those, not this test.
        self.assertIn(self.done.returncode, (0, 3), self.done.stderr)
        self.assertEqual(len(self.results), 2 * len(PROBLEMS))

    def test_every_strike_has_an_outcome(self):
        for each in self.results:
            counted = sum(counts[name] for counts in each["targets"].values() for name in OUTCOMES)
            self.assertEqual(counted, STRIKES, each["problem"])
            self.assertEqual(sum(counts["strikes"] for counts in each["targets"].values()), STRIKES)

    def test_strikes_reach_the_output_without_protection(self):
        self.assertGreater(self.counts("off", "material"), 0)
        self.assertEqual(self.counts("off", "repaired"), 0)

    def test_strikes_are_repaired_with_protection(self):
        self.assertGreater(self.counts("correct", "repaired"), 0)

    def test_a_stop_alone_changes_nothing(self):
        for protection in ("off", "correct"):
            self.assertGreater(self.counts(protection, "strikes", ("none",)), 0)
            self.assertEqual(self.counts(protection, "masked", ("none",)), self.counts(protection, "strikes", ("none",)))

    def test_strikes_have_locations(self):
        listed = [one for each in self.results for one in each["strikes"]]
        self.assertTrue(listed)
        named = [one for one in listed if one["module"] and one["place"]]
        self.assertGreater(len(named), len(listed) / 2)

    def test_usage(self):
        for arguments in (["nothing_f32"], ["fft_c2c_f32"], ["--strikes", "0"], ["orgqr_f32_m8_n16"], ["predict_f32_m90_n4_k3_b2"], ["kmeans_f32"]):
            done = strike(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertTrue(done.stderr or done.stdout)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
