"""What learned forces read from a world and where they act, resolved in a model.

A motor's force reads its position error (or the torque that it was asked for) and its speed, now and at a few moments of the
past. A body's force reads the
state without what physics does not depend on (where the robot is and which way it heads), and the torques of the motors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import mujoco
import numpy as np

from isthmus.core.errors import unknown_name
from isthmus.core.geometry import rotate_inverse
from isthmus.sim.physics.learned_force import LearnedForce
from isthmus.sim.robot import Robot

QPOS_FEATURE, SINE_FEATURE, COSINE_FEATURE, QVEL_FEATURE, CTRL_FEATURE, GRAVITY_FEATURE, LINEAR_VELOCITY_FEATURE = range(7)
"""How a feature is read. The last two give three numbers: the way down and the velocity, in the frame of a free body."""
_HINGE, _FREE, _SLIDE = (int(getattr(mujoco.mjtJoint, f"mjJNT_{name}")) for name in ("HINGE", "FREE", "SLIDE"))


@dataclass(frozen=True)
class BodyForceFeatures:
    feature_rows: tuple[tuple[int, int, int], ...]
    """(how, column, column of qvel if a velocity is to be turned) of each feature."""
    labels: tuple[str, ...]
    """One per number."""
    output_joints: tuple[tuple[int, int], ...]
    """(dof, column of qpos) of a free body, whose force is in its own frame; (dof, -1) of a joint."""

    @cached_property
    def dofs(self) -> list[int]:
        """Degrees of freedom, one per number of the force."""
        return [d for dof, q in self.output_joints for d in (range(dof, dof + 6) if q >= 0 else (dof,))]

    def read(self, qpos: np.ndarray, qvel: np.ndarray, ctrl: np.ndarray) -> np.ndarray:
        """(n, features)"""
        columns: list[np.ndarray] = []
        for how, at, other in self.feature_rows:
            if how == GRAVITY_FEATURE:
                columns += list(rotate_inverse(qpos[:, at + 3 : at + 7], np.tile([0.0, 0.0, -1.0], (len(qpos), 1))).T)
            elif how == LINEAR_VELOCITY_FEATURE:
                columns += list(rotate_inverse(qpos[:, at + 3 : at + 7], qvel[:, other : other + 3]).T)
            elif how in (QVEL_FEATURE, CTRL_FEATURE):
                columns.append((qvel if how == QVEL_FEATURE else ctrl)[:, at])
            else:
                q = qpos[:, at]
                columns.append(q if how == QPOS_FEATURE else np.sin(q) if how == SINE_FEATURE else np.cos(q))
        return np.stack(columns, axis=1)

    def to_generalized_force(self, force: np.ndarray, qpos: np.ndarray, out: np.ndarray) -> None:
        """Write forces (n, outputs) to generalised forces `out`, (n, nv), those of free bodies turned into the world."""
        out[:, self.dofs] = force
        for dof, q in self.output_joints:
            if q >= 0:
                turned = qpos[:, q + 3 : q + 7] * np.array([1.0, -1.0, -1.0, -1.0])
                out[:, dof : dof + 3] = rotate_inverse(turned, out[:, dof : dof + 3].copy())

    def from_generalized_force(self, force: np.ndarray, qpos: np.ndarray) -> np.ndarray:
        """The other way: generalised forces (n, nv) as this reader's outputs, (n, outputs)."""
        out = force.copy()
        for dof, q in self.output_joints:
            if q >= 0:
                out[:, dof : dof + 3] = rotate_inverse(qpos[:, q + 3 : q + 7], force[:, dof : dof + 3])
        return out[:, self.dofs]


def body_force_features(robot: Robot, model: mujoco.MjModel, joint_names: tuple[str, ...]) -> BodyForceFeatures:
    """Of a force on the joints `names`."""
    rows: list[tuple[int, int, int]] = []
    labels: list[str] = []
    joints = [model.joint(j) for j in range(model.njnt)]
    for joint in joints:
        q, v, kind, name = int(joint.qposadr[0]), int(joint.dofadr[0]), int(joint.type[0]), joint.name
        if kind == _FREE:
            rows += [
                (QPOS_FEATURE, q + 2, 0),
                (GRAVITY_FEATURE, q, 0),
                (LINEAR_VELOCITY_FEATURE, q, v),
                *((QVEL_FEATURE, v + i, 0) for i in (3, 4, 5)),
            ]
            labels += [f"{name} height"]
            labels += [f"{name} {what} {axis}" for what in ("down", "velocity", "rate") for axis in "xyz"]
        elif kind in (_HINGE, _SLIDE):
            turns = kind == _HINGE and not joint.range[1] > joint.range[0]
            rows += [(SINE_FEATURE, q, 0), (COSINE_FEATURE, q, 0)] if turns else [(QPOS_FEATURE, q, 0)]
            labels += [f"sin {name}", f"cos {name}"] if turns else [name]
            rows.append((QVEL_FEATURE, v, 0))
            labels.append(f"{name} speed")
    size = robot.contract.target.size
    rows += [(CTRL_FEATURE, i, 0) for i in range(size)]
    labels += [f"{label} torque" for label in robot.contract.target.labels]
    forces = []
    for name in joint_names:
        joint = next((j for j in joints if j.name == name), None)
        if joint is None:
            raise unknown_name("joint", name, [j.name for j in joints], f"a learned force of {robot.name}")
        forces.append((int(joint.dofadr[0]), int(joint.qposadr[0]) if int(joint.type[0]) == _FREE else -1))
    return BodyForceFeatures(tuple(rows), tuple(labels), tuple(forces))


def motor_error_and_speed(drive: str, u: np.ndarray, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
    """What a motor's force remembers of a moment, (n, 2, m): its error, or the torque that was asked for, and its speed."""
    return np.stack([u if drive == "effort" else u - q, qd], axis=1)


@dataclass(frozen=True)
class MotorForceFeatures:
    motors: tuple[int, ...]
    lag_steps: tuple[int, ...]
    """Physics steps back, 0 first."""

    def read(self, memory: np.ndarray, newest_slot: np.ndarray) -> np.ndarray:
        """Features of the motors, (n, motors, 2 (lags + 1)), from a memory (n, depth, 2, m) whose newest slot is `now`."""
        n, depth = memory.shape[:2]
        slots = (newest_slot[:, None] - np.array(self.lag_steps)) % depth
        seen = memory[np.arange(n)[:, None], slots][..., list(self.motors)]
        return seen.transpose(0, 3, 2, 1).reshape(n, len(self.motors), -1)


def motor_force_features(robot: Robot, learned: LearnedForce, dt: float) -> MotorForceFeatures:
    labels = robot.contract.target.labels
    for name in learned.names:
        if name not in labels:
            raise unknown_name("motor", name, labels, f"a learned force of {robot.name}")
    step = max(1, round(learned.stride / dt))
    return MotorForceFeatures(
        tuple(labels.index(name) for name in learned.names), tuple(i * step for i in range(learned.lags + 1))
    )
