"""A robot, an episode of it, and files of others that hold it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from isthmus.data.contract import Contract, Signal
from isthmus.data.episode import Episode
from isthmus.data.mapping import ColumnMap, read_column_map
from isthmus.data.mcap.layout import Layout

LEGS = ("FR_hip", "FL_hip", "RR_hip")
ROBOT = Contract(
    "threelegs",
    100.0,
    (Signal("joint_pos", "rad", LEGS, low=(-3.0,) * 3, high=(3.0,) * 3), Signal("gyro", "rad/s", ("x", "y", "z"), "body")),
    Signal("joint_target", "rad", LEGS),
)


def planted(ticks: int = 200, seed: int = 0) -> Episode:
    rng = np.random.default_rng(seed)
    layout = Layout(ROBOT, (Signal("command", "m/s", ("x",)),), ("temp",))
    rows = rng.uniform(-2, 2, (ticks, layout.width))
    rows[:, 0] = np.arange(ticks) / 100
    return layout.to_episode(rows)


def mapped(folder: Path, text: str) -> ColumnMap:
    (folder / "map.toml").write_text(text)
    return read_column_map(folder / "map.toml")


def csv_text(columns: dict[str, np.ndarray], delimiter: str = ",", comma: bool = False) -> str:
    lines = [delimiter.join(columns)]
    lines += [delimiter.join("" if np.isnan(v) else repr(float(v)) for v in row) for row in zip(*columns.values(), strict=True)]
    return "\n".join([lines[0], *((x.replace(".", ",") if comma else x) for x in lines[1:])]) + "\n"
