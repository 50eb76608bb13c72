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

SNOOKER_SHARE, FULL_DIFFERENCE_SHARE = 0.15, 0.1
"""Share of moves that are snookers, and of the others that go the whole difference: from one mode to another."""
SNOOKER_GAMMA = 2.38 / np.sqrt(2.0)
"""γ of a snooker; that of the others is this over √d."""
JITTER_SHARE = 1e-4
"""Of a move, as a share of the spread of the walkers: differences alone would keep to a lattice."""
TARGET_ACCEPTANCE = 0.25
"""Share of moves that should be accepted: γ is brought there at first, and is then left alone."""
PROPOSAL_SHARES, MIN_PROPOSAL_ACCEPTANCE = (0.8, 0.2), 0.03
"""Share of sweeps that leap, and the share if leaps are accepted less often than this."""
ADAPTATION_SWEEPS = (10, 40)
"""Sweeps in which γ may change, with leaps and without; they never count."""
CHECK_GROWTH = 0.2
"""Share by which paths grow between looks at how far they have come."""
MIN_AUTOCORRELATION_TIMES = 7.0
"""Paths are long enough when they are this many times as long as they take to forget."""
OUTLIER_IQRS = 3.0
"""Walkers whose -log density lies so many interquartile ranges above the quartiles, early on, are taken as lost."""
AUTOCORRELATION_WINDOW = 5.0
"""A sum of autocorrelations ends at this many times itself."""

NegativeLogDensity = Callable[[np.ndarray], np.ndarray]
"""-log density of points, (k, d) -> (k,)."""
Proposal = Callable[[np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]
"""Other points for k walkers, (k, d), and log of q(z | z') / q(z' | z), (k,), of the way there and back."""


@dataclass(frozen=True)
class Samples:
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
    def autocorrelation_time(self) -> float:
        """Sweeps from one independent draw of a walker to the next, of the slowest coordinate."""
        return float(integrated_autocorrelation_time(self.z).max())

    @property
    def ess(self) -> float:
        """Independent draws that these are worth, by the slowest coordinate."""
        return self.z.shape[0] * self.z.shape[1] / self.autocorrelation_time

    @property
    def rhat(self) -> float:
        """Largest over the coordinates: 1 when every half of every walker's path tells the same."""
        return float(split_rhat(self.z).max())

    def samples(self, max_count: int) -> Samples:
        return Samples(self.thin(max_count), self.ess, self.acceptance, self.rhat, self.sweeps)

    def thin(self, n: int) -> np.ndarray:
        """At most n draws, (n, d), as far from each other as can be had."""
        flat = self.z.reshape(-1, self.z.shape[-1])
        return flat[np.unique(np.linspace(0, len(flat) - 1, min(n, len(flat))).astype(int))]


def walker_count(d: int) -> int:
    """Enough that the differences within a half span all d directions, with some to spare."""
    return max(24, 4 * d)


def ensemble_mcmc(
    cost: NegativeLogDensity,
    start: np.ndarray,
    rng: np.random.Generator,
    proposal: Proposal | None = None,
    min_ess: float = 400.0,
    max_sweeps: int = 2000,
    report: Callable[[float], None] = lambda share: None,
) -> Chains:
    """Move walkers from `start`, (walkers, d), until they are worth `enough` independent draws, or for `most` sweeps.

    The first third of all sweeps counts as the way there and is thrown away. `leap` is another way to move, if there is one.
    """
    z, half = start.copy(), len(start) // 2
    sides = np.arange(half), np.arange(half, 2 * half)
    z = z[: 2 * half]
    values = np.concatenate([cost(z[side]) for side in sides])
    first = ADAPTATION_SWEEPS[proposal is None]
    scale, share, look = 1.0, PROPOSAL_SHARES[0], 2 * first
    path, accepted, leapt = [], [], []
    for sweep in range(1, max_sweeps + 1):
        hits, leaps = 0, proposal is not None and rng.uniform() < share
        for mine, others in (sides, sides[::-1]):
            new, log_factor = (
                proposal(z[mine], rng) if proposal and leaps else _propose_differences(z[mine], z[others], scale, rng)
            )
            height = cost(new)
            yes = np.log(rng.uniform(size=half)) < values[mine] - height + log_factor
            z[mine] = np.where(yes[:, None], new, z[mine])
            values[mine] = np.where(yes, height, values[mine])
            hits += int(yes.sum())
        path.append(z.copy())
        accepted.append(hits / len(z))
        leapt.append(leaps)
        if sweep <= first and not leaps:
            scale = float(np.clip(scale * np.exp(2.0 * (accepted[-1] - TARGET_ACCEPTANCE) / np.sqrt(sweep)), 0.05, 3.0))
        if sweep == first // 2:
            _replace_outliers(z, values, rng)
        if (
            sweep == first
            and np.mean([a for a, was in zip(accepted, leapt, strict=True) if was] or [0.0]) < MIN_PROPOSAL_ACCEPTANCE
        ):
            share = PROPOSAL_SHARES[1]
        if sweep >= look:
            look = sweep + round(CHECK_GROWTH * sweep)
            found = _after_burn_in(path, accepted, first)
            report(min(found.ess / min_ess, 1.0))
            if found.ess >= min_ess and len(found.z) >= MIN_AUTOCORRELATION_TIMES * found.autocorrelation_time:
                return found
    return _after_burn_in(path, accepted, first)


def _after_burn_in(path: list, accepted: list, burn_in: int) -> Chains:
    burn_in = min(max(burn_in, len(path) // 3), len(path) // 2)
    return Chains(np.array(path[burn_in:]), float(np.mean(accepted[burn_in:])), len(path))


def _propose_differences(
    z: np.ndarray, others: np.ndarray, scale: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Moves of k walkers by differences of `others`, (k', d), and the log of the factor in their acceptance."""
    k, d = z.shape
    a, b, c = (others[i] for i in rng.uniform(size=(k, len(others))).argsort(axis=1)[:, :3].T)
    jitter = JITTER_SHARE * others.std(axis=0) * rng.standard_normal((k, d))
    gamma = np.where(rng.uniform(size=(k, 1)) < FULL_DIFFERENCE_SHARE, 1.0, scale * SNOOKER_GAMMA / np.sqrt(d))
    straight = z + gamma * (a - b) + jitter
    away = np.maximum(np.linalg.norm(z - c, axis=1, keepdims=True), 1e-300)
    u = (z - c) / away
    snooker = z + SNOOKER_GAMMA * ((a - b) * u).sum(1, keepdims=True) * u
    # Space is thinner near c: a move along u counts by the distance from it to the power d - 1.
    factor = (d - 1) * np.log(np.maximum(np.linalg.norm(snooker - c, axis=1), 1e-300) / away[:, 0])
    which = rng.uniform(size=k) < SNOOKER_SHARE
    return np.where(which[:, None], snooker, straight), np.where(which, factor, 0.0)


def _replace_outliers(z: np.ndarray, values: np.ndarray, rng: np.random.Generator) -> None:
    """Put walkers that are far worse than the others where one of the others is, in place."""
    low, high = np.quantile(values, [0.25, 0.75])
    lost = values > high + OUTLIER_IQRS * (high - low)
    for i in np.flatnonzero(lost):
        j = rng.choice(np.flatnonzero(~lost))
        z[i], values[i] = z[j], values[j]


def integrated_autocorrelation_time(z: np.ndarray) -> np.ndarray:
    """Integrated autocorrelation time per coordinate, (d,), of paths z, (sweeps, walkers, d), in sweeps."""
    n = len(z)
    off = z - z.mean(axis=(0, 1))
    spectrum = np.fft.rfft(off, n=2 * n, axis=0)
    together = np.fft.irfft(np.abs(spectrum) ** 2, axis=0)[:n].mean(axis=1)
    rho = together / np.maximum(together[0], 1e-300)
    times = 2.0 * np.cumsum(rho, axis=0) - 1.0
    inside = np.arange(n)[:, None] < AUTOCORRELATION_WINDOW * times
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
