"""The cart keeps the pole upright, from clearly tilted starts, without leaving the track."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from isthmus.robots.cartpole import FORCE, TRACK, cartpole
from isthmus.sim.robot import Robot
from isthmus.tasks import terms
from isthmus.tasks.state import State
from isthmus.tasks.task import Observe, Policy, Seen, Task, Term

TILT, RATE = 0.35, 0.4
"""rad and rad/s: largest at the start."""


def upright(s: State, width: float = 0.15) -> Tensor:
    """exp(-(angle from upright / width)²); width in rad."""
    return torch.exp(-(s.qpos[:, 1] / width).square())


def centred(s: State, width: float = 1.0) -> Tensor:
    """exp(-(cart's distance from the middle / width)²); width in m."""
    return torch.exp(-(s.qpos[:, 0] / width).square())


def score(s: State) -> Tensor:
    return upright(s) * centred(s)


def dropped(s: State, furthest: float = TRACK, steepest: float = 1.0) -> Tensor:
    """The cart has left the track (m), or the pole has fallen further than it can be caught (rad)."""
    return (s.qpos[:, 0].abs() > furthest) | (s.qpos[:, 1].abs() > steepest)


def _start(rng: np.random.Generator, k: int, robot: Robot, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Anywhere near the middle, the pole tilted and turning."""
    size = np.array([0.5, TILT])
    speed = np.array([0.5, RATE])
    return rng.uniform(-size, size, (k, 2)), rng.uniform(-speed, speed, (k, 2))


def balance() -> Task:
    return Task(
        name="cartpole/balance",
        doc="keep the pole upright and the cart near the middle, from up to 20 degrees of tilt",
        robot=cartpole(),
        episode=10.0,
        rewards=(
            Term("upright", 1.0, upright),
            Term("score", 1.0, score),
            Term("tilt", -1.0, lambda s: s.qpos[:, 1].square()),
            Term("away", -0.5, lambda s: s.qpos[:, 0].square()),
            Term("effort", -0.001, terms.effort),
            Term("action_rate", -0.0005, terms.action_rate),
        ),
        failures=(Term("dropped", -1.0, dropped),),
        score=score,
        success=0.6,
        metrics={
            "tilt": lambda s: s.qpos[:, 1].abs(),
            "distance": lambda s: s.qpos[:, 0].abs(),
            "force": lambda s: s.torque[:, 0].abs(),
            "power": terms.energy,
        },
        policy=Policy(
            observe=(
                Observe("cart_pos", scale=0.5),
                Observe("cart_vel", scale=0.5),
                Observe("pole_pos", scale=2.0),
                Observe("pole_vel", scale=0.5),
            ),
            reach=FORCE,
            clip=1.5,
        ),
        start=_start,
        critic=(
            Seen("cart_pos", ("slider",), lambda s: s.qpos[:, :1] * 0.5),
            Seen("cart_vel", ("slider",), lambda s: s.qvel[:, :1] * 0.5),
            Seen("pole_pos", ("hinge",), lambda s: s.qpos[:, 1:] * 2.0),
            Seen("pole_vel", ("hinge",), lambda s: s.qvel[:, 1:] * 0.5),
            Seen("target", ("slider",), lambda s: s.target / FORCE),
        ),
    )
