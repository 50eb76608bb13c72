"""Tracks cut into pieces of equal length, each with a first guess of the state at its start.

A state that is not measured is inferred: a joint's velocity from its angles, the height of a walking robot from its lowest
foot being on the ground, its speed from the feet on the ground not slipping. The guess need not be good: whoever
minimises the residual moves the starts with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from isthmus.core.errors import BadInput
from isthmus.real2sim.prepare.savitzky_golay import SG_HALF_TICKS, SG_SLOPE, SG_VALUE
from isthmus.real2sim.prepare.tracks import Track
from isthmus.sim.engines.mujoco.tangent import dof_of, rate_is_velocity
from isthmus.sim.indexing import signal_sources
from isthmus.sim.robot import Robot

STANCE_HEIGHT = 0.01
"""m: a foot at most this much higher than the lowest one stands."""
PAST_TARGET_SECONDS = 0.5
"""s of targets before a segment that its motors may still remember."""


def past_target_ticks(robot: Robot) -> int:
    """Targets kept before each segment."""
    return int(np.ceil(PAST_TARGET_SECONDS * robot.contract.rate))


@dataclass(frozen=True)
class Segments:
    """S pieces of H ticks."""

    past_targets: np.ndarray
    """(S, kept, m) targets sent before the first tick, newest first."""
    target: np.ndarray
    """(S, H, m) sent at each tick but the last."""
    measured: np.ndarray
    """(S, H + 1, width)."""
    qpos: np.ndarray
    """(S, nq) and (S, nv): guess of the state at the first tick."""
    qvel: np.ndarray
    recording: np.ndarray
    """(S,) which recording, and the second in it at which the piece starts."""
    start: np.ndarray

    def __len__(self) -> int:
        return len(self.target)

    @property
    def ticks(self) -> int:
        return self.target.shape[1]

    def take(self, which: np.ndarray) -> Segments:
        return Segments(*(getattr(self, f)[which] for f in Segments.__dataclass_fields__))

    def evenly(self, max_count: int) -> Segments:
        """At most so many, evenly over the recordings."""
        return self.take(np.unique(np.linspace(0, len(self) - 1, max_count).round().astype(int)))


def cut(tracks: Sequence[Track], robot: Robot, ticks: int, stride: int = 0) -> Segments:
    """Pieces of `ticks` ticks, one every `every` (0: one after the other)."""
    stride, kept = stride or ticks, past_target_ticks(robot)
    rows: list[tuple] = []
    reader = StateReader(robot)
    lying = 0
    for track in tracks:
        down = fallen_mask(robot, track.measured)
        firsts = np.arange(SG_HALF_TICKS, len(track) - ticks, stride)
        lies = np.array([down[first - SG_HALF_TICKS : first + ticks + 1].any() for first in firsts], bool)
        lying += int(lies.sum())
        firsts = firsts[~lies]
        for first, qpos, qvel in zip(firsts.tolist(), *reader.states(track.measured, firsts), strict=True):
            past = np.maximum(first - 1 - np.arange(kept), 0)
            window = slice(first, first + ticks)
            rows.append(
                (
                    track.target[past],
                    track.target[window],
                    track.measured[first : first + ticks + 1],
                    qpos,
                    qvel,
                    track.recording,
                    track.start + first / robot.contract.rate,
                )
            )
    if not rows and lying:
        raise BadInput(
            f"the robot stands for less than {(ticks + SG_HALF_TICKS + 1) / robot.contract.rate:.2g} s: it "
            "lies in what was recorded."
        )
    if not rows:
        longest = max((len(t) for t in tracks), default=0)
        raise BadInput(
            f"no stretch of the recordings is {ticks + SG_HALF_TICKS + 1} ticks long without a hole; the "
            f"longest has {longest} ticks."
        )
    return Segments(*(np.array(column) for column in zip(*rows, strict=True)))


def fallen_mask(robot: Robot, measured: np.ndarray) -> np.ndarray:
    """(T,) where a robot with feet, by the attitude that it measures, is tilted beyond what its contract calls safe."""
    tilt, where = robot.contract.safety.tilt, robot.contract.slices().get("quat")
    if not robot.morphology.feet or not tilt or where is None:
        return np.zeros(len(measured), bool)
    _, x, y, _ = measured[:, where].T
    return 1.0 - 2.0 * (x * x + y * y) < np.cos(tilt)


class StateReader:
    """From signals to the states that they tell."""

    def __init__(self, robot: Robot):
        self.robot, self.model = robot, robot.model
        self.data = mujoco.MjData(self.model)
        places = robot.contract.slices().values()
        self._measured_columns = [
            (*source, where) for source, where in zip(signal_sources(robot, self.model), places, strict=True)
        ]
        self._dofs = [
            dof_of(self.model, column) if rate_is_velocity(self.model, column) else -1 for column in range(self.model.nq)
        ]
        free = np.flatnonzero(self.model.jnt_type == int(mujoco.mjtJoint.mjJNT_FREE))
        self._bases = [(int(self.model.jnt_qposadr[j]), int(self.model.jnt_dofadr[j])) for j in free]
        self._feet = [mujoco.mj_name2id(self.model, mujoco.mjtObj.mjOBJ_GEOM, name) for name in robot.morphology.foot_geoms]

    def states(self, measured: np.ndarray, ticks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """qpos, (k, nq), and qvel, (k, nv), at k ticks of signals, (T, width), by HALF ticks to either side of each."""
        assert ((ticks >= SG_HALF_TICKS) & (ticks < len(measured) - SG_HALF_TICKS)).all()
        m, k = self.model, len(ticks)
        value, slope = _smoothed_value_and_rate(
            measured[ticks[:, None] + np.arange(-SG_HALF_TICKS, SG_HALF_TICKS + 1)], self.robot.contract.rate
        )
        qpos, qvel = np.tile(np.array(self.robot.home), (k, 1)), np.zeros((k, m.nv))
        known_q, known_v = np.zeros((k, m.nq), bool), np.zeros((k, m.nv), bool)
        for array, columns, where in self._measured_columns:
            told, good = value[:, where], np.isfinite(value[:, where])
            if array == "qpos":
                qpos[:, columns] = np.where(good, told, qpos[:, columns])
                known_q[:, columns] = good
            elif array == "qvel":
                qvel[:, columns] = np.where(good, told, 0.0)
                known_v[:, columns] = good
        for array, columns, where in self._measured_columns:
            for column, rate in zip(columns, slope[:, where].T, strict=True):
                if array == "qpos" and (dof := self._dofs[column]) >= 0:
                    new = np.isfinite(rate) & ~known_v[:, dof]
                    qvel[new, dof], known_v[new, dof] = rate[new], True
        for i in range(k):
            mujoco.mj_normalizeQuat(m, qpos[i])
            for q, v in self._bases:
                self._infer_base_from_feet(qpos[i], qvel[i], q, v, known_q[i], known_v[i])
        return qpos, qvel

    def _infer_base_from_feet(
        self, qpos: np.ndarray, qvel: np.ndarray, q: int, v: int, known_q: np.ndarray, known_v: np.ndarray
    ) -> None:
        """Height and speed of a base that only its feet can tell."""
        if not self._feet or (known_q[q + 2] and known_v[v : v + 3].all()):
            return
        m, d = self.model, self.data
        d.qpos[:], d.qvel[:] = qpos, qvel
        d.qvel[v : v + 3] = 0.0
        mujoco.mj_kinematics(m, d)
        mujoco.mj_comPos(m, d)
        low = np.array([d.geom_xpos[g, 2] - m.geom_size[g, 0] for g in self._feet])
        if not known_q[q + 2]:
            qpos[q + 2] -= low.min()
        if not known_v[v : v + 3].all():
            jacobian, speeds = np.zeros((3, m.nv)), []
            for g, height in zip(self._feet, low - low.min(), strict=True):
                if height <= STANCE_HEIGHT:
                    mujoco.mj_jac(m, d, jacobian, None, d.geom_xpos[g], m.geom_bodyid[g])
                    speeds.append(jacobian @ d.qvel)
            qvel[v : v + 3] = -np.mean(speeds, axis=0)


def _smoothed_value_and_rate(windows: np.ndarray, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Value and slope per second at the middle of k times a few ticks, (k, width) each, of the parabola through them."""
    value = SG_VALUE @ windows
    return np.where(np.isfinite(value), value, windows[:, SG_HALF_TICKS]), SG_SLOPE @ windows * rate
