"""How far a mean can be trusted."""

from __future__ import annotations

import numpy as np
from scipy import stats


def spread(x: np.ndarray) -> tuple[float, float, float]:
    """Mean of some values and its 95 % interval by Student's t; one value alone tells nothing of how far it can be trusted."""
    mean, reach = float(x.mean()), np.inf
    if len(x) > 1:
        reach = float(stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)))
    return mean, mean - reach, mean + reach
