"""Draws from a density that can be evaluated for many points at once: an ensemble of walkers that move by their differences.

    z' = z + γ (a - b)                  differential evolution (ter Braak 2006); a, b are walkers of the other half
    z' = z + γ ((a - b) · u) u          snooker (ter Braak and Vrugt 2008); u points from a third walker c to z

The walkers are in two halves. All of one half are moved together, by differences within the other, so each half is one call
of the density. The moves are unchanged by any linear map of z, so a long and narrow density is as easy as a round one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SNOOKER, WHOLE = 0.15, 0.1
"""Share of moves that are snookers, and of the others that go the whole difference: from one mode to another."""
ALONG = 2.38 / np.sqrt(2.0)
"""γ of a snooker; that of the others is this over √d."""
JITTER = 1e-4
"""Of a move, as a share of the spread of the walkers: differences alone would keep to a lattice."""
WANTED = 0.25
"""Share of moves that should be accepted: γ is brought there at first, and is then left alone."""
LEAPS, POOR = (0.8, 0.2), 0.03
"""Share of sweeps that leap, and the share if leaps are accepted less often than this."""
FIRST = (10, 40)
"""Sweeps in which γ may change, with leaps and without; they never count."""
CHECK = 0.2
"""Share by which paths grow between looks at how far they have come."""
LENGTHS = 7.0
"""Paths are long enough when they are this many times as long as they take to forget."""
LOST = 3.0
"""Walkers whose -log density lies so many interquartile ranges above the quartiles, early on, are taken as lost."""
WINDOW = 5.0
"""A sum of autocorrelations ends at this many times itself."""

Cost = Callable[[np.ndarray], np.ndarray]
"""-log density of points, (k, d) -> (k,)."""
Leap = Callable[[np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]
"""Other points for k walkers, (k, d), and log of q(z | z') / q(z' | z), (k,), of the way there and back."""


@dataclass(frozen=True)
class Draws:
    """Draws, and what they are worth."""

    z: np.ndarray
    """(n, d)"""
    ess: float
    """Independent draws that all that was sampled is worth, by the slowest coordinate."""
    acceptance: float
    rhat: float
    """Largest over the coordinates: 1 when every half of every walker's path tells the same."""
    sweeps: int


@dataclass(frozen=True)
class Chains:
    """What the walkers went through, without the first part of it."""

    z: np.ndarray
    """(sweeps, walkers, d)"""
    acceptance: float
    sweeps: int
    """Those that were thrown away included."""

    @property
    def time(self) -> float:
        """Sweeps from one independent draw of a walker to the next, of the slowest coordinate."""
        return float(autocorrelation(self.z).max())

    @property
    def ess(self) -> float:
        """Independent draws that these are worth, by the slowest coordinate."""
        return self.z.shape[0] * self.z.shape[1] / self.time

    @property
    def rhat(self) -> float:
        """Largest over the coordinates: 1 when every half of every walker's path tells the same."""
        return float(split_rhat(self.z).max())

    def draws(self, most: int) -> Draws:
        return Draws(self.thinned(most), self.ess, self.acceptance, self.rhat, self.sweeps)

    def thinned(self, n: int) -> np.ndarray:
        """At most n draws, (n, d), as far from each other as can be had."""
        flat = self.z.reshape(-1, self.z.shape[-1])
        return flat[np.unique(np.linspace(0, len(flat) - 1, min(n, len(flat))).astype(int))]


def walkers_for(d: int) -> int:
    """Enough that the differences within a half span all d directions, with some to spare."""
    return max(24, 4 * d)


def wander(
    cost: Cost,
    start: np.ndarray,
    rng: np.random.Generator,
    leap: Leap | None = None,
    enough: float = 400.0,
    most: int = 2000,
    report: Callable[[float], None] = lambda share: None,
) -> Chains:
    """Move walkers from `start`, (walkers, d), until they are worth `enough` independent draws, or for `most` sweeps.

    The first third of all sweeps counts as the way there and is thrown away. `leap` is another way to move, if there is one.
    """
    z, half = start.copy(), len(start) // 2
    sides = np.arange(half), np.arange(half, 2 * half)
    z = z[: 2 * half]
    values = np.concatenate([cost(z[side]) for side in sides])
    first = FIRST[leap is None]
    scale, share, look = 1.0, LEAPS[0], 2 * first
    path, accepted, leapt = [], [], []
    for sweep in range(1, most + 1):
        hits, leaps = 0, leap is not None and rng.uniform() < share
        for mine, others in (sides, sides[::-1]):
            new, log_factor = leap(z[mine], rng) if leap and leaps else _moved(z[mine], z[others], scale, rng)
            height = cost(new)
            yes = np.log(rng.uniform(size=half)) < values[mine] - height + log_factor
            z[mine] = np.where(yes[:, None], new, z[mine])
            values[mine] = np.where(yes, height, values[mine])
            hits += int(yes.sum())
        path.append(z.copy())
        accepted.append(hits / len(z))
        leapt.append(leaps)
        if sweep <= first and not leaps:
            scale = float(np.clip(scale * np.exp(2.0 * (accepted[-1] - WANTED) / np.sqrt(sweep)), 0.05, 3.0))
        if sweep == first // 2:
            _fetch(z, values, rng)
        if sweep == first and np.mean([a for a, was in zip(accepted, leapt, strict=True) if was] or [0.0]) < POOR:
            share = LEAPS[1]
        if sweep >= look:
            look = sweep + round(CHECK * sweep)
            found = _chains(path, accepted, first)
            report(min(found.ess / enough, 1.0))
            if found.ess >= enough and len(found.z) >= LENGTHS * found.time:
                return found
    return _chains(path, accepted, first)


def _chains(path: list, accepted: list, first: int) -> Chains:
    first = min(max(first, len(path) // 3), len(path) // 2)
    return Chains(np.array(path[first:]), float(np.mean(accepted[first:])), len(path))


def _moved(z: np.ndarray, others: np.ndarray, scale: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Moves of k walkers by differences of `others`, (k', d), and the log of the factor in their acceptance."""
    k, d = z.shape
    a, b, c = (others[i] for i in rng.uniform(size=(k, len(others))).argsort(axis=1)[:, :3].T)
    jitter = JITTER * others.std(axis=0) * rng.standard_normal((k, d))
    gamma = np.where(rng.uniform(size=(k, 1)) < WHOLE, 1.0, scale * ALONG / np.sqrt(d))
    straight = z + gamma * (a - b) + jitter
    away = np.maximum(np.linalg.norm(z - c, axis=1, keepdims=True), 1e-300)
    u = (z - c) / away
    snooker = z + ALONG * ((a - b) * u).sum(1, keepdims=True) * u
    # Space is thinner near c: a move along u counts by the distance from it to the power d - 1.
    factor = (d - 1) * np.log(np.maximum(np.linalg.norm(snooker - c, axis=1), 1e-300) / away[:, 0])
    which = rng.uniform(size=k) < SNOOKER
    return np.where(which[:, None], snooker, straight), np.where(which, factor, 0.0)


def _fetch(z: np.ndarray, values: np.ndarray, rng: np.random.Generator) -> None:
    """Put walkers that are far worse than the others where one of the others is, in place."""
    low, high = np.quantile(values, [0.25, 0.75])
    lost = values > high + LOST * (high - low)
    for i in np.flatnonzero(lost):
        j = rng.choice(np.flatnonzero(~lost))
        z[i], values[i] = z[j], values[j]


def autocorrelation(z: np.ndarray) -> np.ndarray:
    """Integrated autocorrelation time per coordinate, (d,), of paths z, (sweeps, walkers, d), in sweeps."""
    n = len(z)
    off = z - z.mean(axis=(0, 1))
    spectrum = np.fft.rfft(off, n=2 * n, axis=0)
    together = np.fft.irfft(np.abs(spectrum) ** 2, axis=0)[:n].mean(axis=1)
    rho = together / np.maximum(together[0], 1e-300)
    times = 2.0 * np.cumsum(rho, axis=0) - 1.0
    inside = np.arange(n)[:, None] < WINDOW * times
    last = np.where(inside.all(axis=0), n - 1, np.argmin(inside, axis=0))
    return np.maximum(times[last, np.arange(z.shape[2])], 1.0)


def split_rhat(z: np.ndarray) -> np.ndarray:
    """Gelman and Rubin's, per coordinate, (d,), with each walker's path cut in two; infinite if there is nothing to compare."""
    half = len(z) // 2
    if half < 2:
        return np.full(z.shape[2], np.inf)
    chains = np.concatenate([z[:half], z[half : 2 * half]], axis=1)
    within = chains.var(axis=0, ddof=1).mean(axis=0)
    between = chains.mean(axis=0).var(axis=0, ddof=1)
    return np.sqrt((half - 1) / half + between / np.maximum(within, 1e-300))
