"""Which signals of a robot are two views of one motion, and which unit a number that does not fit may be in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mujoco
import numpy as np

from isthmus.data.episode import Episode
from isthmus.data.units import UNITS, factor
from isthmus.gap.parabola import HALF, SLOPE
from isthmus.gap.tangent import dof_of, slides
from isthmus.sim.robot import Robot
from isthmus.sim.sources import column_sources

CLOSE = 1.15
"""A factor within this ratio of a unit's is taken for that unit."""


@dataclass(frozen=True)
class Pair:
    """A position and its velocity: signals with one label each."""

    position: str
    label: str
    velocity: str
    label_there: str


def pairs(robot: Robot) -> list[Pair]:
    """All positions that slide or turn about one axis and whose velocity is measured, too."""
    model = robot.model
    at: dict[str, dict[int, tuple[str, str]]] = {"qpos": {}, "qvel": {}}
    for signal, (array, columns) in zip(robot.contract.signals, column_sources(robot, model), strict=True):
        for label, column in zip(signal.labels, columns, strict=True):
            if array == "qvel":
                at[array].setdefault(column, (signal.name, label))
            elif array == "qpos" and slides(model, column):
                at[array].setdefault(dof_of(model, column), (signal.name, label))
    return [Pair(*at["qpos"][dof], *at["qvel"][dof]) for dof in at["qpos"] if dof in at["qvel"]]


def spatial(robot: Robot) -> Mapping[str, str]:
    """Names of the signals with the body's attitude (`quat`), turning (`angvel`), acceleration (`accel`), place (`pos`) and
    velocity (`linvel`), where measured."""
    kinds = {source.partition(":")[0]: name for name, source in robot.sources.items() if robot.contract.has(name)}
    return {kind: kinds[kind] for kind in ("quat", "angvel", "accel", "pos", "linvel") if kind in kinds}


def column(episode: Episode, signal: str, label: str) -> np.ndarray:
    """(T,) of one component."""
    return episode.signals[signal][:, episode.contract[signal].component(label)]


def joint_range(robot: Robot, signal: str, label: str) -> tuple[float, float]:
    """What a joint can do: the contract's limits of its position, else the model's; infinite if neither knows."""
    known = robot.contract[signal]
    if known.low and known.high:
        i = known.component(label)
        return known.low[i], known.high[i]
    joint = mujoco.mj_name2id(robot.model, mujoco.mjtObj.mjOBJ_JOINT, label)
    if joint < 0 or not robot.model.jnt_limited[joint]:
        return -np.inf, np.inf
    low, high = robot.model.jnt_range[joint]
    return float(low), float(high)


def likely(unit: str, times: float, close: float = CLOSE) -> str:
    """The unit in which values are `times` as large as in `unit`, up to a ratio of `close`; empty if there is none."""
    for names in UNITS.values():
        if unit not in names:
            continue
        for other in names:
            if other != unit and 1 / close < factor(unit, other, "units") / times < close:
                return other
    return ""


def within(unit: str, values: np.ndarray, low: float, high: float) -> str:
    """The largest unit in which the values, so far taken for `unit`, would be between low and high; empty if there is none."""
    inside = []
    for names in UNITS.values():
        for other in names if unit in names else ():
            scale = factor(other, unit, "units")
            known = values[np.isfinite(values)] * scale
            if other != unit and ((low <= known) & (known <= high)).all():
                inside.append((scale, other))
    return max(inside, default=(0.0, ""))[1]


def rates(episode: Episode, robot: Robot) -> dict[tuple[str, str], np.ndarray]:
    """Per position and velocity that come in a pair: how fast the joint moves, (T,), by the other of the two."""
    found = {}
    for p in pairs(robot):
        x = column(episode, p.position, p.label)
        found[p.position, p.label] = column(episode, p.velocity, p.label_there)
        found[p.velocity, p.label_there] = np.full(len(x), np.nan)
        if len(x) > 2 * HALF:
            found[p.velocity, p.label_there][HALF:-HALF] = np.convolve(x, SLOPE[::-1], mode="valid") * episode.rate
    return found
