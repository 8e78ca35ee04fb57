"""ballast.sklearn.MiniBatchKMeans beside scikit-learn's, as an estimator, and struck."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")
import sklearn.cluster
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ballast
from ballast import _minibatch
from ballast.sklearn import MiniBatchKMeans


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(900, 5, centers=4, random_state=3)[0]


def alike(mine, theirs, X, steps):
    """The same labels, and centroids that differ by rounding: each step sums at most batch_size points, and adds its error to the last."""
    assert np.array_equal(mine.labels_, theirs.labels_) and mine.n_steps_ == theirs.n_steps_
    wide = steps * 100 * np.finfo(X.dtype).eps
    assert mine.cluster_centers_.dtype == X.dtype
    assert np.allclose(mine.cluster_centers_, theirs.cluster_centers_, rtol=0, atol=wide * np.abs(X).max())
    assert np.isclose(mine.inertia_, theirs.inertia_, rtol=wide)


@pytest.mark.parametrize("options", [{}, {"init": "random"}, {"n_init": 3, "tol": 1e-3}, {"max_no_improvement": None, "max_iter": 3},
                                     {"reassignment_ratio": 0.9, "max_iter": 4}, {"init_size": 50}])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_begins_and_ends_as_scikit_learns(blobs, options, dtype):
    X = blobs.astype(dtype)
    mine = MiniBatchKMeans(4, batch_size=100, random_state=5, **options).fit(X)
    theirs = sklearn.cluster.MiniBatchKMeans(4, batch_size=100, random_state=5, **options).fit(X)
    alike(mine, theirs, X, mine.n_steps_)
    assert mine.n_iter_ == theirs.n_iter_ and mine.report_.verdict == "clean" and mine.report_.checks > mine.n_steps_


def test_partial_fit_as_scikit_learns(blobs):
    weights = np.random.default_rng(1).uniform(0.5, 2, len(blobs))
    mine, theirs = MiniBatchKMeans(4, random_state=0), sklearn.cluster.MiniBatchKMeans(4, random_state=0)
    for begin in range(0, 900, 150):
        part = slice(begin, begin + 150)
        mine.partial_fit(blobs[part], sample_weight=weights[part])
        theirs.partial_fit(blobs[part], sample_weight=weights[part])
        alike(mine, theirs, blobs, mine.n_steps_)
    assert mine.n_steps_ == 6 and np.array_equal(mine.predict(blobs[part]), mine.labels_)


def test_one_step_is_the_weighted_mean():
    """Against long double, from the formula: c' = (W c + Σ w x) / (W + Σ w)."""
    random = np.random.default_rng(2)
    X, weights, first = random.standard_normal((200, 3)), random.uniform(0.1, 3, 200), random.standard_normal((5, 3))
    model = MiniBatchKMeans(5, init=first, reassignment_ratio=0).partial_fit(X[:120], sample_weight=weights[:120])
    model.partial_fit(X[120:], sample_weight=weights[120:])
    centroids, totals = first.astype(np.longdouble), np.zeros(5, np.longdouble)
    for part in (slice(0, 120), slice(120, 200)):
        x, w = X[part].astype(np.longdouble), weights[part].astype(np.longdouble)
        labels = ((x[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
        for c in range(5):
            if (mine := labels == c).any():
                total = totals[c] + w[mine].sum()
                centroids[c] = (totals[c] * centroids[c] + (w[mine, None] * x[mine]).sum(axis=0)) / total
                totals[c] = total
    tolerance = 200 * np.finfo(float).eps
    assert np.allclose(model.cluster_centers_, centroids.astype(float), rtol=0, atol=tolerance * np.abs(X).max())
    assert np.allclose(model._counts, totals.astype(float), rtol=tolerance)


def test_digits_and_without_labels():
    X = load_digits().data
    mine = MiniBatchKMeans(10, random_state=0).fit(X)
    assert np.isclose(mine.inertia_, sklearn.cluster.KMeans(10, n_init=3, random_state=0).fit(X).inertia_, rtol=0.1)
    bare = MiniBatchKMeans(10, random_state=0, compute_labels=False).fit(X)
    assert np.array_equal(bare.cluster_centers_, mine.cluster_centers_) and not hasattr(bare, "labels_")
    assert np.isclose(bare.inertia_, mine.inertia_, rtol=0.1)


def test_clone_pickle_and_output(blobs, capsys):
    model = MiniBatchKMeans(4, random_state=0, batch_size=64)
    assert clone(model).get_params() == model.get_params() == dict(sklearn.cluster.MiniBatchKMeans(4, random_state=0, batch_size=64).get_params())
    with pytest.raises(NotFittedError):
        model.predict(blobs)
    model.fit(blobs)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(blobs), model.labels_) and again.report_ == model.report_
    assert np.array_equal(again.partial_fit(blobs).cluster_centers_, model.partial_fit(blobs).cluster_centers_)
    assert list(model.get_feature_names_out()) == [f"minibatchkmeans{i}" for i in range(4)]
    assert model.transform(blobs).shape == (900, 4) and np.isclose(model.score(blobs), -model.inertia_)
    assert len(np.unique(make_pipeline(StandardScaler(), MiniBatchKMeans(4, random_state=0)).fit_predict(blobs))) == 4
    MiniBatchKMeans(4, random_state=0, verbose=1, max_iter=1).fit(blobs)
    assert capsys.readouterr().out.startswith("step 1 of at most 1: ")


@pytest.mark.parametrize("wrong", [{"n_clusters": 0}, {"batch_size": 0}, {"batch_size": 1.5}, {"max_no_improvement": -1}, {"init_size": 0},
                                   {"reassignment_ratio": -1}, {"tol": -1}, {"n_init": 0}, {"init": np.zeros((2, 5))}, {"n_clusters": 901}])
def test_refused(blobs, wrong):
    with pytest.raises(ValueError):
        MiniBatchKMeans(**{"n_clusters": 4, **wrong}).fit(blobs)


def test_sparse_is_refused_and_a_small_sample_warns(blobs):
    with pytest.raises(TypeError, match="[Ss]parse"):
        MiniBatchKMeans().fit(pytest.importorskip("scipy.sparse").csr_array(blobs))
    with pytest.warns(RuntimeWarning, match="init_size=3") as told:
        MiniBatchKMeans(4, init_size=3, random_state=0).fit(blobs)
    assert told[0].filename == __file__ and len(told) == 1


# ---- Faults


class Struck:
    """_minibatch's function `name`, whose result `change` changes in the calls that `when` names, counted from 0."""

    def __init__(self, monkeypatch, name, change, when):
        self._function, self._change, self._when, self.calls = getattr(_minibatch, name), change, when, 0
        monkeypatch.setattr(_minibatch, name, self)

    def __call__(self, *args):
        made = self._function(*args)
        if self.calls in self._when:
            self._change(made)
        self.calls += 1
        return made


def flip(bit, place=(1, 2)):
    def change(table):
        table.view(np.uint64)[place] ^= np.uint64(1 << bit)

    return change


@pytest.fixture
def clean(blobs):
    return model().fit(blobs)


def model():
    return MiniBatchKMeans(4, batch_size=100, random_state=5, max_no_improvement=None, max_iter=1)


def same(one, other):
    return np.array_equal(one.cluster_centers_, other.cluster_centers_) and np.array_equal(one.labels_, other.labels_) \
        and one.inertia_ == other.inertia_


@pytest.mark.parametrize("bit", [0, 30, 52, 62, 63])
@pytest.mark.parametrize("place", [(1, 2), (0, 5)])  # a centroid; a total weight
@pytest.mark.parametrize("call", [6, 7])  # the centroids themselves; the copy that they are compared with
def test_a_struck_update_is_computed_again(blobs, clean, monkeypatch, bit, place, call):
    Struck(monkeypatch, "_moved", flip(bit, place), {call})
    seen = model().fit(blobs)
    report = seen.report_
    assert same(seen, clean) and report.verdict == "recomputed" and report.detected == 1
    assert report.events[0].site == "minibatch.update" and report.false_alarms == (call == 7)


@pytest.mark.parametrize("bit", [52, 62])
def test_without_protection_the_fault_reaches_the_output(blobs, clean, monkeypatch, bit):
    with ballast.protection("off"):
        assert same(model().fit(blobs), clean)
        Struck(monkeypatch, "_moved", flip(bit), {6})
        struck = model().fit(blobs)
    assert not same(struck, clean) and struck.report_.detected == 0


def test_a_fault_that_stays_is_told(blobs, monkeypatch):
    Struck(monkeypatch, "_moved", flip(40), {4, 6, 8})
    with pytest.raises(ballast.FaultError) as seen:
        model().fit(blobs)
    report = seen.value.report
    assert report.verdict == "uncorrectable" and report.detected == 3 and report is ballast.last_report()


def test_detect_raises(blobs, monkeypatch):
    Struck(monkeypatch, "_moved", flip(40), {4})
    with ballast.protection("detect"), pytest.raises(ballast.FaultError, match="minibatch.update"):
        model().fit(blobs)


@pytest.mark.parametrize("copy", ["first", "second"])
def test_centroids_that_wait(blobs, clean, monkeypatch, copy):
    """One copy changes between two steps: a CRC says which."""
    class Wait(_minibatch.State):
        kept = 0

        def _keep(self, first, second):
            super()._keep(first, second)
            Wait.kept += 1
            if Wait.kept == 4:
                flip(50)(getattr(self, copy))

    monkeypatch.setattr("ballast.sklearn.State", Wait)
    seen = model().fit(blobs)
    assert same(seen, clean) and seen.report_.verdict == "corrected" and seen.report_.events[0].site == "minibatch.centroids"
    Wait.kept = 0
    with ballast.protection("detect"), pytest.raises(ballast.FaultError, match="minibatch.centroids"):
        model().fit(blobs)
    if copy == "first":
        Wait.kept = 0
        with ballast.protection("off"):
            assert not same(model().fit(blobs), clean)


def test_a_struck_batch(blobs, clean):
    """A point changes on its way from X: the two readings differ."""
    class Source(np.ndarray):
        reads = 0

        def __getitem__(self, places):
            made = np.asarray(super().__getitem__(places))
            if isinstance(places, np.ndarray) and len(places) == 100:
                Source.reads += 1
                if Source.reads == 5:
                    made[7, 1] += 3
            return made

    def fit():
        Source.reads = 0
        mine = model()
        mine._host_points = lambda X, reset=True: X.view(Source)
        mine.fit(blobs)
        assert Source.reads > 5
        return mine

    seen = fit()
    assert np.array_equal(seen.cluster_centers_, clean.cluster_centers_) and seen.report_.verdict == "recomputed"
    with ballast.protection("off"):
        assert not np.array_equal(fit().cluster_centers_, clean.cluster_centers_)


def test_struck_reassignment(blobs, monkeypatch):
    def fit():
        return MiniBatchKMeans(4, batch_size=100, random_state=5, max_iter=1, reassignment_ratio=0.9, max_no_improvement=None).fit(blobs)

    clean, change, done = fit(), _minibatch.State.change, []

    def struck(self, make, findings, site):
        def strike(table, reverse):
            made = make(table, reverse)
            if site == "minibatch.reassignment" and not done:
                done.append(site)
                flip(52, (slice(None), 2))(made)
            return made

        change(self, strike, findings, site)

    monkeypatch.setattr(_minibatch.State, "change", struck)
    seen = fit()
    assert same(seen, clean) and seen.report_.detected == 1 and seen.report_.events[0].site == "minibatch.reassignment"
    done.clear()
    with ballast.protection("off"):
        assert not same(fit(), clean) and done


@pytest.mark.parametrize("site", ["kmeans.product", "kmeans.label"])
def test_faults_in_the_library(faults, blobs, clean, site):
    faults(f"site={site},model=bit_flip,bit=62,seed=3")
    seen = model().fit(blobs)
    assert seen.report_.detected >= 1 and seen.report_.verdict != "uncorrectable" and same(seen, clean)
