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
from ._device import as_array, device_of, distinct, on_device, stream_of
from ._errors import InvalidArgumentError
from ._exchange import foreign, given_back, taken
from ._protection import compute, current, execution, last_report, record

__all__ = ["KMeans"]

_FLOATS = [np.float64, np.float32]


def _function(name, dtype):
    return getattr(_core, f"kmeans_{name}_{'f32' if dtype.itemsize == 4 else 'f64'}")


def _points_on_device(X):
    """Points of float32 or float64 as a DeviceArray."""
    X = taken(X)
    if X.ndim != 2:
        raise InvalidArgumentError(f"Expected 2D array, got an array with {X.ndim} axes")
    if not X.size:
        raise InvalidArgumentError(f"Found array with shape {X.shape}: expected at least one point and one feature")
    if X.dtype.kind == "c":
        raise InvalidArgumentError("Complex data not supported")
    X = X.astype(X.dtype if X.dtype in _FLOATS else np.float64, copy=False)
    return X if min(X.strides) > 0 else X.copy()


def _weights_on_device(sample_weight, X):
    """A weight for each point beside the points; without elements where none are given."""
    if sample_weight is None:
        return np.empty(0, X.dtype, like=X)
    given = as_array(taken(sample_weight))
    if given.ndim > 1 or given.ndim and given.shape != (len(X),):
        raise InvalidArgumentError(f"sample_weight.shape == {given.shape}, expected {(len(X),)}!")
    weights = np.empty(len(X), X.dtype, like=X)
    weights[...] = given
    return weights


class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """K-Means clustering with scikit-learn's parameters and attributes.

    n_clusters, init ("k-means++", "random", an array of centroids, or a function of X, n_clusters and random_state), n_init (a number, or
    "auto": 1 for k-means++ and arrays, else 10), max_iter, tol, verbose (1 prints a line for each run), random_state: as in
    sklearn.cluster.KMeans, whose copy_x and algorithm are not there. The first centroids are drawn by scikit-learn, so that both begin
    alike for the same random_state; drawing is not protected, and a fault there gives another start, not a wrong clustering. Sparse
    matrices are refused (TypeError).

    Attributes after fit: cluster_centers_, labels_, inertia_, n_iter_, n_features_in_, feature_names_in_, and report_: the ballast.Report
    of all runs. Points of float32 are clustered in float32, others in float64.

    X may be an array in the memory of a CUDA device (PyTorch, CuPy, and others by DLPack or __cuda_array_interface__): the fit runs there,
    and labels_, cluster_centers_ and the results of predict and transform are arrays of that library on that device. Then Ballast draws the
    first centroids, on the device, protected as a fit is, so that they are not scikit-learn's.
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
        if foreign(X) and on_device(X):
            return self._fit_on_device(X, sample_weight)
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
        self._warn_of_copies(distinct(self.labels_, self.n_clusters), stacklevel=3)
        return self

    def _warn_of_copies(self, found, stacklevel):
        if found < self.n_clusters:
            warnings.warn(f"Number of distinct clusters ({found}) found smaller than n_clusters ({self.n_clusters}). "
                          "Possibly due to duplicate points in X.", ConvergenceWarning, stacklevel=stacklevel)

    def _fit_on_device(self, given, sample_weight):
        X = _points_on_device(given)
        if len(X) < self.n_clusters:
            raise InvalidArgumentError(f"n_samples={len(X)} should be >= n_clusters={self.n_clusters}.")
        first = np.empty((self.n_clusters, X.shape[1]), X.dtype, like=X)
        init = self.init
        if not isinstance(init, str):
            chosen = init(given, self.n_clusters, check_random_state(self.random_state)) if callable(init) else init
            chosen = as_array(taken(chosen))
            if chosen.shape != first.shape:
                raise InvalidArgumentError(f"The shape of the initial centers {chosen.shape} does not match the number of clusters "
                                           f"{self.n_clusters} and of features {X.shape[1]}.")
            first[...] = chosen
            init = "given"
        seed = int(check_random_state(self.random_state).randint(2**31))
        centroids, labels = np.empty_like(first), np.empty(len(X), np.int32, like=X)
        report, self.inertia_, self.n_iter_, _ = compute(
            _function("fit", X.dtype), X, _weights_on_device(sample_weight, X), first, centroids, labels, init, int(self._runs()), seed,
            int(self.max_iter), float(self.tol), execution(current(), device=X.device), stream_of(X))
        record(report)
        self.report_ = last_report()
        self.n_features_in_ = X.shape[1]
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.cluster_centers_, self.labels_ = given_back((centroids, labels), given)
        self._warn_of_copies(distinct(labels, self.n_clusters), stacklevel=4)
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
        found = compute(_function("fit", X.dtype), X, weights, np.ascontiguousarray(first), centroids, labels, "given", 1, 0,
                        int(self.max_iter), float(self.tol), execution(current()), 0)
        return *found, centroids, labels

    def _points(self, X):
        """X and the centroids, both of the wider of their types."""
        check_is_fitted(self)
        if foreign(X) and on_device(X):
            X = _points_on_device(X)
            if X.shape[1] != self.n_features_in_:
                raise InvalidArgumentError(f"X has {X.shape[1]} features, but KMeans is expecting {self.n_features_in_} features as input.")
            centroids = np.empty((self.n_clusters, X.shape[1]), X.dtype, like=X)
            centroids[...] = as_array(taken(self.cluster_centers_))
            return X, centroids
        X = validate_data(self, X, reset=False, dtype=_FLOATS, order="C")
        dtype = np.result_type(X, self.cluster_centers_)
        return X.astype(dtype, copy=False), np.ascontiguousarray(self.cluster_centers_, dtype)

    def _nearest(self, X, sample_weight=None):
        given = X
        X, centroids = self._points(X)
        if device_of(X) is not None:
            weights = _weights_on_device(sample_weight, X)
        else:
            weights = np.empty(0, X.dtype) if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=X.dtype)
        labels = np.empty(len(X), np.int32, like=X)
        report, inertia = compute(_function("predict", X.dtype), X, weights, centroids, labels,
                                  execution(current(), device=device_of(X)), stream_of(X))
        record(report)
        return given_back(labels, given) if device_of(X) is not None else labels, inertia

    def predict(self, X):
        """The number of the nearest centroid of each point."""
        return self._nearest(X)[0]

    def fit_predict(self, X, y=None, sample_weight=None):
        """fit, and the labels of the points."""
        return self.fit(X, sample_weight=sample_weight).labels_

    def transform(self, X):
        """The distance of each point to each centroid."""
        given = X
        X, centroids = self._points(X)
        values = np.empty((len(X), len(centroids)), X.dtype, like=X)
        record(compute(_function("transform", X.dtype), X, np.empty(0, X.dtype, like=X), centroids, values,
                       execution(current(), device=device_of(X)), stream_of(X)))
        return given_back(values, given) if device_of(X) is not None else values

    def fit_transform(self, X, y=None, sample_weight=None):
        """fit, and transform of the same points."""
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def score(self, X, y=None, sample_weight=None):
        """The negative of the inertia of the points."""
        return -self._nearest(X, sample_weight)[1]
