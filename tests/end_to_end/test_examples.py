"""The examples run as they stand in the documentation."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.paths import EXAMPLES as EXAMPLE_FOLDER

EXAMPLES = sorted(EXAMPLE_FOLDER.glob("[0-9]*.py"))
LONG = ("01_pendulum.py", "05_find_out_e.py", "06_unit_from_recordings.py", "07_the_loop.py")


@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=pytest.mark.slow if p.name in LONG else (), id=p.name) for p in EXAMPLES]
)
def test_example(path, tmp_path):
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
