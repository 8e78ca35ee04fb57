"""Frequencies, shifts and lengths. They compute nothing that a fault could make wrong unseen: numpy's functions serve."""

import operator

from numpy.fft import fftfreq, fftshift, ifftshift, rfftfreq

__all__ = ["fftfreq", "fftshift", "ifftshift", "next_fast_len", "prev_fast_len", "rfftfreq"]


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
