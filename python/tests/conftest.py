"""With BALLAST_TEST_CORE=FILE the tests run over that build of the extension: the one that can inject faults."""

import importlib.util
import os
import sys

import pytest

_core = os.environ.get("BALLAST_TEST_CORE")
if _core:
    # The file's module is _core_instrumented; the package finds it under the name of the ordinary one.
    spec = importlib.util.spec_from_file_location("_core_instrumented", _core)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["ballast._core"] = module


@pytest.fixture
def faults():
    """A function that arms faults for the calls of this thread, and of JAX's programs, by the command's words:
    site=fft.stage,model=bit_flip,seed=2."""
    from ballast import _core

    if not hasattr(_core, "arm"):
        pytest.skip("this build cannot inject faults: set BALLAST_TEST_CORE")
    yield lambda *wanted: _core.arm(list(wanted))
    _core.arm([])
