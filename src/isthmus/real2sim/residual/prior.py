"""What was believed before, as the fit uses it: a normal distribution in unconstrained coordinates.

A range becomes the normal whose 5 % and 95 % lie where those of the range do. Its ends are thereby soft: a number outside
the range is found if the data say so, and a number that the data do not tell keeps its range. A belief that is normal
already, such as the result of an earlier fit, is taken as it is, correlations included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np
from scipy.special import ndtr, ndtri

from isthmus.sim.robot import Robot
from isthmus.world import Belief, Param, Space, Target
from isthmus.world.factors import LogUniform, Normal, Particles, Uniform

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


def noise_parameters(space: Space) -> dict[str, str]:
    """Parameters that are the noise of a signal: name -> signal."""
    found = {}
    for p in space.params:
        for target in map(Target.parse, p.targets):
            if target.kind == "signal" and target.field == "noise":
                found[p.name] = target.pattern
    return found


def free_parameters(robot: Robot, belief: Belief) -> tuple[str, ...]:
    """Parameters that a belief leaves open, but for the noises: those show in what a fit leaves and in the signals."""
    noises = noise_parameters(robot.space)
    return tuple(name for name in belief.free().names if name not in noises)


def reset_to_bounds(belief: Belief, names: Sequence[str]) -> Belief:
    """A belief that knows no more of the named parameters than their bounds."""
    return belief.with_factors(*(_uniform_over_bounds(belief.space[name]) for name in names))


def _uniform_over_bounds(p: Param) -> Uniform | LogUniform:
    return (LogUniform if p.scale == "log" else Uniform)(p.name, p.low, p.high)


def extend_space(robot: Robot, belief: Belief, extra: Sequence[Param]) -> tuple[Robot, Belief]:
    """The robot with more parameters, about which nothing is known but their bounds."""
    space = type(robot.space)((*robot.space.params, *extra))
    wide = Belief(space, (*belief.factors, *map(_uniform_over_bounds, extra)))
    return replace(robot, space=space, prior=wide), wide


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
