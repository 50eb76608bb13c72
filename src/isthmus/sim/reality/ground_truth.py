"""What really is the case in the first world of an engine: for tests and for a log that is kept apart."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from isthmus.sim.reality.motor_derating import MotorDerating
from isthmus.sim.reality.sensor_errors import SensorErrors
from isthmus.sim.simulation import Simulation


class GroundTruth:
    def __init__(self, sim: Simulation):
        self.sim = sim
        self.events: list[dict[str, Any]] = []
        """What happened to the robot itself."""
        self._model = sim.engine.get_model(0)
        self._data = mujoco.MjData(self._model)
        self._native_drive = sim.robot.motors.drive == "native"

    def read(self) -> dict[str, Any]:
        """State, torque, e, contacts (N), heat, battery and whether the robot has fallen, as plain data and arrays."""
        engine = self.sim
        nq, nv = engine.robot.model.nq, engine.robot.model.nv
        derating = engine.part(MotorDerating)
        contacts = self._contacts()
        feet = {foot: sum(c["force"] for c in contacts if foot in c["geoms"]) for foot in engine.robot.morphology.foot_geoms}
        return {
            "qpos": engine.qpos[0, :nq].copy(),
            "qvel": engine.qvel[0, :nv].copy(),
            "rotor": engine.qpos[0, nq:].copy(),
            "torque": engine.ctrl[0].copy(),
            "e": dict(zip(engine.robot.space.names, engine.e[0].tolist(), strict=True)),
            "contacts": contacts,
            "feet": feet,
            "heat": derating.full_load_minutes[0].copy(),
            "battery": float(derating.battery_seconds[0]),
            "drift": engine.part(SensorErrors).bias_walk[0].copy(),
            "fallen": self._fallen(contacts),
            "events": list(self.events),
        }

    def _contacts(self) -> list[dict[str, Any]]:
        model, data = self._model, self.sim.engine.get_data(0, self._data)
        for field in ("actuator_gainprm", "actuator_biasprm") if self._native_drive else ():
            # The damping mode of a robot with servos changes them.
            getattr(model, field)[:] = self.sim.engine.field(field)[0]
        mujoco.mj_forward(model, data)
        found, force = [], np.zeros(6)
        for i in range(data.ncon):
            mujoco.mj_contactForce(model, data, i, force)
            pair = data.contact[i].geom
            bodies = [model.body(int(model.geom_bodyid[g])).name for g in pair]
            geoms = [model.geom(int(g)).name for g in pair]
            found.append({"geoms": geoms, "bodies": bodies, "force": float(force[0]), "depth": float(-data.contact[i].dist)})
        return found

    def _fallen(self, contacts: list[dict[str, Any]]) -> bool:
        """Tilted beyond what the contract calls safe, or lying on its base."""
        robot = self.sim.robot
        if not robot.morphology.base:
            return False
        upright = float(self._data.body(robot.morphology.base).xmat[8])
        tilted = robot.contract.safety.tilt > 0 and upright < np.cos(robot.contract.safety.tilt)
        return bool(tilted or any(robot.morphology.base in c["bodies"] for c in contacts))
