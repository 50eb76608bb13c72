"""How one robot differs from its model, beyond e: figures of its motors, the ground it walks on, learned forces.

A robot carries its unit; everything else of it is the design. Reality is not a unit: it has physics of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import content_hash
from isthmus.sim.physics.ground import CompliantGround
from isthmus.sim.physics.learned_force import LearnedForce

UNIT_FILE, LEARNED_FORCES_FILE = "unit.json", "learned.safetensors"
MAX_FILE_BYTES = {UNIT_FILE: 2**20, LEARNED_FORCES_FILE: 64 * 2**20}
"""Largest parts, bytes."""
MAX_LEARNED_FORCES = 16


@dataclass(frozen=True)
class UnitPhysics:
    motors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Figures that take the place of the design's: field -> one number per motor."""
    learned_forces: tuple[LearnedForce, ...] = ()
    ground: CompliantGround | None = None
    """That takes the place of the model's."""

    def __bool__(self) -> bool:
        return self != UnitPhysics()

    def to_files(self) -> dict[str, bytes]:
        """The contents of files, by name; none for a unit that does not differ."""
        if not self:
            return {}
        text: dict[str, Any] = {"motors": {k: list(v) for k, v in self.motors.items()}}
        text["learned"] = [x.to_dict() for x in self.learned_forces]
        if self.ground:
            text["ground"] = self.ground.to_dict()
        arrays = {
            f"{i}.{name}": np.ascontiguousarray(a) for i, x in enumerate(self.learned_forces) for name, a in x.arrays().items()
        }
        return {UNIT_FILE: json.dumps(text, sort_keys=True).encode(), **({LEARNED_FORCES_FILE: save(arrays)} if arrays else {})}

    @cached_property
    def hash(self) -> str:
        return content_hash(b"".join(self.to_files().values())) if self else ""

    @staticmethod
    def from_files(files: Mapping[str, bytes], motor_fields: tuple[str, ...], where: str) -> UnitPhysics:
        """The inverse of `parts`, as a stranger may have written them; `names` are the figures that motors have."""
        if UNIT_FILE not in files:
            return UnitPhysics()
        try:
            text = json.loads(files[UNIT_FILE])
            arrays = load(files[LEARNED_FORCES_FILE]) if LEARNED_FORCES_FILE in files else {}
        except Exception as error:  # whatever json and safetensors raise about broken data
            raise BadInput(f"{where} cannot be read: {error}.") from None
        motors, rows = (text.get("motors"), text.get("learned")) if isinstance(text, dict) else (None, None)
        if not isinstance(motors, dict) or not isinstance(rows, list) or len(rows) > MAX_LEARNED_FORCES:
            raise BadInput(f"{where} does not say how its robot differs from its model.")
        own = [{k.partition(".")[2]: a for k, a in arrays.items() if k.partition(".")[0] == str(i)} for i in range(len(rows))]
        learned = tuple(LearnedForce.from_arrays(row, part, where) for row, part in zip(rows, own, strict=True))
        figures = {name: _parse_motor_field(name, row, motor_fields, where) for name, row in motors.items()}
        return UnitPhysics(figures, learned, CompliantGround.from_dict(text["ground"], where) if "ground" in text else None)


def _parse_motor_field(name: str, row: Any, motor_fields: tuple[str, ...], where: str) -> tuple[float, ...]:
    if name not in motor_fields:
        raise unknown_name("figure of a motor", name, motor_fields, where)
    if not isinstance(row, list) or not all(isinstance(x, int | float) and 0 <= x < float("inf") for x in row):
        raise BadInput(f"{where}: {name} of the motors is a list of numbers, none negative.")
    return tuple(map(float, row))
