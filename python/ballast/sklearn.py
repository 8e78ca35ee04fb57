"""KMeans, an estimator of scikit-learn that Ballast computes. Only this module imports scikit-learn."""

import warnings
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.cluster import kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from . import _core
from ._errors import InvalidArgumentError
from ._protection import compute, current, execution, last_report, record

__all__ = ["KMeans"]

_FLOATS = [np.float64, np.float32]


def _function(name, dtype):
    return getattr(_core, f"kmeans_{name}_{'f32' if dtype.itemsize == 4 else 'f64'}")


class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """K-Means clustering with scikit-learn's parameters and attributes.

    n_clusters, init ("k-means++", "random", an array of centroids, or a function of X, n_clusters and random_state), n_init (a number, or
    "auto": 1 for k-means++ and arrays, else 10), max_iter, tol, verbose (1 prints a line for each run), random_state: as in
    sklearn.cluster.KMeans, whose copy_x and algorithm are not there. The first centroids are drawn by scikit-learn, so that both begin
    alike for the same random_state; drawing is not protected, and a fault there gives another start, not a wrong clustering. Sparse
    matrices are refused (TypeError).

    Attributes after fit: cluster_centers_, labels_, inertia_, n_iter_, n_features_in_, feature_names_in_, and report_: the ballast.Report
    of all runs. Points of float32 are clustered in float32, others in float64.
    """

    def __init__(self, n_clusters=8, *, init="k-means++", n_init="auto", max_iter=300, tol=1e-4, verbose=0, random_state=None):
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self):
        return len(self.cluster_centers_)

    def fit(self, X, y=None, sample_weight=None):
        """Clusters the points X (samples × features), each with its weight. y is ignored."""
        self._check_parameters()
        X = validate_data(self, X, dtype=_FLOATS, order="C")
        if len(X) < self.n_clusters:
            raise InvalidArgumentError(f"n_samples={len(X)} should be >= n_clusters={self.n_clusters}.")
        given = sample_weight is not None
        weights = _check_sample_weight(sample_weight, X, dtype=X.dtype)
        best, reports = None, []
        for run, first in enumerate(self._starts(X, weights)):
            made = self._run(X, weights if given else np.empty(0, X.dtype), first)
            reports.append(made[0])
            if self.verbose:
                print(f"run {run}: inertia {made[1]}, {made[2]} iterations, {'converged' if made[3] else 'max_iter reached'}")
            if best is None or made[1] < best[1]:
                best = made
        record(*reports)
        self.report_ = last_report()
        _, self.inertia_, self.n_iter_, _, self.cluster_centers_, self.labels_ = best
        distinct = len(np.unique(self.labels_))
        if distinct < self.n_clusters:
            warnings.warn(f"Number of distinct clusters ({distinct}) found smaller than n_clusters ({self.n_clusters}). "
                          "Possibly due to duplicate points in X.", ConvergenceWarning, stacklevel=2)
        return self

    def _check_parameters(self):
        def refuse(name, expected, got):
            raise InvalidArgumentError(f"{name}: expected {expected}, got {got!r}")

        for name in ("n_clusters", "max_iter"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
                refuse(name, "an integer of 1 or more", value)
        if not isinstance(self.tol, Real) or not self.tol >= 0:
            refuse("tol", "a number of 0 or more", self.tol)
        if self.n_init != "auto" and (not isinstance(self.n_init, Integral) or self.n_init < 1):
            refuse("n_init", 'an integer of 1 or more, or "auto"', self.n_init)
        if isinstance(self.init, str) and self.init not in ("k-means++", "random"):
            refuse("init", '"k-means++", "random", an array or a function', self.init)

    def _runs(self):
        array = not isinstance(self.init, str) and not callable(self.init)
        if self.n_init == "auto":
            return 1 if array or self.init == "k-means++" else 10
        if array and self.n_init > 1:
            warnings.warn(f"Explicit initial center position passed: performing only one init in KMeans instead of n_init={self.n_init}.",
                          RuntimeWarning, stacklevel=4)
            return 1
        return self.n_init

    def _starts(self, X, weights):
        """The first centroids of each run."""
        random_state = check_random_state(self.random_state)
        centred = X - X.mean(axis=0) if isinstance(self.init, str) and self.init == "k-means++" else None
        for _ in range(self._runs()):
            if centred is not None:
                _, chosen = kmeans_plusplus(centred, self.n_clusters, sample_weight=weights, random_state=random_state)
                yield X[chosen]
            elif isinstance(self.init, str):
                yield X[random_state.choice(len(X), size=self.n_clusters, replace=False, p=weights / weights.sum())]
            else:
                first = self.init(X, self.n_clusters, random_state=random_state) if callable(self.init) else self.init
                first = check_array(first, dtype=X.dtype, order="C", copy=True)
                if first.shape != (self.n_clusters, X.shape[1]):
                    raise InvalidArgumentError(f"The shape of the initial centers {first.shape} does not match the number of clusters "
                                               f"{self.n_clusters} and of features {X.shape[1]}.")
                yield first

    def _run(self, X, weights, first):
        centroids = np.empty((self.n_clusters, X.shape[1]), X.dtype)
        labels = np.empty(len(X), np.int32)
        found = compute(_function("fit", X.dtype), X, weights, np.ascontiguousarray(first), centroids, labels, int(self.max_iter),
                        float(self.tol), execution(current()))
        return *found, centroids, labels

    def _points(self, X):
        """X and the centroids, both of the wider of their types."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=_FLOATS, order="C")
        dtype = np.result_type(X, self.cluster_centers_)
        return X.astype(dtype, copy=False), np.ascontiguousarray(self.cluster_centers_, dtype)

    def _nearest(self, X, sample_weight=None):
        X, centroids = self._points(X)
        weights = np.empty(0, X.dtype) if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=X.dtype)
        labels = np.empty(len(X), np.int32)
        report, inertia = compute(_function("predict", X.dtype), X, weights, centroids, labels, execution(current()))
        record(report)
        return labels, inertia

    def predict(self, X):
        """The number of the nearest centroid of each point."""
        return self._nearest(X)[0]

    def fit_predict(self, X, y=None, sample_weight=None):
        """fit, and the labels of the points."""
        return self.fit(X, sample_weight=sample_weight).labels_

    def transform(self, X):
        """The distance of each point to each centroid."""
        X, centroids = self._points(X)
        values = np.empty((len(X), len(centroids)), X.dtype)
        record(compute(_function("transform", X.dtype), X, np.empty(0, X.dtype), centroids, values, execution(current())))
        return values

    def fit_transform(self, X, y=None, sample_weight=None):
        """fit, and transform of the same points."""
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def score(self, X, y=None, sample_weight=None):
        """The negative of the inertia of the points."""
        return -self._nearest(X, sample_weight)[1]
