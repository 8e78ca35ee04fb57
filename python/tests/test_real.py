"""The cosine and sine transforms of ballast.fft: by their definitions in long double, and beside scipy.fft's."""

import math

import numpy as np
import pytest

import ballast
from ballast.fft import _real

NAMES = [prefix + family + several for family in ("dct", "dst") for prefix in ("", "i") for several in ("", "n")]


def random(shape, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    made = rng.standard_normal(shape)
    return (made + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else made).astype(dtype)


def matrix(family, kind, n):
    """The transform without factors, of scipy.fft's documentation."""
    j, k = np.arange(n, dtype=np.longdouble), np.arange(n, dtype=np.longdouble)[:, None]
    pi, half = np.longdouble("3.14159265358979323846264338327950288"), np.longdouble(1) / 2
    if family == "dct":
        if kind == 1:
            made = 2 * np.cos(pi * j * k / (n - 1))
            made[:, [0, -1]] /= 2
            return made
        at = {2: (j + half) * k, 3: j * (k + half), 4: (j + half) * (k + half)}[kind]
        made = 2 * np.cos(pi * at / n)
        if kind == 3:
            made[:, 0] /= 2
        return made
    if kind == 1:
        return 2 * np.sin(pi * (j + 1) * (k + 1) / (n + 1))
    at = {2: (j + half) * (k + 1), 3: (j + 1) * (k + half), 4: (j + half) * (k + half)}[kind]
    made = 2 * np.sin(pi * at / n)
    if kind == 3:
        made[:, -1] /= 2
    return made


@pytest.mark.parametrize("family", ["dct", "dst"])
@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize("n", [2, 3, 8, 15, 64, 127])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_definitions(family, kind, n, dtype):
    x, logical = random((3, n), dtype), 2 * (n + {"dct": -1, "dst": 1}[family] * (kind == 1))
    expected = x.astype(np.longdouble) @ matrix(family, kind, n).T
    forward, inverse = getattr(ballast.fft, family), getattr(ballast.fft, "i" + family)
    limit = 10 * (1 + math.log2(n)) * np.finfo(dtype).eps  # of a fast transform: O(u log n) of the norm
    for norm, factor in ((None, 1), ("backward", 1), ("ortho", 1 / math.sqrt(logical)), ("forward", 1 / logical)):
        seen = forward(x, kind, norm=norm, orthogonalize=False)
        assert seen.dtype == dtype and seen.shape == x.shape and ballast.last_report().checks > 0
        assert np.linalg.norm((seen - factor * expected).astype(float)) <= limit * factor * np.linalg.norm(expected.astype(float))
    for norm in (None, "ortho", "forward"):
        for orthogonalize in (None, True, False):
            back = inverse(forward(x, kind, norm=norm, orthogonalize=orthogonalize), kind, norm=norm, orthogonalize=orthogonalize)
            assert np.linalg.norm(back - x) <= 10 * limit * np.linalg.norm(x)
    orthogonal = forward(np.eye(n, dtype=dtype), kind, norm="ortho")
    assert np.linalg.norm(orthogonal @ orthogonal.T - np.eye(n)) <= 4 * n * limit


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_as_scipy(name, kind, dtype):
    fft = pytest.importorskip("scipy.fft")
    mine, theirs = getattr(ballast.fft, name), getattr(fft, name)
    calls = [{"n": 5, "axis": 1}, {"n": 11, "axis": 0, "norm": "forward"}] if name[-1] != "n" else [
        {}, {"s": (4, 9), "axes": (0, 2)}, {"axes": (2, 0), "norm": "forward"}, {"s": (-1, 6)}]
    wide = random((4, 6, 10), dtype)
    for x in (random((2, 3, 4, 5), dtype), wide, wide[::2, ::-1, ::2], wide.transpose(2, 0, 1)):
        for how in ({}, {"norm": "ortho"}, {"norm": "ortho", "orthogonalize": False}, {"orthogonalize": True}, *(calls if x is wide else [])):
            kept = x.copy()
            seen, how = mine(x, kind, **how), dict(how, type=kind)
            # scipy forgets `orthogonalize` where the numbers are complex, so that the parts are asked for.
            expected = theirs(x.real, **how) + 1j * theirs(x.imag, **how) if x.dtype.kind == "c" else theirs(x, **how)
            assert seen.dtype == dtype and seen.shape == expected.shape and np.array_equal(x, kept)
            assert np.linalg.norm(seen - expected) <= 64 * np.finfo(dtype).eps * np.linalg.norm(expected)


def test_types_and_refusals():
    assert ballast.fft.dct([1, 2, 3]).dtype == np.float64 and ballast.fft.dct(np.ones(4, np.float16)).dtype == np.float32
    assert ballast.fft.dctn(np.float64(3)) == 3 and ballast.fft.dct(np.ones((0, 3))).shape == (0, 3)
    x = np.ones((3, 4))
    for call in (lambda: ballast.fft.dct(x, 5), lambda: ballast.fft.dst(x, 0), lambda: ballast.fft.dct(x, norm="both"), lambda: ballast.fft.dct(x, n=0),
                 lambda: ballast.fft.dct(x, 1, n=1), lambda: ballast.fft.dct(x, axis=2), lambda: ballast.fft.dctn(x, axes=(0, 0)),
                 lambda: ballast.fft.dctn(x, s=(2,), axes=(0, 1)), lambda: ballast.fft.dct(np.ones((3, 0)))):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(ballast.UnsupportedTypeError):
        ballast.fft.dct(np.ones(3, np.longdouble))
    with pytest.raises(TypeError):
        ballast.fft.dct(np.array(["a"]))


class Struck:
    """Multiplications of edges, of which these numbers (from 0) have a wrong bit."""

    def __init__(self, monkeypatch, *calls, bit=50):
        self.calls, self.bit, self.count = calls, bit, -1
        monkeypatch.setattr(_real, "_times", self)

    def __call__(self, values, factor):
        made = values * factor
        self.count += 1
        if self.count in self.calls:
            made.reshape(-1).view(np.uint64)[0] ^= np.uint64(1 << self.bit)
        return made


@pytest.mark.parametrize("name, kind", [("dct", 1), ("dct", 2), ("dct", 3), ("dst", 2), ("dst", 3), ("idct", 2), ("dctn", 2)])
@pytest.mark.parametrize("call", [0, 1])
@pytest.mark.parametrize("bit", [30, 50, 62])
def test_a_struck_edge_is_multiplied_again(monkeypatch, name, kind, call, bit):
    x = random((5, 8))
    clean = getattr(ballast.fft, name)(x, kind, norm="ortho")
    Struck(monkeypatch, call, bit=bit)
    assert np.array_equal(getattr(ballast.fft, name)(x, kind, norm="ortho"), clean)
    seen = ballast.last_report()
    assert seen.verdict == "recomputed" and seen.detected == 1 and seen.events[0].site == "fft.edges"
    Struck(monkeypatch, 0, bit=bit)
    with ballast.protection("off"):
        assert not np.array_equal(getattr(ballast.fft, name)(x, kind, norm="ortho"), clean)
    Struck(monkeypatch, call, bit=bit)
    with ballast.protection("detect"), pytest.raises(ballast.FaultError) as raised:
        getattr(ballast.fft, name)(x, kind, norm="ortho")
    assert raised.value.report.verdict == "uncorrectable"


def test_an_edge_that_stays_wrong_is_told(monkeypatch):
    Struck(monkeypatch, 0, 2, 4)
    with pytest.raises(ballast.FaultError) as raised:
        ballast.fft.dct(random((5, 8)), 2, norm="ortho")
    assert raised.value.report.uncorrectable == 1 and raised.value.report.events[-1].site == "fft.edges"


def test_a_struck_store_of_an_edge_is_repaired():
    """The memory of the result takes the first store of an edge with a wrong bit."""

    class Memory(np.ndarray):
        strikes = 1

        def __setitem__(self, where, values):
            if Memory.strikes:
                Memory.strikes -= 1
                values = np.array(values)
                values.reshape(-1).view(np.uint64)[0] ^= np.uint64(1 << 40)
            super().__setitem__(where, values)

    a = random((4, 6)).view(Memory)
    expected = np.asarray(a).copy()
    expected[:, :1] *= math.sqrt(2)
    findings = _real._Findings()
    findings.scale(a, (1,), (0,), math.sqrt(2))
    assert np.array_equal(np.asarray(a), expected) and [each.action for each in findings.events] == ["recomputed"]
