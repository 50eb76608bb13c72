"""The numbers that explain recordings best, the ends of the belief soft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.diagnose.explain import held
from isthmus.gap.horizon import horizon
from isthmus.gap.noise import floor
from isthmus.gap.residual import Components, Residual, skipped
from isthmus.gap.segments import Segments, cut
from isthmus.gap.tracks import Track
from isthmus.identify.descend import Normal, Point
from isthmus.identify.fit import free, remaining, settled
from isthmus.identify.narrow import WIDTHS, narrow
from isthmus.identify.prior import FARTHEST, Prior, prior
from isthmus.progress import Report, counted, part, silent
from isthmus.sim.robot import Robot
from isthmus.world import Belief

TICKS = 20
"""Longest prediction: short ones hang on everything nearly in proportion, and there is enough to see."""
PIECES, FOLLOWED_PIECES = 32, 8
"""Of the recordings, spread over them."""
SEARCHES = ((10, 0.1), (15, 0.03))
"""Steps of a search, and log-likelihood per number that is worth another one; the second where the first leaves more than
noise."""
QUICK = (1.0, 0.36)
"""Widths of the derivatives of a robot that is followed, where a mistake is undone."""
LOST, SHORT = 2.0, 6
"""Times the noise: a search that leaves more than this may have lost its way; and ticks of pieces in which it would not."""
AMISS = 1.2
"""Times the noise: where numbers leave more than this, there is something to explain."""


@dataclass(frozen=True)
class Fitted:
    """Numbers that were found, and where."""

    residual: Residual
    prior: Prior
    point: Point
    normal: Normal
    floor: np.ndarray
    left: np.ndarray
    """(components,) what is left, as noise."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the numbers."""
        return self.residual.space.names

    @property
    def times(self) -> float:
        """Root mean square of what is left, in units of the signals' own noise."""
        return float(np.sqrt(np.nanmean((self.left / self.floor) ** 2)))

    def curvature(self, repeated: float) -> np.ndarray:
        """(d, d) of -log density, with what is left for noise."""
        return self.normal.matrix / (repeated * max(self.times, 1.0) ** 2) + self.prior.precision

    def forced(self, belief: Belief, repeated: float) -> float:
        """What it costs to hold the numbers inside the belief, by the curvature at the best ones."""
        return held(self.curvature(repeated), self.point.z, ends(belief, self.names))[1]

    @property
    def count(self) -> int:
        """Numbers that were compared."""
        return int(self.residual.seen.sum())

    @property
    def cost(self) -> float:
        """-log-likelihood of each of them, with the noise that is left over the floor: the unit of a signal does not count."""
        with np.errstate(invalid="ignore"):
            over = np.log(np.fmax(self.left / self.floor, 1.0))
        return float(np.nansum(self.residual.seen.sum((0, 1)) * over) / max(self.count, 1))


def fitted(
    robot: Robot,
    found: Sequence[Track],
    belief: Belief,
    threads: int = 0,
    ticks: int = 0,
    quick: bool = False,
    report: Report = silent,
) -> Fitted:
    """The best numbers for pieces of `ticks` ticks (0: as long as the noise of their starts allows).

    `quick` stops early: if a mistake is undone, what needs more is not right. A robot that is not followed may need `further`.
    """
    sigma, skip = floor(found, Components(robot.contract)), skipped(robot)
    pieces = FOLLOWED_PIECES if robot.feet else PIECES
    if not ticks:
        ticks = horizon(found, robot, sigma, belief.median(), threads)
        ticks = ticks if robot.feet else min(ticks, skip + TICKS)
    residual = Residual(robot, cut(found, robot, ticks, ticks - skip).spread(pieces), sigma, free(robot, belief), threads)
    before = prior(belief, residual.space)
    if residual.followed:
        widths = QUICK if quick else WIDTHS
        point, normal = narrow(residual, before, before.mean, belief.median(), widths, counted(report, len(widths) + 1))
        return Fitted(residual, before, point, normal, sigma, remaining(residual, normal, before))
    return _settled(residual, before, belief.median(), sigma, None, *SEARCHES[0], report)


def nearer(at: Fitted, found: Sequence[Track], belief: Belief, threads: int = 0, report: Report = silent) -> Fitted:
    """Searched for anew from the numbers that explain short pieces: far ahead, a search may lose its way."""
    robot = at.residual.robot
    short = fitted(robot, found, belief, threads, skipped(robot) + SHORT, report=part(report, 0.0, 0.2))
    e = short.residual.world(short.point.z, belief.median())
    again = _settled(at.residual, at.prior, e, at.floor, None, *SEARCHES[0], part(report, 0.2, 1.0))
    return min(at, again, key=lambda f: f.point.cost)


def further(at: Fitted, belief: Belief, report: Report = silent) -> Fitted:
    """The search gone on with, where it left more than noise."""
    e = at.residual.world(at.point.z, belief.median())
    more = _settled(at.residual, at.prior, e, at.floor, at.point.xi, *SEARCHES[1], report)
    return min(at, more, key=lambda f: f.point.cost)


def _settled(
    residual: Residual,
    before: Prior,
    e: np.ndarray,
    sigma: np.ndarray,
    xi: np.ndarray | None,
    most: int,
    close: float,
    report: Report,
) -> Fitted:
    point, normal, _ = settled(residual, before, e, 1, counted(report, most), most=most, close=close, xi=xi)
    return Fitted(residual, before, point, normal, sigma, remaining(residual, normal, before))


def moves(segments: Segments) -> np.ndarray:
    """(width,) how much each signal moves; of one that was never measured, not at all."""
    flat = segments.measured.reshape(-1, segments.measured.shape[-1])
    seen = np.isfinite(flat)
    mean = np.where(seen, flat, 0.0).sum(0) / np.maximum(seen.sum(0), 1)
    return np.sqrt((np.where(seen, flat - mean, 0.0) ** 2).sum(0) / np.maximum(seen.sum(0), 1))


def ends(belief: Belief, names: Sequence[str]) -> np.ndarray:
    """(d, 2) of what is believed of some numbers, in unconstrained coordinates."""
    space = belief.space.subset(names)
    low, high = np.array([belief.interval(name, 1.0) for name in names]).reshape(-1, 2).T
    sides = [np.clip(space.unconstrained(np.clip(side, space.low, space.high)), -FARTHEST, FARTHEST) for side in (low, high)]
    return np.stack([sides[0], np.maximum(sides[1], sides[0] + 1e-6)], axis=1)
