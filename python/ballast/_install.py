"""install() puts Ballast under numpy.fft, scipy.fft and numpy.linalg's qr and lstsq, for programs that are not to be changed."""

import atexit
import functools
import sys
import threading

import numpy as np

from . import fft, linalg
from ._errors import RankDeficientError, UnsupportedError
from ._forward import forward, forwarded, protected, protected_calls

__all__ = ["install", "uninstall"]

_FFT = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2")
_LINALG = ("qr", "lstsq")
_lock = threading.Lock()
_replaced = {}


def _protecting(module, name, mine, types):
    """A function like that of `module`, which Ballast computes; what Ballast cannot take is handed on."""
    theirs = getattr(module, name)
    full_name = f"{module.__name__}.{name}"

    @functools.wraps(theirs)
    def call(*args, **kwargs):
        try:
            made = mine(*args, **kwargs)
        except types as why:
            forward(full_name, str(why))
            return theirs(*args, **kwargs)
        protected()
        return made

    return call


def _summary():
    if _replaced:
        handed_on = forwarded()
        words = f"ballast: protected {protected_calls()} calls, forwarded {sum(handed_on.values())}"
        reasons = [f"  {count} of {name}: {why}" for (name, why), count in sorted(handed_on.items())]
        print("\n".join([words, *reasons]), file=sys.stderr)


def install():
    """Replaces the functions; a second call does nothing. What Ballast cannot take (complex QR, matrices without full rank, long double,
    numpy.linalg's names of modes that are old) is forwarded: forwarded() counts it, BALLAST_ON_FALLBACK=allow|warn|error says what
    happens, and the end of the program prints "protected N calls, forwarded M" with the reasons. scipy.fft is taken if SciPy is
    there. Names that a module has already imported (`from numpy.fft import fft`) stay what they are."""
    with _lock:
        if _replaced:
            return
        for module, names, source, types in ((np.fft, _FFT, fft, (UnsupportedError,)),
                                             (np.linalg, _LINALG, linalg, (UnsupportedError, RankDeficientError))):
            for name in names:
                call = _protecting(module, name, getattr(source, name), types)
                _replaced[module, name] = getattr(module, name)
                setattr(module, name, call)
        try:
            import scipy.fft as scipy_fft
        except ModuleNotFoundError:
            scipy_fft = None
        if scipy_fft is not None:
            from . import scipy_fft as backend

            scipy_fft.set_global_backend(backend)
            _replaced[scipy_fft, None] = "scipy"
    atexit.register(_summary)


def uninstall():
    """Puts the functions back; a second call does nothing."""
    with _lock:
        for (module, name), theirs in _replaced.items():
            if name is None:
                module.set_global_backend(theirs)
            else:
                setattr(module, name, theirs)
        _replaced.clear()
    atexit.unregister(_summary)
