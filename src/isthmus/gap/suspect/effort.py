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

from isthmus.data.units import factor
from isthmus.gap.parabola import HALF, SLOPE, VALUE
from isthmus.gap.suspect.agree import SLUGGISH, Relation, View, joined, told
from isthmus.gap.suspect.finding import Finding, Kind
from isthmus.gap.suspect.follow import Match, Stretch, exchanged, likelier, match, verdicts
from isthmus.sim.actuators import Actuators, friction
from isthmus.sim.robot import Robot
from isthmus.sim.sources import column_sources, target_joints

SIZES = (0.2, 5.0)
"""Ratio of what was sent to what was needed that is still fine."""
CLOSE = 1.6
"""And up to which it tells a unit."""
NEAR = 0.05
"""m: what is so close to something else may touch it."""
MOST = 3000
"""Ticks of a track that are looked at."""


@dataclass(frozen=True)
class Reading:
    """Another way to read the positions and velocities of joints: scale · measured + shift, (width,) each."""

    kind: Kind
    signal: str
    label: str
    text: str
    scale: np.ndarray
    shift: np.ndarray


def efforts(view: View) -> Iterator[Finding]:
    """For robots that are sent efforts and measure their whole state."""
    robot, target = view.robot, view.robot.contract.target
    if robot.motors.drive != "effort" or not _whole_state(robot):
        return
    stretches = _stretches(view, 1.0, 0.0)
    m = _match(view, stretches)
    now = float(np.nanmean(np.abs(np.diag(m.corr)))) if np.isfinite(np.diag(m.corr)).any() else np.nan
    if np.isnan(now):
        return
    others = [(_fits(_match(view, _stretches(view, r.scale, r.shift))), r) for r in readings(robot)]
    best, reading = max(others, key=lambda pair: pair[0], default=(-1.0, None))
    if reading is not None and likelier(now, best):
        text = f"{reading.text}: so read, the motion takes the {target.name} that was sent, and as it is, it does not."
        yield view.refuse(reading.kind, reading.signal, [reading.label] * bool(reading.label), text)
        return
    # What all motors do alike does not tell which is which.
    apart = [(a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)) for a, b in stretches]
    cycles = exchanged(_match(view, apart)) if target.size > 2 else exchanged(m)
    relation = Relation(
        target,
        target,
        f"the {target.name} that the motion takes",
        f"the {target.name} that was sent",
        target.labels,
        close=CLOSE,
    )
    for verdict in verdicts(m, SIZES, cycles):
        yield told(view, relation, verdict)


def readings(robot: Robot) -> Iterator[Reading]:
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
            scale[[c for c, _ in found]] = factor(other, unit, "")
            names = list(dict.fromkeys(name for _, name in found))
            yield Reading("unit", names[0], "", f"{joined(names)} look like {other} and {other}/s", scale, none)
    for label, rows in columns.items():
        where, names = [c for c, _, _ in rows], joined([name for _, name, _ in rows])
        scale, shift = one.copy(), none.copy()
        scale[where] = -1.0
        yield Reading("sign", rows[0][1], label, f"{names} of {label} have the wrong sign", scale, none)
        for c, name, unit in rows:
            if unit == "rad":
                shift[c] = np.pi
                yield Reading("range", name, label, f"{name} of {label} is half a turn off", one, shift)


def _stretches(view: View, scale: np.ndarray | float, shift: np.ndarray | float) -> list[Stretch]:
    found = []
    for track in view.tracks:
        if len(track) > 2 * HALF:
            some = track.measured[:MOST] * scale + shift
            found.append((needed(view.robot, some, view.tick), track.target[HALF : len(some) - HALF]))
    return found


def _match(view: View, stretches: list[Stretch]) -> Match:
    late = view.robot.longest("action_delay") + view.robot.longest("sensor_delay") + SLUGGISH
    return match(stretches, view.tick, late)


def _fits(m: Match) -> float:
    """Correlation of the motors on the whole, -1 if not all are known and of a fair size."""
    gains = np.diag(m.gain)
    return float(np.mean(m.along)) if ((gains > SIZES[0]) & (gains < SIZES[1])).all() else -1.0


def _whole_state(robot: Robot) -> bool:
    model = robot.model
    known = {(array, c) for array, columns in column_sources(robot, model) for c in columns}
    return {("qpos", c) for c in range(model.nq)} | {("qvel", c) for c in range(model.nv)} <= known


def needed(robot: Robot, measured: np.ndarray, tick: float) -> np.ndarray:
    """Efforts per motor, (T - 2 HALF, m), that a motion, (T, width), takes; NaN where it is not known."""
    model = copy(robot.model)
    model.geom_margin[:] = NEAR
    data = mujoco.MjData(model)
    q, v = np.zeros((len(measured), model.nq)), np.zeros((len(measured), model.nv))
    for (array, columns), where in zip(column_sources(robot, model), robot.contract.slices().values(), strict=True):
        if array in ("qpos", "qvel"):
            (q if array == "qpos" else v)[:, columns] = measured[:, where]
    weighed = lambda row: np.stack([np.convolve(c, row[::-1], mode="valid") for c in v.T], axis=1)  # noqa: E731
    q, speed, gain = q[HALF : len(q) - HALF], weighed(VALUE), weighed(SLOPE) / tick
    out = np.full((len(q), robot.contract.target.size), np.nan)
    joints = target_joints(robot, model)
    for k in np.flatnonzero(np.isfinite(q).all(1) & np.isfinite(gain).all(1)):
        data.qpos[:], data.qvel[:], data.qacc[:] = q[k], speed[k], gain[k]
        mujoco.mj_normalizeQuat(model, data.qpos)
        mujoco.mj_inverse(model, data)
        # The forces of a contact are anybody's guess, and whether there is one, within the noise, too.
        if not data.ncon:
            out[k] = data.qfrc_inverse[joints[1]] if joints else _by_moments(model, data)
    if joints:
        figures = Actuators(robot.driven, out.shape[1], tick, frozenset()).nominal
        out += friction(speed[:, joints[1]], np.zeros(1), figures, rich=False)
    return out


def _by_moments(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """Efforts of the actuators, (nu,), that come closest to the forces needed."""
    moment = np.zeros((model.nu, model.nv))
    mujoco.mju_sparse2dense(moment, data.actuator_moment, data.moment_rownnz, data.moment_rowadr, data.moment_colind)
    return np.linalg.lstsq(moment.T, data.qfrc_inverse, rcond=None)[0]
