"""The belief after a fit as draws, where a normal distribution does not do: curved valleys, ranges, hard bounds.

    -log p(z) = min over ξ of Σ ρ(r(z, ξ)) + ½ Σ hold · ξ²  +  what was believed before

The likelihood is the fit's own: same segments, same σ, same robust loss, with every segment's start where it suits z best.
The determinant that integrating over the starts would bring is left out. A start is a nuisance without a distribution of its
own: were it flat in speed, worlds with more friction would win because they forget more starts. In coordinates in which
starts and numbers do not mix (Cox and Reid) the determinant is constant, and this is what remains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from isthmus.gap.loss import loss, weights
from isthmus.gap.residual import Residual
from isthmus.gap.segments import Segments
from isthmus.gap.starts import Suited, finished, suited
from isthmus.identify.believed import Believed, believed
from isthmus.identify.descend import FIRST, Normal
from isthmus.identify.ensemble import Draws, walkers_for, wander
from isthmus.identify.fit import Fit
from isthmus.identify.standin import Leaps, Lessons, StandIn
from isthmus.sim.robot import Robot
from isthmus.world import Belief

ENOUGH, MOST = 400.0, 600
"""Independent draws that are wanted, and the sweeps after which there is an end to it."""
PARTICLES = 500
"""Kept of all draws at most."""
WIDER = 1.2
"""The stand-in learns from worlds this much farther out than it believes in."""
TRUSTED, LESSONS, FEWEST = 0.3, 6.0, 8
"""The stand-in learns until it foretells the log density of new worlds to within this, or from so many worlds per
coefficient, in so many rounds at least."""
LEARNING, SAMPLING = 1, 0
"""Steps of the starts that are simulated, while it learns and after; one that is taken as linear follows."""
ROUNDS, INSIDE = 2, 4
"""Of leaps in the stand-in alone, and leaps of a round: after each, flights are made to suit where it led."""
FLATTEST = 1e-2
"""Of the slope of the unit cube's coordinate by z, below which a derivative at a hard bound says nothing."""
FAR, ROUND = 3.0, 0.05
"""Farthest that a walker begins, in units of what was believed before, and the share by which a covariance is rounded."""


def bent(r: np.ndarray) -> np.ndarray:
    """s with ½ s² = ρ(r) and the sign of r: squares of it are what the fit minimises."""
    return np.sign(r) * np.sqrt(2.0 * loss(r))


def sample(
    robot: Robot,
    segments: Segments,
    found: Fit,
    belief: Belief,
    seed: int = 0,
    enough: float = ENOUGH,
    most: int = MOST,
    threads: int = 0,
    report: Callable[[float], None] = lambda share: None,
) -> Fit:
    """The fit with draws from the belief after it; `segments` and `belief` are those that it was made with."""
    residual = Residual(robot, segments, found.noise, found.space.names, threads)
    return replace(found, draws=drawn(residual, found, believed(belief, found.prior), seed, enough, most, report))


def drawn(
    residual: Residual,
    found: Fit,
    before: Believed,
    seed: int = 0,
    enough: float = ENOUGH,
    most: int = MOST,
    report: Callable[[float], None] = lambda share: None,
) -> Draws:
    """Draws of z, about the optimum of a fit with that residual."""
    rng = np.random.default_rng(seed)
    d, count = len(found.z), walkers_for(len(found.z))
    y = before.coordinates(found.z + rng.standard_normal((count, d)) @ np.linalg.cholesky(found.covariance).T)
    y = np.clip(y, -FAR, FAR)
    target = _Target(residual, found, before, y)
    model = target.lessons.learnt()
    rounds = max(FEWEST, int(np.ceil(LESSONS * len(model.gram) / count)))
    for i in range(rounds):
        y, _ = _within(model, y, WIDER**2, rng)
        off = np.concatenate([target.learn(half, model) for half in np.split(y, 2)])
        model = target.lessons.learnt()
        report(0.3 * (i + 1) / rounds)
        if off.std() < TRUSTED:
            break
    y, leaps = _within(model, y, 1.0, rng)
    cost, progress = lambda at: target.cost(at, model), lambda share: report(0.3 + 0.7 * share)
    chains = wander(cost, y, rng, leaps, enough, most, progress)
    draws = chains.draws(PARTICLES)
    return replace(draws, z=before.values(draws.z))


def _within(model: StandIn, y: np.ndarray, heat: float, rng: np.random.Generator) -> tuple[np.ndarray, Leaps]:
    """Walkers y, (k, d), after some time in the stand-in's density to the power 1 / heat, and leaps that suit it."""
    path = [y]
    for _ in range(ROUNDS):
        leaps, path = Leaps.across(model, np.concatenate(path), heat), []
        for _ in range(INSIDE):
            y = leaps(y, rng)[0]
            path.append(y)
    return y, Leaps.across(model, np.concatenate(path), heat)


def _root(y: np.ndarray) -> np.ndarray:
    """Of the covariance of y, (k, d), a little rounder than it looks."""
    covariance = np.atleast_2d(np.cov(y.T))
    return np.linalg.cholesky(covariance + ROUND * np.diag(np.diag(covariance)))


class _Target:
    """The density that is drawn from."""

    def __init__(self, residual: Residual, found: Fit, before: Believed, about: np.ndarray):
        """`about`, (k, d), are places roughly where it will be, in coordinates y."""
        self.residual, self.e, self.before = residual, found.e, before
        xi = found.starts
        first = np.full(len(found.z), FIRST), np.full(xi.shape, FIRST)
        rough = Normal(residual.linear(found.z, found.e, xi, *first), residual.hold)
        here = Normal(residual.linear(found.z, found.e, xi, *rough.scales(found.prior)), residual.hold)
        self.dx = here.dx
        u = 1.0 / (1.0 + np.exp(-found.z))
        by_u = np.diag(1.0 / np.maximum(u * (1.0 - u), FLATTEST))
        along = np.stack([here.carried(step) for step in by_u], axis=-1)
        s = bent(here.r)
        ratio = weights(here.r) * np.where(s == 0, 1.0, here.r / np.where(s == 0, 1.0, s))
        slope = ratio[..., None] * (here.dz @ by_u + here.dx @ along)
        self.lessons = Lessons(before, u, _root(before.unit(about)), s.ravel(), slope.reshape(s.size, -1), xi, along)

    def _suited(self, y: np.ndarray, model: StandIn, steps: int) -> Suited:
        e = self.residual.world(self.before.values(y), self.e)
        return finished(suited(self.residual, e, model.starts(y), self.dx, steps), self.dx, self.residual.hold)

    def learn(self, y: np.ndarray, model: StandIn) -> np.ndarray:
        """Simulate worlds y, (k, d), to learn from them; returns by how much the stand-in was off, (k,)."""
        at = self._suited(y, model, LEARNING)
        self.lessons.add(y, bent(at.r).reshape(len(y), -1), at.xi)
        return at.cost.sum(1) + 0.5 * (y**2).sum(1) - model.cost(y)

    def cost(self, y: np.ndarray, model: StandIn) -> np.ndarray:
        """-log density of y, (k, d) -> (k,), with starts that begin where the stand-in has them."""
        return self._suited(y, model, SAMPLING).cost.sum(1) + 0.5 * (y**2).sum(1)
