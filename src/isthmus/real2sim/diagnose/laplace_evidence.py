"""How well recordings are explained by numbers of the belief alone, and by those and one thing more.

    cost(δ) = ½ |r + M δ|²       r: what the best numbers leave; M: its derivative by the numbers, and by amounts of `Block`s: a
                                 number beyond the belief, a bias, a drift, a force
    evidence of a block          how much lower the cost gets with it, numbers inside the belief, less what its freedom costs

One derivative of everything at once answers every question. The numbers that it is taken at are those of `identify`, with
soft ends; for an evidence they are held inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import lsq_linear

from isthmus.real2sim.diagnose.extended_parameters import ExtendedResidual
from isthmus.real2sim.residual.normal_equations import robust_weights
from isthmus.real2sim.residual.prior import GaussianPrior

DERIVATIVE_STEP, OBSERVER_DERIVATIVE_STEP = 1e-3, 0.15
"""Of a derivative, in unconstrained coordinates, or in units of a doubt's spread; the latter of a robot that is followed, whose
feet make edges."""
START_DERIVATIVE_STEP = 1e-3
"""Of the start of a segment, in units of its spread."""
MIN_AMOUNT = 0.15
"""Of its spread: an amount that is smaller than this is no cause of anything, however well it shows."""


@dataclass(frozen=True)
class Hypothesis:
    """Something that may be wrong, with amounts c of its own."""

    cause: str
    name: str
    """Which number, signal or law, and what of it."""
    along: np.ndarray = field(repr=False)
    """(b, S, D) change of θ in each segment, per amount."""
    spread: np.ndarray
    """(b,) how large the amounts may well be."""
    low: float = -np.inf
    """Of an amount: friction never pushes."""
    high: float = np.inf


@dataclass(frozen=True)
class LaplaceResult:
    """What was found of one block, or of none."""

    gain: float
    """Of log-likelihood, up to a constant that all share, and what its freedom costs."""
    complexity_cost: float
    z: np.ndarray
    """(d,) numbers."""
    amounts: np.ndarray
    """(b,) amounts."""

    @property
    def evidence(self) -> float:
        """Log, up to a constant that all share."""
        return self.gain - self.complexity_cost


@dataclass(frozen=True)
class LaplaceModel:
    """½ δᵀ G δ + gᵀ δ + constant; δ are changes of the numbers, then amounts of nuisances and blocks, side by side."""

    prior: GaussianPrior
    z: np.ndarray
    """(d,) numbers where it was taken."""
    belief_bounds: np.ndarray
    """(d, 2) of the belief, in unconstrained coordinates."""
    hypotheses: tuple[Hypothesis, ...]
    G: np.ndarray
    g: np.ndarray
    nuisance_count: int
    """Amounts that are free with unit spread whatever is asked: what the simulator's own step does."""

    def columns(self, hypothesis: Hypothesis) -> np.ndarray:
        first = (
            len(self.z) + self.nuisance_count + sum(len(b.spread) for b in self.hypotheses[: self.hypotheses.index(hypothesis)])
        )
        return np.arange(first, first + len(hypothesis.spread))

    @property
    def outside_gain(self) -> float:
        """Log-likelihood that numbers beyond the belief are worth."""
        return self.explain(allow_outside=True).gain - self.explain().gain

    def explain(self, hypothesis: Hypothesis | None = None, allow_outside: bool = False) -> LaplaceResult:
        """With amounts of one block, or of none; `soft` lets all numbers go beyond the belief, as `identify` does."""
        d, spread = len(self.z), np.zeros(0) if hypothesis is None else hypothesis.spread
        which = np.arange(d + self.nuisance_count)
        which = which if hypothesis is None else np.concatenate([which, self.columns(hypothesis)])
        free = np.concatenate([np.ones(self.nuisance_count), spread])
        P = np.zeros((len(which), len(which)))
        P[:d, :d], P[d:, d:] = self.prior.precision, np.diag(free**-2.0)
        H = self.G[np.ix_(which, which)] + P
        slope = self.g[which] + np.concatenate([self.prior.gradient(self.z), np.zeros(len(free))])
        ends = np.full((len(which), 2), [-np.inf, np.inf])
        if not allow_outside:
            ends[:d] = self.belief_bounds - self.z[:, None]
        if hypothesis is not None:
            ends[d + self.nuisance_count :] = hypothesis.low, hypothesis.high
        step = bounded_minimum(H, slope, ends)
        c = step[d + self.nuisance_count :]
        share = float(np.abs(c / spread).max(initial=0.0))
        if 0.0 < share < MIN_AMOUNT:
            c = c * MIN_AMOUNT / share
            ends[d + self.nuisance_count :] = np.stack([c - 1e-9 * spread, c + 1e-9 * spread], axis=1)
            step = bounded_minimum(H, slope, ends)
        gain = -float(step @ (0.5 * H @ step + slope))
        freedom = 0.5 * float(np.linalg.slogdet(H)[1] - np.linalg.slogdet(P)[1])
        return LaplaceResult(gain, freedom, self.z + step[:d], c)


def bounded_minimum(H: np.ndarray, gradient: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The step δ, (n,), with the least ½ δᵀ H δ + slopeᵀ δ between its ends, (n, 2)."""
    root = np.linalg.cholesky(H)
    return lsq_linear(root.T, -np.linalg.solve(root, gradient), tuple(bounds.T), method="bvls").x


def constrained_minimum(H: np.ndarray, z: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, float]:
    """The best point between ends, (n, 2), by the curvature H at the best of all, z, and what it costs to be there."""
    step = bounded_minimum(H, np.zeros(len(z)), bounds - z[:, None])
    return z + step, 0.5 * float(step @ H @ step)


def laplace_model(
    extended: ExtendedResidual,
    prior: GaussianPrior,
    z: np.ndarray,
    xi: np.ndarray,
    belief_bounds: np.ndarray,
    hypotheses: Sequence[Hypothesis],
    tick_redundancy: float,
) -> LaplaceModel:
    """Around numbers z, (d,), and starts ξ; `repeated` is how often ticks say the same."""
    doubts, d, residual = extended.parameters, len(z), extended.residual
    along = np.concatenate([b.along for b in hypotheses])
    columns = np.union1d(np.arange(d), np.flatnonzero(np.abs(along).sum((0, 1))))
    step = DERIVATIVE_STEP if residual.estimator.smooth else OBSERVER_DERIVATIVE_STEP
    h = np.where(columns < d, step, step * doubts.std[columns])
    S, nx = xi.shape
    here = np.zeros((1, S, len(doubts)))
    here[..., :d] = z
    thetas = np.tile(here, (1 + len(columns) + nx, 1, 1))
    thetas[1 + np.arange(len(columns)), :, columns] += h[:, None]
    xis = np.tile(xi, (len(thetas), 1, 1))
    xis[1 + len(columns) :] += START_DERIVATIVE_STEP * np.eye(nx)[:, None]
    r = extended(thetas, xis).reshape(len(thetas), S, -1)
    finer = extended.error_with_finer_steps(here, xi[None])[0].reshape(S, -1)
    J = np.moveaxis((r[1 : 1 + len(columns)] - r[0]) / h[:, None, None], 0, -1)
    X = np.moveaxis((r[1 + len(columns) :] - r[0]) / START_DERIVATIVE_STEP, 0, -1)
    r = r[0]
    root = np.sqrt(robust_weights(r) / tick_redundancy)[..., None]
    whole = np.empty((*r.shape, d + 1 + len(along)))
    whole[..., :d], whole[..., d] = J[..., :d], finer - r
    for s in range(S):
        whole[s, :, d + 1 :] = J[s] @ along[:, s][:, columns].T
    left, M, X = root[..., 0] * r, root * whole, root * X
    weighted = M
    if nx:
        inverse = np.linalg.inv(X.transpose(0, 2, 1) @ X + np.diag(residual.start_weight + 1e-12))
        left = (
            left - (X @ (inverse @ (X.transpose(0, 2, 1) @ left[..., None] + (residual.start_weight * xi)[..., None])))[..., 0]
        )
        M = M - X @ (inverse @ (X.transpose(0, 2, 1) @ M))
    # Starts are not quite free, so what is left of them is no projection: one side of each product keeps them.
    flat = weighted.reshape(-1, weighted.shape[-1]).T
    G, g = flat @ M.reshape(-1, M.shape[-1]), flat @ left.ravel()
    # For the same reason, and for rounding, it may bend the wrong way a little.
    values, vectors = np.linalg.eigh(0.5 * (G + G.T))
    return LaplaceModel(prior, z, belief_bounds, tuple(hypotheses), (vectors * np.maximum(values, 0.0)) @ vectors.T, g, 1)
