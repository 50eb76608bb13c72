"""Unmodelled physics at work in the worlds of an engine, before every physics step.

What it changes are numbers that the physics reads anyway: figures of the motors, friction of the joints, and forces on the
joints (`qfrc_applied`; pushes and wind stay with `xfrc_applied`). Soft ground is the engine's own (`sim/ground.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from isthmus.sim.reality import gear as gears
from isthmus.sim.reality import laws
from isthmus.sim.reality.gear import Gear
from isthmus.sim.reality.tables import Unmodelled
from isthmus.sim.sources import compact

if TYPE_CHECKING:
    from isthmus.sim.reality.engine import RealEngine

SLOW = 0.002
"""s between updates of what no physics step can notice: battery, heat, air and cables."""


class Missing:
    def __init__(self, engine: RealEngine, law: Unmodelled, gear: Gear | None):
        self.engine, self.law, self.gear = engine, law, gear
        n, m, model, robot = engine.n, len(engine.robot.default), engine.model, engine.robot
        self.heat = np.zeros((n, m))
        """Minutes at full load that each motor's work so far is worth."""
        self.used = np.zeros(n)
        """s of battery."""
        self.resting = False
        """The battery does not run down while the robot idles."""
        self.anchor = np.zeros((n, 3))
        limit, effort = engine.actuators.nominal["torque_limit"], robot.contract.safety.effort
        self.full = np.where(np.isfinite(limit), limit, np.array(effort or (np.inf,) * m))
        self._limited = np.isfinite(limit)
        self._qfrc = engine.batch.bind("qfrc_applied")
        self._strong = any((law.sag, law.heating, law.ground_effect, law.thrust_asymmetry))
        self._pulled = any((law.drag, law.cable, law.rotor_drag, law.thrust_asymmetry))
        self._stride = max(1, round(SLOW / engine.dt))
        self._springy = gear is not None and gear.flex is not None
        self.busy = self._strong or self._pulled or self._springy or law.stribeck is not None
        """Whether there is anything to do between physics steps."""
        if robot.base:
            joint = int(model.body_jntadr[model.body(robot.base).id])
            self._p, self._v = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
        if law.stribeck:
            assert engine.joints is not None
            self._loss = engine.batch.expand("dof_frictionloss")
        if gear:
            self._armature = engine.batch.expand("dof_armature")
            self._links = compact(list(gear.q)), compact(list(gear.v))
        self._turning = bool(law.ground_effect or law.rotor_drag or law.thrust_asymmetry)
        if self._turning:
            sites = model.actuator_trnid[:, 0]
            self._sites = model.site_pos[sites]
            self._hover = np.array(robot.default)
            self._part = np.array([law.thrust_asymmetry.get(label, 1.0) for label in robot.contract.target.labels])

    # e and episodes -------------------------------------------------------------------------------------------

    def apply(self, ids: np.ndarray) -> None:
        """What e wrote, as this physics has it."""
        engine, model = self.engine, self.engine.model
        if self.gear:
            links, rotors = np.array(self.gear.v), np.arange(self.gear.nv, model.nv)
            varied = "dof_armature" in engine.binding.arrays
            inertia = self._armature[np.ix_(ids, links)] if varied else np.tile(model.dof_armature[links], (len(ids), 1))
            self._armature[np.ix_(ids, rotors)] = inertia
            self._armature[np.ix_(ids, links)] = 0.0
            engine.batch.set_const(ids)
            engine.settle_ground(ids)

    def wire(self, ids: np.ndarray) -> None:
        """Friction is this physics' own where it has one."""
        if self.law.stribeck:
            self.engine.view["motor.coulomb"][ids] = 0.0

    def reset(self, ids: np.ndarray) -> None:
        self.heat[ids], self.used[ids] = 0.0, 0.0
        self._qfrc[ids] = 0.0
        # What the motors give before the first step: rotors turn, joints are at rest.
        strength = self.engine.binding.arrays["motor.strength"][ids]
        self.engine.ctrl[ids] = strength * self._part * self._hover if self._turning else 0.0
        if self.law.cable:
            self.anchor[ids] = self.engine.qpos[ids][:, self._p : self._p + 3]

    # Time -----------------------------------------------------------------------------------------------------

    def act(self, step: int) -> None:
        """Write the numbers of the next physics step, number `step` of its tick. What changes slowly is written less often."""
        slowly = step % self._stride == 0
        if self._strong and slowly:
            self._motors(self._stride * self.engine.dt)
        if self.law.stribeck:
            joints = self.engine.joints
            assert joints is not None
            self._loss[:, joints[1]] = laws.stribeck(self.engine.qvel[:, joints[1]], self.law.stribeck)
        if self._springy:
            self._gears()
        if self._pulled and slowly:
            self._forces()

    def _gears(self) -> None:
        gear, qpos, qvel = self.gear, self.engine.qpos, self.engine.qvel
        assert gear is not None
        q, v = self._links
        tau = gears.damper(qpos[:, q], qvel[:, v], qpos[:, gear.nq :], qvel[:, gear.nv :], gear)
        self._qfrc[:, v], self._qfrc[:, gear.nv :] = tau, -tau

    def _motors(self, dt: float) -> None:
        engine, law = self.engine, self.law
        gain, ceiling, voltage = np.ones((engine.n, 1)), np.ones((engine.n, 1)), np.ones((engine.n, 1))
        if law.sag:
            self.used += 0.0 if self.resting else dt
            voltage = laws.charge(self.used, law.sag)[:, None]
            ceiling = voltage
            # A motor whose ceiling is not known gives less of what was asked, as a rotor without speed control does.
            gain = np.where(self._limited, 1.0, voltage)
        if law.heating:
            self.heat += laws.warmed(engine.ctrl, self.full, dt)
            cold = laws.cold_part(self.heat, law.heating)
            gain, ceiling = gain * cold, ceiling * cold
        if law.ground_effect:
            gain = gain * laws.ground_effect(self._heights(), law.ground_effect)
        if law.thrust_asymmetry:
            gain = gain * self._part
        arrays, view = engine.binding.arrays, engine.view
        view["motor.strength"][:] = arrays["motor.strength"] * gain
        view["motor.torque_limit"][:] = arrays["motor.torque_limit"] * ceiling
        view["motor.speed_limit"][:] = arrays["motor.speed_limit"] * voltage

    def _heights(self) -> np.ndarray:
        """m of each rotor above the ground, (n, m)."""
        w, x, y, z = (self.engine.qpos[:, self._p + i, None] for i in range(3, 7))
        a, b, c = self._sites.T
        up = 2 * (x * z - w * y) * a + 2 * (y * z + w * x) * b + (1 - 2 * (x * x + y * y)) * c
        return self.engine.qpos[:, self._p + 2, None] + up

    def _forces(self) -> None:
        engine, law, v = self.engine, self.law, self._v
        speed = engine.qvel[:, v : v + 3]
        force = np.zeros((engine.n, 3))
        if law.drag:
            force -= law.drag * speed
        if law.cable:
            force += laws.cable_pull(engine.qpos[:, self._p : self._p + 3] - self.anchor, law.cable)
        if law.rotor_drag:
            quat = engine.qpos[:, self._p + 3 : self._p + 7]
            force += laws.rotor_drag(speed, quat, engine.ctrl, self._hover, law.rotor_drag)
        self._qfrc[:, v : v + 3] = force
        if law.thrust_asymmetry:
            # The damaged propeller loses thrust, but costs the motor the torque that it always did.
            lost = np.divide(1.0 - self._part, self._part, out=np.zeros_like(self._part), where=self._part > 0)
            self._qfrc[:, v + 5] = (self._moments() * engine.ctrl * lost).sum(1)

    def _moments(self) -> np.ndarray:
        """m: yaw moment per thrust, (n, m) or (m,)."""
        gears = self.engine.binding.arrays.get("actuator_gear")
        return self.engine.model.actuator_gear[:, 5] if gears is None else gears.reshape(self.engine.n, -1, 6)[:, :, 5]
