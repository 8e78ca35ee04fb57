"""scripts/gpu_check/cufft_devices.py where there is no GPU: cuFFT and cufftXt by NumPy on the host's memory.

Usage: gpu_check_cufft_test.py [unittest's arguments]
"""

import ctypes
import sys
import time
import unittest
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "gpu_check"))
import cufft_devices

class FakeCuda:
    """The functions of CUDA's runtime and of cuFFT that cufft_devices.py calls, with NumPy on the host's memory. `turns` counts the transforms
    of several devices; a descriptor is permuted after one forward, and in natural order after one back. `wrong`: what is added to the
    transforms of several devices."""

    count, cufft, runtime = 2, None, None

    def __init__(self, wrong=0.0):
        self.wrong, self.held, self.order, self.shapes, self.turns = wrong, {}, {}, {}, 0
        self.cufft = self.runtime = self
        for name in ("cufftXtFree", "cufftDestroy", "cudaFree"):
            setattr(self, name, lambda handle: 0)

    def wait(self):
        pass

    def plan(self, shape, double, devices):
        self.shapes[devices] = shape, "complex128" if double else "complex64"
        return devices

    def array(self, devices, address):
        """What lies at an address of the host, or of a descriptor."""
        shape, kind = self.shapes[devices]
        if address in self.held:
            return self.held[address]
        size = np.dtype(kind).itemsize * int(np.prod(shape))
        return np.frombuffer((ctypes.c_char * size).from_address(address), kind).reshape(shape)

    def call(self, name, *given, what=""):
        given = [getattr(each, "_obj", each) for each in given]
        value = [each.value if hasattr(each, "value") else each for each in given]
        if name in ("cudaMalloc", "cufftXtMalloc"):
            handle = given[0] if name == "cudaMalloc" else given[1]
            handle.value = len(self.held) + 1
            self.held[handle.value], self.order[handle.value] = np.zeros(*self.shapes[1 if name == "cudaMalloc" else 2]), "natural"
        elif name == "cudaMemset":
            self.held[value[0]][...] = value[1]
        elif name == "cudaMemcpy":
            self.array(1, value[0])[...] = self.array(1, value[1])
        elif name == "cufftXtMemcpy":
            assert value[3] == 2 or self.order.get(value[1]) != "permuted", "a copy from the host to an array in the other order"
            self.array(2, value[1])[...] = self.array(2, value[2])
            if value[1] in self.order:
                self.order[value[1]] = "natural"
        elif name.startswith("cufftXtExecDescriptor"):
            forward = value[3] == -1
            assert self.order[value[1]] == ("natural" if forward else "permuted"), "a transform of an array in the other order"
            self.order[value[1]] = "permuted" if forward else "natural"
            self.turns += 1
            self.held[value[1]][...] = (np.fft.fftn if forward else np.fft.ifftn)(self.held[value[1]]) + self.wrong
        else:
            assert name.startswith("cufftExec"), name
            self.held[value[1]][...] = np.fft.fftn(self.held[value[1]])


class CufftOfDevices(unittest.TestCase):
    def rows_of(self, wrong, *tokens):
        rows, fake = [], FakeCuda(wrong)
        real, cufft_devices.Devices = cufft_devices.Devices, lambda: fake
        try:
            cufft_devices.run(tokens, lambda **row: rows.append(row), time.monotonic() + 60)
        finally:
            cufft_devices.Devices = real
        return rows, fake, cufft_devices.ROUNDS

    def test_one_device_and_all_are_timed_and_compared(self):
        for token in ("fft_c2c_f32_n16x8x12_b1_fwd", "fft_c2c_f64_n32x16_b1_fwd"):
            rows, fake, rounds = self.rows_of(0.0, token, "kmeans_f32_m8_n1_k8", "fft_c2c_f32_n64_b9_fwd")
            self.assertEqual([row["name"] for row in rows], ["cuFFT, 1", "cufftXt, permuted", "cufftXt, natural"])
            for row in rows:
                self.assertEqual(row["token"], token)
                self.assertLess(row["error"], row["limit"])
                self.assertGreater(row["milliseconds"], 0)
            self.assertEqual(fake.turns, 2 + 4 * (rounds + 1))

    def test_a_wrong_result_is_no_time(self):
        rows, _, _ = self.rows_of(1.0, "fft_c2c_f32_n16x8x12_b1_fwd")
        self.assertIn("milliseconds", rows[0])
        self.assertEqual(len(rows), 3)
        for row in rows[1:]:
            self.assertIn("its result is wrong", row["unavailable"])


if __name__ == "__main__":
    unittest.main()
