"""Recordings, explained by numbers alone: where every other explanation is compared from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from isthmus.diagnose.blocks import blocks
from isthmus.diagnose.doubts import Doubts, Lab
from isthmus.diagnose.explain import Block, Quadratic, Told, bounded, quadratic
from isthmus.gap.horizon import horizon
from isthmus.gap.loss import loss
from isthmus.gap.noise import floor
from isthmus.gap.residual import Components, Residual, skipped
from isthmus.gap.segments import Segments, cut
from isthmus.gap.tracks import Track
from isthmus.identify.descend import EDGES, Normal, Point, repeated
from isthmus.identify.fit import free, remaining, settled
from isthmus.identify.narrow import SHARES, WIDTHS, narrow
from isthmus.identify.prior import FARTHEST, Prior, prior
from isthmus.sim.robot import Robot
from isthmus.world import Belief

TICKS = 20
"""Longest prediction: short ones hang on everything nearly in proportion, and there is enough to see."""
PIECES, FOLLOWED_PIECES = 32, 8
"""Of the recordings, spread over them."""
SEARCHES = ((10, 0.1), (15, 0.03))
"""Steps of the search for numbers, and log-likelihood per number that is worth another one; the second where the first leaves
more than noise."""
QUICK = (1.0, 0.36)
"""Widths of the derivatives of a robot that is followed, where a mistake is undone."""
HELD = (0.36, 0.22)
"""Widths of the derivatives with which numbers are held inside the belief, of a robot that is followed."""
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

    def forced(self, belief: Belief, repeated: float) -> float:
        """What it costs to hold the numbers inside the belief, by the curvature at the best ones."""
        A = self.normal.matrix / (repeated * max(self.times, 1.0) ** 2) + self.prior.precision
        inside = np.full((len(A), 2), [-np.inf, np.inf])
        inside[: len(self.names)] = ends(belief, self.names)
        step = bounded(A, np.zeros(len(A)), inside - self.point.z[:, None])
        return 0.5 * float(step @ A @ step)

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


@dataclass(frozen=True)
class Base:
    fitted: Fitted
    lab: Lab
    quadratic: Quadratic
    repeated: float
    """How many times ticks say the same, and feet that touch earlier or later say it wrongly."""


def base(robot: Robot, found: Sequence[Track], belief: Belief, threads: int = 0) -> Base:
    """The best numbers, the belief's ends soft, and the quadratic around them that all questions are put to."""
    at = fitted(robot, found, belief, threads)
    residual, before = at.residual, at.prior
    often = EDGES * repeated(residual, at.normal, before) if residual.followed else 1.0
    # What is left is the noise from here on: where there is more of it than the sensors make, it is no evidence.
    before_unit, xi = residual.spread, at.point.xi
    unit = residual.rescale(np.fmax(at.left, at.floor))
    xi = xi * before_unit / unit if xi.size else xi
    doubts = Doubts(robot, at.names, moves(residual.segments))
    lab = Lab(doubts, residual, belief.median())
    inside = ends(belief, at.names)
    asked = blocks(doubts, before, inside, residual.segments)
    return Base(at, lab, quadratic(lab, before, at.point.z, xi, inside, asked, often), often)


def explanations(at: Base) -> list[tuple[Block | None, Told]]:
    """What is told without any block, and with each of them.

    Around a robot that is followed, a quadratic holds only roughly. There every explanation is tried: the gain is that of the
    best of three points, the one that the quadratic says, the best numbers inside the belief, and the best ones anywhere, moved
    inside.
    """
    q = at.quadratic
    told = [(block, q.told(block)) for block in (None, *q.blocks)]
    if not at.fitted.residual.followed:
        return told
    inside, clipped = _inside(at), np.clip(q.z, *q.ends.T)
    tried: list[tuple[np.ndarray, np.ndarray]] = []
    for block, one in told:
        tried.append((one.z, one.c))
        for z in (inside, clipped):
            c = one.c
            if block is not None and block.cause == "outside":
                i = at.fitted.names.index(block.name)
                c = np.clip(q.z[[i]] - z[i], block.least, block.most)
            tried.append((z, c))
    k = len(tried) // len(told)
    costs = _tried(at, [block for block, _ in told for _ in range(k)], tried).reshape(-1, k)
    best = k * np.arange(len(told)) + costs.argmin(1)
    return [
        (block, replace(one, gain=-float(cost), z=tried[which][0], c=tried[which][1]))
        for (block, one), which, cost in zip(told, best, costs.min(1), strict=True)
    ]


def _inside(at: Base) -> np.ndarray:
    """(d,) the best numbers inside the belief, of a robot that is followed."""
    q, residual, e = at.quadratic, at.fitted.residual, at.lab.e
    z, xi = np.clip(q.z, *q.ends.T), np.zeros((len(residual.segments), 0))
    if np.abs(z - q.z).max(initial=0.0) < 1e-6:
        return z
    for width in HELD:
        found = Normal(residual.linear(z, e, xi, width * q.prior.spread, xi, both_ways=True), residual.hold)
        A = found.matrix / at.repeated + q.prior.precision
        slope = found.slope(xi) / at.repeated + q.prior.slope(z)
        step = bounded(A, slope, q.ends - z[:, None])
        points = [(z + share * step, np.zeros(0)) for share in (0.0, *SHARES)]
        z = points[int(_tried(at, [None] * len(points), points).argmin())][0]
    return z


def _tried(at: Base, blocks: Sequence[Block | None], points: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """-log density of points, each numbers and amounts of a block."""
    S, lab, prior = len(at.fitted.residual.segments), at.lab, at.fitted.prior
    thetas, own = np.zeros((len(points), S, len(lab.doubts))), np.zeros(len(points))
    for i, (block, (z, c)) in enumerate(zip(blocks, points, strict=True)):
        thetas[i, :, : len(z)] = z
        own[i] = prior.cost(z)
        if block is not None:
            thetas[i] += np.einsum("b,bsd->sd", c, block.along)
            own[i] += 0.5 * float(((c / block.spread) ** 2).sum())
    return loss(lab(thetas, np.zeros((len(points), S, 0)))).sum((1, 2, 3)) / at.repeated + own


def fitted(
    robot: Robot,
    found: Sequence[Track],
    belief: Belief,
    threads: int = 0,
    ticks: int = 0,
    quick: bool = False,
) -> Fitted:
    """The best numbers for pieces of `ticks` ticks (0: as long as the noise of their starts allows).

    `quick` stops early: if a mistake is undone, what needs more is not right.
    """
    sigma, skip = floor(found, Components(robot.contract)), skipped(robot)
    pieces = FOLLOWED_PIECES if robot.feet else PIECES
    if not ticks:
        ticks = horizon(found, robot, sigma, belief.median(), threads)
        ticks = ticks if robot.feet else min(ticks, skip + TICKS)
    residual = Residual(robot, cut(found, robot, ticks, ticks - skip).spread(pieces), sigma, free(robot, belief), threads)
    before = prior(belief, residual.space)
    if residual.followed:
        point, normal = narrow(residual, before, before.mean, belief.median(), QUICK if quick else WIDTHS)
        return Fitted(residual, before, point, normal, sigma, remaining(residual, normal, before))
    best = _settled(residual, before, belief.median(), sigma, None, *SEARCHES[0])
    if best.times > AMISS and not quick:
        e = residual.world(best.point.z, belief.median())
        more = _settled(residual, before, e, sigma, best.point.xi, *SEARCHES[1])
        best = min(best, more, key=lambda f: f.point.cost)
    return best


def _settled(
    residual: Residual, before: Prior, e: np.ndarray, sigma: np.ndarray, xi: np.ndarray | None, most: int, close: float
) -> Fitted:
    point, normal, _ = settled(residual, before, e, 1, most=most, close=close, xi=xi)
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
