"""Has a number changed, and since when? A sequential test with a false-alarm rate that can be stated beforehand.

    y                       (n,) what each recording by itself says about the number, in the order of time
    Σ                       (n, n) covariance of y without a change: noise of each, and the error of what they are compared with
    ε = L⁻¹ y, L Lᵀ = Σ     independent without a change; row i needs only recordings up to i
    h = L⁻¹ u               what a change of the shape u does to ε: a jump, or a drift that begins at recording k

The evidence for a change at k is the likelihood with it over the likelihood without it, averaged over sizes and over the
unknown scale φ of Σ. Without a change its expectation is 1 at any time, so that the sum over all k grows by 1 per recording on
average (Shiryaev and Roberts). It reaches A within n recordings with a probability of at most n / A: that is the promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import solve_triangular
from scipy.stats import t as student

Shape = Literal["jump", "drift"]
SHAPES: tuple[Shape, ...] = ("jump", "drift")
SIZES = {"jump": (1.0, 4.0, 16.0), "drift": (0.1, 0.4, 1.6)}
"""Typical changes to look for, in standard deviations of one recording; of a drift, per recording."""
SURE = 8.0
"""φ² is believed to be 1 as much as if so many recordings had shown it: noise that is explained has a φ of 1."""
LAST = 3
"""Recordings at the end, at least, that tell what a drift has come to."""
TOLD = 0.9
"""Share of the evidence that must speak for one shape, and that the interval of the time holds."""


@dataclass(frozen=True)
class Evidence:
    """For a change of one number, recording by recording."""

    total: np.ndarray
    """(n,) logarithm of the sum over all times of change."""
    by_time: np.ndarray
    """(n,) the same after the last recording, by the recording at which the change begins."""
    by_shape: dict[Shape, float]
    y: np.ndarray
    """(n,) and (n, n): what was given."""
    covariance: np.ndarray
    unchanged: int
    """Recordings at the beginning that are known to be without a change."""

    def alarm(self, level: float) -> int | None:
        """The first recording after which the evidence, no logarithm, has reached a level."""
        over = np.flatnonzero(self.total >= np.log(level))
        return int(over[0]) if len(over) else None

    @property
    def shape(self) -> Shape | None:
        """None: the recordings do not tell."""
        best = max(SHAPES, key=lambda s: self.by_shape[s])
        share = np.exp(self.by_shape[best] - np.logaddexp(self.by_shape["jump"], self.by_shape["drift"]))
        return best if share >= TOLD else None

    @property
    def since(self) -> tuple[int, int, int]:
        """The first recording that is changed: the most likely one, and an interval."""
        share = np.exp(self.by_time - self.by_time.max())
        part = np.cumsum(share) / share.sum()
        low, high = (int(np.searchsorted(part, p)) for p in ((1 - TOLD) / 2, (1 + TOLD) / 2))
        return int(np.argmax(self.by_time)), low, min(high, len(part) - 1)


@dataclass(frozen=True)
class Size:
    """Of a change that begins at a recording: how large it is after the last one, and the scale of the noise beside it."""

    now: float
    spread: float
    """Standard error."""
    freedom: float
    """Degrees of freedom that the scale is known with."""
    course: np.ndarray
    """(n,) change at each recording."""

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        reach = float(student.ppf(0.5 + level / 2, self.freedom)) * self.spread
        return self.now - reach, self.now + reach


def course(n: int, shape: Shape, k: int | None = None) -> np.ndarray:
    """Unit changes over n recordings, by the recording at which they begin, (n, n), or of one of them, (n,)."""
    ago = np.arange(n)[:, None] - np.arange(n)[None, :]
    every = (ago >= 0).astype(float) if shape == "jump" else np.maximum(ago + 1.0, 0.0)
    return every if k is None else every[:, k]


def evidence(y: np.ndarray, covariance: np.ndarray, unchanged: int = 0) -> Evidence:
    """For changes that begin after the first `unchanged` recordings; those only tell the scale of the noise."""
    n = len(y)
    root = np.linalg.cholesky(covariance)
    eps = solve_triangular(root, y, lower=True)
    energy, count = SURE + np.cumsum(eps**2)[:, None], SURE + np.arange(1, n + 1)[:, None]
    unit = float(np.sqrt(np.median(np.diag(covariance))))
    possible = (np.arange(n)[:, None] >= np.arange(n)) & (np.arange(n) >= unchanged)
    logs: dict[Shape, np.ndarray] = {}
    for shape in SHAPES:
        h = solve_triangular(root, course(n, shape), lower=True)
        a, b = np.cumsum(h * eps[:, None], axis=0), np.cumsum(h**2, axis=0)
        sized = []
        for size in SIZES[shape]:
            wide = (size * unit) ** 2
            left = energy - a**2 * wide / (1.0 + b * wide)
            sized.append(0.5 * count * (np.log(energy) - np.log(left)) - 0.5 * np.log1p(b * wide))
        mean = _log_sum(np.stack(sized), 0) - np.log(len(sized) * len(SHAPES))
        logs[shape] = np.where(possible, mean, -np.inf)
    both = np.logaddexp(logs["jump"], logs["drift"])
    last: dict[Shape, float] = {shape: float(_log_sum(log[-1], 0)) for shape, log in logs.items()}
    return Evidence(_log_sum(both, 1), both[-1], last, y, covariance, unchanged)


def size(y: np.ndarray, covariance: np.ndarray, shape: Shape, k: int) -> Size:
    """Of a change that begins at k, by weighted least squares; what a drift has come to is told by the last third of it.

    Nothing drifts along a straight line for ever, so that a line through all of it would be sure of the wrong end.
    """
    root, u = np.linalg.cholesky(covariance), course(len(y), shape, k)
    eps, h = solve_triangular(root, y, lower=True), solve_triangular(root, u, lower=True)
    per_unit = float(h @ eps / (h @ h))
    freedom = SURE + len(y) - 1
    scale = np.sqrt((SURE + float(((eps - h * per_unit) ** 2).sum())) / freedom)
    if shape == "jump":
        return Size(per_unit, float(scale / np.sqrt(h @ h)), freedom, per_unit * u)
    last = slice(len(y) - max(min(LAST, len(y) - k), (len(y) - k) // 3), len(y))
    now = float(np.mean(y[last] + per_unit * (u[-1] - u[last])))
    return Size(now, float(scale * np.sqrt(covariance[last, last].mean())), freedom, per_unit * u)


def level(alarms: float, tests: int) -> float:
    """Evidence at which one of so many tests gives an alarm, for at most `alarms` false ones per 1,000 recordings in all."""
    return 1000.0 * tests / alarms


def _log_sum(logs: np.ndarray, axis: int) -> np.ndarray:
    return np.logaddexp.reduce(logs, axis=axis)
