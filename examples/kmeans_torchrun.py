"""K-Means of points that are divided among the processes of torchrun: over NCCL where each has a GPU, else over gloo.

Run: torchrun --nproc-per-node 2 kmeans_torchrun.py [points]. Each process makes its own rows; rank 0 prints the result of all.
"""

import os
import sys

import numpy as np
import torch
import torch.distributed as dist

import ballast
from ballast.sklearn import KMeans

on_gpus = torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
if on_gpus:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if on_gpus else "gloo")
rank, size = dist.get_rank(), dist.get_world_size()

# Rows ⌊rank m / size⌋ and later; on devices at multiples of 1024 (of more above 2¹⁸ points).
m = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
step = 1024 * max(1, 1 << max(0, (m - 1).bit_length() - 18)) if on_gpus else 1
first, last = m * rank // size // step * step, m * (rank + 1) // size // step * step if rank + 1 < size else m
centers = 20 * np.arange(5)[:, None] + np.zeros(8)
rows = np.stack([centers[i % 5] + np.random.default_rng(i).standard_normal(8) for i in range(first, last)]).astype(np.float32)
points = torch.from_numpy(rows).cuda() if on_gpus else rows

with ballast.protection(group=dist.group.WORLD):
    model = KMeans(n_clusters=5, random_state=1).fit(points)
    print(f"rank {rank} of {size}: {len(rows)} rows, {model.n_iter_} iterations, inertia {model.inertia_:.6g}, {model.report_.verdict}")
assert abs(model.inertia_ / m - 8) < 0.5, model.inertia_  # the variance of 8 coordinates
if rank == 0:
    found = np.sort(np.asarray(model.cluster_centers_.cpu() if on_gpus else model.cluster_centers_)[:, 0])
    assert np.abs(found - centers[:, 0]).max() < 0.2, found
    print("centroids at", [round(float(each)) for each in found])
dist.destroy_process_group()
