"""scripts/gpu-check where there may be no GPU: stages, statuses, table and page, with a program that prints made-up rows in place of a GPU's.

Usage: gpu_check_test.py PATH_OF_BALLAST_GPU_CHECK [unittest's arguments]
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(sys.argv.pop(1)).resolve()
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu-check"

FAKE = r'''#!/usr/bin/env python3
import json, sys, time
stage = sys.argv[1]
def row(type, **rest): print(json.dumps({"type": type, **rest}), flush=True)
row("info", version="9", device="Imaginary", driver="1.0", capability="9.0", multiprocessors=1, l2_bytes=2**20, memory_bytes=2**30, cufft="1.2.3")
if stage == "verify":
    for i in range(40):
        row("check", group="accuracy", token=f"fft_c2c_f32_n{2 ** (i % 20)}_b3_fwd", manner="off", error_in_bounds=0.5, error_to_rival=0.9, **{"pass": True})
    for i in range(30):
        row("check", group="faults", token="fft_c2c_f32_n64_b3_fwd", manner=f"fft.stage {i}", trials=10, corrected=4, recomputed=6, uncorrectable=0, silent=1,
            wrong="a very long explanation " * 20, **{"pass": False})
    row("end", stage=stage, failed=30)
    sys.exit(1)
if stage == "bench":
    for e in range(6, 30):
        for variant, median in (("off", 1e-3), ("correct", 1.04e-3), ("thread", 1.2e-3), ("cufft", 1.5e-3), ("cufft patient", 1.2e-3), ("copy", 0.95e-3)):
            row("time", token=f"fft_c2c_f32_n{2 ** e}_b2_fwd", variant=variant, latency=False, median=median, low=median, high=median, gbs=1.0, bytes=1, right=True)
    row("time", token="fft_c2c_f32_n30_b2_fwd", variant="off", refused="no such kernel")
    row("fault", token="fft_c2c_f32_n64_b2_fwd", struck=2e-3, waiting=1.9e-3, repaired=5, calls=5)
if stage == "heatmap":
    for n in range(3, 26):
        for b in range(0, 29 - n):
            row("cell", log_n=n, log_batch=b, off=1e-3, correct=1.1e-3, cufft=2e-3)
if stage == "first_calls":
    import os
    for seconds in (0.1, 0.3, 2.5):
        row("first call", token="fft_c2c_f32_n7_b2_fwd", first=seconds, again=1e-4, cache=os.listdir(os.environ["BALLAST_CACHE_DIR"]))
if stage == "strike":
    row("struck kernels", kernels=3, compiled=0)
    for guard, material in (("correct", 2), ("off", 70)):
        row("strike", token="fft_c2c_f32_n1024_b64_fwd", protection=guard, strikes=100, missed=3, masked=20, repaired=5, wrong=1, uncorrectable=0, rounding=1, below_floor=1,
            window=0, material=material, bound_99=0.08, **{"pass": guard == "off"})
    row("strike place", token="fft_c2c_f32_n1024_b64_fwd", material=2, wrong=1, window=0, floors=3.5, site="add.rn.f32 %f1, %f2, %f3;\tline.cuh:7 < line.cuh:9")
    row("end", stage=stage, failed=1)
    sys.exit(1)
if stage == "struck_kernels":
    row("struck kernel", expression="a", sites=9, **{"pass": True})
    with open(sys.argv[sys.argv.index("--bundle") + 1], "w") as to:
        to.write("[struck]")
    row("bundle", kernels=1)
if stage == "kernels":
    for name, origin in (("a", "bundle"), ("b", "compiled")):
        row("kernel", expression=name, token="t", registers=1, spills=0, stack=0, **{"from": origin, "pass": True})
    if "--bundle" in sys.argv:
        with open(sys.argv[sys.argv.index("--bundle") + 1], "w") as to:
            to.write(f"[{sys.argv[0].rsplit('/', 1)[1]} {sys.argv[sys.argv.index('--arch') + 1]}]")
        row("bundle", kernels=2)
if stage == "heatmap" and "--quick" in sys.argv: sys.exit(9)
'''


def check(*arguments):
    done = subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=500)
    return done.returncode, done.stdout, done.stderr


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = Path(self.folder.name)
        self.fake = self.out / "fake"
        self.fake.mkdir()
        for name in ("ballast-gpu-check", "ballast-gpu-check-production"):
            (self.fake / name).write_text(FAKE)
            (self.fake / name).chmod(0o755)

    def tearDown(self):
        self.folder.cleanup()

    def result(self):
        return json.loads((self.out / "gpu-check.json").read_text())

    def test_the_program_says_why_it_cannot_run_and_lists_its_problems(self):
        listed = subprocess.run([PROGRAM, "list"], capture_output=True, text=True, check=True)
        tokens = {json.loads(line)["token"] for line in listed.stdout.splitlines()}
        for token in ("fft_c2c_f32_n64_b4194304_fwd", "fft_c2c_f32_n16777216_b8_fwd", "fft_c2c_f64_n1048576_b128_fwd", "fft_r2c_f32_n400_b262144_fwd",
                      "fft_c2c_f64_n65537_b1024_fwd", "fft_r2c_f32_n108x108x120_b1_fwd", "fft_c2c_f32_n131072_b1_fwd"):
            self.assertIn(token, tokens)
        info = subprocess.run([PROGRAM, "info"], capture_output=True, text=True)
        self.assertIn(info.returncode, (0, 4), info.stderr)
        if info.returncode == 4:
            self.assertIn("cannot run here", info.stderr)
            real = self.out / "real"
            real.mkdir()
            for name in ("ballast-gpu-check", "ballast-gpu-check-production"):
                (real / name).symlink_to(PROGRAM)
            stages = "verify,faults,bench,repairs,heatmap"
            self.assertEqual(check("--programs", real, "--dry-run", "--out", self.out, "--stages", stages)[0], 0)
            status, out, _ = check("--programs", real, "--out", self.out, "--stages", stages)
            self.assertEqual(status, 4, out)
            stages = {stage["name"]: stage for stage in self.result()["stages"]}
            for name in ("verify", "bench", "heatmap"):
                self.assertEqual(stages[name]["status"], "no GPU")
                self.assertTrue(stages[name]["detail"])

    def test_bad_usage(self):
        for arguments in (["bake"], ["verify", "--seconds", "0"], ["verify", "fft_c2c_f32_n0_b1_fwd"], ["verify", "--what"], []):
            self.assertEqual(subprocess.run([PROGRAM, *arguments], capture_output=True).returncode, 2, arguments)
        self.assertEqual(check("--stages", "bake")[0], 2)
        self.assertEqual(check("--budget", "0")[0], 2)
        status, _, error = check("--only", "lu")
        self.assertEqual(status, 2)
        self.assertIn("expected some of fft,kmeans,qr, which have a CUDA backend, got lu", error)
        (self.out / "text").write_text("no bundle")
        self.assertEqual(check("--bundle", self.out / "text")[0], 2)
        refused = subprocess.run([PROGRAM, "list", "--only", "lu"], capture_output=True, text=True)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("expected an algorithm with a CUDA backend (fft, kmeans, qr), got lu", refused.stderr)

    def test_what_is_prepared_travels_and_is_found(self):
        programs = self.out / "there" / "bin"
        programs.mkdir(parents=True)
        for each in self.fake.iterdir():
            (programs / each.name).symlink_to(each)
        bundle = self.out / "kernels.xz"
        status, out, error = check("--programs", programs, "--out", self.out, "--only", "fft", "--prepare", bundle)
        self.assertEqual(status, 0, error)
        self.assertIn("kernels.xz: 5 kernels", out)
        status, out, error = check("--programs", programs, "--out", self.out, "--bundle", bundle, "--only", "fft", "--stages", "kernels")
        self.assertEqual(status, 0, error)
        self.assertIn("4 kernels, 2 compiled here", out)
        self.assertEqual((programs.parent / "share" / "ballast" / "kernels.bundle").read_text(), "[ballast-gpu-check-production sm_90a][ballast-gpu-check sm_90a][struck]")

    def test_stages_share_the_budget_and_pass_on_what_they_leave(self):
        check("--programs", self.fake, "--out", self.out, "--stages", "bench,heatmap", "--budget", "100")
        seconds = {}
        for name in ("bench", "heatmap"):
            words = (self.out / f"{name}.log").read_text().split()
            seconds[name] = float(words[words.index("--seconds") + 1])
        self.assertAlmostEqual(seconds["bench"], 100 * 60 / 100 - 10, delta=2)
        self.assertAlmostEqual(seconds["heatmap"], 100 - 10, delta=5)  # bench took next to nothing

    def test_table_and_page(self):
        status, out, _ = check("--programs", self.fake, "--out", self.out, "--only", "fft", "--stages", "verify,bench,first_calls,heatmap")
        self.assertEqual(status, 1, out)  # verify failed
        lines = out.splitlines()
        self.assertLessEqual(len(lines), 100)
        self.assertLessEqual(max(map(len, lines)), 110)
        self.assertIn("verify     failed", out)
        self.assertIn("heatmap    passed", out)
        self.assertRegex(out, r"faults +30 +30")
        self.assertRegex(out, r"c2c_f32_n1024_b2_fwd +1 +1.000 +95% +1.20 +1.15 +\+4.0% +1.200 +patient")
        self.assertRegex(out, r"reached +unprotected, geometric mean: ≥ 1.2× cuFFT: 1.20×")
        self.assertRegex(out, r"MISSED +f32 2\^15")
        self.assertRegex(out, r"reached +first call of a new problem, median: ≤ 0.4 s: 0.30 s")
        self.assertRegex(out, r"MISSED +first call of a new problem, worst: ≤ 2 s: 2.50 s")
        first = [row for stage in self.result()["stages"] for row in stage["rows"] if row["type"] == "first call"]
        self.assertEqual([row["cache"] for row in first], [[], [], []])  # a cache of its own, empty
        page = self.out / "page.md"
        source = self.out / "gpu-check.json"
        self.assertEqual(check("--report", source, page)[0], 0)
        text = page.read_text()
        self.assertIn("# FFT on Imaginary", text)
        self.assertIn("| `fft_c2c_f32_n64_b2_fwd` | 100.0 | +0.30% |", text)
        self.assertIn("| `fft_c2c_f32_n30_b2_fwd` | no such kernel |", text)
        page.write_text(text + "## Reasons\n\nSome.\n")
        self.assertEqual(check("--report", source, page)[0], 0)
        self.assertTrue(page.read_text().startswith(text.rstrip()))
        self.assertTrue(page.read_text().endswith("## Reasons\n\nSome.\n"))

    def test_strikes_have_a_table_and_their_places(self):
        status, out, _ = check("--programs", self.fake, "--out", self.out, "--stages", "strike")
        self.assertEqual(status, 1, out)
        self.assertRegex(out, r"fft_c2c_f32_n1024_b64_fwd +correct +100 +20 +5 +1 +0 +1 +1 +0 +2 +0.08")
        self.assertIn("2 silent, 1 wrong, 3.5 floors: add.rn.f32 %f1, %f2, %f3; line.cuh:7 < line.cuh:9", out)
        self.assertLessEqual(max(map(len, out.splitlines())), 110)

    def test_a_stage_that_breaks_does_not_stop_the_others(self):
        status, out, _ = check("--programs", self.fake, "--out", self.out, "--stages", "heatmap,bench", "--quick")
        self.assertEqual(status, 1)
        self.assertRegex(out, r"heatmap +failed .*exit status 9")
        self.assertRegex(out, r"bench +passed")

    def test_no_page_without_a_gpu(self):
        (self.out / "empty.json").write_text(json.dumps({"info": {}, "host": {}, "stages": [], "command": "", "date": "", "seconds": 0}))
        status, _, error = check("--report", self.out / "empty.json", self.out / "page.md")
        self.assertEqual(status, 1)
        self.assertIn("nothing to report", error)
        self.assertFalse((self.out / "page.md").exists())


if __name__ == "__main__":
    unittest.main()
