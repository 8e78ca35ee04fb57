"""Loads the library so that the import starts no thread: OpenBLAS starts its threads when it is loaded, and Ballast uses one of them. Tells it
where the CUDA packages of Python are, among which it looks for its compiler of kernels."""

import os
import sys

import numpy  # noqa: F401: a NumPy that shares the library's OpenBLAS loads it first, with the threads that it is used to

_PACKAGES = "BALLAST_SITE_PACKAGES"
if _PACKAGES not in os.environ:
    _folders = [folder for folder in sys.path if os.path.isdir(os.path.join(folder, "nvidia"))]
    if _folders:
        os.environ[_PACKAGES] = os.pathsep.join(_folders)

_NAME = "OPENBLAS_NUM_THREADS"
_before = os.environ.get(_NAME)
if _before is None:
    os.environ[_NAME] = "1"
try:
    from . import _core as core
finally:
    if _before is None:
        del os.environ[_NAME]

__all__ = ["core"]
