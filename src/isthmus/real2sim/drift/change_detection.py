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

ChangeShape = Literal["jump", "drift"]
CHANGE_SHAPES: tuple[ChangeShape, ...] = ("jump", "drift")
CHANGE_SIZES_STD = {"jump": (1.0, 4.0, 16.0), "drift": (0.1, 0.4, 1.6)}
"""Typical changes to look for, in standard deviations of one recording; of a drift, per recording."""
NOISE_SCALE_PRIOR_DOF = 8.0
"""φ² is believed to be 1 as much as if so many recordings had shown it: noise that is explained has a φ of 1."""
MIN_LAST_RECORDINGS = 3
"""Recordings at the end, at least, that tell what a drift has come to."""
CREDIBLE_SHARE = 0.9
"""Share of the evidence that must speak for one shape, and that the interval of the time holds."""


@dataclass(frozen=True)
class ChangeEvidence:
    """For a change of one number, recording by recording."""

    log_evidence: np.ndarray
    """(n,) logarithm of the sum over all times of change."""
    log_evidence_by_start: np.ndarray
    """(n,) the same after the last recording, by the recording at which the change begins."""
    log_evidence_by_shape: dict[ChangeShape, float]
    y: np.ndarray
    """(n,) and (n, n): what was given."""
    covariance: np.ndarray
    unchanged: int
    """Recordings at the beginning that are known to be without a change."""

    def first_alarm(self, threshold: float) -> int | None:
        """The first recording after which the evidence, no logarithm, has reached a level."""
        over = np.flatnonzero(self.log_evidence >= np.log(threshold))
        return int(over[0]) if len(over) else None

    @property
    def shape(self) -> ChangeShape | None:
        """None: the recordings do not tell."""
        best = max(CHANGE_SHAPES, key=lambda s: self.log_evidence_by_shape[s])
        share = np.exp(
            self.log_evidence_by_shape[best]
            - np.logaddexp(self.log_evidence_by_shape["jump"], self.log_evidence_by_shape["drift"])
        )
        return best if share >= CREDIBLE_SHARE else None

    @property
    def change_start(self) -> tuple[int, int, int]:
        """The first recording that is changed: the most likely one, and an interval."""
        share = np.exp(self.log_evidence_by_start - self.log_evidence_by_start.max())
        part = np.cumsum(share) / share.sum()
        low, high = (int(np.searchsorted(part, p)) for p in ((1 - CREDIBLE_SHARE) / 2, (1 + CREDIBLE_SHARE) / 2))
        return int(np.argmax(self.log_evidence_by_start)), low, min(high, len(part) - 1)


@dataclass(frozen=True)
class ChangeSize:
    """Of a change that begins at a recording: how large it is after the last one, and the scale of the noise beside it."""

    final_value: float
    standard_error: float
    """Standard error."""
    degrees_of_freedom: float
    """Degrees of freedom that the scale is known with."""
    profile: np.ndarray
    """(n,) change at each recording."""

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        reach = float(student.ppf(0.5 + level / 2, self.degrees_of_freedom)) * self.standard_error
        return self.final_value - reach, self.final_value + reach


def change_profile(n: int, shape: ChangeShape, start: int | None = None) -> np.ndarray:
    """Unit changes over n recordings, by the recording at which they begin, (n, n), or of one of them, (n,)."""
    ago = np.arange(n)[:, None] - np.arange(n)[None, :]
    every = (ago >= 0).astype(float) if shape == "jump" else np.maximum(ago + 1.0, 0.0)
    return every if start is None else every[:, start]


def change_evidence(y: np.ndarray, covariance: np.ndarray, unchanged: int = 0) -> ChangeEvidence:
    """For changes that begin after the first `unchanged` recordings; those only tell the scale of the noise."""
    n = len(y)
    root = np.linalg.cholesky(covariance)
    eps = solve_triangular(root, y, lower=True)
    energy, count = NOISE_SCALE_PRIOR_DOF + np.cumsum(eps**2)[:, None], NOISE_SCALE_PRIOR_DOF + np.arange(1, n + 1)[:, None]
    unit = float(np.sqrt(np.median(np.diag(covariance))))
    possible = (np.arange(n)[:, None] >= np.arange(n)) & (np.arange(n) >= unchanged)
    logs: dict[ChangeShape, np.ndarray] = {}
    for shape in CHANGE_SHAPES:
        h = solve_triangular(root, change_profile(n, shape), lower=True)
        a, b = np.cumsum(h * eps[:, None], axis=0), np.cumsum(h**2, axis=0)
        sized = []
        for size in CHANGE_SIZES_STD[shape]:
            wide = (size * unit) ** 2
            left = energy - a**2 * wide / (1.0 + b * wide)
            sized.append(0.5 * count * (np.log(energy) - np.log(left)) - 0.5 * np.log1p(b * wide))
        mean = _log_sum_exp(np.stack(sized), 0) - np.log(len(sized) * len(CHANGE_SHAPES))
        logs[shape] = np.where(possible, mean, -np.inf)
    both = np.logaddexp(logs["jump"], logs["drift"])
    last: dict[ChangeShape, float] = {shape: float(_log_sum_exp(log[-1], 0)) for shape, log in logs.items()}
    return ChangeEvidence(_log_sum_exp(both, 1), both[-1], last, y, covariance, unchanged)


def change_size(y: np.ndarray, covariance: np.ndarray, shape: ChangeShape, start: int) -> ChangeSize:
    """Of a change that begins at k, by weighted least squares; what a drift has come to is told by the last third of it.

    Nothing drifts along a straight line for ever, so that a line through all of it would be sure of the wrong end.
    """
    root, u = np.linalg.cholesky(covariance), change_profile(len(y), shape, start)
    eps, h = solve_triangular(root, y, lower=True), solve_triangular(root, u, lower=True)
    per_unit = float(h @ eps / (h @ h))
    freedom = NOISE_SCALE_PRIOR_DOF + len(y) - 1
    scale = np.sqrt((NOISE_SCALE_PRIOR_DOF + float(((eps - h * per_unit) ** 2).sum())) / freedom)
    if shape == "jump":
        return ChangeSize(per_unit, float(scale / np.sqrt(h @ h)), freedom, per_unit * u)
    last = slice(len(y) - max(min(MIN_LAST_RECORDINGS, len(y) - start), (len(y) - start) // 3), len(y))
    now = float(np.mean(y[last] + per_unit * (u[-1] - u[last])))
    return ChangeSize(now, float(scale * np.sqrt(covariance[last, last].mean())), freedom, per_unit * u)


def alarm_threshold(false_alarms_per_1000: float, tests: int) -> float:
    """Evidence at which one of so many tests gives an alarm, for at most `alarms` false ones per 1,000 recordings in all."""
    return 1000.0 * tests / false_alarms_per_1000


def _log_sum_exp(logs: np.ndarray, axis: int) -> np.ndarray:
    return np.logaddexp.reduce(logs, axis=axis)
