"""Values that a robot cannot have: beyond the limits of its targets, the range of its joints, or a full turn."""

from __future__ import annotations

from collections.abc import Iterator

import mujoco
import numpy as np

from isthmus.data.checks.findings import Finding, Recording
from isthmus.data.checks.limits import limit_violations
from isthmus.data.contract import NO_LIMIT
from isthmus.deploy.guard.rules import Thresholds
from isthmus.real2sim.prepare.checks.samples import count_text
from isthmus.real2sim.prepare.kinematics import joint_range, unit_by_range
from isthmus.sim.indexing import signal_sources
from isthmus.sim.robot import Robot

MIN_TICKS_OUTSIDE, MIN_SHARE_OUTSIDE = 5, 0.01
"""Ticks, and part of the recording, in which a joint must be out of its range to be out of it."""
UNIT_MISMATCH_RATIO = 4.0
"""A target that is usually beyond what the robot can do by this factor is in another unit."""
RANGE_SLACK = Thresholds.position_margin
"""rad or m beyond its range that a joint's encoder may show, at most a tenth of the range: as for a guard."""
FULL_TURN_TOLERANCE = 0.1
"""rad: a jump that is a full turn up to this is one."""


def target_limits(recording: Recording, robot: Robot, refused: bool) -> Iterator[Finding]:
    """Targets outside the contract's limits, a little or by far; nothing if they are known to be `wrong`."""
    target, values, effort = robot.contract.target, recording.episode.target, robot.contract.safety.effort
    if refused:
        return
    far: dict[str, float] = {}
    for i, label in enumerate(target.labels):
        ends = [abs(row[i]) for row in (target.low, target.high) if row]
        if robot.motors.drive == "effort" and effort:
            ends.append(effort[i])
        sent, most = values[np.isfinite(values[:, i]), i], max(ends, default=NO_LIMIT)
        if len(sent) and 0 < most < NO_LIMIT and (times := float(np.median(np.abs(sent))) / most) > UNIT_MISMATCH_RATIO:
            far[label] = times
    if far:
        label, times = next(iter(far.items()))
        named = "" if len(far) == target.size else ", ".join(far)
        text = f"{target.name} is in another unit: that of {label} is usually {times:.3g} times what the robot can do."
        yield recording.finding("unit", target.name, named, None, text, refused=True)
    for b in limit_violations(target, values):
        if b.label in far:
            continue
        where = np.zeros(len(values), bool)
        where[b.ticks] = True
        text = (
            f"{target.name} of {b.label} is {b.side} the contract's limit of {b.limit:.4g} in {count_text(recording, where)}, "
            f"up to {b.worst:.4g}; it is replayed as it was sent."
        )
        yield recording.finding("limit", target.name, b.label, where, text)


def joint_limits(recording: Recording, robot: Robot) -> Iterator[Finding]:
    """Positions that the joint cannot have, and full turns from one tick to the next."""
    model = robot.model
    for signal, (_, columns) in zip(robot.contract.signals, signal_sources(robot, model), strict=True):
        if robot.sources[signal.name] != "qpos":
            continue
        large: dict[str, list[int]] = {}
        for i, (label, address) in enumerate(zip(signal.labels, columns, strict=True)):
            x, ends = recording.episode.signals[signal.name][:, i], joint_range(robot, signal.name, label)
            hinge = model.jnt_type[np.flatnonzero(model.jnt_qposadr == address)[0]] == mujoco.mjtJoint.mjJNT_HINGE
            if hinge and (jumps := full_turn_jumps(x)).any():
                text = f"{signal.name} of {label} jumps by a full turn in {count_text(recording, jumps)}; it is unwrapped."
                yield recording.finding("wrapped", signal.name, label, jumps, text)
            elif not (out := _outside_range(x, *ends)).any():
                continue
            elif np.nanmax(np.abs(x)) > UNIT_MISMATCH_RATIO * np.abs(ends).max():
                large.setdefault(unit_by_range(signal.units[i], x, ends[0] - RANGE_SLACK, ends[1] + RANGE_SLACK), []).append(i)
            else:
                worst = x[out][np.argmax(np.maximum(ends[0] - x[out], x[out] - ends[1]))]
                text = (
                    f"{signal.name} of {label} is up to {worst:.4g} in {count_text(recording, out)}, but the joint's range is "
                    f"{ends[0]:.4g} to {ends[1]:.4g} {signal.units[i]}: another joint, sign or zero."
                )
                yield recording.finding("range", signal.name, label, out, text, refused=True)
        for unit, which in large.items():
            labels = [signal.labels[i] for i in which]
            x, ends = recording.episode.signals[signal.name][:, which[0]], joint_range(robot, signal.name, labels[0])
            looks = f"looks like {unit}" if unit else "is in another unit"
            text = (
                f"{signal.name} {looks}: that of {labels[0]} goes from {np.nanmin(x):.4g} to {np.nanmax(x):.4g}, but the "
                f"joint's range is {ends[0]:.4g} to {ends[1]:.4g} {signal.units[which[0]]}."
            )
            named = "" if len(labels) == signal.size else ", ".join(labels)
            yield recording.finding("unit", signal.name, named, None, text, refused=True)


def full_turn_jumps(x: np.ndarray) -> np.ndarray:
    """(T,) where an angle, otherwise smooth, jumps by a full turn."""
    steps = np.abs(np.diff(x, prepend=x[:1]))
    jumps = np.abs(steps - 2 * np.pi) < FULL_TURN_TOLERANCE
    return jumps & ~((steps > 0.5 * np.pi) & ~jumps).any()


def _outside_range(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """(T,) where a joint is out of its range, if it often is."""
    slack = min(RANGE_SLACK, 0.1 * (high - low))
    out = (x < low - slack) | (x > high + slack)
    return out & bool(out.sum() >= max(MIN_TICKS_OUTSIDE, MIN_SHARE_OUTSIDE * len(x)))
