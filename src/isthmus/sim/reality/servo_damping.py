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

from isthmus.sim.simulation import Simulation

_JOINT_TRANSMISSIONS = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
_ONE_AXIS_JOINTS = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))


class ServoDamping:
    def __init__(self, sim: Simulation, damping: tuple[float, ...]):
        """`damping` is D per component of the target; where it is empty, max(2 kd, 0.05 kp) of each servo."""
        model = sim.model
        self._gain, self._bias = (sim.engine.field(f"actuator_{name}prm") for name in ("gain", "bias"))
        self._nominal_params = self._gain.copy(), self._bias.copy()
        self._qvel = sim.qvel
        gear = model.actuator_gear[:, 0]
        self._is_servo = model.actuator_biastype == int(mujoco.mjtBias.mjBIAS_AFFINE)
        stiffness, brake = -self._nominal_params[1][:, :, 1], -self._nominal_params[1][:, :, 2]
        d = np.maximum(2.0 * brake, 0.05 * stiffness)
        if damping:
            d = np.divide(damping, gear**2, out=np.zeros(model.nu), where=gear != 0)[None]
        self._damping = np.maximum(brake, d)
        plain = (model.actuator_biastype == int(mujoco.mjtBias.mjBIAS_NONE)) & (
            model.actuator_gaintype == int(mujoco.mjtGain.mjGAIN_FIXED)
        )
        joint = np.where(np.isin(model.actuator_trntype, _JOINT_TRANSMISSIONS), model.actuator_trnid[:, 0], 0)
        on_joint = np.isin(model.actuator_trntype, _JOINT_TRANSMISSIONS) & np.isin(model.jnt_type[joint], _ONE_AXIS_JOINTS)
        self._is_plain_motor = plain & on_joint & (gear != 0)
        self._dof = model.jnt_dofadr[joint]
        self._motor_damping = np.array(damping or (0.0,) * model.nu) / np.where(self._is_plain_motor, gear, 1.0)

    def enable_damping(self) -> None:
        """No stiffness, only a brake, until `follow`."""
        gain, bias = (array.copy() for array in self._nominal_params)
        gain[:, self._is_servo] = 0.0
        bias[:, self._is_servo] = 0.0
        bias[:, self._is_servo, 2] = -self._damping[:, self._is_servo]
        self._gain[:], self._bias[:] = gain, bias

    def restore_servos(self) -> None:
        """As the model has them."""
        self._gain[:], self._bias[:] = self._nominal_params

    def damping_ctrl(self) -> np.ndarray:
        """ctrl of the damping mode, (n, m): what brakes a plain motor, zero for all others."""
        gain = self._nominal_params[0][:, :, 0]
        wanted = -self._motor_damping * self._qvel[:, self._dof]
        return np.divide(wanted, gain, out=np.zeros_like(wanted), where=self._is_plain_motor & (gain != 0))
