"""What a state shows of feet and end effectors, read from a simulation by the names of the robot's Morphology."""

from __future__ import annotations

import mujoco
import numpy as np
import torch
from torch import Tensor

from isthmus.sim.morphology import Foot
from isthmus.sim.simulation import Simulation


class FeetView:
    def __init__(self, engine: Simulation):
        self.engine, feet, model = engine, engine.robot.morphology.feet, engine.model
        self._sites = [model.site(foot.site).id for foot in feet]
        self._site_positions = engine.engine.array("site_xpos") if feet else np.zeros((engine.n, 0, 3))
        self._contact_columns = np.array([_force_columns(model, foot) for foot in feet], dtype=int).reshape(-1, 3)
        """Columns of sensordata with the contact force on each foot, (feet, 3)."""

    def read(self, ids: np.ndarray | slice) -> tuple[Tensor, Tensor]:
        """World positions, m, (k, feet, 3), and sizes of the contact forces, N, (k, feet), in worlds `ids`."""
        pos = torch.from_numpy(self._site_positions[ids][:, self._sites]).float()
        force = torch.from_numpy(self.engine.sensordata[ids][:, self._contact_columns]).float()
        return pos, force.norm(dim=-1)


class EndEffectorView:
    def __init__(self, sim: Simulation):
        self._sites = [sim.model.site(arm.end_effector).id for arm in sim.robot.morphology.arms]
        self._site_positions = sim.engine.array("site_xpos") if self._sites else None

    def read(self, ids: np.ndarray | slice) -> Tensor | None:
        """World positions, m, (k, arms, 3), in worlds `ids`; None where the robot has no arm."""
        if self._site_positions is None:
            return None
        return torch.from_numpy(self._site_positions[ids][:, self._sites]).float()


def _force_columns(model: mujoco.MjModel, foot: Foot) -> list[int]:
    """Columns of sensordata with the net contact force on a foot."""
    first = int(model.sensor_adr[model.sensor(foot.sensor).id])
    return [first + 1, first + 2, first + 3]


def add_missing_foot_sensors(spec: mujoco.MjSpec, feet: tuple[Foot, ...]) -> None:
    """A site and a contact sensor at each foot that has none in the robot's own model."""
    for foot in feet:
        geom = spec.geom(foot.geoms[0])
        if spec.site(foot.site) is None:
            geom.parent.add_site(name=foot.site, pos=geom.pos, size=[0.01, 0.01, 0.01])
        if spec.sensor(foot.sensor) is None:
            spec.add_sensor(
                name=foot.sensor, type=mujoco.mjtSensor.mjSENS_CONTACT, objtype=mujoco.mjtObj.mjOBJ_BODY,
                objname=geom.parent.name,
                intprm=[3, 3, 1],  # found and force, net over all contacts, in one slot
            )  # fmt: skip
