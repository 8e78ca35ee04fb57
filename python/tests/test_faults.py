"""Injected faults: each is repaired and told, or raises. These run over the extension that can inject faults."""

import logging
import pickle
import warnings

import numpy as np
import pytest

import ballast

FFT = "site=fft.stage,model=bit_flip,bit=60,seed=2"


@pytest.fixture
def signal():
    return np.random.default_rng(1).standard_normal((8, 1024))


def test_a_fault_is_repaired_and_reported(faults, signal):
    expected = ballast.fft.rfft(signal)
    faults(FFT)
    assert np.array_equal(ballast.fft.rfft(signal), expected)
    seen = ballast.last_report()
    assert seen.verdict in ("corrected", "recomputed") and seen.detected >= 1 and len(seen.events) == seen.detected
    event = seen.events[0]
    assert event.site.startswith("fft") and not event.residual <= event.threshold and event.device and event.time > 1e9
    for text in (repr(seen), str(seen), seen._repr_html_()):
        assert seen.verdict in text
    assert event.site in str(seen) and event.site in seen._repr_html_()
    assert ballast.Report(seen.to_dict()) == seen == pickle.loads(pickle.dumps(seen))


def test_without_protection_the_fault_reaches_the_output(faults, signal):
    expected = ballast.fft.rfft(signal)
    faults(FFT)
    with ballast.protection("off"):
        struck = ballast.fft.rfft(signal)
    assert not np.allclose(struck, expected) and ballast.last_report().detected == 0


def test_detect_raises_with_the_report(faults, signal):
    faults(FFT)
    with ballast.protection("detect"), pytest.raises(ballast.FaultError) as seen:
        ballast.fft.rfft(signal)
    report = seen.value.report
    assert report.verdict == "uncorrectable" and report.uncorrectable >= 1 and report is ballast.last_report()
    again = pickle.loads(pickle.dumps(seen.value))
    assert str(again) == str(seen.value) and again.report == report


def test_on_fault(faults, signal):
    expected = ballast.fft.rfft(signal)
    faults(FFT)
    with ballast.protection(on_fault="warn"), pytest.warns(ballast.FaultWarning, match="fft_r2c") as told:
        assert np.array_equal(ballast.fft.rfft(signal), expected)
    assert told[0].filename == __file__
    with ballast.protection(on_fault="raise"), pytest.raises(ballast.FaultError) as seen:
        ballast.fft.rfft(signal)
    assert seen.value.report.verdict in ("corrected", "recomputed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ballast.fft.rfft(signal)


def test_events_are_logged(faults, signal, caplog):
    faults(FFT)
    with caplog.at_level(logging.WARNING, logger="ballast"):
        ballast.fft.rfft(signal)
        assert len(caplog.records) == ballast.last_report().detected >= 1
        record = caplog.records[0]
        assert record.levelno == logging.WARNING and record.ballast_event.site in record.getMessage()
        caplog.clear()
        with ballast.protection("detect"), pytest.raises(ballast.FaultError):
            ballast.fft.rfft(signal)
        assert caplog.records and caplog.records[0].levelno == logging.ERROR


def test_a_later_part_of_a_call_is_in_the_report(faults):
    """fftn over four axes is two runs of plans, qr is two operations: the report has the faults of all."""
    a = np.random.default_rng(2).standard_normal((4, 8, 8, 16))
    expected = ballast.fft.fftn(a)
    clean = ballast.last_report().checks
    faults(FFT)
    assert np.array_equal(ballast.fft.fftn(a), expected)
    assert ballast.last_report().detected >= 2 and ballast.last_report().checks >= clean


def normal(rng, shape, dtype):
    made = rng.standard_normal(shape)
    return (made + 1j * rng.standard_normal(shape) if dtype is complex else made).astype(dtype)


@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("dtype", [float, complex])
def test_qr(faults, mode, dtype):
    a = normal(np.random.default_rng(3), (300, 40), dtype)
    expected = ballast.linalg.qr(a, mode)
    faults("site=qr.trailing,model=bit_flip,bit=60,seed=3", "site=qr.panel,model=bit_flip,bit=61,seed=3")
    seen = ballast.linalg.qr(a, mode)
    report = ballast.last_report()
    assert report.detected >= 1 and report.verdict != "uncorrectable"
    tolerance = 300 * 40 * np.finfo(float).eps * np.abs(a).max()
    assert np.allclose(seen.Q, expected.Q, rtol=0, atol=tolerance) and np.allclose(seen.R, expected.R, rtol=0, atol=40 * tolerance)


@pytest.mark.parametrize("dtype", [float, complex])
def test_lstsq(faults, dtype):
    rng = np.random.default_rng(4)
    a, b = normal(rng, (300, 40), dtype), normal(rng, 300, dtype)
    expected = np.linalg.lstsq(a, b)[0]
    for _ in range(2):  # the second call is one of the extension
        faults("site=qr.panel,model=bit_flip,bit=61,seed=3")
        assert np.allclose(ballast.linalg.lstsq(a, b)[0], expected)
        assert ballast.last_report().detected >= 1
        faults("site=qr.panel,model=bit_flip,bit=61,seed=3")
        with ballast.protection("off"):
            assert not np.allclose(ballast.linalg.lstsq(a, b)[0], expected)


def test_kmeans(faults):
    sklearn = pytest.importorskip("ballast.sklearn")
    X = np.random.default_rng(5).standard_normal((2000, 8))
    clean = sklearn.KMeans(6, random_state=0).fit(X)
    assert clean.report_.verdict == "clean"
    faults("site=kmeans.product,model=bit_flip,bit=62,seed=3")
    struck = sklearn.KMeans(6, random_state=0).fit(X)
    assert struck.report_.detected >= 1 and struck.report_.verdict != "uncorrectable"
    assert np.array_equal(struck.labels_, clean.labels_) and struck.inertia_ == clean.inertia_


@pytest.mark.parametrize("name, kind", [("dct", 1), ("dct", 2), ("dst", 3), ("idct", 4), ("dctn", 2), ("idstn", 2)])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_real_transforms(faults, name, kind, dtype):
    x = np.random.default_rng(6).standard_normal((6, 128)).astype(dtype)
    transform = getattr(ballast.fft, name)
    expected = transform(x, kind)
    faults(FFT)
    assert np.array_equal(transform(x, kind), expected)
    assert ballast.last_report().detected >= 1 and ballast.last_report().verdict in ("corrected", "recomputed")
    faults(FFT)
    with ballast.protection("off"):
        assert not np.allclose(transform(x, kind), expected)


PANEL = "site=qr.panel,model=bit_flip,bit=61,seed=3"


@pytest.mark.parametrize("mode", ["left", "right"])
@pytest.mark.parametrize("site", ["qr.panel", "qr.trailing", "qr.q"])
@pytest.mark.parametrize("dtype", [float, complex])
def test_qr_multiply(faults, mode, site, dtype):
    rng = np.random.default_rng(7)
    a, c = normal(rng, (300, 80), dtype), normal(rng, (80, 30) if mode == "left" else (30, 300), dtype)
    expected = ballast.linalg.qr_multiply(a, c, mode)
    fault = f"site={site},model=bit_flip,bit=61,seed=3"
    faults(fault)
    seen = ballast.linalg.qr_multiply(a, c, mode)
    assert ballast.last_report().detected >= 1 and ballast.last_report().verdict != "uncorrectable"
    tolerance = 300 * 80 * np.finfo(float).eps
    for one, other in zip(seen, expected):
        assert np.allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())
    faults(fault)
    with ballast.protection("off"):
        struck = ballast.linalg.qr_multiply(a, c, mode)
    assert not all(np.allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max()) for one, other in zip(struck, expected))


@pytest.mark.parametrize("shape", [(3, 60, 20), (300, 60)])
@pytest.mark.parametrize("mode", ["reduced", "complete", "r", "raw"])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_matrices(faults, shape, mode, dtype):
    a = normal(np.random.default_rng(11), shape, complex).astype(dtype)
    near = 10 * np.sqrt(shape[-2] * shape[-1]) * np.finfo(dtype).eps  # rounding errors add up as random numbers do

    def arrays():
        made = ballast.linalg.qr(a, mode)
        return made if isinstance(made, tuple) else (made,)

    expected = arrays()
    fault = f"site=qr.panel,model=bit_flip,bit={29 if dtype == np.complex64 else 61},seed=3"
    faults(fault)
    seen = arrays()
    assert ballast.last_report().detected >= 1 and ballast.last_report().verdict in ("corrected", "recomputed")
    for one, other in zip(seen, expected):
        assert np.allclose(one, other, rtol=0, atol=near * np.abs(other).max())
    faults(fault)
    with ballast.protection("off"):
        struck = arrays()
    assert not all(np.allclose(one, other, rtol=0, atol=near * np.abs(other).max()) for one, other in zip(struck, expected))
    faults(fault)
    with ballast.protection("detect"), pytest.raises(ballast.FaultError):
        arrays()


@pytest.mark.parametrize("dtype", [float, complex])
def test_stacks_with_pivoting(faults, dtype):
    a = normal(np.random.default_rng(8), (3, 60, 20), dtype)
    expected = ballast.linalg.qr(a, pivoting=True)
    faults(PANEL)
    seen = ballast.linalg.qr(a, pivoting=True)
    report = ballast.last_report()
    assert report.detected >= 1 and report.verdict != "uncorrectable" and {each.index for each in report.events} <= {0, 1, 2}
    for one, other in zip(seen, expected):
        assert np.allclose(one, other, rtol=0, atol=1e-12)
    faults(PANEL)
    with ballast.protection("off"):
        assert not np.allclose(ballast.linalg.qr(a, pivoting=True)[1], expected[1])
    faults(PANEL)
    with ballast.protection("detect"), pytest.raises(ballast.FaultError):
        ballast.linalg.qr(a, pivoting=True)


@pytest.mark.parametrize("dtype", [float, complex])
def test_lstsq_of_any_rank(faults, dtype):
    rng = np.random.default_rng(9)
    a, b = normal(rng, (200, 30), dtype) @ normal(rng, (30, 40), dtype), normal(rng, 200, dtype)
    expected = ballast.linalg.lstsq(a, b, driver="gelsy")
    faults(PANEL)
    seen = ballast.linalg.lstsq(a, b, driver="gelsy")
    assert ballast.last_report().detected >= 1 and seen.rank == expected.rank == 30 and np.allclose(seen.x, expected.x)
    faults(PANEL)
    with ballast.protection("off"):
        assert not np.allclose(ballast.linalg.lstsq(a, b, driver="gelsy").x, expected.x)


def test_raw_under_install(faults):
    linalg = pytest.importorskip("scipy.linalg")
    a = np.random.default_rng(10).standard_normal((300, 40))
    ballast.install()
    try:
        (h, tau), r = linalg.qr(a, mode="raw")
        faults(PANEL)
        (struck, struck_tau), struck_r = linalg.qr(a, mode="raw")
        assert ballast.last_report().detected >= 1
    finally:
        ballast.uninstall()
    for one, other in ((struck, h), (struck_tau, tau), (struck_r, r)):
        assert np.allclose(one, other, rtol=0, atol=1e-12)
