"""Ballast: FFT, K-Means and QR that detect and repair silent data corruption.

    ballast.fft        the functions of numpy.fft
    ballast.linalg     qr and lstsq; factor_rows, factor_columns and factor_grid on groups
    ballast.scipy_fft  the functions of scipy.fft, and a backend for it
    ballast.sklearn    KMeans, an estimator of scikit-learn (imports scikit-learn)
    ballast.torch      the functions of torch.fft and torch.linalg.qr as operators of PyTorch (imports PyTorch)
    ballast.jax        the functions of jnp.fft, qr, lstsq and K-Means as calls of XLA (imports JAX)

Each call leaves a report: ballast.last_report(). `with ballast.protection(...)` sets protection, backend and threads.
ballast.install() puts Ballast under NumPy and SciPy for programs that are not to be changed.
"""

import importlib

from ._load import core as _core  # first: it loads the library
from ._errors import (DeviceError, Error, FaultError, FaultWarning, InvalidArgumentError, OutOfMemoryError, RankDeficientError,
                      RankLostError, UnsupportedError, UnsupportedTypeError)
from ._group import group
from ._protection import last_report, protection, synchronize
from ._report import Event, Report
from ._forward import FallbackWarning, forwarded
from . import fft, linalg  # after the names above, which they use
from ._install import install, uninstall

__version__ = _core.version

_LAZY = ("jax", "scipy_fft", "sklearn", "torch")  # they import other libraries

__all__ = ["DeviceError", "Error", "Event", "FallbackWarning", "FaultError", "FaultWarning", "InvalidArgumentError", "OutOfMemoryError",
           "RankDeficientError", "RankLostError", "Report", "UnsupportedError", "UnsupportedTypeError", "__version__", "fft", "forwarded", "group", "info", "install",
           "last_report", "linalg", "protection", "synchronize", "uninstall"]


def info():
    """The library, this build and this machine, as a dict. The first call starts the CUDA driver if there is one."""
    return _core.information()


def __getattr__(name):
    if name in _LAZY:
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
