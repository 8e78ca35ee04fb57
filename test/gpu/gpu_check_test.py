"""scripts/gpu-check where there may be no GPU: stages, statuses, table and page, with a program that prints made-up rows in place of a GPU's.

Usage: gpu_check_test.py PATH_OF_BALLAST_GPU_CHECK [unittest's arguments]
"""

import json
import os
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
if stage == "bench" and "kmeans" in sys.argv:
    for token, off in (("kmeans_f32_m1000_n16_k8", 1.0), ("kmeans_f64_m1000_n16_k8", 2.0), ("kmeans_f32_m100_n4_k3_b5", 0.5)):
        for variant, factor in (("off", 1), ("correct", 1.25)):
            row("iteration", token=token, variant=variant, milliseconds=off * factor, low=off, high=off, preparation=3.0)
    row("iteration", token="kmeans_f32_m100_n4_k3_b5", variant="one by one", milliseconds=2.5, low=2.5, high=2.5)
    for variant, milliseconds in (("off", 0.2), ("correct", 0.25)):
        row("iteration", token="kmeans_f32_m1048576_n128_k128", variant=variant, milliseconds=milliseconds, low=0.2, high=0.3, preparation=8.0)
    row("iteration", token="kmeans_f32_m8_n1_k8", variant="off", refused="no difference between few and many iterations")
if stage == "sweep":
    for scheme, milliseconds in (("naive", 0.4), ("tensor", 0.2), ("row_checksum", 0.1)):
        row("step", token="kmeans_f32_m1000_n8_k16", scheme=scheme, protection="off", faults="none", milliseconds=milliseconds, different_labels=0, **{"pass": True})
    for scheme, milliseconds in (("warp_checksum", 0.25), ("row_checksum", 0.15)):
        for faults, factor in (("none", 1), ("idle", 2), ("struck", 3)):
            row("step", token="kmeans_f32_m1000_n8_k16", scheme=scheme, protection="correct", faults=faults, milliseconds=factor * milliseconds, different_labels=7,
                **{"pass": scheme != "warp_checksum" or faults != "struck"})
    row("step", token="kmeans_f64_m1000_n8_k16", scheme="naive", protection="off", faults="none", refused="no such kernel")
if stage == "bench" and "qr" in sys.argv:
    def times(token, operation, **variants):
        for variant, (ms, tflops) in variants.items():
            row("factorization", token=token, operation=operation, variant=variant.replace("_", " "), milliseconds=ms, low=ms, high=ms, tflops=tflops)
    for variant, ms in (("off", 38.0), ("correct", 39.0), ("repair in A'", 39.5), ("repair in V", 41.0)):
        row("repair", token="qr_f64_m8192_n8192", variant=variant, corrected=1, recomputed=0, milliseconds=ms, **{"pass": True})
    times("qr_f64_m8192_n8192", "geqrf", off=(38.0, 19.3), correct=(39.0, 18.8), cusolver=(75.0, 9.8), cusolver_64=(74.0, 9.9))
    times("qr_f64_m8192_n8192", "ormqr", off=(30.0, 36.6), correct=(30.5, 36.1), cusolver=(34.8, 31.6))
    times("qr_f64_m8192_n8192", "orgqr", off=(20.0, 36.6), correct=(25.0, 29.3), cusolver=(25.1, 29.1))
    times("qr_f64_m1000000_n32", "geqrf", off=(0.7, 2.9), correct=(0.9, 2.3), cusolver=(4.2, 0.5))
    times("qr_f64_m4096_n16384", "geqrf", off=(40.0, 12.6), correct=(50.0, 10.1))
    times("qr_f64_m64_n64_b1000", "geqrf", off=(0.1, 3.5), correct=(0.2, 1.7), cublas_batched=(1.6, 0.2))
    row("factorization", token="qr_f64_m32768_n32768", operation="geqrf", variant="off", refused="no time was left")
    times("qr_f64_m16384_n16384", "geqrf", off=(180.0, 32.6), correct=(182.0, 32.2), cusolver_64=(325.0, 18.0))
    row("factorization", token="qr_f64_m16384_n16384", operation="geqrf", variant="cusolver", refused="cuSOLVER: geqrf_bufferSize: status 3")
elif stage == "bench":
    for e in range(6, 30):
        for variant, median in (("off", 1e-3), ("correct", 1.04e-3), ("thread", 1.2e-3), ("cufft", 1.5e-3), ("cufft patient", 1.2e-3), ("copy", 0.95e-3)):
            row("time", token=f"fft_c2c_f32_n{2 ** e}_b2_fwd", variant=variant, latency=False, median=median, low=median, high=median, gbs=1.0, bytes=1, right=True)
    row("time", token="fft_c2c_f32_n30_b2_fwd", variant="off", refused="no such kernel")
    row("fault", token="fft_c2c_f32_n64_b2_fwd", struck=2e-3, waiting=1.9e-3, repaired=5, calls=5)
if stage == "paper":
    row("panels", blas="OpenBLAS 0.0", threads=3)
    for token, scale in (("qr_f64_m8192_n8192", 1), ("qr_f64_m16384_n16384", 8)):
        for variant, ms in (("off", 100.0), ("R", 101.0), ("R and Q", 107.0), ("repair in Q", 108.0), ("repair in R or A'", 120.0), ("repair in R or A', plain", 150.0),
                            ("R and Q, input kept", 106.5)):
            row("curve", token=token, variant=variant, milliseconds=scale * ms, low=ms, high=ms, tflops=733 / ms, corrected=0, recomputed=2 if "plain" in variant else 0,
                **{"pass": variant != "repair in Q"})
        for variant, ms in (("plain", 50.0), ("blocked", 10.0)):
            row("rotations", token=token, variant=variant, milliseconds=ms, low=ms, high=ms, **{"pass": True})
        for source in range(1, 9):
            row("overhead", token=token, source=source, name=f"source {source}", milliseconds=source, low=1, high=9, within=None if source == 2 else 0.5, off=100.0, **{"pass": True})
    sys.exit(1)
if stage == "heatmap":
    for n in range(3, 26):
        for b in range(0, 29 - n):
            row("cell", log_n=n, log_batch=b, off=1e-3, correct=1.1e-3, cufft=2e-3)
if stage == "first_calls":
    import os
    for seconds in (0.1, 0.3, 2.5):
        row("first call", token="fft_c2c_f32_n7_b2_fwd", first=seconds, again=1e-4, cache=os.listdir(os.environ["BALLAST_CACHE_DIR"]))
if stage == "calls":
    token, small = ("kmeans_f32_m1000_n16_k8", "kmeans_f32_m10_n2_k3") if "kmeans" in sys.argv else ("qr_f64_m64_n32", "qr_f64_m8_n8_b9")
    call = "predict" if "kmeans" in sys.argv else "geqrf"
    for variant, ms in (("off", 2.0), ("correct", 2.5), ("sampled", 2.06), *([("final_only", 2.1)] if "kmeans" in sys.argv else [("cuSOLVER", 2.0)])):
        row("call", token=token, call=call, variant=variant, milliseconds=ms, low=ms, high=ms, rounds=7)
    row("call profile", token=token, call=call, variant="correct", milliseconds=3.0, device=1.25, operations=12, host=0.5, host_calls=3)
    for part, place, ms in (("copy", "device", 0.25), ("pass_kernel", "device", 1.0), ("wait", "host", 0.5)):
        row("call part", token=token, call=call, variant="correct", place=place, part=part, count=4, bytes=0, milliseconds=ms)
    row("call", token=small, variant="all", refused="no such kernel")
if stage == "kinds":
    assert "--groups" not in sys.argv
    def kind(token, call, error, **times):
        for variant, ms in times.items():
            row("kind", token=token, call=call, variant=variant, milliseconds=ms, low=ms, high=ms, rounds=7)
        row("check", group="kinds", token=token, manner="correct", error=error, bound=1.0, error_in_bounds=error, **{"pass": error <= 1})
    if "qr" in sys.argv:
        kind("geqrf_c64_m64_n32", "geqrf", 0.25, off=2.0, correct=2.5, cuSOLVER=5.0)
        kind("geqp3_f64_m64_n64", "geqp3", 0.5, off=2.0, correct=2.0)
        row("kind", token="gels_c64_m64_n32", variant="all", refused="no such kernel")
    else:
        assert sys.argv[-1] == "fft_dct2_f32_n64_b9_fwd"
        kind("columns_fft_c2c_f32_n64_b9_fwd", "transform", 3.0, off=1.0, correct=1.25, cuFFT=1.0)
        kind("fft_dct2_f32_n64_b9_fwd", "transform", 0.1, off=1.0, correct=1.0)
        row("end", stage=stage, failed=1)
        sys.exit(1)
if stage == "first_call":
    import os
    assert os.listdir(os.environ["BALLAST_CACHE_DIR"]) == [] and len(sys.argv) == 5
    if sys.argv[4] == "kmeans_f64_m1048576_n16_k64": sys.exit("no compiler")
    row("first call", token=sys.argv[4], call="call", milliseconds=1200.0 if os.path.dirname(sys.argv[0]).endswith("/bin") else 30.0)
if stage == "strike":
    row("struck kernels", kernels=3, compiled=0)
    for guard, material in (("correct", 2), ("off", 70)):
        row("strike", token="fft_c2c_f32_n1024_b64_fwd", protection=guard, strikes=100, missed=3, masked=20, repaired=5, wrong=1, uncorrectable=0, failed=0, crashed=3, hung=1, rounding=1, below_floor=1,
            material=material, bound_99=0.08, **{"pass": guard == "off"})
    row("strike place", token="fft_c2c_f32_n1024_b64_fwd", material=2, wrong=1, uncorrectable=0, failed=0, crashed=3, hung=1, floors=3.5, site="add.rn.f32 %f1, %f2, %f3;\tline.cuh:7 < line.cuh:9")
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
if stage == "distributed":
    row("devices", count=2)
    for devices, good in (("0", True), ("0,1", "--quick" not in sys.argv)):
        row("distributed", token="kmeans_f32_m1000_n16_k8", init="random", weighted=False, devices=devices, protection="correct", iterations=5, detected=0, **{"pass": good})
    for devices, milliseconds in (("", 4.0), ("0", 4.4), ("0,1", 2.0)):
        for guard in ("off", "correct"):
            row("distributed time", token="kmeans_f32_m4194304_n128_k1000", devices=devices, protection=guard, call=100 * milliseconds, milliseconds=milliseconds, low=1.0, high=9.0)
    for devices, milliseconds in (("", 9.0), ("0", 9.5), ("0,1", 6.0)):
        for guard in ("off", "correct"):
            row("distributed call", token="fft_c2c_f32_n512x512x512_b1_fwd", call="forward", devices=devices, protection=guard, milliseconds=milliseconds, low=1.0, high=9.0,
                error=0.25 if devices else 0.0, limit=0.5 if devices else 0.0, detected=0, **{"pass": True}, **({"road": "peer", "inside": 4.0} if devices else {}))
    row("distributed call", token="fft_c2c_f32_n512x512x512_b1_fwd", call="forward, in device memory", devices="", protection="correct", milliseconds=5.0, low=1.0, high=9.0,
        error=0.0, limit=0.0, detected=0, **{"pass": True})
    row("distributed call", token="qr_f64_m200000_n32", call="factor", devices="0,1", protection="correct", wrong="no memory", **{"pass": False})
    for name, milliseconds in (("cuFFT, 1", 6.0), ("cufftXt, permuted", 4.0)):
        row("rival", token="fft_c2c_f32_n512x512x512_b1_fwd", name=name, devices=1, milliseconds=milliseconds, low=1.0, high=9.0)
    sys.exit(1 if "--quick" in sys.argv else 0)
if stage == "nccl":
    library = sys.argv[sys.argv.index("--nccl") + 1]
    assert open(library).read() == "a library"
    row("nccl group", name="fits", version="2.28.9", ranks=2, seconds=1.5)
    for rank in (0, 1):
        row("nccl fit", token="kmeans_f32_m1000_n16_k8", init="random", weighted=False, rank=rank, ranks=2, protection="correct", iterations=5, detected=0, **{"pass": True})
        row("nccl transform", token="fft_c2c_f32_n512x512x512_b1_fwd", order="transposed", rank=rank, ranks=2, protection="correct", milliseconds=2.0, low=1.0, high=3.0, error=0.25, limit=0.5,
            detected=0, **{"pass": True})
    row("nccl scene", name="fits", ranks=2, seconds=3.0, **{"pass": True})
    row("nccl transform", token="fft_c2c_f32_n512x512x512_b1_fwd", order="natural", rank=0, ranks=1, protection="correct", milliseconds=3.0, low=1.0, high=3.0, error=0.0, limit=0.0, detected=0,
        **{"pass": True})
    row("nccl faults", call="fit", fault="bit", protection="correct", cases=12, struck=9, detected=4, uncorrectable=0, wrong=0, **{"pass": True})
    row("nccl loss", during="fit", number=9, rank=0, ranks=2, patience=4.0, seconds=4.25, limit=10.0, named="1", later="1", new_group_right=True, **{"pass": True})
    for ranks, milliseconds in ((1, 4.0), (2, 2.5)):
        row("nccl time", token="kmeans_f32_m4194304_n128_k1000", ranks=ranks, protection="correct", call=100.0, milliseconds=milliseconds, low=1.0, high=9.0)
    row("nccl scene", name="loss in fit at 9", ranks=2, seconds=60.0, wrong="rank 0: had not ended after 60 s", **{"pass": False})
    sys.exit(1)
if stage == "heatmap" and "--quick" in sys.argv: sys.exit(9)
'''


def check(*arguments, **environment):
    done = subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=500, env=dict(os.environ, **environment))
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
        self.assertIn("expected some of fft,kmeans,qr, which have a CUDA backend, or python or distributed, got lu", error)
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
        (self.out / "include").mkdir()
        (self.out / "include" / "xxhash.h").write_text("// hashes")
        (programs.parent / "CMakeCache.txt").write_text(f"BALLAST_XXHASH_INCLUDE:PATH={self.out / 'include'}\n")
        bundle = self.out / "travels" / "kernels.xz"
        status, out, error = check("--programs", programs, "--out", self.out, "--only", "fft", "--prepare", bundle)
        self.assertEqual(status, 0, error)
        self.assertIn("kernels.xz: 5 kernels", out)
        self.assertEqual((bundle.parent / "xxhash.h").read_text(), "// hashes")
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

    def test_page_of_qr(self):
        status, out, _ = check("--programs", self.fake, "--out", self.out, "--only", "qr", "--stages", "bench,paper")
        self.assertEqual(status, 1, out)  # paper failed
        self.assertLessEqual(max(map(len, out.splitlines())), 110)
        self.assertRegex(out, r"f64_m8192_n8192 +38.000 +19.30 +39.000 +18.80 +\+2.6% +74.000 +1.90")
        self.assertRegex(out, r"orgqr f64_m8192_n8192 +20.000")
        self.assertIn("FAILED qr_f64_m8192_n8192, repair in Q", out)
        self.assertIn("f64_m8192_n8192, §7.1, ms alone (in a call) 1: 1 (+0.5)  2: 2  3: 3 (+0.5)", out)
        self.assertIn("f64_m8192_n8192, Figure 5: rotations one after the other 50 ms, blocked 10 ms", out)
        page = self.out / "page.md"
        done, _, error = check("--report", self.out / "gpu-check.json", page)
        self.assertEqual(done, 0, error)
        text = page.read_text()
        for line in ("# QR on Imaginary: speed, cost of protection, the paper's measurements", "- Panels of the hybrid: OpenBLAS 0.0, 3 threads",
                     "| geqrf `f64_m8192_n8192`, protected: ≥ 18 TFLOP/s | reached | 18.80 |",
                     "| geqrf `f64_m1000000_n32`, protected: ≤ 0.8 ms | **missed** | 0.90 |",
                     "| geqrf `f64_m1024_n1024`, protected: ≥ 0.6 TFLOP/s | not measured | – |",
                     "| orgqr `f64_m8192_n8192`, protected: ≥ 36 TFLOP/s | **missed** | 29.30 |",
                     "| worst of all, protected: ≥ 1.2× NVIDIA's | **missed** | 1.00× (orgqr `f64_m8192_n8192`) |",
                     "| protection, worst from 8192 columns on: ≤ 3% | **missed** | 25.0% (orgqr `f64_m8192_n8192`) |",
                     "| protection with one repair, from 8192 columns on: ≤ 5% | **missed** | 7.9% (repair in V, `f64_m8192_n8192`) |",
                     "| `qr_f64_m8192_n8192` | 38 | 39 (+2.6%) | 39.5 (+3.9%) | 41 (+7.9%) |",
                     "| hybrid, protection from 10000 columns on: ≤ 5% | **missed** | 7.0% (`f64_m16384_n16384`) |",
                     "| hybrid `f64_m8192_n8192`, protected: ≥ 2.6 TFLOP/s, twice MAGMA's schedule with OpenBLAS's panel | reached | 6.85 |",
                     "| geqrf | `qr_f64_m4096_n16384` | 40 | 12.60 | 50 | 10.10 | +25.0% | – | – | – |",
                     "| geqrf | `qr_f64_m16384_n16384` | 180 | 32.60 | 182 | 32.20 | +1.1% | cuSOLVER: geqrf_bufferSize: status 3 | 325 | 1.79 |",
                     "| geqrf | `qr_f64_m32768_n32768` | no time was left | | | | | | | |",
                     "| ormqr | `qr_f64_m8192_n8192` | 30 | 36.60 | 30.5 | 36.10 | +1.7% | 34.8 | – | 1.14 |",
                     "| `qr_f64_m64_n64_b1000` | 1000 | 0.1 | 0.2 | 0.2 | +100.0% | 1.6 | 8.00 |",
                     "| `qr_f64_m8192_n8192` | 7.33 | 7.26 (+1.0%) | 6.85 (+7.0%) | 6.79 (+8.0%) | 6.11 (+20.0%) | 4.89 (+50.0%), 2 computed again |",
                     "| 8192, f64 | 50 | 10 | 5.00 |", "| 2. source 2 | 2 | 2 |", "| 3. source 3 | 3 (+0.5) | 3 (+0.5) |",
                     "- ormqr `qr_f64_m8192_n8192`: 1.14× NVIDIA's", "- curve `qr_f64_m8192_n8192`, repair in Q: failed.", "- stage paper: failed; "):
            self.assertIn(line + "\n", text)
        # If a run has several algorithms, the page shows the named one.
        result = self.result()
        result["stages"].append(dict(result["stages"][0], algorithm="fft", rows=[]))
        (self.out / "both.json").write_text(json.dumps(result))
        self.assertEqual(check("--report", self.out / "both.json", page)[0], 1)
        self.assertEqual(check("--only", "qr", "--report", self.out / "both.json", page)[0], 0)
        self.assertEqual(page.read_text(), text)

    def test_page_of_kmeans(self):
        modules = self.out / "modules"
        modules.mkdir()
        (modules / "torch.py").write_text("raise ImportError('not on this machine')\n")
        status, out, _ = check("--programs", self.fake, "--out", self.out, "--only", "kmeans", "--stages", "bench,rivals,sweep", PYTHONPATH=str(modules))
        self.assertEqual(status, 0, out)
        result = self.result()
        rivals = next(stage for stage in result["stages"] if stage["name"] == "rivals")
        rivals["rows"] += [{"type": "rival", "token": "kmeans_f32_m1048576_n128_k128", "name": "flash-kmeans", "milliseconds": 0.5, "wrong_labels": 0.0005},
                           {"type": "rival", "token": "kmeans_f32_m1000_n16_k8", "name": "flash-kmeans", "milliseconds": 2.5, "wrong_labels": 0.001}]
        (self.out / "rivals.json").write_text(json.dumps(result))
        page = self.out / "page.md"
        done, _, error = check("--report", self.out / "rivals.json", page)
        self.assertEqual(done, 0, error)
        text = page.read_text()
        for line in ("# K-Means on Imaginary: speed and cost of protection",
                     "| an iteration of `f32_m1048576_n128_k128`, protected: ≤ 0.28 ms | reached | 0.2500 |",
                     "| an iteration of `f32_m131072_n8_k8`, protected: ≤ 0.018 ms | not measured | – |",
                     "| protection of an iteration, f32, geometric mean: ≤ 3% | **missed** | 25.0% |",
                     "| protected beside flash-kmeans, geometric mean: ≥ 3× | **missed** | 2.00× |",
                     "| protected beside flash-kmeans, least: ≥ 1.4× | reached | 2.00× |",
                     "| problem | off, ms | correct, ms | protection | TFLOP/s | points ready, ms | flash-kmeans, ms |",
                     "| `kmeans_f32_m1048576_n128_k128` | 0.2000 | 0.2500 | +25.0% | 137.4 | 8.00 | 0.5 |",
                     "| `kmeans_f64_m1000_n16_k8` | 2.0000 | 2.5000 | +25.0% | 0.0 | 3.00 | – |",
                     "| `kmeans_f32_m8_n1_k8` | no difference between few and many iterations | | | | | |",
                     "Protected, Ballast is 2.00 times as fast as flash-kmeans in the geometric mean: 2.00 to 2.00 times.",
                     "flash-kmeans has 0.05% to 0.10% of its labels wrong. Ballast's are exact.",
                     "PyTorch was not measured: not on this machine",
                     "| `kmeans_f32_m100_n4_k3_b5` | 5 | 0.500 | 0.625 | +25.0% | 2.5 | 4 |",
                     "| m | n | k | naive | gemm | fused | broadcast | tensor | detect_recompute | warp_checksum | threadblock_checksum | ours, off | ours, correct |",
                     "| 1000 | 8 | 16 | 400.0 | – | – | – | 200.0 | – | 250.0 | – | 100.0 | 150.0 |",
                     "| 1000 | 8 | 16 | – / – / – | 250.0 / 500.0 / 750.0 | – / – / – | 150.0 / 300.0 / 450.0 |",
                     "Faults cost, f32, third number over second in the geometric mean: warp_checksum 1.50, row_checksum 1.50.",
                     "- step `kmeans_f32_m1000_n8_k16`, warp_checksum: 7 labels differ", "- step `kmeans_f64_m1000_n8_k16`, naive: no such kernel"):
            self.assertIn(line + "\n", text)

    def test_rivals_of_kmeans_stand_beside_its_times(self):
        arguments = ("--programs", self.fake, "--out", self.out, "--only", "kmeans", "--stages", "bench,rivals")
        modules = self.out / "modules"
        modules.mkdir()
        (modules / "torch.py").write_text("raise ImportError('not on this machine')\n")
        status, out, _ = check(*arguments, PYTHONPATH=str(modules))
        self.assertEqual(status, 0, out)
        self.assertRegex(out, r"rivals +passed .*PyTorch: not on this machine")
        # A python3 that has both rivals; batches have no rival.
        python = self.out / "python3"
        python.write_text(f"""#!/bin/sh
case "$1" in *kmeans_rivals.py) ;; *) exec {sys.executable} "$@";; esac
shift; echo "$@" > "$(dirname "$0")/asked"
echo '{{"type": "rival", "token": "kmeans_f32_m1000_n16_k8", "name": "PyTorch", "milliseconds": 5.0}}'
echo '{{"type": "rival", "token": "kmeans_f64_m1000_n16_k8", "name": "PyTorch", "milliseconds": 20.0}}'
echo '{{"type": "rival", "token": "kmeans_f32_m1000_n16_k8", "name": "flash-kmeans", "milliseconds": 2.0}}'
""")
        python.chmod(0o755)
        status, out, _ = check(*arguments, PATH=f"{self.out}:{os.environ['PATH']}")
        self.assertEqual(status, 0, out)
        self.assertLessEqual(max(map(len, out.splitlines())), 110)
        self.assertRegex(out, r"f32_m1000_n16_k8 +1.0000 +1.2500 +\+25.0% +3.00 +5.0000 +2.0000")
        self.assertIn("protected, times as fast as PyTorch: 5.66 in the geometric mean, 4.00 to 8.00", out)
        self.assertIn("protected, times as fast as flash-kmeans: 1.60 in the geometric mean, 1.60 to 1.60", out)
        self.assertTrue((self.out / "asked").read_text().strip().endswith(" kmeans_f32_m1000_n16_k8 kmeans_f64_m1000_n16_k8 kmeans_f32_m1048576_n128_k128 kmeans_f32_m8_n1_k8"))
        status, out, _ = check("--programs", self.fake, "--out", self.out, "--only", "kmeans", "--stages", "rivals")
        self.assertEqual(status, 1)
        self.assertIn("bench timed no problem", out)

    def test_several_devices_have_a_page(self):
        modules = self.out / "modules"
        modules.mkdir()
        (modules / "torch.py").write_text("raise ImportError('not on this machine')\n")
        arguments = ("--programs", self.fake, "--out", self.out, "--only", "distributed", "--stages", "distributed,distributed_rivals")
        status, out, _ = check(*arguments, PYTHONPATH=str(modules))
        self.assertEqual(status, 0, out)
        self.assertLessEqual(max(map(len, out.splitlines())), 110)
        self.assertIn("2 fits compared, 0 differ", out)
        self.assertIn("8 calls of QR and FFT, 1 wrong", out)
        page = self.out / "multi-gpu.md"
        status, out, _ = check("--report", self.out / "gpu-check.json", page)
        self.assertEqual(status, 0, out)
        text = page.read_text()
        self.assertIn("0 differed in a bit", text)
        self.assertIn("| f32_m4194304_n128_k1000 | 4.00 | 4.00 | 2.00 | 2.00 | 2.00 | 1.85 | — | — | 400.00 | 200.00 |", text)
        self.assertIn("| fft_c2c_f32_n512x512x512_b1_fwd | forward | 9.00 | 9.00 | 6.00 | 6.00 | 1.50 | 0.5 | peer | 5.00 | 4.00 | 1.25 |", text)
        self.assertIn("| qr_f64_m200000_n32 | factor | — | — | — | — | — | no memory |", text)
        self.assertIn("| fft_c2c_f32_n512x512x512_b1_fwd | 6.00 | 4.00 | — | 1.50 | — |\n", text)
        self.assertIn("torch: not on this machine", text)
        status, out, _ = check(*arguments, "--quick", PYTHONPATH=str(modules))
        self.assertEqual(status, 1, out)
        self.assertIn("2 fits compared, 1 differ", out)

    def test_a_process_for_each_device_runs_on_a_named_nccl(self):
        arguments = ("--programs", self.fake, "--out", self.out, "--only", "distributed", "--stages", "nccl")
        library = self.out / "home" / "lib" / "libnccl.so.2"
        library.parent.mkdir(parents=True)
        library.write_text("a library")
        for more, environment in ((("--nccl", library), {}), ((), {"NCCL_HOME": str(self.out / "home")})):
            status, out, _ = check(*arguments, *more, **environment)
            self.assertEqual(status, 1, out)  # a scene failed
            self.assertLessEqual(max(map(len, out.splitlines())), 110)
            detail = next(stage["detail"] for stage in self.result()["stages"] if stage["name"] == "nccl")
            for words in ("NCCL 2.28.9", "2 fits compared, 0 wrong", "3 transforms, 0 wrong", "1 lost ranks, 0 wrong", "2 scenes, 1 wrong",
                          "loss in fit at 9: rank 0: had not ended after 60 s", "kmeans_f32_m4194304_n128_k1000 on 2: 2.5 ms"):
                self.assertIn(words, detail)
        page = self.out / "multi-gpu.md"
        self.assertEqual(check("--report", self.out / "gpu-check.json", page)[0], 0)
        text = page.read_text()
        for line in ("| fit | bit | correct | 12 | 9 | 4 | 0 |", "| fit | 9 | 4 | 4.25 | 1 | yes |",
                     "| kmeans_f32_m4194304_n128_k1000 | — | 4.00 | — | 2.50 | 1.60 | 100.00 | 100.00 |",
                     "| fft_c2c_f32_n512x512x512_b1_fwd | — | 3.00 | — | 2.00 | — | — | 1.50 | — | 0.5 |",
                     "Failed: nccl scene loss in fit at 9: rank 0: had not ended after 60 s."):
            self.assertIn(line + "\n", text)
        status, _, error = check(*arguments, "--nccl", self.out / "nothing")
        self.assertEqual(status, 2)
        self.assertIn("--nccl: expected a file, got", error)

    def test_whole_calls_have_a_stage_and_a_page_for_users(self):
        modules = self.out / "modules"
        modules.mkdir()
        (modules / "torch.py").write_text("raise ImportError('not on this machine')\n")
        # A python3 that has rivals of one problem.
        python = self.out / "python3"
        python.write_text(f"""#!/bin/sh
case "$1" in *calls_rivals.py) ;; *) exec {sys.executable} "$@";; esac
shift; echo "$@" > "$(dirname "$0")/asked"
case "$*" in *kmeans*) ;; *) exec env PYTHONPATH={modules} {sys.executable} {SCRIPT.parent / "gpu_check" / "calls_rivals.py"} "$@";; esac
echo '{{"type": "call", "token": "kmeans_f32_m1000_n16_k8", "call": "predict", "variant": "PyTorch", "milliseconds": 5.0}}'
echo '{{"type": "call", "token": "kmeans_f32_m1000_n16_k8", "call": "predict", "variant": "flash-kmeans", "refused": "no such shape"}}'
""")
        python.chmod(0o755)
        bundle = self.out / "share" / "ballast" / "kernels.bundle"
        bundle.parent.mkdir(parents=True)
        bundle.write_text("")
        arguments = ("--programs", self.fake, "--out", self.out, "--only", "kmeans,qr", "--stages", "calls")
        status, out, _ = check(*arguments, PATH=f"{self.out}:{os.environ['PATH']}")
        self.assertEqual(status, 1, out)
        self.assertLessEqual(max(map(len, out.splitlines())), 110)
        self.assertRegex(out, r"calls +failed .*first call of kmeans_f64_m1048576_n16_k64: no compiler")
        self.assertRegex(out, r"calls +passed")
        self.assertRegex(out, r"f64_m64_n32, geqrf +2 +2.5 +2 +0.80 cuSOLVER")
        self.assertIn("K-Means: 2.00 times as fast as the best rival in the geometric mean, 2.00 to 2.00", out)
        self.assertIn("not measured: qr_f64_m8_n8_b9, all calls: no such kernel", out)
        self.assertTrue((self.out / "asked").read_text().strip().endswith(" qr_f64_m64_n32"))
        page = self.out / "calls.md"
        status, _, error = check("--report", self.out / "gpu-check.json", page, "--only", "calls")
        self.assertEqual(status, 0, error)
        text = page.read_text()
        for line in ("# Whole calls on Imaginary: what users of K-Means and QR wait for",
                     "| K-Means, protected: ≥ 1.5× the best rival in the geometric mean | reached | 2.00× |",
                     "| QR, protected: no call slower than the best rival | **missed** | 0.80× |",
                     "| problem | call | off, ms | correct, ms | protection | best rival, ms | × rival, correct |",
                     "| `kmeans_f32_m1000_n16_k8` | predict | 2 | 2.5 | +25% | 5 (PyTorch) | 2.00 |",
                     "| `qr_f64_m64_n32` | geqrf | 2 | 2.5 | +25% | 2 (cuSOLVER) | 0.80 |",
                     "| `kmeans_f32_m1000_n16_k8` | predict | 2 | +5% | +3% | +25% |",
                     "| `qr_f64_m64_n32` | geqrf | 2 | – | +3% | +25% |",
                     "| `qr_f64_m8_n8_b9` | | no such kernel | | | | |",
                     "PyTorch was not measured: not on this machine",
                     "| K-Means, first call with the bundle, median: ≤ 50 ms | reached | 30 ms |",
                     "| QR, first call with the bundle, the longest: ≤ 300 ms | reached | 30 ms |",
                     "| `kmeans_f32_m131072_n8_k8` | 30 | 1200 |",
                     "| `kmeans_f64_m1048576_n16_k64` | no compiler | no compiler |",
                     "| `qr_f64_m64_n32` | geqrf | 3 | 1.25 | 12 | pass_kernel 1 (4) | wait 0.5 (4) |",
                     "- `qr_f64_m64_n32`, geqrf: 0.80× cuSOLVER"):
            self.assertIn(line + "\n", text)

    def test_first_calls_have_a_process_for_each_problem(self):
        arguments = ("--programs", self.fake, "--out", self.out, "--stages", "first_call")
        status, out, error = check(*arguments, "--only", "qr", "--problems", "qr_f64_m200_n200", "qr_f32_m9_n5_b7")
        self.assertEqual(status, 0, out + error)
        self.assertRegex(out, r"first_call +passed")
        self.assertIn("QR, first calls, compiled: median 1200 ms, 1200 to 1200", out)
        rows = [row for stage in json.loads((self.out / "gpu-check.json").read_text())["stages"] for row in stage["rows"] if row["type"] == "first call"]
        self.assertEqual([(row["token"], row["kernels"]) for row in rows], [("qr_f64_m200_n200", "compiled"), ("qr_f32_m9_n5_b7", "compiled")])
        page = self.out / "calls.md"
        status, _, error = check("--report", self.out / "gpu-check.json", page, "--only", "calls")
        self.assertEqual(status, 0, error)
        self.assertIn("| `qr_f32_m9_n5_b7` | – | 1200 |\n", page.read_text())
        status, out, _ = check(*arguments, "--only", "kmeans")  # the list, of which one problem fails
        self.assertEqual(status, 1, out)
        self.assertRegex(out, r"first_call +failed .*first call of kmeans_f64_m1048576_n16_k64: no compiler")
        status, out, _ = check(*arguments, "--only", "fft")
        self.assertRegex(out, r"first_call +not run .*expected kmeans or qr")

    def test_kinds_have_a_stage_and_a_page(self):
        python = self.out / "python3"
        python.write_text(f"""#!/bin/sh
case "$1" in *kinds_rivals.py) ;; *) exec {sys.executable} "$@";; esac
echo '{{"type": "kind", "token": "fft_dct2_f32_n64_b9_fwd", "call": "transform", "variant": "PyTorch, by hand", "milliseconds": 4.0}}'
echo '{{"type": "kind", "token": "geqp3_f64_m64_n64", "call": "geqp3", "variant": "LAPACK, all cores", "refused": "no SciPy"}}'
echo '{{"type": "kind rival", "variant": "flash-kmeans", "unavailable": "not on this machine"}}'
""")
        python.chmod(0o755)
        arguments = ("--programs", self.fake, "--out", self.out, "--stages", "kinds", "--only")
        status, out, _ = check(*arguments, "qr", PATH=f"{self.out}:{os.environ['PATH']}")
        self.assertEqual(status, 0, out)
        self.assertRegex(out, r"geqrf_c64_m64_n32 +2 +2.5 +5 +2.00 yes, 0.25")
        self.assertRegex(out, r"gels_c64_m64_n32 +no such kernel")
        page = self.out / "kinds.md"
        status, _, error = check("--report", self.out / "gpu-check.json", page, "--only", "kinds")
        self.assertEqual(status, 0, error)
        for line in ("| QR of complex matrices, protected: ≥ 1.8× the best rival in the geometric mean | reached | 2.00× |",
                     "| QR with column pivoting, protected: ≥ 10× the best rival in the geometric mean | not measured | – |",
                     "| `geqrf_c64_m64_n32` | geqrf | 2 | 2.5 | +25% | 5 (cuSOLVER) | 2.00 | yes, 0.25 |",
                     "| `gels_c64_m64_n32` | | no such kernel |",
                     "LAPACK, all cores was not measured: no SciPy",
                     "flash-kmeans was not measured: not on this machine"):
            self.assertIn(line, page.read_text())
        status, out, _ = check(*arguments, "fft", "--problems", "fft_dct2_f32_n64_b9_fwd", PATH=f"{self.out}:{os.environ['PATH']}")
        self.assertEqual(status, 1, out)
        self.assertEqual(check("--report", self.out / "gpu-check.json", page, "--only", "kinds")[0], 0)
        for line in ("| `columns_fft_c2c_f32_n64_b9_fwd` | transform | 1 | 1.25 | +25% | 1 (cuFFT) | 0.80 | **no** |",
                     "| `fft_dct2_f32_n64_b9_fwd` | transform | 1 | 1 | +0% | 4 (PyTorch, by hand) | 4.00 | yes, 0.10 |",
                     "- `columns_fft_c2c_f32_n64_b9_fwd`: a wrong result"):
            self.assertIn(line, page.read_text())

    def test_tokens_of_kinds_are_checked_before_a_device_is_opened(self):
        for algorithm, token, why in (("fft", "rows_fft_c2c_f32_n8_b4_fwd", "columns_"), ("fft", "middle3_fft_c2c_f32_n8_b4_fwd", "divides the batch"),
                                      ("fft", "fft_c2r_f32_n8_b4_inv", "c2c, r2c or r2r"), ("fft", "convolve_real_f32_n8x8_m3_full", "convolution"),
                                      ("qr", "geqp3_c64_m8_n8_b2", "a batch"), ("qr", "gels_c64_m8_n9", "at least as many rows"),
                                      ("qr", "gelsy_f64_m9_n8", "geqp3_"), ("kmeans", "kmeans_f32_m9_n2_k3", "f16 or bf16"),
                                      ("kmeans", "kmeans_bf16_m9_n2_k3_b4", "")):
            done = subprocess.run([PROGRAM, "kinds", "--only", algorithm, token], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, token)
            self.assertIn(why, done.stderr.splitlines()[0])
        for algorithm, token in (("qr", "qr_c64_m8_n8"), ("kmeans", "kmeans_bf16_m9_n2_k3")):  # other stages refuse them
            done = subprocess.run([PROGRAM, "verify", "--only", algorithm, token], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, token)
            self.assertIn("which this stage takes", done.stderr)

    def test_a_program_that_was_not_built_is_a_failed_stage(self):
        (self.fake / "ballast-gpu-check-production").unlink()
        status, out, _ = check("--programs", self.fake, "--out", self.out, "--only", "qr", "--stages", "bench,paper")
        self.assertEqual(status, 1)
        self.assertRegex(out, r"bench +failed .*no program")
        self.assertIn("hybrid, ms", out)

    def test_strikes_have_a_table_and_their_places(self):
        status, out, _ = check("--programs", self.fake, "--out", self.out, "--stages", "strike")
        self.assertEqual(status, 1, out)
        self.assertRegex(out, r"fft_c2c_f32_n1024_b64_fwd +correct +100 +20 +5 +1 +0 +4 +1 +1 +2 +0.08")
        self.assertIn("2 silent, 1 wrong, 4 other, 3.5 floors: add.rn.f32 %f1, %f2, %f3; line.cuh:7 < line.cuh:9", out)
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
