"""The family of motor laws, from the simplest up: each rung adds a few figures to the one below.

A rung is a set of parameters like any others, so that a law is fitted as numbers are, and two laws are compared by how well
they predict what they were not fitted to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from isthmus.data.contract import NO_LIMIT
from isthmus.sim.physics.motor_figures import (
    GEAR_FIELDS,
    _rotor_inertias,
    nominal_motor_figures,
    parameter_by_motor_field,
    supports_gear,
)
from isthmus.sim.physics.motor_law import MOTOR_FIELD_DEFAULTS, MOTOR_LAW_FIELDS, ROTOR_SUBSTEPS
from isthmus.sim.physics.motors import link_mobility
from isthmus.sim.physics.unit_physics import UnitPhysics
from isthmus.sim.robot import Robot
from isthmus.world import Param, Target


@dataclass(frozen=True)
class MotorLawTerm:
    name: str
    fields: tuple[str, ...]
    doc: str
    excludes: tuple[str, ...] = ()
    """Rungs below that it does not build on."""


MOTOR_LAW_TERMS = (
    MotorLawTerm("ideal", ("kp", "kd", "strength"), "gives what is asked, through its gains"),
    MotorLawTerm("limits", ("torque_limit", "speed_limit"), "and no more than the torque-speed line"),
    MotorLawTerm("viscous", ("viscous",), "loses torque in proportion to speed"),
    MotorLawTerm("coulomb", ("coulomb",), "and the same amount at any speed"),
    MotorLawTerm("lag", ("lag", "action_delay"), "answers late"),
    MotorLawTerm("stribeck", ("stribeck", "stribeck_speed"), "sticks more at rest than it slides"),
    MotorLawTerm("load", ("load_friction",), "loses more under load"),
    MotorLawTerm("backlash", ("backlash",), "has play in its gear", ("stribeck", "load")),
    MotorLawTerm("flex", ("spring",), "has a gear that bends", ("stribeck", "load", "backlash")),
)
LOSS_FIELDS = ("viscous", "coulomb", "lag", "stribeck", "load_friction", "backlash")
DEFAULT_TORQUE, DEFAULT_SPEED = 1.0, 10.0
"""N·m and rad/s of a motor of which neither is known."""
MAX_DELAY = 0.1
"""s"""
SPRING_STIFFNESS_MARGIN = 16.0
"""Times that the stiffest spring is softer than one which turns by a rad per step."""
MIN_SPRING_RANGE = 10.0
"""Softest and stiffest spring that are told apart from rigid differ at least by so much."""
LAW_PARAMETER_PREFIX = "motor_"
"""What names of parameters of a law begin with."""
DELAY_PARAMETER = f"{LAW_PARAMETER_PREFIX}action_delay"
"""Parameter of a law: how long a command takes."""


def motor_figures_without_losses(robot: Robot, labels: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Figures of a unit whose motors `labels` have no friction, no lag and no play: the foot of the ladder."""
    nominal, which = nominal_motor_figures(robot), [robot.contract.target.component_index(label) for label in labels]
    found = {}
    for field in LOSS_FIELDS:
        row = nominal[field].copy()
        row[which] = 0.0
        found[field] = tuple(map(float, row))
    return found


def law_parameters(robot: Robot, labels: Sequence[str], term: MotorLawTerm) -> tuple[Param, ...]:
    """Parameters of a rung for the motors `labels`, but for those that the robot's Space has or that its drive lacks."""
    nominal, drive, known = nominal_motor_figures(robot), robot.motors.drive, parameter_by_motor_field(robot)
    which = [robot.contract.target.component_index(label) for label in labels]
    effort = np.array(robot.contract.safety.effort or (NO_LIMIT,) * robot.contract.target.size)
    torque = np.minimum(nominal["torque_limit"], effort)[which]
    torque = float(torque.max()) if (torque < NO_LIMIT).all() else DEFAULT_TORQUE
    line = nominal["speed_limit"][which]
    speed = float(line.max()) if np.isfinite(line).all() else DEFAULT_SPEED
    motors = f"motor:({'|'.join(map(re.escape, labels))})"
    scales = {"kp": 5.0, "kd": 20.0, "strength": 5.0, "torque_limit": 5.0, "speed_limit": 10.0}
    spans = {
        "viscous": ("N·m·s/rad", 0.0, torque / speed),
        "coulomb": ("N·m", 0.0, 0.5 * torque),
        "stribeck": ("N·m", 0.0, 0.5 * torque),
        "load_friction": ("1", 0.0, 0.9),
        "backlash": ("rad", 0.0, 0.2),
        "lag": ("s", 0.0, 0.1),
    }
    found = []
    for field in term.fields:
        if field in known or (field in ("kp", "kd") and drive != "position"):
            continue
        # The gains of a position drive say all that its strength could say, until its torque runs out.
        if field == "strength" and drive == "position":
            continue
        name = f"{LAW_PARAMETER_PREFIX}{field}"
        if field in scales:
            if np.isfinite(nominal[field][which]).all() and (nominal[field][which] > 0).all():
                factor = scales[field]
                found.append(Param(name, "1", 1.0, 1 / factor, factor, (f"{motors}/{field}",), "log", "scale"))
        elif field == "stribeck_speed":
            found.append(Param(name, "rad/s", MOTOR_FIELD_DEFAULTS[field], 0.01, 5.0, (f"{motors}/{field}",), "log"))
        elif field in GEAR_FIELDS and not supports_gear(robot, field, labels):
            continue
        elif field == "spring":
            if (stiffest := _stiffest_spring(robot, labels)) > MIN_SPRING_RANGE * torque:
                now = nominal[field][which].mean()
                at = float(np.clip(now, torque, stiffest) if np.isfinite(now) else np.sqrt(torque * stiffest))
                found.append(Param(name, "N·m/rad", at, torque, stiffest, (f"{motors}/{field}",), "log"))
        elif field == "action_delay":
            found.append(Param(name, "s", 0.0, 0.0, MAX_DELAY, ("link:.*/action_delay",)))
        else:
            unit, low, high = spans[field]
            now = float(np.clip(nominal[field][which].mean(), low, high))
            found.append(Param(name, unit, now, low, high, (f"{motors}/{field}",)))
    return tuple(found)


def _stiffest_spring(robot: Robot, labels: Sequence[str]) -> float:
    """N·m/rad of a spring behind these motors that physics steps can follow, with some room."""
    dofs, step = [int(robot.model.joint(label).dofadr[0]) for label in labels], float(robot.model.opt.timestep)
    link, rotor = 1.0 / link_mobility(robot, dofs).max(), _rotor_inertias(robot, labels).min()
    return float(min(link / step**2, rotor * (ROTOR_SUBSTEPS / step) ** 2)) / SPRING_STIFFNESS_MARGIN


def fitted_figures(robot: Robot, extra: Sequence[Param], values: dict[str, float]) -> dict[str, tuple[float, ...]]:
    """The figures that differ from the design's, found ones in place of nominal ones, for a unit."""
    nominal, labels = nominal_motor_figures(robot), robot.contract.target.labels
    for param in extra:
        target = Target.parse(param.targets[0])
        if target.kind != "motor":
            continue
        for i, label in enumerate(labels):
            if re.fullmatch(target.pattern, label):
                old = nominal[target.field][i]
                nominal[target.field][i] = old * values[param.name] if param.how == "scale" else values[param.name]
    design = nominal_motor_figures(replace(robot, unit=UnitPhysics()))
    return {f: tuple(map(float, nominal[f])) for f in MOTOR_LAW_FIELDS if (nominal[f] != design[f]).any()}
