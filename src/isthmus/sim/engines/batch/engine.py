"""Worlds on a C++ thread pool: `mujoco.batch.Batch`, with the motor law in C inside the physics step."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from isthmus.sim.engines.batch import control_callback


class BatchEngine:
    """Results do not depend on the number of threads, nor on the other worlds."""

    def __init__(self, model: mujoco.MjModel, n: int, threads: int = 0):
        self.model, self.n = model, n
        self.batch = Batch(model, n, nthread=threads)
        self._none_failed = np.zeros(n, dtype=bool)
        self._none_failed.flags.writeable = False

    def array(self, name: str) -> np.ndarray:
        if name == "sensordata" and not self.model.nsensordata:
            return np.zeros((self.n, 0))
        return self.batch.bind(name)

    def field(self, name: str) -> np.ndarray:
        return self.batch.expand(name)

    def set_const(self, ids: np.ndarray) -> None:
        self.batch.set_const(ids)

    def reset(self, ids: np.ndarray) -> None:
        self.batch.reset(ids, stage=int(mujoco.mjtStage.mjSTAGE_NONE))

    def forward(self, ids: np.ndarray) -> None:
        self.batch.forward(ids)

    def step(self, count: int) -> np.ndarray:
        try:
            self.batch.step(nstep=count)
        except SimulationError:
            return np.asarray(self.batch.status) != 0
        return self._none_failed

    def get_model(self, world: int) -> mujoco.MjModel:
        return self.batch.get_model(world)

    def get_data(self, world: int, data: mujoco.MjData | None = None) -> mujoco.MjData:
        return self.batch.get_data(world, data)


@dataclass(frozen=True)
class BatchEngines:
    """Factory; `native_motor_law=False` leaves the motor law to NumPy, as without a C compiler."""

    native_motor_law: bool = True

    @property
    def runs_motor_law(self) -> bool:
        return self.native_motor_law and control_callback.install_control_callback() is not None

    def __call__(self, model: mujoco.MjModel, n: int, threads: int = 0) -> BatchEngine:
        return BatchEngine(model, n, threads)
