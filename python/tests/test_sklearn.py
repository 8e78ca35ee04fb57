"""ballast.sklearn.KMeans beside scikit-learn's, and as an estimator."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")
import sklearn.cluster
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ballast
from ballast.sklearn import KMeans, SphericalKMeans


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(600, 5, centers=4, random_state=3)[0]


@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_begins_and_ends_as_scikit_learns(blobs, init, dtype):
    X = blobs.astype(dtype)
    mine = KMeans(4, init=init, n_init=3, random_state=5).fit(X)
    theirs = sklearn.cluster.KMeans(4, init=init, n_init=3, random_state=5).fit(X)
    assert np.array_equal(mine.labels_, theirs.labels_) and mine.n_iter_ == theirs.n_iter_
    assert mine.cluster_centers_.dtype == dtype and mine.labels_.dtype == np.int32
    # A mean of up to m points has an error of at most m u of the largest.
    wide = len(X) * np.finfo(dtype).eps
    assert np.allclose(mine.cluster_centers_, theirs.cluster_centers_, rtol=0, atol=wide * np.abs(X).max())
    assert np.isclose(mine.inertia_, theirs.inertia_, rtol=wide)


def test_digits_and_the_report():
    X = load_digits().data
    with ballast.protection(threads=1):
        mine = KMeans(10, random_state=0).fit(X)
    theirs = sklearn.cluster.KMeans(10, random_state=0).fit(X)
    assert np.isclose(mine.inertia_, theirs.inertia_, rtol=0.02)
    assert mine.report_.verdict == "clean" and mine.report_.checks > 0 and mine.report_.problem == "kmeans_f64_m1797_n64_k10"
    assert np.array_equal(mine.labels_, KMeans(10, random_state=0).fit(X).labels_)


def test_protection_of_a_part(blobs):
    full = KMeans(4, random_state=3).fit(blobs)
    with ballast.protection("final_only"):
        found = KMeans(4, random_state=3).fit(blobs)
    assert found.report_.protection == "final_only" and 0 < found.report_.checks < full.report_.checks
    assert np.array_equal(found.cluster_centers_, full.cluster_centers_) and np.array_equal(found.labels_, full.labels_)
    # Each fit has a plan of its own, and yet every second is protected.
    with ballast.protection(sampled=2):
        seen = [KMeans(4, random_state=3).fit(blobs[:-1]).report_ for _ in range(6)]
    assert [report.protection for report in seen] == ["correct", "off"] * 3 and all(report.sampled == 2 for report in seen)


def test_predict_transform_and_score(blobs):
    model = KMeans(4, random_state=0).fit(blobs)
    assert np.array_equal(model.predict(blobs), model.labels_)
    distances = model.transform(blobs)
    exact = np.linalg.norm(blobs[:, None].astype(np.longdouble) - model.cluster_centers_, axis=2)
    assert np.allclose(distances, exact.astype(float), rtol=1e-12, atol=1e-12 * np.abs(blobs).max())
    assert np.array_equal(distances.argmin(axis=1), model.labels_)
    assert np.isclose(model.score(blobs), -model.inertia_, rtol=1e-12)
    assert np.array_equal(KMeans(4, random_state=0).fit_predict(blobs), model.labels_)
    assert np.array_equal(KMeans(4, random_state=0).fit_transform(blobs), distances)
    assert model.transform(blobs.astype(np.float32)).dtype == np.float64


def test_weights_are_repetitions():
    X = np.random.default_rng(0).standard_normal((50, 3))
    weights = np.random.default_rng(1).integers(1, 4, 50)
    first = X[:3]
    weighted = KMeans(3, init=first).fit(X, sample_weight=weights)
    repeated = KMeans(3, init=first).fit(np.repeat(X, weights, axis=0))
    assert np.allclose(weighted.cluster_centers_, repeated.cluster_centers_)
    assert np.isclose(weighted.inertia_, repeated.inertia_)
    assert np.isclose(weighted.score(X, sample_weight=weights), -weighted.inertia_)


def test_inits(blobs):
    first = blobs[[0, 10, 20, 30]]
    by_array = KMeans(4, init=first).fit(blobs)
    seen = []

    def choose(X, k, random_state):
        seen.append((len(X), k, random_state))
        return X[[0, 10, 20, 30]]

    by_function = KMeans(4, init=choose, n_init=1).fit(blobs)
    assert np.array_equal(by_array.cluster_centers_, by_function.cluster_centers_) and len(seen) == 1 and seen[0][:2] == (600, 4)
    with pytest.warns(RuntimeWarning, match="only one init"):
        KMeans(4, init=first, n_init=3).fit(blobs)
    assert KMeans(4, init="random", random_state=0).fit(blobs).report_.checks > 5 * by_array.report_.checks / by_array.n_iter_


def test_clone_pickle_and_output(blobs):
    model = KMeans(4, random_state=0, tol=1e-3)
    assert clone(model).get_params() == model.get_params()
    model.fit(blobs)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(blobs), model.labels_) and again.report_ == model.report_
    assert list(model.get_feature_names_out()) == ["kmeans0", "kmeans1", "kmeans2", "kmeans3"]
    model.set_output(transform="default")
    assert model.transform(blobs).shape == (600, 4)
    steps = make_pipeline(StandardScaler(), KMeans(4, random_state=0))
    assert len(np.unique(steps.fit_predict(blobs))) == 4


def test_fewer_different_points_than_clusters():
    with pytest.warns(ConvergenceWarning, match="smaller than n_clusters"):
        model = KMeans(3, random_state=0).fit(np.array([[0.0], [0.0], [1.0], [1.0]]))
    assert model.inertia_ == 0


@pytest.mark.parametrize("wrong", [{"n_clusters": 0}, {"n_clusters": 2.5}, {"max_iter": 0}, {"tol": -1}, {"n_init": 0}, {"init": "best"},
                                   {"init": np.zeros((2, 5))}, {"n_clusters": 601}])
def test_refused(blobs, wrong):
    with pytest.raises(ValueError):
        KMeans(**{"n_clusters": 4, **wrong}).fit(blobs)


def test_sparse_points_are_those_of_an_array():
    sparse = pytest.importorskip("scipy.sparse")
    random = np.random.default_rng(4)
    X = random.random((500, 70)) * (random.random((500, 70)) < 0.15) * (1 + 3 * (np.arange(70) % 5 == random.integers(5, size=(500, 1))))
    weights = random.random(500)
    for dtype in (np.float32, np.float64):
        dense = X.astype(dtype)
        for made in (sparse.csr_array(dense), sparse.csr_matrix(dense), sparse.csc_array(dense)):
            model = KMeans(5, random_state=0).fit(made, sample_weight=weights)
            beside = sklearn.cluster.KMeans(5, random_state=0).fit(made, sample_weight=weights)
            assert model.report_.verdict == "clean" and model.report_.problem == f"kmeans_f{8 * dense.itemsize}_m500_n70_k5_csr"
            assert np.array_equal(model.labels_, beside.labels_)
            np.testing.assert_allclose(model.cluster_centers_, beside.cluster_centers_, rtol=0, atol=64 * np.finfo(dtype).eps)
            assert np.array_equal(model.predict(made), model.predict(dense))
            np.testing.assert_allclose(model.transform(made), model.transform(dense), rtol=100 * np.finfo(dtype).eps)
    wide = sparse.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert np.array_equal(KMeans(5, random_state=0).fit(wide).labels_, KMeans(5, random_state=0).fit(sparse.csr_array(X)).labels_)
    doubled = sparse.csr_array((np.r_[1.0, 2, 4], np.r_[1, 1, 0], np.r_[0, 2, 3]), shape=(2, 2))  # element (0, 1) in two parts
    assert KMeans(2, init=np.array([[0.0, 3], [4, 0]])).fit(doubled).inertia_ == 0
    assert not doubled.has_canonical_format


def test_not_fitted_and_other_widths(blobs):
    with pytest.raises(NotFittedError):
        KMeans().predict(blobs)
    with pytest.raises(ValueError, match="features"):
        KMeans(4).fit(blobs).predict(blobs[:, :3])
    with pytest.raises(ValueError):
        KMeans(4).fit(np.where(blobs > 0, np.nan, blobs))


def directions(dtype, seed=6):
    """Points around four directions, of lengths from 1 to 1000."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((4, 30))[random.integers(4, size=400)] + 0.4 * random.standard_normal((400, 30))
    X[random.random(X.shape) < 0.3] = 0
    return (X * 1000 ** random.random((400, 1))).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_spherical_is_what_the_definition_says(dtype):
    sparse = pytest.importorskip("scipy.sparse")
    X = directions(dtype)
    weights = np.random.default_rng(7).random(400)
    unit = X.astype(np.longdouble) / np.linalg.norm(X.astype(np.longdouble), axis=1, keepdims=True)
    eps = np.finfo(dtype).eps
    for points in (X, sparse.csr_array(X)):
        model = SphericalKMeans(4, random_state=1).fit(points, sample_weight=weights)
        assert model.report_.verdict == "clean" and model.report_.problem.endswith("_spherical")
        assert model.cluster_centers_.dtype == dtype and np.allclose(np.linalg.norm(model.cluster_centers_, axis=1), 1, rtol=0, atol=4 * eps)
        far = 1 - unit @ model.cluster_centers_.T.astype(np.longdouble)
        assert np.array_equal(model.labels_, far.argmin(axis=1)) and np.array_equal(model.predict(points), model.labels_)
        made = model.transform(points)
        assert made.dtype == dtype and np.allclose(made.astype(np.longdouble), far, rtol=0, atol=16 * eps)
        assert np.isclose(model.inertia_, float((weights * far.min(axis=1)).sum()), rtol=100 * eps)
        assert np.isclose(model.score(points, sample_weight=weights), -model.inertia_, rtol=100 * eps)
        # Each centroid lies in the direction of the sum of its points.
        for j in range(4):
            total = (weights[:, None] * unit)[model.labels_ == j].sum(axis=0)
            assert np.allclose(model.cluster_centers_[j], (total / np.linalg.norm(total)).astype(dtype), rtol=0, atol=64 * eps)
    longer = SphericalKMeans(4, random_state=1).fit(X * dtype(2) ** np.arange(-10, 390)[:, None].clip(max=10).astype(dtype))
    assert np.array_equal(longer.labels_, SphericalKMeans(4, random_state=1).fit(X).labels_)


def test_spherical_of_rows_without_direction():
    sparse = pytest.importorskip("scipy.sparse")
    X, weights = directions(np.float64), np.random.default_rng(8).random(400)
    has = np.arange(400) % 7 != 0
    X[~has] = 0
    first = X[has][:4]
    alone = SphericalKMeans(4, init=first).fit(X[has], sample_weight=weights[has])
    for points in (X, sparse.csr_array(X)):
        model = SphericalKMeans(4, init=first).fit(points, sample_weight=weights)
        assert np.allclose(model.cluster_centers_, alone.cluster_centers_)
        assert np.array_equal(model.labels_[has], alone.labels_) and not model.labels_[~has].any()
        assert np.isclose(model.inertia_, alone.inertia_ + weights[~has].sum())
        assert np.array_equal(model.predict(points), model.labels_) and (model.transform(points)[~has] == 1).all()
        assert np.isclose(model.score(points), -SphericalKMeans(4, init=model.cluster_centers_, max_iter=1).fit(X[has]).inertia_ - (~has).sum(),
                          rtol=1e-2)
    with pytest.raises(ValueError, match="other than 0"):
        SphericalKMeans(4).fit(np.r_[X[:3], np.zeros((5, 30))])
    with pytest.raises(ValueError, match="rows other than 0"):
        SphericalKMeans(2, init=np.zeros((2, 30))).fit(X)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_spherical_is_an_estimator():
    checks = pytest.importorskip("sklearn.utils.estimator_checks")

    def failed(estimator):
        return {each["check_name"] for each in checks.check_estimator(estimator, on_fail=None, on_skip=None) if each["status"] == "failed"}

    assert failed(SphericalKMeans()) <= failed(sklearn.cluster.KMeans())
