"""A descent over a landscape of many small valleys: derivatives as wide as what is believed, narrowed step by step.

Feet that touch earlier or later make edges, and a derivative over a short step sees the nearest edge alone. Over a step as long
as a number may well be off, edges average out. So the first derivative is taken over the spread of the prior and each one after
it over a part of that, around the best point so far.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isthmus.real2sim.residual.gauss_newton import NormalEquations, Point, segment_costs
from isthmus.real2sim.residual.prior import GaussianPrior
from isthmus.real2sim.residual.residual import ParameterResidual

DERIVATIVE_WIDTHS = (1.0, 0.6, 0.36, 0.22, 0.13)
"""Steps of the derivatives, in spreads of the prior."""
STEP_SHARES = np.array([0.3, 0.6, 1.0])
"""Of a Gauss-Newton step, tried side by side."""


def coarse_to_fine(
    residual: ParameterResidual,
    prior: GaussianPrior,
    z: np.ndarray,
    e: np.ndarray,
    widths: tuple[float, ...] = DERIVATIVE_WIDTHS,
    report: Callable[[int, float], None] = lambda step, cost: None,
) -> tuple[Point, NormalEquations]:
    """From z, (d,), down, and the normal equations there; `e` gives the numbers that do not vary."""
    xi = np.zeros((len(residual.segments), len(residual.start_scale)))
    at = Point(z, xi, float(segment_costs(residual, z[None], xi[None], e).sum() + prior.cost(z)))
    for step, width in enumerate(widths):
        found = _linearize(residual, prior, at, e, width)
        dz, dx = found.step(found.r, at.xi, prior, prior.gradient(at.z), 0.0)
        tried = at.z + STEP_SHARES[:, None] * dz
        starts = at.xi + STEP_SHARES[:, None, None] * dx
        cost = segment_costs(residual, tried, starts, e).sum(1) + prior.cost(tried)
        best = int(cost.argmin())
        if cost[best] < at.cost:
            at = Point(tried[best], starts[best], float(cost[best]))
            report(step, at.cost)
    return at, _linearize(residual, prior, at, e, widths[-1])


def _linearize(residual: ParameterResidual, prior: GaussianPrior, point: Point, e: np.ndarray, width: float) -> NormalEquations:
    hz, hx = width * prior.std, np.full(point.xi.shape, width)
    return NormalEquations(residual.linearize(point.z, e, point.xi, hz, hx, central=True), residual.start_weight)
