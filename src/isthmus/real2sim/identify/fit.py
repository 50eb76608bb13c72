"""Find e: from recordings to a Belief over the numbers of one robot.

    prior   what was believed before, softened at its ends
    start   its middle, or where a global search ends
    fit     damped Gauss-Newton over the numbers and the starts of all segments
    noise   of each signal, from what is left, until both agree
    belief  normal in unconstrained coordinates, from the curvature at the minimum; of two delays, from their whole valley

The noise that the fit ends with holds everything that the model does not explain. Where that is more than the sensors'
own noise, intervals grow with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from isthmus.core.progress import Progress, silent, sub_progress
from isthmus.real2sim.identify.delay_covariance import delay_covariance
from isthmus.real2sim.identify.identifiability import Direction, undetermined_directions
from isthmus.real2sim.identify.mcmc import Samples
from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.segments import Segments
from isthmus.real2sim.residual.information import fisher_information
from isthmus.real2sim.residual.noise_fit import NOISE_ROUNDS, minimise_with_noise
from isthmus.real2sim.residual.normal_equations import NormalEquations, Point
from isthmus.real2sim.residual.prior import GaussianPrior, free_parameters, gaussian_prior, noise_parameters
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.sim.robot import Robot
from isthmus.world import Belief, Space
from isthmus.world.factors import Fixed, Particles
from isthmus.world.factors import Normal as NormalFactor

PARTICLE_DIGITS = 7
"""Of a particle: more than any recording tells, and a third of the size on disk."""
INFORMATION_TIME_SHARE = 0.6
"""Share of the time that it takes to know how sure a fit is, before its delays are looked at."""
AT_BOUND_DISTANCE = 0.01
"""A parameter this close to a hard bound, in unit coordinates, is at it."""


@dataclass(frozen=True)
class Fit:
    """What recordings say about a robot."""

    space: Space
    """The parameters that were fitted."""
    e: np.ndarray
    """All values of the robot's Space at the optimum, (all,)."""
    z: np.ndarray
    """(d,) unconstrained coordinates of the fitted ones, and their covariance, (d, d)."""
    covariance: np.ndarray
    information: np.ndarray
    """(d, d) about z, from the data alone."""
    prior: GaussianPrior
    noise: np.ndarray
    """(components,) σ that the fit ended with."""
    noise_floor: np.ndarray
    """(components,) σ that it was given to begin with: as a rule that of the signals by themselves."""
    starts: np.ndarray
    """(S, 2 nv) moves of the segments' starts, in units of their spread with that noise."""
    cost: float
    """-log posterior density at the optimum, noise included, up to a constant of the recordings: to compare fits by."""
    steps: int
    samples: Samples | None = None
    """From the belief, where it was sampled."""

    def value(self, name: str) -> float:
        """At the optimum; of draws, the median."""
        i = self.space.index(name)
        return float(self.belief.median()[i] if self.samples is not None else self.space.from_unconstrained(self.z)[i])

    def interval(self, name: str, level: float = 0.9) -> tuple[float, float]:
        return self.belief.interval(name, level)

    @cached_property
    def belief(self) -> Belief:
        """The fitted parameters alone."""
        return Belief(self.space, (self.factor(),))

    def factor(self, names: Sequence[str] | None = None) -> NormalFactor | Particles:
        """What is believed of the named ones, whatever the others are; by default of all."""
        names = self.space.names if names is None else tuple(names)
        at = [self.space.index(name) for name in names]
        if self.samples is not None:
            values = self.space.from_unconstrained(self.samples.z)
            rounded = np.array([[float(f"{v:.{PARTICLE_DIGITS}g}") for v in row] for row in values])
            kept = np.clip(rounded, self.space.low, self.space.high)[:, at]
            return Particles(names, tuple(map(tuple, kept.tolist())))
        rows = tuple(tuple(float(v) for v in row) for row in self.covariance[np.ix_(at, at)])
        return NormalFactor(names, tuple(float(v) for v in self.z[at]), rows)

    def correlations(self) -> np.ndarray:
        if self.samples is not None:
            return np.atleast_2d(np.corrcoef(self.samples.z.T))
        s = np.sqrt(np.diag(self.covariance))
        return self.covariance / np.outer(s, s)

    def undetermined_directions(self) -> tuple[Direction, ...]:
        return undetermined_directions(self.prior, self.information, self.z)

    def at_bounds(self) -> tuple[str, ...]:
        u = self.space.unit(self.space.from_unconstrained(self.z))
        return tuple(n for n, x in zip(self.space.names, u, strict=True) if x < AT_BOUND_DISTANCE or x > 1 - AT_BOUND_DISTANCE)


def fit(
    robot: Robot,
    segments: Segments,
    belief: Belief,
    noise: np.ndarray,
    names: Iterable[str] | None = None,
    start: np.ndarray | None = None,
    rounds: int = NOISE_ROUNDS,
    threads: int = 0,
    report: Callable[[int, float], None] = lambda step, cost: None,
    covariance_report: Progress = silent,
) -> Fit:
    """Fit the named parameters, by default all that the belief leaves open, with a first guess of the noise, (components,).

    `start`, (all,), is where the search begins: by default in the middle of the belief. `report` hears of each step, and
    `sure` of how far it is known after them how sure they are.
    """
    return find_minimum(robot, segments, belief, noise, names, start, rounds, threads, report).with_covariance(
        covariance_report
    )


@dataclass(frozen=True)
class Minimum:
    """Where a fit ended, before anybody has asked how sure it is, which takes nearly as long again."""

    residual: ParameterResidual
    prior: GaussianPrior
    start: np.ndarray
    """(all,) where the search began; numbers that were not fitted are still there."""
    noise_floor: np.ndarray
    """First guess of the noise, (components,)."""
    point: Point
    normal: NormalEquations
    steps: int

    @property
    def e(self) -> np.ndarray:
        """All values of the robot's Space, (all,)."""
        return self.residual.parameter_values(self.point.z, self.start)

    @property
    def noise(self) -> np.ndarray:
        """σ per component, (components,), of what the fit leaves."""
        return self.residual.noise

    def with_covariance(self, report: Progress = silent) -> Fit:
        """With how sure it is."""
        report(0.0)
        told = fisher_information(
            self.residual,
            self.prior,
            self.point,
            self.normal,
            self.start,
            report=sub_progress(report, 0.0, INFORMATION_TIME_SHARE),
        )
        told, covariance = delay_covariance(self.residual, self.prior, self.point, self.normal, told, self.start)
        counted = self.residual.seen.sum((0, 1)) * np.log(self.noise / self.noise_floor)
        return Fit(
            space=self.residual.space,
            e=self.e,
            z=self.point.z,
            covariance=0.5 * (covariance + covariance.T),
            information=told,
            prior=self.prior,
            noise=self.noise,
            noise_floor=self.noise_floor,
            starts=self.point.xi,
            cost=self.point.cost + float(np.nansum(counted)),
            steps=self.steps,
        )


def find_minimum(
    robot: Robot,
    segments: Segments,
    belief: Belief,
    noise: np.ndarray,
    names: Iterable[str] | None = None,
    start: np.ndarray | None = None,
    rounds: int = NOISE_ROUNDS,
    threads: int = 0,
    report: Callable[[int, float], None] = lambda step, cost: None,
) -> Minimum:
    """Where such a fit ends."""
    names = free_parameters(robot, belief) if names is None else tuple(names)
    residual = ParameterResidual(robot, segments, noise, names, threads)
    before = gaussian_prior(belief, residual.space)
    start = belief.median() if start is None else start
    residual, point, normal, steps = minimise_with_noise(residual, before, start, rounds, report)
    return Minimum(residual, before, start, noise, point, normal, steps)


def posterior_belief(robot: Robot, fitted: Fit, prior_belief: Belief) -> Belief:
    """The Belief about the whole robot: fitted parameters as found, noises as they show, all others as before."""
    return prior_belief.with_factors(fitted.factor(), *sensor_noise_factors(robot, fitted))


def sensor_noise_factors(robot: Robot, fitted: Fit) -> list[Fixed]:
    """Of the sensors, to simulate them: what a fit leaves, and no more than the signals show by themselves."""
    shown = noise_by_signal(robot, np.fmin(fitted.noise, fitted.noise_floor))
    params = {robot.space[name]: signal for name, signal in noise_parameters(robot.space).items() if signal in shown}
    return [Fixed(p.name, float(np.clip(shown[signal], p.low, p.high))) for p, signal in params.items()]


def noise_by_signal(robot: Robot, sigma: np.ndarray) -> dict[str, float]:
    """Root mean square of σ, (components,), over the components of each signal of which any was measured."""
    found: dict[str, list[float]] = {}
    for component, value in zip(Components(robot.contract).entries, sigma, strict=True):
        if np.isfinite(value):
            found.setdefault(component.signal, []).append(float(value))
    return {signal: float(np.sqrt(np.mean(np.square(values)))) for signal, values in found.items()}
