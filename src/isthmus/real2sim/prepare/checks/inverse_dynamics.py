"""Efforts that were sent against those that the motion takes: the model's inverse dynamics, with its nominal numbers.

    needed = M(q) q̈ + bias(q, q̇) + friction        per motor; for rotors and the like, by the actuators' moments

The numbers of a model are wrong by tens of percent, which is why one identifies. A sign, another motor or a unit is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass

import mujoco
import numpy as np

from isthmus.core.units import conversion_factor
from isthmus.data.checks.findings import Finding, FindingKind
from isthmus.real2sim.prepare.checks.kinematic_consistency import (
    MAX_MOTOR_LAG,
    SignalRelation,
    TrackView,
    join_words,
    mismatch_finding,
)
from isthmus.real2sim.prepare.checks.matching import (
    ColumnMatch,
    RatePair,
    explains_far_better,
    match_columns,
    mismatches,
    swapped_columns,
)
from isthmus.real2sim.prepare.savitzky_golay import SG_HALF_TICKS, SG_SLOPE, SG_VALUE
from isthmus.sim.indexing import driven_joint_columns, signal_sources
from isthmus.sim.physics.motor_law import MotorLaw, friction_torque
from isthmus.sim.robot import Robot

EFFORT_RATIO_RANGE = (0.2, 5.0)
"""Ratio of what was sent to what was needed that is still fine."""
UNIT_TOLERANCE = 1.6
"""And up to which it tells a unit."""
CONTACT_MARGIN = 0.05
"""m: what is so close to something else may touch it."""
MAX_TICKS = 3000
"""Ticks of a track that are looked at."""


@dataclass(frozen=True)
class Reinterpretation:
    """Another way to read the positions and velocities of joints: scale · measured + shift, (width,) each."""

    kind: FindingKind
    signal: str
    label: str
    text: str
    scale: np.ndarray
    shift: np.ndarray


def effort_consistency(view: TrackView) -> Iterator[Finding]:
    """For robots that are sent efforts and measure their whole state."""
    robot, target = view.robot, view.robot.contract.target
    if robot.motors.drive != "effort" or not _measures_full_state(robot):
        return
    stretches = _effort_pairs(view, 1.0, 0.0)
    m = _match_efforts(view, stretches)
    now = float(np.nanmean(np.abs(np.diag(m.corr)))) if np.isfinite(np.diag(m.corr)).any() else np.nan
    if np.isnan(now):
        return
    others = [
        (_mean_correlation(_match_efforts(view, _effort_pairs(view, r.scale, r.shift))), r) for r in reinterpretations(robot)
    ]
    best, reading = max(others, key=lambda pair: pair[0], default=(-1.0, None))
    if reading is not None and explains_far_better(now, best):
        text = f"{reading.text}: so read, the motion takes the {target.name} that was sent, and as it is, it does not."
        yield view.refused_finding(reading.kind, reading.signal, [reading.label] * bool(reading.label), text)
        return
    # What all motors do alike does not tell which is which.
    apart = [(a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)) for a, b in stretches]
    cycles = swapped_columns(_match_efforts(view, apart)) if target.size > 2 else swapped_columns(m)
    relation = SignalRelation(
        target,
        target,
        f"the {target.name} that the motion takes",
        f"the {target.name} that was sent",
        target.labels,
        unit_tolerance=UNIT_TOLERANCE,
    )
    for verdict in mismatches(m, EFFORT_RATIO_RANGE, cycles):
        yield mismatch_finding(view, relation, verdict)


def reinterpretations(robot: Robot) -> Iterator[Reinterpretation]:
    """What the position and velocity of a joint can have wrong together, so that they still agree."""
    one, none = np.ones(robot.contract.width), np.zeros(robot.contract.width)
    at = robot.contract.slices()
    columns: dict[str, list[tuple[int, str, str]]] = {}
    for signal in robot.contract.signals:
        if robot.sources[signal.name] in ("qpos", "qvel"):
            for i, (label, unit) in enumerate(zip(signal.labels, signal.units, strict=True)):
                columns.setdefault(label, []).append((at[signal.name].start + i, signal.name, unit))
    for unit, other in (("rad", "deg"), ("m", "mm")):
        found = [(c, name) for rows in columns.values() for c, name, u in rows if u in (unit, f"{unit}/s")]
        if found:
            scale = one.copy()
            scale[[c for c, _ in found]] = conversion_factor(other, unit, "")
            names = list(dict.fromkeys(name for _, name in found))
            yield Reinterpretation("unit", names[0], "", f"{join_words(names)} look like {other} and {other}/s", scale, none)
    for label, rows in columns.items():
        where, names = [c for c, _, _ in rows], join_words([name for _, name, _ in rows])
        scale, shift = one.copy(), none.copy()
        scale[where] = -1.0
        yield Reinterpretation("sign", rows[0][1], label, f"{names} of {label} have the wrong sign", scale, none)
        for c, name, unit in rows:
            if unit == "rad":
                shift[c] = np.pi
                yield Reinterpretation("range", name, label, f"{name} of {label} is half a turn off", one, shift)


def _effort_pairs(view: TrackView, scale: np.ndarray | float, shift: np.ndarray | float) -> list[RatePair]:
    found = []
    for track in view.tracks:
        if len(track) > 2 * SG_HALF_TICKS:
            some = track.measured[:MAX_TICKS] * scale + shift
            found.append(
                (required_efforts(view.robot, some, view.tick), track.target[SG_HALF_TICKS : len(some) - SG_HALF_TICKS])
            )
    return found


def _match_efforts(view: TrackView, effort_pairs: list[RatePair]) -> ColumnMatch:
    late = view.robot.max_delay("action_delay") + view.robot.max_delay("sensor_delay") + MAX_MOTOR_LAG
    return match_columns(effort_pairs, view.tick, late)


def _mean_correlation(match: ColumnMatch) -> float:
    """Correlation of the motors on the whole, -1 if not all are known and of a fair size."""
    gains = np.diag(match.gain)
    return (
        float(np.mean(match.own_correlation))
        if ((gains > EFFORT_RATIO_RANGE[0]) & (gains < EFFORT_RATIO_RANGE[1])).all()
        else -1.0
    )


def _measures_full_state(robot: Robot) -> bool:
    model = robot.model
    known = {(array, c) for array, columns in signal_sources(robot, model) for c in columns}
    return {("qpos", c) for c in range(model.nq)} | {("qvel", c) for c in range(model.nv)} <= known


def required_efforts(robot: Robot, measured: np.ndarray, tick: float) -> np.ndarray:
    """Efforts per motor, (T - 2 HALF, m), that a motion, (T, width), takes; NaN where it is not known."""
    model = copy(robot.model)
    model.geom_margin[:] = CONTACT_MARGIN
    data = mujoco.MjData(model)
    q, v = np.zeros((len(measured), model.nq)), np.zeros((len(measured), model.nv))
    for (array, columns), where in zip(signal_sources(robot, model), robot.contract.slices().values(), strict=True):
        if array in ("qpos", "qvel"):
            (q if array == "qpos" else v)[:, columns] = measured[:, where]
    weighed = lambda row: np.stack([np.convolve(c, row[::-1], mode="valid") for c in v.T], axis=1)  # noqa: E731
    q, speed, gain = q[SG_HALF_TICKS : len(q) - SG_HALF_TICKS], weighed(SG_VALUE), weighed(SG_SLOPE) / tick
    out = np.full((len(q), robot.contract.target.size), np.nan)
    joints = driven_joint_columns(robot, model)
    for k in np.flatnonzero(np.isfinite(q).all(1) & np.isfinite(gain).all(1)):
        data.qpos[:], data.qvel[:], data.qacc[:] = q[k], speed[k], gain[k]
        mujoco.mj_normalizeQuat(model, data.qpos)
        mujoco.mj_inverse(model, data)
        # The forces of a contact are anybody's guess, and whether there is one, within the noise, too.
        if not data.ncon:
            out[k] = data.qfrc_inverse[joints[1]] if joints else _actuator_efforts(model, data)
    if joints:
        figures = MotorLaw(robot.motors_of_unit, out.shape[1], tick, frozenset()).nominal
        out += friction_torque(speed[:, joints[1]], np.zeros(1), figures, extended=False)
    return out


def _actuator_efforts(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """Efforts of the actuators, (nu,), that come closest to the forces needed."""
    moment = np.zeros((model.nu, model.nv))
    mujoco.mju_sparse2dense(moment, data.actuator_moment, data.moment_rownnz, data.moment_rowadr, data.moment_colind)
    return np.linalg.lstsq(moment.T, data.qfrc_inverse, rcond=None)[0]
