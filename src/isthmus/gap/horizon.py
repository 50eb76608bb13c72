"""How far ahead the simulator can be asked to predict: until the noise of a start has grown too large.

A longer piece of recording tells more, because the effect of a wrong number builds up. But where the robot is unstable, or
a foot may or may not have touched, so does the error of its start, and the prediction says more about that error than
about the robot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isthmus.gap.observer import follows
from isthmus.gap.parabola import HALF
from isthmus.gap.residual import SCALE, Residual, skipped
from isthmus.gap.segments import cut
from isthmus.gap.tracks import Track
from isthmus.sim.robot import Robot

LONGEST, SHORTEST = 1.0, 0.1
"""s"""
FEWEST = 12
"""Segments that a recording is cut into at least, if it is long enough for SHORTEST ones."""
GROWTH = 10.0
"""A start's noise may grow to so many times the noise of the signals."""
SAMPLE = 16
"""Segments that are looked at."""


def horizon(found: Sequence[Track], robot: Robot, noise: np.ndarray, e: np.ndarray, threads: int = 0) -> int:
    """Ticks of a segment, those before the first comparison included."""
    rate = robot.contract.rate
    available = sum(max(len(t) - 2 * HALF, 0) for t in found)
    skip = skipped(robot)
    shortest = skip + max(2, round(SHORTEST * rate))
    longest = skip + round(LONGEST * rate)
    longest = max(min(longest, skip + available // FEWEST, max((len(t) for t in found), default=0) - HALF - 1), shortest)
    if follows(robot):
        return longest  # followed tick by tick
    segments = cut(found, robot, longest)
    which = np.unique(np.linspace(0, len(segments) - 1, SAMPLE).astype(int))
    probe = Residual(robot, segments.take(which), noise, (), threads)
    xi = np.zeros((len(which), len(probe.spread)))
    slopes = probe.linear(np.zeros(0), e, xi, np.zeros(0), np.full(xi.shape, 1.0 / SCALE)).dx / SCALE
    grown = np.sqrt((slopes**2).sum(-1).mean(-1))
    typical = np.median(grown, axis=0)
    too_far = np.flatnonzero(typical[skip:] > GROWTH)
    ticks = skip + int(too_far[0]) - 1 if len(too_far) else longest
    return int(np.clip(ticks, shortest, longest))
