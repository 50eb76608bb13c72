"""The starts that suit each of many worlds, found side by side.

What a recording says of the numbers z must not hang on starts that suit one world better than another. For every z the
starts are moved to where they fit best, by a few Gauss-Newton steps,

    ξ ← ξ - H⁻¹ g,   g = Σ dr/dξ · w r + hold · ξ,   H = Σ dr/dξ · w · dr/dξ + hold

with dr/dξ taken once, near the z in question. Every segment keeps the best of what it tried, so one more step never makes
a world look worse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isthmus.real2sim.residual.normal_equations import pseudo_huber_loss, robust_weights
from isthmus.real2sim.residual.residual import ParameterResidual

BACKTRACK_FACTOR = 0.3
"""A step that made a segment worse is tried again at this share of its length."""


@dataclass(frozen=True)
class Starts:
    """k worlds, each from the starts that suit it best."""

    xi: np.ndarray
    """(k, S, 2 nv)"""
    cost: np.ndarray
    """(k, S) of the data and the hold on the starts."""
    r: np.ndarray
    """(k, S, n) residuals there."""


def solve_starts(residual: ParameterResidual, e: np.ndarray, xi: np.ndarray, dr_dxi: np.ndarray, steps: int) -> Starts:
    """Worlds e, (k, all), with starts that begin at ξ, (k, S, 2 nv), after `steps` steps with dr/dξ, (S, n, 2 nv)."""
    k, S = xi.shape[:2]
    best = _simulated_starts(residual, e, xi)
    length = np.ones((k, S))
    for _ in range(steps):
        new = _simulated_starts(
            residual, e, best.xi + length[..., None] * _gauss_newton_step(best, dr_dxi, residual.start_weight)
        )
        length = np.where(new.cost < best.cost, 1.0, BACKTRACK_FACTOR * length)
        best = _better_starts(new, best)
    return best


def costs_with_best_starts(
    residual: ParameterResidual, e: np.ndarray, xi: np.ndarray, reference: np.ndarray, derivative_step: float, steps: int
) -> np.ndarray:
    """(k,) of worlds e, (k, all), from starts that begin at ξ, (S, 2 nv), with dr/dξ taken over ±h in a world `near` them.

    Of a residual in which no number varies. Where there are no starts to find, nothing is moved.
    """
    starts = np.broadcast_to(xi, (len(e), *xi.shape))
    if not xi.size:
        return _simulated_starts(residual, e, starts).cost.sum(1)
    return solve_starts(
        residual, e, starts, residual.start_jacobian(reference, xi, np.full(xi.shape, derivative_step)), steps
    ).cost.sum(1)


def linear_step(starts: Starts, dr_dxi: np.ndarray, start_weight: np.ndarray) -> Starts:
    """One more step that is not simulated but taken as linear, where it promises to gain."""
    step = _gauss_newton_step(starts, dr_dxi, start_weight)
    return _better_starts(
        _evaluate_starts(starts.r + np.einsum("snx,ksx->ksn", dr_dxi, step, optimize=True), starts.xi + step, start_weight),
        starts,
    )


def _simulated_starts(residual: ParameterResidual, e: np.ndarray, xi: np.ndarray) -> Starts:
    return _evaluate_starts(residual(e, xi).reshape(*xi.shape[:2], -1), xi, residual.start_weight)


def _evaluate_starts(r: np.ndarray, xi: np.ndarray, start_weight: np.ndarray) -> Starts:
    return Starts(xi, pseudo_huber_loss(r).sum(-1) + 0.5 * (start_weight * xi**2).sum(-1), r)


def _better_starts(a: Starts, b: Starts) -> Starts:
    """Of each segment the better one."""
    which = a.cost < b.cost
    pick = which[..., None]
    return Starts(np.where(pick, a.xi, b.xi), np.where(which, a.cost, b.cost), np.where(pick, a.r, b.r))


def _gauss_newton_step(starts: Starts, dr_dxi: np.ndarray, start_weight: np.ndarray) -> np.ndarray:
    """The Gauss-Newton step of every start, (k, S, 2 nv)."""
    w = robust_weights(starts.r)
    g = np.einsum("snx,ksn->ksx", dr_dxi, w * starts.r, optimize=True) + start_weight * starts.xi
    H = np.einsum("snx,ksn,sny->ksxy", dr_dxi, w, dr_dxi, optimize=True) + np.diag(start_weight)
    return -np.linalg.solve(H, g[..., None])[..., 0]
