"""How one specimen of a robot differs from its model: the reality file (TOML).

    robot = "go1"
    seed = 7
    [params]        numbers of the robot's Space
    [unmodelled]    physics that the training simulator does not have
    [faults]        wiring, configuration and network
    [sensors]       errors of the sensors

Everything is optional but `robot`; an empty reality is the nominal robot. `load` refuses what makes no sense for any
robot, `check` what makes no sense for the one at hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import atomic_write, content_hash, parse_toml, read_bytes
from isthmus.core.from_plain import from_plain
from isthmus.sim.reality.tables import SENSOR_KINDS, Faults, Sensors, Unmodelled, non_default_entries
from isthmus.sim.robot import Robot

MAX_BYTES = 1024 * 1024
MAX_SEED = 2**63 - 1
PARAMETER_ALIASES = {"foot_friction": "ground_friction"}
"""Words that people use for a parameter of ours."""


@dataclass(frozen=True)
class Reality:
    robot: str
    seed: int = 0
    """Of noise, drift and network."""
    params: Mapping[str, float] = field(default_factory=dict)
    unmodelled: Unmodelled = field(default_factory=Unmodelled)
    faults: Faults = field(default_factory=Faults)
    sensors: Sensors = field(default_factory=Sensors)

    def __post_init__(self) -> None:
        if not 0 <= self.seed <= MAX_SEED:
            raise BadInput(f"the seed must lie between 0 and {MAX_SEED}, not {self.seed}.")

    def e(self, robot: Robot) -> np.ndarray:
        """Values of the robot's Space, (d,); unknown names and values outside the hard bounds are errors."""
        values: dict[str, float] = {}
        for name, value in self.params.items():
            known = name if name in robot.space.names else PARAMETER_ALIASES.get(name, name)
            if known not in robot.space.names:
                raise unknown_name("parameter", name, robot.space.names, f"[params] of the reality of {robot.name}")
            if known in values:
                raise BadInput(f"[params] of the reality of {robot.name} gives {known!r} twice.")
            values[known] = value
        return robot.space.vector(values)

    def check(self, robot: Robot) -> None:
        """Raise BadInput unless this reality makes sense for the robot."""
        from isthmus.sim.reality.checks import check_reality

        check_reality(self, robot)

    # Files ----------------------------------------------------------------------------------------------------

    @staticmethod
    def from_dict(data: Any, where: str = "the reality") -> Reality:
        if not isinstance(data, Mapping):
            raise BadInput(f"{where} must be a table.")
        table = dict(data)
        if "sensors" in table:
            table["sensors"] = _group_sensor_entries(table["sensors"], where)
        return from_plain(Reality, table, where)

    def to_dict(self) -> dict[str, Any]:
        """What differs from nominal, as plain data."""
        tables = {
            "params": dict(self.params),
            "unmodelled": non_default_entries(self.unmodelled),
            "faults": non_default_entries(self.faults),
            "sensors": self.sensors.to_dict(),
        }
        return {"robot": self.robot, "seed": self.seed} | {name: table for name, table in tables.items() if table}

    @cached_property
    def hash(self) -> str:
        return content_hash(self.to_dict())

    @staticmethod
    def load(path: Path | str) -> Reality:
        return Reality.from_toml(read_bytes(path, MAX_BYTES), str(path))

    @staticmethod
    def from_toml(text: bytes, where: str = "the reality") -> Reality:
        return Reality.from_dict(parse_toml(text, where), where)

    def save(self, path: Path | str) -> None:
        atomic_write(Path(path), self.to_toml().encode())

    def to_toml(self) -> str:
        lines: list[str] = []
        for name, value in self.to_dict().items():
            if isinstance(value, Mapping):
                lines += ["", f"[{name}]", *(f"{_toml_key(k)} = {_toml_value(v)}" for k, v in value.items())]
            else:
                lines.append(f"{name} = {_toml_value(value)}")
        return "\n".join(lines) + "\n"


def _group_sensor_entries(data: Any, where: str) -> Any:
    """Collect `gyro_bias = …` and its like under `bias`; everything else stays as it is."""
    if not isinstance(data, Mapping):
        return data
    table: dict[str, Any] = {}
    for name, value in data.items():
        signal, _, kind = str(name).rpartition("_")
        if signal and kind in SENSOR_KINDS:
            table.setdefault(kind, {})[signal] = value
        elif name in SENSOR_KINDS:
            raise BadInput(f"{where}: sensors: {name!r} needs the signal's name before it, as in 'gyro_{name}'.")
        else:
            table[name] = value
    return table


def _toml_key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else _toml_value(name)


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_key(k)} = {_toml_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    if isinstance(value, str):
        # JSON's escapes are TOML's too, but for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
