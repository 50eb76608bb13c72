"""Whether what should be none has a mean, or wanders.

d ~ N(0, s² I + b² 1 1ᵀ + w² K + c cᵀ)        d: one stretch of time after the other; K: covariance of a random walk
                                              s: from how stretches that follow each other differ
                                              c: what else may well be in each, all of it or nothing
"""

from __future__ import annotations

import numpy as np

STRETCH_SECONDS = 0.5
"""s"""
MIN_STRETCHES = 6
"""Stretches from which on there is something to tell."""
BIAS_WALK_SHARE = 0.3
"""Of the bias that a sensor may well have: how far it may well wander in 1 s."""


def stretch_ticks(rate: float) -> int:
    """Ticks of one."""
    return max(2, round(STRETCH_SECONDS * rate))


def stretch_means(x: np.ndarray, rate: float) -> np.ndarray:
    """(n, components) means over stretches of x, (T, components); what is left at the end is left out."""
    ticks = stretch_ticks(rate)
    return x[: len(x) // ticks * ticks].reshape(-1, ticks, x.shape[1]).mean(1)


def bias_random_walk_likelihood(
    d: np.ndarray, bias: np.ndarray, walk_std: np.ndarray, common_term: np.ndarray | None = None
) -> np.ndarray:
    """(components,) log-likelihood of d, (n, components), with so large a bias, which wanders so far in 1 s; c is `also`."""
    s2, passed = 0.5 * (np.diff(d, axis=0) ** 2).mean(0) + 1e-12, STRETCH_SECONDS * np.arange(1, len(d) + 1)
    walk, each = np.minimum(passed[:, None], passed), []
    for i, y in enumerate(d.T):
        C = s2[i] * np.eye(len(d)) + bias[i] ** 2 + walk_std[i] ** 2 * walk
        if common_term is not None:
            C += np.outer(common_term[:, i], common_term[:, i])
        each.append(-0.5 * float(y @ np.linalg.solve(C, y) + np.linalg.slogdet(C)[1]))
    return np.array(each)


def bias_evidence(
    d: np.ndarray, bias_std: float, usual_std: np.ndarray, walk_share: float = 0.0, common_term: np.ndarray | None = None
) -> np.ndarray:
    """(components,) evidence that d has a bias of about `size`, or wanders, beside one of `usual` size, (components,).

    The usual one wanders, too, by a share `wanders` of it in 1 s.
    """
    large, little = np.hypot(usual_std, bias_std), walk_share * usual_std
    wrong = [
        bias_random_walk_likelihood(d, large, walks, common_term)
        for walks in (little, np.hypot(little, BIAS_WALK_SHARE * bias_std))
    ]
    return np.max(wrong, axis=0) - np.log(2.0) - bias_random_walk_likelihood(d, usual_std, little, common_term)
