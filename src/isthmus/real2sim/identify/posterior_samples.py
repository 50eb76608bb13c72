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

from isthmus.real2sim.identify.fit import Fit
from isthmus.real2sim.identify.mcmc import Samples, ensemble_mcmc, walker_count
from isthmus.real2sim.identify.surrogate import Surrogate, SurrogateData, SurrogateHMC
from isthmus.real2sim.prepare.segments import Segments
from isthmus.real2sim.residual.gauss_newton import FIRST_DERIVATIVE_STEP
from isthmus.real2sim.residual.normal_equations import NormalEquations, pseudo_huber_loss, robust_weights
from isthmus.real2sim.residual.prior import BoundedPrior, bounded_prior
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.real2sim.residual.segment_starts import Starts, linear_step, solve_starts
from isthmus.sim.robot import Robot
from isthmus.world import Belief

MIN_ESS, MAX_SWEEPS = 400.0, 600
"""Independent draws that are wanted, and the sweeps after which there is an end to it."""
MAX_PARTICLES = 500
"""Kept of all draws at most."""
TRAINING_SPREAD = 1.2
"""The stand-in learns from worlds this much farther out than it believes in."""
SURROGATE_TOLERANCE_NATS, WORLDS_PER_COEFFICIENT, MIN_TRAINING_ROUNDS = 0.3, 6.0, 8
"""The stand-in learns until it foretells the log density of new worlds to within this, or from so many worlds per
coefficient, in so many rounds at least."""
TRAINING_START_STEPS, SAMPLING_START_STEPS = 1, 0
"""Steps of the starts that are simulated, while it learns and after; one that is taken as linear follows."""
SURROGATE_ROUNDS, MOVES_PER_ROUND = 2, 4
"""Of leaps in the stand-in alone, and leaps of a round: after each, flights are made to suit where it led."""
MIN_UNIT_SLOPE = 1e-2
"""Of the slope of the unit cube's coordinate by z, below which a derivative at a hard bound says nothing."""
MAX_WALKER_START, COVARIANCE_RIDGE = 3.0, 0.05
"""Farthest that a walker begins, in units of what was believed before, and the share by which a covariance is rounded."""


def robust_residual(r: np.ndarray) -> np.ndarray:
    """s with ½ s² = ρ(r) and the sign of r: squares of it are what the fit minimises."""
    return np.sign(r) * np.sqrt(2.0 * pseudo_huber_loss(r))


def sample_posterior(
    robot: Robot,
    segments: Segments,
    fitted: Fit,
    belief: Belief,
    seed: int = 0,
    min_ess: float = MIN_ESS,
    max_sweeps: int = MAX_SWEEPS,
    threads: int = 0,
    report: Callable[[float], None] = lambda share: None,
) -> Fit:
    """The fit with draws from the belief after it; `segments` and `belief` are those that it was made with."""
    residual = ParameterResidual(robot, segments, fitted.noise, fitted.space.names, threads)
    return replace(
        fitted, samples=draw_samples(residual, fitted, bounded_prior(belief, fitted.prior), seed, min_ess, max_sweeps, report)
    )


def draw_samples(
    residual: ParameterResidual,
    fitted: Fit,
    prior: BoundedPrior,
    seed: int = 0,
    min_ess: float = MIN_ESS,
    max_sweeps: int = MAX_SWEEPS,
    report: Callable[[float], None] = lambda share: None,
) -> Samples:
    """Draws of z, about the optimum of a fit with that residual."""
    rng = np.random.default_rng(seed)
    d, count = len(fitted.z), walker_count(len(fitted.z))
    y = prior.from_z(fitted.z + rng.standard_normal((count, d)) @ np.linalg.cholesky(fitted.covariance).T)
    y = np.clip(y, -MAX_WALKER_START, MAX_WALKER_START)
    target = _ProfilePosterior(residual, fitted, prior, y)
    model = target.surrogate_data.fit_surrogate()
    rounds = max(MIN_TRAINING_ROUNDS, int(np.ceil(WORLDS_PER_COEFFICIENT * len(model.gram) / count)))
    for i in range(rounds):
        y, _ = _advance_in_surrogate(model, y, TRAINING_SPREAD**2, rng)
        off = np.concatenate([target.add_worlds(half, model) for half in np.split(y, 2)])
        model = target.surrogate_data.fit_surrogate()
        report(0.3 * (i + 1) / rounds)
        if off.std() < SURROGATE_TOLERANCE_NATS:
            break
    y, leaps = _advance_in_surrogate(model, y, 1.0, rng)
    cost, progress = lambda at: target.cost(at, model), lambda share: report(0.3 + 0.7 * share)
    chains = ensemble_mcmc(cost, y, rng, leaps, min_ess, max_sweeps, progress)
    draws = chains.samples(MAX_PARTICLES)
    return replace(draws, z=prior.to_z(draws.z))


def _advance_in_surrogate(
    model: Surrogate, y: np.ndarray, temperature: float, rng: np.random.Generator
) -> tuple[np.ndarray, SurrogateHMC]:
    """Walkers y, (k, d), after some time in the stand-in's density to the power 1 / heat, and leaps that suit it."""
    path = [y]
    for _ in range(SURROGATE_ROUNDS):
        leaps, path = SurrogateHMC.adapted_to(model, np.concatenate(path), temperature), []
        for _ in range(MOVES_PER_ROUND):
            y = leaps(y, rng)[0]
            path.append(y)
    return y, SurrogateHMC.adapted_to(model, np.concatenate(path), temperature)


def _covariance_root(y: np.ndarray) -> np.ndarray:
    """Of the covariance of y, (k, d), a little rounder than it looks."""
    covariance = np.atleast_2d(np.cov(y.T))
    return np.linalg.cholesky(covariance + COVARIANCE_RIDGE * np.diag(np.diag(covariance)))


class _ProfilePosterior:
    """The density that is drawn from."""

    def __init__(self, residual: ParameterResidual, fitted: Fit, prior: BoundedPrior, initial_points: np.ndarray):
        """`about`, (k, d), are places roughly where it will be, in coordinates y."""
        self.residual, self.e, self.prior = residual, fitted.e, prior
        xi = fitted.starts
        first = np.full(len(fitted.z), FIRST_DERIVATIVE_STEP), np.full(xi.shape, FIRST_DERIVATIVE_STEP)
        rough = NormalEquations(residual.linearize(fitted.z, fitted.e, xi, *first), residual.start_weight)
        here = NormalEquations(
            residual.linearize(fitted.z, fitted.e, xi, *rough.derivative_steps(fitted.prior)), residual.start_weight
        )
        self.dr_dxi = here.dr_dxi
        u = 1.0 / (1.0 + np.exp(-fitted.z))
        by_u = np.diag(1.0 / np.maximum(u * (1.0 - u), MIN_UNIT_SLOPE))
        along = np.stack([here.start_response(step) for step in by_u], axis=-1)
        s = robust_residual(here.r)
        ratio = robust_weights(here.r) * np.where(s == 0, 1.0, here.r / np.where(s == 0, 1.0, s))
        slope = ratio[..., None] * (here.dr_dz @ by_u + here.dr_dxi @ along)
        self.surrogate_data = SurrogateData(
            prior, u, _covariance_root(prior.to_unit(initial_points)), s.ravel(), slope.reshape(s.size, -1), xi, along
        )

    def _solve_starts(self, y: np.ndarray, model: Surrogate, steps: int) -> Starts:
        e = self.residual.parameter_values(self.prior.to_z(y), self.e)
        return linear_step(
            solve_starts(self.residual, e, model.starts(y), self.dr_dxi, steps), self.dr_dxi, self.residual.start_weight
        )

    def add_worlds(self, y: np.ndarray, model: Surrogate) -> np.ndarray:
        """Simulate worlds y, (k, d), to learn from them; returns by how much the stand-in was off, (k,)."""
        at = self._solve_starts(y, model, TRAINING_START_STEPS)
        self.surrogate_data.add(y, robust_residual(at.r).reshape(len(y), -1), at.xi)
        return at.cost.sum(1) + 0.5 * (y**2).sum(1) - model.cost(y)

    def cost(self, y: np.ndarray, model: Surrogate) -> np.ndarray:
        """-log density of y, (k, d) -> (k,), with starts that begin where the stand-in has them."""
        return self._solve_starts(y, model, SAMPLING_START_STEPS).cost.sum(1) + 0.5 * (y**2).sum(1)
