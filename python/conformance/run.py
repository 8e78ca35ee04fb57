"""Runs other libraries' own tests over Ballast, and prints the counts beside those of the library itself.

Usage: run.py SUITE…      SUITE: numpy_fft, scipy_fft, numpy_linalg, scipy_linalg, sklearn_kmeans, sklearn_common, estimators_common, estimator,
                          estimator_minibatch, array_api
Exit status: 1 if a test fails over Ballast that passes over the library.
array_api is the Array API's own suite (github.com/data-apis/array-api-tests), which PyPI does not have: BALLAST_ARRAY_API_TESTS names the
folder of a checkout, and without it the suite is not run, which is said. It tests array_api_strict, whose fft and linalg are NumPy's.
Each run is a process of its own, in which install() replaces the functions before the tests are read.
"""

import json
import os
import pathlib
import subprocess
import sys

MODULES = {
    "numpy_fft": (["numpy.fft.tests.test_pocketfft", "numpy.fft.tests.test_helper"], ""),
    "scipy_fft": (["scipy.fft.tests.test_basic", "scipy.fft.tests.test_helper", "scipy.fft.tests.test_multithreading",
                   "scipy.fft._pocketfft.tests.test_basic", "scipy.fft.tests.test_real_transforms",
                   "scipy.fft._pocketfft.tests.test_real_transforms"], ""),
    "numpy_linalg": (["numpy.linalg.tests.test_linalg", "numpy.linalg.tests.test_regression"], "QR or qr or lstsq or LstSq or Lstsq"),
    "scipy_linalg": (["scipy.linalg.tests.test_basic", "scipy.linalg.tests.test_decomp"], "QR or Lstsq"),
    "sklearn_kmeans": (["sklearn.cluster.tests.test_k_means"], ""),
    "sklearn_common": (["sklearn.tests.test_common"], "KMeans"),
    "estimators_common": (["sklearn.tests.test_common"], "KMeans"),  # the same of ballast.sklearn's estimators
}

CHECKOUT = os.environ.get("BALLAST_ARRAY_API_TESTS")
ESTIMATORS = {"estimator": "KMeans", "estimator_minibatch": "MiniBatchKMeans"}


class Count:
    """Counts outcomes, and keeps the names of failures."""

    def __init__(self):
        self.outcomes = {"passed": 0, "failed": 0, "skipped": 0}
        self.failed = []

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.outcome] += 1
            if report.outcome == "failed":
                self.failed.append(report.nodeid.split("/")[-1])


def replace_functions():
    import ballast

    ballast.install()
    try:
        import scipy.fft._pocketfft as direct  # its tests call these and not scipy.fft
    except ModuleNotFoundError:
        return
    for name in ballast.scipy_fft.__all__:
        if hasattr(direct, name) and name not in ("next_fast_len", "prev_fast_len"):
            setattr(direct, name, _forwarding(getattr(ballast.scipy_fft, name), getattr(direct, name)))


def replace_estimators():
    """ballast.sklearn's estimators stand in scikit-learn's list of all estimators, with the same arguments and the same expected failures."""
    import sklearn.utils
    import sklearn.utils._test_common.instance_generator as generator

    import ballast.sklearn

    listed = sklearn.utils.all_estimators

    def all_estimators(*args, **kwargs):
        return [(name, getattr(ballast.sklearn, name) if name in ESTIMATORS.values() else kind) for name, kind in listed(*args, **kwargs)]

    for table in (generator.INIT_PARAMS, generator.PER_ESTIMATOR_CHECK_PARAMS, generator.PER_ESTIMATOR_XFAIL_CHECKS):
        for theirs in [kind for kind in table if kind.__name__ in ESTIMATORS.values()]:
            table[getattr(ballast.sklearn, theirs.__name__)] = table[theirs]
    sklearn.utils.all_estimators = generator.all_estimators = all_estimators


def _forwarding(mine, theirs):
    from ballast import UnsupportedError
    from ballast._forward import forward, protected

    def call(*args, **kwargs):
        try:
            made = mine(*args, **kwargs)
        except UnsupportedError as why:
            forward(mine.__name__, str(why))
            return theirs(*args, **kwargs)
        protected()
        return made

    call.__name__ = mine.__name__
    return call


def run_tests(suite, over):
    """In a process of its own: prints a line of JSON."""
    import importlib.util

    import pytest

    if over == "ballast" and suite == "estimators_common":
        replace_estimators()
    elif over == "ballast":
        replace_functions()
    if suite == "array_api":
        return array_api_tests()
    names, keywords = MODULES[suite]
    files = [importlib.util.find_spec(name).origin for name in names]
    count = Count()
    # SciPy's test support reads its array libraries from its conftest, which is found by the files' folder.
    library = pathlib.Path(importlib.import_module(names[0].partition(".")[0]).__file__).parent
    pytest.main(["-q", "--no-header", f"--confcutdir={library}", "--tb=line", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestUnknownMarkWarning",
                 *(["-k", keywords] if keywords else []), *files], plugins=[count])
    return {"outcomes": count.outcomes, "failed": count.failed}


def array_api_tests():
    """The tests of fft and linalg.qr. Examples are drawn alike each time, so that both runs see the same."""
    import pytest

    os.environ["ARRAY_API_TESTS_MODULE"] = "array_api_strict"
    os.chdir(CHECKOUT)
    sys.path.insert(0, CHECKOUT)
    count = Count()
    pytest.main(["-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "--derandomize", "--disable-deadline", "array_api_tests/test_fft.py",
                 "array_api_tests/test_linalg.py::test_qr"], plugins=[count])
    return {"outcomes": count.outcomes, "failed": count.failed}


def run_estimator(name, over):
    """scikit-learn's check_estimator."""
    import importlib

    from sklearn.utils.estimator_checks import check_estimator

    made = getattr(importlib.import_module("ballast.sklearn" if over == "ballast" else "sklearn.cluster"), name)()
    results = check_estimator(made, on_fail=None, on_skip=None)
    failed = [each["check_name"] for each in results if each["status"] == "failed"]
    for each in results:
        if each["status"] == "failed":
            print(f"{each['check_name']}: {each['exception']}", file=sys.stderr)
    outcomes = {name: sum(each["status"] == name for each in results) for name in ("passed", "failed", "skipped", "xfail")}
    return {"outcomes": outcomes, "failed": failed}


def calls(over):
    if over != "ballast":
        return {"forwarded": 0, "protected": 0}
    from ballast import _forward

    return {"forwarded": sum(_forward.forwarded().values()), "protected": _forward.protected_calls()}


def one(suite, over):
    found = run_estimator(ESTIMATORS[suite], over) if suite in ESTIMATORS else run_tests(suite, over)
    print("RESULT " + json.dumps(dict(found, **calls(over))))


def in_process(suite, over):
    done = subprocess.run([sys.executable, __file__, "--one", suite, over], stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, BALLAST_ON_FALLBACK="allow"))
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line[7:])
    sys.exit(f"{suite} over {over} gave no result:\n{done.stdout[-4000:]}")


def main():
    wrong = False
    for suite in sys.argv[1:]:
        if suite == "array_api" and not CHECKOUT:
            print("array_api           NOT RUN: PyPI does not have array-api-tests; BALLAST_ARRAY_API_TESTS=FOLDER names a checkout of it")
            continue
        stock, mine = in_process(suite, "stock"), in_process(suite, "ballast")
        for name, seen in (("stock", stock), ("ballast", mine)):
            counts = ", ".join(f"{count} {outcome}" for outcome, count in seen["outcomes"].items())
            told = f" ({seen['protected']} calls protected, {seen['forwarded']} forwarded)" if seen["protected"] else ""
            print(f"{suite:19} over {name:8} {counts}{told}")
        for test in sorted(set(mine["failed"]) - set(stock["failed"])):
            print(f"  {test}: FAILS OVER BALLAST ALONE")
            wrong = True
        if min(mine["outcomes"]["passed"], stock["outcomes"]["passed"]) <= 10 * stock["outcomes"]["failed"]:
            sys.exit(f"{suite}: the library itself fails {stock['outcomes']['failed']} of its tests: they do not run here as they should")
    return 1 if wrong else 0


if __name__ == "__mp_main__" and sys.argv[1:2] == ["--one"] and sys.argv[3] == "ballast":
    replace_functions()  # a process that a test starts anew, not by a fork
if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(*sys.argv[2:])
    elif len(sys.argv) < 2:
        sys.exit(__doc__)
    else:
        sys.exit(main())
