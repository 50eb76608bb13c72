"""The numbers that explain recordings best, the ends of the belief soft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.core.progress import Progress, silent, step_progress, sub_progress
from isthmus.real2sim.diagnose.laplace_evidence import constrained_minimum
from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.noise import noise_floor
from isthmus.real2sim.prepare.segments import Segments, cut
from isthmus.real2sim.prepare.tracks import Track
from isthmus.real2sim.residual.estimators import settle_ticks
from isthmus.real2sim.residual.gauss_newton import DERIVATIVE_WIDTHS, coarse_to_fine
from isthmus.real2sim.residual.horizon import choose_horizon
from isthmus.real2sim.residual.noise_fit import minimise_with_noise, residual_noise
from isthmus.real2sim.residual.normal_equations import NormalEquations, Point
from isthmus.real2sim.residual.prior import MAX_ABS_Z, GaussianPrior, free_parameters, gaussian_prior
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.sim.robot import Robot
from isthmus.world import Belief

MAX_PREDICTED_TICKS = 20
"""Longest prediction: short ones hang on everything nearly in proportion, and there is enough to see."""
MAX_SEGMENTS, OBSERVER_MAX_SEGMENTS = 32, 8
"""Of the recordings, spread over them."""
SEARCH_SETTINGS = ((10, 0.1), (15, 0.03))
"""Steps of a search, and log-likelihood per number that is worth another one; the second where the first leaves more than
noise."""
QUICK_DERIVATIVE_WIDTHS = (1.0, 0.36)
"""Widths of the derivatives of a robot that is followed, where a mistake is undone."""
LOST_NOISE_RATIO, SHORT_SEGMENT_TICKS = 2.0, 6
"""Times the noise: a search that leaves more than this may have lost its way; and ticks of pieces in which it would not."""
UNEXPLAINED_NOISE_RATIO = 1.2
"""Times the noise: where numbers leave more than this, there is something to explain."""


@dataclass(frozen=True)
class ParameterFit:
    """Numbers that were found, and where."""

    residual: ParameterResidual
    prior: GaussianPrior
    point: Point
    normal: NormalEquations
    noise_floor: np.ndarray
    unexplained_noise: np.ndarray
    """(components,) what is left, as noise."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the numbers."""
        return self.residual.space.names

    @property
    def noise_ratio(self) -> float:
        """Root mean square of what is left, in units of the signals' own noise."""
        return float(np.sqrt(np.nanmean((self.unexplained_noise / self.noise_floor) ** 2)))

    def curvature(self, tick_redundancy: float) -> np.ndarray:
        """(d, d) of -log density, with what is left for noise."""
        return self.normal.matrix / (tick_redundancy * max(self.noise_ratio, 1.0) ** 2) + self.prior.precision

    def cost_inside_belief(self, belief: Belief, tick_redundancy: float) -> float:
        """What it costs to hold the numbers inside the belief, by the curvature at the best ones."""
        return constrained_minimum(self.curvature(tick_redundancy), self.point.z, belief_ends(belief, self.names))[1]

    @property
    def comparison_count(self) -> int:
        """Numbers that were compared."""
        return int(self.residual.seen.sum())

    @property
    def cost(self) -> float:
        """-log-likelihood of each of them, with the noise that is left over the floor: the unit of a signal does not count."""
        with np.errstate(invalid="ignore"):
            over = np.log(np.fmax(self.unexplained_noise / self.noise_floor, 1.0))
        return float(np.nansum(self.residual.seen.sum((0, 1)) * over) / max(self.comparison_count, 1))


def fit_parameters(
    robot: Robot,
    tracks: Sequence[Track],
    belief: Belief,
    threads: int = 0,
    ticks: int = 0,
    quick: bool = False,
    report: Progress = silent,
) -> ParameterFit:
    """The best numbers for pieces of `ticks` ticks (0: as long as the noise of their starts allows).

    `quick` stops early: if a mistake is undone, what needs more is not right. A robot that is not followed may need `further`.
    """
    sigma, skip = noise_floor(tracks, Components(robot.contract)), settle_ticks(robot)
    pieces = OBSERVER_MAX_SEGMENTS if robot.morphology.feet else MAX_SEGMENTS
    if not ticks:
        ticks = choose_horizon(tracks, robot, sigma, belief.median(), threads)
        ticks = ticks if robot.morphology.feet else min(ticks, skip + MAX_PREDICTED_TICKS)
    residual = ParameterResidual(
        robot, cut(tracks, robot, ticks, ticks - skip).evenly(pieces), sigma, free_parameters(robot, belief), threads
    )
    before = gaussian_prior(belief, residual.space)
    if not residual.estimator.smooth:
        widths = QUICK_DERIVATIVE_WIDTHS if quick else DERIVATIVE_WIDTHS
        point, normal = coarse_to_fine(
            residual, before, before.mean, belief.median(), widths, step_progress(report, len(widths) + 1)
        )
        return ParameterFit(residual, before, point, normal, sigma, residual_noise(residual, normal, before))
    return _search(residual, before, belief.median(), sigma, None, *SEARCH_SETTINGS[0], report)


def restart_from_short_segments(
    fit: ParameterFit, tracks: Sequence[Track], belief: Belief, threads: int = 0, report: Progress = silent
) -> ParameterFit:
    """Searched for anew from the numbers that explain short pieces: far ahead, a search may lose its way."""
    robot = fit.residual.robot
    short = fit_parameters(
        robot, tracks, belief, threads, settle_ticks(robot) + SHORT_SEGMENT_TICKS, report=sub_progress(report, 0.0, 0.2)
    )
    e = short.residual.parameter_values(short.point.z, belief.median())
    again = _search(fit.residual, fit.prior, e, fit.noise_floor, None, *SEARCH_SETTINGS[0], sub_progress(report, 0.2, 1.0))
    return min(fit, again, key=lambda f: f.point.cost)


def continue_search(fit: ParameterFit, belief: Belief, report: Progress = silent) -> ParameterFit:
    """The search gone on with, where it left more than noise."""
    e = fit.residual.parameter_values(fit.point.z, belief.median())
    more = _search(fit.residual, fit.prior, e, fit.noise_floor, fit.point.xi, *SEARCH_SETTINGS[1], report)
    return min(fit, more, key=lambda f: f.point.cost)


def _search(
    residual: ParameterResidual,
    prior: GaussianPrior,
    e: np.ndarray,
    sigma: np.ndarray,
    xi: np.ndarray | None,
    max_steps: int,
    min_gain: float,
    report: Progress,
) -> ParameterFit:
    residual, point, normal, _ = minimise_with_noise(
        residual, prior, e, 1, step_progress(report, max_steps), max_steps=max_steps, min_gain=min_gain, xi=xi
    )
    return ParameterFit(residual, prior, point, normal, sigma, residual_noise(residual, normal, prior))


def signal_spread(segments: Segments) -> np.ndarray:
    """(width,) how much each signal moves; of one that was never measured, not at all."""
    flat = segments.measured.reshape(-1, segments.measured.shape[-1])
    seen = np.isfinite(flat)
    mean = np.where(seen, flat, 0.0).sum(0) / np.maximum(seen.sum(0), 1)
    return np.sqrt((np.where(seen, flat - mean, 0.0) ** 2).sum(0) / np.maximum(seen.sum(0), 1))


def belief_ends(belief: Belief, names: Sequence[str]) -> np.ndarray:
    """(d, 2) of what is believed of some numbers, in unconstrained coordinates."""
    space = belief.space.subset(names)
    low, high = np.array([belief.interval(name, 1.0) for name in names]).reshape(-1, 2).T
    sides = [np.clip(space.unconstrained(np.clip(side, space.low, space.high)), -MAX_ABS_Z, MAX_ABS_Z) for side in (low, high)]
    return np.stack([sides[0], np.maximum(sides[1], sides[0] + 1e-6)], axis=1)
