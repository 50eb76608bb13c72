"""What was found in a model, by name, and its size in mass, length and torque."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import mujoco
import numpy as np

from isthmus.core.constants import MODEL_GRAVITY
from isthmus.data.contract import Signal
from isthmus.robots.from_model.edit_model import Actuator
from isthmus.sim.robot import MotorParams


def root_bodies(model: mujoco.MjModel, actuators: tuple[Actuator, ...], free: str) -> set[int]:
    """Root bodies of the trees that the actuators drive; all of them where that cannot be told."""
    driven = {int(model.body_rootid[model.joint(j).bodyid[0]]) for j in (*(a.joint for a in actuators), free) if j}
    return driven or {int(r) for r in model.body_rootid}


def moving_bodies(model: mujoco.MjModel, root_ids: set[int]) -> list[int]:
    """Bodies with mass that can move, in the trees with the given roots."""
    can = (model.body_weldid > 0) & (model.body_mass > 0) & np.isin(model.body_rootid, list(root_ids))
    return np.nonzero(can)[0].tolist()


@dataclass(frozen=True)
class ModelSize:
    """What was found in a model, by name."""

    model: mujoco.MjModel
    joints: tuple[str, ...]
    """Hinge and slide joints."""
    free_joint: str
    """Free joint of the base, or empty."""
    base: str
    """Body whose centre of mass is uncertain and that carries the payload, or empty."""
    floor: str
    """The ground, if the robot touches it at home."""
    actuators: tuple[Actuator, ...]
    labels: tuple[str, ...]
    """Components of the target: the joints behind the actuators, or the actuators."""
    signals: tuple[Signal, ...]
    motors: MotorParams
    tick: float
    """s."""

    def moving_body_names(self) -> list[str]:
        """Bodies of the robot with mass that can move; things that lie about are not part of it."""
        own = root_bodies(self.model, self.actuators, self.free_joint)
        return [self.model.body(b).name for b in moving_bodies(self.model, own)]

    def joint_dofs(self) -> np.ndarray:
        return np.array([self.model.jnt_dofadr[self.model.joint(j).id] for j in self.joints], dtype=int)

    def moving_mass(self) -> float:
        """kg of all that moves."""
        return float(sum(self.model.body(b).mass[0] for b in self.moving_body_names()))

    def radius_of_gyration(self) -> float:
        """Radius of gyration of all that moves about its centre, at qpos0, m."""
        m, data = self.model, mujoco.MjData(self.model)
        mujoco.mj_kinematics(m, data)
        ids = [m.body(b).id for b in self.moving_body_names()]
        mass, at = m.body_mass[ids], data.xipos[ids]
        spread = (mass[:, None] * (at - np.average(at, axis=0, weights=mass)) ** 2).sum() + m.body_inertia[ids].sum() / 2
        return float(np.sqrt(spread / mass.sum()))

    def com_matters(self, axis: int) -> bool:
        """Whether a shift of the base's centre of mass along an axis changes inertia or bias forces anywhere.

        It does not where the body can only turn about that axis, as in an arm that moves in a plane.
        """
        if self.free_joint:
            return True
        m, moved, rng = self.model, copy.copy(self.model), np.random.default_rng(0)
        moved.body_ipos[m.body(self.base).id, axis] += 0.01
        mujoco.mj_setConst(moved, mujoco.MjData(moved))
        for _ in range(3):
            q, v, seen = rng.uniform(-1, 1, m.nv), rng.uniform(-1, 1, m.nv), []
            for model in (m, moved):
                data = mujoco.MjData(model)
                mujoco.mj_integratePos(model, data.qpos, q, 1.0)
                data.qvel[:] = v
                mujoco.mj_forward(model, data)
                seen.append(np.concatenate([data.M, data.qfrc_bias]))
            if not np.allclose(*seen, rtol=1e-9, atol=1e-12 * np.abs(seen[0]).max()):
                return True
        return False

    def typical_torque(self) -> float:
        """Typical joint torque, N·m: the motors' limit, or what holds the robot's weight at its size."""
        limits = [a.torque_limit for a in self.actuators if a.joint and np.isfinite(a.torque_limit)]
        return float(np.median(limits)) if limits else MODEL_GRAVITY * self.moving_mass() * self.radius_of_gyration()
