"""Whether what should be none has a mean, or wanders.

d ~ N(0, s² I + b² 1 1ᵀ + w² K)        d: one stretch of time after the other; K: covariance of a random walk
                                       s: from how stretches that follow each other differ
"""

from __future__ import annotations

import numpy as np

STRETCH = 25
"""Ticks."""
FEWEST = 6
"""Stretches from which on there is something to tell."""
WALKS = 0.3
"""Of the bias that a sensor may well have: how far it may well wander in 1 s."""


def likely(d: np.ndarray, bias: np.ndarray, wanders: np.ndarray, seconds: float) -> np.ndarray:
    """(components,) log-likelihood of d, (n, components), with so large a bias, which wanders so far in 1 s."""
    n, noise = len(d), 0.5 * (np.diff(d, axis=0) ** 2).mean(0) + 1e-12
    passed = seconds * np.arange(1, n + 1)
    walk, each = np.minimum(passed[:, None], passed), []
    for y, s2, b, w in zip(d.T, noise, bias, wanders, strict=True):
        C = s2 * np.eye(n) + b**2 + w**2 * walk
        each.append(-0.5 * float(y @ np.linalg.solve(C, y) + np.linalg.slogdet(C)[1]))
    return np.array(each)


def offset(d: np.ndarray, size: float, usual: np.ndarray, seconds: float, wanders: float = 0.0) -> np.ndarray:
    """(components,) evidence that d has a bias of about `size`, or wanders, against one of `usual` size, (components,).

    The usual one wanders, too, by a share `wanders` of it in 1 s.
    """
    large, little = np.full(d.shape[1], size), wanders * usual
    wrong = [likely(d, large, walks, seconds) for walks in (little, np.maximum(little, WALKS * large))]
    return np.max(wrong, axis=0) - likely(d, usual, little, seconds)
