"""Recordings, explained by numbers alone: where every other explanation is compared from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from isthmus.diagnose.blocks import blocks
from isthmus.diagnose.doubts import Doubts, Lab
from isthmus.diagnose.explain import Block, Quadratic, Told, bounded, quadratic
from isthmus.diagnose.numbers import AMISS, LOST, Fitted, ends, fitted, further, moves, nearer
from isthmus.diagnose.refit import refitted
from isthmus.gap.loss import loss
from isthmus.gap.noise import NOISE_ONLY
from isthmus.gap.tracks import Track
from isthmus.identify.descend import EDGES, Normal, repeated
from isthmus.identify.narrow import SHARES
from isthmus.progress import Report, part, silent
from isthmus.sim.robot import Robot
from isthmus.world import Belief

HELD = (0.36, 0.22)
"""Widths of the derivatives with which numbers are held inside the belief, of a robot that is followed."""


@dataclass(frozen=True)
class Base:
    fitted: Fitted
    lab: Lab
    xi: np.ndarray
    """(S, 2 nv) starts of the segments, in units of what is left."""
    quadratic: Quadratic
    repeated: float
    """How many times ticks say the same, and feet that touch earlier or later say it wrongly."""
    laws: Fitted | None
    """Numbers and all laws of missing forces together, where numbers alone leave more than noise."""


def base(
    robot: Robot,
    found: Sequence[Track],
    belief: Belief,
    threads: int = 0,
    search: bool = True,
    report: Report = silent,
) -> Base:
    """The best numbers, the belief's ends soft, and the quadratic around them that all questions are put to.

    `search` also for laws, and for better numbers, where they leave more than noise.
    """
    at = fitted(robot, found, belief, threads, report=part(report, 0.0, 0.2))
    if search and at.times > LOST and not at.residual.followed:
        at = nearer(at, found, belief, threads, part(report, 0.2, 0.6))
    residual, before, inside, laws = at.residual, at.prior, ends(belief, at.names), None
    doubts = Doubts(robot, at.names, moves(residual.segments))
    lab = Lab(doubts, residual, belief.median())
    asked = blocks(doubts, before, inside, residual.segments)
    if search and at.times > AMISS and not residual.followed:
        physics = [b for b in asked if b.cause == "physics"]
        laws = refitted(at, lab, physics, part(report, 0.6, 0.75)) if physics else None
        if laws is None or laws.times > NOISE_ONLY:
            at = further(at, belief, part(report, 0.75, 0.95))
    often = EDGES * repeated(residual, at.normal, before) if residual.followed else 1.0
    # What is left is the noise from here on: where there is more of it than the sensors make, it is no evidence.
    before_unit, xi = residual.spread, at.point.xi
    unit = residual.rescale(np.fmax(at.left, at.floor))
    xi = xi * before_unit / unit if xi.size else xi
    return Base(at, lab, xi, quadratic(lab, before, at.point.z, xi, inside, asked, often), often, laws)


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
