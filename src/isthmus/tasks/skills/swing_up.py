"""Swing up and stay up, with a motor too weak to lift the pendulum at once: it has to pump.

The joint hangs at angle 0 and stands at π. With inertia I about the joint and largest gravity torque G, the energy of standing
is 2 G above that of hanging.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import mujoco
import numpy as np
import torch
from torch import Tensor

from isthmus.robots.dimensions import joint_inertia
from isthmus.sim.robot import Robot
from isthmus.tasks import terms
from isthmus.tasks.skill import Skill, missing_signals
from isthmus.tasks.state import State
from isthmus.tasks.task import CriticTerm, ObservationTerm, PolicySpec, RewardTerm, Task


@dataclass(frozen=True)
class Settings:
    max_torque: float
    """N·m that the policy may ask for."""
    inertia: float
    """kg·m² about the joint, armature included."""
    gravity_torque: float
    """N·m at a right angle to gravity."""
    episode: float = 10.0
    """s."""

    @staticmethod
    def for_robot(robot: Robot) -> Settings:
        high = (robot.contract.target.high or robot.motors.torque_limit)[0]
        return Settings(
            max_torque=high, inertia=float(joint_inertia(robot)[0]), gravity_torque=_gravity_torque(robot, np.pi / 2)
        )


def _gravity_torque(robot: Robot, angle: float) -> float:
    """N·m against gravity with the joint at an angle and at rest."""
    data = mujoco.MjData(robot.model)
    data.qpos[0] = angle
    mujoco.mj_forward(robot.model, data)
    return float(data.qfrc_bias[0])


def requires(robot: Robot) -> str | None:
    model, target = robot.model, robot.contract.target
    one_hinge = model.njnt == 1 and model.jnt_type[0] == mujoco.mjtJoint.mjJNT_HINGE and not model.jnt_limited[0]
    if not one_hinge or target.size != 1 or robot.motors.drive != "effort":
        return "it is not one hinge without end stops that a motor drives with torque"
    if not (target.high or robot.motors.torque_limit):
        return "its largest torque is not known"
    if abs(_gravity_torque(robot, 0.0)) > 1e-3 * abs(_gravity_torque(robot, np.pi / 2)) or _gravity_torque(robot, 0.1) <= 0:
        return "it does not hang down at angle 0"
    return missing_signals(robot, ("joint_pos", "joint_vel"))


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


def energy_error(s: State, inertia: float, gravity_torque: float) -> Tensor:
    """Distance of the nominal energy from that of standing upright, in units of the energy that the swing-up needs."""
    kinetic = 0.5 * inertia * s.joint_vel[:, 0].square()
    return (kinetic / (2 * gravity_torque) + height_fraction(s) - 1.0).abs()


def _initial_state(rng: np.random.Generator, k: int, robot: Robot, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Hanging, nearly at rest."""
    return rng.uniform(-0.3, 0.3, (k, 1)), rng.uniform(-0.5, 0.5, (k, 1))


def task(name: str, robot: Robot, settings: Settings) -> Task:
    energy = partial(energy_error, inertia=settings.inertia, gravity_torque=settings.gravity_torque)
    joint = robot.contract.target.labels
    return Task(
        name=name,
        doc="swing up with a motor too weak to lift, and stay up",
        robot=robot,
        episode=settings.episode,
        rewards=(
            RewardTerm("raised", 1.0, height_fraction),
            RewardTerm("balanced", 1.0, upright_score),
            RewardTerm("energy_error", -1.0, energy),
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
            action_scale=settings.max_torque,
            action_clip=1.5,
        ),
        start=_initial_state,
        critic=(
            CriticTerm(
                "angle",
                (f"sin_{joint[0]}", f"cos_{joint[0]}"),
                lambda s: torch.cat([torch.sin(s.joint_pos), torch.cos(s.joint_pos)], dim=1),
            ),
            CriticTerm("joint_vel", joint, lambda s: s.joint_vel * 0.2),
            CriticTerm("energy", ("excess",), lambda s: energy(s)[:, None]),
            CriticTerm("target", joint, lambda s: s.target / settings.max_torque),
        ),
    )


SKILL = Skill("swingup", "swing up with a motor too weak to lift, and stay up", requires, Settings.for_robot, task)
