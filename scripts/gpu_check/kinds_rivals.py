#!/usr/bin/env python3
"""Times the rivals of the stage kinds: PyTorch, flash-kmeans where it is installed, and LAPACK on the host's cores by SciPy.

usage: kinds_rivals.py [--seconds S] [--device cuda] TOKEN…

As gpu-check times Ballast: operands on the device (of LAPACK on the host, of convolutions on both), by the host's clock until the results lie
there, median of several calls after one that does not count. Prints a row of JSON for each problem.

fft_KIND: the route by hand to a transform of reals, over torch.fft: reordering, a transform of reals or, for kinds IV, a complex one of
half the length, rotation. convolve_ and correlate_: by torch.fft from and to memory of the host, and with operands on the device. kmeans_:
PyTorch's and flash-kmeans' iterations in the precision of the points; spherical: of points divided by their norms. geqp3_: xGEQP3 of
SciPy's BLAS with all its threads, once. Others (c64, c128): PyTorch's geqrf, ormqr, householder_product and lstsq.
"""

import json
import math
import re
import statistics
import time

from kmeans_rivals import libraries, options, words_of

ROUNDS = 7
SCORES = 2**26  # of K-Means at a time


def say(**row):
    print(json.dumps({"type": "kind", **row}, ensure_ascii=False), flush=True)


class Clock:
    """Times calls until a deadline."""

    def __init__(self, torch, device, deadline):
        self.synchronize, self.deadline = torch.cuda.synchronize if device == "cuda" else (lambda: None), deadline

    def time(self, token, call, variant, run, calls=1):
        made = []
        try:
            for number in range(ROUNDS + 1):
                self.synchronize()
                begin = time.perf_counter()
                for _ in range(calls):
                    kept = run()
                self.synchronize()
                if number > 0:
                    made.append(1e3 * (time.perf_counter() - begin) / calls)
                del kept
                if number > 0 and time.monotonic() > self.deadline:
                    break
        except (RuntimeError, ValueError, TypeError, AttributeError) as failed:  # a shape or type that it does not take, or too little memory
            return say(token=token, call=call, variant=variant, refused=words_of(failed))
        say(token=token, call=call, variant=variant, milliseconds=statistics.median(made), low=min(made), high=max(made), rounds=len(made))


# ---- Transforms of reals, along the last axis, with FFTW's definitions ----


class Reals:
    def __init__(self, torch):
        self.torch, self.kept = torch, {}

    def turns(self, x, n, count, times, offset=0.0):
        """exp(-iπ (offset + times·k) / n) for k < count: computed once, as a program that calls often would."""
        key = (n, count, times, offset, x.dtype, x.device)
        if key not in self.kept:
            torch = self.torch
            angle = -math.pi * (offset + times * torch.arange(count, dtype=torch.float64, device=x.device)) / n
            self.kept[key] = torch.polar(torch.ones_like(angle), angle).to(torch.complex64 if x.dtype == torch.float32 else torch.complex128)
        return self.kept[key]

    def signs(self, x, n):
        key = ("signs", n, x.dtype, x.device)
        if key not in self.kept:
            self.kept[key] = 1 - 2 * (self.torch.arange(n, device=x.device) % 2).to(x.dtype)
        return self.kept[key]

    def r2hc(self, x):
        n, y = x.shape[-1], self.torch.fft.rfft(x)
        return self.torch.cat((y.real, y.imag[..., 1 : (n + 1) // 2].flip(-1)), -1)

    def hc2r(self, x):
        torch, n = self.torch, x.shape[-1]
        imaginary = torch.zeros_like(x[..., : n // 2 + 1])
        imaginary[..., 1 : (n + 1) // 2] = x[..., n // 2 + 1 :].flip(-1)
        return torch.fft.irfft(torch.complex(x[..., : n // 2 + 1].contiguous(), imaginary), n=n, norm="forward")

    def dht(self, x):
        n, y = x.shape[-1], self.torch.fft.rfft(x)
        return self.torch.cat((y.real - y.imag, (y.real + y.imag)[..., 1 : (n + 1) // 2].flip(-1)), -1)

    def dct1(self, x):
        return self.torch.fft.rfft(self.torch.cat((x, x[..., 1:-1].flip(-1)), -1)).real

    def dst1(self, x):
        torch, n = self.torch, x.shape[-1]
        zero = torch.zeros_like(x[..., :1])
        return -torch.fft.rfft(torch.cat((zero, x, zero, -x.flip(-1)), -1)).imag[..., 1 : n + 1]

    def dct2(self, x):
        torch, n = self.torch, x.shape[-1]
        v = torch.cat((x[..., ::2], x[..., 1::2].flip(-1)), -1)
        y = torch.fft.rfft(v) * self.turns(x, 2 * n, n // 2 + 1, 1)
        return 2 * torch.cat((y.real, -y.imag[..., 1 : (n + 1) // 2].flip(-1)), -1)

    def dct3(self, x):
        torch, n = self.torch, x.shape[-1]
        half = n // 2 + 1
        mirror = torch.zeros_like(x[..., :half])
        mirror[..., 1:] = x[..., n - half + 1 :].flip(-1)
        v = torch.fft.irfft(torch.complex(x[..., :half].contiguous(), -mirror) * self.turns(x, 2 * n, half, 1).conj(), n=n, norm="forward")
        y = torch.empty_like(v)
        y[..., ::2] = v[..., : (n + 1) // 2]
        y[..., 1::2] = v[..., (n + 1) // 2 :].flip(-1)
        return y

    def dct4(self, x):
        torch, n = self.torch, x.shape[-1]
        if n % 2:
            raise ValueError("the route by hand takes an even length")
        turns = self.turns(x, 4 * n, n // 2, 4, 0.5)
        z = torch.fft.fft(torch.complex(x[..., ::2].contiguous(), x.flip(-1)[..., ::2].contiguous()) * turns) * turns
        y = torch.empty_like(x)
        y[..., ::2] = 2 * z.real
        y[..., 1::2] = -2 * z.imag.flip(-1)
        return y

    def dst2(self, x):
        return self.dct2(x * self.signs(x, x.shape[-1])).flip(-1)

    def dst3(self, x):
        return self.dct3(x.flip(-1)) * self.signs(x, x.shape[-1])

    def dst4(self, x):
        return self.dct4(x.flip(-1)) * self.signs(x, x.shape[-1])

    def transform(self, kinds, x):
        for axis, kind in enumerate(reversed(kinds)):
            x = getattr(self, kind)(x) if axis == 0 else getattr(self, kind)(x.movedim(-1 - axis, -1)).movedim(-1, -1 - axis)
        return x.contiguous()


def numbers(torch, name):
    return {"f32": torch.float32, "f64": torch.float64, "c64": torch.complex64, "c128": torch.complex128, "f16": torch.float16, "bf16": torch.bfloat16}[name]


def time_reals(token, torch, device, clock):
    found = re.fullmatch(r"fft_([a-z0-4x]+)_(f32|f64)_n([0-9x]+)_b(\d+)_fwd", token)
    if not found or found[1] in ("c2c", "r2c", "c2r"):
        return  # cuFFT is the rival, in the program
    shape = [int(n) for n in found[3].split("x")]
    kinds = re.findall(r"r2hc|hc2r|dht|d[cs]t[1-4]", found[1])
    kinds = kinds * len(shape) if len(kinds) == 1 else kinds
    x = torch.randn(int(found[4]), *shape, device=device, dtype=numbers(torch, found[2]))
    reals = Reals(torch)
    clock.time(token, "transform", "PyTorch, by hand", lambda: reals.transform(kinds, x), 5)


def smooth(least):
    """The next even length without primes above 7."""
    for n in range(least + least % 2, 2 * least + 2, 2):
        rest = n
        for p in (2, 3, 5, 7):
            while rest % p == 0:
                rest //= p
        if rest == 1:
            return n


def time_convolution(token, torch, device, clock):
    found = re.fullmatch(r"(convolve|correlate)_(real|complex)_(f32|f64)_n([0-9x]+)_m([0-9x]+)_(full|same|valid)", token)
    first, second = ([int(n) for n in found[group].split("x")] for group in (4, 5))
    kind = numbers(torch, {"f32": "c64", "f64": "c128"}[found[3]] if found[2] == "complex" else found[3])
    x, h = torch.randn(first, dtype=kind), torch.randn(second, dtype=kind)
    size = [n + m - 1 for n, m in zip(first, second)]
    axes = list(range(len(size)))
    begin = {"full": lambda n, m: 0, "same": lambda n, m: (m - 1) // 2, "valid": lambda n, m: min(n, m) - 1}[found[6]]
    length = {"full": lambda n, m: n + m - 1, "same": lambda n, m: n, "valid": lambda n, m: abs(n - m) + 1}[found[6]]
    part = tuple(slice(begin(n, m), begin(n, m) + length(n, m)) for n, m in zip(first, second))
    ahead, back = (torch.fft.fftn, torch.fft.ifftn) if found[2] == "complex" else (torch.fft.rfftn, torch.fft.irfftn)

    def convolve(x, h, padded):
        h = h.conj().flip(axes) if found[1] == "correlate" else h
        return back(ahead(x, s=padded, dim=axes) * ahead(h, s=padded, dim=axes), s=padded, dim=axes)[part]

    def seconds(padded):
        convolve(*there, padded)
        clock.synchronize()
        begin = time.perf_counter()
        for _ in range(3):
            convolve(*there, padded)
        clock.synchronize()
        return time.perf_counter() - begin

    # Powers of two, or the next lengths without primes above 7, whichever is faster.
    there = x.to(device), h.to(device)
    padded = min([2 ** math.ceil(math.log2(n)) for n in size], [smooth(n) for n in size], key=seconds)

    clock.time(token, "operands on the host", "PyTorch", lambda: convolve(x.to(device), h.to(device), padded).cpu())
    clock.time(token, "operands on the device", "PyTorch, operands on the device", lambda: convolve(*there, padded).contiguous())


def time_kmeans(token, torch, flash, device, clock):
    found = re.fullmatch(r"kmeans_(f16|bf16|f32)_m(\d+)_n(\d+)_k(\d+)(_spherical)?", token)
    m, n, k = (int(found[group]) for group in (2, 3, 4))
    x = torch.randn(m, n, device=device).to(numbers(torch, found[1]))
    spherical = found[5] is not None
    first = x[:k].clone()

    def labels_of(points, centroids):
        half = 0 if spherical else (centroids.float() ** 2).sum(1) / 2
        return torch.cat([((part @ centroids.T).float() - half).argmax(1) for part in points.split(max(1, SCORES // k))])

    def unit(values):
        return values / values.norm(dim=1, keepdim=True).clamp(min=1e-30)

    def fit(iterations):
        points, centroids = (unit(x), unit(first)) if spherical else (x, first)
        for _ in range(iterations):
            labels = labels_of(points, centroids)
            sums = torch.zeros(k, n, device=device).index_add_(0, labels, points.float())
            counts = torch.zeros(k, device=device).index_add_(0, labels, torch.ones(m, device=device))
            means = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], centroids.float())
            centroids = (unit(means) if spherical else means).to(x.dtype)
        return centroids, labels_of(points, centroids)

    for iterations in (1, 20):
        call = f"fit, {iterations} iteration{'s' if iterations > 1 else ''}"
        clock.time(token, call, "PyTorch", lambda: fit(iterations))
        if flash is not None and not spherical:
            clock.time(token, call, "flash-kmeans",
                       lambda: flash.batch_kmeans_Euclid(x[None], k, max_iters=iterations, tol=-1.0, init_centroids=first[None].clone()))
    clock.time(token, "predict", "PyTorch", lambda: labels_of(unit(x), unit(first)) if spherical else labels_of(x, first))


def time_pivoted(token):
    found = re.fullmatch(r"geqp3_(f32|f64|c64|c128)_m(\d+)_n(\d+)", token)
    name = "LAPACK, all cores"
    try:
        import numpy
        from scipy.linalg import lapack
    except ImportError as failed:
        return say(token=token, call="geqp3", variant=name, refused=f"SciPy is not installed: {failed}")
    random, shape = numpy.random.default_rng(11), (int(found[2]), int(found[3]))
    a = random.standard_normal(shape)
    if found[1].startswith("c"):
        a = a + 1j * random.standard_normal(shape)
    kind, letter = {"f32": ("float32", "s"), "f64": ("float64", "d"), "c64": ("complex64", "c"), "c128": ("complex128", "z")}[found[1]]
    a = numpy.asfortranarray(a, dtype=kind)
    function = getattr(lapack, f"{letter}geqp3")
    work = int(function(a[:8, :8].copy(order="F"), lwork=-1)[3][0].real) + (a.shape[1] + 1) * 64 + 3
    begin = time.perf_counter()
    function(a, lwork=work, overwrite_a=1)
    milliseconds = 1e3 * (time.perf_counter() - begin)
    say(token=token, call="geqp3", variant=name, milliseconds=milliseconds, low=milliseconds, high=milliseconds, rounds=1)


def time_qr(token, torch, device, clock):
    found = re.fullmatch(r"(geqrf|ormqr|orgqr|gels)_(f32|f64|c64|c128)_m(\d+)_n(\d+)(?:_b(\d+))?", token)
    operation, m, n, batch = found[1], int(found[3]), int(found[4]), int(found[5] or 1)
    a = torch.randn(*((batch,) if batch > 1 else ()), n, m, device=device, dtype=numbers(torch, found[2])).mT
    if operation == "gels":
        right = torch.randn(*a.shape[:-1], 1, device=device, dtype=a.dtype)
        return clock.time(token, operation, "PyTorch", lambda: torch.linalg.lstsq(a, right).solution)
    if operation == "geqrf":
        return clock.time(token, operation, "PyTorch", lambda: torch.geqrf(a))
    factors, tau = torch.geqrf(a)
    if operation == "orgqr":
        return clock.time(token, operation, "PyTorch", lambda: torch.linalg.householder_product(factors, tau))
    clock.time(token, operation, "PyTorch", lambda: torch.ormqr(factors, tau, a, left=True, transpose=True))


def main():
    wanted = options(__doc__, 60)
    end = time.monotonic() + wanted.seconds
    torch, flash = libraries(wanted.device, lambda name, why: print(json.dumps({"type": "kind rival", "variant": name, "unavailable": why}), flush=True))
    for number, token in enumerate(wanted.tokens):
        if time.monotonic() > end:
            print(json.dumps({"type": "kind rival", "variant": "rivals", "unavailable": f"no time was left for {token} and those after it"}), flush=True)
            break
        if token.startswith("geqp3"):
            time_pivoted(token)
            continue
        if torch is None:
            continue
        clock = Clock(torch, wanted.device, time.monotonic() + (end - time.monotonic()) / (4 * (len(wanted.tokens) - number)))
        try:
            if token.startswith(("convolve", "correlate")):
                time_convolution(token, torch, wanted.device, clock)
            elif token.startswith("kmeans"):
                time_kmeans(token, torch, flash, wanted.device, clock)
            elif "fft_" in token:
                time_reals(token, torch, wanted.device, clock)
            else:
                time_qr(token, torch, wanted.device, clock)
        except RuntimeError as failed:  # too little memory for the operands
            say(token=token, variant="PyTorch", refused=words_of(failed))
        if wanted.device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
