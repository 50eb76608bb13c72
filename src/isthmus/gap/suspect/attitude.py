"""Attitude, gyroscope, accelerometer and velocity of a body in space: one order, one frame, one unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from isthmus.data.units import GRAVITY
from isthmus.gap.suspect.agree import SIZE, Relation, View, between, changing, told
from isthmus.gap.suspect.finding import Finding
from isthmus.gap.suspect.follow import exchanged, likelier, likeness, match, verdicts
from isthmus.gap.suspect.kin import likely, spatial
from isthmus.sim.sources import unrotate

LEANS = 30.0
"""Degrees between the accelerometer's mean and where the attitude has the vertical that are still fine."""
FEELS = (0.5, 2.0)
"""Usual size of what an accelerometer says, against gravity, that is still fine."""
LONG = 2.0
"""s over which the mean acceleration of a robot is next to none."""
CONJUGATE = np.array([1.0, -1.0, -1.0, -1.0])


def turned(quat: np.ndarray) -> np.ndarray:
    """Rotation from tick to tick, (T, 4) -> (T - 1, 3), as twice the vector part, in the body's frame."""
    a, b = quat[:-1] * CONJUGATE, quat[1:]
    scalar = a[:, :1] * b[:, :1] - (a[:, 1:] * b[:, 1:]).sum(1, keepdims=True)
    vector = a[:, :1] * b[:, 1:] + b[:, :1] * a[:, 1:] + np.cross(a[:, 1:], b[:, 1:])
    return 2.0 * vector * np.where(scalar < 0, -1.0, 1.0)


MISREAD: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "looks like x, y, z, w instead of w, x, y, z": lambda q: turned(q[:, [3, 0, 1, 2]]),
    "looks like the inverse rotation, from the world to the body, or the gyroscope has the opposite sign": lambda q: turned(
        q * CONJUGATE
    ),
}
"""What may be wrong with a quaternion, and how it turns if that is so."""


def spatially(view: View) -> Iterator[Finding]:
    names = spatial(view.robot)
    if "quat" not in names:
        return
    quats = view.values(names["quat"])
    wrong = False
    if "angvel" in names:
        for finding in _turning(view, names["quat"], names["angvel"], quats):
            wrong = wrong or finding.kind in ("order", "frame", "sign", "swapped")
            yield finding
    if "accel" in names:
        yield from _gravity(view, names["quat"], names["accel"], None if wrong else quats)
    if "pos" in names and "linvel" in names and not wrong:
        yield from _frame(view, names["pos"], names["linvel"], quats)


def _turning(view: View, quat: str, gyro: str, quats: Sequence[np.ndarray]) -> Iterator[Finding]:
    """Attitude against gyroscope."""
    seen, rates = [turned(q) / view.tick for q in quats], between(view.values(gyro))
    now = likeness(list(zip(seen, rates, strict=True)), view.tick)
    for text, reading in MISREAD.items():
        other = [reading(q) / view.tick for q in quats]
        if likelier(now, likeness(list(zip(other, rates, strict=True)), view.tick)):
            yield view.refuse("order", quat, (), f"{quat} {text}: so read, it turns as {gyro} says, and as it is, it does not.")
            return
    # unrotate by q turns the world's vectors into the body's.
    body = [unrotate(q[:-1], r) for q, r in zip(quats, rates, strict=True)]
    if likelier(now, likeness(list(zip(seen, body, strict=True)), view.tick)):
        yield view.refuse("frame", gyro, (), f"{gyro} looks as if it were in the world's frame, not in the body's.")
        return
    m = match(list(zip(seen, rates, strict=True)), view.tick)
    known = view.robot.contract[gyro]
    relation = Relation(known, known, f"the turning of {quat}", f"the integral of {gyro}", known.labels)
    for verdict in verdicts(m, (1 / SIZE, SIZE), exchanged(m, exact=True)):
        yield told(view, relation, verdict)


def _frame(view: View, position: str, velocity: str, quats: Sequence[np.ndarray]) -> Iterator[Finding]:
    """A velocity in the body's frame, against the position's change in the world's."""
    seen, rates = changing(view.values(position), view.tick), between(view.values(velocity))
    world = [unrotate(q[:-1] * CONJUGATE, r) for q, r in zip(quats, rates, strict=True)]
    now, other = (likeness(list(zip(seen, r, strict=True)), view.tick) for r in (rates, world))
    if likelier(now, other):
        yield view.refuse("frame", velocity, (), f"{velocity} looks as if it were in the body's frame, not in the world's.")


def _gravity(view: View, quat: str, accel: str, quats: Sequence[np.ndarray] | None) -> Iterator[Finding]:
    """Accelerometer against gravity, and against the attitude where that can be trusted."""
    g, values = float(GRAVITY), view.values(accel)
    sizes = np.linalg.norm(np.concatenate(values), axis=1)
    if not np.isfinite(sizes).any():
        return
    usual = float(np.nanmedian(sizes)) / g
    if not FEELS[0] < usual < FEELS[1]:
        unit = likely(view.robot.contract[accel].units[0], usual)
        looks = f"looks like {unit}" if unit else "does not fit"
        text = f"{accel} {looks}: its size is usually {usual * g:.3g}, and gravity alone is {g:.2f} m/s²."
        yield view.refuse("unit", accel, (), text)
        return
    if quats is None:
        return
    up = np.concatenate([unrotate(q * CONJUGATE, a) for q, a in zip(quats, values, strict=True)])
    up = up[np.isfinite(up).all(1)]
    if len(up) * view.tick < LONG:
        return
    mean = up.mean(axis=0)
    angle = float(np.degrees(np.arccos(mean[2] / max(np.linalg.norm(mean), 1e-9))))
    if angle > 180.0 - LEANS:
        yield view.refuse("sign", accel, (), f"{accel} has the wrong sign: at rest it must point up, and it points down.")
    elif angle > LEANS:
        text = f"{accel} is on average {angle:.0f} degrees from where {quat} has the vertical: one is in another frame."
        yield view.refuse("frame", accel, (), text)
