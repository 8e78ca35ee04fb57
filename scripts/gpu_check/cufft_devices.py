"""cuFFT on one device and cufftXt on all of them, called by their C interfaces: transforms of two and three axes of complex numbers.

Nothing but NumPy is needed beside the libraries: those of PyTorch's packages, of $CUDA_HOME or of the system. cufftXt divides the array among
the devices itself; its result is permuted (CUFFT_XT_FORMAT_INPLACE_SHUFFLED), and a copy between descriptors brings it into natural order.
Times are those of the host's clock from when all devices have no work to when they have none again, the median of nine calls.
"""

import ctypes
import glob
import math
import os
import re
import site
import statistics
import sys
import time
from ctypes import byref, c_int, c_size_t, c_void_p

ROUNDS = 9
C2C, Z2Z, FORWARD, INVERSE = 0x29, 0x69, -1, 1
INPLACE, TO_DEVICE, TO_HOST, BETWEEN = 2, 0, 1, 2
COPIES = (" from the host", " to the host", " between descriptors")
TOKEN = re.compile(r"fft_c2c_(f32|f64)_n(\d+)x(\d+)(?:x(\d+))?_b1_fwd")


def library(stem, version):
    """A library of CUDA, of the newest version. OSError if there is none."""
    folders = [os.path.join(each, "nvidia", "*", "lib") for each in [*site.getsitepackages(), *sys.path]]
    folders += [os.path.join(home, part) for home in filter(None, [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]) for part in ("lib64", "lib")]
    found = [file for folder in folders for file in glob.glob(os.path.join(folder, f"lib{stem}.so.*")) if re.fullmatch(r".*\.so\.\d+", file)]
    found.sort(key=lambda file: int(file.rpartition(".")[2]), reverse=True)
    return ctypes.CDLL(found[0] if found else f"lib{stem}.so.{version}")


class Devices:
    """The runtime and cuFFT."""

    def __init__(self):
        self.runtime, self.cufft = library("cudart", 13), library("cufft", 12)
        count = c_int()
        self.check(self.runtime.cudaGetDeviceCount(byref(count)), "cudaGetDeviceCount")
        self.count = count.value

    @staticmethod
    def check(status, name):
        if status != 0:
            raise RuntimeError(f"{name}: expected 0, got {status}")

    def call(self, name, *arguments, what=""):
        self.check(getattr(self.runtime if name.startswith("cuda") else self.cufft, name)(*arguments), name + what)

    def wait(self):
        for device in range(self.count):
            self.call("cudaSetDevice", c_int(device))
            self.call("cudaDeviceSynchronize")
        self.call("cudaSetDevice", c_int(0))

    def plan(self, shape, double, devices):
        """A plan on so many devices: of cufftXt if there are more than one."""
        made, sizes = c_int(), (c_size_t * devices)()
        self.call("cufftCreate", byref(made))
        if devices > 1:
            self.call("cufftXtSetGPUs", made, c_int(devices), (c_int * devices)(*range(devices)))
        self.call(f"cufftMakePlan{len(shape)}d", made, *map(c_int, shape), c_int(Z2Z if double else C2C), sizes)
        return made


def median_of(work, wait, after=lambda: None):
    """The median, least and most milliseconds of work(); after() is not counted."""
    times = []
    for _ in range(ROUNDS + 1):  # the first is not counted
        wait()
        begin = time.perf_counter()
        work()
        wait()
        times.append(1e3 * (time.perf_counter() - begin))
        after()
    return statistics.median(times[1:]), min(times[1:]), max(times[1:])


def data_of(np, shape, double):
    """An array a_i B_jk with random a and B; some planes of its transform, the product of the transforms of both, over its root mean square; that."""
    draw = np.random.default_rng(7)
    first, rest = (draw.standard_normal(each) + 1j * draw.standard_normal(each) for each in (shape[0], shape[1:]))
    made = np.empty(shape, np.complex128 if double else np.complex64)
    np.multiply(first.reshape(-1, *(1,) * (len(shape) - 1)), rest, out=made, casting="unsafe")
    of_first, of_rest = np.fft.fft(first), np.fft.fftn(rest)
    scale = np.sqrt(np.mean(np.abs(of_first) ** 2) * np.mean(np.abs(of_rest) ** 2))
    return made, {plane: of_first[plane] * of_rest / scale for plane in (0, 1, shape[0] // 2 + 1, shape[0] - 1)}, scale


def error_of(np, result, right):
    """The largest error of some planes, relative to the root mean square of the whole transform."""
    planes, scale = right
    return max(np.abs(result[plane] / scale - each).max() for plane, each in planes.items())


def limit_of(shape, double):
    """Of that error: rounding of the data and of log₂ N levels, of which each adds a rounding of every element; the constant of 8 is for the largest of all."""
    return 8 * (1 + math.prod(shape).bit_length()) * (2.0**-53 if double else 2.0**-24)


def on_one(np, at, shape, double, data, host, right):
    """cuFFT in place on the first device: (milliseconds, low, high), error."""
    plan, memory = at.plan(shape, double, 1), c_void_p()
    try:
        at.call("cudaMalloc", byref(memory), c_size_t(data.nbytes))
        copy = lambda to, source, kind: at.call("cudaMemcpy", to, source, c_size_t(data.nbytes), c_int(kind))
        execute = "cufftExecZ2Z" if double else "cufftExecC2C"
        copy(memory, c_void_p(data.ctypes.data), 1)
        at.call(execute, plan, memory, memory, c_int(FORWARD))
        copy(c_void_p(host.ctypes.data), memory, 2)
        error = error_of(np, host, right)
        at.call("cudaMemset", memory, c_int(0), c_size_t(data.nbytes))  # sums of repeated transforms would overflow
        return median_of(lambda: at.call(execute, plan, memory, memory, c_int(FORWARD)), at.wait), error
    finally:
        at.runtime.cudaFree(memory)
        at.cufft.cufftDestroy(plan)


def on_all(np, at, shape, double, data, host, right):
    """cufftXt on all devices: times of the transform, and with the copy to natural order; error."""
    plan, there, other = at.plan(shape, double, at.count), c_void_p(), c_void_p()
    try:
        for each in (there, other):
            at.call("cufftXtMalloc", plan, byref(each), c_int(INPLACE))
        execute = "cufftXtExecDescriptorZ2Z" if double else "cufftXtExecDescriptorC2C"
        transform = lambda way=FORWARD: at.call(execute, plan, there, there, c_int(way))
        copy = lambda to, source, kind: at.call("cufftXtMemcpy", plan, to, source, c_int(kind), what=COPIES[kind])

        def natural():
            transform()
            copy(other, there, BETWEEN)

        memory = c_void_p(host.ctypes.data)
        copy(there, c_void_p(data.ctypes.data), TO_DEVICE)
        transform()
        copy(memory, there, TO_HOST)
        error = error_of(np, host, right)
        # A transform leaves the array permuted, and the next one begins from natural order, as does a copy from the host: the way back, which is not
        # timed, restores it.
        back = lambda: transform(INVERSE)
        back()
        host[...] = 0
        copy(there, memory, TO_DEVICE)
        return median_of(transform, at.wait, back), median_of(natural, at.wait, back), error
    finally:
        for each in (there, other):
            at.cufft.cufftXtFree(each)
        at.cufft.cufftDestroy(plan)


def shape_of(token):
    """(shape, double precision) of a token; None if cufftXt has no plan of its kind."""
    found = TOKEN.fullmatch(token)
    return found and (tuple(int(each) for each in found.groups()[1:] if each), found.group(1) == "f64")


def run(tokens, say, deadline):
    """A row for each transform among the tokens, or why there is none."""
    points = lambda token: math.prod(shape_of(token)[0])
    tokens = sorted((token for token in tokens if shape_of(token)), key=points)  # the largest takes half of the time
    if not tokens:
        return
    try:
        import numpy as np

        at = Devices()
    except (ImportError, OSError, AttributeError, RuntimeError) as missing:
        say(name="cufftXt", unavailable=str(missing))
        return
    for token in tokens:
        if time.monotonic() > deadline:
            say(token=token, name="cufftXt", unavailable="no time was left")
            continue
        shape, double = shape_of(token)
        data, *right = data_of(np, shape, double)
        host, limit = np.empty_like(data), limit_of(shape, double)

        def tell(name, devices, times, error):
            if not error <= limit:
                say(token=token, name=name, unavailable=f"its result is wrong: an error of {error:.2g}, expected at most {limit:.2g}")
                return
            say(token=token, name=name, devices=devices, milliseconds=times[0], low=times[1], high=times[2], error=error, limit=limit)

        try:
            times, error = on_one(np, at, shape, double, data, host, right)
            tell("cuFFT, 1", 1, times, error)
            if at.count == 1:
                say(name="cufftXt", unavailable="there is one device")
                continue
            alone, natural, error = on_all(np, at, shape, double, data, host, right)
            tell("cufftXt, permuted", at.count, alone, error)
            tell("cufftXt, natural", at.count, natural, error)
        except (AttributeError, RuntimeError) as wrong:
            say(token=token, name="cufftXt", unavailable=str(wrong))
