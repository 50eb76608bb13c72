"""The package root: a lazy table of contents that agrees with itself and stays light."""

from __future__ import annotations

import ast
import json
import pkgutil
import subprocess
import sys

import pytest

import isthmus
from support.paths import REPOSITORY

TREE = ast.parse((REPOSITORY / "src" / "isthmus" / "__init__.py").read_text())


def typed_names() -> dict[str, str]:
    """Names of the TYPE_CHECKING block, with their modules."""
    (block,) = [n for n in TREE.body if isinstance(n, ast.If) and getattr(n.test, "id", "") == "TYPE_CHECKING"]
    return {
        alias.asname or alias.name: n.module or "" for n in block.body if isinstance(n, ast.ImportFrom) for alias in n.names
    }


def test_the_table_the_types_and_all_agree():
    assert typed_names() == isthmus._HOME
    assert list(isthmus.__all__) == list(isthmus._HOME)
    assert set(isthmus.__all__) <= set(dir(isthmus))


@pytest.mark.parametrize("name", list(isthmus._HOME))
def test_every_name_is_there_and_has_words(name):
    value = getattr(isthmus, name)
    assert value.__name__ == name
    assert value.__doc__, f"isthmus.{name} has no docstring"


def test_no_name_is_also_a_folder():
    """Python binds a subpackage on its parent, and then the import order would decide which of the two a name is."""
    folders = {found.name for found in pkgutil.iter_modules(isthmus.__path__)}
    assert not folders & set(isthmus.__all__)


def test_a_misspelt_name_gets_the_nearest():
    with pytest.raises(AttributeError, match="did you mean 'Belief'"):
        getattr(isthmus, "Beleif")  # noqa: B009


def test_importing_it_loads_next_to_nothing():
    script = "import sys, json, isthmus; print(json.dumps(sorted(m for m in sys.modules if m.startswith('isthmus'))))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert len(json.loads(done.stdout)) <= 5


LIGHT = """
import importlib, json, pkgutil, sys
for room in ("core", "world", "data", "deploy"):
    package = importlib.import_module(f"isthmus.{room}")
    for found in pkgutil.walk_packages(package.__path__, f"isthmus.{room}."):
        importlib.import_module(found.name)
heavy = {"torch", "mujoco", "scipy", "pyarrow", "duckdb", "onnx", "viser", "rosbags", "matplotlib"}
print(json.dumps(sorted({m.partition(".")[0] for m in sys.modules} & heavy)))
"""


def test_rooms_of_the_robots_computer_load_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
