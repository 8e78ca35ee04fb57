"""A fit of scikit-learn's MiniBatchKMeans, timed whenever a line arrives on standard input; seconds of a step go to standard output.

Usage: scikit_learn_mini_batch.py FOLDER float32|float64 M N K THREADS BATCH PASSES, FOLDER holding the raw arrays `points` and `centroids`.
The fit begins from these centroids, does not end before its passes over the points, and makes no labels.
"""

import os
import sys
import time

folder, dtype, m, n, k, threads, batch, passes = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:9])
os.environ["OMP_NUM_THREADS"] = str(threads)

import numpy as np
from sklearn.cluster import MiniBatchKMeans

points = np.fromfile(f"{folder}/points", dtype=dtype).reshape(m, n)
first = np.fromfile(f"{folder}/centroids", dtype=dtype).reshape(k, n)
model = MiniBatchKMeans(k, init=first, n_init=1, batch_size=batch, max_iter=passes, max_no_improvement=None, compute_labels=False, random_state=0)

for _ in sys.stdin:
    start = time.perf_counter()
    model.fit(points)
    print((time.perf_counter() - start) / model.n_steps_, flush=True)
