"""What a robot does, in numbers that a recording and a simulation have alike: everything is read from signals alone.

tracking    the task's own score, success and metrics, with the state guessed from the signals
motion      how much each signal moves, its rhythm, how much targets change
energy      torques and power as the motors' law has them
contact     of feet, by which of them are lowest: share of time on the ground, steps per second, length of a stance
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from isthmus.core.statistics import Rate
from isthmus.real2sim.measure.closed_loop import ControlledStretch, Rollouts
from isthmus.real2sim.prepare.savitzky_golay import SG_HALF_TICKS
from isthmus.real2sim.prepare.segments import STANCE_HEIGHT, StateReader
from isthmus.sim.physics.motor_law import pd_torque
from isthmus.sim.robot import Robot

MAX_STATE_SAMPLES = 400
"""Ticks of a world at which its state is guessed, where the task needs it, at most."""
MIN_SHARE_AS_EXTREME = 0.05
"""A recording is outside if fewer worlds than this share are as far from the middle."""


@dataclass(frozen=True)
class BehaviourMetric:
    group: str
    name: str
    unit: str
    recorded: float
    worlds: np.ndarray
    """(n,)"""

    @property
    def median(self) -> float:
        return float(np.nanmedian(self.worlds))

    @property
    def interval_90(self) -> tuple[float, float]:
        low, high = np.nanquantile(self.worlds, [0.05, 0.95])
        return float(low), float(high)

    @property
    def share_as_extreme(self) -> Rate:
        """Share of worlds that are as far from the middle as the recording."""
        good = self.worlds[np.isfinite(self.worlds)]
        return Rate.from_counts(int((np.abs(good - self.median) >= abs(self.recorded - self.median)).sum()), len(good))

    @property
    def outside(self) -> bool:
        return self.share_as_extreme.rate < MIN_SHARE_AS_EXTREME

    def to_dict(self) -> dict[str, Any]:
        low, high = self.interval_90
        own = {"group": self.group, "name": self.name, "unit": self.unit, "recorded": self.recorded}
        return own | {
            "simulated": self.median,
            "low": low,
            "high": high,
            "as_far": vars(self.share_as_extreme),
            "outside": self.outside,
        }


@dataclass(frozen=True)
class Behaviour:
    metrics: tuple[BehaviourMetric, ...]
    failed: Rate
    """Share of worlds whose physics or policy failed on the way."""

    @property
    def p_value(self) -> float:
        """How likely a world of the belief is to have some measure as far out as the recording has.

        Of the largest distance of any measure, each in units of its own spread over the worlds: many measures are looked at,
        and one of them is always far out.
        """
        recorded, worlds = [], []
        for m in self.metrics:
            spread = np.nanmedian(np.abs(m.worlds - m.median))
            if np.isfinite(spread) and spread > 0 and np.isfinite(m.recorded):
                recorded.append(abs(m.recorded - m.median) / spread)
                worlds.append(np.abs(m.worlds - m.median) / spread)
        if not recorded:
            return float("nan")
        largest = np.nanmax(np.nan_to_num(np.array(worlds)), axis=0)
        return float((1 + (largest >= max(recorded)).sum()) / (1 + len(largest)))


def compare_behaviour(
    robot: Robot, task: Any, stretches_and_rollouts: Sequence[tuple[ControlledStretch, Rollouts]]
) -> Behaviour:
    """The recordings and the worlds that lived through the same; each measure is averaged over the recordings."""
    recorded = [
        behaviour_metrics(robot, task, Rollouts(s.measured[None], s.target[None]), s.commands)
        for s, _ in stretches_and_rollouts
    ]
    simulated = [behaviour_metrics(robot, task, lived, s.commands) for s, lived in stretches_and_rollouts]
    share = np.array([len(s) for s, _ in stretches_and_rollouts], float) / sum(len(s) for s, _ in stretches_and_rollouts)
    found = []
    for key in recorded[0]:
        group, name, unit = key
        mine = sum(w * r[key][0] for w, r in zip(share, recorded, strict=True))
        worlds = sum(w * s[key] for w, s in zip(share, simulated, strict=True))
        if np.isfinite(mine) and np.isfinite(worlds).any():
            found.append(BehaviourMetric(group, name, unit, float(mine), np.asarray(worlds)))
    broken = np.any([np.isnan(lived.target[:, -1]).any(axis=1) for _, lived in stretches_and_rollouts], axis=0)
    return Behaviour(tuple(found), Rate.from_counts(int(broken.sum()), len(broken)))


MetricKey = tuple[str, str, str]


def behaviour_metrics(
    robot: Robot, task: Any, rollouts: Rollouts, commands: Mapping[str, np.ndarray]
) -> dict[MetricKey, np.ndarray]:
    """(group, name, unit) -> (n,), of n worlds; NaN where a world did not live to the end."""
    y, u, slices = rollouts.measured, rollouts.target, robot.contract.slices()
    found: dict[MetricKey, np.ndarray] = {}
    torque, speed, _ = motor_torques(robot, y, u)
    states = _EstimatedStates(robot, y)
    if task is not None:
        found |= _task_metrics(task, states, y, u, torque, commands)
    with np.errstate(all="ignore"):
        for signal in robot.contract.signals:
            values = y[..., slices[signal.name]]
            unit = signal.unit if len(set(signal.units)) == 1 else ""
            found["motion", f"{signal.name} spread", unit] = np.sqrt(np.var(values, axis=1).mean(-1))
        found["motion", "rhythm", "Hz"] = _mean_frequency(u, robot.contract.rate)
        change = np.diff(u, axis=1) * robot.contract.rate
        found["motion", "target change", f"{robot.contract.target.units[0]}/s"] = np.sqrt((change**2).mean((1, 2)))
        found["energy", "effort", "N·m" if speed is not None else robot.contract.target.units[0]] = np.abs(torque).mean((1, 2))
        if speed is not None:
            found["energy", "power", "W"] = np.abs(torque * speed).sum(-1).mean(1)
    if robot.morphology.feet:
        found |= _contact_metrics(states.feet_down(), robot.contract.rate / states.sample_stride)
    return found


def motor_torques(robot: Robot, y: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Torques (n, T, m) that the motors' law asks for, and speeds and angles of their joints where they are measured."""
    contract = robot.contract
    qd, q = (_in_motor_order(robot, y, name) for name in ("joint_vel", "joint_pos"))
    if robot.motors.drive == "effort" or q is None or qd is None:
        return u, qd, q
    kp, kd = (np.array(contract.gains.get(k, (0.0,) * u.shape[-1])) for k in ("kp", "kd"))
    limit = np.array(contract.safety.effort or (np.inf,) * u.shape[-1])
    return np.clip(pd_torque(u, q, qd, kp, kd), -limit, limit), qd, q


def _in_motor_order(robot: Robot, y: np.ndarray, name: str) -> np.ndarray | None:
    """A signal of joints in the order of the motors, (n, T, m), if it has them all."""
    contract = robot.contract
    if not contract.has(name) or not set(contract.target.labels) <= set(contract[name].labels):
        return None
    return y[..., contract.slices()[name]][..., [contract[name].component_index(label) for label in contract.target.labels]]


def _mean_frequency(u: np.ndarray, rate: float) -> np.ndarray:
    """Mean frequency of the targets, weighted by power, (n,)."""
    power = np.abs(np.fft.rfft(u - u.mean(axis=1, keepdims=True), axis=1)) ** 2
    frequency = np.fft.rfftfreq(u.shape[1], 1.0 / rate)
    return (power.sum(-1) * frequency).sum(1) / power.sum((1, 2))


class _EstimatedStates:
    """States guessed from signals, every few ticks."""

    def __init__(self, robot: Robot, y: np.ndarray):
        self.robot, self.y = robot, y
        T = y.shape[1]
        self.sample_stride = max(1, T // MAX_STATE_SAMPLES) if not robot.morphology.feet else 1
        self.ticks = np.arange(SG_HALF_TICKS, T - SG_HALF_TICKS, self.sample_stride)
        self._qpos_qvel: tuple[np.ndarray, np.ndarray] | None = None

    def qpos_qvel(self) -> tuple[np.ndarray, np.ndarray]:
        """qpos, (n, looks, nq), and qvel, (n, looks, nv)."""
        if self._qpos_qvel is None:
            reader, model = StateReader(self.robot), self.robot.model
            n, k = len(self.y), len(self.ticks)
            q, v = np.full((n, k, model.nq), np.nan), np.full((n, k, model.nv), np.nan)
            for i, y in enumerate(self.y):
                there = np.isfinite(y[self.ticks]).any(axis=1)
                q[i, there], v[i, there] = reader.states(y, self.ticks[there])
            self._qpos_qvel = q, v
        return self._qpos_qvel

    def feet_down(self) -> np.ndarray:
        """Whether each foot is among the lowest, (n, looks, feet)."""
        q, _ = self.qpos_qvel()
        model = self.robot.model
        data = mujoco.MjData(model)
        ids = [mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, name) for name in self.robot.morphology.foot_geoms]
        down = np.zeros((*q.shape[:2], len(ids)), bool)
        for i in range(len(q)):
            for j in range(q.shape[1]):
                data.qpos[:] = np.nan_to_num(q[i, j])
                mujoco.mj_kinematics(model, data)
                low = data.geom_xpos[ids, 2] - model.geom_size[ids, 0]
                down[i, j] = low <= low.min() + STANCE_HEIGHT
        return down


def _contact_metrics(feet_down: np.ndarray, rate: float) -> dict[MetricKey, np.ndarray]:
    landed = (feet_down[:, 1:] & ~feet_down[:, :-1]).sum((1, 2)) / feet_down.shape[2]
    seconds = feet_down.shape[1] / rate
    with np.errstate(all="ignore"):
        return {
            ("contact", "on the ground", "1"): feet_down.mean((1, 2)),
            ("contact", "steps of a foot", "1/s"): landed / seconds,
            ("contact", "length of a stance", "s"): np.where(landed > 0, feet_down.mean((1, 2)) * seconds / landed, seconds),
            ("contact", "uneven feet", "1"): np.ptp(feet_down.mean(1), axis=1),
        }


def _task_metrics(
    task: Any,
    states: _EstimatedStates,
    y: np.ndarray,
    u: np.ndarray,
    torque: np.ndarray,
    operator_commands: Mapping[str, np.ndarray],
) -> dict[MetricKey, np.ndarray]:
    """The task's score and those of its metrics that a state without contact forces has."""
    import torch

    from isthmus.tasks.state import state_from_recording

    robot, at = states.robot, states.ticks
    qpos, qvel = states.qpos_qvel()
    n, k = qpos.shape[:2]
    flat = lambda x: x.reshape(n * k, *x.shape[2:])  # noqa: E731
    commands = next(
        (c for s, c in operator_commands.items() if task.command is not None and s == task.command.signal.name), None
    )
    commands = np.zeros((len(y[0]), 1)) if commands is None else commands
    targets = [flat(u[:, at - ago]) for ago in range(3)]
    time = np.tile(at / robot.contract.rate, n)
    torques = torch.from_numpy(flat(torque[:, at])).float()
    state = state_from_recording(
        robot, flat(qpos), flat(qvel), targets, flat(np.tile(commands[at], (n, 1, 1))), time, torque=torques
    )
    found: dict[MetricKey, np.ndarray] = {}
    for name, value in (("score", task.score), *task.metrics.items()):
        if (rows := _values_or_none(value, state)) is not None:
            found["tracking", name, ""] = rows.reshape(n, k).mean(axis=1)
    if ("tracking", "score", "") in found:
        score = found["tracking", "score", ""]
        ended = [
            rows.reshape(n, k).any(axis=1)
            for term in task.terminations
            if (rows := _values_or_none(term.value, state)) is not None
        ]
        good = (score >= task.success_threshold) & ~np.any([np.zeros(n, bool), *ended], axis=0)
        found["tracking", "success", ""] = np.where(np.isfinite(score), good, np.nan)
    return found


def _values_or_none(value: Any, state: Any) -> np.ndarray | None:
    """A value of every state; None where it needs what no signal tells."""
    try:
        return value(state).double().numpy()
    except (AttributeError, TypeError, IndexError):
        return None
