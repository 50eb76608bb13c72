"""Damped Gauss-Newton over the unknown numbers and the unknown starts of all segments together.

    minimise   Σ ρ(r(z, ξ)) + ½ Σ hold · ξ² + prior(z)

Every segment has its own start ξ, so the normal equations have the shape of an arrow: the starts are eliminated segment
by segment, and what is left is a small system in z alone. Its matrix is the Fisher information about z with nothing
assumed about the starts but that the guesses are not absurd.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from isthmus.gap.residual import Linear, Residual
from isthmus.identify.prior import Prior

SOFT = 3.0
"""Residuals beyond this many σ count by their size instead of its square."""
DAMPINGS = np.array([0.0, 1e-1, 1.0, 1e1])
"""Tried side by side in every step, times the present damping."""
BEND = 0.1
"""Share of a step at which its curvature is probed."""
TRUST = 0.75
"""Bent steps whose bend is larger than this share of the step are not taken."""
LONGEST = 3.0
"""Step of any coordinate."""
CLOSE = 1e-2
"""Done when a step gains less than this much log-likelihood per parameter."""


@dataclass(frozen=True)
class Point:
    z: np.ndarray
    """(d,) unconstrained coordinates."""
    xi: np.ndarray
    """(S, 2 nv) moves of the starts, in units of their spread."""
    cost: float


class Normal:
    """The normal equations at a point, starts eliminated segment by segment."""

    def __init__(self, found: Linear, hold: np.ndarray):
        S = len(found.r)
        self.r, w = found.r.reshape(S, -1), weights(found.r).reshape(S, -1)
        self.dz, self.dx = (J.reshape(S, self.r.shape[1], -1) for J in (found.dz, found.dx))
        self._wz, self._wx = w[..., None] * self.dz, w[..., None] * self.dx
        self._xx = self.dx.transpose(0, 2, 1) @ self._wx + np.diag(hold)
        self._hold = hold
        self._xz = self._wx.transpose(0, 2, 1) @ self.dz
        self._through = np.linalg.solve(self._xx, self._xz)
        matrix = np.einsum("sni,snj->ij", self._wz, self.dz, optimize=True)
        matrix = matrix - np.einsum("sij,sik->jk", self._xz, self._through, optimize=True)
        self.matrix = 0.5 * (matrix + matrix.T)
        """(d, d) information about z from the data alone."""

    def pull(self, r: np.ndarray, xi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slope of the cost at residuals r, (S, n), and starts ξ: by z with the starts eliminated, (d,), and by ξ itself."""
        gx = (self._wx * r[..., None]).sum(1) + self._hold * xi
        gz = (self._wz * r[..., None]).sum((0, 1))
        return gz - np.einsum("sij,si->j", self._through, gx, optimize=True), gx

    def starts(self, dz: np.ndarray, gx: np.ndarray) -> np.ndarray:
        """Where the starts go when z goes by dz, (S, 2 nv)."""
        return -np.linalg.solve(self._xx, gx[..., None])[..., 0] - self._through @ dz

    def leverage(self, prior: np.ndarray) -> np.ndarray:
        """Share of each residual, (S, n), that the fit could have bent to its noise."""
        inside = np.einsum("sni,sin->sn", self._wx, np.linalg.solve(self._xx, self.dx.transpose(0, 2, 1)), optimize=True)
        left = self.dz - self.dx @ self._through
        weighted = self._wz - self._wx @ self._through
        return inside + np.einsum("sni,ij,snj->sn", weighted, np.linalg.inv(self.matrix + prior), left, optimize=True)

    def ahead(self, dz: np.ndarray, dx: np.ndarray) -> np.ndarray:
        """Change of r that a step promises, (S, n)."""
        return self.dz @ dz + (self.dx @ dx[..., None])[..., 0]


def weights(r: np.ndarray) -> np.ndarray:
    """Of each residual in the normal equations: 1 where small, falling as SOFT / |r|."""
    return 1.0 / np.sqrt(1.0 + (r / SOFT) ** 2)


def loss(r: np.ndarray) -> np.ndarray:
    """ρ(r): r²/2 where small, SOFT · |r| where large."""
    return SOFT**2 * (np.sqrt(1.0 + (r / SOFT) ** 2) - 1.0)


def cost(residual: Residual, prior: Prior, z: np.ndarray, xi: np.ndarray, e: np.ndarray) -> np.ndarray:
    """Of k points side by side, (k,)."""
    r = residual(residual.world(z, e), xi)
    return loss(r).sum((1, 2, 3)) + 0.5 * (residual.hold * xi**2).sum((1, 2)) + prior.cost(z)


def descend(
    residual: Residual,
    prior: Prior,
    z: np.ndarray,
    e: np.ndarray,
    xi: np.ndarray | None = None,
    steps: int = 40,
    report: Callable[[int, float], None] = lambda step, cost: None,
) -> tuple[Point, Normal]:
    """The nearest minimum from z, (d,), and the normal equations there; `e` gives the parameters that do not vary."""
    xi = np.zeros((len(residual.segments), len(residual.spread))) if xi is None else xi
    at = Point(z, xi, float(cost(residual, prior, z[None], xi[None], e)[0]))
    found, damping = Normal(residual.linear(at.z, e, at.xi), residual.hold), 1e-2
    for step in range(steps):
        moves, starts = _steps(residual, prior, found, at, e, damping * DAMPINGS)
        costs = cost(residual, prior, at.z + moves, at.xi + starts, e)
        best = int(np.argmin(costs))
        gain = at.cost - costs[best]
        if gain <= 0:
            if damping > 1e4:
                break
            damping = max(damping, 1e-3) * 100
            continue
        at = Point(at.z + moves[best], at.xi + starts[best], float(costs[best]))
        report(step, at.cost)
        damping *= (0.1, 0.1, 1.0, 10.0)[best % len(DAMPINGS)]
        found = Normal(residual.linear(at.z, e, at.xi), residual.hold)
        if gain < CLOSE * max(len(z), 1):
            break
    return at, found


def _steps(
    residual: Residual, prior: Prior, found: Normal, at: Point, e: np.ndarray, dampings: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Steps of z and ξ for each damping: the straight ones, and those bent along the valley where that is trustworthy.

    Numbers that only show together make a valley that is curved: the second derivative along a step bends it
    (Transtrum and Sethna's geodesic acceleration).
    """
    pull, gx = found.pull(found.r, at.xi)
    A = found.matrix + prior.precision
    damped = [A + lam * np.diag(np.diag(A)) for lam in dampings]
    moves = np.stack([-np.linalg.solve(M, pull + prior.slope(at.z)) for M in damped])
    moves *= np.minimum(1.0, LONGEST / np.maximum(np.abs(moves).max(axis=1, keepdims=True, initial=0.0), 1e-12))
    starts = np.stack([found.starts(dz, gx) for dz in moves])
    probe = residual(residual.world(at.z + BEND * moves, e), at.xi + BEND * starts).reshape(len(moves), *found.r.shape)
    bent_moves, bent_starts = moves.copy(), starts.copy()
    for i, M in enumerate(damped):
        curvature = 2.0 / BEND * ((probe[i] - found.r) / BEND - found.ahead(moves[i], starts[i]))
        pull, gx = found.pull(curvature, np.zeros_like(at.xi))
        dz = -np.linalg.solve(M, pull)
        if 2.0 * np.linalg.norm(dz) <= TRUST * np.linalg.norm(moves[i]):
            bent_moves[i] += 0.5 * dz
            bent_starts[i] += 0.5 * found.starts(dz, gx)
    return np.concatenate([moves, bent_moves]), np.concatenate([starts, bent_starts])
