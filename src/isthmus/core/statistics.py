"""A measured frequency with its exact interval. Needs nothing but Python, so it also runs on the robot."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import exp, lgamma, log


@dataclass(frozen=True)
class Rate:
    """A measured frequency with its exact (Clopper-Pearson) 95 % interval."""

    rate: float
    low: float
    high: float
    n: int

    @staticmethod
    def from_counts(hits: int, n: int, level: float = 0.95) -> Rate:
        tail = (1 - level) / 2
        low = beta_quantile(tail, hits, n - hits + 1) if hits > 0 else 0.0
        high = beta_quantile(1 - tail, hits + 1, n - hits) if hits < n else 1.0
        return Rate(hits / n if n else float("nan"), low, high, n)

    def __str__(self) -> str:
        return f"{100 * self.rate:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f}, n = {self.n})"


@dataclass(frozen=True)
class Estimate:
    """A number with its interval and unit; NaN ends mean that the interval is not known."""

    value: float
    low: float
    high: float
    unit: str = "1"
    level: float = 0.95

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


@lru_cache(maxsize=4096)
def beta_quantile(p: float, a: float, b: float) -> float:
    """Where the distribution function of Beta(a, b) is p, by bisection."""
    low, high = 0.0, 1.0
    while (middle := (low + high) / 2) not in (low, high):
        if beta_cdf(middle, a, b) < p:
            low = middle
        else:
            high = middle
    return middle


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, from its continued fraction (Lentz's method)."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    # The fraction converges quickly on the near side of the mean; the other side follows by symmetry.
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta_cdf(1.0 - x, b, a)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1.0 - x)) / a
    tiny, f, c, d = 1e-300, 1.0, 1.0, 0.0
    for i in range(2000):
        m = i // 2
        if i == 0:
            term = 1.0
        elif i % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / (1.0 + term * d or tiny)
        c = 1.0 + term / c or tiny
        f *= c * d
        if i and abs(1.0 - c * d) < 1e-14:
            break
    return front * (f - 1.0)
