"""Calls that Ballast cannot take and hands on: counted, and told as BALLAST_ON_FALLBACK says."""

import os
import threading
import warnings
from collections import Counter

from ._errors import InvalidArgumentError, UnsupportedError

__all__ = ["FallbackWarning", "forward", "forwarded", "protected", "protected_calls"]

_counts = Counter()
_protected = 0
_lock = threading.Lock()


class FallbackWarning(RuntimeWarning):
    """A call was handed on to another library, without protection."""


def forward(name, why):
    """Notes that the call of `name` is handed on. BALLAST_ON_FALLBACK=allow, warn (the default) or error (raises UnsupportedError)."""
    how = os.environ.get("BALLAST_ON_FALLBACK", "warn")
    if how not in ("allow", "warn", "error"):
        raise InvalidArgumentError(f'BALLAST_ON_FALLBACK: expected allow, warn or error, got "{how}"')
    if how == "error":
        raise UnsupportedError(f"{name}: {why} (BALLAST_ON_FALLBACK=error)")
    with _lock:
        _counts[name, why] += 1
    if how == "warn":
        warnings.warn(f"{name} is not protected: {why}", FallbackWarning, stacklevel=4)


def protected():
    """Notes that Ballast computed a call of another library's function."""
    global _protected
    with _lock:
        _protected += 1


def protected_calls():
    """How many calls of other libraries' functions Ballast has computed."""
    return _protected


def forwarded():
    """The calls that were handed on, as a dict: (function, reason) → number."""
    with _lock:
        return dict(_counts)
