"""Go1 walks: follow a commanded velocity, on flat ground or on rough ground."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from isthmus.data.contract import Signal
from isthmus.robots.go1 import HOME_HEIGHT, JOINTS, LEG_JOINTS, LEGS, go1
from isthmus.sim.physics.disturbances import Disturbance
from isthmus.sim.robot import Robot
from isthmus.sim.scenes.terrain import Terrain
from isthmus.tasks import terms
from isthmus.tasks.task import (
    Command,
    CriticTerm,
    GaitClock,
    Level,
    ObservationTerm,
    ParameterShift,
    PolicySpec,
    RewardTerm,
    Task,
)

XYZ = ("x", "y", "z")
VELOCITY_COMMAND = Signal(
    "command", "m/s, m/s, rad/s", ("forward", "sideways", "yaw"), "body", (-1.0, -0.5, -1.0), (1.0, 0.5, 1.0)
)


def _trot_clock() -> GaitClock:
    """Diagonal legs together, half a cycle apart; a foot rises by about 7 cm."""
    offset = tuple(0.0 if leg in ("FR", "RL") else 0.5 for leg in LEGS for _ in LEG_JOINTS)
    lift = tuple({"hip": 0.0, "thigh": 0.25, "calf": -0.5}[part] for _ in LEGS for part in LEG_JOINTS)
    return GaitClock(frequency=3.0, offset=offset, lift=lift, gate="command")


TROT_CLOCK = _trot_clock()


def _initial_state(rng: np.random.Generator, k: int, robot: Robot, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Standing, turned anywhere, a little crouched or moving."""
    qpos = np.tile(np.array(robot.home), (k, 1))
    yaw = rng.uniform(-np.pi, np.pi, k)
    qpos[:, 3], qpos[:, 6] = np.cos(yaw / 2), np.sin(yaw / 2)
    qpos[:, 7:] += width * rng.uniform(-0.15, 0.15, (k, 12))
    qvel = width * rng.uniform(-0.3, 0.3, (k, 18))
    return qpos, qvel


def _tracking_score(s):
    return terms.track_velocity(s) * terms.track_yaw(s)


def go1_walk() -> Task:
    return Task(
        name="go1/walk",
        doc="follow a commanded velocity on flat ground",
        robot=go1(),
        episode=10.0,
        command=Command(VELOCITY_COMMAND),
        rewards=(
            RewardTerm("track_velocity", 1.5, terms.track_velocity),
            RewardTerm("track_yaw", 0.75, terms.track_yaw),
            RewardTerm("bounce", -1.0, terms.bounce),
            RewardTerm("wobble", -0.05, terms.wobble),
            RewardTerm("tilt", -1.0, terms.tilt),
            RewardTerm("height", -10.0, partial(terms.height_error, height=HOME_HEIGHT - 0.02)),
            RewardTerm("energy", -0.0005, terms.energy),
            RewardTerm("effort", -0.0001, terms.effort),
            RewardTerm("action_rate", -0.02, terms.action_rate),
            RewardTerm("action_jerk", -0.01, terms.action_jerk),
            RewardTerm("joint_acceleration", -1e-7, terms.joint_acceleration),
            RewardTerm("joint_limits", -1.0, terms.joint_limits),
            RewardTerm("air_time", 0.5, terms.air_time),
            RewardTerm("foot_clearance", -1.0, terms.foot_clearance),
            RewardTerm("slip", -0.05, terms.slip),
            RewardTerm("impact", -0.05, terms.impact),
            RewardTerm("asymmetry", -0.02, terms.asymmetry),
            RewardTerm("pose", -0.05, terms.pose),
            RewardTerm("pose_at_rest", -0.3, terms.pose_at_rest),
        ),
        only_positive_rewards=True,
        terminations=(RewardTerm("fell", 0.0, terms.fell),),
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
            action_scale=0.3,
            history=3,
            gait_clock=TROT_CLOCK,
        ),
        start=_initial_state,
        disturbance=Disturbance(push_speed=0.5, push_every=(3.0, 6.0), gust_force=3.0),
        levels=(
            Level("step", command=0.6, width=0.5, disturbance=0.2, score=0.3),
            Level("full", command=1.0, width=1.0, disturbance=1.0),
        ),
        critic=(
            CriticTerm("lin_vel", XYZ, lambda s: s.lin_vel),
            CriticTerm("gyro", XYZ, lambda s: s.ang_vel),
            CriticTerm("gravity", XYZ, lambda s: s.projected_gravity),
            CriticTerm("height", ("z",), lambda s: s.height[:, None] * 5),
            CriticTerm("joint_pos", JOINTS, lambda s: s.joint_pos - s.default),
            CriticTerm("joint_vel", JOINTS, lambda s: s.joint_vel * 0.05),
            CriticTerm("target", JOINTS, lambda s: s.target - s.default),
            CriticTerm("last_target", JOINTS, lambda s: s.last_target - s.default),
            CriticTerm("feet_force", LEGS, lambda s: s.feet_force / 50),
            CriticTerm("feet_height", LEGS, lambda s: (s.feet_pos[..., 2] - s.feet_ground) * 10),
            CriticTerm("air_time", LEGS, lambda s: s.air_time),
        ),
        privileged=("lin_vel",),
    )


def go1_hard() -> Task:
    """Where one gait does not fit all: loads and ground that change, legs of unequal strength, and a balance that is off.

    What a teacher makes of each number was measured by hiding it: the strength of the legs, gains and balance change what it
    does, delays and friction hardly do.
    """
    base = go1_walk()
    wide = {
        "payload": (0.0, 6.0),
        "ground_friction": (0.25, 1.25),
        "kp": (0.7, 1.3),
        **{f"strength_{leg}": (0.4, 1.1) for leg in LEGS},
        **{f"com_{axis}": (-0.05, 0.05) for axis in "xy"},
    }
    return replace(
        base.with_ranges(wide),
        name="go1/hard",
        disturbance=Disturbance(push_speed=0.2, push_every=(3.0, 6.0), gust_force=3.0),
        doc="walk with a load and on ground that change on the way, with weak legs and a balance that is off",
        parameter_shift=ParameterShift(("payload", "ground_friction"), interval=(3.0, 6.0)),
    )


def go1_terrain() -> Task:
    base = go1_walk()
    return replace(
        base,
        name="go1/terrain",
        doc="follow a commanded velocity over bumps, slopes, steps, gaps and stairs",
        terrain=Terrain(),
        levels=(
            Level("step", command=0.6, width=0.5, disturbance=0.2, roughness=0.0, score=0.3),
            Level("bumpy", command=1.0, width=1.0, disturbance=0.5, roughness=0.34, score=0.45),
            Level("rough", command=1.0, width=1.0, disturbance=1.0, roughness=0.67, score=0.45),
            Level("field", command=1.0, width=1.0, disturbance=1.0, roughness=1.0),
        ),
    )
