"""Attitude, gyroscope, accelerometer and velocity of a body in space: one order, one frame, one unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from isthmus.core.constants import STANDARD_GRAVITY
from isthmus.core.geometry import CONJUGATE, relative_rotation, rotate_inverse
from isthmus.data.checks.findings import Finding
from isthmus.real2sim.prepare.checks.kinematic_consistency import (
    MAX_SIZE_RATIO,
    SignalRelation,
    TrackView,
    mismatch_finding,
    tick_midpoints,
    tick_rates,
)
from isthmus.real2sim.prepare.checks.matching import (
    explains_far_better,
    match_columns,
    mismatches,
    swapped_columns,
    vector_correlation,
)
from isthmus.real2sim.prepare.kinematics import body_signals, unit_by_factor

MAX_TILT_DEGREES = 30.0
"""Degrees between the accelerometer's mean and where the attitude has the vertical that are still fine."""
GRAVITY_RATIO_RANGE = (0.5, 2.0)
"""Usual size of what an accelerometer says, against gravity, that is still fine."""
MIN_MEAN_SECONDS = 2.0
"""s over which the mean acceleration of a robot is next to none."""


QUATERNION_MISREADINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "looks like x, y, z, w instead of w, x, y, z": lambda q: relative_rotation(q[:, [3, 0, 1, 2]]),
    "looks like the inverse rotation, from the world to the body, or the gyroscope has the opposite sign": lambda q: (
        relative_rotation(q * CONJUGATE)
    ),
}
"""What may be wrong with a quaternion, and how it turns if that is so."""


def attitude_consistency(view: TrackView) -> Iterator[Finding]:
    names = body_signals(view.robot)
    if "quat" not in names:
        return
    quats = view.values(names["quat"])
    wrong = False
    if "angvel" in names:
        for finding in _gyroscope_findings(view, names["quat"], names["angvel"], quats):
            wrong = wrong or finding.kind in ("order", "frame", "sign", "swapped")
            yield finding
    if "accel" in names:
        yield from _accelerometer_findings(view, names["quat"], names["accel"], None if wrong else quats)
    if "pos" in names and "linvel" in names and not wrong:
        yield from _velocity_frame_findings(view, names["pos"], names["linvel"], quats)


def _gyroscope_findings(view: TrackView, quat: str, gyro: str, quats: Sequence[np.ndarray]) -> Iterator[Finding]:
    """Attitude against gyroscope."""
    seen, rates = [relative_rotation(q) / view.tick for q in quats], tick_midpoints(view.values(gyro))
    now = vector_correlation(list(zip(seen, rates, strict=True)), view.tick)
    for text, reading in QUATERNION_MISREADINGS.items():
        other = [reading(q) / view.tick for q in quats]
        if explains_far_better(now, vector_correlation(list(zip(other, rates, strict=True)), view.tick)):
            yield view.refused_finding(
                "order", quat, (), f"{quat} {text}: so read, it turns as {gyro} says, and as it is, it does not."
            )
            return
    # unrotate by q turns the world's vectors into the body's.
    body = [rotate_inverse(q[:-1], r) for q, r in zip(quats, rates, strict=True)]
    if explains_far_better(now, vector_correlation(list(zip(seen, body, strict=True)), view.tick)):
        yield view.refused_finding("frame", gyro, (), f"{gyro} looks as if it were in the world's frame, not in the body's.")
        return
    m = match_columns(list(zip(seen, rates, strict=True)), view.tick)
    known = view.robot.contract[gyro]
    relation = SignalRelation(known, known, f"the turning of {quat}", f"the integral of {gyro}", known.labels)
    for verdict in mismatches(m, (1 / MAX_SIZE_RATIO, MAX_SIZE_RATIO), swapped_columns(m, exact=True)):
        yield mismatch_finding(view, relation, verdict)


def _velocity_frame_findings(view: TrackView, position: str, velocity: str, quats: Sequence[np.ndarray]) -> Iterator[Finding]:
    """A velocity in the body's frame, against the position's change in the world's."""
    seen, rates = tick_rates(view.values(position), view.tick), tick_midpoints(view.values(velocity))
    world = [rotate_inverse(q[:-1] * CONJUGATE, r) for q, r in zip(quats, rates, strict=True)]
    now, other = (vector_correlation(list(zip(seen, r, strict=True)), view.tick) for r in (rates, world))
    if explains_far_better(now, other):
        yield view.refused_finding(
            "frame", velocity, (), f"{velocity} looks as if it were in the body's frame, not in the world's."
        )


def _accelerometer_findings(view: TrackView, quat: str, accel: str, quats: Sequence[np.ndarray] | None) -> Iterator[Finding]:
    """Accelerometer against gravity, and against the attitude where that can be trusted."""
    g, values = STANDARD_GRAVITY, view.values(accel)
    sizes = np.linalg.norm(np.concatenate(values), axis=1)
    if not np.isfinite(sizes).any():
        return
    usual = float(np.nanmedian(sizes)) / g
    if not GRAVITY_RATIO_RANGE[0] < usual < GRAVITY_RATIO_RANGE[1]:
        unit = unit_by_factor(view.robot.contract[accel].units[0], usual)
        looks = f"looks like {unit}" if unit else "does not fit"
        text = f"{accel} {looks}: its size is usually {usual * g:.3g}, and gravity alone is {g:.2f} m/s²."
        yield view.refused_finding("unit", accel, (), text)
        return
    if quats is None:
        return
    up = np.concatenate([rotate_inverse(q * CONJUGATE, a) for q, a in zip(quats, values, strict=True)])
    up = up[np.isfinite(up).all(1)]
    if len(up) * view.tick < MIN_MEAN_SECONDS:
        return
    mean = up.mean(axis=0)
    angle = float(np.degrees(np.arccos(mean[2] / max(np.linalg.norm(mean), 1e-9))))
    if angle > 180.0 - MAX_TILT_DEGREES:
        yield view.refused_finding(
            "sign", accel, (), f"{accel} has the wrong sign: at rest it must point up, and it points down."
        )
    elif angle > MAX_TILT_DEGREES:
        text = f"{accel} is on average {angle:.0f} degrees from where {quat} has the vertical: one is in another frame."
        yield view.refused_finding("frame", accel, (), text)
