"""Robust normal equations of a linearised residual, with the start of every segment eliminated.

    minimise   Σ ρ(r + Jz δ + Jx η) + ½ Σ start_weight · (ξ + η)²

ρ is the pseudo-Huber loss. Every segment has its own start ξ, so the normal equations have the shape of an arrow: the starts
are eliminated segment by segment (Schur complement), and what is left is a small system in z alone. Its matrix is the Fisher
information about z with nothing assumed about the starts but that the guesses are not absurd.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from isthmus.real2sim.residual.prior import GaussianPrior

HUBER_SIGMAS = 3.0
"""Residuals beyond this many σ count by their size instead of its square."""
START_DAMPINGS = (0.0, 0.03, 1.0, 30.0)
"""Dampings of the step of a start, tried side by side."""
MAX_Z_STEP = 3.0
"""Largest step of any coordinate of z."""
EDGE_DERIVATIVE_RATIO = 2.0
"""A derivative that is so many times as long beside the fitted start as at it belongs to an edge, such as a joint that sticks
or slips: a few segments with derivatives a thousand times too long would drown what all others say."""


def robust_weights(r: np.ndarray) -> np.ndarray:
    """Weight of each residual in the normal equations: 1 where small, falling as HUBER_SIGMAS / |r|."""
    return 1.0 / np.sqrt(1.0 + (r / HUBER_SIGMAS) ** 2)


def pseudo_huber_loss(r: np.ndarray) -> np.ndarray:
    """ρ(r): r²/2 where small, HUBER_SIGMAS · |r| where large."""
    return HUBER_SIGMAS**2 * (np.sqrt(1.0 + (r / HUBER_SIGMAS) ** 2) - 1.0)


@dataclass(frozen=True)
class DerivativeSteps:
    """Finite-difference steps, in unconstrained coordinates and in units of start_scale."""

    first: float
    """Of the first derivative; later ones are as long as it takes to show, within limits:"""
    shortest: float
    longest: float
    one_sided_share: float
    """Share of these steps in a derivative to one side, which sees curvature, too."""


@dataclass(frozen=True)
class Linearization:
    """r and its derivatives at one point: r(z + δ, ξ + η) ≈ r + Jz δ + Jx η."""

    r: np.ndarray
    """(S, ticks, components); 0 where nothing was measured."""
    dr_dz: np.ndarray
    """(S, ticks, components, d) by the unconstrained coordinates of the chosen parameters."""
    dr_dxi: np.ndarray
    """(S, ticks, components, x) by the start of the segment, in units of start_scale."""
    steps: DerivativeSteps
    """Those of the estimator."""

    def take(self, which: np.ndarray | slice) -> Linearization:
        """Of some segments."""
        return replace(self, r=self.r[which], dr_dz=self.dr_dz[which], dr_dxi=self.dr_dxi[which])


@dataclass(frozen=True)
class Point:
    z: np.ndarray
    """(d,) unconstrained coordinates."""
    xi: np.ndarray
    """(S, 2 nv) moves of the starts, in units of their spread."""
    cost: float


class NormalEquations:
    """The normal equations at a point."""

    def __init__(self, linearization: Linearization, start_weight: np.ndarray):
        S = len(linearization.r)
        self.linearization = linearization
        self.r, w = linearization.r.reshape(S, -1), robust_weights(linearization.r).reshape(S, -1)
        self._w = w
        self.dr_dz, self.dr_dxi = (J.reshape(S, self.r.shape[1], -1) for J in (linearization.dr_dz, linearization.dr_dxi))
        self.weighted_dr_dz, self._weighted_dr_dxi = w[..., None] * self.dr_dz, w[..., None] * self.dr_dxi
        """(S, n, d) and (S, n, 2 nv): derivatives times the weights of the residuals."""
        self._zz = np.einsum("sni,snj->ij", self.weighted_dr_dz, self.dr_dz, optimize=True)
        self._xz = self._weighted_dr_dxi.transpose(0, 2, 1) @ self.dr_dz
        self._xx = self.dr_dxi.transpose(0, 2, 1) @ self._weighted_dr_dxi + np.diag(start_weight)
        self._start_weight = start_weight
        self.matrix, self._xi_by_z = self._eliminate_starts(self._xx)
        """(d, d) information about z from the data alone."""

    def _eliminate_starts(self, xx: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        through = np.linalg.solve(xx, self._xz)
        matrix = self._zz - np.einsum("sij,sik->jk", self._xz, through, optimize=True)
        return 0.5 * (matrix + matrix.T), through

    def derivative_steps(self, prior: GaussianPrior) -> tuple[np.ndarray, np.ndarray]:
        """How far each number and each start, by itself, may go before it shows, (d,) and (S, 2 nv)."""
        alone = np.diag(self._zz) + np.diag(prior.precision), np.einsum("sii->si", self._xx)
        limits = self.linearization.steps
        z, xi = (np.clip(1.0 / np.sqrt(a), limits.shortest, limits.longest) for a in alone)
        return z, xi

    def step(self, r: np.ndarray, xi: np.ndarray, prior: GaussianPrior, prior_gradient: np.ndarray, damping: float) -> tuple:
        """The step of z and ξ against residuals r, (S, n), and starts ξ, with the slope of the prior, (d,)."""
        xx = self._xx + damping * _diagonals(self._xx)
        matrix, through = self._eliminate_starts(xx) if damping else (self.matrix, self._xi_by_z)
        gx, gz = self._gradients(r, xi, through)
        gz = gz + prior_gradient
        A = matrix + prior.precision
        dz = -np.linalg.solve(A + damping * np.diag(np.diag(A)), gz)
        dz = dz * min(1.0, MAX_Z_STEP / max(float(np.abs(dz).max(initial=0.0)), 1e-12))
        return dz, -np.linalg.solve(xx, gx[..., None])[..., 0] - through @ dz

    def _gradients(self, r: np.ndarray, xi: np.ndarray, xi_by_z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gx = (self._weighted_dr_dxi * r[..., None]).sum(1) + self._start_weight * xi
        return gx, (self.weighted_dr_dz * r[..., None]).sum((0, 1)) - np.einsum("sij,si->j", xi_by_z, gx, optimize=True)

    def gradient(self, xi: np.ndarray) -> np.ndarray:
        """Of the cost by z, (d,), the starts going along."""
        return self._gradients(self.r, xi, self._xi_by_z)[1]

    def start_steps(self, xi: np.ndarray, dz: np.ndarray) -> np.ndarray:
        """Steps of ξ that go with a step of z, one for each degree of caution, (cautions, S, 2 nv)."""
        gx = (self._weighted_dr_dxi * self.r[..., None]).sum(1) + self._start_weight * xi
        wanted = gx + self._xz @ dz
        diagonal = _diagonals(self._xx)
        cautions = START_DAMPINGS if xi.shape[1] else START_DAMPINGS[:1]
        return np.stack([-np.linalg.solve(self._xx + c * diagonal, wanted[..., None])[..., 0] for c in cautions])

    def draw_start_error(self, rng: np.random.Generator) -> np.ndarray:
        """A draw of the error that noise leaves in the starts, (S, 2 nv)."""
        root = np.linalg.cholesky(np.linalg.inv(self._xx))
        return (root @ rng.standard_normal((*root.shape[:2], 1)))[..., 0]

    def information_product(self, a: Linearization, b: Linearization, filter_edges: bool = True) -> np.ndarray:
        """Information about z, (d, d), as the product of derivatives that were taken at two points near this one.

        `filter_edges` leaves out segments whose derivatives are far longer there than here.
        """
        left, right = (
            self._without_start_part(x.dr_dz.reshape(self.dr_dz.shape), x.dr_dxi.reshape(self.dr_dxi.shape)) for x in (a, b)
        )
        if filter_edges:
            plain = self._away_from_edges(left) & self._away_from_edges(right)
            left, right = left * plain, right * plain
        both = np.einsum("sn,sni,snj->ij", self._w, left, right, optimize=True)
        return 0.5 * (both + both.T)

    def _away_from_edges(self, derivatives: np.ndarray) -> np.ndarray:
        """(S, 1, d), where derivatives near this point, (S, n, d), are at most AT_EDGE times as long as those at it."""
        size = lambda x: np.sqrt(np.einsum("sn,sni->si", self._w, x**2, optimize=True))  # noqa: E731
        return (size(derivatives) <= EDGE_DERIVATIVE_RATIO * size(self._without_start_part(self.dr_dz, self.dr_dxi)))[:, None]

    def _without_start_part(self, dz: np.ndarray, dx: np.ndarray) -> np.ndarray:
        """What z does to r that the starts cannot undo, (S, n, d)."""
        return dz - dx @ np.linalg.solve(self._xx, (self._weighted_dr_dxi.transpose(0, 2, 1) @ dz))

    def secant_update(self, r: np.ndarray, dz: np.ndarray, dx: np.ndarray) -> NormalEquations:
        """At the end of a step, where the residuals are r, (S, n): derivatives that agree with it, and else change least."""
        d, step = len(dz), np.concatenate([np.broadcast_to(dz, (len(dx), len(dz))), dx], axis=1)
        slopes = np.concatenate([self.dr_dz, self.dr_dxi], axis=2)
        along = step * (slopes**2).sum(1)
        along /= np.maximum((along * step).sum(1, keepdims=True), 1e-300)
        slopes += (r - self.r - self.predicted_change(dz, dx))[..., None] * along[:, None]
        old = self.linearization
        by = slopes.reshape(*old.r.shape, -1)
        return NormalEquations(
            replace(old, r=r.reshape(old.r.shape), dr_dz=by[..., :d], dr_dxi=by[..., d:]), self._start_weight
        )

    def start_response(self, dz: np.ndarray) -> np.ndarray:
        """How the starts go along with a step of z, (S, 2 nv)."""
        return -self._xi_by_z @ dz

    def predicted_change(self, dz: np.ndarray, dx: np.ndarray) -> np.ndarray:
        """Change of r that a step promises, (S, n)."""
        return self.dr_dz @ dz + (self.dr_dxi @ dx[..., None])[..., 0]

    def predicted_gain(self, xi: np.ndarray, dz: np.ndarray, dx: np.ndarray) -> float:
        """Gain of log-likelihood that a step promises, the prior's part left out."""
        change = self.predicted_change(dz, dx)
        return -float((self._w * change * (self.r + 0.5 * change)).sum() + (self._start_weight * dx * (xi + 0.5 * dx)).sum())

    def leverage(self, prior_precision: np.ndarray) -> np.ndarray:
        """Share of each residual, (S, n), that the fit could have bent to its noise."""
        inside = np.einsum(
            "sni,sin->sn", self._weighted_dr_dxi, np.linalg.solve(self._xx, self.dr_dxi.transpose(0, 2, 1)), optimize=True
        )
        left = self.dr_dz - self.dr_dxi @ self._xi_by_z
        weighted = self.weighted_dr_dz - self._weighted_dr_dxi @ self._xi_by_z
        return inside + np.einsum("sni,ij,snj->sn", weighted, np.linalg.inv(self.matrix + prior_precision), left, optimize=True)


def _diagonals(blocks: np.ndarray) -> np.ndarray:
    return blocks * np.eye(blocks.shape[-1])
