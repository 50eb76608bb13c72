"""The pendulum swings up and stays up. The motor is too weak to lift it at once: it has to pump."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from isthmus.robots.pendulum import GRAVITY_TORQUE, INERTIA, JOINT, TORQUE_LIMIT, pendulum
from isthmus.sim.robot import Robot
from isthmus.tasks import terms
from isthmus.tasks.state import State
from isthmus.tasks.task import CriticTerm, ObservationTerm, PolicySpec, RewardTerm, Task


def upright_error(s: State) -> Tensor:
    """Angle from upright, 0 to π rad."""
    q = s.joint_pos[:, 0]
    return (torch.remainder(q, 2 * torch.pi) - torch.pi).abs()


def height_fraction(s: State) -> Tensor:
    """Height of the weight: 0 hanging, 1 upright."""
    return 0.5 - 0.5 * torch.cos(s.joint_pos[:, 0])


def upright_score(s: State, width: float = 0.25) -> Tensor:
    """exp(-(angle from upright / width)²); width in rad."""
    return torch.exp(-(upright_error(s) / width).square())


def energy_error(s: State) -> Tensor:
    """Distance of the nominal energy from that of standing upright, in units of the energy that the swing-up needs."""
    kinetic = 0.5 * INERTIA * s.joint_vel[:, 0].square()
    return (kinetic / (2 * GRAVITY_TORQUE) + height_fraction(s) - 1.0).abs()


def _initial_state(rng: np.random.Generator, k: int, robot: Robot, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Hanging, nearly at rest."""
    return rng.uniform(-0.3, 0.3, (k, 1)), rng.uniform(-0.5, 0.5, (k, 1))


def pendulum_swing_up() -> Task:
    return Task(
        name="pendulum/swingup",
        doc="swing up with a motor too weak to lift, and stay up",
        robot=pendulum(),
        episode=10.0,
        rewards=(
            RewardTerm("raised", 1.0, height_fraction),
            RewardTerm("balanced", 1.0, upright_score),
            RewardTerm("energy_error", -1.0, energy_error),
            RewardTerm("effort", -0.02, terms.effort),
            RewardTerm("action_rate", -0.02, terms.action_rate),
        ),
        score=upright_score,
        success_threshold=0.5,
        metrics={
            "angle_error": upright_error,
            "upright": lambda s: (upright_error(s) < 0.2).float(),
            "torque": lambda s: s.torque[:, 0].abs(),
            "power": terms.energy,
        },
        policy=PolicySpec(
            observations=(ObservationTerm("joint_pos", "angle"), ObservationTerm("joint_vel", scale=0.2)),
            action_scale=TORQUE_LIMIT,
            action_clip=1.5,
        ),
        start=_initial_state,
        critic=(
            CriticTerm(
                "angle",
                ("sin_hinge", "cos_hinge"),
                lambda s: torch.cat([torch.sin(s.joint_pos), torch.cos(s.joint_pos)], dim=1),
            ),
            CriticTerm("joint_vel", JOINT, lambda s: s.joint_vel * 0.2),
            CriticTerm("energy", ("excess",), lambda s: energy_error(s)[:, None]),
            CriticTerm("target", JOINT, lambda s: s.target / TORQUE_LIMIT),
        ),
    )
