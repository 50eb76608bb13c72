"""Numbers and one explanation, found together.

Where numbers leave more than noise, what is missing has bent them, and a quadratic around them says little of what they would
be without. So the best explanation of a cause is searched for from the middle of the belief, as the numbers were.

    z = [ numbers | amounts / spread ]        amounts of unit spread are searched for as numbers are
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from isthmus.diagnose.base import AMISS, SEARCHES, Base, Fitted
from isthmus.diagnose.doubts import Lab
from isthmus.diagnose.explain import Block, Told
from isthmus.gap.residual import Push, Residual
from isthmus.identify.descend import descend
from isthmus.identify.fit import remaining
from isthmus.identify.prior import Prior
from isthmus.world import Belief

REFITTED = ("sensor", "physics")
"""Causes whose best explanation is; a number outside is in the numbers already."""


class Explained(Residual):
    """A residual of numbers and amounts of a block, in units of the noise σ; engines are shared with the one without."""

    def __init__(self, lab: Lab, block: Block, noise: np.ndarray):
        self.__dict__ |= lab.residual.__dict__
        self.rescale(noise)
        without = copy(lab.residual)
        without.rescale(noise)
        self._lab, self._block = Lab(lab.doubts, without, lab.e), block

    def world(self, z: np.ndarray, e: np.ndarray) -> np.ndarray:
        """θ, (..., S, D), of coordinates z, (..., d + b)."""
        d, b = len(self._lab.doubts.names), self._block
        theta = np.einsum("...b,bsd->...sd", z[..., d:] * b.spread, b.along)
        theta[..., :d] += z[..., None, :d]
        return theta

    def __call__(
        self, e: np.ndarray, xi: np.ndarray, pushes: Sequence[Push] = (), shake: np.ndarray | None = None
    ) -> np.ndarray:
        return self._lab(e, xi)


def refitted(at: Base, block: Block) -> Fitted:
    before, b, d = at.fitted.prior, len(block.spread), len(at.fitted.names)
    both = Prior(before.space, np.concatenate([before.mean, np.zeros(b)]), np.eye(d + b))
    both.precision[:d, :d] = before.precision
    residual = Explained(at.lab, block, at.fitted.floor)
    steps, close = SEARCHES[0]
    point, normal = descend(residual, both, both.mean, at.lab.e, None, steps, close=close)
    return Fitted(residual, both, point, normal, at.fitted.floor, remaining(residual, normal, both))


def refined(
    at: Base, belief: Belief, told: Sequence[tuple[Block | None, Told]]
) -> tuple[list[tuple[Block | None, Told]], float]:
    """What was told, that of the best blocks found anew where there is something to explain; and the least that they leave."""
    out, left = list(told), at.fitted.times
    if at.fitted.residual.followed or at.fitted.times <= AMISS:
        return out, left
    nothing = next(one for block, one in told if block is None)
    for cause in REFITTED:
        mine = [i for i, (block, _) in enumerate(told) if block is not None and block.cause == cause]
        best = max(mine, key=lambda i: told[i][1].evidence, default=None)
        if best is None or told[best][1].evidence <= nothing.evidence:
            continue
        block, one = told[best]
        assert block is not None
        again, d = refitted(at, block), len(at.fitted.names)
        better = (at.fitted.cost - again.cost) * at.fitted.count
        better += at.quadratic.soft - again.forced(belief, at.repeated)
        z = again.point.z
        out[best] = block, replace(one, gain=nothing.evidence + better + one.freedom, z=z[:d], c=z[d:] * block.spread)
        left = min(left, again.times)
    return out, left
