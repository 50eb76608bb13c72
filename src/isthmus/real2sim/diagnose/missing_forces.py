"""Forces that a model does not have, as laws of the simulated state: what missing physics may depend on.

Each law gives generalised forces of unit size; a doubt is how much of it there is. The laws are coarse on purpose: they are
to tell what is missing from what is not, not to replace it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from isthmus.core.geometry import z_axis
from isthmus.sim.indexing import drives_joints
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation

STICK_SPEED = 0.3
"""rad/s or m/s: up to about this speed a joint that sticks is held."""
SIGN_SMOOTHING_SPEED = 0.02
"""rad/s: the sign of a speed is smooth within so much."""
DRAG_REFERENCE_SPEED = 5.0
"""rad/s: speed at which what grows with its square is of unit size."""
BACKLASH_EFFORT_SHARE = 0.1
"""Of a motor's full effort: below it, play in the gears decides which way a joint goes."""
CABLE_FULL_FORCE_DISTANCE = 0.05
"""m: distance beyond which a cable pulls with its whole force."""


@dataclass(frozen=True)
class ForceLaw:
    name: str
    force: Callable[[Simulation], np.ndarray]
    """(n, nv)"""
    spread: float
    """How much of it there may be."""


def force_laws(robot: Robot) -> list[ForceLaw]:
    """Those that make sense for a robot."""
    return [*_joint_laws(robot), *_base_laws(robot)]


def _joint_laws(robot: Robot) -> Iterator[ForceLaw]:
    contract, motors = robot.contract, robot.motors
    asked = contract.target.high if motors.drive == "effort" else ()
    full = np.array(motors.torque_limit or contract.safety.effort or asked or (np.nan,))
    if not drives_joints(robot) or not np.isfinite(full).all():
        return

    def acting(law: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[Simulation], np.ndarray]:
        def force(engine: Simulation) -> np.ndarray:
            assert engine.driven_joints is not None
            out = np.zeros_like(engine.qvel)
            out[:, engine.driven_joints[1]] = law(engine.qvel[:, engine.driven_joints[1]], engine.ctrl)
            return out

        return force

    side = lambda v: np.tanh(v / SIGN_SMOOTHING_SPEED)  # noqa: E731
    yield ForceLaw("stick", acting(lambda v, u: -full * side(v) * np.exp(-((v / STICK_SPEED) ** 2))), 0.1)
    yield ForceLaw("play", acting(lambda v, u: -u * np.exp(-((u / (BACKLASH_EFFORT_SHARE * full)) ** 2))), 1.0)
    yield ForceLaw("friction under load", acting(lambda v, u: -np.abs(u) * side(v)), 0.3)
    yield ForceLaw("resistance", acting(lambda v, u: -full * v * np.abs(v) / DRAG_REFERENCE_SPEED**2), 0.1)


def _base_laws(robot: Robot) -> Iterator[ForceLaw]:
    if not robot.morphology.base:
        return
    model = robot.model
    joint = int(model.body_jntadr[model.body(robot.morphology.base).id])
    q, v = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
    mass = float(model.body_subtreemass[model.body(robot.morphology.base).id])
    weight = mass * float(np.linalg.norm(model.opt.gravity))

    def on_base(law: Callable[[Simulation], np.ndarray]) -> Callable[[Simulation], np.ndarray]:
        def force(engine: Simulation) -> np.ndarray:
            out = np.zeros_like(engine.qvel)
            out[:, v : v + 3] = law(engine)
            return out

        return force

    yield ForceLaw("drag", on_base(lambda engine: -mass * engine.qvel[:, v : v + 3]), 1.0)
    if robot.morphology.flies:
        yield ForceLaw(
            "drag of rotors",
            on_base(lambda engine: -mass * _in_rotor_plane(engine.qpos[:, q + 3 : q + 7], engine.qvel[:, v : v + 3])),
            1.0,
        )
    for axis in (0, 1):
        steady = weight * np.eye(3)[axis]
        yield ForceLaw(f"pull along {'xy'[axis]}", on_base(lambda engine, f=steady: np.tile(f, (engine.n, 1))), 0.05)
    if any(source.startswith("pos") for source in robot.sources.values()):
        home = np.array(robot.home[q : q + 3])
        yield ForceLaw("cable", on_base(lambda engine: -weight * _saturated_direction(engine.qpos[:, q : q + 3] - home)), 0.05)


def _in_rotor_plane(quat: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """The part of velocities in the plane of the rotors, (n, 3)."""
    z = z_axis(quat)
    return velocity - (velocity * z).sum(1, keepdims=True) * z


def _saturated_direction(offset: np.ndarray) -> np.ndarray:
    """Unit vectors, (n, 3), but shorter close to where it is held."""
    return offset / np.maximum(np.linalg.norm(offset, axis=1, keepdims=True), CABLE_FULL_FORCE_DISTANCE)
