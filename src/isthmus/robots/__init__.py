"""The catalogue of robots: our own by name, MuJoCo Menagerie's by `menagerie:NAME`, any model by the path of its config."""

from __future__ import annotations

from collections.abc import Callable

from isthmus.errors import unknown
from isthmus.robots.go1 import go1
from isthmus.sim.robot import Robot

ROBOTS: dict[str, Callable[[], Robot]] = {"go1": go1}


def get_robot(name: str) -> Robot:
    if name in ROBOTS:
        return ROBOTS[name]()
    raise unknown("robot", name, ROBOTS)
