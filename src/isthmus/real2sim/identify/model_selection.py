"""Laws that were tried, from the simplest up, and which of them to believe: the simplest that predicts as well as any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from isthmus.real2sim.prepare.noise import NOISE_ONLY_RATIO
from isthmus.real2sim.prepare.segments import Segments
from isthmus.real2sim.residual.gauss_newton import FIRST_DERIVATIVE_STEP
from isthmus.real2sim.residual.prediction_errors import squared_errors
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.real2sim.residual.segment_starts import costs_with_best_starts
from isthmus.sim.robot import Robot

AS_BELIEVED = "as believed"
"""Name of the law that the robot was believed to have."""
MIN_ERROR_REDUCTION = 0.02
"""A better law takes at least this share off the error …"""
SIGNIFICANCE_LEVEL = 0.025
"""… and would seem so by chance at most this often."""
START_STEPS = 6
"""Of starts, where worlds are only looked at."""


@dataclass(frozen=True)
class Candidate:
    """One law and how well it predicts."""

    name: str
    values: dict[str, float]
    """Parameter -> value."""
    train_error: float
    """Root mean square error on what it was fitted to and on what was held out: N·m, or in units of the noise."""
    held_out_error: float
    held_out_errors: np.ndarray
    """Mean square error of each held-out piece."""

    @staticmethod
    def from_errors(name: str, values: dict[str, float], train_errors: np.ndarray, held_out_errors: np.ndarray) -> Candidate:
        """From the mean square error of each piece that it was fitted to, and of each that was held out."""
        return Candidate(
            name, values, float(np.sqrt(train_errors.mean())), float(np.sqrt(held_out_errors.mean())), held_out_errors
        )

    @property
    def leaves_only_noise(self) -> bool:
        """Whether there is nothing left but noise, where errors are in units of it."""
        return max(self.train_error, self.held_out_error) < NOISE_ONLY_RATIO


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """The first law that no later one beats: by LEAST in all, and by more than chance in the ratios of errors, piece by piece.

    Ratios and not differences: where a law lacks most, a few pieces hold nearly all of the error, and the spread of differences
    between these and the others would hide a gain that nearly every piece has.
    """
    best = candidates[0]
    for other in candidates[1:]:
        if other.held_out_errors.mean() < (1.0 - MIN_ERROR_REDUCTION) * best.held_out_errors.mean() and _significantly_lower(
            best.held_out_errors, other.held_out_errors
        ):
            best = other
    return best


def _significantly_lower(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether errors of the same pieces, (n,) each, fall by a ratio whose mean log is more than CHANCE allows."""
    seen = (before > 0) & (after > 0)
    gain = np.log(before[seen] / after[seen])
    if len(gain) < 2:
        return bool(before.mean() > after.mean())
    return bool(gain.mean() > stats.t.ppf(1.0 - SIGNIFICANCE_LEVEL, len(gain) - 1) * np.std(gain, ddof=1) / np.sqrt(len(gain)))


def evaluate(
    name: str,
    values: dict[str, float],
    robot: Robot,
    train_and_held_out: tuple[Segments, Segments],
    noise: np.ndarray,
    e: np.ndarray,
    threads: int,
) -> Candidate:
    """A law in one world, (all,): its errors on pieces that it was fitted to and on pieces that were held out."""
    return Candidate.from_errors(
        name, values, *(relative_errors(robot, part, noise, e, threads) for part in train_and_held_out)
    )


def relative_errors(robot: Robot, segments: Segments, noise: np.ndarray, e: np.ndarray, threads: int) -> np.ndarray:
    """Mean square error of each segment in which anything was compared, in units of the noise."""
    squares, count = squared_errors(robot, segments, noise, [e], threads)[0]
    seen = count.sum(1) > 0
    return np.nansum(squares[seen] / noise**2, axis=1) / count[seen].sum(1)


def best_world(
    robot: Robot, segments: Segments, noise: np.ndarray, worlds: np.ndarray, reference: np.ndarray, threads: int
) -> np.ndarray:
    """That of some worlds, (k, all), which predicts best, (all,); starts are moved by derivatives at the one in the middle."""
    residual = ParameterResidual(robot, segments, noise, (), threads)
    xi = np.zeros((len(segments), len(residual.start_scale)))
    return worlds[int(np.argmin(costs_with_best_starts(residual, worlds, xi, reference, FIRST_DERIVATIVE_STEP, START_STEPS)))]
