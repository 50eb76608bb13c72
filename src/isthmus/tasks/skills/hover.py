"""The Crazyflie flies to a commanded place and stays there, facing forward, whatever attitude it starts from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from isthmus.data.contract import Signal
from isthmus.robots.crazyflie import DRAG_COEFFICIENT, HOME_HEIGHT, HOVER_THRUST, MOTORS, YAW_MOMENT_SIGNS, crazyflie
from isthmus.robots.crazyflie import ROTOR_POSITION_SIGNS as PLACES
from isthmus.sim.physics.disturbances import Disturbance
from isthmus.sim.robot import Robot
from isthmus.tasks import terms
from isthmus.tasks.state import State
from isthmus.tasks.task import (
    Command,
    CriticTerm,
    LinearFeedback,
    ObservationTerm,
    ParameterShift,
    PolicySpec,
    RewardTerm,
    Task,
)

XYZ = ("x", "y", "z")
ROOM_HALF_SIZE = 0.5
"""m: commands and starts lie this far about (0, 0, HEIGHT) along each axis, so that they are up to 1 m apart."""
MAX_START_TILT, MAX_START_SPEED, MAX_START_TURN_RATE = np.pi / 3, 1.0, 2.0
"""rad, m/s, rad/s: largest at the start."""
MAX_MEAN_WIND = 3.0
"""m/s: strongest mean wind."""
POSITION_COMMAND = Signal(
    "command",
    "m",
    XYZ,
    "world",
    (-ROOM_HALF_SIZE, -ROOM_HALF_SIZE, HOME_HEIGHT - ROOM_HALF_SIZE),
    (ROOM_HALF_SIZE, ROOM_HALF_SIZE, HOME_HEIGHT + ROOM_HALF_SIZE),
)

MIXER = tuple((0.3, 0.15 * PLACES[m][1], -0.15 * PLACES[m][0], 0.15 * YAW_MOMENT_SIGNS[m]) for m in MOTORS)
"""Thrust of each motor, in units of hover, per action: total thrust, roll, pitch, yaw."""

ZERO3, ZERO9 = (0.0,) * 3, (0.0,) * 9
STABILIZING_FEEDBACK = (
    LinearFeedback(ObservationTerm("quat", "gravity"), (ZERO3, (0.0, 0.9, 0.0), (-0.9, 0.0, 0.0), ZERO3)),
    LinearFeedback(ObservationTerm("gyro"), (ZERO3, (-0.18, 0.0, 0.0), (0.0, -0.18, 0.0), (0.0, 0.0, -0.3))),
    LinearFeedback(ObservationTerm("quat", "attitude"), (ZERO9, ZERO9, ZERO9, (0.0, 0.0, 0.0, -0.5, *((0.0,) * 5)))),
    LinearFeedback(ObservationTerm("velocity"), ((0.0, 0.0, -0.5), (0.0, 0.135, 0.0), (-0.135, 0.0, 0.0), ZERO3)),
    LinearFeedback(
        ObservationTerm("position", subtract="command"), ((0.0, 0.0, -0.8), (0.0, 0.09, 0.0), (-0.09, 0.0, 0.0), ZERO3)
    ),
)
"""What every flight controller does under whatever flies it: level out, damp turning and motion, keep the heading, and
drift towards the commanded place.

A unit of roll or pitch action accelerates the body by 78 rad/s², so 0.9 and 0.18 make a loop of 8.4 rad/s with a damping
of 0.84; velocity asks for a tilt that brakes at 1.5 m/s² per m/s, distance for one that pulls at 1 m/s² per m. That alone
is slow and gives way to wind, payload and weak motors: getting there and staying there is what the policy learns."""


def distance(s: State) -> Tensor:
    """From the commanded place, m."""
    return (s.qpos[:, :3] - s.command).norm(dim=1)


def position_score(s: State, width: float = 0.4) -> Tensor:
    """exp(-(distance / width)²); width in m."""
    return torch.exp(-(distance(s) / width).square())


def position_reward(s: State, width: float = 0.4) -> Tensor:
    """1 / (1 + (distance / width)²): like `near`, but felt from far away too; width in m."""
    return 1.0 / (1.0 + (distance(s) / width).square())


def heading_error(s: State) -> Tensor:
    """1 - cosine of the angle between the body's and the world's x axis, seen from above."""
    w, x, y, z = s.quat.unbind(1)
    ahead, aside = 1 - 2 * (y * y + z * z), 2 * (x * y + w * z)
    return 1 - ahead / torch.sqrt(ahead * ahead + aside * aside).clamp_min(1e-6)


def squared_speed(s: State) -> Tensor:
    """Squared velocity, (m/s)²."""
    return s.qvel[:, :3].square().sum(1)


def squared_turn_rate(s: State) -> Tensor:
    """Squared turning rate, (rad/s)²."""
    return s.ang_vel.square().sum(1)


def thrust_rate(s: State) -> Tensor:
    """Sum of squared changes of the thrusts since the last tick, in units of the hover thrust."""
    return terms.action_rate(s) / HOVER_THRUST**2


def rotor_power(s: State) -> Tensor:
    """Power of the rotors as an ideal propeller's, thrust to the power 3/2, in units of hovering."""
    return (s.torque.clamp_min(0.0) / HOVER_THRUST).pow(1.5).mean(1)


def out_of_bounds(s: State, min_height: float = 0.05, max_distance: float = 3.0) -> Tensor:
    """Closer than `lowest` m to the ground, or further than `furthest` m from the commanded place."""
    return (s.qpos[:, 2] < min_height) | (distance(s) > max_distance)


def _initial_state(rng: np.random.Generator, k: int, robot: Robot, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Anywhere in the room, tilted by up to 60 degrees about any axis, moving and turning."""
    axis = rng.standard_normal((k, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    half = rng.uniform(0, MAX_START_TILT, (k, 1)) / 2
    place = rng.uniform(-ROOM_HALF_SIZE, ROOM_HALF_SIZE, (k, 3)) + np.array([0.0, 0.0, HOME_HEIGHT])
    qpos = np.concatenate([place, np.cos(half), np.sin(half) * axis], axis=1)
    qvel = np.concatenate(
        [
            rng.uniform(-MAX_START_SPEED, MAX_START_SPEED, (k, 3)),
            rng.uniform(-MAX_START_TURN_RATE, MAX_START_TURN_RATE, (k, 3)),
        ],
        axis=1,
    )
    return qpos, qvel


def crazyflie_hover() -> Task:
    return Task(
        name="crazyflie/hover",
        doc="reach and hold a commanded position from up to 60 degrees of tilt, under wind and pushes",
        robot=crazyflie(),
        episode=6.0,
        command=Command(POSITION_COMMAND, resample_interval=(3.0, 6.0), zero_fraction=0.0),
        rewards=(
            RewardTerm("close", 3.0, position_reward),
            RewardTerm("speed", -0.1, squared_speed),
            RewardTerm("alive", 0.5, terms.alive),
            RewardTerm("tilt", -0.1, terms.tilt),
            RewardTerm("heading", -0.5, heading_error),
            RewardTerm("spin", -0.003, squared_turn_rate),
            RewardTerm("change", -0.005, thrust_rate),
        ),
        terminations=(RewardTerm("lost", -1.0, out_of_bounds),),
        score=position_score,
        success_threshold=0.5,
        metrics={
            "distance": distance,
            "tilt_degrees": lambda s: torch.rad2deg(torch.acos((-s.projected_gravity[:, 2]).clamp(-1, 1))),
            "heading_error": heading_error,
            "effort": rotor_power,
        },
        policy=PolicySpec(
            observations=(
                ObservationTerm("position", subtract="command"),
                ObservationTerm("velocity", scale=0.5),
                ObservationTerm("quat", "attitude"),
                ObservationTerm("gyro", scale=0.2),
            ),
            action_scale=HOVER_THRUST,
            mixer=MIXER,
            action_names=("thrust", "roll", "pitch", "yaw"),
            feedback=STABILIZING_FEEDBACK,
        ),
        start=_initial_state,
        disturbance=Disturbance(
            push_speed=0.5,
            push_every=(2.0, 5.0),
            steady_force=DRAG_COEFFICIENT * MAX_MEAN_WIND,
            gust_force=DRAG_COEFFICIENT * MAX_MEAN_WIND / 3,
            gust_time=0.5,
        ),
        critic=(
            CriticTerm("error", XYZ, lambda s: s.qpos[:, :3] - s.command),
            CriticTerm("velocity", XYZ, lambda s: s.qvel[:, :3] * 0.5),
            CriticTerm("lin_vel", XYZ, lambda s: s.lin_vel * 0.5),
            CriticTerm("quat", ("w", "x", "y", "z"), lambda s: s.quat),
            CriticTerm("gravity", XYZ, lambda s: s.projected_gravity),
            CriticTerm("gyro", XYZ, lambda s: s.ang_vel * 0.2),
            CriticTerm("thrust", MOTORS, lambda s: s.torque / HOVER_THRUST - 1.0),
            CriticTerm("target", MOTORS, lambda s: s.target / HOVER_THRUST - 1.0),
        ),
        privileged=("force",),
    )


def crazyflie_hard() -> Task:
    """Where a law without memory must give way: loads that change, unequal rotors, a tilted balance and strong wind."""
    base = crazyflie_hover()
    wide = {"payload": (0.0, 0.012), "com_x": (-0.003, 0.003), "com_y": (-0.003, 0.003)}
    wide |= {f"strength_{m}": (0.85, 1.1) for m in MOTORS}
    return replace(
        base.with_ranges(wide),
        name="crazyflie/hard",
        doc="hold a commanded position with a load that changes, unequal rotors and strong wind",
        parameter_shift=ParameterShift(("payload",), interval=(2.0, 4.0)),
        disturbance=replace(base.disturbance, steady_force=2 * DRAG_COEFFICIENT * MAX_MEAN_WIND),
    )
