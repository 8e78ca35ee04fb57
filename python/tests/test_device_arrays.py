"""The road of arrays in a device's memory, over PyTorch's tensors of the host: everything but the device itself. Tests of a real device are
in test_cuda.py."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import ballast
from ballast import _core, _device, _exchange, _protection
from ballast.fft import _engine


class Done:
    """Stands for work on a stream: the work is done, the findings wait."""

    def __init__(self, report, ended=True):
        self.report, self.ended = report, ended

    def ready(self):
        return self.ended

    def get(self):
        return self.report


@pytest.fixture(autouse=True)
def host_as_device(monkeypatch):
    """Tensors of the host are taken for a device's, and the library computes on the host."""
    monkeypatch.setattr(_exchange, "on_device", lambda a: isinstance(a, torch.Tensor))
    monkeypatch.setattr(_device._Torch, "stream", lambda self, a: 0)
    monkeypatch.setattr(_device._Torch, "device", lambda self, a: 0)

    def tensor(self):
        return self.native.numpy()

    monkeypatch.setattr(_device.DeviceArray, "tensor", tensor)
    where = _core.Execution("cpu", -1, 0, "correct", "")
    for module in (_engine, ballast.linalg):
        monkeypatch.setattr(module, "execution", lambda *args, **kwargs: where)
    monkeypatch.setattr(_engine, "compute", lambda run, src, dst, *how: _protection.compute(
        run.__self__.run, src, dst, *how[:3]) if run.__name__ == "enqueue" else _protection.compute(run, src, dst, *how))


def data(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name, args, kwargs", [
    ("fft", (), {}), ("fft", (5,), {"axis": 1}), ("fft", (11,), {"axis": 0, "norm": "ortho"}), ("ifft", (), {"axis": 1}), ("fftn", (), {}),
    ("fftn", ((4, 9),), {"axes": (0, 2)}), ("ifftn", (), {"axes": (0, 0)}), ("hfft", (), {}), ("irfft", (), {"n": 9}), ("irfftn", (), {}),
    ("irfft2", (), {})])
def test_complex_transforms(name, args, kwargs):
    x = data(3, 6, 8, dtype=torch.complex128)
    for given in (x, x.transpose(0, 2), x[:, 1:5], x.conj()):
        made = getattr(ballast.fft, name)(given, *args, **kwargs)
        assert isinstance(made, torch.Tensor)
        assert np.allclose(made, getattr(np.fft, name)(given.resolve_conj().numpy(), *args, **kwargs))


@pytest.mark.parametrize("name", ["rfft", "rfftn", "rfft2", "ihfft", "fft", "fft2"])
def test_real_input(name):
    for given in (data(3, 6, 8), data(3, 6, 8, dtype=torch.float32), torch.arange(96).reshape(3, 4, 8), torch.ones(4, 6, dtype=torch.bool)):
        made = getattr(ballast.fft, name)(given)
        assert made.dtype == (torch.complex64 if given.dtype == torch.float32 else torch.complex128)
        assert np.allclose(made, getattr(np.fft, name)(given.numpy()), rtol=1e-4, atol=1e-5)
    with pytest.raises(ballast.UnsupportedTypeError, match="bfloat16"):
        ballast.fft.fft(torch.ones(4, dtype=torch.bfloat16))


def test_out_and_in_place():
    x = data(4, 8, dtype=torch.complex128)
    expected, out = np.fft.fft(x.numpy()), torch.empty_like(x)
    assert ballast.fft.fft(x, out=out) is out and np.allclose(out, expected)
    assert ballast.fft.fft(x, out=x) is x and np.allclose(x, expected)
    wide = torch.zeros(4, 16, dtype=torch.complex128)
    assert np.allclose(ballast.fft.ifft(out, out=wide[:, ::2]), np.fft.ifft(expected)) and wide[:, 1::2].abs().max() == 0
    overlapping = torch.cat([out, out])
    assert np.allclose(ballast.fft.fft(overlapping[:4], out=overlapping[2:6]), np.fft.fft(expected))
    with pytest.raises(ballast.UnsupportedError, match="out"):
        ballast.fft.fft(x, out=np.empty((4, 8), complex))


def test_qr_and_least_squares():
    for a in (data(7, 3), data(3, 7), data(2, 5, 5, dtype=torch.float32), data(4, 2, 6, 3)):
        for mode in ("reduced", "complete"):
            q, r = ballast.linalg.qr(a, mode)
            assert isinstance(q, torch.Tensor) and q.shape[-1] == r.shape[-2]
            assert torch.allclose(q @ r, a, atol=1e-5) and torch.allclose(q.mT @ q, torch.eye(q.shape[-1], dtype=a.dtype), atol=1e-5)
            assert torch.equal(r, r.triu())
        assert torch.allclose(ballast.linalg.qr(a, "r"), ballast.linalg.qr(a)[1])
        h, tau = ballast.linalg.qr(a, "raw")
        assert np.allclose(h, np.linalg.qr(a.numpy(), "raw")[0], atol=1e-4) and tau.shape[-1] == min(a.shape[-2:])
    assert ballast.linalg.qr(data(4, 0), "complete")[0].equal(torch.eye(4, dtype=torch.float64))
    for a in (data(9, 4), data(4, 9)):
        for b in (data(len(a)), data(len(a), 2)):
            seen, expected = ballast.linalg.lstsq(a, b), np.linalg.lstsq(a.numpy(), b.numpy())
            for mine, theirs in zip(seen, expected):
                assert np.allclose(mine, theirs)
    with pytest.raises(ballast.RankDeficientError):
        ballast.linalg.lstsq(torch.ones(5, 2, dtype=torch.float64), torch.ones(5, dtype=torch.float64))
    with pytest.raises(ballast.RankDeficientError, match="rcond"):
        ballast.linalg.lstsq(torch.diag(torch.tensor([1, 1e-5])), torch.ones(2), rcond=1e-3)


def test_findings_of_enqueued_calls_are_told():
    ballast.fft.fft(np.ones(8, complex))
    source = _protection._of_thread.report._source

    def enqueue(*parts):
        _protection._of_thread.report = made = _protection._Enqueued(parts, _protection.current())
        return made

    slow = Done(source, ended=False)
    first, second = enqueue(slow), enqueue(Done(source))
    _protection._tell_of_ended_calls()
    assert list(_protection._waiting) == [first, second]  # in order: the first still runs
    slow.ended = True
    _protection._tell_of_ended_calls()
    assert not _protection._waiting
    assert ballast.last_report().verdict == "clean" and ballast.last_report() == second.report()

    class Broken(Done):
        def get(self):
            raise ballast.FaultError("persists", source)

    enqueue(Broken(None))
    with pytest.raises(ballast.FaultError, match="persists"):
        ballast.synchronize()
    ballast.synchronize()  # told once
    assert ballast.last_report().verdict == "clean"


def test_findings_of_a_captured_call_are_told_again_and_again():
    ballast.fft.fft(np.ones(8, complex))
    source = _protection._of_thread.report._source

    class Captured(Done):
        asked = 0

        def ready(self):
            raise ballast.InvalidArgumentError("expected a stream that is not captured")

        def get(self):
            self.asked += 1
            return self.report

    part = Captured(source)
    _protection._Enqueued((part,), _protection.current())
    ballast.synchronize()
    ballast.synchronize()
    assert part.asked == 2
    _protection._captured.clear()
