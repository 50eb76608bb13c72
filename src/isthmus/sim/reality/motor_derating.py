"""Motors that give less than training thinks, or more: battery sag, heating, ground effect, damaged propellers.

It changes the motors' figures in force (strength, torque and speed limits), from those under e.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from isthmus.sim.physics.component import Attached
from isthmus.sim.reality import equations
from isthmus.sim.reality.tables import Unmodelled
from isthmus.sim.robot import Robot

if TYPE_CHECKING:
    from isthmus.sim.simulation import Simulation

SLOW_UPDATE_PERIOD = 0.002
"""s between updates of what no physics step can notice: battery, heat, air and cables."""


def thrust_fractions(robot: Robot, law: Unmodelled) -> np.ndarray:
    """Part of its thrust that each propeller gives, (m,)."""
    return np.array([law.thrust_asymmetry.get(label, 1.0) for label in robot.contract.target.labels])


def base_columns(sim: Simulation) -> tuple[int, int]:
    """First columns of the free joint of the robot's base in qpos and qvel."""
    model = sim.model
    joint = int(model.body_jntadr[model.body(sim.robot.morphology.base).id])
    return int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])


class MotorDerating(Attached):
    def __init__(self, sim: Simulation, law: Unmodelled):
        self._sim, self.law = sim, law
        m, robot = sim.layout.motor_count, sim.robot
        self.full_load_minutes = np.zeros((sim.n, m))
        """Minutes at full load that each motor's work so far is worth."""
        self.battery_seconds = np.zeros(sim.n)
        """s for which the battery has been used."""
        self.battery_idle = False
        """The battery does not run down while the robot idles."""
        limit, effort = sim.motor_law.nominal["torque_limit"], robot.contract.safety.effort
        self.full_torque = np.where(np.isfinite(limit), limit, np.array(effort or (np.inf,) * m))
        self._has_torque_limit = np.isfinite(limit)
        stride = max(1, round(SLOW_UPDATE_PERIOD / sim.dt))
        self.every = stride if any((law.sag, law.heating, law.ground_effect, law.thrust_asymmetry)) else 0
        self._update_seconds = stride * sim.dt
        self._has_rotors = bool(law.ground_effect or law.rotor_drag or law.thrust_asymmetry)
        if self._has_rotors:
            self._base_qpos, _ = base_columns(sim)
            self._rotor_positions = sim.model.site_pos[sim.model.actuator_trnid[:, 0]]
            self._hover_thrust = np.array(robot.default)
            self._thrust_fraction = thrust_fractions(robot, law)

    def reset(self, ids: np.ndarray) -> None:
        self.full_load_minutes[ids], self.battery_seconds[ids] = 0.0, 0.0
        # What the motors give before the first step: rotors turn, joints are at rest.
        strength = self._sim.binding.arrays["motor.strength"][ids]
        self._sim.ctrl[ids] = strength * self._thrust_fraction * self._hover_thrust if self._has_rotors else 0.0

    def before_step(self, substep: int) -> None:
        del substep
        sim, law, dt = self._sim, self.law, self._update_seconds
        gain, ceiling, voltage = np.ones((sim.n, 1)), np.ones((sim.n, 1)), np.ones((sim.n, 1))
        if law.sag:
            self.battery_seconds += 0.0 if self.battery_idle else dt
            voltage = equations.battery_voltage_fraction(self.battery_seconds, law.sag)[:, None]
            ceiling = voltage
            # A motor whose ceiling is not known gives less of what was asked, as a rotor without speed control does.
            gain = np.where(self._has_torque_limit, 1.0, voltage)
        if law.heating:
            self.full_load_minutes += equations.full_load_minutes(sim.ctrl, self.full_torque, dt)
            cold = equations.thermal_torque_fraction(self.full_load_minutes, law.heating)
            gain, ceiling = gain * cold, ceiling * cold
        if law.ground_effect:
            gain = gain * equations.ground_effect(self._rotor_heights(), law.ground_effect)
        if law.thrust_asymmetry:
            gain = gain * self._thrust_fraction
        under_e, in_force = sim.binding.arrays, sim.motors.in_force
        in_force["strength"][:] = under_e["motor.strength"] * gain
        in_force["torque_limit"][:] = under_e["motor.torque_limit"] * ceiling
        in_force["speed_limit"][:] = under_e["motor.speed_limit"] * voltage

    def _rotor_heights(self) -> np.ndarray:
        """m of each rotor above the ground, (n, m)."""
        w, x, y, z = (self._sim.qpos[:, self._base_qpos + i, None] for i in range(3, 7))
        a, b, c = self._rotor_positions.T
        up = 2 * (x * z - w * y) * a + 2 * (y * z + w * x) * b + (1 - 2 * (x * x + y * y)) * c
        return self._sim.qpos[:, self._base_qpos + 2, None] + up

    def state(self) -> dict[str, np.ndarray]:
        return {"heat": self.full_load_minutes.copy(), "used": self.battery_seconds.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.full_load_minutes[:], self.battery_seconds[:] = state["heat"], state["used"]
