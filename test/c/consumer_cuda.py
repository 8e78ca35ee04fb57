"""The C interface on a GPU: operands in device, managed and page-locked memory, streams, enqueued work, workspaces, cancelling.

Usage: consumer_cuda.py LIBRARY
Allocates by the CUDA driver itself. Exit status 77 (skipped) where there is no driver or no device.
"""

import ctypes
import json
import sys

import numpy

from consumer import Ballast, Data, Results, Tensor, address

CUDA, PINNED, MANAGED = 2, 3, 13


class Driver:
    """Memory and streams of the first device, in its primary context."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        count, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
        if self.library.cuInit(0) != 0 or self.library.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
            raise OSError("no CUDA device")
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)

    def __call__(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        assert status == 0, f"{name}: {status}"

    def allocate(self, size, kind=CUDA):
        found = ctypes.c_uint64()
        if kind == CUDA:
            self("cuMemAlloc_v2", ctypes.byref(found), ctypes.c_size_t(size))
        elif kind == MANAGED:
            self("cuMemAllocManaged", ctypes.byref(found), ctypes.c_size_t(size), 1)
        else:
            self("cuMemHostAlloc", ctypes.byref(found), ctypes.c_size_t(size), 0)
        return found.value

    def stream(self):
        made = ctypes.c_void_p()
        self("cuStreamCreate", ctypes.byref(made), 1)
        return made


class Array:
    """An array in memory of one kind, with a tensor for it. `like` gives lengths, strides and type."""

    def __init__(self, driver, like, kind=CUDA, array=None):
        self.driver, self.like = driver, like
        self.size = like.itemsize * (1 + sum((n - 1) * (s // like.itemsize) for n, s in zip(like.shape, like.strides)))
        self.place = driver.allocate(self.size, kind)
        self.tensor = Tensor(like)
        self.tensor.data, self.tensor.device_type = self.place, kind
        if array is not None:
            like[...] = array
            driver("cuMemcpyHtoD_v2", ctypes.c_uint64(self.place), ctypes.c_void_p(like.ctypes.data), ctypes.c_size_t(self.size))

    def get(self):
        self.driver("cuCtxSynchronize")
        self.driver("cuMemcpyDtoH_v2", ctypes.c_void_p(self.like.ctypes.data), ctypes.c_uint64(self.place), ctypes.c_size_t(self.size))
        return self.like.copy()

    def __call__(self):
        return ctypes.byref(self.tensor)


def options_of(ballast, algorithm, problem=None, **texts):
    made = ballast.make("options_create", algorithm)
    if problem is not None:
        ballast("options_set_problem", made, problem, None)
    for name, value in texts.items():
        ballast("options_set_text", made, name.encode(), value.encode())
    return made


def seen_in(ballast, report):
    return json.loads(ballast.taken("report_json", report))


def poll_and_wait(ballast, pending, report):
    ready, polls = ctypes.c_int32(), 0
    while not ready.value:
        ballast("pending_ready", pending, ctypes.byref(ready))
        polls += 1
    ballast("pending_wait", pending, report)
    ballast.destroy("pending", pending)
    seen = seen_in(ballast, report)
    assert seen["verdict"] == "clean" and seen["checks"] > 0, seen
    return polls


def transforms(ballast, driver, report):
    generator = numpy.random.default_rng(1)
    x = (generator.normal(size=(16, 1024)) + 1j * generator.normal(size=(16, 1024))).astype(numpy.complex64)
    expected = numpy.fft.fft(x)
    options = options_of(ballast, b"fft", backend="cuda")
    for kind in (CUDA, MANAGED, PINNED):
        source, target = Array(driver, x.copy(), kind, x), Array(driver, numpy.empty_like(x), kind)
        plan = void_of(ballast, "fft_plan_create_like", source(), target(), options)
        ballast("fft_run", plan, 0, source(), target(), None, report)
        assert numpy.abs(target.get() - expected).max() < 1e-3
    # Enqueued on a stream, with the caller's workspace.
    size = ctypes.c_int64()
    ballast("fft_plan_workspace_bytes", plan, ctypes.byref(size))
    source, target = Array(driver, x.copy(), CUDA, x), Array(driver, numpy.empty_like(x))
    plan = void_of(ballast, "fft_plan_create_like", source(), target(), options)
    call = ballast.make("call_create")
    ballast("call_set_stream", call, driver.stream())
    if size.value > 0:
        ballast("call_set_workspace", call, ctypes.c_void_p(driver.allocate(size.value)), ctypes.c_size_t(size.value))
    pending = void_of(ballast, "fft_enqueue", plan, 0, source(), target(), call)
    polls = poll_and_wait(ballast, pending, report)
    assert numpy.abs(target.get() - expected).max() < 1e-3
    print(f"fft: workspace of {size.value} bytes, ready after {polls} polls")
    refused(ballast, "unsupported", "expected the backend cuda", "fft_run", cpu_plan(ballast, x), 0, source(), target(), None, None)
    lying = Tensor(x)
    lying.device_type = CUDA
    refused(ballast, "invalid_argument", "no CUDA driver in this process knows", "fft_run", plan, 0, ctypes.byref(lying), target(), None, None)


def cpu_plan(ballast, like):
    options = options_of(ballast, b"fft", backend="cpu")
    tensor = Tensor(like)
    return void_of(ballast, "fft_plan_create_like", ctypes.byref(tensor), ctypes.byref(tensor), options)


def void_of(ballast, name, *arguments):
    made = ctypes.c_void_p()
    ballast(name, *arguments, ctypes.byref(made))
    return made


def refused(ballast, status, part, name, *arguments):
    try:
        ballast(name, *arguments)
    except RuntimeError as wrong:
        assert str(wrong).startswith(status) and part in str(wrong), wrong
        return
    raise AssertionError(f"{name} was not refused")


def clusters(ballast, driver, report):
    generator = numpy.random.default_rng(2)
    m, n, k, b = 300, 4, 3, 5
    values = generator.normal(size=(b, m, n)).astype(numpy.float32) + 20 * (numpy.arange(m) % k)[None, :, None]
    values = values.astype(numpy.float32)
    points, labels = Array(driver, values.copy(), CUDA, values), Array(driver, numpy.zeros((b, m), numpy.int32))
    inertia, iterations, stopped = (ctypes.c_double * b)(), (ctypes.c_int32 * b)(), (ctypes.c_int32 * b)(*[9] * b)
    plan = ballast.make("kmeans_plan_create", options_of(ballast, b"kmeans", f"kmeans_f32_m{m}_n{n}_k{k}_b{b}".encode(), backend="cuda"))
    data = Data(ctypes.sizeof(Data), address(points.tensor))
    results = Results(ctypes.sizeof(Results), None, address(labels.tensor), address(inertia), address(iterations), address(stopped))
    call = ballast.make("call_create")
    ballast("call_set_stream", call, driver.stream())
    pending = void_of(ballast, "kmeans_enqueue_fit", plan, ctypes.byref(data), ctypes.byref(results), call)
    poll_and_wait(ballast, pending, report)
    found = labels.get()
    assert all(len(set(found[i, j::k])) == 1 for i in range(b) for j in range(k)) and set(stopped) <= {0, 1, 2}, (found, list(stopped))
    # One fit, with points and labels on the device, and one that is cancelled.
    single, own = Array(driver, values[0].copy(), CUDA, values[0]), Array(driver, numpy.full(m, 7, numpy.int32), CUDA, 7)
    plan = ballast.make("kmeans_plan_create", options_of(ballast, b"kmeans", f"kmeans_f32_m{m}_n{n}_k{k}".encode(), backend="cuda",
                                                         scheme="row_checksum"))
    data = Data(ctypes.sizeof(Data), address(single.tensor))
    results = Results(ctypes.sizeof(Results), None, address(own.tensor))
    call = cancelling_call(ballast)
    refused(ballast, "cancelled", "progress", "kmeans_fit", plan, ctypes.byref(data), ctypes.byref(results), call, report)
    assert (own.get() == 7).all()
    ballast("kmeans_fit", plan, ctypes.byref(data), ctypes.byref(results), None, report)
    found = own.get()
    assert all(len(set(found[j::k])) == 1 for j in range(k)), found
    print("kmeans:", seen_in(ballast, report)["checks"], "checks")


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
STOP = CALLBACK(lambda user, progress: 1)


def cancelling_call(ballast):
    call = ballast.make("call_create")
    ballast("call_set_on_progress", call, STOP, None)
    return call


def least_squares(ballast, driver, report):
    generator = numpy.random.default_rng(3)
    b, m, n = 10, 20, 6
    A, right = generator.normal(size=(b, m, n)), generator.normal(size=(b, m))
    expected = numpy.stack([numpy.linalg.lstsq(A[i], right[i], rcond=None)[0] for i in range(b)])
    matrices, rights = Array(driver, A.copy(), CUDA, A), Array(driver, right.copy(), CUDA, right)
    plan = ballast.make("qr_plan_create", options_of(ballast, b"qr", f"qr_f64_m{m}_n{n}_b{b}".encode(), backend="cuda"))
    call = ballast.make("call_create")
    ballast("call_set_stream", call, driver.stream())
    poll_and_wait(ballast, void_of(ballast, "qr_enqueue_gels", plan, matrices(), rights(), call), report)
    assert numpy.abs(rights.get()[:, :n] - expected).max() < 1e-10
    # A large matrix in place, column-major, cancelled: it holds what it held before.
    m, n = 1500, 900
    values = numpy.asfortranarray(generator.normal(size=(m, n)))
    for scheme in ("block_checksum", "qr_update", "hybrid"):
        matrix, tau = Array(driver, values.copy(order="F"), CUDA, values), Array(driver, numpy.full(n, 7.0), CUDA, 7.0)
        plan = ballast.make("qr_plan_create", options_of(ballast, b"qr", f"qr_f64_m{m}_n{n}".encode(), backend="cuda", scheme=scheme))
        refused(ballast, "cancelled", "progress", "qr_geqrf", plan, matrix(), tau(), cancelling_call(ballast), report)
        assert (matrix.get() == values).all(), scheme
        ballast("qr_geqrf", plan, matrix(), tau(), None, report)
        R = numpy.triu(matrix.get()[:n])
        assert numpy.abs(R.T @ R - values.T @ values).max() < 1e-9, scheme
    print("qr:", seen_in(ballast, report)["checks"], "checks")


def main():
    try:
        driver = Driver()
    except OSError as why:
        print("skipped:", why)
        return 77
    ballast = Ballast(sys.argv[1])
    information = json.loads(ballast.taken("info_json"))
    if "cuda" not in information["backends"]:
        print("skipped:", information["cuda"]["unavailable"])
        return 77
    print([each["name"] for each in information["devices"]])
    report = ballast.make("report_create")
    transforms(ballast, driver, report)
    clusters(ballast, driver, report)
    least_squares(ballast, driver, report)
    print("Ballast on a GPU from Python: works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
