"""Forces that a model does not have, as laws of the simulated state: what missing physics may depend on.

Each law gives generalised forces of unit size; a doubt is how much of it there is. The laws are coarse on purpose: they are
to tell what is missing from what is not, not to replace it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from isthmus.sim.engine import Engine
from isthmus.sim.reality.check import flies
from isthmus.sim.reality.laws import up
from isthmus.sim.robot import Robot
from isthmus.sim.sources import on_joints

SLOW = 0.3
"""rad/s or m/s: up to about this speed a joint that sticks is held."""
STICKS = 0.02
"""rad/s: the sign of a speed is smooth within so much."""
FAST = 5.0
"""rad/s: speed at which what grows with its square is of unit size."""
LIGHT = 0.1
"""Of a motor's full effort: below it, play in the gears decides which way a joint goes."""
NEAR = 0.05
"""m: distance beyond which a cable pulls with its whole force."""


@dataclass(frozen=True)
class Law:
    name: str
    force: Callable[[Engine], np.ndarray]
    """(n, nv)"""
    spread: float
    """How much of it there may be."""


def laws(robot: Robot) -> list[Law]:
    """Those that make sense for a robot."""
    return [*_of_joints(robot), *_of_base(robot)]


def _of_joints(robot: Robot) -> Iterator[Law]:
    contract, motors = robot.contract, robot.motors
    asked = contract.target.high if motors.drive == "effort" else ()
    full = np.array(motors.torque_limit or contract.safety.effort or asked or (np.nan,))
    if not on_joints(robot) or not np.isfinite(full).all():
        return

    def acting(law: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[Engine], np.ndarray]:
        def force(engine: Engine) -> np.ndarray:
            assert engine.joints is not None
            out = np.zeros_like(engine.qvel)
            out[:, engine.joints[1]] = law(engine.qvel[:, engine.joints[1]], engine.ctrl)
            return out

        return force

    side = lambda v: np.tanh(v / STICKS)  # noqa: E731
    yield Law("stick", acting(lambda v, u: -full * side(v) * np.exp(-((v / SLOW) ** 2))), 0.1)
    yield Law("play", acting(lambda v, u: -u * np.exp(-((u / (LIGHT * full)) ** 2))), 1.0)
    yield Law("friction under load", acting(lambda v, u: -np.abs(u) * side(v)), 0.3)
    yield Law("resistance", acting(lambda v, u: -full * v * np.abs(v) / FAST**2), 0.1)


def _of_base(robot: Robot) -> Iterator[Law]:
    if not robot.base:
        return
    model = robot.model
    joint = int(model.body_jntadr[model.body(robot.base).id])
    q, v = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
    mass = float(model.body_subtreemass[model.body(robot.base).id])
    weight = mass * float(np.linalg.norm(model.opt.gravity))

    def on_base(law: Callable[[Engine], np.ndarray]) -> Callable[[Engine], np.ndarray]:
        def force(engine: Engine) -> np.ndarray:
            out = np.zeros_like(engine.qvel)
            out[:, v : v + 3] = law(engine)
            return out

        return force

    yield Law("drag", on_base(lambda engine: -mass * engine.qvel[:, v : v + 3]), 1.0)
    if flies(robot):
        yield Law(
            "drag of rotors",
            on_base(lambda engine: -mass * _across(engine.qpos[:, q + 3 : q + 7], engine.qvel[:, v : v + 3])),
            1.0,
        )
    for axis in (0, 1):
        steady = weight * np.eye(3)[axis]
        yield Law(f"pull along {'xy'[axis]}", on_base(lambda engine, f=steady: np.tile(f, (engine.n, 1))), 0.05)
    if any(source.startswith("pos") for source in robot.sources.values()):
        home = np.array(robot.home[q : q + 3])
        yield Law("cable", on_base(lambda engine: -weight * _towards(engine.qpos[:, q : q + 3] - home)), 0.05)


def _across(quat: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """The part of velocities in the plane of the rotors, (n, 3)."""
    z = up(quat)
    return velocity - (velocity * z).sum(1, keepdims=True) * z


def _towards(away: np.ndarray) -> np.ndarray:
    """Unit vectors, (n, 3), but shorter close to where it is held."""
    return away / np.maximum(np.linalg.norm(away, axis=1, keepdims=True), NEAR)
