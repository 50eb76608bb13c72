"""Laws that were tried, from the simplest up, and which of them to believe: the simplest that predicts as well as any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from isthmus.gap.noise import NOISE_ONLY
from isthmus.gap.residual import Residual
from isthmus.gap.segments import Segments
from isthmus.gap.starts import costs
from isthmus.identify.descend import FIRST
from isthmus.identify.study import misses
from isthmus.sim.robot import Robot

AS_BELIEVED = "as believed"
"""Name of the law that the robot was believed to have."""
LEAST = 0.02
"""A better law takes at least this share off the error …"""
CHANCE = 0.025
"""… and would seem so by chance at most this often."""
STEPS = 6
"""Of starts, where worlds are only looked at."""


@dataclass(frozen=True)
class Tried:
    """One law and how well it predicts."""

    name: str
    values: dict[str, float]
    """Parameter -> value."""
    fitted: float
    """Root mean square error on what it was fitted to and on what was held out: N·m, or in units of the noise."""
    held_out: float
    each: np.ndarray
    """Mean square error of each held-out piece."""

    @staticmethod
    def of(name: str, values: dict[str, float], fitted: np.ndarray, held: np.ndarray) -> Tried:
        """From the mean square error of each piece that it was fitted to, and of each that was held out."""
        return Tried(name, values, float(np.sqrt(fitted.mean())), float(np.sqrt(held.mean())), held)

    @property
    def explains(self) -> bool:
        """Whether there is nothing left but noise, where errors are in units of it."""
        return max(self.fitted, self.held_out) < NOISE_ONLY


def choose(tried: Sequence[Tried]) -> Tried:
    """The first law that no later one beats: by LEAST in all, and by more than chance in the ratios of errors, piece by piece.

    Ratios and not differences: where a law lacks most, a few pieces hold nearly all of the error, and the spread of differences
    between these and the others would hide a gain that nearly every piece has.
    """
    best = tried[0]
    for other in tried[1:]:
        if other.each.mean() < (1.0 - LEAST) * best.each.mean() and _beyond_chance(best.each, other.each):
            best = other
    return best


def _beyond_chance(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether errors of the same pieces, (n,) each, fall by a ratio whose mean log is more than CHANCE allows."""
    seen = (before > 0) & (after > 0)
    gain = np.log(before[seen] / after[seen])
    if len(gain) < 2:
        return bool(before.mean() > after.mean())
    return bool(gain.mean() > stats.t.ppf(1.0 - CHANCE, len(gain) - 1) * np.std(gain, ddof=1) / np.sqrt(len(gain)))


def judged(
    name: str,
    values: dict[str, float],
    robot: Robot,
    parts: tuple[Segments, Segments],
    noise: np.ndarray,
    e: np.ndarray,
    threads: int,
) -> Tried:
    """A law in one world, (all,): its errors on pieces that it was fitted to and on pieces that were held out."""
    return Tried.of(name, values, *(relative(robot, part, noise, e, threads) for part in parts))


def relative(robot: Robot, segments: Segments, noise: np.ndarray, e: np.ndarray, threads: int) -> np.ndarray:
    """Mean square error of each segment in which anything was compared, in units of the noise."""
    squares, count = misses(robot, segments, noise, [e], threads)[0]
    seen = count.sum(1) > 0
    return np.nansum(squares[seen] / noise**2, axis=1) / count[seen].sum(1)


def nearest(
    robot: Robot, segments: Segments, noise: np.ndarray, worlds: np.ndarray, middle: np.ndarray, threads: int
) -> np.ndarray:
    """That of some worlds, (k, all), which predicts best, (all,); starts are moved by derivatives at the one in the middle."""
    residual = Residual(robot, segments, noise, (), threads)
    xi = np.zeros((len(segments), len(residual.spread)))
    return worlds[int(np.argmin(costs(residual, worlds, xi, middle, FIRST, STEPS)))]
