"""How a residual counts: by its square where it is small, by its size where it is large."""

from __future__ import annotations

import numpy as np

HUBER_SIGMAS = 3.0
"""Residuals beyond this many σ count by their size instead of its square."""


def robust_weights(r: np.ndarray) -> np.ndarray:
    """Of each residual in the normal equations: 1 where small, falling as SOFT / |r|."""
    return 1.0 / np.sqrt(1.0 + (r / HUBER_SIGMAS) ** 2)


def pseudo_huber_loss(r: np.ndarray) -> np.ndarray:
    """ρ(r): r²/2 where small, SOFT · |r| where large."""
    return HUBER_SIGMAS**2 * (np.sqrt(1.0 + (r / HUBER_SIGMAS) ** 2) - 1.0)
