"""The catalogue of robots: our own by name, MuJoCo Menagerie's by `menagerie:NAME`, any model by the path of its config.

`held:` before any of these is the robot on a stand, whose limbs move in the air; `servo:` is one with torque motors behind
position controllers.
"""

from __future__ import annotations

from collections.abc import Callable

from isthmus.core.errors import BadInput, unknown_name
from isthmus.robots.cartpole import cartpole
from isthmus.robots.crazyflie import crazyflie
from isthmus.robots.fixed_base import HELD_PREFIX, fixed_base
from isthmus.robots.from_model.build import external_robot, is_external
from isthmus.robots.go1 import go1
from isthmus.robots.pendulum import pendulum
from isthmus.robots.position_drive import SERVO_PREFIX, position_drive
from isthmus.sim.morphology import Arm, CameraMount, Foot, Leg, Mirror, Morphology, PayloadMount, Root, Rotor
from isthmus.sim.robot import MotorParams, Robot

__all__ = [
    "ROBOTS",
    "ROBOT_NAME_HELP",
    "Arm",
    "CameraMount",
    "Foot",
    "Leg",
    "Mirror",
    "Morphology",
    "MotorParams",
    "PayloadMount",
    "Robot",
    "Root",
    "Rotor",
    "cartpole",
    "crazyflie",
    "fixed_base",
    "get_robot",
    "go1",
    "pendulum",
    "position_drive",
]

ROBOTS: dict[str, Callable[[], Robot]] = {"cartpole": cartpole, "crazyflie": crazyflie, "go1": go1, "pendulum": pendulum}

ROBOT_NAME_HELP = (
    f"a robot is a name ({', '.join(sorted(ROBOTS))}), menagerie:NAME, a model file (MJCF or URDF: .xml, .mjcf, .urdf) or a "
    "robot config (.toml)"
)
"""What may be given as a robot, in words."""


def get_robot(name: str) -> Robot:
    """The robot of a name in `isthmus list`, `menagerie:NAME`, a model or config file; `held:` before it fixes its base."""
    if name.startswith(HELD_PREFIX):
        return fixed_base(get_robot(name.removeprefix(HELD_PREFIX)))
    if name.startswith(SERVO_PREFIX):
        return position_drive(get_robot(name.removeprefix(SERVO_PREFIX)))
    if name in ROBOTS:
        return ROBOTS[name]()
    if is_external(name):
        return external_robot(name)
    error = unknown_name("robot", name, ROBOTS)
    if "did you mean" in str(error):
        raise error
    raise BadInput(f"{name!r} is not a robot: {ROBOT_NAME_HELP}.")
