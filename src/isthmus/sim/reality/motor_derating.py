"""Unmodelled physics at work in the worlds of an engine, before every physics step.

What it changes are numbers that the physics reads anyway: figures of the motors, friction of the joints, and forces on the
joints (`qfrc_applied`; pushes and wind stay with `xfrc_applied`). Soft ground is the engine's own (`sim/ground.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from isthmus.sim.indexing import as_slice
from isthmus.sim.reality import equations
from isthmus.sim.reality import gearbox as gears
from isthmus.sim.reality.gearbox import Gearbox
from isthmus.sim.reality.tables import Unmodelled

if TYPE_CHECKING:
    from isthmus.sim.reality.simulation import RealSimulation

SLOW_UPDATE_PERIOD = 0.002
"""s between updates of what no physics step can notice: battery, heat, air and cables."""


class UnmodelledPhysics:
    def __init__(self, sim: RealSimulation, unmodelled: Unmodelled, gearbox: Gearbox | None):
        self.sim, self.unmodelled, self.gearbox = sim, unmodelled, gearbox
        n, m, model, robot = sim.n, len(sim.robot.default), sim.model, sim.robot
        self.full_load_minutes = np.zeros((n, m))
        """Minutes at full load that each motor's work so far is worth."""
        self.battery_seconds = np.zeros(n)
        """s of battery."""
        self.battery_idle = False
        """The battery does not run down while the robot idles."""
        self.cable_anchor = np.zeros((n, 3))
        limit, effort = sim.motor_law.nominal["torque_limit"], robot.contract.safety.effort
        self.full_torque = np.where(np.isfinite(limit), limit, np.array(effort or (np.inf,) * m))
        self._has_torque_limit = np.isfinite(limit)
        self._qfrc_applied = sim.engine.array("qfrc_applied")
        self._changes_motors = any((unmodelled.sag, unmodelled.heating, unmodelled.ground_effect, unmodelled.thrust_asymmetry))
        self._applies_body_force = any((unmodelled.drag, unmodelled.cable, unmodelled.rotor_drag, unmodelled.thrust_asymmetry))
        self._slow_stride = max(1, round(SLOW_UPDATE_PERIOD / sim.dt))
        self._has_flex = gearbox is not None and gearbox.stiffness is not None
        self.acts_between_steps = (
            self._changes_motors or self._applies_body_force or self._has_flex or unmodelled.stribeck is not None
        )
        """Whether there is anything to do between physics steps."""
        if robot.morphology.base:
            joint = int(model.body_jntadr[model.body(robot.morphology.base).id])
            self._base_qpos, self._base_qvel = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
        if unmodelled.stribeck:
            assert sim.driven_joints is not None
            self._frictionloss = sim.engine.field("dof_frictionloss")
        if gearbox:
            self._armature = sim.engine.field("dof_armature")
            self._link_columns = as_slice(list(gearbox.link_qpos)), as_slice(list(gearbox.link_qvel))
        self._has_rotors = bool(unmodelled.ground_effect or unmodelled.rotor_drag or unmodelled.thrust_asymmetry)
        if self._has_rotors:
            sites = model.actuator_trnid[:, 0]
            self._rotor_positions = model.site_pos[sites]
            self._hover_thrust = np.array(robot.default)
            self._thrust_fraction = np.array(
                [unmodelled.thrust_asymmetry.get(label, 1.0) for label in robot.contract.target.labels]
            )

    # e and episodes -------------------------------------------------------------------------------------------

    def apply(self, ids: np.ndarray) -> None:
        """What e wrote, as this physics has it."""
        engine, model = self.sim, self.sim.model
        if self.gearbox:
            links, rotors = np.array(self.gearbox.link_qvel), np.arange(self.gearbox.nv, model.nv)
            varied = "dof_armature" in engine.binding.arrays
            inertia = self._armature[np.ix_(ids, links)] if varied else np.tile(model.dof_armature[links], (len(ids), 1))
            self._armature[np.ix_(ids, rotors)] = inertia
            self._armature[np.ix_(ids, links)] = 0.0
            engine.engine.set_const(ids)
            engine.apply_ground(ids)

    def override_motor_fields(self, ids: np.ndarray) -> None:
        """Friction is this physics' own where it has one."""
        if self.unmodelled.stribeck:
            self.sim.userdata["motor.coulomb"][ids] = 0.0

    def reset(self, ids: np.ndarray) -> None:
        self.full_load_minutes[ids], self.battery_seconds[ids] = 0.0, 0.0
        self._qfrc_applied[ids] = 0.0
        # What the motors give before the first step: rotors turn, joints are at rest.
        strength = self.sim.binding.arrays["motor.strength"][ids]
        self.sim.ctrl[ids] = strength * self._thrust_fraction * self._hover_thrust if self._has_rotors else 0.0
        if self.unmodelled.cable:
            self.cable_anchor[ids] = self.sim.qpos[ids][:, self._base_qpos : self._base_qpos + 3]

    # Time -----------------------------------------------------------------------------------------------------

    def before_step(self, substep: int) -> None:
        """Write the numbers of the next physics step, number `step` of its tick. What changes slowly is written less often."""
        slowly = substep % self._slow_stride == 0
        if self._changes_motors and slowly:
            self._update_motors(self._slow_stride * self.sim.dt)
        if self.unmodelled.stribeck:
            joints = self.sim.driven_joints
            assert joints is not None
            self._frictionloss[:, joints[1]] = equations.stribeck_friction(
                self.sim.qvel[:, joints[1]], self.unmodelled.stribeck
            )
        if self._has_flex:
            self._apply_gear_damping()
        if self._applies_body_force and slowly:
            self._apply_body_force()

    def _apply_gear_damping(self) -> None:
        gear, qpos, qvel = self.gearbox, self.sim.qpos, self.sim.qvel
        assert gear is not None
        q, v = self._link_columns
        tau = gears.damper_torque(qpos[:, q], qvel[:, v], qpos[:, gear.nq :], qvel[:, gear.nv :], gear)
        self._qfrc_applied[:, v], self._qfrc_applied[:, gear.nv :] = tau, -tau

    def _update_motors(self, dt: float) -> None:
        engine, law = self.sim, self.unmodelled
        gain, ceiling, voltage = np.ones((engine.n, 1)), np.ones((engine.n, 1)), np.ones((engine.n, 1))
        if law.sag:
            self.battery_seconds += 0.0 if self.battery_idle else dt
            voltage = equations.battery_voltage_fraction(self.battery_seconds, law.sag)[:, None]
            ceiling = voltage
            # A motor whose ceiling is not known gives less of what was asked, as a rotor without speed control does.
            gain = np.where(self._has_torque_limit, 1.0, voltage)
        if law.heating:
            self.full_load_minutes += equations.full_load_minutes(engine.ctrl, self.full_torque, dt)
            cold = equations.thermal_torque_fraction(self.full_load_minutes, law.heating)
            gain, ceiling = gain * cold, ceiling * cold
        if law.ground_effect:
            gain = gain * equations.ground_effect(self._rotor_heights(), law.ground_effect)
        if law.thrust_asymmetry:
            gain = gain * self._thrust_fraction
        arrays, view = engine.binding.arrays, engine.userdata
        view["motor.strength"][:] = arrays["motor.strength"] * gain
        view["motor.torque_limit"][:] = arrays["motor.torque_limit"] * ceiling
        view["motor.speed_limit"][:] = arrays["motor.speed_limit"] * voltage

    def _rotor_heights(self) -> np.ndarray:
        """m of each rotor above the ground, (n, m)."""
        w, x, y, z = (self.sim.qpos[:, self._base_qpos + i, None] for i in range(3, 7))
        a, b, c = self._rotor_positions.T
        up = 2 * (x * z - w * y) * a + 2 * (y * z + w * x) * b + (1 - 2 * (x * x + y * y)) * c
        return self.sim.qpos[:, self._base_qpos + 2, None] + up

    def _apply_body_force(self) -> None:
        engine, law, v = self.sim, self.unmodelled, self._base_qvel
        speed = engine.qvel[:, v : v + 3]
        force = np.zeros((engine.n, 3))
        if law.drag:
            force -= law.drag * speed
        if law.cable:
            force += equations.cable_force(engine.qpos[:, self._base_qpos : self._base_qpos + 3] - self.cable_anchor, law.cable)
        if law.rotor_drag:
            quat = engine.qpos[:, self._base_qpos + 3 : self._base_qpos + 7]
            force += equations.rotor_drag(speed, quat, engine.ctrl, self._hover_thrust, law.rotor_drag)
        self._qfrc_applied[:, v : v + 3] = force
        if law.thrust_asymmetry:
            # The damaged propeller loses thrust, but costs the motor the torque that it always did.
            lost = np.divide(
                1.0 - self._thrust_fraction,
                self._thrust_fraction,
                out=np.zeros_like(self._thrust_fraction),
                where=self._thrust_fraction > 0,
            )
            self._qfrc_applied[:, v + 5] = (self._yaw_moment_per_thrust() * engine.ctrl * lost).sum(1)

    def _yaw_moment_per_thrust(self) -> np.ndarray:
        """m: yaw moment per thrust, (n, m) or (m,)."""
        gears = self.sim.binding.arrays.get("actuator_gear")
        return self.sim.model.actuator_gear[:, 5] if gears is None else gears.reshape(self.sim.n, -1, 6)[:, :, 5]
