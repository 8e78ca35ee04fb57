"""The inner functions of sklearn.cluster.KMeans and MiniBatchKMeans, computed by Ballast, for install(): scikit-learn keeps its rules for
arguments, starts and attributes. Sparse points and verbose runs of KMeans raise UnsupportedError."""

import numpy as np
from scipy.sparse import issparse

from . import _core
from ._errors import UnsupportedError
from ._minibatch import Findings, State, nearest, step
from ._protection import compute, current, execution, record

__all__ = ["_kmeans_single_elkan", "_kmeans_single_lloyd", "_labels_inertia_threadpool_limit", "_mini_batch_step"]


def _kmeans_single_lloyd(X, sample_weight, centers_init, max_iter=300, verbose=False, tol=1e-4, n_threads=1):
    """One run from `centers_init`. `tol` is scikit-learn's, which it has multiplied by the mean of the features' variances: a run stops
    where the centroids' squared shifts sum to at most tol. Returns labels, inertia, centroids and iterations."""
    if issparse(X):
        raise UnsupportedError("sparse points")
    if verbose:
        raise UnsupportedError("verbose=1 prints each iteration")
    spread = float(np.mean(np.var(X, axis=0)))
    X = np.ascontiguousarray(X)
    first = np.ascontiguousarray(centers_init, X.dtype)
    centroids, labels = np.empty_like(first), np.empty(len(X), np.int32)
    weights = np.ascontiguousarray(sample_weight, X.dtype)
    fit = _core.kmeans_fit_f32 if X.dtype == np.float32 else _core.kmeans_fit_f64
    report, inertia, iterations, _ = compute(fit, X, weights, first, centroids, labels, "given", 1, 0, int(max_iter),
                                             tol / spread if spread > 0 else 0.0, execution(current()), 0)
    record(report)
    return labels, inertia, centroids, iterations


def _kmeans_single_elkan(X, sample_weight, centers_init, max_iter=300, verbose=False, tol=1e-4, n_threads=1):
    """As _kmeans_single_lloyd: Elkan's algorithm finds the same clustering."""
    return _kmeans_single_lloyd(X, sample_weight, centers_init, max_iter, verbose, tol, n_threads)


def _labels_inertia_threadpool_limit(X, sample_weight, centers, n_threads=1, return_inertia=True):
    """Labels of the nearest centroids, and the inertia."""
    if issparse(X):
        raise UnsupportedError("sparse points")
    dtype = np.result_type(X, centers)
    labels, inertia, report = nearest(np.asarray(X, dtype), np.ascontiguousarray(sample_weight, dtype), np.asarray(centers, dtype),
                                      execution(current()))
    record(report)
    return (labels, inertia) if return_inertia else labels


def _mini_batch_step(X, sample_weight, centers, centers_new, weight_sums, random_state, random_reassign=False, reassignment_ratio=0.01,
                     verbose=False, n_threads=1):
    """One batch: writes centers_new, which may be centers, and weight_sums. Returns the inertia before."""
    if issparse(X):
        raise UnsupportedError("sparse points")
    findings, state = Findings(), State(centers, weight_sums)
    weights = np.ascontiguousarray(sample_weight, X.dtype)
    inertia = step(lambda: X, weights, state, findings, random_state, random_reassign, reassignment_ratio, verbose)
    state.verify(findings)
    findings.record()
    centers_new[...], weight_sums[...] = state.centroids, state.counts
    return inertia
