"""How well some columns follow others: correlation and size of their changes, over windows long enough to rise above the noise.

a, b            (T, k) two sides of what should be one motion: angles and their speeds, angles and their targets
match(...)      (k, k) every column of a against every column of b
exchanged(...)  which columns of b the columns of a follow better than their own
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import linear_sum_assignment

WINDOW_SECONDS = (0.06, 0.2, 0.6)
"""s over which rates are averaged; each column is judged in the window in which it follows anything best."""
MIN_WINDOWS = 12.0
"""Windows one after the other that a verdict needs."""
WINDOW_OVERLAP, LAG_COUNT = 4, 10
"""How many windows overlap, and about how many lags are tried."""
CLEAR_CORRELATION = 0.8
"""Correlation from which one column follows another."""
CLEAR_VARIANCE_RATIO = 4.0
"""So many times less of a column must be left unexplained by another than by its own."""
FAIR_CORRELATION, FAIR_VARIANCE_RATIO = 0.7, 2.5
"""The same two of motions that are not one by definition, but only follow each other."""
MAX_UNRELATED_CORRELATION = 0.5
"""Correlation up to which one does not."""
COMMON_GAIN_RATIO = 1.5
"""Gains within this ratio may have one reason."""

RatePair = tuple[np.ndarray, np.ndarray]
"""Rates of change a and b, (T, k) each, on consecutive ticks."""


@dataclass(frozen=True)
class ColumnMatch:
    corr: np.ndarray
    """(k, k) correlation of column i of a with column j of b; NaN where too little is known, or nothing changes."""
    gain: np.ndarray
    """(k, k) size of b against that of a."""
    own_correlation: np.ndarray
    """(k,) largest correlation, by sign and not by size, of a column with its own at any lag."""
    common_lag_corr: np.ndarray
    """(k, k) as `corr`, but at the one lag at which all columns together follow their own best."""

    def is_clear(self, column: int) -> bool:
        """Whether column i of a goes with its own, in either direction."""
        return bool(abs(self.corr[column, column]) > CLEAR_CORRELATION)


def match_columns(rate_pairs: Sequence[RatePair], tick: float, max_lag: float = 0.0) -> ColumnMatch:
    """On ticks of `tick` seconds; a may be later than b by up to `latest` seconds."""
    found = [_match_over_window(rate_pairs, max(1, round(w / tick)), round(max_lag / tick)) for w in WINDOW_SECONDS]
    corr, gain, along, common = (np.array(part) for part in zip(*found, strict=True))
    best, usual = (np.nan_to_num(np.abs(c)).max(2, initial=0.0).argmax(0) for c in (corr, common))
    rows = np.arange(len(best))
    return ColumnMatch(corr[best, rows], gain[best, rows], along[best, rows], common[usual, rows])


def _match_over_window(
    rate_pairs: Sequence[RatePair], ticks: int, lags: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The four parts of a `Match`, of means over so many ticks."""
    k = rate_pairs[0][0].shape[1] if rate_pairs else 0
    corr, gain, along = np.full((k, k), np.nan), np.full((k, k), np.nan), np.full(k, np.nan)
    common, most = corr.copy(), -np.inf
    means = [(_window_means(a, ticks), _window_means(b, ticks)) for a, b in rate_pairs if len(a) >= ticks + lags]
    every = max(1, ticks // WINDOW_OVERLAP)
    for lag in range(0, lags + 1, max(1, lags // LAG_COUNT)) if means else ():
        a = np.concatenate([x[lag::every] for x, _ in means])
        b = np.concatenate([y[: len(y) - lag : every] for _, y in means])
        rows = [_column_correlation(x, b, MIN_WINDOWS * ticks / every) for x in a.T]
        c, g = (np.array(part) for part in zip(*rows, strict=True))
        better = np.isfinite(c) & ~(np.abs(c) <= np.abs(corr))
        corr, gain, along = np.where(better, c, corr), np.where(better, g, gain), np.fmax(along, np.diag(c))
        if (total := np.nansum(np.diag(c))) > most:
            common, most = c, total
    return corr, gain, along, common


def _column_correlation(a: np.ndarray, b: np.ndarray, min_samples: float) -> tuple[np.ndarray, np.ndarray]:
    """Correlation of a, (T,), with each column of b, (T, k), and the size of the latter against a's; NaN if too short."""
    both = np.isfinite(a)[:, None] & np.isfinite(b)
    n = np.maximum(both.sum(0), 1)
    x, y = np.where(both, a[:, None], 0.0), np.where(both, b, 0.0)
    x, y = np.where(both, x - x.sum(0) / n, 0.0), np.where(both, y - y.sum(0) / n, 0.0)
    xx, yy, xy = (x * x).sum(0), (y * y).sum(0), (x * y).sum(0)
    # What is left of a constant by rounding is no motion.
    tiny = 1e-20 * np.array([np.nansum(a * a) + np.zeros(len(xx)), np.nansum(b * b, axis=0)])
    good = (both.sum(0) >= min_samples) & (xx > tiny[0]) & (yy > tiny[1])
    with np.errstate(all="ignore"):
        return np.where(good, xy / np.sqrt(xx * yy), np.nan), np.where(good, np.sqrt(yy / xx), np.nan)


def _window_means(x: np.ndarray, ticks: int) -> np.ndarray:
    """Of every window of so many ticks, (T - ticks + 1, k); NaN where one is in it."""
    bad = ~np.isfinite(x)
    total = np.cumsum(np.concatenate([np.zeros((1, x.shape[1])), np.where(bad, 0.0, x)]), axis=0)
    count = np.cumsum(np.concatenate([np.zeros((1, x.shape[1])), bad]), axis=0)
    return np.where(count[ticks:] == count[:-ticks], (total[ticks:] - total[:-ticks]) / ticks, np.nan)


def swapped_columns(match: ColumnMatch, exact: bool = False) -> list[tuple[int, ...]]:
    """Cycles of columns, (i, j, …): a's i goes with b's j, and so on around, each far better than with its own.

    `exact` says that a and b are one motion by definition. Then a column may also go with another's while that other goes
    with nothing, for it does not move. Otherwise all have the same lag: in a gait, legs are alike but for their phase.
    """
    corr = np.nan_to_num(match.corr if exact else match.common_lag_corr)
    left = 1.0 - np.clip(np.abs(corr), 0.0, 0.999) ** 2
    # One that goes against its own is not explained by it, and better by another that it goes with at least as well.
    own = 1.0 - np.clip(np.diag(corr), 0.0, 0.999) ** 2
    order = linear_sum_assignment(np.log(left))[1] if len(left) else np.zeros(0, int)
    goes, better = (CLEAR_CORRELATION, CLEAR_VARIANCE_RATIO) if exact else (FAIR_CORRELATION, FAIR_VARIANCE_RATIO)
    elsewhere = [
        bool(abs(corr[i, j]) > goes and left[i, j] < left[i, i] and better * left[i, j] < own[i]) for i, j in enumerate(order)
    ]
    nowhere = [exact and bool(np.abs(row).max() < CLEAR_CORRELATION) for row in corr]
    cycles, seen = [], set()
    for first in range(len(order)):
        cycle = [first]
        while (after := int(order[cycle[-1]])) != first:
            cycle.append(after)
        if len(cycle) == 1 or seen & set(cycle):
            continue
        seen |= set(cycle)
        if all(elsewhere[i] for i in cycle):
            cycles.append(tuple(cycle))
        elif all(elsewhere[i] or nowhere[i] for i in cycle):
            cycles += [(i, int(order[i])) for i in cycle if elsewhere[i]]
    return cycles


@dataclass(frozen=True)
class Mismatch:
    kind: Literal["swapped", "sign", "unit"]
    columns: tuple[int, ...]
    gain: float = 1.0


def mismatches(match: ColumnMatch, gain_range: tuple[float, float], swaps: Sequence[tuple[int, ...]]) -> list[Mismatch]:
    """What is wrong between a and b, beside the columns that are `exchanged`.

    `sizes` are the gains that are fine. What all columns have in common is one verdict.
    """
    away = {i for cycle in swaps for i in cycle}
    judged = [i for i in range(len(match.corr)) if i not in away and match.is_clear(i)]
    out = [Mismatch("swapped", cycle) for cycle in swaps]
    # In a fast wave, half a wave later looks like the opposite sign: then neither is said.
    flipped = [i for i in judged if match.corr[i, i] < 0 and match.own_correlation[i] < MAX_UNRELATED_CORRELATION]
    out += [Mismatch("sign", rows) for rows in _merge_if_all(flipped, judged)]
    gains = np.diag(match.gain)
    odd = [i for i in judged if not gain_range[0] < gains[i] < gain_range[1]]
    alike = bool(odd) and max(gains[odd]) < COMMON_GAIN_RATIO * min(gains[odd])
    parts = _merge_if_all(odd, judged) if alike else [(i,) for i in odd]
    return out + [Mismatch("unit", rows, float(np.median(gains[list(rows)]))) for rows in parts]


def _merge_if_all(columns: Sequence[int], judged: Sequence[int]) -> list[tuple[int, ...]]:
    """All in one if they are all that was judged, else one by one."""
    return [tuple(columns)] if columns and len(columns) == len(judged) else [(i,) for i in columns]


def vector_correlation(rate_pairs: Sequence[RatePair], tick: float) -> float:
    """Correlation of all columns together, as of a vector; NaN if too little is known."""
    best = np.nan
    for window in WINDOW_SECONDS:
        ticks = max(1, round(window / tick))
        means = [(_window_means(a, ticks), _window_means(b, ticks)) for a, b in rate_pairs if len(a) >= ticks]
        if not means:
            continue
        a, b = (np.concatenate(part) for part in zip(*means, strict=True))
        good = np.isfinite(a).all(1) & np.isfinite(b).all(1)
        if good.sum() < MIN_WINDOWS * ticks:
            continue
        a, b = a[good] - a[good].mean(0), b[good] - b[good].mean(0)
        size = np.sqrt((a * a).sum() * (b * b).sum())
        if size > 0 and not abs(now := float((a * b).sum() / size)) <= abs(best):
            best = now
    return best


def explains_far_better(current: float, alternative: float) -> bool:
    """Whether with a correlation of `other` far less is left unexplained than with that of `now`."""
    return bool(
        alternative > CLEAR_CORRELATION
        and (np.isnan(current) or 1.0 - max(current, 0.0) ** 2 > CLEAR_VARIANCE_RATIO * (1.0 - alternative**2))
    )
