"""Statistics of policies that met the same worlds: x[k, i] is what run k of a method reached in world i.

    mean of a method        Σ x / (runs · worlds)
    its variance            worlds: var over i of the mean over k, / worlds;  seeds: var over k of the mean over i, / runs
    share recovered         θ = (reached - start) / (goal - start), with the interval of Fieller (1954)

Variances of worlds and of seeds are added, with the degrees of freedom of Satterthwaite (1946); so intervals are approximate.
All intervals are of 95 %. Where a method has one run, its seeds are not part of the uncertainty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
Z_QUANTILE = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
NAN = float("nan")


@dataclass(frozen=True)
class Estimate:
    mean: float
    low: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class GapClosed:
    """Which part of a gap was closed."""

    gap: Estimate
    fraction: Estimate
    """Not a number where the gap cannot be told from none."""
    uncertainty_over: str
    """What the intervals are over: `worlds`, or `worlds and seeds`."""

    @property
    def significant(self) -> bool:
        return self.gap.low > 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "gap": self.gap.to_dict(),
            **self.fraction.to_dict(),
            "significant": self.significant,
            "uncertainty_over": self.uncertainty_over,
        }


def estimate(*terms: tuple[float, np.ndarray]) -> Estimate:
    """Σ factor · mean of x, over terms (factor, x of shape (runs, worlds)) in the same worlds."""
    per_world = np.sum([factor * x.mean(axis=0) for factor, x in terms], axis=0)
    return estimate_from_means(per_world, *(factor * x.mean(axis=1) for factor, x in terms))


def estimate_from_means(per_world: np.ndarray, *per_run: np.ndarray) -> Estimate:
    """Mean over worlds, (n,), of a sum of terms, with what the runs of each, (k,), add to its doubt."""
    mean = float(per_world.mean())
    parts = [(_variance_of_mean(x), x.size - 1) for x in (per_world, *(x for x in per_run if x.size > 1))]
    half = _t_quantile(parts) * np.sqrt(sum(v for v, _ in parts))
    return Estimate(mean, mean - float(half), mean + float(half))


def uncertainty_sources(*groups: np.ndarray) -> str:
    """What an estimate over these groups accounts for."""
    return "worlds and seeds" if all(len(x) > 1 for x in groups) else "worlds"


def _variance_of_mean(x: np.ndarray) -> float:
    """Of the mean of x."""
    return float(x.var(ddof=1) / x.size) if x.size > 1 else NAN


def _t_quantile(parts: list[tuple[float, int]]) -> float:
    """Student's t for a sum of variances with their degrees of freedom (Satterthwaite, 1946)."""
    total = sum(v for v, _ in parts)
    if not total > 0:
        return 0.0 if total == 0 else NAN
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, total**2 / sum(v**2 / k for v, k in parts if v > 0)))


def rate_difference(a: np.ndarray, b: np.ndarray) -> Estimate:
    """How much more often a happens than b in the same worlds, booleans of shape (n,): the score interval of Tango (1998)."""
    n, more, less = len(a), int((a & ~b).sum()), int((b & ~a).sum())
    difference = (more - less) / n

    def z(d: float) -> float:
        p, q = -more - less + (2 * n - more + less) * d, -less * d * (1 - d)
        only_b = (np.sqrt(max(p * p - 8 * n * q, 0.0)) - p) / (4 * n)
        spread = n * (2 * only_b + d * (1 - d))
        return (more - less - n * d) / np.sqrt(spread) if spread > 1e-12 else np.inf * np.sign(difference - d)

    def end(side: int) -> float:
        near, far = difference + side * 1e-9, side * (1 - 1e-9)
        if side * near >= side * far or side * z(far) > -Z_QUANTILE:
            return float(side)
        for _ in range(60):
            middle = (near + far) / 2
            near, far = (middle, far) if side * z(middle) > -Z_QUANTILE else (near, middle)
        return (near + far) / 2

    return Estimate(difference, end(-1), end(1))


def gap_closed(start: np.ndarray, goal: np.ndarray, reached: np.ndarray) -> GapClosed:
    """The part of the gap from `start` to `goal` that `reached` has closed; all (runs, worlds)."""
    what = uncertainty_sources(start, goal, reached)
    gap = estimate((1.0, goal), (-1.0, start))
    if not gap.low > 0:
        return GapClosed(gap, Estimate(NAN, NAN, NAN), what)
    rows = np.stack([reached.mean(axis=0) - start.mean(axis=0), goal.mean(axis=0) - start.mean(axis=0)])
    a, b = rows.mean(axis=1)
    v = np.cov(rows) / rows.shape[1]
    theta = a / b
    parts = [(float(v[0, 0] - 2 * theta * v[0, 1] + theta**2 * v[1, 1]), rows.shape[1] - 1)]
    own = {name: _variance_of_mean(x.mean(axis=1)) for name, x in (("s", start), ("g", goal), ("r", reached)) if len(x) > 1}
    v += own.get("s", 0.0)
    v[0, 0] += own.get("r", 0.0)
    v[1, 1] += own.get("g", 0.0)
    # Each part of the variance of a - θ b, the start's included, which is in both.
    weights = (("s", 1 - theta, start), ("g", theta, goal), ("r", 1.0, reached))
    parts += [(float(factor**2 * own[name]), len(x) - 1) for name, factor, x in weights if name in own]
    t2 = _t_quantile(parts) ** 2
    # (a - θ b)² ≤ t² (v_aa - 2 θ v_ab + θ² v_bb), a parabola in θ.
    square, half, rest = b * b - t2 * v[1, 1], a * b - t2 * v[0, 1], a * a - t2 * v[0, 0]
    if square <= 0:
        return GapClosed(gap, Estimate(float(theta), -np.inf, np.inf), what)
    root = np.sqrt(max(half * half - square * rest, 0.0))
    return GapClosed(gap, Estimate(float(theta), float((half - root) / square), float((half + root) / square)), what)
