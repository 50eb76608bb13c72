"""The catalogue of robots: our own by name, MuJoCo Menagerie's by `menagerie:NAME`, any model by the path of its config.

`held:` before any of these is the robot on a stand, whose limbs move in the air.
"""

from __future__ import annotations

from collections.abc import Callable

from isthmus.errors import unknown
from isthmus.robots.cartpole import cartpole
from isthmus.robots.crazyflie import crazyflie
from isthmus.robots.external import external, is_external
from isthmus.robots.go1 import go1
from isthmus.robots.held import HELD, held
from isthmus.robots.pendulum import pendulum
from isthmus.sim.robot import Robot

ROBOTS: dict[str, Callable[[], Robot]] = {"cartpole": cartpole, "crazyflie": crazyflie, "go1": go1, "pendulum": pendulum}


def get_robot(name: str) -> Robot:
    if name.startswith(HELD):
        return held(get_robot(name.removeprefix(HELD)))
    if name in ROBOTS:
        return ROBOTS[name]()
    if is_external(name):
        return external(name)
    raise unknown("robot", name, ROBOTS)
