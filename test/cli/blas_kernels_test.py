"""The kernels of OpenBLAS on a processor that it does not know: the command starts itself again with better ones, the library leaves them alone.

Usage: blas_kernels_test.py BALLAST BLAS_KERNELS UNKNOWN_PROCESSOR [unittest's arguments]
"""

import json
import os
import subprocess
import sys
import unittest

BALLAST, CLIENT, UNKNOWN_PROCESSOR = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
FLAGS = set(next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "").split())
BEST = "SkylakeX" if {"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= FLAGS else "Haswell" if {"avx2", "fma"} <= FLAGS else ""


def output(*command, takes="Prescott", kernels=None):
    """What a command prints where OpenBLAS takes these kernels by itself, whatever the processor; `kernels`: the user's choice."""
    environment = {name: value for name, value in os.environ.items() if name not in ("OPENBLAS_CORETYPE", "LD_PRELOAD")}
    environment.update(LD_PRELOAD=UNKNOWN_PROCESSOR, KERNELS_TAKEN=takes)
    if kernels:
        environment["OPENBLAS_CORETYPE"] = kernels
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=True).stdout


def blas_of_the_command(**how):
    return json.loads(output(BALLAST, "info", "--json", **how))["blas"]


class BlasKernels(unittest.TestCase):
    def test_the_command_does_not_compute_with_sse(self):
        self.assertIn(BEST or "Prescott", blas_of_the_command())

    def test_a_known_processor_and_a_choice_of_the_user_are_left_alone(self):
        for kernels in ("Prescott", "Haswell"):
            self.assertIn(kernels, blas_of_the_command(kernels=kernels))
            self.assertIn(kernels, blas_of_the_command(kernels=kernels, takes="Haswell"))
        blas, better = output(CLIENT, takes="Haswell").splitlines()
        self.assertIn("Haswell", blas)
        self.assertEqual(better, "")
        self.assertEqual(blas_of_the_command(takes="Haswell"), blas)

    def test_an_application_decides_itself(self):
        self.assertEqual(output(CLIENT).splitlines(), [blas_of_the_command(kernels="Prescott"), BEST])
        blas, better = output(CLIENT, "restart").splitlines()
        self.assertIn(BEST or "Prescott", blas)
        self.assertEqual(better, "")

    def test_arguments_survive_the_second_start(self):
        asked = [BALLAST, "bench-of-nothing", "--json", "a b", ""]
        environment = dict(os.environ, LD_PRELOAD=UNKNOWN_PROCESSOR, KERNELS_TAKEN="Prescott")
        seen = [subprocess.run(asked, env=env, capture_output=True, text=True, timeout=100) for env in (environment, os.environ)]
        self.assertEqual(seen[0].returncode, seen[1].returncode)
        self.assertEqual(seen[0].stderr, seen[1].stderr)


if __name__ == "__main__":
    unittest.main()
