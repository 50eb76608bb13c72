"""Motors whose torque was measured: their law, without a body around them.

    time, target.J, joint_pos.J, joint_vel.J, torque.J        columns of a table, for each motor J on the bench

The motors of one group share a law. Their recordings are cut into pieces, the law is driven through each from its first
sample on, and what it gives is compared with the torque that was measured.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import least_squares
from scipy.signal import lfilter

from isthmus.core.errors import BadInput, unknown_name
from isthmus.real2sim.identify.force_ensemble import EnsembleTrainer
from isthmus.real2sim.identify.force_features import zero_force
from isthmus.sim.physics.learned_force import LearnedForce
from isthmus.sim.physics.motor_figures import nominal_motor_figures
from isthmus.sim.physics.motor_law import MOTOR_FIELD_DEFAULTS, MOTOR_LAW_FIELDS, Arrays, MotorLaw
from isthmus.sim.robot import MOTOR_FIELDS, MotorParams, Robot
from isthmus.world import Param, Space, Target

PIECE_SAMPLES, WARM_UP_SAMPLES = 200, 40
"""Samples of a piece, and how many of them only bring the law into step."""
GAP_STEP_RATIO = 2.5
"""A step of time longer than so many usual ones begins a new stretch."""
TABLE_COLUMNS = ("target", "joint_pos", "joint_vel", "torque")
MAX_PIECES = 2000
MAX_CLIPPED_SHARE, MIN_CORRELATION, MAX_GAIN_RATIO = 0.2, 0.7, 1.6
"""Share of samples at which a torque may be at its extreme; how well a speed and the change of an angle must go together to be
compared, and their ratio that is still fine."""


@dataclass(frozen=True)
class BenchData:
    """N pieces of T samples of motors that share a law."""

    labels: tuple[str, ...]
    dt: float
    """s between samples."""
    u: np.ndarray
    """(N, T) targets, angles, speeds and measured torques."""
    q: np.ndarray
    qd: np.ndarray
    tau: np.ndarray

    def __len__(self) -> int:
        return len(self.u)

    def take(self, which: np.ndarray) -> BenchData:
        return BenchData(self.labels, self.dt, self.u[which], self.q[which], self.qd[which], self.tau[which])

    @property
    def compared_torque(self) -> np.ndarray:
        """(N, T - WARM) torques that are compared."""
        return self.tau[:, WARM_UP_SAMPLES:]


def read_bench(paths: Sequence[Path], robot: Robot, pattern: str = ".*", torque_constant: float = 0.0) -> BenchData:
    """From tables with the columns above, those motors of the robot whose label matches `pattern`.

    With a torque `constant`, N·m/A, columns `current.J` may stand for torques.
    """
    from isthmus.data.importers import load_table

    labels = [label for label in robot.contract.target.labels if re.fullmatch(pattern, label)]
    if not labels:
        raise unknown_name("motor", pattern, robot.contract.target.labels, f"the motors of {robot.name}")
    rows: list[tuple[str, np.ndarray]] = []
    steps = []
    for path in paths:
        table = load_table(path)
        columns = {name: np.asarray(column.values, float) for name, column in table.columns.items()}
        if "time" not in columns:
            raise BadInput(f"{path} has no column 'time'.")
        for name in [name for name in columns if name.startswith("current.") and torque_constant]:
            columns.setdefault(name.replace("current.", "torque.", 1), torque_constant * columns[name])
        here = [label for label in labels if f"torque.{label}" in columns]
        if not here and any(f"current.{label}" in columns for label in labels):
            raise BadInput(f"{path} has currents in place of torques: say how much torque an ampere is, --torque-constant.")
        if not here:
            raise BadInput(f"{path} has no measured torque: no column such as 'torque.{labels[0]}'.")
        for label in here:
            missing = [f"{c}.{label}" for c in TABLE_COLUMNS if f"{c}.{label}" not in columns]
            if missing:
                raise BadInput(f"{path} has 'torque.{label}' but no column '{missing[0]}'.")
            data = np.stack([columns["time"], *(columns[f"{c}.{label}"] for c in TABLE_COLUMNS)], axis=1)
            _check_motor(data, label, str(path))
            rows.append((label, data))
        steps.append(np.median(np.diff(columns["time"])))
    dt = float(np.median(steps))
    if not dt > 0:
        raise BadInput(f"{paths[0]}: time does not go on.")
    pieces = [piece for _, data in rows for piece in _cut_pieces(data, dt)]
    if not pieces:
        raise BadInput(f"no stretch of {paths[0]} is {PIECE_SAMPLES} samples long without a hole.")
    pieces = [pieces[i] for i in np.unique(np.linspace(0, len(pieces) - 1, MAX_PIECES).astype(int))]
    u, q, qd, tau = np.stack(pieces).transpose(2, 0, 1)
    return BenchData(tuple(dict.fromkeys(label for label, _ in rows)), dt, u, q, qd, tau)


def _check_motor(data: np.ndarray, label: str, where: str) -> None:
    """Refuse columns, (samples, 5), that cannot be of one motor in the units of its contract."""
    good = data[np.isfinite(data).all(axis=1)]
    if len(good) < PIECE_SAMPLES:
        return
    time, *columns = good.T
    for name, values in zip(TABLE_COLUMNS[1:], columns[1:], strict=True):
        if np.ptp(values) == 0:
            raise BadInput(f"{where}: {name}.{label} never changes.")
        ends = np.mean(np.abs(values) == np.abs(values).max())
        if name == "torque" and ends > MAX_CLIPPED_SHARE:
            raise BadInput(f"{where}: {name}.{label} sits at its extreme in {100 * ends:.0f} % of samples: clipped.")
    step = np.diff(time)
    steady = (step > 0) & (step < GAP_STEP_RATIO * np.median(step))
    rate, speed = np.diff(columns[1])[steady] / step[steady], (0.5 * (columns[2][1:] + columns[2][:-1]))[steady]
    gain = float(rate @ speed / max(float(rate @ rate), 1e-300))
    alike = float(rate @ speed / max(float(np.sqrt((rate @ rate) * (speed @ speed))), 1e-300))
    if abs(alike) > MIN_CORRELATION and not 1 / MAX_GAIN_RATIO < gain < MAX_GAIN_RATIO:
        raise BadInput(
            f"{where}: joint_vel.{label} is {gain:.3g} times the rate at which joint_pos.{label} changes: another unit or sign."
        )


def _cut_pieces(data: np.ndarray, dt: float) -> list[np.ndarray]:
    """Pieces of (PIECE, 4) on a regular grid; a hole in time or a missing number ends a stretch."""
    good = np.asarray(np.isfinite(data).all(axis=1))
    step = np.diff(data[:, 0])
    ends = np.flatnonzero((step > GAP_STEP_RATIO * dt) | (step <= 0) | ~good[1:] | ~good[:-1]) + 1
    found = []
    for part in np.split(data, ends):
        if len(part) < PIECE_SAMPLES or not np.isfinite(part).all():
            continue
        grid = np.arange(part[0, 0], part[-1, 0] + 0.5 * dt, dt)
        even = np.stack([np.interp(grid, part[:, 0], part[:, i]) for i in range(1, part.shape[1])], axis=1)
        found += [even[i : i + PIECE_SAMPLES] for i in range(0, len(even) - PIECE_SAMPLES + 1, PIECE_SAMPLES - WARM_UP_SAMPLES)]
    return found


def law_torque(robot: Robot, bench: BenchData, space: Space, values: np.ndarray) -> np.ndarray:
    """What the law gives, (k, N, T - WARM), with k sets of values of the space, (k, d)."""
    k, (N, T) = len(values), bench.u.shape
    varied = frozenset(Target.parse(p.targets[0]).field for p in space.params) & set(MOTOR_LAW_FIELDS)
    actuators = MotorLaw(_single_motor(robot, bench.labels[0]), 1, bench.dt, varied)
    f: Arrays = {name: np.broadcast_to(row, (k, 1, 1)) for name, row in actuators.nominal.items()}
    delay = np.zeros((k, 1))
    for column, param in zip(values.T, space.params, strict=True):
        field = Target.parse(param.targets[0]).field
        if field == "action_delay":
            delay = column[:, None]
        else:
            f[field] = f[field] * column[:, None, None] if param.how == "scale" else column[:, None, None]
    u = _apply_delay(bench.u, delay / bench.dt)
    if actuators.has_lag:
        u = _apply_lag(u, f["lag"][:, 0, 0], bench.dt)
    # The lag is done; all else has no memory, so that all samples can go at once.
    actuators.has_lag = False
    q, qd = (np.broadcast_to(x, (k, N, T)) for x in (bench.q, bench.qd))
    return actuators.torque(f, {}, u, q, qd)[:, :, WARM_UP_SAMPLES:]


def _apply_lag(u: np.ndarray, lag: np.ndarray, dt: float) -> np.ndarray:
    """Targets (k, N, T) behind first-order lags, (k,), that have settled on the first sample."""
    with np.errstate(divide="ignore"):
        keep = np.exp(-dt / lag)
    rows = [lfilter([1 - a], [1, -a], x, zi=a * x[:, :1])[0] for a, x in zip(keep, u, strict=True)]
    return np.stack(rows)


def _single_motor(robot: Robot, label: str) -> MotorParams:
    """The motors' nominal figures as those of a single motor."""
    i, nominal = robot.contract.target.component_index(label), nominal_motor_figures(robot)
    return replace(
        robot.motors, **{f: (float(nominal[f][i]),) if nominal[f][i] != MOTOR_FIELD_DEFAULTS[f] else () for f in MOTOR_FIELDS}
    )


def _apply_delay(u: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Targets (N, T) as they arrive `samples`, (k, 1), later, (k, N, T); the first one before the start."""
    at = np.maximum(np.arange(u.shape[1]) - samples, 0.0)
    low = at.astype(int)
    part = (at - low)[:, None]
    high = np.minimum(low + 1, u.shape[1] - 1)
    return u[:, low].transpose(1, 0, 2) * (1 - part) + u[:, high].transpose(1, 0, 2) * part


def fit_law(robot: Robot, bench: BenchData, params: Sequence[Param], start: np.ndarray | None = None) -> np.ndarray:
    """Values of the parameters, (d,), under which the law gives the torques that were measured, large misses softened."""
    space = Space(tuple(params))
    scale = max(float(np.std(bench.compared_torque)), 1e-9) * 0.1
    step = 1e-3

    def miss(z: np.ndarray) -> np.ndarray:
        """(k, d) -> (k, all)"""
        values = np.stack([space.from_unconstrained(row) for row in z])
        return ((law_torque(robot, bench, space, values) - bench.compared_torque) / scale).reshape(len(z), -1)

    def slope(z: np.ndarray) -> np.ndarray:
        moves = step * np.eye(len(z))
        both = miss(np.concatenate([z + moves, z - moves]))
        return ((both[: len(z)] - both[len(z) :]) / (2 * step)).T

    middle = space.nominal if start is None else start
    z = np.clip(space.unconstrained(middle), -4.0, 4.0)
    found = least_squares(lambda z: miss(z[None])[0], z, jac=slope, loss="soft_l1", x_scale="jac", max_nfev=60)  # pyright: ignore[reportArgumentType]
    return space.from_unconstrained(found.x)


def learn_torque_remainder(robot: Robot, bench: BenchData, law_output: np.ndarray, seed: int = 0) -> LearnedForce:
    """A force on top of the law, from what it leaves: `given`, (N, T - WARM), is what the law gives."""
    law = zero_force(robot, "motor", bench.labels, lags=2, stride=max(bench.dt, 0.005))
    x = bench_features(robot, bench, law)
    rest = bench.compared_torque - law_output
    scale = np.array([max(float(np.std(rest)), 1e-9)])
    members = EnsembleTrainer(x, scale, 1, seed)
    members.train(x, _TorqueProblem(law_output - bench.compared_torque, scale[0]))
    return members.to_learned_force(law, x)


def bench_features(robot: Robot, bench: BenchData, law: LearnedForce) -> np.ndarray:
    """(N, T - WARM, 1, 1, features)"""
    step = max(1, round(law.stride / bench.dt))
    first = bench.u if robot.motors.drive == "effort" else bench.u - bench.q
    at = np.arange(WARM_UP_SAMPLES, bench.u.shape[1])
    columns = [signal[:, at - i * step] for signal in (first, bench.qd) for i in range(law.lags + 1)]
    return np.stack(columns, axis=-1)[:, :, None, None]


class _TorqueProblem:
    """How far the torque is off, in units of how far it was."""

    def __init__(self, error: np.ndarray, scale: float):
        self.error, self.scale = torch.from_numpy(error / scale).float(), scale

    def cost(self, change: torch.Tensor) -> torch.Tensor:
        return 0.5 * (self.error + change[..., 0] / self.scale).pow(2).mean(-1)
