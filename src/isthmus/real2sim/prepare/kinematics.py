"""Which signals of a robot are two views of one motion, and which unit a number that does not fit may be in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mujoco
import numpy as np

from isthmus.core.units import UNITS, conversion_factor
from isthmus.data.episode import Episode
from isthmus.real2sim.prepare.savitzky_golay import SG_HALF_TICKS, SG_SLOPE
from isthmus.sim.engines.mujoco.tangent import dof_of, rate_is_velocity
from isthmus.sim.indexing import signal_sources
from isthmus.sim.robot import Robot

UNIT_FACTOR_TOLERANCE = 1.15
"""A factor within this ratio of a unit's is taken for that unit."""


@dataclass(frozen=True)
class PositionVelocityPair:
    """A position and its velocity: signals with one label each."""

    position: str
    position_label: str
    velocity: str
    velocity_label: str


def position_velocity_pairs(robot: Robot) -> list[PositionVelocityPair]:
    """All positions that slide or turn about one axis and whose velocity is measured, too."""
    model = robot.model
    at: dict[str, dict[int, tuple[str, str]]] = {"qpos": {}, "qvel": {}}
    for signal, (array, columns) in zip(robot.contract.signals, signal_sources(robot, model), strict=True):
        for label, column in zip(signal.labels, columns, strict=True):
            if array == "qvel":
                at[array].setdefault(column, (signal.name, label))
            elif array == "qpos" and rate_is_velocity(model, column):
                at[array].setdefault(dof_of(model, column), (signal.name, label))
    return [PositionVelocityPair(*at["qpos"][dof], *at["qvel"][dof]) for dof in at["qpos"] if dof in at["qvel"]]


def body_signals(robot: Robot) -> Mapping[str, str]:
    """Names of the signals with the body's attitude (`quat`), turning (`angvel`), acceleration (`accel`), place (`pos`) and
    velocity (`linvel`), where measured."""
    kinds = {source.partition(":")[0]: name for name, source in robot.sources.items() if robot.contract.has(name)}
    return {kind: kinds[kind] for kind in ("quat", "angvel", "accel", "pos", "linvel") if kind in kinds}


def component_values(episode: Episode, signal: str, label: str) -> np.ndarray:
    """(T,) of one component."""
    return episode.signals[signal][:, episode.contract[signal].component_index(label)]


def joint_range(robot: Robot, signal: str, label: str) -> tuple[float, float]:
    """What a joint can do: the contract's limits of its position, else the model's; infinite if neither knows."""
    known = robot.contract[signal]
    if known.low and known.high:
        i = known.component_index(label)
        return known.low[i], known.high[i]
    joint = mujoco.mj_name2id(robot.model, mujoco.mjtObj.mjOBJ_JOINT, label)
    if joint < 0 or not robot.model.jnt_limited[joint]:
        return -np.inf, np.inf
    low, high = robot.model.jnt_range[joint]
    return float(low), float(high)


def unit_by_factor(unit: str, ratio: float, tolerance: float = UNIT_FACTOR_TOLERANCE) -> str:
    """The unit in which values are `times` as large as in `unit`, up to a ratio of `close`; empty if there is none."""
    for names in UNITS.values():
        if unit not in names:
            continue
        for other in names:
            if other != unit and 1 / tolerance < conversion_factor(unit, other, "units") / ratio < tolerance:
                return other
    return ""


def unit_by_range(unit: str, values: np.ndarray, low: float, high: float) -> str:
    """The largest unit in which the values, so far taken for `unit`, would be between low and high; empty if there is none."""
    inside = []
    for names in UNITS.values():
        for other in names if unit in names else ():
            scale = conversion_factor(other, unit, "units")
            known = values[np.isfinite(values)] * scale
            if other != unit and ((low <= known) & (known <= high)).all():
                inside.append((scale, other))
    return max(inside, default=(0.0, ""))[1]


def counterpart_rates(episode: Episode, robot: Robot) -> dict[tuple[str, str], np.ndarray]:
    """Per position and velocity that come in a pair: how fast the joint moves, (T,), by the other of the two."""
    found = {}
    for p in position_velocity_pairs(robot):
        x = component_values(episode, p.position, p.position_label)
        found[p.position, p.position_label] = component_values(episode, p.velocity, p.velocity_label)
        found[p.velocity, p.velocity_label] = np.full(len(x), np.nan)
        if len(x) > 2 * SG_HALF_TICKS:
            found[p.velocity, p.velocity_label][SG_HALF_TICKS:-SG_HALF_TICKS] = (
                np.convolve(x, SG_SLOPE[::-1], mode="valid") * episode.rate
            )
    return found
