"""What the tests of the command share: running it, and a folder for its files.

A test file is run as: NAME_test.py PATH_OF_BALLAST [unittest's arguments]
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np

BALLAST = os.path.abspath(sys.argv.pop(1))
DATA = Path(__file__).resolve().parents[2] / "examples" / "data"


def run(*arguments, status=0):
    done = subprocess.run([BALLAST, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    if done.returncode != status:
        raise AssertionError(f"{arguments}: expected exit status {status}, got {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def run_json(*arguments, status=0):
    return json.loads(run(*arguments, "--json", status=status).stdout)


class WithFolder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = Path(self.folder.name)
        self.random = np.random.default_rng(1)

    def tearDown(self):
        self.folder.cleanup()

    def save(self, name, values):
        np.save(self.dir / name, values)
        return self.dir / name
