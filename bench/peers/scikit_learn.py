"""One Lloyd iteration of scikit-learn, timed whenever a line arrives on standard input; the seconds go to standard output.

Usage: scikit_learn.py FOLDER float32|float64 M N K THREADS dense|csr, FOLDER holding the raw arrays `points` and `centroids`; of csr
`points` are the values of compressed rows, with `columns` and `offsets`.
It times scikit-learn's own compiled Lloyd step (what KMeans(algorithm="lloyd") calls once an iteration), without the set-up of a fit.
"""

import sys
import time

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.cluster._k_means_lloyd import lloyd_iter_chunked_dense, lloyd_iter_chunked_sparse
from sklearn.utils.extmath import row_norms
from threadpoolctl import threadpool_limits

folder, dtype, m, n, k, threads, storage = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7]), sys.argv[7]
points = np.fromfile(f"{folder}/points", dtype=dtype)
if storage == "csr":
    points = csr_matrix((points, *(np.fromfile(f"{folder}/{each}", dtype=np.int32) for each in ("columns", "offsets"))), shape=(m, n))
    iterate = lloyd_iter_chunked_sparse
else:
    points = points.reshape(m, n)
    iterate = lloyd_iter_chunked_dense
old = np.fromfile(f"{folder}/centroids", dtype=dtype).reshape(k, n)
new = np.zeros_like(old)
weight_in_clusters = np.zeros(k, dtype=dtype)
labels = np.full(m, -1, dtype=np.int32)
shift = np.zeros(k, dtype=dtype)
weights = np.ones(m, dtype=dtype)
# Versions before 1.3 also take the squared norms of the points.
takes_norms = "x_squared_norms" in (iterate.__doc__ or "") or "x_squared_norms" in str(getattr(iterate, "__text_signature__", ""))
norms = (row_norms(points, squared=True),) if takes_norms else ()

for _ in sys.stdin:
    # The same settings as in KMeans: BLAS on one thread, the chunks on all.
    with threadpool_limits(limits=1, user_api="blas"):
        start = time.perf_counter()
        iterate(points, weights, *norms, old, new, weight_in_clusters, labels, shift, threads)
        seconds = time.perf_counter() - start
    old, new = new, old
    print(seconds, flush=True)
