"""Runs the Python blocks of docs/python.md, one after the other in one namespace. No block may be indented, which would leave it out."""

import importlib.util
import os
import pathlib
import re
import warnings

import pytest

import ballast

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def _missing(block):
    """What the block needs and this machine has not; None if it has all."""
    if "import jax" in block and not (hasattr(ballast._core, "jax_handlers") and importlib.util.find_spec("jax")):
        return "JAX, or its handlers in this build"
    if "import torch" in block and not importlib.util.find_spec("torch"):
        return "PyTorch"
    if '"cuda"' in block and not __import__("torch").cuda.is_available():
        return "a GPU that PyTorch can use"
    return None


def test_no_example_is_indented():
    prose = re.sub(r"^```.*?^```$", "", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert not re.findall(r"^    .*$", prose, re.MULTILINE)


def test_examples(monkeypatch, capsys):
    pytest.importorskip("sklearn")
    pytest.importorskip("scipy")
    assert len(BLOCKS) >= 7
    monkeypatch.setitem(os.environ, "BALLAST_ON_FALLBACK", "error")
    names = {}
    for number, block in enumerate(BLOCKS, 1):
        if lacks := _missing(block):
            warnings.warn(f"{PAGE.name}: block {number} was left out: {lacks} is missing")
            continue
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)
    out = capsys.readouterr().out
    assert out.startswith("clean: fft_c2r_f64_n1000_b8_inv on cpu")
