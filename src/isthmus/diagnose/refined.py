"""What explanations are worth that were searched for together with the numbers.

The best one of the sensors by the quadratic, and all laws of missing forces at once, of which the one that would be missed most
is named.

    alone       with numbers inside the belief
    together    with numbers anywhere, less the odds against two causes at once; only where such numbers leave something,
                and it is worth more than those odds
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from isthmus.diagnose.base import Base
from isthmus.diagnose.blocks import drifts
from isthmus.diagnose.explain import MATERIAL, Block, Told, held
from isthmus.diagnose.numbers import AMISS, ends
from isthmus.diagnose.refit import refitted
from isthmus.progress import Report, part, silent
from isthmus.world import Belief

REFITTED = ("sensor", "physics")
"""Causes whose explanations are; a number outside is in the numbers already."""
WORTH = 15.0
"""Log evidence of one, around numbers that were found without, above which it is worth a search."""
WORSE = 1.0
"""Log evidence that an explanation lacks at least, if another of its cause was chosen."""
TOGETHER = 30.0
"""Log odds against a number outside and something else at once."""


def refined(
    at: Base, belief: Belief, told: Sequence[tuple[Block | None, Told]], report: Report = silent
) -> tuple[list[tuple[Block | None, Told]], float]:
    """What was told, that of sensors and laws found anew where there is something to explain; and the least that they leave.

    Of a robot that is not followed: around one that is, every explanation was tried already.
    """
    (_, nothing), *others = told
    worth = max((one.evidence - nothing.evidence for b, one in others if b is not None and b.cause in REFITTED), default=0.0)
    if at.fitted.times <= AMISS and worth <= WORTH:
        return list(told), at.fitted.times
    parts = [part(report, i / len(REFITTED), (i + 1) / len(REFITTED)) for i in range(len(REFITTED))]
    found = [f for cause, own in zip(REFITTED, parts, strict=True) if (f := _found(at, belief, told, cause, own)) is not None]
    alone = max([one.evidence - nothing.evidence for _, one in others] + [f.alone for f in found])
    out = list(told)
    for f in found:
        block, one = told[f.which]
        assert block is not None
        evidence = f.together if f.together > alone else f.alone
        # Others of its cause, which were not searched for, are not better than the one that was chosen among them.
        for i, (other, its) in enumerate(told):
            if other is not None and other.cause == block.cause:
                out[i] = other, replace(its, gain=min(its.gain, nothing.evidence + evidence + its.freedom - WORSE))
        out[f.which] = block, replace(one, gain=nothing.evidence + evidence + one.freedom, z=f.z, c=f.c)
    return out, min([at.fitted.times, *(f.left for f in found)])


@dataclass(frozen=True)
class _Found:
    which: int
    """Of what was told."""
    z: np.ndarray
    c: np.ndarray
    alone: float
    """Log evidence over that of numbers inside the belief."""
    together: float
    left: float


def _found(at: Base, belief: Belief, told: Sequence[tuple[Block | None, Told]], cause: str, report: Report) -> _Found | None:
    mine = [(i, block, one) for i, (block, one) in enumerate(told) if block is not None and block.cause == cause]
    if not mine:
        return None
    nothing, d = told[0][1], len(at.fitted.names)
    if cause == "sensor":
        mine = [max(mine, key=lambda m: m[2].evidence)]
        if mine[0][2].evidence <= nothing.evidence:
            return None
    again = at.laws if cause == "physics" else None
    again = again or refitted(at.fitted, at.lab, [block for _, block, _ in mine], report)
    z, A = again.point.z, again.curvature(at.repeated)
    missed = _missing(z, A)
    edges = np.cumsum([d, *(len(block.spread) for _, block, _ in mine)])
    parts = [np.arange(a, b) for a, b in pairwise(edges.tolist())]
    able = [k for k, (_, block, _) in enumerate(mine) if block.least < 0.0 or z[parts[k]].max() > 0.0]
    if not able:
        return None
    k = max(able, key=lambda k: missed(parts[k]))
    (which, block, one), part = mine[k], parts[k]
    for i, (other, steady) in enumerate(told):
        if other is not None and drifts(block, other):
            # A drift that does not change is a bias.
            waves = np.flatnonzero(np.ptp(block.along, axis=1).any(axis=1))
            if missed(part[waves]) < one.freedom - steady.freedom:
                which, block, one, part = i, other, steady, np.delete(part, waves)
    # All others are none: numbers and amounts move to where they would be then.
    kept, dropped = np.concatenate([np.arange(d), part]), np.setdiff1d(np.arange(d, len(z)), part)
    H = A[np.ix_(kept, kept)]
    own = z[kept] + np.linalg.solve(H, A[np.ix_(kept, dropped)] @ z[dropped])
    limits = np.full((len(kept), 2), [-np.inf, np.inf])
    limits[d:] = np.stack([block.least / block.spread, block.most / block.spread], axis=1)
    anywhere, cost_anywhere = held(H, own, limits)
    limits[:d] = ends(belief, at.fitted.names)
    inside, cost_inside = held(H, own, limits)
    if np.abs(inside[d:]).max() < MATERIAL:
        return None
    gain = (at.fitted.cost - again.cost) * at.fitted.count - missed(dropped) - (one.freedom - nothing.freedom)
    alone, more = at.quadratic.soft + gain - cost_inside, gain - cost_anywhere
    if at.fitted.times <= AMISS:
        # Around numbers that leave little, both are estimates of one thing, and either may have stopped short of it.
        alone = max(alone, one.evidence - nothing.evidence)
    together = at.quadratic.soft + more - TOGETHER if at.fitted.times > AMISS and more > TOGETHER else -np.inf
    point = anywhere if together > alone else inside
    return _Found(which, point[:d], point[d:] * block.spread, alone, together, again.times)


def _missing(z: np.ndarray, A: np.ndarray) -> Callable[[np.ndarray], float]:
    """How much log-likelihood is lost without some amounts of z, by their places; A is the curvature there."""
    spread = np.linalg.inv(A)
    return lambda at: 0.5 * float(z[at] @ np.linalg.solve(spread[np.ix_(at, at)], z[at])) if len(at) else 0.0
