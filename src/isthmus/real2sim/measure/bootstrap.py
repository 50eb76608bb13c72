"""Intervals of averages over segments: resampled in blocks, because neighbours in time resemble each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

CONFIDENCE_LEVEL = 0.95
BOOTSTRAP_DRAWS = 1000


@dataclass(frozen=True)
class Interval:
    """A number with its interval, from n pieces."""

    value: float
    low: float
    high: float
    n: int


def block_bootstrap_indices(groups: np.ndarray, rng: np.random.Generator, draws: int = BOOTSTRAP_DRAWS) -> np.ndarray:
    """Indices, (draws, n), of n pieces drawn in blocks of neighbours that go round within their group.

    `groups`, (n,), ascending, says of each piece in which recording it is.
    """
    n = len(groups)
    length = max(1, round(n ** (1 / 3)))
    begin = np.searchsorted(groups, groups, side="left")
    size = np.searchsorted(groups, groups, side="right") - begin
    first = rng.integers(n, size=(draws, -(-n // length), 1))
    along = first - begin[first] + np.arange(length)
    return (begin[first] + along % size[first]).reshape(draws, -1)[:, :n]


def bootstrap_interval(
    values: np.ndarray,
    groups: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray],
    seed: int = 0,
    level: float = CONFIDENCE_LEVEL,
) -> Interval:
    """`of` of values, (n, …), over their pieces, with its interval: `of` takes (draws, n, …) and gives (draws,)."""
    n, tail = len(values), (1.0 - level) / 2
    value = float(statistic(values[None])[0])
    if n < 2:
        return Interval(value, float("nan"), float("nan"), n)
    spread = statistic(values[block_bootstrap_indices(groups, np.random.default_rng(seed))])
    low, high = np.nanquantile(spread, [tail, 1.0 - tail])
    return Interval(value, float(low), float(high), n)
