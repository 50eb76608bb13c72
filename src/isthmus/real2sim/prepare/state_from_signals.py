"""States that signals tell: joints, attitude and place as the sensors measured them.

What no sensor measures is taken from elsewhere. A walking robot is an exception: its height is that of its lowest foot on the
ground, and its place is walked out from the feet that stand.
"""

from __future__ import annotations

import mujoco
import numpy as np

from isthmus.real2sim.prepare.savitzky_golay import SG_HALF_TICKS
from isthmus.real2sim.prepare.segments import StateReader
from isthmus.sim.indexing import signal_sources
from isthmus.sim.robot import Robot


def measured_states(robot: Robot, measured: np.ndarray, fallback: np.ndarray) -> np.ndarray:
    """(T, nq) that signals of T + 2 HALF ticks, (T + 2 HALF, width), tell; what they do not from `otherwise`, (T, nq)."""
    filled = np.stack([interpolate_gaps(column) for column in measured.T], axis=1)
    seen, reader, rate = measured_qpos_columns(robot, filled), StateReader(robot), robot.contract.rate
    qpos, qvel = reader.states(filled, SG_HALF_TICKS + np.arange(len(fallback)))
    places = unmeasured_bases(robot, seen) if robot.morphology.feet else []
    told = seen | {q + i for q, _ in places for i in range(3)}
    rest = [q for q in range(qpos.shape[1]) if q not in told]
    qpos[:, rest] = fallback[:, rest]
    for q, v in places:
        steps = 0.5 * (qvel[1:, v : v + 2] + qvel[:-1, v : v + 2]) / rate
        qpos[:, q : q + 2] = fallback[0, q : q + 2] + np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])
    return qpos


def interpolate_gaps(x: np.ndarray) -> np.ndarray:
    """A signal with straight lines over its holes; one that is nowhere stays as it is."""
    there = np.isfinite(x)
    return np.interp(np.arange(len(x)), np.flatnonzero(there), x[there]) if there.any() else x


def measured_qpos_columns(robot: Robot, measured: np.ndarray) -> set[int]:
    """Columns of qpos that signals, (T, width), tell all the time."""
    found: set[int] = set()
    places = robot.contract.slices().values()
    for (array, own), where in zip(signal_sources(robot, robot.model), places, strict=True):
        if array == "qpos":
            there = np.asarray(np.isfinite(measured[:, where]).all(axis=0))
            found |= {c for c, good in zip(own, there, strict=True) if good}
    return found


def unmeasured_bases(robot: Robot, measured_columns: set[int]) -> list[tuple[int, int]]:
    """Columns of qpos and qvel at which free joints begin whose place is not measured."""
    m = robot.model
    free = np.flatnonzero(m.jnt_type == int(mujoco.mjtJoint.mjJNT_FREE))
    return [(int(m.jnt_qposadr[j]), int(m.jnt_dofadr[j])) for j in free if int(m.jnt_qposadr[j]) not in measured_columns]


def unmeasured_joints(robot: Robot, measured_columns: set[int]) -> tuple[str, ...]:
    """Joints that no sensor measures, in part or at all."""
    m = robot.model
    ends = [*m.jnt_qposadr[1:], m.nq]
    where = [set(range(int(m.jnt_qposadr[j]), int(ends[j]))) for j in range(m.njnt)]
    return tuple(m.joint(j).name for j in range(m.njnt) if not where[j] <= measured_columns)
