"""What an accelerometer feels is gravity and, in the long run, nothing else: nobody gets faster forever.

    d = mean of what was felt - gravity where the attitude has it        in the body's frame, one stretch after the other

Who runs in circles does feel something else all the time: v ω, to the side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.data.units import GRAVITY
from isthmus.diagnose.doubts import SENSOR_ERROR
from isthmus.diagnose.wander import STRETCH, WALKS, offset, stretched
from isthmus.gap.suspect.kin import spatial
from isthmus.gap.tracks import Track
from isthmus.sim.robot import Robot
from isthmus.sim.sources import unrotate

SHOCKS = 0.13
"""Of how much it varies, that a mean may well be off: there are few samples of feet that hit the ground."""
LEAST = 0.12
"""m/s² that it may well be off in any case: an attitude that is wrong by 0.7 degrees."""
SPEED = 1.0
"""m/s that a robot may well have, or get to."""
FAR = 4.0
"""Times the usual distance from the median: further off is a change of speed."""
LONG = 5.0
"""s from which on there is something to tell."""
SIZE = SENSOR_ERROR["m/s²"]
Part = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Felt:
    parts: tuple[Part, ...]
    """Of each track that is long enough: d, (n, 3), and how fast it turned, (n, 3)."""
    varies: np.ndarray
    """(3,) standard deviation from sample to sample."""

    @property
    def each(self) -> np.ndarray:
        """(3,) log evidence of a bias or a drift in each direction; below zero where there is none."""
        found = [offset(d, SIZE, self.usual(len(d)), WALKS, _aside(turns)) for d, turns in self.parts]
        return np.sum(found, axis=0) if found else np.zeros(3)

    @property
    def unusual(self) -> float:
        """Log evidence of a bias or a drift."""
        return float(np.maximum(self.each, 0.0).sum() - np.log(3.0))

    def usual(self, stretches: int) -> np.ndarray:
        """(3,) of a bias, where nothing is wrong."""
        return np.sqrt((SHOCKS * self.varies) ** 2 + LEAST**2 + (SPEED / (STRETCH * stretches)) ** 2)


def felt(robot: Robot, found: Sequence[Track]) -> Felt:
    """Nothing, where there is no accelerometer or attitude."""
    known, at = spatial(robot), robot.contract.slices()
    parts, raw = [], []
    for track in found if "accel" in known and "quat" in known else ():
        quat = track.measured[:, at[known["quat"]]]
        gravity = unrotate(quat, np.tile([0.0, 0.0, float(GRAVITY)], (len(quat), 1)))
        each = track.measured[:, at[known["accel"]]] - gravity
        turns = track.measured[:, at[known["angvel"]]] if "angvel" in known else np.zeros_like(each)
        means = [stretched(x, robot.contract.rate) for x in (each, turns)]
        seen = np.isfinite(means).all((0, 2))
        if STRETCH * seen.sum() >= LONG:
            parts.append((_calmer(means[0][seen]), means[1][seen]))
            raw.append(each)
    return Felt(tuple(parts), np.nanstd(np.concatenate(raw), axis=0) if raw else np.ones(3))


def _calmer(d: np.ndarray) -> np.ndarray:
    """Without the moments in which a robot does get faster or slower: what stands out is cut."""
    middle = np.median(d, axis=0)
    most = FAR * np.median(np.abs(d - middle), axis=0)
    return np.clip(d, middle - most, middle + most)


def _aside(turns: np.ndarray) -> np.ndarray:
    """(n, 3) what is felt at the usual speed where a robot turns like that, about its vertical axis."""
    return SPEED * turns[:, 2:] * [1.0, 1.0, 0.0]
