"""Frequencies, shifts, lengths, and scipy.fft's rules for arguments. They compute nothing that a fault could make wrong unseen: numpy's functions serve."""

import operator

import numpy as np
from numpy.fft import fftfreq, fftshift, ifftshift, rfftfreq

__all__ = ["fftfreq", "fftshift", "ifftshift", "lengths_and_axes", "next_fast_len", "prev_fast_len", "rfftfreq"]


def _smooth(n, primes):
    for prime in primes:
        while n % prime == 0:
            n //= prime
    return n == 1


def _target(target):
    target = operator.index(target)
    if target < 0:
        raise ValueError(f"Target cannot be negative: {target}")
    return target


def _primes(real):
    # scipy's choice: numbers agree with scipy.fft.next_fast_len, so that padded lengths are the same.
    return (2, 3, 5) if real else (2, 3, 5, 7, 11)


def next_fast_len(target, real=False):
    """The smallest length ≥ target that has only small prime factors: 2, 3, 5, 7 and 11; for real transforms 2, 3 and 5."""
    n = _target(target)
    while n > 0 and not _smooth(n, _primes(real)):
        n += 1
    return n


def prev_fast_len(target, real=False):
    """The largest length ≤ target that has only small prime factors: 2, 3, 5, 7 and 11; for real transforms 2, 3 and 5."""
    n = _target(target)
    if n == 0:
        raise ValueError("Target length must be positive")
    while not _smooth(n, _primes(real)):
        n -= 1
    return n


def _integers(values, name):
    try:
        return [operator.index(each) for each in (values if np.ndim(values) else (values,))]
    except TypeError as wrong:
        raise ValueError(f"{name} must be a scalar or iterable of integers") from wrong


def lengths_and_axes(x, s, axes, halved=False):
    """Lengths and different axes ≥ 0 by scipy.fft's rules."""
    given = s is not None
    if axes is not None:
        axes = [a + x.ndim if a < 0 else a for a in _integers(axes, "axes")]
        if any(not 0 <= a < x.ndim for a in axes):
            raise ValueError("axes exceeds dimensionality of input")
        if len(set(axes)) < len(axes):
            raise ValueError("all axes must be unique")
    if given:
        s = _integers(s, "shape")
        if axes is not None and len(axes) != len(s):
            raise ValueError("when given, axes and shape arguments have to be of the same length")
        if axes is None and len(s) > x.ndim:
            raise ValueError("shape requires more axes than are present")
    if axes is None:
        axes = list(range(x.ndim - len(s), x.ndim) if given else range(x.ndim))
    whole = [x.shape[a] for a in axes] if s is None else [x.shape[a] if n == -1 else n for n, a in zip(s, axes)]
    _refuse_empty(whole)
    if halved and axes and not given:
        whole[-1] = 2 * (x.shape[axes[-1]] - 1)
        _refuse_empty(whole)
    return whole, axes


def _refuse_empty(whole):
    if any(n < 1 for n in whole):
        raise ValueError(f"invalid number of data points ({whole}) specified")
