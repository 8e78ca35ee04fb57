#!/usr/bin/env python3
"""Times whole calls of PyTorch and, where it is installed, of flash-kmeans.

usage: calls_rivals.py [--seconds S] [--device cuda] TOKEN…

As gpu-check times Ballast: operands on the device, by the host's clock until the results lie there, median of several calls after one that
does not count. Prints a row of JSON for each call of a problem.

K-Means: fits from given centroids by flash-kmeans and by PyTorch (scores, argmin, sums; the final labels belong to the final centroids);
labels by a product and argmin; distances by cdist. QR: PyTorch's geqrf, ormqr, householder_product, linalg.qr and linalg.lstsq.
"""

import json
import re
import statistics
import time

from kmeans_rivals import Problem, libraries, options, words_of

ROUNDS = 7


def say(kind="call", **row):
    print(json.dumps({"type": kind, **row}, ensure_ascii=False), flush=True)


class Clock:
    """Times the calls of a problem until a deadline."""

    def __init__(self, token, synchronize, deadline):
        self.token, self.synchronize, self.deadline = token, synchronize, deadline

    def time(self, call, variant, run):
        """Prints the milliseconds of run(), or why there are none."""
        made = []
        try:
            for number in range(ROUNDS + 1):
                self.synchronize()
                begin = time.perf_counter()
                kept = run()
                self.synchronize()
                if number > 0:
                    made.append(1e3 * (time.perf_counter() - begin))
                del kept
                if number > 0 and time.monotonic() > self.deadline:
                    break
        except (RuntimeError, ValueError, TypeError) as failed:  # a shape that it does not take, or too little memory
            why = words_of(failed)
            return say(token=self.token, call=call, variant=variant, refused=why)
        say(token=self.token, call=call, variant=variant, milliseconds=statistics.median(made), low=min(made), high=max(made), rounds=len(made))


def time_kmeans(token, torch, flash, device, deadline):
    problem = Problem(token, torch, device)
    clock = Clock(token, problem.synchronize, deadline)
    for iterations in (1, 20, 100):
        call = f"fit, {iterations} iteration{'s' if iterations > 1 else ''}"

        def fit():
            centroids = problem.lloyd(iterations, False)
            return centroids, problem.labels(centroids)

        clock.time(call, "PyTorch", fit)
        if flash is not None and problem.x.dtype == torch.float32:
            clock.time(
                call,
                "flash-kmeans",
                lambda: flash.batch_kmeans_Euclid(problem.x[None], problem.k, max_iters=iterations, tol=-1.0, init_centroids=problem.first[None].clone()),
            )
        if time.monotonic() > deadline:
            return
    clock.time("predict", "PyTorch", lambda: problem.labels(problem.first).to(torch.int32))
    clock.time("transform", "PyTorch", lambda: torch.cdist(problem.x, problem.first))


def time_qr(token, torch, device, deadline):
    found = re.fullmatch(r"qr_(f32|f64)_m(\d+)_n(\d+)(?:_b(\d+))?", token)
    m, n, batch = int(found[2]), int(found[3]), int(found[4] or 1)
    kind = torch.float32 if found[1] == "f32" else torch.float64
    torch.manual_seed(11)
    # Column-major, as LAPACK's functions take it.
    a = torch.randn(*((batch,) if batch > 1 else ()), n, m, device=device, dtype=kind).mT
    by_rows = ", by rows" if batch > 1 and m == 17 else ""
    if by_rows:
        a = a.contiguous()
    synchronize = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    clock = Clock(token, synchronize, deadline)
    clock.time("geqrf" + by_rows, "PyTorch", lambda: torch.geqrf(a))
    if m == n and m > 8192:
        return
    if batch == 1:
        factors, tau = torch.geqrf(a)
        clock.time("ormqr", "PyTorch", lambda: torch.ormqr(factors, tau, a, left=True, transpose=True))
        clock.time("orgqr", "PyTorch", lambda: torch.linalg.householder_product(factors, tau))
    clock.time("Q and R" + by_rows, "PyTorch", lambda: torch.linalg.qr(a))
    right = torch.randn(*a.shape[:-1], 1, device=device, dtype=kind)
    clock.time("lstsq" + by_rows, "PyTorch", lambda: torch.linalg.lstsq(a, right).solution)


def main():
    wanted = options(__doc__, 60)
    end = time.monotonic() + wanted.seconds
    clusters = any(token.startswith("kmeans") for token in wanted.tokens)

    def lacks(name, why):
        if name == "PyTorch" or clusters:
            say("call rival", variant=name, unavailable=why)

    torch, flash = libraries(wanted.device, lacks)
    if torch is None:
        return
    for number, token in enumerate(wanted.tokens):
        if time.monotonic() > end:
            say("call rival", variant="PyTorch", unavailable=f"no time was left for {token} and those after it")
            break
        deadline = time.monotonic() + (end - time.monotonic()) / (len(wanted.tokens) - number)
        try:
            if token.startswith("kmeans"):
                time_kmeans(token, torch, flash, wanted.device, deadline)
            else:
                time_qr(token, torch, wanted.device, deadline)
        except RuntimeError as failed:  # too little memory for the operands
            say(token=token, call="all", variant="PyTorch", refused=words_of(failed))
        if wanted.device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
