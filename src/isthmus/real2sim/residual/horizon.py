"""How far ahead the simulator can be asked to predict: until the noise of a start has grown too large.

A longer piece of recording tells more, because the effect of a wrong number builds up. But where the robot is unstable, or
a foot may or may not have touched, so does the error of its start, and the prediction says more about that error than
about the robot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isthmus.real2sim.prepare.savitzky_golay import SG_HALF_TICKS
from isthmus.real2sim.prepare.segments import cut
from isthmus.real2sim.prepare.tracks import Track
from isthmus.real2sim.residual.estimators import START_SCALE_SIGMAS, needs_observer, settle_ticks
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.sim.robot import Robot

MAX_HORIZON_SECONDS, MIN_HORIZON_SECONDS = 1.0, 0.1
"""s"""
MIN_SEGMENTS = 12
"""Segments that a recording is cut into at least, if it is long enough for SHORTEST ones."""
MAX_START_NOISE_GROWTH = 10.0
"""A start's noise may grow to so many times the noise of the signals."""
PROBED_SEGMENTS = 16
"""Segments that are looked at."""


def choose_horizon(tracks: Sequence[Track], robot: Robot, noise: np.ndarray, e: np.ndarray, threads: int = 0) -> int:
    """Ticks of a segment, those before the first comparison included."""
    rate = robot.contract.rate
    available = sum(max(len(t) - 2 * SG_HALF_TICKS, 0) for t in tracks)
    skip = settle_ticks(robot)
    shortest = skip + max(2, round(MIN_HORIZON_SECONDS * rate))
    longest = skip + round(MAX_HORIZON_SECONDS * rate)
    longest = max(
        min(longest, skip + available // MIN_SEGMENTS, max((len(t) for t in tracks), default=0) - SG_HALF_TICKS - 1), shortest
    )
    if needs_observer(robot):
        return longest  # the state is corrected after every tick
    segments = cut(tracks, robot, longest)
    which = np.unique(np.linspace(0, len(segments) - 1, PROBED_SEGMENTS).astype(int))
    probe = ParameterResidual(robot, segments.take(which), noise, (), threads)
    xi = np.zeros((len(which), len(probe.start_scale)))
    slopes = (
        probe.linearize(np.zeros(0), e, xi, np.zeros(0), np.full(xi.shape, 1.0 / START_SCALE_SIGMAS)).dr_dxi
        / START_SCALE_SIGMAS
    )
    grown = np.sqrt((slopes**2).sum(-1).mean(-1))
    typical = np.median(grown, axis=0)
    too_far = np.flatnonzero(typical[skip:] > MAX_START_NOISE_GROWTH)
    ticks = skip + int(too_far[0]) - 1 if len(too_far) else longest
    return int(np.clip(ticks, shortest, longest))
