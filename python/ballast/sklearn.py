"""KMeans, SphericalKMeans and MiniBatchKMeans, estimators of scikit-learn that Ballast computes. Only this module imports scikit-learn."""

import warnings
from numbers import Integral, Real

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.cluster import kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, InvalidParameterError, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from . import _core
from ._device import Bfloat16Array, as_array, device_of, distinct, on_device, stream_of
from ._errors import InvalidArgumentError, UnsupportedError
from ._exchange import foreign, given_back, taken
from ._minibatch import Findings, State
from ._minibatch import step as batch_step
from ._protection import compute, current, execution, last_report, level_of_caller, prepares_call, record

__all__ = ["KMeans", "MiniBatchKMeans", "SphericalKMeans"]

_FLOATS = [np.float64, np.float32]


def _type_of_results(X):
    """The type that points are clustered in: float32 where they have 16 bits, else their own."""
    return np.dtype(np.float32) if X.dtype.itemsize == 2 else X.dtype


def _operand(X):
    """Points as the library takes them: an array, or the parts of a sparse matrix in compressed rows."""
    if not issparse(X):
        return X
    index = np.result_type(X.indices, X.indptr)
    return (np.ascontiguousarray(X.data), np.ascontiguousarray(X.indices, index), np.ascontiguousarray(X.indptr, index), *X.shape)


def _ordered(X):
    """Sparse points with ascending columns in each row, each once; others as they are."""
    if issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _dense(rows):
    return rows.toarray() if issparse(rows) else rows


def _points_on_device(X):
    """Points of float16, bfloat16, float32 or float64 as a DeviceArray."""
    X = taken(X, bfloat16=True)
    if X.ndim != 2:
        raise InvalidArgumentError(f"Expected 2D array, got an array with {X.ndim} axes")
    if not X.size:
        raise InvalidArgumentError(f"Found array with shape {X.shape}: expected at least one point and one feature")
    if X.dtype.kind == "c":
        raise InvalidArgumentError("Complex data not supported")
    if not (X.dtype in _FLOATS or X.dtype == np.float16 or isinstance(X, Bfloat16Array)):
        X = X.astype(np.float64)
    return X if min(X.strides) > 0 else X.copy()


def _weights_on_device(sample_weight, X):
    """A weight for each point beside the points; without elements where none are given."""
    dtype = _type_of_results(X)
    if sample_weight is None:
        return np.empty(0, dtype, like=X)
    given = as_array(taken(sample_weight))
    if given.ndim > 1 or given.ndim and given.shape != (len(X),):
        raise InvalidArgumentError(f"sample_weight.shape == {given.shape}, expected {(len(X),)}!")
    weights = np.empty(len(X), dtype, like=X)
    weights[...] = given
    return weights


class _InvalidParameterError(InvalidArgumentError, InvalidParameterError):
    """scikit-learn's error, and the package's."""


class _Clustering(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """What the estimators share: everything but the fit. A subclass has _runs_of_others: the runs that n_init="auto" means for other starts
    than k-means++ and arrays; and _takes_sparse, accept_sparse of scikit-learn's validate_data."""

    _functions = "kmeans"  # of the extension

    # The values that each parameter may have: _validate_params() of scikit-learn checks them.
    _parameter_constraints = {"n_clusters": [Interval(Integral, 1, None, closed="left")],
                              "init": [StrOptions({"k-means++", "random"}), callable, "array-like"],
                              "n_init": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
                              "max_iter": [Interval(Integral, 1, None, closed="left")],
                              "tol": [Interval(Real, 0, None, closed="left")],
                              "verbose": ["verbose"],
                              "random_state": ["random_state"]}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self):
        return len(self.cluster_centers_)

    def _check_parameters(self):
        try:
            self._validate_params()
        except InvalidParameterError as wrong:
            raise _InvalidParameterError(str(wrong)) from None

    def _check_size(self, X):
        if X.shape[0] < self.n_clusters:
            raise InvalidArgumentError(f"n_samples={X.shape[0]} should be >= n_clusters={self.n_clusters}.")

    def _runs(self):
        array = not isinstance(self.init, str) and not callable(self.init)
        if self.n_init == "auto":
            return 1 if array or isinstance(self.init, str) and self.init == "k-means++" else self._runs_of_others
        if array and self.n_init > 1:
            warnings.warn(f"Explicit initial center position passed: performing only one init in {type(self).__name__} instead of "
                          f"n_init={self.n_init}.", RuntimeWarning, stacklevel=level_of_caller())
            return 1
        return self.n_init

    def _first_centroids(self, X, weights, random_state, centred=None):
        """The first centroids of one run. k-means++ draws among `centred`, which are the points minus a constant."""
        if isinstance(self.init, str) and self.init == "k-means++":
            _, chosen = kmeans_plusplus(X if centred is None else centred, self.n_clusters, sample_weight=weights, random_state=random_state)
            return _dense(X[chosen])
        if isinstance(self.init, str):
            return _dense(X[random_state.choice(X.shape[0], size=self.n_clusters, replace=False, p=weights / weights.sum())])
        first = self.init(X, self.n_clusters, random_state=random_state) if callable(self.init) else self.init
        first = check_array(first, dtype=X.dtype, order="C", copy=True)
        if first.shape != (self.n_clusters, X.shape[1]):
            raise InvalidArgumentError(f"The shape of the initial centers {first.shape} does not match the number of clusters "
                                       f"{self.n_clusters} and of features {X.shape[1]}.")
        return first

    def _least_rows(self):
        return 1 if current().group is None else 0  # of a rank; the library refuses none on all

    def _points(self, X):
        """X and the centroids, both of the wider of their types."""
        check_is_fitted(self)
        if foreign(X) and on_device(X):
            X = _points_on_device(X)
            if X.shape[1] != self.n_features_in_:
                raise InvalidArgumentError(f"X has {X.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features "
                                           "as input.")
            centroids = np.empty((self.n_clusters, X.shape[1]), _type_of_results(X), like=X)
            centroids[...] = as_array(taken(self.cluster_centers_))
            return X, centroids
        X = _ordered(validate_data(self, X, accept_sparse=self._takes_sparse, reset=False, dtype=_FLOATS, order="C",
                                   ensure_min_samples=self._least_rows()))
        dtype = np.result_type(X.dtype, self.cluster_centers_)
        return X.astype(dtype, copy=False), np.ascontiguousarray(self.cluster_centers_, dtype)

    @prepares_call
    def _nearest(self, X, sample_weight=None):
        given = X
        X, centroids = self._points(X)
        if device_of(X) is not None:
            weights = _weights_on_device(sample_weight, X)
        else:
            weights = np.empty(0, X.dtype) if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=X.dtype)
        labels, inertia = self._computed_labels(X, weights, centroids)
        return given_back(labels, given) if device_of(X) is not None else labels, inertia

    def _function(self, name, dtype):
        return getattr(_core, f"{self._functions}_{name}_{'f32' if dtype.itemsize == 4 else 'f64'}")

    def _computed_labels(self, X, weights, centroids):
        labels = np.empty(len(X), np.int32, like=X) if device_of(X) is not None else np.empty(X.shape[0], np.int32)
        report, inertia = compute(self._function("predict", centroids.dtype), _operand(X), weights, centroids, labels,
                                  execution(current(), device=device_of(X)), stream_of(X))
        record(report)
        return labels, inertia

    def _computed_distances(self, X, centroids):
        values = np.empty((X.shape[0], len(centroids)), centroids.dtype, like=centroids)
        record(compute(self._function("transform", centroids.dtype), _operand(X), np.empty(0, centroids.dtype, like=centroids), centroids, values,
                       execution(current(), device=device_of(X)), stream_of(X)))
        return values

    def predict(self, X):
        """The number of the nearest centroid of each point."""
        return self._nearest(X)[0]

    def fit_predict(self, X, y=None, sample_weight=None):
        """fit, and the labels of the points."""
        return self.fit(X, sample_weight=sample_weight).labels_

    @prepares_call
    def transform(self, X):
        """The distance of each point to each centroid."""
        given = X
        X, centroids = self._points(X)
        values = self._computed_distances(X, centroids)
        return given_back(values, given) if device_of(X) is not None else values

    def fit_transform(self, X, y=None, sample_weight=None):
        """fit, and transform of the same points."""
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def score(self, X, y=None, sample_weight=None):
        """The negative of the inertia of the points."""
        return -self._nearest(X, sample_weight)[1]


class KMeans(_Clustering):
    """K-Means clustering with scikit-learn's parameters and attributes.

    n_clusters, init ("k-means++", "random", an array of centroids, or a function of X, n_clusters and random_state), n_init (a number, or
    "auto": 1 for k-means++ and arrays, else 10), max_iter, tol, verbose (1 prints a line for each run), random_state: as in
    sklearn.cluster.KMeans, whose copy_x and algorithm are not there. The first centroids are drawn by scikit-learn, so that both begin
    alike for the same random_state; drawing is not protected, and a fault there gives another start, not a wrong clustering. Sparse
    matrices are clustered in compressed rows (CSR; other formats are converted), on a processor unless the backend is named, without a copy
    that has the zeros.

    Attributes after fit: cluster_centers_, labels_, inertia_, n_iter_, n_features_in_, feature_names_in_, and report_: the ballast.Report
    of all runs. Points of float32 are clustered in float32, others in float64.

    X may be an array in the memory of a CUDA device (PyTorch, CuPy, and others by DLPack or __cuda_array_interface__): the fit runs there,
    and labels_, cluster_centers_ and the results of predict and transform are arrays of that library on that device. Then Ballast draws the
    first centroids, on the device, protected as a fit is, so that they are not scikit-learn's. There points of float16, and of PyTorch's
    bfloat16, are read as they are and clustered in float32.
    """

    _runs_of_others = 10
    _takes_sparse = "csr"

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __init__(self, n_clusters=8, *, init="k-means++", n_init="auto", max_iter=300, tol=1e-4, verbose=0, random_state=None):
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state

    @prepares_call
    def fit(self, X, y=None, sample_weight=None):
        """Clusters the points X (samples × features), each with its weight. y is ignored."""
        self._check_parameters()
        if foreign(X) and on_device(X):
            return self._fit_on_device(X, sample_weight)
        X = _ordered(validate_data(self, X, accept_sparse=self._takes_sparse, dtype=_FLOATS, order="C", ensure_min_samples=self._least_rows()))
        if current().group is not None:
            return self._fit_in_group(X, sample_weight)
        self._check_size(X)
        return self._fit_on_host(X, _check_sample_weight(sample_weight, X, dtype=X.dtype), sample_weight is not None)

    def _drawn_from(self, X):
        """The points that k-means++ measures distances between; None: X."""
        return None if issparse(X) else X - X.mean(axis=0)

    def _fit_on_host(self, X, weights, given):
        """Fits valid points. `given`: the weights are not all 1."""
        best, reports = None, []
        random_state = check_random_state(self.random_state)
        centred = self._drawn_from(X) if isinstance(self.init, str) and self.init == "k-means++" else None
        for run in range(self._runs()):
            first = self._first_centroids(X, weights, random_state, centred)
            made = self._run(X, weights if given else np.empty(0, X.dtype), first)
            reports.append(made[0])
            if self.verbose:
                print(f"run {run}: inertia {made[1]}, {made[2]} iterations, {'converged' if made[3] else 'max_iter reached'}")
            if best is None or made[1] < best[1]:
                best = made
        record(*reports)
        self.report_ = last_report()
        _, self.inertia_, self.n_iter_, _, self.cluster_centers_, self.labels_ = best
        self._warn_of_copies(distinct(self.labels_, self.n_clusters), stacklevel=4)
        return self

    def _warn_of_copies(self, found, stacklevel):
        if found < self.n_clusters:
            warnings.warn(f"Number of distinct clusters ({found}) found smaller than n_clusters ({self.n_clusters}). "
                          "Possibly due to duplicate points in X.", ConvergenceWarning, stacklevel=stacklevel)

    def _seed_of_group(self):
        if not isinstance(self.random_state, Integral):
            raise InvalidArgumentError(f"random_state: expected an integer, the same on all ranks of the group, got {self.random_state!r}")
        return int(check_random_state(self.random_state).randint(2**31))

    def _refuse_in_group(self):
        if self._functions != "kmeans":
            raise UnsupportedError(f"{type(self).__name__}: expected no group of ranks, got one")
        if callable(self.init):
            raise UnsupportedError("init: expected a name or an array on a group of ranks, got a function")

    def _fit_in_group(self, X, sample_weight):
        """Fits the rows of all ranks, of which X has some. The library draws the first centroids."""
        self._refuse_in_group()
        given = isinstance(self.init, str)
        first = np.empty((self.n_clusters, X.shape[1]), X.dtype) if given else self._first_centroids(X, None, None)
        weights = np.empty(0, X.dtype) if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=X.dtype)
        centroids, labels = np.empty_like(first), np.empty(X.shape[0], np.int32)
        report, self.inertia_, self.n_iter_, _ = compute(
            self._function("fit", X.dtype), _operand(X), weights, np.ascontiguousarray(first), centroids, labels,
            self.init if given else "given", int(self._runs()), self._seed_of_group(), int(self.max_iter), float(self.tol),
            execution(current()), 0)
        record(report)
        self.report_, self.cluster_centers_, self.labels_ = last_report(), centroids, labels
        return self

    def _fit_on_device(self, given, sample_weight):
        X = _points_on_device(given)
        if current().group is None:
            self._check_size(X)
        else:
            self._refuse_in_group()
        dtype = _type_of_results(X)
        first = np.empty((self.n_clusters, X.shape[1]), dtype, like=X)
        init = self.init
        if not isinstance(init, str):
            chosen = init(given, self.n_clusters, check_random_state(self.random_state)) if callable(init) else init
            chosen = as_array(taken(chosen))
            if chosen.shape != first.shape:
                raise InvalidArgumentError(f"The shape of the initial centers {chosen.shape} does not match the number of clusters "
                                           f"{self.n_clusters} and of features {X.shape[1]}.")
            first[...] = chosen
            init = "given"
        seed = self._seed_of_group() if current().group is not None else int(check_random_state(self.random_state).randint(2**31))
        centroids, labels = np.empty_like(first), np.empty(len(X), np.int32, like=X)
        report, self.inertia_, self.n_iter_, _ = compute(
            self._function("fit", dtype), X, _weights_on_device(sample_weight, X), first, centroids, labels, init, int(self._runs()), seed,
            int(self.max_iter), float(self.tol), execution(current(), device=X.device), stream_of(X))
        record(report)
        self.report_ = last_report()
        self.n_features_in_ = X.shape[1]
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.cluster_centers_, self.labels_ = given_back((centroids, labels), given)
        if current().group is None:  # the labels of other ranks are not known here
            self._warn_of_copies(distinct(labels, self.n_clusters), stacklevel=4)
        return self

    def _run(self, X, weights, first):
        centroids = np.empty((self.n_clusters, X.shape[1]), X.dtype)
        labels = np.empty(X.shape[0], np.int32)
        found = compute(self._function("fit", X.dtype), _operand(X), weights, np.ascontiguousarray(first), centroids, labels, "given", 1, 0,
                        int(self.max_iter), float(self.tol), execution(current()), 0)
        return *found, centroids, labels


def _has_direction(X):
    """For each row whether it has a number other than 0."""
    return (abs(X).max(axis=1).toarray().ravel() if issparse(X) else np.abs(X).max(axis=1)) > 0


def _directions(X):
    """Rows other than 0 divided by their norms, of any size."""
    if issparse(X):
        largest = abs(X).max(axis=1).toarray()
        X = X.copy()
        X.data /= np.repeat(largest.ravel(), np.diff(X.indptr))
        X.data /= np.repeat(np.sqrt(np.asarray(X.multiply(X).sum(axis=1))).ravel(), np.diff(X.indptr))
        return X
    X = X / np.abs(X).max(axis=1, keepdims=True)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


class SphericalKMeans(KMeans):
    """K-Means of directions (Dhillon and Modha 2001): each point and each centroid counts as its direction, and the distance is 1 - cos of
    the angle between them. For texts and embeddings, whose lengths say nothing.

    Parameters, attributes and arrays on a device as of KMeans. cluster_centers_ have norm 1, inertia_ is the weighted sum of 1 - cos, and
    transform gives 1 - cos from each point to each centroid, from differences, so that small ones are exact to rounding. k-means++ draws
    among the directions.

    A row of zeros has no direction: its distance to every centroid is 1, its label 0, and no centroid moves for it. On a device such rows
    are refused (InvalidArgumentError). Centroids that the caller gives must have a direction.
    """

    _functions = "kmeans_spherical"

    def _drawn_from(self, X):
        return _directions(X)

    def _fit_on_host(self, X, weights, given):
        has = _has_direction(X)
        if has.all():
            return super()._fit_on_host(X, weights, given)
        kept, all_weights = X[has], weights
        if kept.shape[0] < self.n_clusters:
            raise InvalidArgumentError(f"n_samples={kept.shape[0]} of points other than 0 should be >= n_clusters={self.n_clusters}.")
        super()._fit_on_host(kept, weights[has], given)
        labels = np.zeros(X.shape[0], np.int32)
        labels[has] = self.labels_
        self.labels_ = labels
        self.inertia_ += float(all_weights[~has].sum())
        return self

    def _computed_labels(self, X, weights, centroids):
        if device_of(X) is not None or (has := _has_direction(X)).all():
            return super()._computed_labels(X, weights, centroids)
        labels, inertia = np.zeros(X.shape[0], np.int32), 0.0
        if has.any():
            labels[has], inertia = super()._computed_labels(X[has], weights[has] if len(weights) else weights, centroids)
        return labels, inertia + float(weights[~has].sum() if len(weights) else (~has).sum())

    def _computed_distances(self, X, centroids):
        if device_of(X) is not None or (has := _has_direction(X)).all():
            return super()._computed_distances(X, centroids)
        values = np.ones((X.shape[0], len(centroids)), centroids.dtype)
        if has.any():
            values[has] = super()._computed_distances(X[has], centroids)
        return values


class MiniBatchKMeans(_Clustering):
    """Mini-batch K-Means (Sculley 2010) with scikit-learn's parameters and attributes: each step moves the centroids towards the points of one
    batch that is drawn at random.

    n_clusters, init, random_state, tol (0: not asked), n_init ("auto": 1 for k-means++ and arrays, else 3): as for KMeans; of n_init starts
    the best on a sample of init_size points is taken. batch_size: points of a step. max_iter: the most passes over the points.
    max_no_improvement: steps without a smaller smoothed inertia after which the fit ends, None for never. init_size: points that a start is
    drawn from (None: 3 batch_size, or 3 n_clusters where that is fewer than n_clusters). reassignment_ratio: centroids whose total weight is
    below this part of the largest go to points of a batch now and then. compute_labels: whether fit and partial_fit set labels_ and the
    inertia of all their points; without it inertia_ of fit is the smoothed inertia. verbose (1): a line for each step. All random numbers are
    drawn as scikit-learn draws them, so that both take the same starts and batches for the same random_state. Sparse matrices are refused
    (TypeError), arrays in the memory of a device are refused by fit and partial_fit (UnsupportedError).

    Protected: labels and inertia of each batch and of all points, by the library's predict; the centroids and their weights, which are
    computed twice from two copies and compared bit by bit, and compared again before each step and before they are handed out. Not
    protected: the drawing of starts, batches and reassigned clusters, and the decision to stop, where a fault gives another valid fit;
    labels of a batch after the library has stored them; a fault that gives the same wrong bits both times, at two places of memory.

    Attributes after fit: cluster_centers_, labels_, inertia_, n_iter_ (passes), n_steps_, n_features_in_, feature_names_in_, and report_: the
    ballast.Report of the fit or of the last partial_fit.
    """

    _runs_of_others = 3
    _takes_sparse = False
    _parameter_constraints = {**_Clustering._parameter_constraints,
                              "batch_size": [Interval(Integral, 1, None, closed="left")],
                              "compute_labels": ["boolean"],
                              "max_no_improvement": [Interval(Integral, 0, None, closed="left"), None],
                              "init_size": [Interval(Integral, 1, None, closed="left"), None],
                              "reassignment_ratio": [Interval(Real, 0, None, closed="left")]}

    def __init__(self, n_clusters=8, *, init="k-means++", max_iter=100, batch_size=1024, verbose=0, compute_labels=True, random_state=None,
                 tol=0.0, max_no_improvement=10, init_size=None, n_init="auto", reassignment_ratio=0.01):
        self.n_clusters = n_clusters
        self.init = init
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.verbose = verbose
        self.compute_labels = compute_labels
        self.random_state = random_state
        self.tol = tol
        self.max_no_improvement = max_no_improvement
        self.init_size = init_size
        self.n_init = n_init
        self.reassignment_ratio = reassignment_ratio

    def fit(self, X, y=None, sample_weight=None):
        """Clusters the points X (samples × features); batches are drawn with probabilities proportional to the weights. y is ignored."""
        self._check_parameters()
        X = self._host_points(X)
        self._check_size(X)
        random_state = check_random_state(self.random_state)
        weights = _check_sample_weight(sample_weight, X, dtype=X.dtype)
        m, size = len(X), min(self.batch_size, len(X))
        self._batch_size, self._since_reassignment = size, 0
        findings = Findings()
        state = State(self._best_start(X, weights, random_state, findings), np.zeros(self.n_clusters, X.dtype))
        probabilities, ones = weights / weights.sum(), np.ones(size, X.dtype)
        progress = _Progress(self, X, size)
        steps = self.max_iter * m // size
        for i in range(steps):
            places = random_state.choice(m, size, p=probabilities, replace=True)
            before = state.centroids
            inertia = batch_step(lambda: X[places], ones, state, findings, random_state, self._to_reassign(state.counts),
                                 self.reassignment_ratio)
            if progress.ended(i, steps, inertia / size, np.sum((state.centroids - before) ** 2) if self.tol > 0 else 0):
                break
        self._hand_out(state, findings, X, weights)
        self.n_steps_ = i + 1
        self.n_iter_ = -(-self.n_steps_ * size // m)
        if not self.compute_labels:
            self.inertia_ = (inertia / size if progress.smoothed is None else progress.smoothed) * weights.sum()
        return self

    def partial_fit(self, X, y=None, sample_weight=None):
        """One step with X as the batch, which counts with its weights. The first call draws the first centroids from X."""
        first = not hasattr(self, "cluster_centers_")
        if first:
            self._check_parameters()
        X = self._host_points(X, first)
        weights = _check_sample_weight(sample_weight, X, dtype=X.dtype)
        findings = Findings()
        if not hasattr(self, "_random_state"):
            self._random_state = check_random_state(self.random_state)
        if first:
            self._check_size(X)
            self._batch_size, self._since_reassignment = min(self.batch_size, len(X)), 0
            first = self._start(X, weights, self._start_size(len(X)), self._random_state)
            state = State(first, np.zeros(self.n_clusters, X.dtype))
        else:
            X = X.astype(self.cluster_centers_.dtype, copy=False)
            weights = weights.astype(X.dtype, copy=False)
            state = State(self.cluster_centers_, self._counts)
        reassign = self._to_reassign(state.counts)
        batch_step(lambda: X, weights, state, findings, self._random_state, reassign, self.reassignment_ratio)
        self._hand_out(state, findings, X, weights)
        self.n_steps_ = getattr(self, "n_steps_", 0) + 1
        return self

    def _host_points(self, X, reset=True):
        if current().group is not None:
            raise UnsupportedError("MiniBatchKMeans: expected no group of ranks, got one; KMeans takes one")
        if foreign(X) and on_device(X):
            raise UnsupportedError("MiniBatchKMeans: expected points in host memory; KMeans takes points in the memory of a device")
        return validate_data(self, X, dtype=_FLOATS, order="C", reset=reset)

    def _start_size(self, m):
        """Points that a start is drawn from."""
        size = self.init_size
        if size is None:
            size = 3 * min(self.batch_size, m)
            if size < self.n_clusters:
                size = 3 * self.n_clusters
        elif size < self.n_clusters:
            warnings.warn(f"init_size={size} should be larger than n_clusters={self.n_clusters}. Setting it to min(3*n_clusters, n_samples)",
                          RuntimeWarning, stacklevel=level_of_caller())
            size = 3 * self.n_clusters
        return min(size, m)

    def _start(self, X, weights, size, random_state):
        if size < len(X):
            chosen = random_state.randint(0, len(X), size)
            X, weights = X[chosen], weights[chosen]
        return self._first_centroids(X, weights, random_state)

    def _best_start(self, X, weights, random_state, findings):
        """Of n_init starts the one with the least inertia on a sample."""
        size = self._start_size(len(X))
        sample = random_state.randint(0, len(X), size)
        best, least = None, np.inf
        for _ in range(self._runs()):
            first = self._start(X, weights, size, random_state)
            _, inertia = findings.label(X[sample], weights[sample], first)
            if best is None or inertia < least:
                best, least = first, inertia
        return best

    def _to_reassign(self, counts):
        """Whether centroids are reassigned after this step: after each 10 n_clusters points, and while a cluster is empty."""
        self._since_reassignment += self._batch_size
        if (counts == 0).any() or self._since_reassignment >= 10 * self.n_clusters:
            self._since_reassignment = 0
            return True
        return False

    def _hand_out(self, state, findings, X, weights):
        state.verify(findings)
        labels, inertia = findings.label(X, weights, state.centroids) if self.compute_labels else (None, None)
        findings.record()
        self.report_ = last_report()
        self.cluster_centers_, self._counts = state.centroids.copy(), state.counts.copy()
        if self.compute_labels:
            self.labels_, self.inertia_ = labels, inertia


class _Progress:
    """Says when a fit by batches ends, by scikit-learn's rules: where the centroids hardly move, or the smoothed inertia does not fall."""

    def __init__(self, of, X, size):
        self._of = of
        self._tolerance = of.tol * np.mean(np.var(X, axis=0)) if of.tol > 0 else 0
        self._weight = min(1, 2 * size / (len(X) + 1))
        self._least = None
        self._without_improvement = 0
        self.smoothed = None

    def ended(self, i, steps, inertia, moved):
        """After step i, whose batch had the mean `inertia` before and moved the centroids by the squared distance `moved`."""
        if i > 0:  # the first inertia is that of the start
            self.smoothed = inertia if self.smoothed is None else self.smoothed * (1 - self._weight) + inertia * self._weight
        if self._of.verbose:
            print(f"step {i + 1} of at most {steps}: mean inertia of the batch {inertia}, smoothed {self.smoothed}")
        if i == 0:
            return False
        if self._tolerance > 0 and moved <= self._tolerance:
            return True
        if self._least is None or self.smoothed < self._least:
            self._least, self._without_improvement = self.smoothed, 0
        else:
            self._without_improvement += 1
        return self._of.max_no_improvement is not None and self._without_improvement >= self._of.max_no_improvement
