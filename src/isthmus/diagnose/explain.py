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

from isthmus.diagnose.doubts import Lab
from isthmus.gap.loss import weights
from isthmus.identify.prior import Prior

STEP, FOLLOWED_STEP = 1e-3, 0.15
"""Of a derivative, in unconstrained coordinates, or in units of a doubt's spread; the latter of a robot that is followed, whose
feet make edges."""
START = 1e-3
"""Of the start of a segment, in units of its spread."""
MATERIAL = 0.15
"""Of its spread: an amount that is smaller than this is no cause of anything, however well it shows."""


@dataclass(frozen=True)
class Block:
    """Something that may be wrong, with amounts c of its own."""

    cause: str
    name: str
    """Which number, signal or law, and what of it."""
    along: np.ndarray = field(repr=False)
    """(b, S, D) change of θ in each segment, per amount."""
    spread: np.ndarray
    """(b,) how large the amounts may well be."""
    least: float = -np.inf
    """Of an amount: friction never pushes."""
    most: float = np.inf


@dataclass(frozen=True)
class Told:
    """What was found of one block, or of none."""

    gain: float
    """Of log-likelihood, up to a constant that all share, and what its freedom costs."""
    freedom: float
    z: np.ndarray
    """(d,) numbers."""
    c: np.ndarray
    """(b,) amounts."""

    @property
    def evidence(self) -> float:
        """Log, up to a constant that all share."""
        return self.gain - self.freedom


@dataclass(frozen=True)
class Quadratic:
    """½ δᵀ G δ + gᵀ δ + constant; δ are changes of the numbers, then amounts of nuisances and blocks, side by side."""

    prior: Prior
    z: np.ndarray
    """(d,) numbers where it was taken."""
    ends: np.ndarray
    """(d, 2) of the belief, in unconstrained coordinates."""
    blocks: tuple[Block, ...]
    G: np.ndarray
    g: np.ndarray
    nuisances: int
    """Amounts that are free with unit spread whatever is asked: what the simulator's own step does."""

    def columns(self, block: Block) -> np.ndarray:
        first = len(self.z) + self.nuisances + sum(len(b.spread) for b in self.blocks[: self.blocks.index(block)])
        return np.arange(first, first + len(block.spread))

    @property
    def soft(self) -> float:
        """Log-likelihood that numbers beyond the belief are worth."""
        return self.told(soft=True).gain - self.told().gain

    def told(self, block: Block | None = None, soft: bool = False) -> Told:
        """With amounts of one block, or of none; `soft` lets all numbers go beyond the belief, as `identify` does."""
        d, spread = len(self.z), np.zeros(0) if block is None else block.spread
        which = np.arange(d + self.nuisances)
        which = which if block is None else np.concatenate([which, self.columns(block)])
        free = np.concatenate([np.ones(self.nuisances), spread])
        P = np.zeros((len(which), len(which)))
        P[:d, :d], P[d:, d:] = self.prior.precision, np.diag(free**-2.0)
        H = self.G[np.ix_(which, which)] + P
        slope = self.g[which] + np.concatenate([self.prior.slope(self.z), np.zeros(len(free))])
        ends = np.full((len(which), 2), [-np.inf, np.inf])
        if not soft:
            ends[:d] = self.ends - self.z[:, None]
        if block is not None:
            ends[d + self.nuisances :] = block.least, block.most
        step = bounded(H, slope, ends)
        c = step[d + self.nuisances :]
        share = float(np.abs(c / spread).max(initial=0.0))
        if 0.0 < share < MATERIAL:
            c = c * MATERIAL / share
            ends[d + self.nuisances :] = np.stack([c - 1e-9 * spread, c + 1e-9 * spread], axis=1)
            step = bounded(H, slope, ends)
        gain = -float(step @ (0.5 * H @ step + slope))
        freedom = 0.5 * float(np.linalg.slogdet(H)[1] - np.linalg.slogdet(P)[1])
        return Told(gain, freedom, self.z + step[:d], c)


def bounded(H: np.ndarray, slope: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The step δ, (n,), with the least ½ δᵀ H δ + slopeᵀ δ between its ends, (n, 2)."""
    root = np.linalg.cholesky(H)
    return lsq_linear(root.T, -np.linalg.solve(root, slope), tuple(ends.T), method="bvls").x


def held(H: np.ndarray, z: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, float]:
    """The best point between ends, (n, 2), by the curvature H at the best of all, z, and what it costs to be there."""
    step = bounded(H, np.zeros(len(z)), ends - z[:, None])
    return z + step, 0.5 * float(step @ H @ step)


def quadratic(
    lab: Lab, prior: Prior, z: np.ndarray, xi: np.ndarray, ends: np.ndarray, blocks: Sequence[Block], repeated: float
) -> Quadratic:
    """Around numbers z, (d,), and starts ξ; `repeated` is how often ticks say the same."""
    doubts, d, residual = lab.doubts, len(z), lab.residual
    along = np.concatenate([b.along for b in blocks])
    columns = np.union1d(np.arange(d), np.flatnonzero(np.abs(along).sum((0, 1))))
    step = FOLLOWED_STEP if residual.followed else STEP
    h = np.where(columns < d, step, step * doubts.spread[columns])
    S, nx = xi.shape
    here = np.zeros((1, S, len(doubts)))
    here[..., :d] = z
    thetas = np.tile(here, (1 + len(columns) + nx, 1, 1))
    thetas[1 + np.arange(len(columns)), :, columns] += h[:, None]
    xis = np.tile(xi, (len(thetas), 1, 1))
    xis[1 + len(columns) :] += START * np.eye(nx)[:, None]
    r = lab(thetas, xis).reshape(len(thetas), S, -1)
    finer = lab.finer(here, xi[None])[0].reshape(S, -1)
    J = np.moveaxis((r[1 : 1 + len(columns)] - r[0]) / h[:, None, None], 0, -1)
    X = np.moveaxis((r[1 + len(columns) :] - r[0]) / START, 0, -1)
    r = r[0]
    root = np.sqrt(weights(r) / repeated)[..., None]
    whole = np.empty((*r.shape, d + 1 + len(along)))
    whole[..., :d], whole[..., d] = J[..., :d], finer - r
    for s in range(S):
        whole[s, :, d + 1 :] = J[s] @ along[:, s][:, columns].T
    left, M, X = root[..., 0] * r, root * whole, root * X
    weighted = M
    if nx:
        inverse = np.linalg.inv(X.transpose(0, 2, 1) @ X + np.diag(residual.hold + 1e-12))
        left = left - (X @ (inverse @ (X.transpose(0, 2, 1) @ left[..., None] + (residual.hold * xi)[..., None])))[..., 0]
        M = M - X @ (inverse @ (X.transpose(0, 2, 1) @ M))
    # Starts are not quite free, so what is left of them is no projection: one side of each product keeps them.
    flat = weighted.reshape(-1, weighted.shape[-1]).T
    G, g = flat @ M.reshape(-1, M.shape[-1]), flat @ left.ravel()
    # For the same reason, and for rounding, it may bend the wrong way a little.
    values, vectors = np.linalg.eigh(0.5 * (G + G.T))
    return Quadratic(prior, z, ends, tuple(blocks), (vectors * np.maximum(values, 0.0)) @ vectors.T, g, 1)
