"""What an accelerometer feels is gravity and, in the long run, nothing else: nobody gets faster forever.

d = mean of what was felt - gravity where the attitude has it        in the body's frame, one stretch after the other
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.data.units import GRAVITY
from isthmus.diagnose.doubts import SENSOR_ERROR
from isthmus.diagnose.wander import FEWEST, STRETCH, WALKS, likely, offset
from isthmus.gap.suspect.kin import spatial
from isthmus.gap.tracks import Track
from isthmus.sim.robot import Robot
from isthmus.sim.sources import unrotate

SHOCKS = 0.13
"""Of how much it varies, that a mean may well be off: there are few samples of feet that hit the ground."""
FAR = 4.0
"""Times the usual distance from the median: further off is a change of speed."""
SIZE = SENSOR_ERROR["m/s²"]


@dataclass(frozen=True)
class Felt:
    parts: tuple[np.ndarray, ...]
    """d of each track that is long enough, (n, 3)."""
    varies: np.ndarray
    """(3,) standard deviation from sample to sample."""
    seconds: float
    """Of a stretch."""

    @property
    def usual(self) -> float:
        """Log-likelihood if nothing is wrong."""
        shocks = SHOCKS * self.varies
        return float(sum(likely(d, shocks, WALKS * shocks, self.seconds).sum() for d in self.parts))

    @property
    def unusual(self) -> float:
        """Log evidence of a bias or a drift."""
        each = [offset(d, SIZE, SHOCKS * self.varies, self.seconds, WALKS) for d in self.parts]
        return float(np.maximum(np.sum(each, axis=0), 0.0).sum() - np.log(3.0)) if each else 0.0


def felt(robot: Robot, found: Sequence[Track]) -> Felt:
    """Nothing, where there is no accelerometer or attitude."""
    known, at = spatial(robot), robot.contract.slices()
    parts, varies = [], np.ones(3)
    if "accel" in known and "quat" in known:
        each = [_less_gravity(*(t.measured[:, at[known[name]]] for name in ("accel", "quat"))) for t in found]
        stretches = [d[: len(d) // STRETCH * STRETCH].reshape(-1, STRETCH, 3).mean(1) for d in each]
        parts = [_calmer(kept) for d in stretches if len(kept := d[np.isfinite(d).all(1)]) >= FEWEST]
        if parts:
            varies = np.nanstd(np.concatenate(each), axis=0)
    return Felt(tuple(parts), varies, STRETCH / robot.contract.rate)


def _calmer(d: np.ndarray) -> np.ndarray:
    """Without the moments in which a robot does get faster or slower: what stands out is cut."""
    middle = np.median(d, axis=0)
    most = FAR * np.median(np.abs(d - middle), axis=0)
    return np.clip(d, middle - most, middle + most)


def _less_gravity(accel: np.ndarray, quat: np.ndarray) -> np.ndarray:
    return accel - unrotate(quat, np.tile([0.0, 0.0, float(GRAVITY)], (len(quat), 1)))
