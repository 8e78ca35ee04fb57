"""One transform of DUCC or pocketfft, timed whenever a line arrives on standard input; the seconds go to standard output.

Usage: fourier.py ducc|pocketfft float32|float64 KIND SHAPE BATCH forward|inverse THREADS
KIND: c2c, r2c, c2r, dct1 to dct4, dst1 to dst4; SHAPE: lengths with x between them. pocketfft is SciPy's copy of it, called below scipy.fft,
because that allocates its result in each call. Both write into an array that is there before. The first call is compared with one
transform of the first signal by NumPy in float64, the real-to-real kinds with SciPy's in float64: a rival that computes something else ends.
"""

import sys
import time

import numpy as np

library, dtype, kind, shape, batch, way, threads = sys.argv[1:8]
shape, batch, threads, forward = tuple(map(int, shape.split("x"))), int(batch), int(threads), way == "forward"
if library == "ducc":
    import ducc0.fft as rival
else:
    from scipy.fft._pocketfft import pypocketfft as rival
half = shape[:-1] + (shape[-1] // 2 + 1,)
axes = tuple(range(1, len(shape) + 1))
random = np.random.default_rng(1)
real = np.dtype(dtype)
cplx = np.result_type(real, np.complex64)


def numbers(of, type):
    x = random.standard_normal((batch, *of), dtype=real)
    return x if type is real else (x + 1j * random.standard_normal((batch, *of), dtype=real)).astype(cplx)


# The inverse is divided by N, as Ballast's is.
inorm = 0 if forward else 2
if kind == "c2c":
    x, y = numbers(shape, cplx), np.empty((batch, *shape), cplx)
    run = lambda: rival.c2c(x, axes, forward, inorm, y, threads)
    expected = lambda: (np.fft.fftn if forward else np.fft.ifftn)(x[0].astype(np.complex128))
elif kind == "r2c":
    x, y = numbers(shape, real), np.empty((batch, *half), cplx)
    run = lambda: rival.r2c(x, axes, True, 0, y, threads)
    expected = lambda: np.fft.rfftn(x[0].astype(np.float64))
elif kind == "c2r":
    x, y = np.fft.rfftn(numbers(shape, real), axes=axes).astype(cplx), np.empty((batch, *shape), real)
    run = lambda: rival.c2r(x, axes, shape[-1], False, 2, y, threads)
    expected = lambda: np.fft.irfftn(x[0].astype(np.complex128), shape, tuple(range(len(shape))))
else:
    import scipy.fft

    x, y = numbers(shape, real), np.empty((batch, *shape), real)
    number = int(kind[3])
    function = rival.dct if kind.startswith("dct") else rival.dst
    run = lambda: function(x, number, axes, 0, y, threads)
    expected = lambda: (scipy.fft.dctn if kind.startswith("dct") else scipy.fft.dstn)(x[0].astype(np.float64), number)
run()
right = expected()
if not np.linalg.norm(y[0] - right) <= (1e-4 if real == np.float32 else 1e-10) * np.linalg.norm(right):
    sys.exit(f"{library}: {kind} {shape} gave another result than NumPy")
for _ in sys.stdin:
    start = time.perf_counter()
    run()
    print(time.perf_counter() - start, flush=True)
