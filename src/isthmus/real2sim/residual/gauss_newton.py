"""Damped Gauss-Newton over the unknown numbers and the unknown starts of all segments together.

    minimise   Σ ρ(r(z, ξ)) + ½ Σ hold · ξ² + prior(z)

Every segment has its own start ξ, so the normal equations have the shape of an arrow: the starts are eliminated segment
by segment, and what is left is a small system in z alone. Its matrix is the Fisher information about z with nothing
assumed about the starts but that the guesses are not absurd.

For any z, segments do not depend on each other: each takes the step of its own start that suits it best.

A derivative is most of the work of a step. So while steps keep what they promise, the last one is mended by what they found
(Broyden's secant), segment by segment, and taken anew only when a step disappoints or the minimum seems to be reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from isthmus.real2sim.residual.normal_equations import (
    NormalEquations,
    Point,
    pseudo_huber_loss,
)
from isthmus.real2sim.residual.prior import GaussianPrior

if TYPE_CHECKING:
    from isthmus.real2sim.residual.residual import ParameterResidual

DAMPING_FACTORS = np.array([0.0, 1e-1, 1.0, 1e1])
"""Tried side by side in every step, times the present damping."""
MIN_GAIN_RATIO = 0.5
"""A plain step that gains at least this share of what it promises is taken; only otherwise are others tried."""
FIRST_DERIVATIVE_STEP = 0.03
"""Step of a first derivative by starts, in units of start_scale, where worlds are only compared."""
CURVATURE_PROBE_SHARE = 0.1
"""Share of a step at which its curvature is probed."""
MAX_ACCELERATION_RATIO = 0.75
"""Bent steps whose bend is larger than this share of the step are not taken."""
MIN_GAIN_PER_PARAMETER, SECANT_GAIN_SHARE = 1e-2, 0.3
"""Done when a step gains less than this much log-likelihood per parameter. Steps by mended derivatives cost next to nothing:
they go on until they gain less than this share of that, and then the derivatives are taken anew."""
MAX_DAMPING = 1e6
"""Damping at which no step is worth trying."""
DERIVATIVE_WIDTHS = (1.0, 0.6, 0.36, 0.22, 0.13)
"""Steps of the derivatives, in spreads of the prior."""
STEP_SHARES = np.array([0.3, 0.6, 1.0])
"""Of a Gauss-Newton step, tried side by side."""


def segment_costs(residual: ParameterResidual, z: np.ndarray, xi: np.ndarray, e: np.ndarray) -> np.ndarray:
    """Of k points side by side, z (k, d) and ξ (k, S, 2 nv), by segment and without the prior, (k, S)."""
    return _segment_costs_of(residual, residual(residual.parameter_values(z, e), xi), xi)


def _segment_costs_of(residual: ParameterResidual, r: np.ndarray, xi: np.ndarray) -> np.ndarray:
    return pseudo_huber_loss(r).sum((2, 3)) + 0.5 * (residual.start_weight * xi**2).sum(2)


def gauss_newton(
    residual: ParameterResidual,
    prior: GaussianPrior,
    z: np.ndarray,
    e: np.ndarray,
    xi: np.ndarray | None = None,
    steps: int = 40,
    report: Callable[[int, float], None] = lambda step, cost: None,
    min_gain: float = MIN_GAIN_PER_PARAMETER,
) -> tuple[Point, NormalEquations]:
    """The nearest minimum from z, (d,), and the normal equations there; `e` gives the parameters that do not vary.

    Done when a step gains less than `close` per parameter.
    """
    xi = np.zeros((len(residual.segments), len(residual.start_scale))) if xi is None else xi
    at = Point(z, xi, float(segment_costs(residual, z[None], xi[None], e).sum() + prior.cost(z)))
    first, one_sided_share = residual.estimator.steps.first, residual.estimator.steps.one_sided_share
    scales = np.full(len(z), first), np.full(xi.shape, first)

    def derived(both_ways: bool) -> NormalEquations:
        hz, hx = (h if both_ways else one_sided_share * h for h in scales)
        return NormalEquations(residual.linearize(at.z, e, at.xi, hz, hx, central=both_ways), residual.start_weight)

    found, damping = derived(False), 1e-2
    fresh, exact = True, False
    for step in range(steps if at.z.size or at.xi.size else 0):
        new, which, mended = at, 0, None
        if (plain := _undamped_step(residual, prior, at, e, found)) is not None:
            new, mended = plain
        elif fresh:
            new, which = _best_step(
                residual, prior, at, e, found, *_candidate_steps(residual, prior, found, at, e, damping * DAMPING_FACTORS)
            )
        gain = at.cost - new.cost
        if gain <= 0 and fresh:
            if damping > MAX_DAMPING:
                break
            damping = max(100.0 * damping, 1e-3)
            continue
        if gain > 0:
            damping *= (0.1, 0.1, 1.0, 10.0)[which % len(DAMPING_FACTORS)]
            at = new
            report(step, at.cost)
        little = gain < (1.0 if fresh else SECANT_GAIN_SHARE) * min_gain * max(len(z), 1)
        done = little and exact
        scales = found.derivative_steps(prior)
        if mended is not None and not little:
            found, fresh, exact = mended, False, False
        else:
            # A mended step fails close to the minimum, where the derivative to both sides is needed anyway.
            found, fresh, exact = derived(little), True, little
        if done:
            break
    return at, found if exact else derived(True)


def _undamped_step(
    residual: ParameterResidual,
    prior: GaussianPrior,
    point: Point,
    e: np.ndarray,
    normal: NormalEquations,
    min_gain_ratio: float = MIN_GAIN_RATIO,
) -> tuple[Point, NormalEquations] | None:
    """The undamped step, if it keeps so much of what it promises, and what it says of the normal equations at its end."""
    dz, dx = normal.step(normal.r, point.xi, prior, prior.gradient(point.z), 0.0)
    z, xi = point.z + dz, point.xi + dx
    promised = normal.predicted_gain(point.xi, dz, dx) + float(prior.cost(point.z) - prior.cost(z))
    r = residual(residual.parameter_values(z[None], e), xi[None])
    cost = float(_segment_costs_of(residual, r, xi[None]).sum() + prior.cost(z))
    if not (promised > 0 and point.cost - cost > min_gain_ratio * promised):
        return None
    return Point(z, xi, cost), normal.secant_update(r.reshape(normal.r.shape), dz, dx)


def take_step(
    residual: ParameterResidual, prior: GaussianPrior, point: Point, e: np.ndarray, normal: NormalEquations
) -> tuple[Point, NormalEquations | None]:
    """One step, and the derivatives at its end where they could be mended: a plain one, or else the best of cautious ones."""
    if (plain := _undamped_step(residual, prior, point, e, normal, min_gain_ratio=0.0)) is not None:
        return plain
    moves = np.stack([normal.step(normal.r, point.xi, prior, prior.gradient(point.z), lam)[0] for lam in DAMPING_FACTORS])
    new, _ = _best_step(residual, prior, point, e, normal, moves, np.zeros((len(moves), *point.xi.shape)))
    return new if new.cost < point.cost else point, None


def _best_step(
    residual: ParameterResidual,
    prior: GaussianPrior,
    point: Point,
    e: np.ndarray,
    normal: NormalEquations,
    z_steps: np.ndarray,
    start_accelerations: np.ndarray,
) -> tuple[Point, int]:
    """Of the steps tried, k of them, the best one, each segment with the start that suits it best."""
    xi = point.xi + np.stack(
        [normal.start_steps(point.xi, dz) + bend for dz, bend in zip(z_steps, start_accelerations, strict=True)]
    )
    k, cautions = xi.shape[:2]
    z = np.repeat(point.z + z_steps, cautions, axis=0)
    each = segment_costs(residual, z, xi.reshape(k * cautions, *point.xi.shape), e).reshape(k, cautions, -1)
    total = each.min(axis=1).sum(axis=1) + prior.cost(point.z + z_steps)
    which = int(np.argmin(total))
    chosen = xi[which, each[which].argmin(axis=0), np.arange(len(point.xi))]
    return replace(point, z=point.z + z_steps[which], xi=chosen, cost=float(total[which])), which


def _candidate_steps(
    residual: ParameterResidual,
    prior: GaussianPrior,
    normal: NormalEquations,
    point: Point,
    e: np.ndarray,
    dampings: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Steps of z for each damping: the straight ones, and those bent along the valley where that is trustworthy.

    Numbers that only show together make a valley that is curved: the second derivative along a step bends it
    (Transtrum and Sethna's geodesic acceleration). Returns the steps and by how much the starts bend with them.
    """
    straight = [normal.step(normal.r, point.xi, prior, prior.gradient(point.z), lam) for lam in dampings]
    moves, starts = (np.stack(parts) for parts in zip(*straight, strict=True))
    probe = residual(
        residual.parameter_values(point.z + CURVATURE_PROBE_SHARE * moves, e), point.xi + CURVATURE_PROBE_SHARE * starts
    ).reshape(len(moves), *normal.r.shape)
    bent, bends = moves.copy(), np.zeros_like(starts)
    for i, lam in enumerate(dampings):
        curvature = (
            2.0
            / CURVATURE_PROBE_SHARE
            * ((probe[i] - normal.r) / CURVATURE_PROBE_SHARE - normal.predicted_change(moves[i], starts[i]))
        )
        dz, dx = normal.step(curvature, np.zeros_like(point.xi), prior, np.zeros_like(point.z), lam)
        if 2.0 * np.linalg.norm(dz) <= MAX_ACCELERATION_RATIO * np.linalg.norm(moves[i]):
            bent[i] += 0.5 * dz
            # What bends with z itself is already in the steps of the starts.
            bends[i] = 0.5 * (dx - normal.start_response(dz))
    return np.concatenate([moves, bent]), np.concatenate([np.zeros_like(bends), bends])


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
