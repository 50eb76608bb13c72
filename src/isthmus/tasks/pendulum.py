"""The pendulum swings up and stays up. The motor is too weak to lift it at once: it has to pump."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from isthmus.robots.pendulum import GRAVITY_TORQUE, INERTIA, JOINT, TORQUE, pendulum
from isthmus.sim.robot import Robot
from isthmus.tasks import terms
from isthmus.tasks.state import State
from isthmus.tasks.task import Observe, Policy, Seen, Task, Term


def from_upright(s: State) -> Tensor:
    """Angle from upright, 0 to π rad."""
    q = s.joint_pos[:, 0]
    return (torch.remainder(q, 2 * torch.pi) - torch.pi).abs()


def raised(s: State) -> Tensor:
    """Height of the weight: 0 hanging, 1 upright."""
    return 0.5 - 0.5 * torch.cos(s.joint_pos[:, 0])


def balanced(s: State, width: float = 0.25) -> Tensor:
    """exp(-(angle from upright / width)²); width in rad."""
    return torch.exp(-(from_upright(s) / width).square())


def energy_error(s: State) -> Tensor:
    """Distance of the nominal energy from that of standing upright, in units of the energy that the swing-up needs."""
    kinetic = 0.5 * INERTIA * s.joint_vel[:, 0].square()
    return (kinetic / (2 * GRAVITY_TORQUE) + raised(s) - 1.0).abs()


def _start(rng: np.random.Generator, k: int, robot: Robot, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Hanging, nearly at rest."""
    return rng.uniform(-0.3, 0.3, (k, 1)), rng.uniform(-0.5, 0.5, (k, 1))


def swingup() -> Task:
    return Task(
        name="pendulum/swingup",
        doc="swing up with a motor too weak to lift, and stay up",
        robot=pendulum(),
        episode=10.0,
        rewards=(
            Term("raised", 1.0, raised),
            Term("balanced", 1.0, balanced),
            Term("energy_error", -1.0, energy_error),
            Term("effort", -0.02, terms.effort),
            Term("action_rate", -0.02, terms.action_rate),
        ),
        score=balanced,
        success=0.5,
        metrics={
            "angle_error": from_upright,
            "upright": lambda s: (from_upright(s) < 0.2).float(),
            "torque": lambda s: s.torque[:, 0].abs(),
            "power": terms.energy,
        },
        policy=Policy(observe=(Observe("joint_pos", "angle"), Observe("joint_vel", scale=0.2)), reach=TORQUE, clip=1.5),
        start=_start,
        critic=(
            Seen(
                "angle",
                ("sin_hinge", "cos_hinge"),
                lambda s: torch.cat([torch.sin(s.joint_pos), torch.cos(s.joint_pos)], dim=1),
            ),
            Seen("joint_vel", JOINT, lambda s: s.joint_vel * 0.2),
            Seen("energy", ("excess",), lambda s: energy_error(s)[:, None]),
            Seen("target", JOINT, lambda s: s.target / TORQUE),
        ),
    )
