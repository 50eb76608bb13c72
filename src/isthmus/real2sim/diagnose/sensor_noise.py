"""Sensors that are noisier than was believed: a policy that never saw such noise shakes.

σ           of a signal, from its quietest moments: noise is always there, quick motion is not
evidence    n (log r - ½ (1 - r⁻²)),   r = σ / the largest that was believed: what white noise of n ticks says of its size
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.real2sim.diagnose.wiring_evidence import OTHER_UNITS
from isthmus.real2sim.prepare.savitzky_golay import SG_HALF_TICKS, SG_VALUE
from isthmus.real2sim.prepare.tracks import Track
from isthmus.real2sim.residual.prior import noise_parameters
from isthmus.sim.robot import Robot
from isthmus.world import Belief

QUIET_WINDOW_TICKS = 25
"""Ticks of a moment."""
QUIET_QUANTILE = 0.2
"""Share of the moments that are quieter than the one that is taken."""
EFFECTIVE_TICKS = 50.0
"""Ticks that speak for themselves, however many there are: noise is never quite white."""
BELIEVED_NOISE_RATIO = 1.5
"""The largest over the least that is believed, where somebody is sure of it."""
MAX_NOISE_RATIO, OTHER_UNIT_RATIO = 4.0, 10.0
"""Times the largest that was believed: from the first on, more says no more; from the second on, it is another unit."""


@dataclass(frozen=True)
class SignalNoise:
    """Of one signal."""

    signal: str
    unit: str
    sigma: float
    low: float
    """Of what was believed."""
    high: float

    @property
    def evidence(self) -> float:
        """Log odds that it is larger than was believed, against that it is not; 0 where it is not."""
        r = self.sigma / max(self.high, 1e-12)
        if r <= 1.0 or (r >= OTHER_UNIT_RATIO and self.unit in OTHER_UNITS):
            return 0.0
        r = min(r, MAX_NOISE_RATIO)
        return EFFECTIVE_TICKS * float(np.log(r) - 0.5 * (1.0 - r**-2))

    @property
    def text(self) -> str:
        unit = "" if self.unit == "1" else f" {self.unit}"
        return f"{self.signal} noise of at least {self.sigma:.2g}{unit}, not {self.low:.2g} to {self.high:.2g}"


def signal_noises(robot: Robot, tracks: Sequence[Track], belief: Belief) -> list[SignalNoise]:
    """Of all signals whose noise somebody believed something of."""
    at, out = robot.contract.slices(), []
    for name, signal in noise_parameters(robot.space).items():
        sigma = quiet_noise([track.measured[:, at[signal]] for track in tracks])
        if np.isfinite(sigma):
            low, high = belief.interval(name, 1.0)
            # What was fitted to one recording is a little different in another.
            out.append(SignalNoise(signal, robot.contract[signal].unit, sigma, low, max(high, BELIEVED_NOISE_RATIO * low)))
    return out


def quiet_noise(signals: Sequence[np.ndarray]) -> float:
    """σ of a signal's usual component in the quietest moments of its parts, (T, components); NaN if none is long enough."""
    row = np.eye(len(SG_VALUE))[SG_HALF_TICKS] - SG_VALUE
    row /= np.linalg.norm(row)
    moments = []
    for y in signals:
        count = (len(y) - 2 * SG_HALF_TICKS) // QUIET_WINDOW_TICKS
        if count > 0:
            rest = np.stack([np.convolve(c, row[::-1], mode="valid") for c in y.T], axis=1)[: count * QUIET_WINDOW_TICKS]
            moments.append((rest.reshape(count, QUIET_WINDOW_TICKS, -1) ** 2).mean(1))
    if not moments:
        return float("nan")
    together = np.concatenate(moments)
    together = together[np.isfinite(together).all(1)]
    return float(np.sqrt(np.median(np.quantile(together, QUIET_QUANTILE, axis=0)))) if len(together) else float("nan")
