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

from isthmus.gap.loss import loss, weights
from isthmus.gap.residual import Residual

SHORTER = 0.3
"""A step that made a segment worse is tried again at this share of its length."""


@dataclass(frozen=True)
class Suited:
    """k worlds, each from the starts that suit it best."""

    xi: np.ndarray
    """(k, S, 2 nv)"""
    cost: np.ndarray
    """(k, S) of the data and the hold on the starts."""
    r: np.ndarray
    """(k, S, n) residuals there."""


def suited(residual: Residual, e: np.ndarray, xi: np.ndarray, dx: np.ndarray, steps: int) -> Suited:
    """Worlds e, (k, all), with starts that begin at ξ, (k, S, 2 nv), after `steps` steps with dr/dξ, (S, n, 2 nv)."""
    k, S = xi.shape[:2]
    best = _tried(residual, e, xi)
    length = np.ones((k, S))
    for _ in range(steps):
        new = _tried(residual, e, best.xi + length[..., None] * _step(best, dx, residual.hold))
        length = np.where(new.cost < best.cost, 1.0, SHORTER * length)
        best = _better(new, best)
    return best


def costs(residual: Residual, e: np.ndarray, xi: np.ndarray, near: np.ndarray, h: float, steps: int) -> np.ndarray:
    """(k,) of worlds e, (k, all), from starts that begin at ξ, (S, 2 nv), with dr/dξ taken over ±h in a world `near` them.

    Of a residual in which no number varies. Where there are no starts to find, nothing is moved.
    """
    starts = np.broadcast_to(xi, (len(e), *xi.shape))
    if not xi.size:
        return _tried(residual, e, starts).cost.sum(1)
    return suited(residual, e, starts, residual.by_starts(near, xi, np.full(xi.shape, h)), steps).cost.sum(1)


def finished(at: Suited, dx: np.ndarray, hold: np.ndarray) -> Suited:
    """One more step that is not simulated but taken as linear, where it promises to gain."""
    step = _step(at, dx, hold)
    return _better(_judged(at.r + np.einsum("snx,ksx->ksn", dx, step, optimize=True), at.xi + step, hold), at)


def _tried(residual: Residual, e: np.ndarray, xi: np.ndarray) -> Suited:
    return _judged(residual(e, xi).reshape(*xi.shape[:2], -1), xi, residual.hold)


def _judged(r: np.ndarray, xi: np.ndarray, hold: np.ndarray) -> Suited:
    return Suited(xi, loss(r).sum(-1) + 0.5 * (hold * xi**2).sum(-1), r)


def _better(a: Suited, b: Suited) -> Suited:
    """Of each segment the better one."""
    which = a.cost < b.cost
    pick = which[..., None]
    return Suited(np.where(pick, a.xi, b.xi), np.where(which, a.cost, b.cost), np.where(pick, a.r, b.r))


def _step(at: Suited, dx: np.ndarray, hold: np.ndarray) -> np.ndarray:
    """The Gauss-Newton step of every start, (k, S, 2 nv)."""
    w = weights(at.r)
    g = np.einsum("snx,ksn->ksx", dx, w * at.r, optimize=True) + hold * at.xi
    H = np.einsum("snx,ksn,sny->ksxy", dx, w, dx, optimize=True) + np.diag(hold)
    return -np.linalg.solve(H, g[..., None])[..., 0]
