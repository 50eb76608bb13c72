"""A robot with torque motors behind joint position controllers: the same model, with position targets and derived gains.

`servo:` before a robot's name. Legged skills need joint angles as targets; models with plain motors take torques.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.data.contract import NO_LIMIT, Signal
from isthmus.robots.dimensions import joint_inertia
from isthmus.robots.parameters import factor, space_and_prior
from isthmus.sim.indexing import driven_joint_columns
from isthmus.sim.robot import Robot
from isthmus.world import Belief, Space

SERVO_PREFIX = "servo:"
SATURATION_ERROR = 0.68
"""rad of position error at which the torque limit is reached: go1's 23.7 N·m at 35 N·m/rad."""
DAMPING_RATIO = 0.35
"""Of a joint about its inertia at home. Policies walk with less than critical damping: go1's 0.5 N·m·s/rad is about this."""


def position_drive(robot: Robot) -> Robot:
    """The robot with position targets; gains are derived from torque limits and inertias."""
    columns = driven_joint_columns(robot, robot.model)
    limits = np.array(robot.motors.torque_limit or (np.inf,))
    if robot.motors.drive != "effort" or columns is None:
        raise BadInput(f"{robot.name} has no torque motors on its joints: drive is {robot.motors.drive!r}.")
    if not np.isfinite(limits).all() or limits.max() >= NO_LIMIT:
        raise BadInput(f"{robot.name} needs torque limits from which gains can be derived: give kp and kd in a config.")
    labels, model = robot.contract.target.labels, robot.model
    kp = limits / SATURATION_ERROR
    kd = 2.0 * DAMPING_RATIO * np.sqrt(kp * joint_inertia(robot)[columns[1]])
    ranges = [model.joint(j).range if model.jnt_limited[model.joint(j).id] else (-NO_LIMIT, NO_LIMIT) for j in labels]
    gains = {"kp": tuple(kp.tolist()), "kd": tuple(kd.tolist())}
    low, high = (tuple(float(r[end]) for r in ranges) for end in (0, 1))
    name = f"{robot.name}_servo"
    default = tuple(float(x) for x in np.clip(np.array(robot.home)[columns[0]], low, high))
    safety = robot.contract.safety
    contract = replace(
        robot.contract,
        robot=name,
        target=Signal("joint_target", "rad", labels, "", low, high),
        gains=gains,
        safety=replace(safety, rest=default if safety.rest else ()),
    )
    more, wide = space_and_prior(
        (
            factor("kp", "motor:.*/kp", (0.3, 3.0), (0.85, 1.15), doc="proportional gain of the motor controllers"),
            factor("kd", "motor:.*/kd", (0.3, 3.0), (0.75, 1.3), doc="derivative gain of the motor controllers"),
        )
    )
    space = Space((*robot.space.params, *more.params))
    return replace(
        robot,
        name=name,
        doc=f"{robot.doc}, behind position controllers",
        contract=contract,
        motors=replace(robot.motors, drive="position", **gains),
        space=space,
        prior=Belief(space, (*robot.prior.factors, *wide.factors)),
        default=default,
    )


def takes_joint_angles(robot: Robot) -> bool:
    """Whether the targets are angles of joints, and the signals show the same joints in the same order."""
    names = {s.name: s.labels for s in robot.contract.signals}
    target = robot.contract.target
    on_joints = driven_joint_columns(robot, robot.model) is not None
    return on_joints and target.name == "joint_target" and names.get("joint_pos") == target.labels
