"""install() puts Ballast under numpy.fft, scipy.fft, torch.fft, qr and lstsq of numpy.linalg and scipy.linalg, the latter's qr_multiply,
torch.linalg.qr, and scikit-learn's KMeans, MiniBatchKMeans and BisectingKMeans, for programs that are not to be changed."""

import atexit
import functools
import importlib.abc
import importlib.util
import sys
import threading

import numpy as np

from . import _numpy_linalg, fft
from ._errors import RankDeficientError, UnsupportedError
from ._forward import forward, forwarded, protected, protected_calls

__all__ = ["install", "summary", "uninstall"]

_FFT = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2")
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


def _replace(module, names, source, types):
    for name in names:
        call = _protecting(module, name, getattr(source, name), types)
        _replaced[module, name] = getattr(module, name)
        setattr(module, name, call)


def _share(module, importer):
    """Gives `importer` what was put into `module` for the names that it has from there: estimators that keep such a function are pickled by
    its name, and pickle refuses another object than the one that has the name now."""
    for of, name in list(_replaced):
        if of is module and hasattr(importer, name):
            _replaced[importer, name] = getattr(importer, name)
            setattr(importer, name, getattr(module, name))


def _replace_torch():
    import torch

    from . import _torch_functions

    # PyTorch's own words for arguments that have no meaning: it refuses them after Ballast has.
    types = (UnsupportedError, ValueError, TypeError, IndexError, RuntimeError)
    _replace(torch.fft, _torch_functions.FFT, _torch_functions, types)
    _replace(torch.linalg, ("qr",), _torch_functions, types)


class _AfterImportOfTorch(importlib.abc.MetaPathFinder):
    """Importing PyTorch takes seconds, so its functions are replaced when the program imports it."""

    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        if found is not None and found.loader is not None:
            execute = found.loader.exec_module

            def exec_module(module):
                execute(module)
                with _lock:
                    if _replaced:
                        _replace_torch()

            found.loader.exec_module = exec_module
        return found


def summary():
    """The number of calls that were protected and forwarded, and why, as lines of text."""
    handed_on = forwarded()
    words = f"ballast: protected {protected_calls()} calls, forwarded {sum(handed_on.values())}"
    return "\n".join([words, *(f"  {count} of {name}: {why}" for (name, why), count in sorted(handed_on.items()))])


def _print_summary():
    if _replaced:
        print(summary(), file=sys.stderr)


def install():
    """Replaces the functions; a second call does nothing. Modules of SciPy, scikit-learn and PyTorch are taken where they are installed.

    What Ballast cannot take (complex matrices on a device, least squares without full rank but by gelsy, long double,
    sparse points, elkan) is forwarded: forwarded() counts it, BALLAST_ON_FALLBACK=allow|warn|error says what happens, and the end of the
    program prints "protected N calls, forwarded M" with the reasons. Names that a module has already imported (`from numpy.fft import fft`)
    stay what they are.
    """
    with _lock:
        if _replaced:
            return
        _replace(np.fft, _FFT, fft, UnsupportedError)
        _replace(np.linalg, _numpy_linalg.__all__, _numpy_linalg, (UnsupportedError, RankDeficientError))
        if importlib.util.find_spec("scipy") is not None:
            import scipy.fft
            import scipy.linalg

            from . import _scipy_linalg
            from . import scipy_fft as backend

            scipy.fft.set_global_backend(backend)
            _replaced[scipy.fft, None] = "scipy"
            _replace(scipy.linalg, _scipy_linalg.__all__, _scipy_linalg, (UnsupportedError, RankDeficientError))
        if importlib.util.find_spec("sklearn") is not None:
            import sklearn.cluster._bisect_k_means as bisecting
            import sklearn.cluster._kmeans as theirs

            from . import _sklearn_engine

            _replace(theirs, _sklearn_engine.__all__, _sklearn_engine, UnsupportedError)
            _share(theirs, bisecting)
        if "torch" in sys.modules:
            _replace_torch()
        elif importlib.util.find_spec("torch") is not None:
            sys.meta_path.insert(0, _AfterImportOfTorch())
    atexit.register(_print_summary)


def uninstall():
    """Puts the functions back; a second call does nothing."""
    with _lock:
        for (module, name), theirs in _replaced.items():
            if name is None:
                module.set_global_backend(theirs)
            else:
                setattr(module, name, theirs)
        _replaced.clear()
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _AfterImportOfTorch)]
    atexit.unregister(_print_summary)
