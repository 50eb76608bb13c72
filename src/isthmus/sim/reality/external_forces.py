"""Forces on the base that training does not have: air drag, a cable, drag of rotors, torque of damaged propellers.

They act as generalised forces (`qfrc_applied`); pushes and wind stay with `xfrc_applied`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from isthmus.sim.physics.component import Attached
from isthmus.sim.reality import equations
from isthmus.sim.reality.motor_derating import SLOW_UPDATE_PERIOD, base_columns, thrust_fractions
from isthmus.sim.reality.tables import Unmodelled

if TYPE_CHECKING:
    from isthmus.sim.simulation import Simulation


class ExternalForces(Attached):
    def __init__(self, sim: Simulation, law: Unmodelled):
        self._sim, self.law = sim, law
        self.cable_anchor = np.zeros((sim.n, 3))
        """m in the world: where the base was at reset."""
        acts = any((law.drag, law.cable, law.rotor_drag, law.thrust_asymmetry))
        self.every = max(1, round(SLOW_UPDATE_PERIOD / sim.dt)) if acts else 0
        if acts:
            self._base_qpos, self._base_qvel = base_columns(sim)
        self._hover_thrust = np.array(sim.robot.default)
        self._thrust_fraction = thrust_fractions(sim.robot, law)

    def reset(self, ids: np.ndarray) -> None:
        if self.law.cable:
            self.cable_anchor[ids] = self._sim.qpos[ids][:, self._base_qpos : self._base_qpos + 3]

    def before_step(self, substep: int) -> None:
        del substep
        sim, law, q, v = self._sim, self.law, self._base_qpos, self._base_qvel
        speed = sim.qvel[:, v : v + 3]
        force = np.zeros((sim.n, 3))
        if law.drag:
            force -= law.drag * speed
        if law.cable:
            force += equations.cable_force(sim.qpos[:, q : q + 3] - self.cable_anchor, law.cable)
        if law.rotor_drag:
            quat = sim.qpos[:, q + 3 : q + 7]
            force += equations.rotor_drag(speed, quat, sim.ctrl, self._hover_thrust, law.rotor_drag)
        sim.qfrc_applied[:, v : v + 3] = force
        if law.thrust_asymmetry:
            # The damaged propeller loses thrust, but costs the motor the torque that it always did.
            fraction = self._thrust_fraction
            lost = np.divide(1.0 - fraction, fraction, out=np.zeros_like(fraction), where=fraction > 0)
            sim.qfrc_applied[:, v + 5] = (self._yaw_moment_per_thrust() * sim.ctrl * lost).sum(1)

    def _yaw_moment_per_thrust(self) -> np.ndarray:
        """N·m per N, (n, m) or (m,)."""
        gears = self._sim.binding.arrays.get("actuator_gear")
        return self._sim.model.actuator_gear[:, 5] if gears is None else gears.reshape(self._sim.n, -1, 6)[:, :, 5]

    def state(self) -> dict[str, np.ndarray]:
        return {"anchor": self.cable_anchor.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.cable_anchor[:] = state["anchor"]
