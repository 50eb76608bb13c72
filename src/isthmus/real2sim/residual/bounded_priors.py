"""What was believed before, as the sampler uses it: ranges as they are.

    y   coordinates in which it is standard normal

A range that becomes a normal distribution with the same 5 % and 95 % keeps its own interval. But where recordings tell only
the sum of two numbers, what is left of two ranges is again a range, and what is left of two normals is narrower than that.
So here a range stays flat in its own coordinate, but for heavy shoulders that hold OUTSIDE of it: a number beyond is found
if the recordings say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from isthmus.real2sim.residual.prior import GaussianPrior
from isthmus.world import Belief, Space
from isthmus.world.factors import LogUniform, Uniform

OUTSIDE_SHARE = 0.01
"""Share of robots whose number lies outside the range, as far as we believe in it."""
SHOULDER_WIDTH = OUTSIDE_SHARE / (1.0 - OUTSIDE_SHARE) / np.pi
"""Half-width of the shoulders, which fall as a Cauchy distribution does, as a share of the range."""
MAX_ABS_Y = 8.0
"""Of y: beyond it nothing is believed at all."""
MIN_BOUND_DISTANCE = 1e-9
"""Closest to a hard bound, in the unit cube."""


@dataclass(frozen=True)
class BoundedPrior:
    mean: np.ndarray
    """(d,) and root of the covariance, (d, d): z = mean + root y for what is no range."""
    root: np.ndarray
    is_range: np.ndarray
    """(d,) whether a number has a range, and its ends in the unit cube, (d,) each."""
    low: np.ndarray
    high: np.ndarray

    @cached_property
    def _masses(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Width of a shoulder, and what lies below, in and above the range, in units of the density inside."""
        width = SHOULDER_WIDTH * (self.high - self.low)
        return (
            width,
            width * np.arctan(self.low / width),
            self.high - self.low,
            width * np.arctan((1.0 - self.high) / width),
        )

    def to_z(self, y: np.ndarray) -> np.ndarray:
        """z of y, (k, d)."""
        width, below, inside, above = self._masses
        share = ndtr(np.clip(y, -MAX_ABS_Y, MAX_ABS_Y)) * (below + inside + above)
        under = self.low - width * np.tan(np.clip((below - share) / width, 0.0, np.pi / 2 - MIN_BOUND_DISTANCE))
        over = self.high + width * np.tan(np.clip((share - below - inside) / width, 0.0, np.pi / 2 - MIN_BOUND_DISTANCE))
        u = np.where(share < below, under, np.where(share > below + inside, over, self.low + share - below))
        u = np.clip(u, MIN_BOUND_DISTANCE, 1.0 - MIN_BOUND_DISTANCE)
        return np.where(self.is_range, np.log(u) - np.log1p(-u), self.mean + y @ self.root.T)

    def from_z(self, z: np.ndarray) -> np.ndarray:
        """y of z, (k, d)."""
        width, below, inside, above = self._masses
        u = 1.0 / (1.0 + np.exp(-z))
        under = below - width * np.arctan((self.low - u) / width)
        over = below + inside + width * np.arctan((u - self.high) / width)
        share = np.where(u < self.low, under, np.where(u > self.high, over, below + u - self.low))
        flat = ndtri(np.clip(share / (below + inside + above), 1e-15, 1.0 - 1e-15))
        rest = np.linalg.solve(self.root, np.where(self.is_range, 0.0, z - self.mean).T).T
        return np.where(self.is_range, flat, rest)

    def to_unit(self, y: np.ndarray) -> np.ndarray:
        """The place of y, (k, d), in the unit cube."""
        return 1.0 / (1.0 + np.exp(-self.to_z(y)))

    def gradient_by_y(self, y: np.ndarray, u: np.ndarray, gradient_by_u: np.ndarray) -> np.ndarray:
        """Derivative by y, (k, d), of what has the derivative `slope`, (k, d), by u, the place of y in the unit cube."""
        width, below, inside, above = self._masses
        beyond = np.maximum(np.maximum(self.low - u, u - self.high), 0.0) / width
        flat = np.exp(-0.5 * y**2) / np.sqrt(2 * np.pi) * (below + inside + above) * (1.0 + beyond**2)
        # At a hard bound nothing moves any more.
        flat = np.where((u > 2 * MIN_BOUND_DISTANCE) & (u < 1.0 - 2 * MIN_BOUND_DISTANCE), flat, 0.0)
        return np.where(
            self.is_range, flat * gradient_by_u, np.where(self.is_range, 0.0, gradient_by_u * u * (1.0 - u)) @ self.root
        )


def bounded_prior(belief: Belief, prior: GaussianPrior) -> BoundedPrior:
    """The belief about the parameters of a prior that was made from it."""
    d = len(prior.space)
    flat, low, high = np.zeros(d, bool), np.full(d, 0.25), np.full(d, 0.75)
    for i, param in enumerate(prior.space.params):
        factor = belief[param.name]
        # A range that is even in another coordinate than its parameter's would not be flat here.
        alike = isinstance(factor, LogUniform if param.scale == "log" else Uniform)
        if alike and isinstance(factor, Uniform | LogUniform) and factor.low < factor.high:
            flat[i] = True
            low[i], high[i] = Space((param,)).unit(np.array([[factor.low], [factor.high]]))[:, 0]
    return BoundedPrior(prior.mean, np.linalg.cholesky(np.linalg.inv(prior.precision)), flat, low, high)
