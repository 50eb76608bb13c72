"""Frames by kinematics alone: angular velocity is how attitude changes, velocity how position does, and gravity is all that is
felt in the long run.

No simulator is needed for that, so it also shows where a simulator that is corrected by the same signals would not notice.

    evidence = n · log(mismatch as it is / mismatch without the mistake)        n: comparisons that speak for themselves
               + evidence of a bias in what is felt besides gravity, less that without the mistake
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isthmus.diagnose.felt import felt
from isthmus.diagnose.wiring import REPEATED, Undone, mistakes
from isthmus.gap.suspect.kin import spatial
from isthmus.gap.tracks import Track
from isthmus.sim.robot import Robot
from isthmus.sim.sources import unrotate

SPAN = 4
"""Ticks over which a change is taken, an even number: more of them average noise out, and motion, too."""
MEAN = np.array([1.0, 4.0, 2.0, 4.0, 1.0]) / 12.0
"""Of a velocity over them (Simpson's rule)."""
CLEAR = 1.1
"""Mismatch over that without a mistake from which on it says something."""
LEAST = 3.0
"""Log evidence, from which on kinematics says that something is wrong."""


def turned(robot: Robot, found: Sequence[Track]) -> list[Undone]:
    """Vectors in the wrong frame or with the wrong sign, and attitudes in the wrong order, best first."""
    (as_it_is, n), odd = mismatch(robot, found), felt(robot, found).each.sum()
    out = []
    for mistake in mistakes(robot):
        if mistake.kind in ("frame", "order", "sign"):
            undone = [mistake.undo(track) for track in found]
            gain = float(np.log(as_it_is / mismatch(robot, undone)[0]).sum())
            evidence = float(odd - felt(robot, undone).each.sum()) + (gain * n / REPEATED if abs(gain) > np.log(CLEAR) else 0.0)
            if evidence > LEAST:
                out.append(Undone(mistake, evidence))
    return sorted(out, key=lambda u: -u.evidence)


def in_space(robot: Robot) -> list[tuple[str, str]]:
    """Names of the body's attitude and angular velocity, and of its position and velocity, where both are measured."""
    known = spatial(robot)
    return [(known[p], known[v]) for p, v in (("quat", "angvel"), ("pos", "linvel")) if p in known and v in known]


def mismatch(robot: Robot, found: Sequence[Track]) -> tuple[np.ndarray, int]:
    """(pairs,) root mean square of a velocity less the change of what it is the velocity of, and of how many ticks."""
    at, tick = robot.contract.slices(), 1.0 / robot.contract.rate
    pairs, quat = in_space(robot), spatial(robot).get("quat")
    sums, ticks = np.zeros(len(pairs)), 0
    for track in found:
        ticks += max(len(track) - SPAN, 0)
        for i, (place, speed) in enumerate(pairs):
            said, done = rates(track.measured[:, at[place]], track.measured[:, at[speed]], tick, place == quat)
            sums[i] += np.nansum((said - done) ** 2)
    return np.sqrt(sums / max(ticks, 1)) + 1e-12, ticks if pairs else 0


def rates(p: np.ndarray, v: np.ndarray, tick: float, attitude: bool) -> tuple[np.ndarray, np.ndarray]:
    """Over SPAN ticks, (T - SPAN, components) each: the mean of a velocity v, and how a position or an attitude p changes."""
    if len(p) <= SPAN:
        return np.zeros((0, v.shape[1])), np.zeros((0, v.shape[1]))
    said = np.stack([np.convolve(column, MEAN, mode="valid") for column in v.T], axis=1)
    a, middle, b = p[:-SPAN], p[SPAN // 2 : -SPAN // 2], p[SPAN:]
    return said, (turn(a, middle, b) if attitude else b - a) / (SPAN * tick)


def turn(a: np.ndarray, at: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(n, 3) small rotation from attitudes a to b, (n, 4) each, in the frame of those in the middle."""
    vector = a[:, :1] * b[:, 1:] - b[:, :1] * a[:, 1:] - np.cross(b[:, 1:], a[:, 1:])
    scalar = (a * b).sum(1, keepdims=True)
    world = 2.0 * np.sign(scalar) * vector
    return unrotate(at, world)
