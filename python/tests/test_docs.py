"""Runs the Python blocks of docs/python.md, one after the other in one namespace."""

import importlib.util
import os
import pathlib
import re
import warnings

import pytest

import ballast

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_examples(monkeypatch, capsys):
    pytest.importorskip("sklearn")
    pytest.importorskip("scipy")
    assert len(BLOCKS) >= 7
    monkeypatch.setitem(os.environ, "BALLAST_ON_FALLBACK", "error")
    names = {}
    for number, block in enumerate(BLOCKS, 1):
        if "import jax" in block and not (hasattr(ballast._core, "jax_handlers") and importlib.util.find_spec("jax")):
            warnings.warn(f"{PAGE.name}: block {number} was left out: JAX, or its handlers in this build, are missing")
            continue
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)
    out = capsys.readouterr().out
    assert out.startswith("clean: fft_c2r_f64_n1000_b8_inv on cpu")
