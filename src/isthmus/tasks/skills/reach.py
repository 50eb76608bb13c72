"""Bring the end effector of a fixed arm to a commanded point and hold it there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product

import mujoco
import numpy as np
import torch
from torch import Tensor

from isthmus.data.contract import NO_LIMIT, Signal
from isthmus.robots.position_drive import position_drive, takes_joint_angles
from isthmus.sim.indexing import Indexing, driven_joint_columns
from isthmus.sim.robot import Robot
from isthmus.tasks import terms
from isthmus.tasks.skill import Skill, missing_signals
from isthmus.tasks.state import State
from isthmus.tasks.task import Command, CriticTerm, ObservationTerm, PolicySpec, RewardTerm, Task

XYZ = ("x", "y", "z")
WORKSPACE_SAMPLES = 2000
"""Random poses from which the box of commanded points is derived."""
WORKSPACE_QUANTILES = (0.15, 0.85)
"""Of the sampled positions along each axis: the first guess of the box."""
MAX_CORNER_DISTANCE = 0.05
"""Of the box's diagonal: how far its corners may be from the nearest sampled position."""
MAX_BOX_SHRINKS = 40
"""Steps of 10 %; after that the box is a point."""
MAX_JOINT_RANGE = 0.8
"""rad about home that sampled poses and actions use at most."""


@dataclass(frozen=True)
class Settings:
    low: tuple[float, float, float]
    """m in the world: corner of the box of commanded points."""
    high: tuple[float, float, float]
    """m: the opposite corner."""
    width: float
    """m of distance at which the reward has fallen to 1/e."""
    action_scale: tuple[float, ...]
    """rad or m per unit of action, by joint."""
    start_joint_range: float = 0.3
    """rad or m about the home pose."""
    episode: float = 4.0
    """s."""

    @staticmethod
    def for_robot(robot: Robot) -> Settings:
        reach = _joint_reach(robot)
        points = _sampled_points(robot, reach)
        low, high = _reachable_box(points)
        size = float(np.linalg.norm(high - low))
        corners = (tuple(round(float(x), 4) for x in corner) for corner in (low, high))
        return Settings(*corners, width=max(0.2 * size, 0.01), action_scale=tuple(reach.tolist()))  # type: ignore[arg-type]


def _reachable_box(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest corner of a box all of whose corners are near sampled points, (samples, 3): m, (3,) each."""
    low, high = (np.quantile(points, q, axis=0) for q in WORKSPACE_QUANTILES)
    centre, half = points[np.argmin(np.linalg.norm(points - (low + high) / 2, axis=1))], (high - low) / 2
    signs = np.array(list(product((-1.0, 1.0), repeat=3)))
    near = MAX_CORNER_DISTANCE * float(np.linalg.norm(2 * half))
    for _ in range(MAX_BOX_SHRINKS):
        corners = centre + signs * half
        apart = np.linalg.norm(points[None] - corners[:, None], axis=2).min(1)
        if apart.max() <= near:
            break
        half = 0.9 * half
    return centre - half, centre + half


def _joint_reach(robot: Robot) -> np.ndarray:
    """How far each target may move from the default, at most MAX_JOINT_RANGE, (m,)."""
    target, default = robot.contract.target, np.array(robot.default)
    low, high = np.array(target.low or (-NO_LIMIT,) * target.size), np.array(target.high or (NO_LIMIT,) * target.size)
    return np.minimum(MAX_JOINT_RANGE, np.maximum(np.minimum(default - low, high - default), 0.25 * (high - low)))


def _sampled_points(robot: Robot, reach: np.ndarray) -> np.ndarray:
    """End effector positions of random poses within reach, m, (samples, 3)."""
    model, rng, target = robot.model, np.random.default_rng(0), robot.contract.target
    data, site = mujoco.MjData(model), model.site(robot.morphology.arms[0].end_effector).id
    q, points = Indexing.of(robot).joints(target.labels)[0], np.zeros((WORKSPACE_SAMPLES, 3))
    for i in range(WORKSPACE_SAMPLES):
        data.qpos[:] = robot.home
        data.qpos[q] = np.clip(
            np.array(robot.default) + reach * rng.uniform(-1, 1, len(q)), target.low or None, target.high or None
        )
        mujoco.mj_kinematics(model, data)
        points[i] = data.site_xpos[site]
    return points


def requires(robot: Robot) -> str | None:
    body = robot.morphology
    if body.floats:
        return "its root moves freely; reach is for a fixed base"
    if body.lacks("arms"):
        return f"{body.lacks('arms')}; name a site as `end_effector` in a config"
    if not takes_joint_angles(robot):
        return "its targets are not the angles of the joints that joint_pos shows; give kp and kd in a config"
    return missing_signals(robot, ("joint_pos", "joint_vel"))


def prepare(robot: Robot) -> Robot:
    """An arm with plain torque motors gets position controllers."""
    torque = robot.morphology.arms and robot.motors.drive == "effort" and driven_joint_columns(robot, robot.model) is not None
    return position_drive(robot) if torque else robot


def end_effector(s: State) -> Tensor:
    """World position of the first arm's end effector, (n, 3), m."""
    assert s.end_effector_pos is not None
    return s.end_effector_pos[:, 0]


def distance(s: State) -> Tensor:
    """From the end effector to the commanded point, m."""
    return (end_effector(s) - s.command).norm(dim=1)


def reach_score(s: State, width: float) -> Tensor:
    """exp(-(distance / width)²); width in m."""
    return torch.exp(-(distance(s) / width).square())


def approach_reward(s: State, width: float) -> Tensor:
    """1 / (1 + (distance / width)²): felt from far away too; width in m."""
    return 1.0 / (1.0 + (distance(s) / width).square())


def joint_speed(s: State) -> Tensor:
    """Sum of squared joint velocities, (rad/s)²."""
    return s.joint_vel.square().sum(1)


def _initial_state(
    rng: np.random.Generator, k: int, robot: Robot, width: float, *, settings: Settings
) -> tuple[np.ndarray, np.ndarray]:
    """At rest about the home pose."""
    target, size = robot.contract.target, settings.start_joint_range
    qpos, joints = np.tile(np.array(robot.home), (k, 1)), Indexing.of(robot).joints(target.labels)[0]
    moved = qpos[:, joints] + width * rng.uniform(-size, size, (k, len(joints)))
    qpos[:, joints] = np.clip(moved, target.low or None, target.high or None)
    return qpos, np.zeros((k, robot.model.nv))


def task(name: str, robot: Robot, settings: Settings) -> Task:
    c, joints = settings, robot.contract.target.labels
    score = partial(reach_score, width=c.width)
    return Task(
        name=name,
        doc="bring the end effector to a commanded point and hold it there",
        robot=robot,
        episode=c.episode,
        command=Command(Signal("command", "m", XYZ, "world", c.low, c.high), resample_interval=(2.0, 4.0), zero_fraction=0.0),
        rewards=(
            RewardTerm("near", 2.0, score),
            RewardTerm("approach", 1.0, partial(approach_reward, width=2 * c.width)),
            RewardTerm("joint_speed", -0.005, joint_speed),
            RewardTerm("action_rate", -0.01, terms.action_rate),
            RewardTerm("joint_limits", -1.0, terms.joint_limits),
        ),
        score=score,
        success_threshold=0.5,
        metrics={"distance": distance, "power": terms.energy},
        policy=PolicySpec(
            observations=(
                ObservationTerm("joint_pos", "offset"),
                ObservationTerm("joint_vel", scale=0.1),
                ObservationTerm("command", scale=1.0 / max(abs(x) for x in (*c.low, *c.high))),
            ),
            action_scale=c.action_scale,
            action_clip=1.5,
        ),
        start=partial(_initial_state, settings=c),
        critic=(
            CriticTerm("error", XYZ, lambda s: (end_effector(s) - s.command) / c.width),
            CriticTerm("joint_pos", joints, lambda s: s.joint_pos - s.default),
            CriticTerm("joint_vel", joints, lambda s: s.joint_vel * 0.1),
            CriticTerm("target", joints, lambda s: s.target - s.default),
        ),
    )


SKILL = Skill("reach", "bring the end effector of an arm to a point", requires, Settings.for_robot, task, prepare)
