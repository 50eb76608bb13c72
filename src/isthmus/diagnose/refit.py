"""A search for numbers and explanations together.

Where something is missing it has bent the numbers, and a quadratic around them says little of what they would be without. So
both are searched for from the middle of the belief, as the numbers were.

    z = [ numbers | amounts / spread ]        amounts of unit spread are searched for as numbers are
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from isthmus.diagnose.doubts import Lab
from isthmus.diagnose.explain import Block
from isthmus.diagnose.numbers import SEARCHES, Fitted
from isthmus.gap.residual import Residual
from isthmus.identify.descend import descend
from isthmus.identify.fit import remaining
from isthmus.identify.prior import Prior
from isthmus.progress import Report, counted, silent


class Explained(Residual):
    """A residual of numbers and amounts of a block, or of several that were joined, in units of the noise σ.

    Engines are shared with the one without.
    """

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

    def __call__(self, e: np.ndarray, xi: np.ndarray, shake: np.ndarray | None = None) -> np.ndarray:
        return self._lab(e, xi)


def refitted(at: Fitted, lab: Lab, blocks: Sequence[Block], report: Report = silent) -> Fitted:
    """Numbers and, behind them, amounts of some blocks, in their order, searched for as numbers alone were."""
    before, block, d = at.prior, _joined(blocks), len(at.names)
    both = Prior(before.space, np.concatenate([before.mean, np.zeros(len(block.spread))]), np.eye(d + len(block.spread)))
    both.precision[:d, :d] = before.precision
    residual = Explained(lab, block, at.floor)
    steps, close = SEARCHES[0]
    point, normal = descend(residual, both, both.mean, lab.e, None, steps, counted(report, steps), close)
    return Fitted(residual, both, point, normal, at.floor, remaining(residual, normal, both))


def _joined(blocks: Sequence[Block]) -> Block:
    along, spread = (np.concatenate([getattr(b, what) for b in blocks]) for what in ("along", "spread"))
    return replace(blocks[0], along=along, spread=spread)
