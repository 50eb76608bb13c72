"""A robot on two legs, and episodes of it to be recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isthmus.data.contract import Contract, Signal
from isthmus.data.episode import Episode, Event
from isthmus.data.mcap.layout import Layout

COMMAND = (Signal("command", "m/s", ("x", "y", "yaw")),)
ORIGIN = {"source": "virtual", "unit": "seven", "started": 1_700_000_000.25, "parents": ["ab"]}


def contract(rate: float = 20.0) -> Contract:
    joints = ("FR_hip", "FR_thigh")
    return Contract(
        "twolegs",
        rate,
        (
            Signal("joint_pos", "rad", joints, low=(-1.0, -2.0), high=(1.0, 2.0)),
            Signal("gyro", "rad/s", ("x", "y", "z"), "body"),
        ),
        Signal("joint_target", "rad", joints),
    )


def episode(ticks: int = 60, seed: int = 0, rate: float = 20.0) -> Episode:
    rng = np.random.default_rng(seed)
    layout = Layout(contract(rate), COMMAND, ("late", "state"))
    rows = rng.normal(size=(ticks, layout.width))
    rows[:, 0] = np.cumsum(rng.uniform(0.5, 1.5, ticks)) / rate
    rows[rng.uniform(size=rows.shape) < 0.05 * (np.arange(layout.width) > 0)] = np.nan
    events = (
        Event(rows[ticks // 3, 0], "warning", "stale", "No signal for 40 ms."),
        Event(1.0, "info", "ramp", "Ramp ends — ok."),
    )
    return layout.to_episode(rows, events, ORIGIN)


JOINTS = ("FR_hip", "FR_thigh")
REGULAR = Contract(
    "twolegs",
    50.0,
    (Signal("joint_pos", "rad", JOINTS), Signal("gyro", "rad/s", ("x",), "body")),
    Signal("goal", "rad", JOINTS),
)


def regular_episode(ticks: int = 30, seed: int = 0, **change) -> Episode:
    """On a regular clock, with nothing missing."""
    rng = np.random.default_rng(seed)
    layout = Layout(REGULAR, (Signal("command", "m/s", ("x", "y")),), ("late", "missed"))
    rows = rng.normal(size=(ticks, layout.width))
    rows[:, 0], rows[:, -1] = np.arange(ticks) / 50, np.arange(ticks) % 10 == 3
    events = (Event(0.1, "warning", "stale", "No signal for 40 ms."),)
    return replace(layout.to_episode(rows, events, {"source": "virtual", "unit": "seven", "started": 1.7e9}), **change)
