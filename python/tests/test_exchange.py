"""Arrays of other libraries: by DLPack, without a copy, and back."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

import ballast


class Exported:
    """An array of a library that has DLPack's protocol and nothing else."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **how):
        return self.values.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class OnDevice(Exported):
    def __dlpack_device__(self):
        return (2, 0)


def from_dlpack(array):
    return Exported(np.from_dlpack(array))


def test_result_is_in_the_library_of_the_input():
    a = np.random.default_rng(0).standard_normal((6, 8))
    for function, given in ((ballast.fft.rfft, ()), (ballast.fft.fftn, ()), (ballast.fft.fft, (5,)), (ballast.fft.hfft, ())):
        made = function(Exported(a), *given)
        assert type(made) is Exported and np.array_equal(made.values, function(a, *given))
    q, r = ballast.linalg.qr(Exported(a))
    assert np.allclose(q.values @ r.values, a)
    assert np.allclose(ballast.linalg.lstsq(Exported(a[:, :3]), Exported(a[:, 3])).x.values, np.linalg.lstsq(a[:, :3], a[:, 3])[0])


def test_results_go_into_the_callers_memory():
    a, out = np.ones(8, complex), Exported(np.empty(8, complex))
    assert ballast.fft.fft(Exported(a), out=out) is out and out.values[0] == 8
    from ballast._exchange import taken

    assert np.shares_memory(taken(Exported(a)), a)


def test_an_object_that_wraps_an_array_gives_an_array():
    class Series:
        def __init__(self, values):
            self._values = values

        def __array__(self, dtype=None, copy=None):
            return self._values

        def __getattr__(self, name):
            return getattr(self._values, name)

    assert type(ballast.fft.rfft(Series(np.ones(4)))) is np.ndarray


def test_arrays_on_a_device_need_a_library_that_allocates_there(monkeypatch):
    monkeypatch.setattr(ballast._device, "_libraries", {})
    with pytest.raises(ballast.UnsupportedError, match="on a device"):
        ballast.fft.fft(OnDevice(np.ones(4)))


def test_torch():
    torch = pytest.importorskip("torch")
    a = torch.randn(4, 10, dtype=torch.float64)
    made = ballast.fft.rfft(a)
    assert isinstance(made, torch.Tensor) and torch.allclose(made, torch.fft.rfft(a))
    assert torch.allclose(ballast.fft.ifft(torch.fft.fft(a).conj()), torch.fft.ifft(torch.fft.fft(a).conj()))
    q, r = ballast.linalg.qr(a.T)
    assert torch.allclose(q @ r, a.T)


LATER = """
import ctypes, sys
import numpy as np, ballast
a = np.eye(5)
ballast.linalg.qr(a)
driver = ctypes.CDLL(sys.argv[1])
assert driver.asked() == 0
ballast.linalg.qr(a)
seen = driver.asked()
assert seen > 0
ballast.linalg.qr(a)
assert driver.asked() > seen
"""


def test_a_driver_that_is_loaded_later_is_asked(tmp_path):
    """The library asks the CUDA driver where an operand lies once the process has loaded one; before, it remembers that there is none. The
    driver here knows no memory, and counts."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("cc was not found")
    source = tmp_path / "driver.c"
    source.write_text("static int count; int asked(void) { return count; }\n"
                      "int cuPointerGetAttributes(unsigned n, int* a, void** v, unsigned long long p) { ++count; return 0; }\n")
    library = tmp_path / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source], check=True)
    done = subprocess.run([sys.executable, "-c", LATER, library], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
