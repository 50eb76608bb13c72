"""Robots of the MuJoCo Menagerie, where there is a copy of it."""

from __future__ import annotations

from functools import cache

import pytest

from isthmus.robots import get_robot
from isthmus.sim.robot import Robot
from support.paths import MENAGERIE as ROOT

needs_menagerie = pytest.mark.skipif(not ROOT.is_dir(), reason=f"no MuJoCo Menagerie at {ROOT}; set MENAGERIE_ROOT")


@cache
def menagerie(name: str) -> Robot:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MENAGERIE_ROOT", str(ROOT))
        return get_robot(f"menagerie:{name}")
