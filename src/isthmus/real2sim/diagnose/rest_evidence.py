"""Mistakes by what a robot at rest shows. A robot that the guard stops at once tells no more than that.

noise      σ of the quietest moments over the largest that was believed: close to the factor of a unit that it may have come in
gravity    what an accelerometer measures at rest, over the weight of its mass
posture    joints that stand where another one should, or the opposite of where they should: robots start in their default pose
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from isthmus.core.units import conversion_factor
from isthmus.data.episode import Episode
from isthmus.real2sim.diagnose.sensor_noise import OTHER_UNIT_RATIO, quiet_noise
from isthmus.real2sim.diagnose.wiring_evidence import OTHER_UNITS
from isthmus.real2sim.prepare.kinematics import body_signals
from isthmus.real2sim.residual.prior import noise_parameters
from isthmus.sim.robot import Robot
from isthmus.world import Belief

UNIT_RATIO_TOLERANCE = 3.0
"""A ratio of noises is that of two units if it is off by no larger factor: nobody knows noise better."""
GRAVITY_TOLERANCE = 0.15
"""The same share of gravity, which everybody knows."""
CERTAIN_EVIDENCE = 40.0
"""Evidence of a unit or a place that fits where the believed one does not."""
FIRST_TICKS = 10
"""Ticks in which a robot is still where it started."""
MIN_POSTURE_ERROR, MAX_REMAPPED_ERROR_SHARE = 0.4, 0.5
"""rad that a joint must be off, and by which share less without a mistake."""


def unit_mistakes(robot: Robot, episodes: Sequence[Episode], belief: Belief) -> Iterator[tuple[str, float]]:
    """Mistakes of units, as a sentence without its end, and their evidence."""
    for name, signal in noise_parameters(robot.space).items():
        unit = robot.contract[signal].unit
        sigma = quiet_noise([e.signals[signal] for e in episodes if signal in e.signals])
        low, high = belief.interval(name, 1.0)
        sizes = {other: 1.0 / conversion_factor(other, unit, signal) for other in OTHER_UNITS.get(unit, ())}
        fits = [
            other
            for other, times in sizes.items()
            if times * low / UNIT_RATIO_TOLERANCE < sigma < times * high * UNIT_RATIO_TOLERANCE
        ]
        if sigma > OTHER_UNIT_RATIO * high and fits:
            middle = np.sqrt(max(low, 0.1 * high) * high)
            best = min(fits, key=lambda other: abs(np.log(sigma / (sizes[other] * middle))))
            yield f"{signal} is in {best} instead of {unit}", CERTAIN_EVIDENCE
    accel = body_signals(robot).get("accel")
    if accel is None or "g" not in OTHER_UNITS.get(robot.contract[accel].unit, ()):
        return
    measured = np.concatenate([np.zeros((0, 3)), *(e.signals[accel] for e in episodes if accel in e.signals)])
    measured = measured[np.isfinite(measured).all(axis=1)]
    if len(measured) and abs(float(np.median(np.linalg.norm(measured, axis=1))) - 1.0) < GRAVITY_TOLERANCE:
        yield f"{accel} is in g instead of {robot.contract[accel].unit}", CERTAIN_EVIDENCE


def posture_mistakes(robot: Robot, episodes: Sequence[Episode]) -> Iterator[tuple[str, float]]:
    """The exchanged or flipped joints that explain best where they stood at first, if any do."""
    labels, should = robot.contract.target.labels, np.array(robot.default)
    if not robot.contract.has_joint_targets or not episodes:
        return
    starts = [
        e.signals["joint_pos"][:FIRST_TICKS, [e.contract["joint_pos"].component_index(x) for x in labels]] for e in episodes
    ]
    seen = np.concatenate(starts)
    seen = seen[np.isfinite(seen).all(axis=1)]
    if not len(seen):
        return
    q = np.median(seen, axis=0)
    off = np.abs(q - should)
    found = [(off[i], abs(q[i] + should[i]), f"{a} turns the other way") for i, a in enumerate(labels)]
    found += [
        (off[i] + off[j], abs(q[i] - should[j]) + abs(q[j] - should[i]), f"{labels[i]} and {labels[j]} are swapped")
        for i, j in combinations(range(len(labels)), 2)
    ]
    good = [
        (now - then, text) for now, then, text in found if now > MIN_POSTURE_ERROR and then < MAX_REMAPPED_ERROR_SHARE * now
    ]
    if good:
        yield max(good)[1], CERTAIN_EVIDENCE
