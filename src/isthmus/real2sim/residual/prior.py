"""What was believed before, as the fit uses it: a normal distribution in unconstrained coordinates.

A range becomes the normal whose 5 % and 95 % lie where those of the range do. Its ends are thereby soft: a number outside
the range is found if the data say so, and a number that the data do not tell keeps its range. A belief that is normal
already, such as the result of an earlier fit, is taken as it is, correlations included.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from isthmus.world import Belief, Space
from isthmus.world.factors import Normal, Particles

TAIL_PROBABILITY = 0.05
TAIL_SIGMAS = NormalDist().inv_cdf(1 - TAIL_PROBABILITY)
MIN_STD, MAX_STD = 1e-3, 4.0
"""Of a standard deviation, in unconstrained coordinates; half of all of a range lies within ±1.1 of its middle."""
MAX_ABS_Z = 8.0
"""Of a mean: closer to a hard bound nothing changes any more."""


@dataclass(frozen=True)
class GaussianPrior:
    space: Space
    mean: np.ndarray
    """(d,)"""
    precision: np.ndarray
    """(d, d)"""

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of each parameter by itself, (d,)."""
        return np.sqrt(np.diag(np.linalg.inv(self.precision)))

    def cost(self, z: np.ndarray) -> np.ndarray:
        """-log density up to a constant, of z, (..., d)."""
        off = z - self.mean
        return 0.5 * np.einsum("...i,ij,...j->...", off, self.precision, off)

    def conditional(self, index: int, value: float) -> GaussianPrior:
        """Of all other parameters, where coordinate i has a value."""
        rest = np.delete(np.arange(len(self.mean)), index)
        P = self.precision[np.ix_(rest, rest)]
        mean = self.mean[rest] - np.linalg.solve(P, self.precision[rest, index] * (value - self.mean[index]))
        return GaussianPrior(self.space.subset(self.space.names[k] for k in rest), mean, P)

    def gradient(self, z: np.ndarray) -> np.ndarray:
        return self.precision @ (z - self.mean)


def gaussian_prior(belief: Belief, space: Space) -> GaussianPrior:
    """Of the parameters of `space`, a part of the belief's own."""
    d = len(space)
    mean, covariance = np.zeros(d), np.zeros((d, d))
    where = {name: i for i, name in enumerate(space.names)}
    done: set[str] = set()
    for name in space.names:
        factor = belief[name]
        if name in done:
            continue
        if isinstance(factor, Normal | Particles):
            inside = [n for n in factor.names if n in where]
            rows, block = [where[n] for n in inside], _moments(factor, inside, belief.space)
            mean[rows], covariance[np.ix_(rows, rows)] = block
            done |= set(inside)
            continue
        one = Space((space[name],))
        ends = factor.quantile(name, np.array([TAIL_PROBABILITY, 1 - TAIL_PROBABILITY]), belief.space)
        low, high = one.unconstrained(ends[:, None])[:, 0]
        low, high = max(low, -MAX_ABS_Z), min(high, MAX_ABS_Z)
        mean[where[name]] = 0.5 * (low + high)
        covariance[where[name], where[name]] = np.clip((high - low) / (2 * TAIL_SIGMAS), MIN_STD, MAX_STD) ** 2
        done.add(name)
    return GaussianPrior(space, mean, np.linalg.inv(covariance))


def _moments(factor: Normal | Particles, names: list[str], space: Space) -> tuple[np.ndarray, np.ndarray]:
    at = [factor.names.index(n) for n in names]
    if isinstance(factor, Normal):
        return np.array(factor.mean)[at], np.array(factor.covariance)[np.ix_(at, at)] + MIN_STD**2 * np.eye(len(at))
    z = Space(tuple(space[n] for n in names)).unconstrained(np.array(factor.values)[:, at])
    weights = np.array(factor.weights) if factor.weights else None
    z = np.clip(z, -MAX_ABS_Z, MAX_ABS_Z)
    covariance = np.atleast_2d(np.cov(z.T, aweights=weights)) if len(z) > 1 else np.zeros((len(at), len(at)))
    return np.average(z, axis=0, weights=weights), covariance + MIN_STD**2 * np.eye(len(at))
