"""The scripts of examples/gallery: each saves its picture, and fails where a fault has no effect or is not repaired."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples/gallery"
SCRIPTS = sorted(each.stem for each in FOLDER.glob("*.py") if each.stem != "struck")

if importlib.util.find_spec("matplotlib") is None:
    pytest.skip("the gallery is NOT tested: matplotlib is missing", allow_module_level=True)
pytest.importorskip("sklearn")


def run(script, *arguments, core=None):
    return subprocess.run([sys.executable, "-B", FOLDER / f"{script}.py", *arguments], capture_output=True, text=True,
                          env=dict(os.environ, **({"BALLAST_TEST_CORE": core} if core else {})))


def test_the_four_scripts_are_here():
    assert SCRIPTS == ["digits", "fit", "month", "spectrum"]
    page = (FOLDER.parents[1] / "docs/gallery.md").read_text()
    assert all(f"## `{script}.py`" in page for script in SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_picture(script, tmp_path):
    if "BALLAST_TEST_CORE" not in os.environ:
        pytest.skip("this build cannot inject faults: set BALLAST_TEST_CORE")
    done = run(script, tmp_path / "pictures")
    assert done.returncode == 0, done.stdout + done.stderr
    picture = tmp_path / "pictures" / f"{script}.svg"
    assert done.stdout.splitlines()[-1] == str(picture) and "NOT" not in done.stdout and not done.stderr
    drawn = xml.parse(picture).getroot()
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg" and len(list(drawn.iter("{http://www.w3.org/2000/svg}path"))) > 20
    if script == "month":
        lines = [json.loads(line) for line in (tmp_path / "pictures/month.jsonl").read_text().splitlines()]
        assert len(lines) >= 31 and {line["action"] for line in lines} <= {"corrected", "recomputed"}


def test_without_an_argument_or_an_extension():
    done = run("fit", core="/nowhere/_core_instrumented.abi3.so")
    assert done.returncode == 1 and "BALLAST_TEST_CORE" in done.stderr
    if "BALLAST_TEST_CORE" in os.environ:
        done = run("fit")
        assert done.returncode == 1 and "Usage: fit.py FOLDER" in done.stderr
