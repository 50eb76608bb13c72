"""The parabola through a few ticks of a signal: what a smooth motion would look like there."""

from __future__ import annotations

import numpy as np

SG_HALF_TICKS = 2
"""Ticks on either side of the one in the middle."""


def _savitzky_golay_taps() -> np.ndarray:
    t = np.arange(-SG_HALF_TICKS, SG_HALF_TICKS + 1)
    return np.linalg.pinv(np.stack([np.ones_like(t), t, t * t], axis=1))


SG_VALUE, SG_SLOPE, _ = _savitzky_golay_taps()
"""Weights of the ticks, (2 HALF + 1,), that give its value and its slope per tick in the middle."""
