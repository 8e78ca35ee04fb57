#!/usr/bin/env python3
"""Times one Lloyd iteration of PyTorch and, where it is installed, of flash-kmeans.

usage: kmeans_rivals.py [--seconds S] [--device cuda] TOKEN…

As gpu-check times Ballast: points on the device, the first k of them as centroids, the difference of two runs of different length by the
host's clock, median of several. Prints a row of JSON for each problem and rival: milliseconds, or why there are none.

PyTorch: scores by a product in the precision of the points (TF32 off), argmin, sums by index_add_ or by a product with one-hot rows; the
faster of the two. flash-kmeans: batch_kmeans_Euclid, as its users call it; its labels of the first iteration are compared with those of
FP64 for up to 65,536 points.
"""

import argparse
import json
import re
import statistics
import time

FEW, MANY, ROUNDS = 4, 36, 5
SCORES = 2**26  # of PyTorch at a time, so that they fit beside the points
COMPARED = 65536


def say(**row):
    print(json.dumps({"type": "rival", **row}, ensure_ascii=False), flush=True)


class Problem:
    """Points of a token, normally distributed, and their first centroids."""

    def __init__(self, token, torch, device):
        found = re.fullmatch(r"kmeans_(f32|f64)_m(\d+)_n(\d+)_k(\d+)", token)
        if not found:
            raise SystemExit(f"kmeans_rivals: expected tokens like kmeans_f32_m1000_n16_k8, got {token}")
        self.token, self.torch, self.device = token, torch, device
        self.m, self.n, self.k = map(int, found.groups()[1:])
        torch.manual_seed(11)
        self.x = torch.randn(self.m, self.n, device=device, dtype=torch.float32 if found.group(1) == "f32" else torch.float64)
        self.first = self.x[: self.k].clone()

    def synchronize(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def time(self, run, deadline):
        """Milliseconds of an iteration of run(iterations): a list, one for each round."""
        made = []
        run(FEW)
        for _ in range(ROUNDS):
            seconds = []
            for iterations in (FEW, MANY):
                self.synchronize()
                begin = time.perf_counter()
                run(iterations)
                self.synchronize()
                seconds.append(time.perf_counter() - begin)
            made.append(1e3 * (seconds[1] - seconds[0]) / (MANY - FEW))
            if time.monotonic() > deadline:
                break
        return made

    def labels(self, centroids):
        """The nearest centroid of each point."""
        torch = self.torch
        half = (centroids * centroids).sum(1) / 2
        rows = max(1, SCORES // self.k)
        return torch.cat([(part @ centroids.T - half).argmax(1) for part in self.x.split(rows)])

    def lloyd(self, iterations, one_hot):
        torch, centroids = self.torch, self.first
        ones = torch.ones(self.m, device=self.device, dtype=self.x.dtype)
        for _ in range(iterations):
            labels = self.labels(centroids)
            counts = torch.zeros(self.k, device=self.device, dtype=self.x.dtype).index_add_(0, labels, ones)
            if one_hot:
                sums = sum(torch.nn.functional.one_hot(own, self.k).to(self.x.dtype).T @ part
                           for own, part in zip(labels.split(max(1, SCORES // self.k)), self.x.split(max(1, SCORES // self.k))))
            else:
                sums = torch.zeros_like(centroids).index_add_(0, labels, self.x)
            centroids = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], centroids)
        return centroids


def report(problem, name, version, times, **more):
    say(token=problem.token, name=name, version=version, milliseconds=statistics.median(times), low=min(times), high=max(times), **more)


def torch_times(problem, deadline):
    variants = {"index_add_": lambda iterations: problem.lloyd(iterations, False)}
    if problem.k <= 1024:
        variants["one-hot product"] = lambda iterations: problem.lloyd(iterations, True)
    times = {name: problem.time(run, deadline) for name, run in variants.items()}
    best = min(times, key=lambda name: statistics.median(times[name]))
    report(problem, "PyTorch", problem.torch.__version__, times[best], variant=best)


def flash_times(problem, flash, deadline):
    def run(iterations):
        first = problem.first[None].clone()
        return flash.batch_kmeans_Euclid(problem.x[None], problem.k, max_iters=iterations, tol=-1.0, init_centroids=first)

    times = problem.time(run, deadline)
    found = run(1)[0][0, :COMPARED]
    x, c = problem.x[:COMPARED].double(), problem.first.double()
    exact = problem.torch.cat([(part @ c.T - (c * c).sum(1) / 2).argmax(1) for part in x.split(max(1, SCORES // problem.k))])
    wrong = (found.long() != exact).double().mean().item()
    report(problem, "flash-kmeans", getattr(flash, "__version__", "?"), times, wrong_labels=wrong)


def options(doc, seconds):
    """The command line of a script of rivals."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to try this script")
    parser.add_argument("tokens", nargs="+", metavar="TOKEN")
    return parser.parse_args()


def libraries(device, lacks):
    """PyTorch without TF32 and flash-kmeans, or None. lacks(name, why) is called for what cannot be had."""
    try:
        import torch
    except ImportError as failed:
        lacks("PyTorch", str(failed))
        return None, None
    if device == "cuda" and not torch.cuda.is_available():
        lacks("PyTorch", f"PyTorch {torch.__version__} sees no GPU")
        return None, None
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        import flash_kmeans as flash
    except ImportError as failed:
        lacks("flash-kmeans", str(failed))
        flash = None
    return torch, flash


def words_of(failed):
    """The first line of an exception."""
    return (str(failed).splitlines() or [type(failed).__name__])[0][:200]


def main():
    wanted = options(__doc__, 120)
    end = time.monotonic() + wanted.seconds
    torch, flash = libraries(wanted.device, lambda name, why: say(name=name, unavailable=why))
    if torch is None:
        return
    for number, token in enumerate(wanted.tokens):
        deadline = time.monotonic() + max(0.0, end - time.monotonic()) / (2 * (len(wanted.tokens) - number))
        problem = Problem(token, torch, wanted.device)
        bodies = {"PyTorch": lambda: torch_times(problem, deadline), "flash-kmeans": lambda: flash_times(problem, flash, deadline)}
        for name, body in bodies.items():
            if name == "flash-kmeans" and (flash is None or problem.x.dtype != torch.float32):
                continue
            if time.monotonic() > end:
                say(token=token, name=name, unavailable="no time was left")
                continue
            try:
                body()
            except (RuntimeError, ValueError, TypeError) as failed:  # a shape that it does not take, or too little memory
                say(token=token, name=name, unavailable=words_of(failed))


if __name__ == "__main__":
    main()
