"""Walk: follow a commanded velocity on legs.

Settings are derived from the robot: the command range from the leg length (walking ends at a Froude number v²/(g L) of about
0.34), heights from how it stands, weights of power and torque from its mass and its motors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import mujoco
import numpy as np

from isthmus.core.constants import MODEL_GRAVITY
from isthmus.data.contract import Signal
from isthmus.robots.dimensions import at_home, foot_positions, leg_length, standing_height, total_mass
from isthmus.robots.position_drive import position_drive, takes_joint_angles
from isthmus.sim.indexing import Indexing, driven_joint_columns
from isthmus.sim.morphology import Leg
from isthmus.sim.physics.disturbances import Disturbance
from isthmus.sim.robot import Robot
from isthmus.tasks import terms
from isthmus.tasks.skill import Skill, missing_signals
from isthmus.tasks.task import Command, CriticTerm, GaitClock, Level, ObservationTerm, PolicySpec, RewardTerm, Task

XYZ = ("x", "y", "z")
FROUDE_NUMBER = 0.34
"""v²/(g L) up to which animals and robots walk or trot without effort."""
MAX_FORWARD = 1.0
"""m/s that is asked of any robot by default."""
REFERENCE_MASS = 12.74
"""kg of the Go1, on which weights were measured; weights of power and torque scale with mass and torque limit."""
REFERENCE_TORQUE = 23.7
"""N·m of the Go1's hip motors."""
IK_STEPS = 200
IK_DAMPING = 0.02
"""m² of the damped least-squares steps that find how the joints lift a foot."""


@dataclass(frozen=True)
class Settings:
    forward: float
    """m/s: largest commanded speed forward and backward."""
    sideways: float
    """m/s."""
    yaw: float
    """rad/s."""
    base_height: float
    """m of the root above the ground while walking."""
    min_height: float
    """m of the root above the ground below which the robot has fallen."""
    swing_height: float
    """m that a swinging foot should clear."""
    impact_force: float
    """N of contact force on a foot above which a landing is hard."""
    force_scale: float
    """N by which the critic's contact forces are divided."""
    gust_force: float
    """N."""
    energy_weight: float
    """Reward per W of mechanical power."""
    effort_weight: float
    """Reward per (N·m)²."""
    phase: tuple[float, ...]
    """Phase of each target's gait clock, cycles."""
    lift: tuple[float, ...]
    """rad by which each joint moves to lift its foot."""
    step_frequency: float = 3.0
    """Steps per second of one leg."""
    action_scale: float = 0.3
    """rad per unit of action."""
    push_speed: float = 0.5
    """m/s."""
    start_joint_range: float = 0.15
    """rad about the home pose."""
    start_velocity: float = 0.3
    """rad/s and m/s."""
    episode: float = 10.0
    """s."""

    @staticmethod
    def for_robot(robot: Robot) -> Settings:
        legs = robot.morphology.legs
        length, height, mass = min(leg_length(robot, leg) for leg in legs), standing_height(robot), total_mass(robot)
        forward = min(MAX_FORWARD, (FROUDE_NUMBER * MODEL_GRAVITY * length) ** 0.5)
        torque = float(np.median(robot.motors.torque_limit or robot.contract.safety.effort or (REFERENCE_TORQUE,)))
        swing = 0.25 * min(height, 0.4)
        return Settings(
            forward=forward,
            sideways=forward / 2,
            yaw=1.0,
            base_height=height - 0.02,
            min_height=0.5 * height,
            swing_height=swing,
            impact_force=3.2 * mass * MODEL_GRAVITY / len(legs),
            force_scale=1.6 * mass * MODEL_GRAVITY / len(legs),
            gust_force=0.024 * mass * MODEL_GRAVITY,
            energy_weight=-0.0005 * REFERENCE_MASS / mass,
            effort_weight=-0.0001 * (REFERENCE_TORQUE / torque) ** 2,
            phase=_alternating_phases(robot),
            lift=_lift_angles(robot, 0.9 * swing),
        )


def _alternating_phases(robot: Robot) -> tuple[float, ...]:
    """Phase of each target, cycles: two legs alternate, of four the diagonal ones step together."""
    places, legs = foot_positions(robot), robot.morphology.legs
    front = places[:, 0] >= places[:, 0].mean() - 1e-3
    phases = {}
    for leg, ahead in zip(legs, front, strict=True):
        phases |= dict.fromkeys(leg.joints, 0.0 if ahead == (leg.side == "right") else 0.5)
    return tuple(phases.get(label, 0.0) for label in robot.contract.target.labels)


def _lift_angles(robot: Robot, height: float) -> tuple[float, ...]:
    """Change of each target that lifts its foot by `height` m at home, straight up: damped least squares on each leg."""
    change: dict[str, float] = {}
    for leg in robot.morphology.legs:
        change |= _lift_one(robot, leg, height)
    return tuple(round(change.get(label, 0.0), 3) for label in robot.contract.target.labels)


def _lift_one(robot: Robot, leg: Leg, height: float) -> dict[str, float]:
    model, data, at = robot.model, at_home(robot), Indexing.of(robot)
    q, v = at.joints(leg.joints)
    geom = model.geom(leg.foot.geoms[0]).id
    goal, jacobian, start = data.geom_xpos[geom] + [0.0, 0.0, height], np.zeros((3, model.nv)), data.qpos[q].copy()
    low, high = (model.jnt_range[[model.joint(j).id for j in leg.joints], end] for end in (0, 1))
    limited = model.jnt_limited[[model.joint(j).id for j in leg.joints]].astype(bool)
    for _ in range(IK_STEPS):
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_jacGeom(model, data, jacobian, None, geom)
        j = jacobian[:, v]
        step = j.T @ np.linalg.solve(j @ j.T + IK_DAMPING * np.eye(3), goal - data.geom_xpos[geom])
        moved = data.qpos[q] + step
        data.qpos[q] = np.where(limited, np.clip(moved, low, high), moved)
    return dict(zip(leg.joints, (data.qpos[q] - start).tolist(), strict=True))


def requires(robot: Robot) -> str | None:
    lacks = robot.morphology.lacks("floats", "legs")
    if lacks:
        return f"{lacks}; name them as `feet` in a config" if robot.morphology.floats else lacks
    if not takes_joint_angles(robot):
        return "its targets are not the angles of the joints that joint_pos shows; give kp and kd in a config"
    return missing_signals(robot, ("gyro", "quat", "joint_pos", "joint_vel"))


def prepare(robot: Robot) -> Robot:
    """Legs with plain torque motors get position controllers."""
    torque = robot.morphology.legged and robot.motors.drive == "effort" and driven_joint_columns(robot, robot.model) is not None
    return position_drive(robot) if torque else robot


def _initial_state(
    rng: np.random.Generator, k: int, robot: Robot, width: float, *, settings: Settings
) -> tuple[np.ndarray, np.ndarray]:
    """Standing, turned anywhere, a little crouched or moving."""
    at = Indexing.of(robot)
    qpos = np.tile(np.array(robot.home), (k, 1))
    yaw = rng.uniform(-np.pi, np.pi, k)
    w = at.root.qpos.start + 3
    qpos[:, w], qpos[:, w + 3] = np.cos(yaw / 2), np.sin(yaw / 2)
    joints = at.joints(robot.contract.target.labels)[0]
    size = settings.start_joint_range
    qpos[:, joints] += width * rng.uniform(-size, size, (k, len(joints)))
    qvel = width * rng.uniform(-settings.start_velocity, settings.start_velocity, (k, robot.model.nv))
    return qpos, qvel


def _tracking_score(s):
    return terms.track_velocity(s) * terms.track_yaw(s)


def task(name: str, robot: Robot, settings: Settings) -> Task:
    c, joints, legs = settings, robot.contract.target.labels, robot.morphology.legs
    names = tuple(leg.name for leg in legs)
    right, left = ([i for i, leg in enumerate(legs) if leg.side == side] for side in ("right", "left"))
    ranges = (c.forward, c.sideways, c.yaw)
    command = Signal("command", "m/s, m/s, rad/s", ("forward", "sideways", "yaw"), "body", tuple(-x for x in ranges), ranges)
    return Task(
        name=name,
        doc="follow a commanded velocity on flat ground",
        robot=robot,
        episode=c.episode,
        command=Command(command),
        rewards=(
            RewardTerm("track_velocity", 1.5, terms.track_velocity),
            RewardTerm("track_yaw", 0.75, terms.track_yaw),
            RewardTerm("bounce", -1.0, terms.bounce),
            RewardTerm("wobble", -0.05, terms.wobble),
            RewardTerm("tilt", -1.0, terms.tilt),
            RewardTerm("height", -10.0, partial(terms.height_error, height=c.base_height)),
            RewardTerm("energy", c.energy_weight, terms.energy),
            RewardTerm("effort", c.effort_weight, terms.effort),
            RewardTerm("action_rate", -0.02, terms.action_rate),
            RewardTerm("action_jerk", -0.01, terms.action_jerk),
            RewardTerm("joint_acceleration", -1e-7, terms.joint_acceleration),
            RewardTerm("joint_limits", -1.0, terms.joint_limits),
            RewardTerm("air_time", 0.5, terms.air_time),
            RewardTerm("foot_clearance", -1.0, partial(terms.foot_clearance, height=c.swing_height)),
            RewardTerm("slip", -0.05, terms.slip),
            RewardTerm("impact", -0.05, partial(terms.impact, force_threshold=c.impact_force)),
            RewardTerm("asymmetry", -0.02, partial(terms.asymmetry, right=right, left=left)),
            RewardTerm("pose", -0.05, terms.pose),
            RewardTerm("pose_at_rest", -0.3, terms.pose_at_rest),
        ),
        only_positive_rewards=True,
        terminations=(RewardTerm("fell", 0.0, partial(terms.fell, min_height=c.min_height)),),
        score=_tracking_score,
        success_threshold=0.5,
        metrics={
            "velocity_error": lambda s: (s.command[:, :2] - s.lin_vel[:, :2]).norm(dim=1),
            "yaw_error": lambda s: (s.command[:, 2] - s.ang_vel[:, 2]).abs(),
            "power": terms.energy,
        },
        policy=PolicySpec(
            observations=(
                ObservationTerm("gyro", scale=0.25),
                ObservationTerm("quat", "gravity"),
                ObservationTerm("command"),
                ObservationTerm("joint_pos", "offset"),
                ObservationTerm("joint_vel", scale=0.05),
            ),
            action_scale=c.action_scale,
            history=3,
            gait_clock=GaitClock(frequency=c.step_frequency, offset=c.phase, lift=c.lift, gate="command"),
        ),
        start=partial(_initial_state, settings=c),
        disturbance=Disturbance(push_speed=c.push_speed, push_every=(3.0, 6.0), gust_force=c.gust_force),
        levels=(
            Level("step", command=0.6, width=0.5, disturbance=0.2, score=0.3),
            Level("full", command=1.0, width=1.0, disturbance=1.0),
        ),
        critic=(
            CriticTerm("lin_vel", XYZ, lambda s: s.lin_vel),
            CriticTerm("gyro", XYZ, lambda s: s.ang_vel),
            CriticTerm("gravity", XYZ, lambda s: s.projected_gravity),
            CriticTerm("height", ("z",), lambda s: s.height[:, None] * 5),
            CriticTerm("joint_pos", joints, lambda s: s.joint_pos - s.default),
            CriticTerm("joint_vel", joints, lambda s: s.joint_vel * 0.05),
            CriticTerm("target", joints, lambda s: s.target - s.default),
            CriticTerm("last_target", joints, lambda s: s.last_target - s.default),
            CriticTerm("feet_force", names, lambda s: s.feet_force / c.force_scale),
            CriticTerm("feet_height", names, lambda s: (s.feet_pos[..., 2] - s.feet_ground) * 10),
            CriticTerm("air_time", names, lambda s: s.air_time),
        ),
        privileged=("lin_vel",),
    )


SKILL = Skill("walk", "follow a commanded velocity on legs", requires, Settings.for_robot, task, prepare)
