"""The Crazyflie flies to a commanded place and stays there, facing forward, whatever attitude it starts from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from isthmus.data.contract import Signal
from isthmus.robots.crazyflie import DRAG, HEIGHT, HOVER, MOTORS, TURN, crazyflie
from isthmus.robots.crazyflie import PLACE as PLACES
from isthmus.sim.disturb import Disturbance
from isthmus.sim.robot import Robot
from isthmus.tasks import terms
from isthmus.tasks.state import State
from isthmus.tasks.task import Change, Command, Observe, Policy, Reflex, Seen, Task, Term

XYZ = ("x", "y", "z")
ROOM = 0.5
"""m: commands and starts lie this far about (0, 0, HEIGHT) along each axis, so that they are up to 1 m apart."""
TILT, SPEED, SPIN = np.pi / 3, 1.0, 2.0
"""rad, m/s, rad/s: largest at the start."""
WIND = 3.0
"""m/s: strongest mean wind."""
PLACE = Signal("command", "m", XYZ, "world", (-ROOM, -ROOM, HEIGHT - ROOM), (ROOM, ROOM, HEIGHT + ROOM))

MIX = tuple((0.3, 0.15 * PLACES[m][1], -0.15 * PLACES[m][0], 0.15 * TURN[m]) for m in MOTORS)
"""Thrust of each motor, in units of hover, per action: total thrust, roll, pitch, yaw."""

NONE3, NONE9 = (0.0,) * 3, (0.0,) * 9
REFLEXES = (
    Reflex(Observe("quat", "gravity"), (NONE3, (0.0, 0.9, 0.0), (-0.9, 0.0, 0.0), NONE3)),
    Reflex(Observe("gyro"), (NONE3, (-0.18, 0.0, 0.0), (0.0, -0.18, 0.0), (0.0, 0.0, -0.3))),
    Reflex(Observe("quat", "attitude"), (NONE9, NONE9, NONE9, (0.0, 0.0, 0.0, -0.5, *((0.0,) * 5)))),
    Reflex(Observe("velocity"), ((0.0, 0.0, -0.5), (0.0, 0.135, 0.0), (-0.135, 0.0, 0.0), NONE3)),
    Reflex(Observe("position", minus="command"), ((0.0, 0.0, -0.8), (0.0, 0.09, 0.0), (-0.09, 0.0, 0.0), NONE3)),
)
"""What every flight controller does under whatever flies it: level out, damp turning and motion, keep the heading, and
drift towards the commanded place.

A unit of roll or pitch action accelerates the body by 78 rad/s², so 0.9 and 0.18 make a loop of 8.4 rad/s with a damping
of 0.84; velocity asks for a tilt that brakes at 1.5 m/s² per m/s, distance for one that pulls at 1 m/s² per m. That alone
is slow and gives way to wind, payload and weak motors: getting there and staying there is what the policy learns."""


def distance(s: State) -> Tensor:
    """From the commanded place, m."""
    return (s.qpos[:, :3] - s.command).norm(dim=1)


def near(s: State, width: float = 0.4) -> Tensor:
    """exp(-(distance / width)²); width in m."""
    return torch.exp(-(distance(s) / width).square())


def close(s: State, width: float = 0.4) -> Tensor:
    """1 / (1 + (distance / width)²): like `near`, but felt from far away too; width in m."""
    return 1.0 / (1.0 + (distance(s) / width).square())


def heading_error(s: State) -> Tensor:
    """1 - cosine of the angle between the body's and the world's x axis, seen from above."""
    w, x, y, z = s.quat.unbind(1)
    ahead, aside = 1 - 2 * (y * y + z * z), 2 * (x * y + w * z)
    return 1 - ahead / torch.sqrt(ahead * ahead + aside * aside).clamp_min(1e-6)


def speed(s: State) -> Tensor:
    """Squared velocity, (m/s)²."""
    return s.qvel[:, :3].square().sum(1)


def spin(s: State) -> Tensor:
    """Squared turning rate, (rad/s)²."""
    return s.ang_vel.square().sum(1)


def change(s: State) -> Tensor:
    """Sum of squared changes of the thrusts since the last tick, in units of the hover thrust."""
    return terms.action_rate(s) / HOVER**2


def effort(s: State) -> Tensor:
    """Power of the rotors as an ideal propeller's, thrust to the power 3/2, in units of hovering."""
    return (s.torque.clamp_min(0.0) / HOVER).pow(1.5).mean(1)


def lost(s: State, lowest: float = 0.05, furthest: float = 3.0) -> Tensor:
    """Closer than `lowest` m to the ground, or further than `furthest` m from the commanded place."""
    return (s.qpos[:, 2] < lowest) | (distance(s) > furthest)


def _start(rng: np.random.Generator, k: int, robot: Robot, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Anywhere in the room, tilted by up to 60 degrees about any axis, moving and turning."""
    axis = rng.standard_normal((k, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    half = rng.uniform(0, TILT, (k, 1)) / 2
    place = rng.uniform(-ROOM, ROOM, (k, 3)) + np.array([0.0, 0.0, HEIGHT])
    qpos = np.concatenate([place, np.cos(half), np.sin(half) * axis], axis=1)
    qvel = np.concatenate([rng.uniform(-SPEED, SPEED, (k, 3)), rng.uniform(-SPIN, SPIN, (k, 3))], axis=1)
    return qpos, qvel


def hover() -> Task:
    return Task(
        name="crazyflie/hover",
        doc="reach and hold a commanded position from up to 60 degrees of tilt, under wind and pushes",
        robot=crazyflie(),
        episode=6.0,
        command=Command(PLACE, hold=(3.0, 6.0), still=0.0),
        rewards=(
            Term("close", 3.0, close),
            Term("speed", -0.1, speed),
            Term("alive", 0.5, terms.alive),
            Term("tilt", -0.1, terms.tilt),
            Term("heading", -0.5, heading_error),
            Term("spin", -0.003, spin),
            Term("change", -0.005, change),
        ),
        failures=(Term("lost", -1.0, lost),),
        score=near,
        success=0.5,
        metrics={
            "distance": distance,
            "tilt_degrees": lambda s: torch.rad2deg(torch.acos((-s.gravity[:, 2]).clamp(-1, 1))),
            "heading_error": heading_error,
            "effort": effort,
        },
        policy=Policy(
            observe=(
                Observe("position", minus="command"),
                Observe("velocity", scale=0.5),
                Observe("quat", "attitude"),
                Observe("gyro", scale=0.2),
            ),
            reach=HOVER,
            mix=MIX,
            actions=("thrust", "roll", "pitch", "yaw"),
            reflexes=REFLEXES,
        ),
        start=_start,
        disturbance=Disturbance(
            push_speed=0.5, push_every=(2.0, 5.0), steady_force=DRAG * WIND, gust_force=DRAG * WIND / 3, gust_time=0.5
        ),
        critic=(
            Seen("error", XYZ, lambda s: s.qpos[:, :3] - s.command),
            Seen("velocity", XYZ, lambda s: s.qvel[:, :3] * 0.5),
            Seen("lin_vel", XYZ, lambda s: s.lin_vel * 0.5),
            Seen("quat", ("w", "x", "y", "z"), lambda s: s.quat),
            Seen("gravity", XYZ, lambda s: s.gravity),
            Seen("gyro", XYZ, lambda s: s.ang_vel * 0.2),
            Seen("thrust", MOTORS, lambda s: s.torque / HOVER - 1.0),
            Seen("target", MOTORS, lambda s: s.target / HOVER - 1.0),
        ),
        told=("force",),
    )


def hard() -> Task:
    """Where a law without memory must give way: loads that change, unequal rotors, a tilted balance and strong wind."""
    base = hover()
    wide = {"payload": (0.0, 0.012), "com_x": (-0.003, 0.003), "com_y": (-0.003, 0.003)}
    wide |= {f"strength_{m}": (0.85, 1.1) for m in MOTORS}
    return replace(
        base.over(wide),
        name="crazyflie/hard",
        doc="hold a commanded position with a load that changes, unequal rotors and strong wind",
        change=Change(("payload",), every=(2.0, 4.0)),
        disturbance=replace(base.disturbance, steady_force=2 * DRAG * WIND),
    )
