"""Mass, centre of mass and payload of bodies under e, written together so that they stay physically possible bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from isthmus.sim.physics.component import Attached, Parameters
from isthmus.world.inertia import vary_rigid_body

if TYPE_CHECKING:
    from isthmus.sim.parameter_binding import Write
    from isthmus.sim.simulation import Simulation

INERTIAL_FIELDS = ("mass", "com", "payload")
BODY_FIELDS = ("body_mass", "body_ipos", "body_iquat", "body_inertia")


class InertialFields(Attached):
    def __init__(self, sim: Simulation):
        n, nbody, model = sim.n, sim.model.nbody, sim.model
        touched = {f: _written_bodies(sim.writes, f"inertia.{f}", 3 if f == "com" else 1) for f in INERTIAL_FIELDS}
        self.com_bodies = np.array(sorted(touched["com"] | touched["payload"]), dtype=int)
        """Bodies whose centre of mass may move."""
        self.mass_only_bodies = np.array(sorted(touched["mass"] - set(self.com_bodies.tolist())), dtype=int)
        """Bodies of which only the density changes."""
        self.nominal = {f: np.array(getattr(model, f)) for f in BODY_FIELDS}
        payload = sim.robot.morphology.payload
        self.payload_geometry = (np.array(payload.at), payload.radius)
        self.needs_set_const = bool(len(self.com_bodies) or len(self.mass_only_bodies))
        self._model_fields = {f: sim.engine.field(f) for f in BODY_FIELDS} if self.needs_set_const else {}
        self._nominal_rows = {"mass": np.ones(nbody), "com": np.zeros(3 * nbody), "payload": np.zeros(nbody)}
        self.arrays = {name: np.tile(row, (n, 1)) for name, row in self._nominal_rows.items()}
        """Density factor, shift of the centre of mass (m) and payload (kg) under e, (n, nbody) or (n, 3 nbody)."""

    def parameters(self) -> Parameters:
        return {f"inertia.{name}": (row, self.arrays[name]) for name, row in self._nominal_rows.items()}

    def write_model(self, ids: np.ndarray) -> None:
        """Body fields of worlds `ids`; where nothing changed, the nominal numbers bit for bit."""
        if not self.needs_set_const:
            return
        density = self.arrays["mass"][ids]
        if len(self.mass_only_bodies):
            factor, at = density[:, self.mass_only_bodies], np.ix_(ids, self.mass_only_bodies)
            self._model_fields["body_mass"][at] = factor * self.nominal["body_mass"][self.mass_only_bodies]
            self._model_fields["body_inertia"][at] = factor[..., None] * self.nominal["body_inertia"][self.mass_only_bodies]
        if len(self.com_bodies):
            factor, payload = density[:, self.com_bodies], self.arrays["payload"][ids][:, self.com_bodies]
            shift = self.arrays["com"][ids].reshape(len(ids), -1, 3)[:, self.com_bodies]
            mass, com, quat, inertia = rows = [
                np.repeat(self.nominal[f][None, self.com_bodies], len(ids), axis=0) for f in BODY_FIELDS
            ]
            changed = (factor != 1.0) | (shift != 0.0).any(-1) | (payload != 0.0)
            if changed.any():
                change = (factor[changed], shift[changed], payload[changed], *self.payload_geometry)
                values = vary_rigid_body(mass[changed], com[changed], quat[changed], inertia[changed], *change)
                for row, value in zip(rows, values, strict=True):
                    row[changed] = value
            for f, row in zip(BODY_FIELDS, rows, strict=True):
                self._model_fields[f][np.ix_(ids, self.com_bodies)] = row


def _written_bodies(writes: list[Write], array: str, width: int) -> set[int]:
    return {int(c) // width for w in writes if w.array == array for c in w.columns}
