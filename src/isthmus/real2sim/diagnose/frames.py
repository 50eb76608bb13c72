"""Frames by kinematics alone: angular velocity is how attitude changes, velocity how position does, and gravity is all that is
felt in the long run.

No simulator is needed for that, so it also shows where a simulator that is corrected by the same signals would not notice.

    evidence = n · log(mismatch as it is / mismatch without the mistake)        n: comparisons that speak for themselves
               + evidence of a bias in what is felt besides gravity, less that without the mistake
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isthmus.core.geometry import rotate_inverse
from isthmus.real2sim.diagnose.accelerometer import accelerometer_bias
from isthmus.real2sim.diagnose.wiring_evidence import TICK_REDUNDANCY, RemappingEvidence, remappings
from isthmus.real2sim.prepare.kinematics import body_signals
from isthmus.real2sim.prepare.tracks import Track
from isthmus.sim.robot import Robot

RATE_SPAN_TICKS = 4
"""Ticks over which a change is taken, an even number: more of them average noise out, and motion, too."""
SIMPSON_WEIGHTS = np.array([1.0, 4.0, 2.0, 4.0, 1.0]) / 12.0
"""Of a velocity over them (Simpson's rule)."""
MIN_MISMATCH_RATIO = 1.1
"""Mismatch over that without a mistake from which on it says something."""
MIN_LOG_EVIDENCE = 3.0
"""Log evidence, from which on kinematics says that something is wrong."""


def frame_errors(robot: Robot, tracks: Sequence[Track]) -> list[RemappingEvidence]:
    """Vectors in the wrong frame or with the wrong sign, and attitudes in the wrong order, best first."""
    (as_it_is, n), odd = rate_mismatch(robot, tracks), accelerometer_bias(robot, tracks).log_evidence_by_axis.sum()
    out = []
    for mistake in remappings(robot):
        if mistake.kind in ("frame", "order", "sign"):
            undone = [mistake.correct(track) for track in tracks]
            gain = float(np.log(as_it_is / rate_mismatch(robot, undone)[0]).sum())
            evidence = float(odd - accelerometer_bias(robot, undone).log_evidence_by_axis.sum()) + (
                gain * n / TICK_REDUNDANCY if abs(gain) > np.log(MIN_MISMATCH_RATIO) else 0.0
            )
            if evidence > MIN_LOG_EVIDENCE:
                out.append(RemappingEvidence(mistake, evidence))
    return sorted(out, key=lambda u: -u.evidence)


def body_position_velocity_signals(robot: Robot) -> list[tuple[str, str]]:
    """Names of the body's attitude and angular velocity, and of its position and velocity, where both are measured."""
    known = body_signals(robot)
    return [(known[p], known[v]) for p, v in (("quat", "angvel"), ("pos", "linvel")) if p in known and v in known]


def rate_mismatch(robot: Robot, tracks: Sequence[Track]) -> tuple[np.ndarray, int]:
    """(pairs,) root mean square of a velocity less the change of what it is the velocity of, and of how many ticks."""
    at, tick = robot.contract.slices(), 1.0 / robot.contract.rate
    pairs, quat = body_position_velocity_signals(robot), body_signals(robot).get("quat")
    sums, ticks = np.zeros(len(pairs)), 0
    for track in tracks:
        ticks += max(len(track) - RATE_SPAN_TICKS, 0)
        for i, (place, speed) in enumerate(pairs):
            said, done = mean_rates(track.measured[:, at[place]], track.measured[:, at[speed]], tick, place == quat)
            sums[i] += np.nansum((said - done) ** 2)
    return np.sqrt(sums / max(ticks, 1)) + 1e-12, ticks if pairs else 0


def mean_rates(p: np.ndarray, v: np.ndarray, tick: float, attitude: bool) -> tuple[np.ndarray, np.ndarray]:
    """Over SPAN ticks, (T - SPAN, components) each: the mean of a velocity v, and how a position or an attitude p changes."""
    if len(p) <= RATE_SPAN_TICKS:
        return np.zeros((0, v.shape[1])), np.zeros((0, v.shape[1]))
    said = np.stack([np.convolve(column, SIMPSON_WEIGHTS, mode="valid") for column in v.T], axis=1)
    a, middle, b = p[:-RATE_SPAN_TICKS], p[RATE_SPAN_TICKS // 2 : -RATE_SPAN_TICKS // 2], p[RATE_SPAN_TICKS:]
    return said, (rotation_between(a, middle, b) if attitude else b - a) / (RATE_SPAN_TICKS * tick)


def rotation_between(a: np.ndarray, middle: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(n, 3) small rotation from attitudes a to b, (n, 4) each, in the frame of those in the middle."""
    vector = a[:, :1] * b[:, 1:] - b[:, :1] * a[:, 1:] - np.cross(b[:, 1:], a[:, 1:])
    scalar = (a * b).sum(1, keepdims=True)
    world = 2.0 * np.sign(scalar) * vector
    return rotate_inverse(middle, world)
