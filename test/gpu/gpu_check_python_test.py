"""scripts/gpu-check --only python where there is no GPU: wheels, statuses, counts, with made-up wheels in place of the package and pytest.

Usage: gpu_check_python_test.py [unittest's arguments]
"""

import json
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu-check"

BALLAST = """
def info():
    return {{"version": "9.9", "devices": {devices}, "cuda": {{"unavailable": {unavailable!r}, "driver": "13.0"}}}}
"""

# Writes the XML that a run of the named file gives.
PYTEST = r"""
import sys
name = sys.argv[-1].rsplit("/", 1)[1]
to = sys.argv[sys.argv.index("--junit-xml") + 1]
import ballast
cases = {"test_device_arrays.py": '<testcase name="a"/><testcase name="b"/>',
         "test_torch.py": '<testcase name="c"/><testcase name="d"><failure message="assert 1 == 2&#10;more"/></testcase>',
         "test_jax.py": '<testcase name="f"/>',
         "test_cuda.py": '<testcase name="e"><skipped message="could not import jax"/></testcase>',
         "test_nccl.py": '<testcase name="g"/><testcase name="h"/><testcase name="i"/>'}
open(to, "w").write("<testsuites><testsuite>" + cases[name] + "</testsuite></testsuites>")
sys.exit({"test_torch.py": 1, "test_cuda.py": 5}.get(name, 0))
"""


def wheel(folder, name, files):
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-9.9-py3-none-any.whl", "w") as made:
        about = {f"{name}-9.9.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\n",
                 f"{name}-9.9.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
        record = f"{name}-9.9.dist-info/RECORD"
        for path, text in {**files, **about}.items():
            made.writestr(path, text)
        made.writestr(record, "".join(f"{path},,\n" for path in [*files, *about, record]))


def check(*arguments):
    done = subprocess.run([sys.executable, SCRIPT, "--only", "python", *map(str, arguments)], capture_output=True, text=True, timeout=500)
    return done.returncode, done.stdout, done.stderr


@unittest.skipIf(subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode, "pip is not installed")
class GpuCheckPython(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = Path(self.folder.name)
        self.wheels = self.out / "wheels"
        wheel(self.wheels, "nanobind_backend", {"nanobind_backend/__init__.py": ""})
        # An interpreter without pytest of its own: a wheel brings it.
        self.python = self.out / "python3"
        self.python.write_text(f'#!/bin/sh\n[ "$2" != "import pytest" ] || exit 1\nexec "{sys.executable}" "$@"\n')
        self.python.chmod(0o755)

    def tearDown(self):
        self.folder.cleanup()

    def package(self, devices, unavailable):
        wheel(self.wheels, "ballast_ecc", {"ballast/__init__.py": BALLAST.format(devices=devices, unavailable=unavailable)})

    def run_check(self, *more):
        return check("--out", self.out / "results", "--wheels", self.wheels, "--python", self.python, *more)

    def stages(self):
        return {stage["name"]: stage for stage in json.loads((self.out / "results/gpu-check.json").read_text())["stages"]}

    def test_without_wheels(self):
        status, _, error = self.run_check()
        self.assertEqual(status, 2)
        self.assertIn("--wheels: expected one ballast_ecc-*.whl in", error)

    def test_without_a_gpu(self):
        self.package([], "the driver's library libcuda.so.1 was not found")
        status, out, _ = self.run_check()
        self.assertEqual(status, 4, out)
        self.assertIn("no GPU: the driver's library libcuda.so.1 was not found", out)
        self.assertEqual({stage["status"] for stage in self.stages().values()}, {"no GPU"})
        self.assertEqual(list(self.stages()), ["install", "test_device_arrays", "test_torch", "test_jax", "test_cuda", "test_nccl"])
        self.assertEqual(self.run_check("--dry-run")[0], 0)

    def test_a_package_that_cannot_be_imported_is_a_failed_stage(self):
        wheel(self.wheels, "ballast_ecc", {"ballast/__init__.py": "raise ImportError('no library')"})
        status, out, _ = self.run_check()
        self.assertEqual(status, 1, out)
        self.assertIn("no library", self.stages()["install"]["detail"])
        self.assertEqual(self.stages()["test_cuda"]["status"], "not run")

    def test_counts(self):
        self.package([{"name": "Imaginary"}], "")
        wheel(self.wheels, "pytest", {"pytest.py": PYTEST})
        status, out, error = self.run_check()
        self.assertEqual(status, 1, error)
        self.assertIn("Ballast 9.9 on Imaginary; driver CUDA 13.0", out)
        self.assertRegex(out, r"python/tests/test_device_arrays.py +2 +0 +0")
        self.assertRegex(out, r"python/tests/test_torch.py +1 +1 +0\n  FAILED d: assert 1 == 2")
        self.assertRegex(out, r"python/tests/test_cuda.py +0 +0 +1\n  skipped e: could not import jax")
        stages = self.stages()
        self.assertEqual([stage["status"] for stage in stages.values()], ["passed", "passed", "failed", "passed", "not run", "passed"])
        self.assertEqual(stages["test_torch"]["rows"][0]["failures"], ["d: assert 1 == 2"])
        self.assertEqual(self.run_check("--stages", "install,test_device_arrays")[0], 0)


if __name__ == "__main__":
    unittest.main()
