"""Arguments, messages, exit statuses and limits."""

import json
import os
import platform
import re
import resource
import shutil
import subprocess
import unittest
from pathlib import Path

import numpy as np

from support import BALLAST, DATA, WithFolder, run, run_json


# `bench` and `tune` are listed if the programs that they run are there.
HAS = {name: any((Path(BALLAST).resolve().parent / place / name).exists() for place in (".", "../libexec/ballast")) for name in ("ballast-bench", "ballast-kernels")}
SUBCOMMANDS = ", ".join(["kmeans", "fft", "convolve", "qr", "lstsq"] + ["bench"] * HAS["ballast-bench"] + ["tune"] * HAS["ballast-kernels"] + ["info"])


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
            (("fft", iris, "--protect", "maybe"), 'ballast fft: --protect: expected one of off, detect, correct, final_only, got "maybe"'),
            (("fft", iris, "--sampled", "0"), 'ballast fft: --sampled: expected an integer of at least 1, got "0"'),
            (("fft", iris, "--run", "-1"), 'ballast fft: --run: expected an integer of at least 0, got "-1"'),
            (("fft", iris, "--colour", "red"), "ballast fft: not expected: --colour red"),
            (("nonsense",), f'ballast: expected a subcommand ({SUBCOMMANDS}), got "nonsense"'),
            ((), f"ballast: expected a subcommand ({SUBCOMMANDS}), got none"),
            (("tune", "fft_c2c_f32_n072_b1_fwd"), "072"),
        ):
            with self.subTest(arguments=arguments):
                self.assertIn(message, run(*arguments, status=2).stderr)

    def test_an_empty_argument_is_refused(self):
        """As an unset variable of a shell gives it: --output "$result"."""
        iris = DATA / "iris.csv"
        for arguments in (("fft", iris, "-o", ""), ("fft", iris, "--output", ""), ("fft", iris, "--output="), ("fft", iris, "--output=", self.dir / "x.npy"),
                          ("fft", ""), ("kmeans", iris, "-k", 3, "--weights", ""), ("kmeans", iris, "-k", 3, "--labels", ""),
                          ("kmeans", iris, "-k", 3, "--centroids="), ("kmeans", iris, "-k", 3, "--init", ""), ("kmeans", iris, "-k", ""),
                          ("qr", iris, "--q", ""), ("qr", iris, "--r", ""), ("lstsq", iris, ""), ("fft", iris, "--events", ""), ("fft", iris, "--scheme", ""),
                          ("fft", iris, "--precision", ""), ("fft", iris, "--axes", ""), ("fft", iris, "--columns", ""), ("fft", iris, "--inject", ""),
                          ("fft", iris, "--threads", ""), ("tune", "")):
            with self.subTest(arguments=arguments):
                done = run(*arguments, status=2)
                self.assertEqual(done.stdout, "")
                self.assertIn("empty one", done.stderr)
                self.assertIn(str(arguments[-1] or arguments[-2]).split("=")[0] if self.dir not in Path(arguments[-1]).parents else "--output", done.stderr)

    def test_only_installed_programs_are_listed(self):
        listed = re.findall(r"^  (\w+) ", run("--help").stdout.split("Subcommands:")[1], re.M)
        self.assertEqual(", ".join(listed), SUBCOMMANDS)
        if not HAS["ballast-bench"]:
            self.assertIn("BALLAST_BUILD_BENCHMARKS", run("bench", "fft_c2c_f32_n8_b1_fwd", status=2).stderr)
        # A copy of the command alone.
        alone = self.dir / "ballast"
        shutil.copy(BALLAST, alone)
        libraries = os.pathsep.join(str(each) for each in (Path(BALLAST).resolve().parent.parent / "lib", os.environ.get("LD_LIBRARY_PATH", "")))
        for arguments, status, part in ((("--help",), 0, "  info "), (("bench",), 2, "BALLAST_BUILD_BENCHMARKS"), (("tune",), 2, "not installed")):
            done = subprocess.run([alone, *arguments], capture_output=True, text=True, env={**os.environ, "LD_LIBRARY_PATH": libraries})
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(part, done.stdout + done.stderr)
            self.assertNotIn("  bench ", done.stdout)
            self.assertNotIn("  tune ", done.stdout)

    def test_a_list_takes_one_argument(self):
        table = self.dir / "d.csv"
        table.write_text("1,2,x\n3,4,y\n5,7,z\n")
        for arguments in (("--axes", "0,1", "--columns", "1,2", table), ("--columns", "1-2", "--axes", "-1", table), ("--axes=-2,-1", "--columns=1-2", table)):
            self.assertEqual(run_json("fft", *arguments)["shape"], [3, 2])

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
        for arguments, part in ((("--backend", "metal"), "metal"), (("fft_nonsense",), "fft_nonsense"), (("--colour",), "colour"),
                                (("--backend", "cpu", "kmeans_f32_m1024_n8_k4"), "expected transforms"),
                                (("--backend", "cpu", "fft_dct2_f32_n64_b4_fwd"), "takes apart"),
                                (("--backend", "cpu", "--threads", "-1", "fft_c2c_f32_n64_b4_fwd"), "-1")):
            done = run("tune", *arguments, "-o", self.dir / "tuning.txt", status=2)
            self.assertIn(part, done.stderr)
            self.assertFalse((self.dir / "tuning.txt").exists())

    # The table of one process is read by the plans of the next one: another choice gives other bits of the same transform.
    @unittest.skipUnless(Path("/proc/cpuinfo").is_file() and platform.machine() == "x86_64", "the processor's name is that of x86-64")
    def test_a_tuned_choice_is_read_by_later_processes(self):
        about = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines() if ":" in line)
        about = {key.strip(): value.strip() for key, value in about.items()}
        processor = f"{about['vendor_id']}-{about['cpu family']}-{about['model']}"
        cache = self.dir / "cache"
        cache.mkdir(mode=0o700)
        table, source = cache / "tuning.txt", self.dir / "x.npy"
        random = np.random.default_rng(1)
        np.save(source, random.standard_normal((8, 4096)) + 1j * random.standard_normal((8, 4096)))
        os.environ["BALLAST_CACHE_DIR"] = str(cache)
        try:
            def transformed():
                run("fft", source, "--backend", "cpu", "--threads", 1, "-o", self.dir / "y.npy")
                return np.load(self.dir / "y.npy")
            rule = transformed()
            line = f"fft_cpu {run_json('info')['simd']} {processor} 1 c2c f64 1x1x4096 8 checked matrix 256x16 by_size 0 1.5\n"
            table.write_text("fft_cpu AVX9 Other-1-1 1 c2c f64 1x1x4096 8 checked matrix 64x64 by_size 0 1.5\nfft_cpu damaged\n")
            self.assertTrue((transformed() == rule).all())
            table.write_text(table.read_text() + line)
            tuned = transformed()
            self.assertFalse((tuned == rule).all())
            self.assertLess(np.linalg.norm(tuned - rule), 1e-14 * np.linalg.norm(rule))
            # The tuner adds to the file, warns of the damaged line, and keeps it and the lines of other processors.
            done = run("tune", "--backend", "cpu", "--threads", 1, "fft_c2c_f64_n64_b16_fwd")
            self.assertIn('expected 13 fields, got "damaged"', done.stderr)
            for kept in (line, "fft_cpu damaged\n", "AVX9 Other-1-1 1"):
                self.assertIn(kept, table.read_text())
            # A file that is no table stays.
            table.write_bytes(b"fft\0\x01")
            done = run("tune", "--backend", "cpu", "fft_c2c_f64_n64_b16_fwd", status=2)
            self.assertIn("expected a table of ballast tune", done.stderr)
            self.assertEqual(table.read_bytes(), b"fft\0\x01")
        finally:
            del os.environ["BALLAST_CACHE_DIR"]

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
        for folder in ("/proc/cache", "/proc"):  # by its permissions root could write there
            cuda = json.loads(subprocess.run([BALLAST, "info", "--json"], capture_output=True, env={**os.environ, "BALLAST_CACHE_DIR": folder}).stdout)["cuda"]
            self.assertIn("not writable: nothing can be created in /proc: ", cuda["cache_state"])
        self.assertEqual(list(self.dir.iterdir()), [])
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

    def test_of_a_series_of_runs_every_third_is_protected(self):
        for arguments in (("fft", DATA / "sunspots.csv"), ("kmeans", DATA / "iris.csv", "-k", 3), ("qr", DATA / "iris.csv")):
            for number in range(5):
                seen = run_json(*arguments, "--sampled", 3, "--run", number)
                self.assertEqual(seen["report"]["sampled"], 3)
                self.assertEqual(seen["protection"], "correct" if number % 3 == 0 else "off")
                self.assertEqual(seen["report"]["checks"] > 0, number % 3 == 0)
        self.assertNotIn("sampled", run_json("qr", DATA / "iris.csv")["report"])
        self.assertIn("protection off (run 1, sampled 3)", run("fft", DATA / "sunspots.csv", "--sampled", 3, "--run", 1).stdout)

    def test_final_only_is_for_kmeans(self):
        arguments = ("kmeans", DATA / "iris.csv", "-k", 3)
        seen, full = run_json(*arguments, "--protect", "final_only"), run_json(*arguments)
        self.assertEqual(seen["protection"], "final_only")
        self.assertEqual((seen["inertia"], seen["iterations"]), (full["inertia"], full["iterations"]))
        self.assertTrue(0 < seen["report"]["checks"] < full["report"]["checks"])
        done = run("fft", DATA / "sunspots.csv", "--protect", "final_only", status=2)
        self.assertIn("expected off, detect or correct, got final_only, which is for K-Means", done.stderr)


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
                        self.assertIn("expected enough memory", done.stderr)

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


if __name__ == "__main__":
    unittest.main(verbosity=1)
