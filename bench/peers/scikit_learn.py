"""One Lloyd iteration of scikit-learn, timed whenever a line arrives on standard input; the seconds go to standard output.

Usage: scikit_learn.py FOLDER float32|float64 M N K THREADS, FOLDER holding the raw arrays `points` and `centroids`.
It times scikit-learn's own compiled Lloyd step (what KMeans(algorithm="lloyd") calls once an iteration), without the set-up of a fit.
"""

import sys
import time

import numpy as np
from sklearn.cluster._k_means_lloyd import lloyd_iter_chunked_dense
from sklearn.utils.extmath import row_norms
from threadpoolctl import threadpool_limits

folder, dtype, m, n, k, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
points = np.fromfile(f"{folder}/points", dtype=dtype).reshape(m, n)
old = np.fromfile(f"{folder}/centroids", dtype=dtype).reshape(k, n)
new = np.zeros_like(old)
weight_in_clusters = np.zeros(k, dtype=dtype)
labels = np.full(m, -1, dtype=np.int32)
shift = np.zeros(k, dtype=dtype)
weights = np.ones(m, dtype=dtype)
# Versions before 1.3 also take the squared norms of the points.
takes_norms = "x_squared_norms" in (lloyd_iter_chunked_dense.__doc__ or "") or "x_squared_norms" in str(
    getattr(lloyd_iter_chunked_dense, "__text_signature__", "")
)
norms = (row_norms(points, squared=True),) if takes_norms else ()

for _ in sys.stdin:
    # The same settings as in KMeans: BLAS on one thread, the chunks on all.
    with threadpool_limits(limits=1, user_api="blas"):
        start = time.perf_counter()
        lloyd_iter_chunked_dense(points, weights, *norms, old, new, weight_in_clusters, labels, shift, threads)
        seconds = time.perf_counter() - start
    old, new = new, old
    print(seconds, flush=True)
