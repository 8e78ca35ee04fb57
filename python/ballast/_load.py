"""Loads the library so that the import starts no thread: OpenBLAS starts its threads when it is loaded, and Ballast uses one of them."""

import os

import numpy  # noqa: F401: a NumPy that shares the library's OpenBLAS loads it first, with the threads that it is used to

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
