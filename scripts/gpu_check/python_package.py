"""The stages of `gpu-check --only python`: install puts the wheel of the Python package into a folder of its own, and each of the others runs
one file of python/tests over it. PyTorch, CuPy and JAX are those of the machine's Python."""

import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as xml
from pathlib import Path

# Shares of the budget.
STAGES = {"install": 30, "test_device_arrays": 40, "test_torch": 100, "test_jax": 350, "test_cuda": 200, "test_nccl": 120}
NEEDED = ("ballast_ecc", "nanobind_backend")  # others are for a Python that lacks pytest

DESCRIBE = """
import importlib.metadata, json
import ballast
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
seen = ballast.info()
libraries = {name: version(name) for name in ("numpy", "torch", "cupy-cuda12x", "cupy-cuda13x", "jax", "scikit-learn")}
print(json.dumps({"type": "info", "version": seen["version"], "device": seen["devices"][0]["name"] if seen["devices"] else "",
                  "unavailable": seen["cuda"]["unavailable"] or "the driver has no device", "driver": seen["cuda"]["driver"],
                  "libraries": {name: found for name, found in libraries.items() if found}}))
"""


def wheels(folder):
    """The wheels in a folder: (the package and what it needs, others). ValueError says what is missing."""
    found = sorted(Path(folder).glob("*.whl"))
    for name in NEEDED:
        of = [each for each in found if each.name.startswith(name + "-")]
        if len(of) != 1:
            raise ValueError(f"expected one {name}-*.whl in {folder}, got {len(of)}: scripts/wheel fills build/wheel/gpu")
    needed = [each for each in found if each.name.startswith(tuple(name + "-" for name in NEEDED))]
    return needed, [each for each in found if each not in needed]


def environment(target):
    paths = [str(target), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_THREAD_TIMEOUT": "4", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def install(check, made, limit, python, folder, target):
    """Without network and dependencies. Sets check.no_gpu where the package finds no device."""
    needed, others = wheels(folder)
    shutil.rmtree(target, ignore_errors=True)
    if subprocess.run([python, "-c", "import pytest"], capture_output=True).returncode != 0:
        needed += others
    command = [python, "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check", "--target", target, *needed]
    status, _ = check.execute("install", command, limit)
    if status == 0:
        status, output = check.execute("describe", [python, "-B", "-c", DESCRIBE], limit, environment(target))
    if status != 0:
        last = check.tail("describe" if (check.out / "describe.log").exists() else "install")
        made.update(status="out of time" if status is None else "failed", detail=f"exit status {status}: {last}")
        shutil.rmtree(target, ignore_errors=True)
        return
    info = json.loads(output.read_text().splitlines()[-1])
    made["rows"].append(info)
    made["detail"] = ", ".join(f"{name} {version}" for name, version in info["libraries"].items())
    made["status"] = "passed"
    if not info["device"]:
        check.no_gpu = info["unavailable"]
        made.update(status="no GPU", detail=info["unavailable"])


def outcomes(report):
    """The counts, the failed tests and the reasons of the skipped ones, from pytest's XML."""
    row = {"passed": 0, "failed": 0, "skipped": 0, "failures": [], "reasons": []}
    for case in xml.parse(report).getroot().iter("testcase"):
        wrong = case.find("failure") if case.find("failure") is not None else case.find("error")
        skipped = case.find("skipped")
        row["failed" if wrong is not None else "skipped" if skipped is not None else "passed"] += 1
        if wrong is not None:
            row["failures"].append(f"{case.get('name')}: {(wrong.get('message') or '').splitlines()[0] if wrong.get('message') else ''}")
        elif skipped is not None:
            row["reasons"].append(f"{case.get('name') or case.get('classname')}: {skipped.get('message')}")
    return row


def run_tests(check, made, limit, name, python, target):
    """One file of python/tests. A file of which no test ran has not passed."""
    if not target.is_dir():
        made.update(status="not run", detail="the package is not installed")
        return
    tests = Path(__file__).resolve().parents[2] / "python"
    report = check.out / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tests, "--junit-xml", report, tests / "tests" / f"{name}.py"]
    status, _ = check.execute(name, command, limit, environment(target))
    if status is None or not report.exists():
        made.update(status="out of time" if status is None else "failed", detail=f"exit status {status}: {check.tail(name)}")
        return
    row = {"type": "tests", "file": f"python/tests/{name}.py", **outcomes(report)}
    made["rows"].append(row)
    made["detail"] = f"{row['passed']} passed, {row['failed']} failed, {row['skipped']} skipped"
    made["status"] = "failed" if row["failed"] or status not in (0, 5) else "passed" if row["passed"] else "not run"


def table(result):
    """A line for each file, and each failed or skipped test."""
    rows = [row for stage in result["stages"] for row in stage["rows"] if row["type"] == "tests"]
    if rows:
        yield ""
        yield f"{'tests of the Python package':<40} {'passed':>7} {'failed':>7} {'skipped':>8}"
    for row in rows:
        yield f"{row['file']:<40} {row['passed']:7} {row['failed']:7} {row['skipped']:8}"
        yield from (f"  FAILED {each}" for each in row["failures"][:8])
        yield from (f"  skipped {each}" for each in row["reasons"][:8])
