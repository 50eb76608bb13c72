"""The actuators of a model that drives itself (`native`), in its robot's damping mode: no stiffness, only a brake.

    servo     gain · u + b₀ + b₁ l + b₂ l̇   becomes   -d l̇           l: length of the actuator, gear · q
    motor     gain · u                       gets      u = -D q̇ / (gear · gain)
    others    (muscles, rotors, …)           get       u = 0

with D from the contract's safety, d = D / gear². An actuator's own damping is never made smaller, and its limits of force
stay in force.
"""

from __future__ import annotations

import mujoco
import numpy as np

from isthmus.sim.engine import Engine

_ON_JOINT = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
_ONE_AXIS = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))


class Servos:
    def __init__(self, engine: Engine, damping: tuple[float, ...]):
        """`damping` is D per component of the target; where it is empty, max(2 kd, 0.05 kp) of each servo."""
        model = engine.model
        self._gain, self._bias = (engine.batch.expand(f"actuator_{name}prm") for name in ("gain", "bias"))
        self._own = self._gain.copy(), self._bias.copy()
        self._qvel = engine.qvel
        gear = model.actuator_gear[:, 0]
        self._servo = model.actuator_biastype == int(mujoco.mjtBias.mjBIAS_AFFINE)
        stiffness, brake = -self._own[1][:, :, 1], -self._own[1][:, :, 2]
        d = np.maximum(2.0 * brake, 0.05 * stiffness)
        if damping:
            d = np.divide(damping, gear**2, out=np.zeros(model.nu), where=gear != 0)[None]
        self._brake = np.maximum(brake, d)
        plain = (model.actuator_biastype == int(mujoco.mjtBias.mjBIAS_NONE)) & (
            model.actuator_gaintype == int(mujoco.mjtGain.mjGAIN_FIXED)
        )
        joint = np.where(np.isin(model.actuator_trntype, _ON_JOINT), model.actuator_trnid[:, 0], 0)
        on_joint = np.isin(model.actuator_trntype, _ON_JOINT) & np.isin(model.jnt_type[joint], _ONE_AXIS)
        self._motor = plain & on_joint & (gear != 0)
        self._dof = model.jnt_dofadr[joint]
        self._force = np.array(damping or (0.0,) * model.nu) / np.where(self._motor, gear, 1.0)

    def damp(self) -> None:
        """No stiffness, only a brake, until `follow`."""
        gain, bias = (array.copy() for array in self._own)
        gain[:, self._servo] = 0.0
        bias[:, self._servo] = 0.0
        bias[:, self._servo, 2] = -self._brake[:, self._servo]
        self._gain[:], self._bias[:] = gain, bias

    def follow(self) -> None:
        """As the model has them."""
        self._gain[:], self._bias[:] = self._own

    def target(self) -> np.ndarray:
        """ctrl of the damping mode, (n, m): what brakes a plain motor, zero for all others."""
        gain = self._own[0][:, :, 0]
        wanted = -self._force * self._qvel[:, self._dof]
        return np.divide(wanted, gain, out=np.zeros_like(wanted), where=self._motor & (gain != 0))
