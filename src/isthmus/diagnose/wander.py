"""Whether what should be none has a mean, or wanders.

d ~ N(0, s² I + b² 1 1ᵀ + w² K + c cᵀ)        d: one stretch of time after the other; K: covariance of a random walk
                                              s: from how stretches that follow each other differ
                                              c: what else may well be in each, all of it or nothing
"""

from __future__ import annotations

import numpy as np

STRETCH = 0.5
"""s"""
FEWEST = 6
"""Stretches from which on there is something to tell."""
WALKS = 0.3
"""Of the bias that a sensor may well have: how far it may well wander in 1 s."""


def stretch(rate: float) -> int:
    """Ticks of one."""
    return max(2, round(STRETCH * rate))


def stretched(x: np.ndarray, rate: float) -> np.ndarray:
    """(n, components) means over stretches of x, (T, components); what is left at the end is left out."""
    ticks = stretch(rate)
    return x[: len(x) // ticks * ticks].reshape(-1, ticks, x.shape[1]).mean(1)


def likely(d: np.ndarray, bias: np.ndarray, wanders: np.ndarray, also: np.ndarray | None = None) -> np.ndarray:
    """(components,) log-likelihood of d, (n, components), with so large a bias, which wanders so far in 1 s; c is `also`."""
    s2, passed = 0.5 * (np.diff(d, axis=0) ** 2).mean(0) + 1e-12, STRETCH * np.arange(1, len(d) + 1)
    walk, each = np.minimum(passed[:, None], passed), []
    for i, y in enumerate(d.T):
        C = s2[i] * np.eye(len(d)) + bias[i] ** 2 + wanders[i] ** 2 * walk
        if also is not None:
            C += np.outer(also[:, i], also[:, i])
        each.append(-0.5 * float(y @ np.linalg.solve(C, y) + np.linalg.slogdet(C)[1]))
    return np.array(each)


def offset(d: np.ndarray, size: float, usual: np.ndarray, wanders: float = 0.0, also: np.ndarray | None = None) -> np.ndarray:
    """(components,) evidence that d has a bias of about `size`, or wanders, beside one of `usual` size, (components,).

    The usual one wanders, too, by a share `wanders` of it in 1 s.
    """
    large, little = np.hypot(usual, size), wanders * usual
    wrong = [likely(d, large, walks, also) for walks in (little, np.hypot(little, WALKS * size))]
    return np.max(wrong, axis=0) - np.log(2.0) - likely(d, usual, little, also)
