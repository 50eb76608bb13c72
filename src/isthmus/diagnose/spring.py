"""Drives that bend: whether springs between motors and joints explain recordings better than rigid drives do.

A spring is no force that could be added to a rigid drive, so it is no `Block`. Instead springs of some stiffnesses are tried
with the numbers as they were found, in steps short enough for them; where drives are rigid, any spring makes it far worse. With
the best one numbers are searched for anew.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from isthmus.diagnose.base import Base
from isthmus.diagnose.doubts import finer
from isthmus.diagnose.numbers import fitted
from isthmus.gap.residual import Residual
from isthmus.gap.starts import costs
from isthmus.gap.tracks import Track
from isthmus.identify.descend import FIRST
from isthmus.identify.ladder import extended, geared, written
from isthmus.sim.robot import Robot
from isthmus.sim.sources import on_joints
from isthmus.world import Belief, Param

GAINS, TORQUES, TRIED = (4.0, 40.0), (5.0, 60.0), 12
"""Softest and stiffest spring that are tried, over the gain of a drive to positions, or over the torque per rad that another
may be asked for; and how many."""
PROMISING = 1.2
"""Times the cost without: a spring that makes it worse by more is none."""
STEP, STEPS = 0.0015, 4
"""s: longest step in which a spring is lived through; and how often starts are moved."""


@dataclass(frozen=True)
class Bent:
    stiffness: float
    """N·m/rad"""
    evidence: float
    """Log, over that of numbers inside the belief and rigid drives."""
    left: float
    """In units of the sensors' noise."""


def spring(at: Base, found: Sequence[Track], belief: Belief, threads: int = 0) -> Bent | None:
    """The one that explains recordings best; None if none is worth a search."""
    robot, ticks = at.fitted.residual.robot, at.fitted.residual.segments.ticks
    stiff = stiffnesses(robot)
    if not len(stiff):
        return None
    while float(robot.model.opt.timestep) > STEP:
        robot = finer(robot)
    cost = _costs(at, robot, belief, stiff)
    if cost.argmin() == TRIED - 1 or cost.min() > PROMISING * _costs(at, robot, belief).item():
        return None
    best = float(stiff[cost.argmin()])
    springs = {"spring": (best,) * robot.contract.target.size}
    bending = replace(robot, unit=replace(robot.unit, motors={**robot.unit.motors, **springs}))
    bent = fitted(bending, found, belief, threads, ticks, quick=True)
    rigid = at.fitted.cost
    if not at.fitted.residual.followed:
        # Shorter steps alone may do some of it. On its feet, where it takes long to look, they do not.
        rigid = min(rigid, fitted(robot, found, belief, threads, ticks, quick=True).cost)
    better = (rigid - bent.cost) * at.fitted.count / at.repeated
    evidence = better + at.quadratic.soft - bent.forced(belief, at.repeated) - float(np.log(TRIED))
    return Bent(best, evidence, bent.times)


def stiffnesses(robot: Robot) -> np.ndarray:
    """Those to try; none of a robot whose drives cannot bend here, or do so already."""
    target, motors = robot.contract.target, robot.driven
    if not on_joints(robot) or motors.spring or "spring" in written(robot) or not geared(robot, "spring", target.labels):
        return np.zeros(0)
    position = motors.drive == "position"
    most = motors.kp if position else target.high or motors.torque_limit or robot.contract.safety.effort
    if not most or not np.isfinite(most).all() or min(most) <= 0.0:
        return np.zeros(0)
    low, high = GAINS if position else TORQUES
    return np.geomspace(min(most) * low, min(most) * high, TRIED)


def _costs(at: Base, robot: Robot, belief: Belief, stiff: np.ndarray | None = None) -> np.ndarray:
    """(k,) of the numbers as they were found, with springs, (k,), or without; starts are moved to where they fit best."""
    residual = at.fitted.residual
    e = residual.world(at.fitted.point.z, at.lab.e)[None]
    if stiff is not None:
        motors = "|".join(map(re.escape, robot.contract.target.labels))
        low, high = float(stiff[0]), float(stiff[-1])
        param = Param("spring", "N·m/rad", low, low, high, (f"motor:({motors})/spring",), "log")
        robot, _ = extended(robot, belief, (param,))
        e = np.column_stack([np.repeat(e, len(stiff), axis=0), stiff])
    other = Residual(robot, residual.segments, residual.noise, (), residual.threads)
    return costs(other, e, at.xi, e[len(e) // 2], FIRST, STEPS)
