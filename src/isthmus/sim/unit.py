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

from isthmus.errors import BadInput, unknown
from isthmus.files import content_hash
from isthmus.sim.ground import Ground
from isthmus.sim.learned import Learned

FILE, NUMBERS = "unit.json", "learned.safetensors"
SIZES = {FILE: 2**20, NUMBERS: 64 * 2**20}
"""Largest parts, bytes."""
MOST_LEARNED = 16


@dataclass(frozen=True)
class Unit:
    motors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Figures that take the place of the design's: field -> one number per motor."""
    learned: tuple[Learned, ...] = ()
    ground: Ground | None = None
    """That takes the place of the model's."""

    def __bool__(self) -> bool:
        return self != Unit()

    def parts(self) -> dict[str, bytes]:
        """The contents of files, by name; none for a unit that does not differ."""
        if not self:
            return {}
        text: dict[str, Any] = {"motors": {k: list(v) for k, v in self.motors.items()}}
        text["learned"] = [x.to_dict() for x in self.learned]
        if self.ground:
            text["ground"] = self.ground.to_dict()
        arrays = {f"{i}.{name}": np.ascontiguousarray(a) for i, x in enumerate(self.learned) for name, a in x.arrays().items()}
        return {FILE: json.dumps(text, sort_keys=True).encode(), **({NUMBERS: save(arrays)} if arrays else {})}

    @cached_property
    def hash(self) -> str:
        return content_hash(b"".join(self.parts().values())) if self else ""

    @staticmethod
    def of(parts: Mapping[str, bytes], names: tuple[str, ...], where: str) -> Unit:
        """The inverse of `parts`, as a stranger may have written them; `names` are the figures that motors have."""
        if FILE not in parts:
            return Unit()
        try:
            text = json.loads(parts[FILE])
            arrays = load(parts[NUMBERS]) if NUMBERS in parts else {}
        except Exception as error:  # whatever json and safetensors raise about broken data
            raise BadInput(f"{where} cannot be read: {error}.") from None
        motors, rows = (text.get("motors"), text.get("learned")) if isinstance(text, dict) else (None, None)
        if not isinstance(motors, dict) or not isinstance(rows, list) or len(rows) > MOST_LEARNED:
            raise BadInput(f"{where} does not say how its robot differs from its model.")
        own = [{k.partition(".")[2]: a for k, a in arrays.items() if k.partition(".")[0] == str(i)} for i in range(len(rows))]
        learned = tuple(Learned.of(row, part, where) for row, part in zip(rows, own, strict=True))
        figures = {name: _figures(name, row, names, where) for name, row in motors.items()}
        return Unit(figures, learned, Ground.of(text["ground"], where) if "ground" in text else None)


def _figures(name: str, row: Any, names: tuple[str, ...], where: str) -> tuple[float, ...]:
    if name not in names:
        raise unknown("figure of a motor", name, names, where)
    if not isinstance(row, list) or not all(isinstance(x, int | float) and 0 <= x < float("inf") for x in row):
        raise BadInput(f"{where}: {name} of the motors is a list of numbers, none negative.")
    return tuple(map(float, row))
