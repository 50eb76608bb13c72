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

from isthmus.real2sim.diagnose.baseline import EvidenceBaseline
from isthmus.real2sim.diagnose.baseline_fit import fit_parameters
from isthmus.real2sim.diagnose.extended_parameters import with_finer_steps
from isthmus.real2sim.prepare.tracks import Track
from isthmus.real2sim.residual.gauss_newton import FIRST_DERIVATIVE_STEP
from isthmus.real2sim.residual.prior import extend_space
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.real2sim.residual.segment_starts import costs_with_best_starts
from isthmus.sim.indexing import drives_joints
from isthmus.sim.physics.motor_figures import parameter_by_motor_field, supports_gear
from isthmus.sim.robot import Robot
from isthmus.world import Belief, Param

STIFFNESS_OVER_GAIN, STIFFNESS_OVER_TORQUE, STIFFNESS_COUNT = (4.0, 40.0), (5.0, 60.0), 12
"""Softest and stiffest spring that are tried, over the gain of a drive to positions, or over the torque per rad that another
may be asked for; and how many."""
MAX_COST_RATIO = 1.2
"""Times the cost without: a spring that makes it worse by more is none."""
MAX_PHYSICS_STEP, START_STEPS = 0.0015, 4
"""s: longest step in which a spring is lived through; and how often starts are moved."""


@dataclass(frozen=True)
class JointFlexibility:
    stiffness: float
    """N·m/rad"""
    evidence: float
    """Log, over that of numbers inside the belief and rigid drives."""
    noise_ratio: float
    """In units of the sensors' noise."""


def fit_joint_flexibility(
    baseline: EvidenceBaseline, tracks: Sequence[Track], belief: Belief, threads: int = 0
) -> JointFlexibility | None:
    """The one that explains recordings best; None if none is worth a search."""
    robot, ticks = baseline.fit.residual.robot, baseline.fit.residual.segments.ticks
    stiff = candidate_stiffnesses(robot)
    if not len(stiff):
        return None
    while float(robot.model.opt.timestep) > MAX_PHYSICS_STEP:
        robot = with_finer_steps(robot)
    cost = _costs_with_springs(baseline, robot, belief, stiff)
    if (
        cost.argmin() == STIFFNESS_COUNT - 1
        or cost.min() > MAX_COST_RATIO * _costs_with_springs(baseline, robot, belief).item()
    ):
        return None
    best = float(stiff[cost.argmin()])
    springs = {"spring": (best,) * robot.contract.target.size}
    bending = replace(robot, unit=replace(robot.unit, motors={**robot.unit.motors, **springs}))
    bent = fit_parameters(bending, tracks, belief, threads, ticks, quick=True)
    rigid = baseline.fit.cost
    if baseline.fit.residual.estimator.smooth:
        # Shorter steps alone may do some of it. On its feet, where it takes long to look, they do not.
        rigid = min(rigid, fit_parameters(robot, tracks, belief, threads, ticks, quick=True).cost)
    better = (rigid - bent.cost) * baseline.fit.comparison_count / baseline.tick_redundancy
    evidence = (
        better
        + baseline.laplace.outside_gain
        - bent.cost_inside_belief(belief, baseline.tick_redundancy)
        - float(np.log(STIFFNESS_COUNT))
    )
    return JointFlexibility(best, evidence, bent.noise_ratio)


def candidate_stiffnesses(robot: Robot) -> np.ndarray:
    """Those to try; none of a robot whose drives cannot bend here, or do so already."""
    target, motors = robot.contract.target, robot.motors_of_unit
    if (
        not drives_joints(robot)
        or motors.spring
        or "spring" in parameter_by_motor_field(robot)
        or not supports_gear(robot, "spring", target.labels)
    ):
        return np.zeros(0)
    position = motors.drive == "position"
    most = motors.kp if position else target.high or motors.torque_limit or robot.contract.safety.effort
    if not most or not np.isfinite(most).all() or min(most) <= 0.0:
        return np.zeros(0)
    low, high = STIFFNESS_OVER_GAIN if position else STIFFNESS_OVER_TORQUE
    return np.geomspace(min(most) * low, min(most) * high, STIFFNESS_COUNT)


def _costs_with_springs(
    baseline: EvidenceBaseline, robot: Robot, belief: Belief, spring_stiffness: np.ndarray | None = None
) -> np.ndarray:
    """(k,) of the numbers as they were found, with springs, (k,), or without; starts are moved to where they fit best."""
    residual = baseline.fit.residual
    e = residual.parameter_values(baseline.fit.point.z, baseline.extended.e)[None]
    if spring_stiffness is not None:
        motors = "|".join(map(re.escape, robot.contract.target.labels))
        low, high = float(spring_stiffness[0]), float(spring_stiffness[-1])
        param = Param("spring", "N·m/rad", low, low, high, (f"motor:({motors})/spring",), "log")
        robot, _ = extend_space(robot, belief, (param,))
        e = np.column_stack([np.repeat(e, len(spring_stiffness), axis=0), spring_stiffness])
    other = ParameterResidual(robot, residual.segments, residual.noise, (), residual.threads)
    return costs_with_best_starts(other, e, baseline.xi, e[len(e) // 2], FIRST_DERIVATIVE_STEP, START_STEPS)
