"""Go1 walks: follow a commanded velocity, on flat ground or on rough ground."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from isthmus.data.contract import Signal
from isthmus.robots.go1 import HEIGHT, JOINTS, LEGS, PARTS, go1
from isthmus.sim.disturb import Disturbance
from isthmus.sim.robot import Robot
from isthmus.tasks import terms
from isthmus.tasks.task import Change, Command, Gait, Level, Observe, Policy, Seen, Task, Term
from isthmus.tasks.terrain import Terrain

XYZ = ("x", "y", "z")
VELOCITY = Signal("command", "m/s, m/s, rad/s", ("forward", "sideways", "yaw"), "body", (-1.0, -0.5, -1.0), (1.0, 0.5, 1.0))


def _trot() -> Gait:
    """Diagonal legs together, half a cycle apart; a foot rises by about 7 cm."""
    offset = tuple(0.0 if leg in ("FR", "RL") else 0.5 for leg in LEGS for _ in PARTS)
    lift = tuple({"hip": 0.0, "thigh": 0.25, "calf": -0.5}[part] for _ in LEGS for part in PARTS)
    return Gait(frequency=3.0, offset=offset, lift=lift, gate="command")


TROT = _trot()


def _start(rng: np.random.Generator, k: int, robot: Robot, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Standing, turned anywhere, a little crouched or moving."""
    qpos = np.tile(np.array(robot.home), (k, 1))
    yaw = rng.uniform(-np.pi, np.pi, k)
    qpos[:, 3], qpos[:, 6] = np.cos(yaw / 2), np.sin(yaw / 2)
    qpos[:, 7:] += width * rng.uniform(-0.15, 0.15, (k, 12))
    qvel = width * rng.uniform(-0.3, 0.3, (k, 18))
    return qpos, qvel


def _score(s):
    return terms.track_velocity(s) * terms.track_yaw(s)


def walk() -> Task:
    return Task(
        name="go1/walk",
        doc="follow a commanded velocity on flat ground",
        robot=go1(),
        episode=10.0,
        command=Command(VELOCITY),
        rewards=(
            Term("track_velocity", 1.5, terms.track_velocity),
            Term("track_yaw", 0.75, terms.track_yaw),
            Term("bounce", -1.0, terms.bounce),
            Term("wobble", -0.05, terms.wobble),
            Term("tilt", -1.0, terms.tilt),
            Term("height", -10.0, partial(terms.height_error, height=HEIGHT - 0.02)),
            Term("energy", -0.0005, terms.energy),
            Term("effort", -0.0001, terms.effort),
            Term("action_rate", -0.02, terms.action_rate),
            Term("action_jerk", -0.01, terms.action_jerk),
            Term("joint_acceleration", -1e-7, terms.joint_acceleration),
            Term("joint_limits", -1.0, terms.joint_limits),
            Term("air_time", 0.5, terms.air_time),
            Term("foot_clearance", -1.0, terms.foot_clearance),
            Term("slip", -0.05, terms.slip),
            Term("impact", -0.05, terms.impact),
            Term("asymmetry", -0.02, terms.asymmetry),
            Term("pose", -0.05, terms.pose),
            Term("pose_at_rest", -0.3, terms.pose_at_rest),
        ),
        positive=True,
        failures=(Term("fell", 0.0, terms.fell),),
        score=_score,
        success=0.5,
        metrics={
            "velocity_error": lambda s: (s.command[:, :2] - s.lin_vel[:, :2]).norm(dim=1),
            "yaw_error": lambda s: (s.command[:, 2] - s.ang_vel[:, 2]).abs(),
            "power": terms.energy,
        },
        policy=Policy(
            observe=(
                Observe("gyro", scale=0.25),
                Observe("quat", "gravity"),
                Observe("command"),
                Observe("joint_pos", "offset"),
                Observe("joint_vel", scale=0.05),
            ),
            reach=0.3,
            history=3,
            gait=TROT,
        ),
        start=_start,
        disturbance=Disturbance(push_speed=0.5, push_every=(3.0, 6.0), gust_force=3.0),
        levels=(
            Level("step", command=0.6, width=0.5, disturbance=0.2, score=0.3),
            Level("full", command=1.0, width=1.0, disturbance=1.0),
        ),
        critic=(
            Seen("lin_vel", XYZ, lambda s: s.lin_vel),
            Seen("gyro", XYZ, lambda s: s.ang_vel),
            Seen("gravity", XYZ, lambda s: s.gravity),
            Seen("height", ("z",), lambda s: s.height[:, None] * 5),
            Seen("joint_pos", JOINTS, lambda s: s.joint_pos - s.default),
            Seen("joint_vel", JOINTS, lambda s: s.joint_vel * 0.05),
            Seen("target", JOINTS, lambda s: s.target - s.default),
            Seen("last_target", JOINTS, lambda s: s.last_target - s.default),
            Seen("feet_force", LEGS, lambda s: s.feet_force / 50),
            Seen("feet_height", LEGS, lambda s: (s.feet_pos[..., 2] - s.feet_ground) * 10),
            Seen("air_time", LEGS, lambda s: s.air_time),
        ),
        told=("lin_vel",),
    )


def hard() -> Task:
    """Where one gait does not fit all: loads and ground that change, legs of unequal strength, and a link that may be slow.

    A few ticks of joint angles already tell of load and strength, and ice takes practice rather than knowledge. The delay is
    what a policy has to know and cannot see, so the rest is kept within what can be learned in a few million ticks.
    """
    base = walk()
    wide = {
        "payload": (0.0, 5.0),
        "ground_friction": (0.4, 1.25),
        "action_delay": (0.0, 0.06),
        "sensor_delay": (0.0, 0.04),
        **{f"strength_{leg}": (0.6, 1.1) for leg in LEGS},
    }
    return replace(
        base.over(wide),
        name="go1/hard",
        disturbance=Disturbance(push_speed=0.2, push_every=(3.0, 6.0), gust_force=3.0),
        doc="walk with a load and on ground that change on the way, with weak legs and a slow link",
        change=Change(("payload", "ground_friction"), every=(3.0, 6.0)),
    )


def terrain() -> Task:
    base = walk()
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
