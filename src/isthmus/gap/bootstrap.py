"""Intervals of averages over segments: resampled in blocks, because neighbours in time resemble each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
DRAWS = 1000


@dataclass(frozen=True)
class Measured:
    """A number with its interval, from n pieces."""

    value: float
    low: float
    high: float
    n: int


def block_draws(groups: np.ndarray, rng: np.random.Generator, draws: int = DRAWS) -> np.ndarray:
    """Indices, (draws, n), of n pieces drawn in blocks of neighbours; pieces of different `groups`, (n,), are no neighbours."""
    n = len(groups)
    length = max(1, round(n ** (1 / 3)))
    ends = [min(i + length, i + int((groups[i:] == groups[i]).cumprod().sum())) for i in range(n)]
    out = np.empty((draws, n), dtype=int)
    for row in out:
        picked: list[int] = []
        while len(picked) < n:
            first = int(rng.integers(n))
            picked += range(first, ends[first])
        row[:] = picked[:n]
    return out


def interval(
    values: np.ndarray, groups: np.ndarray, of: Callable[[np.ndarray], np.ndarray], seed: int = 0, level: float = LEVEL
) -> Measured:
    """`of` of values, (n, …), over their pieces, with its interval: `of` takes (draws, n, …) and gives (draws,)."""
    n, tail = len(values), (1.0 - level) / 2
    value = float(of(values[None])[0])
    if n < 2:
        return Measured(value, float("nan"), float("nan"), n)
    spread = of(values[block_draws(groups, np.random.default_rng(seed))])
    low, high = np.nanquantile(spread, [tail, 1.0 - tail])
    return Measured(value, float(low), float(high), n)
