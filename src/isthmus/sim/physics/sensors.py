"""The sensors of all worlds: a ring of past signals, read late, with gain, bias and noise.

seen(t) = gain · true(t - sensor_delay) + bias + noise
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from isthmus.core.geometry import rotate_inverse
from isthmus.sim.indexing import as_slice
from isthmus.sim.physics.component import Attached, Parameters
from isthmus.sim.physics.delays import read_late

if TYPE_CHECKING:
    from isthmus.sim.simulation import Simulation

SIGNAL_FIELDS = ("bias", "gain", "noise")


class Sensors(Attached):
    def __init__(self, sim: Simulation):
        self._sim, width = sim, sim.layout.signal_width
        self._sources = [(array, as_slice(columns)) for array, columns in sim.index.sources]
        # Sensors of the model's own are only seen between engine calls; else the motor law in C fills the ring.
        self.every = 1 if sim.reads_model_sensors or not sim.runs_motor_law else 0
        self._nominal = {"bias": np.zeros(width), "gain": np.ones(width), "noise": np.zeros(width)}
        self.errors = {name: np.tile(row, (sim.n, 1)) for name, row in self._nominal.items()}
        """Gain, bias and standard deviation of the noise under e, (n, width)."""
        self._varies = {name: f"signal.{name}" in sim.varied_arrays for name in SIGNAL_FIELDS}
        self._gravity_varies = "opt.gravity" in sim.varied_arrays

    def parameters(self) -> Parameters:
        return {f"signal.{name}": (row, self.errors[name]) for name, row in self._nominal.items()}

    def reset(self, ids: np.ndarray) -> None:
        self._sim.userdata["ring"][ids] = self.true_signals(ids)[:, None]

    def before_step(self, substep: int) -> None:
        del substep
        self._record()

    def true_signals(self, ids: np.ndarray | slice = slice(None)) -> np.ndarray:
        """All signals of the contract side by side, as the physics has them, (k, width)."""
        return np.concatenate([self._values(array, columns, ids) for array, columns in self._sources], axis=1)

    def _values(self, array: str, columns: slice | np.ndarray, ids: np.ndarray | slice) -> np.ndarray:
        sim = self._sim
        if array in ("rotor", "rotor_speed"):
            return sim.motors.rotor_state(ids)[array == "rotor_speed"][:, columns]
        values = getattr(sim, array)[ids][:, columns]
        if array != "qacc":
            return values
        # An accelerometer: the last step's acceleration without gravity, in the body's frame.
        assert isinstance(columns, slice)
        gravity = sim.binding.arrays["opt.gravity"][ids] if self._gravity_varies else sim.model.opt.gravity
        joint = sim.model.dof_jntid[columns.start]
        quat = sim.qpos[ids][:, sim.model.jnt_qposadr[joint] + 3 :][:, :4]
        return rotate_inverse(quat, values - gravity)

    def _record(self) -> np.ndarray:
        """Write the present into the ring of past signals; its slot in each world, (n,)."""
        sim = self._sim
        slot = np.rint(sim.time / sim.dt).astype(int) % sim.layout.signal_history
        sim.userdata["ring"][sim.all_ids, slot] = self.true_signals()
        return slot

    def noiseless(self) -> np.ndarray:
        """Delayed signals with gain and bias, (n, width), float64."""
        sim = self._sim
        seen = read_late(sim.userdata["ring"], self._record(), sim.userdata["sensor_delay"], sim.dt)
        if self._varies["gain"]:
            seen *= self.errors["gain"]
        if self._varies["bias"]:
            seen += self.errors["bias"]
        return seen

    def read(self, rng: np.random.Generator) -> np.ndarray:
        """The same with noise, (n, width), float32."""
        out = self.noiseless().astype(np.float32)
        if self._varies["noise"]:
            out += rng.standard_normal(out.shape, dtype=np.float32) * self.errors["noise"].astype(np.float32)
        return out
