"""Reports, settings, errors, and what the import does. Faults are in test_faults.py."""

import asyncio
import contextvars
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import ballast


def test_version_is_that_of_the_library():
    assert ballast.__version__ == ballast.info()["version"]


def test_info_names_what_can_run():
    seen = ballast.info()
    assert "cpu" in seen["backends"] and "reference" in seen["backends"]
    assert seen["threads"] >= 1 and seen["blas"]
    assert set(seen["cuda"]) >= {"unavailable", "driver", "compiler", "bundle"}


def test_clean_report():
    ballast.fft.fft(np.ones(1000))
    seen = ballast.last_report()
    assert seen.verdict == "clean" and seen.checks > 0 and seen.detected == 0 and seen.events == ()
    assert seen.problem == "fft_c2c_f64_n1000_fwd" or seen.problem.startswith("fft_c2c_f64_n1000")
    assert seen.protection == "correct" and seen.seconds > 0
    for text in (repr(seen), str(seen), seen._repr_html_()):
        assert "clean" in text and seen.problem in text


def test_report_converts_and_pickles():
    ballast.fft.fft(np.ones(64))
    seen = ballast.last_report()
    values = seen.to_dict()
    assert values["verdict"] == "clean" and values["events"] == []
    again = pickle.loads(pickle.dumps(seen))
    assert again == seen and repr(again) == repr(seen)
    assert ballast.Report({**values, "checks": values["checks"] + 1}) != seen


def test_each_thread_has_its_last_report():
    ballast.fft.fft(np.ones(32))
    mine = ballast.last_report()
    seen = []

    def other():
        seen.append(ballast.last_report())
        ballast.fft.fft(np.ones(48))
        seen.append(ballast.last_report())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen[0] is None and "n48" in seen[1].problem
    assert ballast.last_report() is mine


def test_protection_off_makes_no_checks():
    with ballast.protection("off"):
        ballast.fft.fft(np.ones(64))
        assert ballast.last_report().checks == 0 and ballast.last_report().protection == "off"
    ballast.fft.fft(np.ones(64))
    assert ballast.last_report().checks > 0


def test_sampled_protects_every_third_call():
    for call in (lambda: ballast.fft.fft(np.ones(37)), lambda: ballast.linalg.qr(np.eye(7) + 1), lambda: ballast.fft.rfft(np.ones((3, 44)))):
        with ballast.protection(sampled=3):
            seen = []
            for _ in range(7):
                call()
                report = ballast.last_report()
                assert report.sampled == 3 and report.protection in ("off", "correct")
                assert (report.checks > 0) == (report.protection == "correct")
                seen.append(report.protection == "correct")
        assert [i for i, is_protected in enumerate(seen) if is_protected] == [0, 3, 6]
    for s in (0, -1):
        with pytest.raises(ballast.InvalidArgumentError, match=f"sampled: expected 1 or more, got {s}"):
            ballast.protection(sampled=s)


def test_final_only_is_for_kmeans():
    with ballast.protection("final_only"), pytest.raises(ballast.UnsupportedError, match="got final_only, which is for K-Means"):
        ballast.fft.fft(np.ones(16))
    with ballast.protection("final_only"), pytest.raises(ballast.UnsupportedError, match="got final_only, which is for K-Means"):
        ballast.linalg.qr(np.eye(3))


def test_protection_nests_and_keeps_what_it_does_not_name():
    with ballast.protection("detect", backend="reference"):
        with ballast.protection(threads=1):
            ballast.fft.fft(np.ones(16))
            assert ballast.last_report().protection == "detect" and ballast.last_report().backend == "reference"
        with ballast.protection("off"):
            ballast.fft.fft(np.ones(16))
            assert ballast.last_report().protection == "off" and ballast.last_report().backend == "reference"
    ballast.fft.fft(np.ones(16))
    assert ballast.last_report().protection == "correct"


def test_protection_as_decorator_and_after_an_exception():
    @ballast.protection("detect")
    def inside():
        ballast.fft.fft(np.ones(16))
        raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            inside()
        assert ballast.last_report().protection == "detect"
    ballast.fft.fft(np.ones(16))
    assert ballast.last_report().protection == "correct"


def test_protection_belongs_to_the_context():
    with ballast.protection("off"):
        inside = contextvars.copy_context()
        seen = []

        def other():
            ballast.fft.fft(np.ones(16))
            seen.append(ballast.last_report().protection)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert seen == ["correct"]
    assert inside.run(lambda: (ballast.fft.fft(np.ones(16)), ballast.last_report().protection)[1]) == "off"

    async def task(level):
        with ballast.protection(level):
            await asyncio.sleep(0)
            ballast.fft.fft(np.ones(16))
            return ballast.last_report().protection

    async def both():
        return await asyncio.gather(task("off"), task("detect"))

    assert asyncio.run(both()) == ["off", "detect"]


@pytest.mark.parametrize("wrong", [{"level": "on"}, {"backend": "gpu"}, {"threads": -1}, {"on_fault": "stop"}])
def test_protection_refuses_what_has_no_meaning(wrong):
    with pytest.raises(ballast.InvalidArgumentError):
        ballast.protection(**wrong)


def test_errors_are_also_pythons():
    assert issubclass(ballast.InvalidArgumentError, (ballast.Error, ValueError)) and issubclass(ballast.InvalidArgumentError, ValueError)
    assert issubclass(ballast.RankDeficientError, np.linalg.LinAlgError)
    assert issubclass(ballast.OutOfMemoryError, MemoryError)
    assert issubclass(ballast.UnsupportedTypeError, TypeError)
    for name in ("InvalidArgumentError", "RankDeficientError", "OutOfMemoryError", "UnsupportedError", "DeviceError", "FaultError"):
        assert issubclass(getattr(ballast, name), ballast.Error)


def test_an_error_of_the_library_arrives_with_its_words():
    with ballast.protection(backend="cuda", device=63):
        with pytest.raises((ballast.UnsupportedError, ballast.InvalidArgumentError, ballast.DeviceError)) as seen:
            ballast.fft.fft(np.ones(16))
    assert len(str(seen.value)) > 20


def test_lists_of_devices():
    for wrong in ([], [0, -1]):
        with pytest.raises(ballast.InvalidArgumentError):
            ballast.protection(device=wrong)
    with ballast.protection(backend="cpu", device=[0, 1]), pytest.raises(ballast.UnsupportedError, match="expected backend cuda for devices"):
        ballast.fft.fft2(np.ones((4, 4), complex))
    with ballast.protection(device=[0, 1]), pytest.raises(ballast.UnsupportedError, match="one array without gaps"):
        ballast.fft.fft(np.ones((4, 4), complex))  # a batch


def test_lists_of_devices_are_of_the_backend_cuda():
    sklearn = pytest.importorskip("ballast.sklearn")
    with ballast.protection(backend="cpu", device=[0, 1]), pytest.raises(ballast.UnsupportedError, match="expected backend cuda for devices"):
        sklearn.KMeans(2, n_init=1).fit(np.arange(12.0).reshape(6, 2))


def test_import_starts_no_thread_and_imports_no_sklearn():
    program = ("import numpy, os, sys\n"
               "tasks = lambda: len(os.listdir('/proc/self/task'))\n"
               "before = tasks()\n"
               "import ballast\n"
               "maps = open('/proc/self/maps').read()\n"
               "print(before, tasks(), 'sklearn' in sys.modules, 'libcuda.so' in maps)\n")
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert out[0] == out[1] and out[2:] == ["False", "False"], out


def test_other_threads_run_during_a_computation():
    """A thread that only counts must make progress while another computes: the interpreter's lock is free."""
    a = np.ones((64, 1 << 15), complex)
    counts, go, stop = [0], threading.Event(), threading.Event()

    def count():
        go.wait()
        while not stop.is_set():
            counts[0] += 1
            time.sleep(0)  # gives the lock up, so that the computing thread gets it back

    thread = threading.Thread(target=count)
    thread.start()
    ballast.fft.fft(a)  # makes the plan
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # a thread gives the lock up only by itself
    try:
        go.set()
        before = counts[0]
        ballast.fft.fft(a)
        during = counts[0] - before
    finally:
        stop.set()
        sys.setswitchinterval(switch)
        thread.join()
    assert during > 1
