"""A cart keeps a pole upright, from clearly tilted starts, without leaving its track."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import mujoco
import numpy as np
import torch
from torch import Tensor

from isthmus.data.contract import NO_LIMIT
from isthmus.sim.indexing import Indexing
from isthmus.sim.robot import Robot
from isthmus.tasks import terms
from isthmus.tasks.skill import Skill
from isthmus.tasks.state import State
from isthmus.tasks.task import CriticTerm, ObservationTerm, PolicySpec, RewardTerm, Task


@dataclass(frozen=True)
class Settings:
    cart: str
    """Slide joint that the motor drives."""
    pole: str
    """Hinge joint of the pole, upright at 0."""
    max_force: float
    """N that the policy may ask for."""
    track_half_length: float
    """m to either side."""
    max_start_tilt: float = 0.35
    """rad."""
    max_start_rate: float = 0.4
    """rad/s."""
    episode: float = 10.0
    """s."""

    @staticmethod
    def for_robot(robot: Robot) -> Settings:
        cart, pole = _joints(robot)
        joint = robot.model.joint(cart)
        track = float(min(abs(joint.range))) if robot.model.jnt_limited[joint.id] else 2.0
        return Settings(cart, pole, max_force=(robot.contract.target.high or (10.0,))[0], track_half_length=track)


def _joints(robot: Robot) -> tuple[str, str]:
    """Cart and pole; empty where the robot is no cart with a pole."""
    model, target = robot.model, robot.contract.target
    kinds = [mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_HINGE]
    if model.njnt != 2 or list(model.jnt_type) != kinds or target.labels != (model.joint(0).name,):
        return "", ""
    return model.joint(0).name, model.joint(1).name


def requires(robot: Robot) -> str | None:
    if not _joints(robot)[0] or robot.motors.drive != "effort":
        return "it is not a cart that a force drives along a slide, with a free hinge on it"
    if not robot.contract.target.high or robot.contract.target.high[0] >= NO_LIMIT:
        return "its largest force is not known"
    shown = {s.name for s in robot.contract.signals if robot.sources[s.name] in ("qpos", "qvel")}
    return None if shown >= {"joint_pos", "joint_vel"} or len(shown) == 4 else "its signals do not show cart and pole"


def upright_score(s: State, pole: str = "hinge", width: float = 0.15) -> Tensor:
    """exp(-(angle from upright / width)²); width in rad."""
    return torch.exp(-(s.joint(pole)[0] / width).square())


def centre_score(s: State, cart: str = "slider", width: float = 1.0) -> Tensor:
    """exp(-(cart's distance from the middle / width)²); width in m."""
    return torch.exp(-(s.joint(cart)[0] / width).square())


def balance_score(s: State, cart: str = "slider", pole: str = "hinge") -> Tensor:
    return upright_score(s, pole) * centre_score(s, cart)


def fell_or_left_track(
    s: State, cart: str = "slider", pole: str = "hinge", max_distance: float = 2.4, max_tilt: float = 1.0
) -> Tensor:
    """The cart has left the track (m), or the pole has fallen further than it can be caught (rad)."""
    return (s.joint(cart)[0].abs() > max_distance) | (s.joint(pole)[0].abs() > max_tilt)


def _initial_state(
    rng: np.random.Generator, k: int, robot: Robot, width: float, *, settings: Settings
) -> tuple[np.ndarray, np.ndarray]:
    """Anywhere near the middle, the pole tilted and turning."""
    size = np.array([0.5, settings.max_start_tilt])
    speed = np.array([0.5, settings.max_start_rate])
    q, v = Indexing.of(robot).joints((settings.cart, settings.pole))
    qpos, qvel = np.zeros((k, robot.model.nq)), np.zeros((k, robot.model.nv))
    qpos[:, q], qvel[:, v] = rng.uniform(-size, size, (k, 2)), rng.uniform(-speed, speed, (k, 2))
    return qpos, qvel


def _observations(robot: Robot) -> tuple[ObservationTerm, ...]:
    if any(s.name == "joint_pos" for s in robot.contract.signals):
        return ObservationTerm("joint_pos"), ObservationTerm("joint_vel", scale=0.5)
    cart_pos, cart_vel, pole_pos, pole_vel = (s.name for s in robot.contract.signals)
    return (
        ObservationTerm(cart_pos, scale=0.5),
        ObservationTerm(cart_vel, scale=0.5),
        ObservationTerm(pole_pos, scale=2.0),
        ObservationTerm(pole_vel, scale=0.5),
    )


def task(name: str, robot: Robot, settings: Settings) -> Task:
    cart, pole = settings.cart, settings.pole
    score = partial(balance_score, cart=cart, pole=pole)
    lost = partial(fell_or_left_track, cart=cart, pole=pole, max_distance=settings.track_half_length)
    return Task(
        name=name,
        doc="keep the pole upright and the cart near the middle, from up to 20 degrees of tilt",
        robot=robot,
        episode=settings.episode,
        rewards=(
            RewardTerm("upright", 1.0, partial(upright_score, pole=pole)),
            RewardTerm("score", 1.0, score),
            RewardTerm("tilt", -1.0, lambda s: s.joint(pole)[0].square()),
            RewardTerm("away", -0.5, lambda s: s.joint(cart)[0].square()),
            RewardTerm("effort", -0.001, terms.effort),
            RewardTerm("action_rate", -0.0005, terms.action_rate),
        ),
        terminations=(RewardTerm("dropped", -1.0, lost),),
        score=score,
        success_threshold=0.6,
        metrics={
            "tilt": lambda s: s.joint(pole)[0].abs(),
            "distance": lambda s: s.joint(cart)[0].abs(),
            "force": lambda s: s.torque[:, 0].abs(),
            "power": terms.energy,
        },
        policy=PolicySpec(observations=_observations(robot), action_scale=settings.max_force, action_clip=1.5),
        start=partial(_initial_state, settings=settings),
        critic=(
            CriticTerm("cart_pos", (cart,), lambda s: s.joint(cart)[0][:, None] * 0.5),
            CriticTerm("cart_vel", (cart,), lambda s: s.joint(cart)[1][:, None] * 0.5),
            CriticTerm("pole_pos", (pole,), lambda s: s.joint(pole)[0][:, None] * 2.0),
            CriticTerm("pole_vel", (pole,), lambda s: s.joint(pole)[1][:, None] * 0.5),
            CriticTerm("target", (cart,), lambda s: s.target / settings.max_force),
        ),
    )


SKILL = Skill("balance", "keep the pole of a cart upright", requires, Settings.for_robot, task)
