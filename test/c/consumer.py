"""A user's program in Python (ctypes) over the C interface: an FFT against NumPy's, a fit, a least-squares solution, a report, a refusal.

Usage: consumer.py LIBRARY
"""

import ctypes
import json
import sys

import numpy

void, text = ctypes.c_void_p, ctypes.c_char_p


class Tensor(ctypes.Structure):
    _fields_ = [("data", void), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", void), ("strides", void),
                ("byte_offset", ctypes.c_uint64)]

    def __init__(self, array):
        codes = {"i": 0, "f": 2, "c": 5}
        self.array = array  # kept alive
        self.lengths = (ctypes.c_int64 * array.ndim)(*array.shape)
        self.steps = (ctypes.c_int64 * array.ndim)(*(stride // array.itemsize for stride in array.strides))
        super().__init__(array.ctypes.data, 1, 0, array.ndim, codes[array.dtype.kind], 8 * array.itemsize, 1,
                         ctypes.addressof(self.lengths), ctypes.addressof(self.steps), 0)


class Data(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("points", void), ("weights", void), ("centroids", void)]


class Results(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("centroids", void), ("labels", void), ("inertia", void), ("iterations", void), ("stopped", void)]


def address(value):
    return ctypes.cast(ctypes.pointer(value), void)


class Ballast:
    """The functions, with failures as exceptions."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        for name in ("ballast_error_message", "ballast_status_name", "ballast_version"):
            getattr(self.library, name).restype = text
        self.library.ballast_free.argtypes = [void]
        self.error = void()
        assert self.library.ballast_error_create(ctypes.byref(self.error)) == 0

    def __call__(self, name, *arguments):
        status = getattr(self.library, "ballast_" + name)(*arguments, self.error)
        if status != 0:
            self.library.ballast_error_message.argtypes = [void]
            raise RuntimeError(f"{self.library.ballast_status_name(status).decode()}: "
                               f"{self.library.ballast_error_message(self.error).decode()}")

    def make(self, name, *arguments):
        handle = void()
        self(name, *arguments, ctypes.byref(handle))
        return handle

    def destroy(self, name, handle):
        getattr(self.library, f"ballast_{name}_destroy")(handle)

    def taken(self, name, *arguments):
        """The text of a function that gives one to the caller."""
        found = self.make(name, *arguments)
        value = ctypes.cast(found, text).value.decode()
        self.library.ballast_free(found)
        return value


def transform(ballast):
    # The middle axis of an array that is neither row-major nor without gaps.
    generator = numpy.random.default_rng(1)
    array = generator.normal(size=(3, 8, 10)).astype(numpy.float32)[:, :, 1:6] + 0j
    array = numpy.asfortranarray(array.astype(numpy.complex64))[:, :, :1]
    result = numpy.empty((3, 8, 1), numpy.complex64)
    options = ballast.make("options_create", b"fft")
    ballast("options_set_integers", options, b"axes", (ctypes.c_int64 * 1)(-2), ctypes.c_size_t(1))
    source, target = Tensor(array), Tensor(result)
    plan = void()
    ballast("fft_plan_create_like", ctypes.byref(source), ctypes.byref(target), options, ctypes.byref(plan))
    report = ballast.make("report_create")
    ballast("fft_run", plan, 0, ctypes.byref(source), ctypes.byref(target), None, report)
    expected = numpy.fft.fft(array, axis=1)
    assert numpy.abs(result - expected).max() < 1e-5, numpy.abs(result - expected).max()
    seen = json.loads(ballast.taken("report_json", report))
    assert seen["verdict"] == "clean" and seen["checks"] > 0, seen
    ballast.destroy("report", report)
    ballast.destroy("fft_plan", plan)
    ballast.destroy("options", options)


def cluster(ballast):
    points = numpy.array([[0], [0.1], [0.2], [10], [10.1], [10.2]], numpy.float32)
    labels, centroids = numpy.empty(6, numpy.int32), numpy.empty((2, 1), numpy.float32)
    inertia = ctypes.c_double()
    options = ballast.make("options_create", b"kmeans")
    ballast("options_set_problem", options, b"kmeans_f32_m6_n1_k2", None)
    plan = ballast.make("kmeans_plan_create", options)
    tensors = [Tensor(each) for each in (points, centroids, labels)]
    data = Data(ctypes.sizeof(Data), address(tensors[0]))
    results = Results(ctypes.sizeof(Results), address(tensors[1]), address(tensors[2]), address(inertia))
    ballast("kmeans_fit", plan, ctypes.byref(data), ctypes.byref(results), None, None)
    assert len(set(labels[:3])) == len(set(labels[3:])) == 1 and labels[0] != labels[3], labels
    assert abs(inertia.value - 0.04) < 1e-6, inertia
    assert numpy.allclose(sorted(centroids[:, 0]), [0.1, 10.1])
    ballast.destroy("kmeans_plan", plan)
    ballast.destroy("options", options)


def fit_a_line(ballast):
    A, b, x = numpy.array([[1.0, 0], [1, 1], [1, 2]]), numpy.array([1.0, 3, 5]), numpy.empty(2)
    factors = void()
    ballast("qr_factor", ctypes.byref(Tensor(A)), None, None, ctypes.byref(factors), None)
    ballast("factors_solve", factors, ctypes.byref(Tensor(b)), ctypes.byref(Tensor(x)), None, None)
    assert numpy.allclose(x, [1, 2], atol=1e-13, rtol=0), x
    ballast.destroy("factors", factors)


def refused(ballast):
    options = ballast.make("options_create", b"kmeans")
    try:
        ballast("options_set_integer", options, b"n_clusters", ctypes.c_int64(3))
        raise AssertionError("an unknown option was taken")
    except RuntimeError as wrong:
        assert "invalid_argument" in str(wrong) and '"n_clusters"' in str(wrong), wrong
        print("refused, as it must be:", wrong)
    ballast.destroy("options", options)


def main():
    ballast = Ballast(sys.argv[1])
    information = json.loads(ballast.taken("info_json"))
    assert "cpu" in information["backends"] and information["version"] == ballast.library.ballast_version().decode(), information
    transform(ballast)
    cluster(ballast)
    fit_a_line(ballast)
    refused(ballast)
    ballast.library.ballast_error_destroy(ballast.error)
    print("Ballast from Python: works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
