"""The cart keeps the pole upright, from clearly tilted starts, without leaving the track."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from isthmus.robots.cartpole import MAX_FORCE, TRACK_HALF_LENGTH, cartpole
from isthmus.sim.robot import Robot
from isthmus.tasks import terms
from isthmus.tasks.state import State
from isthmus.tasks.task import CriticTerm, ObservationTerm, PolicySpec, RewardTerm, Task

MAX_START_TILT, MAX_START_RATE = 0.35, 0.4
"""rad and rad/s: largest at the start."""


def upright_score(s: State, width: float = 0.15) -> Tensor:
    """exp(-(angle from upright / width)²); width in rad."""
    return torch.exp(-(s.qpos[:, 1] / width).square())


def centre_score(s: State, width: float = 1.0) -> Tensor:
    """exp(-(cart's distance from the middle / width)²); width in m."""
    return torch.exp(-(s.qpos[:, 0] / width).square())


def balance_score(s: State) -> Tensor:
    return upright_score(s) * centre_score(s)


def fell_or_left_track(s: State, max_distance: float = TRACK_HALF_LENGTH, max_tilt: float = 1.0) -> Tensor:
    """The cart has left the track (m), or the pole has fallen further than it can be caught (rad)."""
    return (s.qpos[:, 0].abs() > max_distance) | (s.qpos[:, 1].abs() > max_tilt)


def _initial_state(rng: np.random.Generator, k: int, robot: Robot, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Anywhere near the middle, the pole tilted and turning."""
    size = np.array([0.5, MAX_START_TILT])
    speed = np.array([0.5, MAX_START_RATE])
    return rng.uniform(-size, size, (k, 2)), rng.uniform(-speed, speed, (k, 2))


def cartpole_balance() -> Task:
    return Task(
        name="cartpole/balance",
        doc="keep the pole upright and the cart near the middle, from up to 20 degrees of tilt",
        robot=cartpole(),
        episode=10.0,
        rewards=(
            RewardTerm("upright", 1.0, upright_score),
            RewardTerm("score", 1.0, balance_score),
            RewardTerm("tilt", -1.0, lambda s: s.qpos[:, 1].square()),
            RewardTerm("away", -0.5, lambda s: s.qpos[:, 0].square()),
            RewardTerm("effort", -0.001, terms.effort),
            RewardTerm("action_rate", -0.0005, terms.action_rate),
        ),
        terminations=(RewardTerm("dropped", -1.0, fell_or_left_track),),
        score=balance_score,
        success_threshold=0.6,
        metrics={
            "tilt": lambda s: s.qpos[:, 1].abs(),
            "distance": lambda s: s.qpos[:, 0].abs(),
            "force": lambda s: s.torque[:, 0].abs(),
            "power": terms.energy,
        },
        policy=PolicySpec(
            observations=(
                ObservationTerm("cart_pos", scale=0.5),
                ObservationTerm("cart_vel", scale=0.5),
                ObservationTerm("pole_pos", scale=2.0),
                ObservationTerm("pole_vel", scale=0.5),
            ),
            action_scale=MAX_FORCE,
            action_clip=1.5,
        ),
        start=_initial_state,
        critic=(
            CriticTerm("cart_pos", ("slider",), lambda s: s.qpos[:, :1] * 0.5),
            CriticTerm("cart_vel", ("slider",), lambda s: s.qvel[:, :1] * 0.5),
            CriticTerm("pole_pos", ("hinge",), lambda s: s.qpos[:, 1:] * 2.0),
            CriticTerm("pole_vel", ("hinge",), lambda s: s.qvel[:, 1:] * 0.5),
            CriticTerm("target", ("slider",), lambda s: s.target / MAX_FORCE),
        ),
    )
