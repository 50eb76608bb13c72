"""The controller on its own recorded signals: does it ask again for what it asked for then?

If not, what ran was another controller, or its history was not what its graph makes of these signals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.data.episode import Episode
from isthmus.deploy.controller import Controller
from isthmus.deploy.fit import Fit
from isthmus.gap.closed import commands

SAME = 1e-3
"""Of a target's own range: rounding of a recording makes no larger difference."""
MOST = 0.05
"""Share of ticks that may differ: a policy that is asked anew after a hold has another memory for a while."""


@dataclass(frozen=True)
class Parrot:
    ticks: int
    """Compared."""
    share: float
    """Of them, in which another target came out."""
    worst: float
    """Largest difference, in the target's range."""

    @property
    def differs(self) -> bool:
        return self.ticks > 0 and self.share > MOST


def parrot(controller: Controller, episodes: Sequence[Episode]) -> Parrot:
    off: list[float] = []
    for episode in episodes:
        fit = Fit.by_name(controller.manifest, episode.contract)
        asked, measured = (
            commands(controller, episode),
            np.concatenate([episode.signals[s.name] for s in episode.contract.signals], 1),
        )
        wanted = episode.wanted
        size = np.maximum(np.ptp(np.nan_to_num(wanted), axis=0), 1e-6)
        controller.reset()
        for t in np.flatnonzero(np.isfinite(wanted).all(1)):
            row = {name: measured[t, columns] for name, columns in fit.signals.items()} | {n: v[t] for n, v in asked.items()}
            if not all(np.isfinite(v).all() for v in row.values()):
                continue
            out = controller.tick(row)[fit.target]
            off.append(float((np.abs(out - wanted[t]) / size).max()))
    found = np.array(off) if off else np.zeros(0)
    return Parrot(len(found), float((found > SAME).mean()) if off else 0.0, float(found.max()) if off else 0.0)
