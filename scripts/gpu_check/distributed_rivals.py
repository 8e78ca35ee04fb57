#!/usr/bin/env python3
"""Times one Lloyd iteration of PyTorch, and transforms of cuFFT and cufftXt (cufft_devices.py), on one CUDA device and on all of them.

usage: distributed_rivals.py [--seconds S] TOKEN…

The rows are divided among the devices and lie there. An iteration computes on every device the scores by a product (TF32 off), argmin and
sums by index_add_; the first device adds the sums of all, divides, and sends the centroids back. The difference of two runs of different
length by the host's clock, median of three. Prints a row of JSON for each problem and number of devices, or why there is none.
"""

import argparse
import json
import re
import statistics
import time

import cufft_devices

FEW, MANY, ROUNDS = 4, 24, 3
SCORES = 2**26  # at a time on a device


def say(**row):
    print(json.dumps({"type": "rival", **row}, ensure_ascii=False), flush=True)


def lloyd(torch, parts, first, iterations):
    centroids = [first.to(part.device) for part in parts]
    k = first.shape[0]
    for _ in range(iterations):
        sums, counts = [], []
        for part, own in zip(parts, centroids):
            half = (own * own).sum(1) / 2
            labels = torch.cat([(rows @ own.T - half).argmax(1) for rows in part.split(max(1, SCORES // k))])
            sums.append(torch.zeros_like(own).index_add_(0, labels, part))
            counts.append(torch.bincount(labels, minlength=k))
        at = parts[0].device
        total, members = sum(each.to(at) for each in sums), sum(each.to(at) for each in counts)
        made = torch.where(members[:, None] > 0, total / members.clamp(min=1)[:, None], centroids[0])
        centroids = [made.to(part.device) for part in parts]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("tokens", nargs="+")
    wanted = parser.parse_args()
    deadline = time.monotonic() + wanted.seconds
    time_kmeans([token for token in wanted.tokens if token.startswith("kmeans_")], deadline)
    cufft_devices.run(wanted.tokens, say, deadline)
    return 0


def time_kmeans(tokens, deadline):
    if not tokens:
        return
    try:
        import torch
    except ImportError as missing:
        say(name="torch", unavailable=str(missing))
        return
    if not torch.cuda.is_available():
        say(name="torch", unavailable="it finds no CUDA device")
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    for token in tokens:
        found = re.fullmatch(r"kmeans_(f32|f64)_m(\d+)_n(\d+)_k(\d+)", token)
        m, n, k = map(int, found.groups()[1:])
        kind = torch.float32 if found.group(1) == "f32" else torch.float64
        for count in dict.fromkeys((1, torch.cuda.device_count())):
            if time.monotonic() > deadline:
                say(token=token, name="torch", unavailable="no time was left")
                continue
            torch.manual_seed(11)
            parts = [torch.randn(m // count, n, device=f"cuda:{device}", dtype=kind) for device in range(count)]
            first = parts[0][:k].clone()

            def run(iterations):
                for device in range(count):
                    torch.cuda.synchronize(device)
                begin = time.perf_counter()
                lloyd(torch, parts, first, iterations)
                for device in range(count):
                    torch.cuda.synchronize(device)
                return time.perf_counter() - begin

            run(FEW)
            times = [1e3 * (-run(FEW) + run(MANY)) / (MANY - FEW) for _ in range(ROUNDS)]
            say(token=token, name="torch, 1" if count == 1 else "torch, all", devices=count, version=torch.__version__,
                milliseconds=statistics.median(times), low=min(times), high=max(times))
            del parts
    torch.cuda.empty_cache()


if __name__ == "__main__":
    raise SystemExit(main())
