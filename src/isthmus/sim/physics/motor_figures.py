"""Nominal figures of a robot's motors, and which parameters of its Space write them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isthmus.sim.physics.motor_law import MOTOR_FIELD_DEFAULTS, MotorLaw
from isthmus.sim.robot import Robot
from isthmus.world import Target

GEAR_FIELDS = ("backlash", "spring")
"""Figures of which a motor has one at most."""


def nominal_motor_figures(robot: Robot) -> dict[str, np.ndarray]:
    """Nominal figures of all motors, (m,) per field."""
    size = robot.contract.target.size
    return MotorLaw(robot.motors_of_unit, size, float(robot.model.opt.timestep), frozenset()).nominal


def parameter_by_motor_field(robot: Robot) -> dict[str, str]:
    """Figures of motors, and the delay, that parameters of the robot's Space write already: field -> parameter."""
    found = {}
    for param in robot.space.params:
        for target in map(Target.parse, param.targets):
            if target.kind == "motor" or target.field == "action_delay":
                found[target.field] = param.name
    return found


def motor_parameters(robot: Robot) -> tuple[str, ...]:
    """All parameters of the robot's Space that write figures of motors or the delay, also several that share a figure."""
    kinds = {p.name: [Target.parse(t) for t in p.targets] for p in robot.space.params}
    return tuple(n for n, targets in kinds.items() if any(t.kind == "motor" or t.field == "action_delay" for t in targets))


def _rotor_inertias(robot: Robot, labels: Sequence[str]) -> np.ndarray:
    """Inertia of the rotors of these motors, which are on joints, kg·m²; 0 where the model has none."""
    return np.array([robot.model.joint(label).armature[0] for label in labels])


def supports_gear(robot: Robot, field: str, labels: Sequence[str]) -> bool:
    """Whether motors can have this gear: rotors, no other gear, and springs in all of them or none."""
    other = next(g for g in GEAR_FIELDS if g != field)
    if (nominal_motor_figures(robot)[other] != MOTOR_FIELD_DEFAULTS[other]).any() or (
        field == "spring" and len(labels) < robot.contract.target.size
    ):
        return False
    return bool(_rotor_inertias(robot, robot.contract.target.labels).all())
