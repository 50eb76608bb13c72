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
from isthmus.sim.physics.motor_law import MOTOR_FIELD_DEFAULTS, MOTOR_LAW_FIELDS, ROTOR_SUBSTEPS, MotorLaw
from isthmus.sim.physics.unit_physics import UnitPhysics
from isthmus.sim.reality.gearbox import link_mobility
from isthmus.sim.robot import Robot
from isthmus.world import Belief, Param, Target
from isthmus.world.factors import LogUniform, Uniform


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
GEAR_FIELDS = ("backlash", "spring")
"""Figures of which a motor has one at most."""
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


def nominal_motor_figures(robot: Robot) -> dict[str, np.ndarray]:
    """Nominal figures of all motors, (m,) per field."""
    size = robot.contract.target.size
    return MotorLaw(robot.motors_of_unit, size, float(robot.model.opt.timestep), frozenset()).nominal


def motor_figures_without_losses(robot: Robot, labels: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Figures of a unit whose motors `labels` have no friction, no lag and no play: the foot of the ladder."""
    nominal, which = nominal_motor_figures(robot), [robot.contract.target.component_index(label) for label in labels]
    found = {}
    for field in LOSS_FIELDS:
        row = nominal[field].copy()
        row[which] = 0.0
        found[field] = tuple(map(float, row))
    return found


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


def _stiffest_spring(robot: Robot, labels: Sequence[str]) -> float:
    """N·m/rad of a spring behind these motors that physics steps can follow, with some room."""
    dofs, step = [int(robot.model.joint(label).dofadr[0]) for label in labels], float(robot.model.opt.timestep)
    link, rotor = 1.0 / link_mobility(robot, dofs).max(), _rotor_inertias(robot, labels).min()
    return float(min(link / step**2, rotor * (ROTOR_SUBSTEPS / step) ** 2)) / SPRING_STIFFNESS_MARGIN


def reset_to_bounds(belief: Belief, names: Sequence[str]) -> Belief:
    """A belief that knows no more of the named parameters than their bounds."""
    return belief.with_factors(*(_uniform_over_bounds(belief.space[name]) for name in names))


def _uniform_over_bounds(p: Param) -> Uniform | LogUniform:
    return (LogUniform if p.scale == "log" else Uniform)(p.name, p.low, p.high)


def extend_space(robot: Robot, belief: Belief, extra: Sequence[Param]) -> tuple[Robot, Belief]:
    """The robot with more parameters, about which nothing is known but their bounds."""
    space = type(robot.space)((*robot.space.params, *extra))
    wide = Belief(space, (*belief.factors, *map(_uniform_over_bounds, extra)))
    return replace(robot, space=space, prior=wide), wide


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
