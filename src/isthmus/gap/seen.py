"""States that signals tell: joints, attitude and place as the sensors measured them.

What no sensor measures is taken from elsewhere. A walking robot is an exception: its height is that of its lowest foot on the
ground, and its place is walked out from the feet that stand.
"""

from __future__ import annotations

import mujoco
import numpy as np

from isthmus.gap.parabola import HALF
from isthmus.gap.segments import StateReader
from isthmus.sim.robot import Robot
from isthmus.sim.sources import column_sources


def states(robot: Robot, measured: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """(T, nq) that signals of T + 2 HALF ticks, (T + 2 HALF, width), tell; what they do not from `otherwise`, (T, nq)."""
    filled = np.stack([bridged(column) for column in measured.T], axis=1)
    seen, reader, rate = columns(robot, filled), StateReader(robot), robot.contract.rate
    qpos, qvel = reader.at(filled, HALF + np.arange(len(otherwise)))
    places = lost_bases(robot, seen) if robot.feet else []
    told = seen | {q + i for q, _ in places for i in range(3)}
    rest = [q for q in range(qpos.shape[1]) if q not in told]
    qpos[:, rest] = otherwise[:, rest]
    for q, v in places:
        steps = 0.5 * (qvel[1:, v : v + 2] + qvel[:-1, v : v + 2]) / rate
        qpos[:, q : q + 2] = otherwise[0, q : q + 2] + np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])
    return qpos


def bridged(x: np.ndarray) -> np.ndarray:
    """A signal with straight lines over its holes; one that is nowhere stays as it is."""
    there = np.isfinite(x)
    return np.interp(np.arange(len(x)), np.flatnonzero(there), x[there]) if there.any() else x


def columns(robot: Robot, measured: np.ndarray) -> set[int]:
    """Columns of qpos that signals, (T, width), tell all the time."""
    found: set[int] = set()
    places = robot.contract.slices().values()
    for (array, own), where in zip(column_sources(robot, robot.model), places, strict=True):
        if array == "qpos":
            there = np.asarray(np.isfinite(measured[:, where]).all(axis=0))
            found |= {c for c, good in zip(own, there, strict=True) if good}
    return found


def lost_bases(robot: Robot, seen: set[int]) -> list[tuple[int, int]]:
    """Columns of qpos and qvel at which free joints begin whose place is not measured."""
    m = robot.model
    free = np.flatnonzero(m.jnt_type == int(mujoco.mjtJoint.mjJNT_FREE))
    return [(int(m.jnt_qposadr[j]), int(m.jnt_dofadr[j])) for j in free if int(m.jnt_qposadr[j]) not in seen]


def unseen_joints(robot: Robot, seen: set[int]) -> tuple[str, ...]:
    """Joints that no sensor measures, in part or at all."""
    m = robot.model
    ends = [*m.jnt_qposadr[1:], m.nq]
    where = [set(range(int(m.jnt_qposadr[j]), int(ends[j]))) for j in range(m.njnt)]
    return tuple(m.joint(j).name for j in range(m.njnt) if not where[j] <= seen)
