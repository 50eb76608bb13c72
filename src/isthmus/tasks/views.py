"""Where a robot's feet are and how hard they are pressed to the ground."""

from __future__ import annotations

import mujoco
import numpy as np
import torch
from torch import Tensor

from isthmus.sim.simulation import Simulation


class FeetView:
    def __init__(self, engine: Simulation):
        self.engine, names, model = engine, engine.robot.feet, engine.model
        self._sites = [mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, f) for f in names]
        self._site_positions = engine.engine.array("site_xpos") if names else np.zeros((engine.n, 0, 3))
        self._contact_columns = np.array([_force_columns(model, f) for f in names], dtype=int).reshape(-1, 3)
        """Columns of sensordata with the contact force on each foot, (feet, 3)."""

    def read(self, ids: np.ndarray | slice) -> tuple[Tensor, Tensor]:
        """World positions, m, (k, feet, 3), and sizes of the contact forces, N, (k, feet), in worlds `ids`."""
        pos = torch.from_numpy(self._site_positions[ids][:, self._sites]).float()
        force = torch.from_numpy(self.engine.sensordata[ids][:, self._contact_columns]).float()
        return pos, force.norm(dim=-1)


def _force_columns(model: mujoco.MjModel, foot: str) -> list[int]:
    """Columns of sensordata with the net contact force on a foot."""
    name = foot.removesuffix("_foot") + "_contact"
    i = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, name)
    first = int(model.sensor_adr[i])
    return [first + 1, first + 2, first + 3]
