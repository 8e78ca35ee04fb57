"""Faults for the scripts of the gallery. Users' builds cannot inject faults; a build tree has an extension of the package that can.

The extension is the file that BALLAST_TEST_CORE names, else build/*/python/_core_instrumented.abi3.so of this repository; the package is
taken from beside it where none is installed.
"""

import contextlib
import importlib.util
import os
import sys
from pathlib import Path

try:
    import matplotlib
except ModuleNotFoundError:
    sys.exit("The gallery needs matplotlib: pip install matplotlib")
matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "ballast", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False})

GREEN, RED, GREY = "#1a7f37", "#cf222e", "#57606a"


def _extension():
    named = os.environ.get("BALLAST_TEST_CORE")
    found = [Path(named)] if named else sorted(Path(__file__).resolve().parents[2].glob("build/*/python/_core_instrumented.abi3.so"))
    if not found or not found[0].exists():
        sys.exit("The gallery strikes computations, which needs a build tree: cmake --preset release && cmake --build --preset release --target "
                 "python; or name the file _core_instrumented.abi3.so by BALLAST_TEST_CORE")
    return found[0]


def _load(file):
    if importlib.util.find_spec("ballast") is None:
        sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location("_core_instrumented", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["ballast._core"] = module  # under the name of the ordinary extension, before the package is imported
    return module


_core = _load(_extension())


@contextlib.contextmanager
def fault(words):
    """One fault for the calls inside, by the command's words: "site=fft.stage,model=bit_flip,bit=54,seed=4"."""
    _core.arm([words])
    try:
        yield
    finally:
        _core.arm([])


def three_runs(compute, words):
    """compute() in a clean run, struck with protection off, and struck with protection on; and the report of the last."""
    import ballast

    clean = compute()
    with fault(words), ballast.protection("off"):
        unprotected = compute()
    with fault(words), ballast.protection("correct"):
        protected = compute()
    report = ballast.last_report()
    if report.detected < 1:
        sys.exit(f"The fault {words} was not seen: {report}")
    return clean, unprotected, protected, report


def folder():
    """The folder that the script's only argument names; it is made where it is missing."""
    if len(sys.argv) != 2:
        sys.exit(f"Usage: {Path(sys.argv[0]).name} FOLDER     (the picture is saved there)")
    made = Path(sys.argv[1])
    made.mkdir(parents=True, exist_ok=True)
    return made


def save(figure, to):
    """Writes the picture and prints where it is."""
    figure.savefig(to, metadata={"Date": None})
    print(to)
