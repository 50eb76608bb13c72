"""A descent over a landscape of many small valleys: derivatives as wide as what is believed, narrowed step by step.

Feet that touch earlier or later make edges, and a derivative over a short step sees the nearest edge alone. Over a step as long
as a number may well be off, edges average out. So the first derivative is taken over the spread of the prior and each one after
it over a part of that, around the best point so far.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isthmus.gap.residual import Residual
from isthmus.identify.descend import Normal, Point, costs
from isthmus.identify.prior import Prior

WIDTHS = (1.0, 0.6, 0.36, 0.22, 0.13)
"""Steps of the derivatives, in spreads of the prior."""
SHARES = np.array([0.3, 0.6, 1.0])
"""Of a Gauss-Newton step, tried side by side."""


def narrow(
    residual: Residual,
    prior: Prior,
    z: np.ndarray,
    e: np.ndarray,
    widths: tuple[float, ...] = WIDTHS,
    report: Callable[[int, float], None] = lambda step, cost: None,
) -> tuple[Point, Normal]:
    """From z, (d,), down, and the normal equations there; `e` gives the numbers that do not vary."""
    xi = np.zeros((len(residual.segments), len(residual.spread)))
    at = Point(z, xi, float(costs(residual, z[None], xi[None], e).sum() + prior.cost(z)))
    for step, width in enumerate(widths):
        found = _derived(residual, prior, at, e, width)
        dz, dx = found.step(found.r, at.xi, prior, prior.slope(at.z), 0.0)
        tried = at.z + SHARES[:, None] * dz
        starts = at.xi + SHARES[:, None, None] * dx
        cost = costs(residual, tried, starts, e).sum(1) + prior.cost(tried)
        best = int(cost.argmin())
        if cost[best] < at.cost:
            at = Point(tried[best], starts[best], float(cost[best]))
            report(step, at.cost)
    return at, _derived(residual, prior, at, e, widths[-1])


def _derived(residual: Residual, prior: Prior, at: Point, e: np.ndarray, width: float) -> Normal:
    hz, hx = width * prior.spread, np.full(at.xi.shape, width)
    return Normal(residual.linear(at.z, e, at.xi, hz, hx, both_ways=True), residual.hold)
