"""install() under NumPy and SciPy, each in a process of its own."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np, ballast
stock = np.fft.fft
{before}
ballast.install(); ballast.install()
assert np.fft.fft.__name__ == "fft" and np.fft.fft is not stock
a = np.arange(12.0)
assert np.allclose(np.fft.fft(a), stock(a)) and ballast.last_report().problem.startswith("fft_c2c_f64_n12")
np.linalg.qr(np.eye(3)); np.linalg.lstsq(np.ones((3, 1)), np.ones(3))
assert ballast.last_report().problem.startswith("qr_")
{after}
ballast.uninstall(); ballast.uninstall()
assert np.fft.fft is stock
ballast.install()
"""


def run(before="", after="", how="allow"):
    return subprocess.run([sys.executable, "-c", PROGRAM.format(before=before, after=after)], capture_output=True, text=True,
                          env=dict(os.environ, BALLAST_ON_FALLBACK=how))


def test_calls_are_protected_and_counted():
    done = run()
    assert done.returncode == 0, done.stderr
    assert "ballast: protected 3 calls, forwarded 0" in done.stderr


def test_what_ballast_cannot_take_is_forwarded_and_told():
    more = ("np.linalg.qr(np.eye(2), 'economic')\n"
            "assert np.fft.fft(np.ones(4, np.longdouble)).dtype == np.clongdouble\n"
            "assert np.linalg.lstsq(np.ones((3, 2)), np.ones(3))[2] == 1\n"
            "assert len(ballast.forwarded()) == 3")
    done = run(after=more)
    assert done.returncode == 0, done.stderr
    assert "protected 3 calls, forwarded 3" in done.stderr and "1 of numpy.linalg.qr: " in done.stderr
    assert "FallbackWarning" not in done.stderr and "FallbackWarning" in run(after=more, how="warn").stderr
    done = run(after=more, how="error")
    assert done.returncode == 1 and "UnsupportedError" in done.stderr
    done = run(after=more, how="maybe")
    assert done.returncode == 1 and "BALLAST_ON_FALLBACK" in done.stderr


def test_scipy():
    pytest.importorskip("scipy")
    more = ("import scipy.fft\n"
            "before = ballast.last_report()\n"
            "assert np.allclose(scipy.fft.fftn(np.ones((3, 4)), s=(5,)), np.fft.fft(np.ones((3, 4)), 5))\n"
            "assert ballast.last_report() is not before and not ballast.forwarded()\n"
            "assert np.allclose(scipy.fft.idctn(scipy.fft.dctn(a, 4), 4), a)\n"
            "assert ballast.last_report().problem.startswith('fft_dct4_f64_n12') and not ballast.forwarded()\n"
            "scipy.fft.fht(a + 1, 0.1, 0)\n"
            "assert sum(ballast.forwarded().values()) == 1")
    done = run(after=more)
    assert done.returncode == 0, done.stderr


def test_scipys_backend_without_install():
    scipy_fft = pytest.importorskip("scipy.fft")
    import numpy as np

    import ballast
    from ballast import scipy_fft as backend

    ballast.fft.fft(np.ones(3))
    before = ballast.last_report()
    with scipy_fft.set_backend(backend):
        seen = scipy_fft.rfft(np.arange(10.0), 8)
    assert ballast.last_report() is not before and np.allclose(seen, np.fft.rfft(np.arange(8.0)))
    with pytest.raises(ValueError, match="unique"):
        backend.fftn(np.ones((2, 2)), axes=(0, 0))


def test_run_and_info(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, numpy as np\nassert sys.argv[1:] == ['x']\nprint(abs(np.fft.fft(np.ones(4))[0]))\n")
    report = tmp_path / "report.json"
    done = subprocess.run([sys.executable, "-m", "ballast", "run", "--report", report, script, "x"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "4.0\n" and "protected 1 calls, forwarded 0" in done.stderr, done.stderr
    assert json.loads(report.read_text()) == {"protected": 1, "forwarded": []}
    for command in ("info", "demo"):
        done = subprocess.run([sys.executable, "-m", "ballast", command], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout, done.stderr
    # Without any package that the machine has, each is named with the command that brings it.
    lone = "import ballast.__main__ as b; b._version = lambda name: None; b._info()"
    done = subprocess.run([sys.executable, "-c", lone], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("numpy", "scipy", "scikit-learn", "torch", "jax", "cupy-cuda1"):
        assert f"): pip install {name}" in done.stdout
    assert subprocess.run([sys.executable, "-m", "ballast", "walk"], capture_output=True).returncode == 1


def test_scipy_linalg_and_scikit_learn():
    pytest.importorskip("sklearn")
    more = ("import scipy.linalg, sklearn.cluster\n"
            "q, r = scipy.linalg.qr(np.eye(3)[:, :2])\n"
            "assert q.shape == (3, 3) and r.shape == (3, 2) and ballast.last_report().problem.startswith('qr_')\n"
            "scipy.linalg.lstsq(np.ones((3, 1)), np.ones(3))\n"
            "points = np.random.default_rng(0).standard_normal((300, 3))\n"
            "model = sklearn.cluster.KMeans(4, random_state=0, n_init=1).fit(points)\n"
            "assert ballast.last_report().problem.startswith('kmeans_f64_m300_n3_k4')\n"
            "ballast.uninstall()\n"
            "stock_model = sklearn.cluster.KMeans(4, random_state=0, n_init=1).fit(points)\n"
            "assert np.array_equal(model.labels_, stock_model.labels_) and model.n_iter_ == stock_model.n_iter_\n"
            "ballast.install()")
    done = run(after=more)
    assert done.returncode == 0, done.stderr
    assert "protected 6 calls, forwarded 0" in done.stderr


def test_factors_of_scipy():
    """Every mode of qr, of matrices and stacks, qr_multiply and lstsq by gelsy: what SciPy's own functions give, up to the signs of rows."""
    pytest.importorskip("scipy")
    more = ("import itertools, scipy.linalg as linalg\n"
            "stock_qr, stock_multiply, stock_lstsq = (ballast._install._replaced[linalg, name] for name in ('qr', 'qr_multiply', 'lstsq'))\n"
            "rng = np.random.default_rng(0)\n"
            "def flat(made):\n"
            "    return [each for one in made for each in (flat(one) if isinstance(one, tuple) else [one])]\n"
            "for shape, mode, pivoting in itertools.product([(6, 4), (4, 6), (5, 5)], ('full', 'r', 'economic', 'raw'), (False, True)):\n"
            "    m = rng.standard_normal(shape)\n"
            "    seen, expected = flat(linalg.qr(m, mode=mode, pivoting=pivoting)), flat(stock_qr(m, mode=mode, pivoting=pivoting))\n"
            "    assert len(seen) == len(expected)\n"
            "    for one, other in zip(seen, expected):\n"
            "        assert one.shape == other.shape and np.allclose(np.abs(one), np.abs(other)), (shape, mode, pivoting)\n"
            "    if mode == 'raw':\n"
            "        continue\n"
            "    made, theirs = (f(np.stack([m, 2 * m]), mode=mode, pivoting=pivoting) for f in (linalg.qr, stock_qr))\n"
            "    assert isinstance(made, np.ndarray) == isinstance(theirs, np.ndarray) and len(made) == len(theirs)\n"
            "    for one, other in zip(flat([made] if isinstance(made, np.ndarray) else made), seen):\n"
            "        assert one.shape == (2, *other.shape) and np.allclose(one[0], other)\n"
            "m = rng.standard_normal((6, 4))\n"
            "for c, mode in ((np.ones((4, 2)), 'left'), (np.ones((2, 6)), 'right'), (np.ones(6), 'right')):\n"
            "    for one, other in zip(linalg.qr_multiply(m, c, mode, True), stock_multiply(m, c, mode, True)):\n"
            "        assert one.shape == other.shape\n"
            "        assert np.allclose(np.abs(one), np.abs(other)) or mode == 'left'\n"
            "m[:, 3] = m[:, 0]\n"
            "seen, expected = (solve(m, np.ones(6), lapack_driver='gelsy') for solve in (linalg.lstsq, stock_lstsq))\n"
            "assert seen[2] == expected[2] == 3 and np.allclose(seen[0], expected[0]) and seen[1].shape == expected[1].shape and seen[3] is None\n"
            "assert ballast.last_report().problem == 'qr_f64_m6_n4' and not ballast.forwarded(), ballast.forwarded()\n"
            # numpy computes in double and rounds.
            "single = rng.standard_normal((30, 5)).astype(np.float32)\n"
            "for mode in ('reduced', 'complete', 'r', 'raw'):\n"
            "    made, wide = np.linalg.qr(single, mode), ballast.linalg.qr(single.astype(float), mode)\n"
            "    for one, other in zip(flat([made]), flat([wide])):\n"
            "        assert one.dtype == np.float32 and np.array_equal(one, other.astype(np.float32))\n"
            "x, residuals, rank, s = np.linalg.lstsq(single, single[:, 0])\n"
            "assert x.dtype == residuals.dtype == s.dtype == np.float32 and np.abs(x - np.eye(5)[0]).max() < 1e-7 and rank == 5\n"
            "assert not ballast.forwarded(), ballast.forwarded()")
    done = run(after=more)
    assert done.returncode == 0, done.stderr


def test_factors_of_complex_matrices():
    """Every mode of NumPy's and SciPy's qr, lstsq and qr_multiply: what their own functions give, up to the signs of rows."""
    pytest.importorskip("scipy")
    more = ("import scipy.linalg as linalg\n"
            "theirs = {name: ballast._install._replaced[module, name] for module, name in ((linalg, 'qr'), (linalg, 'qr_multiply'))}\n"
            "their_solve = {module: ballast._install._replaced[module, 'lstsq'] for module in (np.linalg, linalg)}\n"
            "their_factor = ballast._install._replaced[np.linalg, 'qr']\n"
            "rng = np.random.default_rng(0)\n"
            "calls = ballast._forward.protected_calls()\n"
            "def flat(made):\n"
            "    return [each for one in made for each in flat(one)] if isinstance(made, (tuple, list)) else [made]\n"
            "def same(seen, expected, near, words):\n"
            "    seen, expected = flat(seen), flat(expected)\n"
            "    assert len(seen) == len(expected), words\n"
            "    for one, other in zip(seen, expected):\n"
            "        assert one.shape == other.shape and one.dtype == other.dtype, words\n"
            "        assert np.allclose(np.abs(one), np.abs(other), rtol=near, atol=near), words\n"
            "made = 0\n"
            "for kind, near in ((np.complex64, 1e-4), (np.complex128, 1e-11)):\n"
            "    for shape in ((6, 4), (4, 6), (5, 5), (3, 6, 4)):\n"
            "        a = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind)\n"
            "        for mode in ('full', 'r', 'economic', *(['raw'] if a.ndim == 2 else [])):\n"
            "            for pivoting in (False, True):\n"
            "                same(*(f(a, mode=mode, pivoting=pivoting) for f in (linalg.qr, theirs['qr'])), near, (shape, mode, pivoting))\n"
            "                made += 1\n"
            "        for mode in ('reduced', 'complete', 'r', 'raw'):\n"
            "            same(np.linalg.qr(a, mode), their_factor(a, mode), near, (shape, mode))\n"
            "            made += 1\n"
            "        if a.ndim > 2:\n"
            "            continue\n"
            "        b = (rng.standard_normal((len(a), 2)) + 1j).astype(kind)\n"
            "        for module, solve in their_solve.items():\n"
            "            seen, expected = module.lstsq(a, b), solve(a, b)\n"
            "            made += 1\n"
            "            for i in (0, 1, 3):\n"
            "                assert seen[i].dtype == expected[i].dtype and np.allclose(seen[i], expected[i], rtol=10 * near), (module, shape, i)\n"
            "            assert seen[2] == expected[2]\n"
            "        low = np.repeat(a[:, :2], 2, axis=1) * np.array([1, 1j, 2, -1]).astype(kind)\n"
            "        seen, expected = (f(low, b, 1e-4, lapack_driver='gelsy') for f in (linalg.lstsq, their_solve[linalg]))\n"
            "        same(seen[:2], expected[:2], 10 * near, shape)\n"
            "        made += 1\n"
            "        assert seen[2] == expected[2] == 2 and seen[3] is None\n"
            "        for conjugate in (False, True):\n"
            "            for pivoting in (False, True):\n"
            "                same(*(f(a, b.T, 'right', pivoting, conjugate) for f in (linalg.qr_multiply, theirs['qr_multiply'])), near, shape)\n"
            "                made += 1\n"
            "assert not ballast.forwarded() and ballast._forward.protected_calls() - calls == made, ballast.forwarded()")
    done = run(after=more)
    assert done.returncode == 0, done.stderr


def test_minibatches_of_scikit_learn():
    pytest.importorskip("sklearn")
    more = ("import sklearn.cluster\n"
            "points = np.random.default_rng(0).standard_normal((300, 3))\n"
            "def fit():\n"
            "    model = sklearn.cluster.MiniBatchKMeans(4, batch_size=50, random_state=0, max_iter=2, max_no_improvement=None).fit(points)\n"
            "    return model, model.predict(points), model.partial_fit(points[:50]).cluster_centers_\n"
            "before = ballast._forward.protected_calls()\n"
            "model, labels, centroids = fit()\n"
            # A fit: the start's inertia, 12 batches, the labels. predict: 1. partial_fit: a batch and its labels.
            "assert ballast._forward.protected_calls() - before == 14 + 1 + 2\n"
            "assert ballast.last_report().problem.startswith('kmeans_f64_m50_n3_k4')\n"
            "ballast.uninstall()\n"
            "stock_model, stock_labels, stock_centroids = fit()\n"
            "assert np.array_equal(labels, stock_labels) and model.n_steps_ == stock_model.n_steps_ and np.allclose(centroids, stock_centroids)\n"
            "ballast.install()\n"
            "import scipy.sparse\n"
            "sklearn.cluster.MiniBatchKMeans(2, max_iter=1, n_init=1).fit(scipy.sparse.csr_array(points))\n"
            "assert {name.split('.')[-1] for name, _ in ballast.forwarded()} == {'_mini_batch_step', '_labels_inertia_threadpool_limit'}")
    done = run(after=more)
    assert done.returncode == 0, done.stderr
