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
"""Share of ticks that may differ."""


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
        wanted = asked_for(episode)
        asked_then = np.asarray(np.isfinite(wanted).all(axis=1))
        size = _size(episode)
        for t in np.flatnonzero(asked_then):
            if t == 0 or not asked_then[t - 1]:
                controller.reset()  # as the runtime does when it asks anew
            row = {name: measured[t, columns] for name, columns in fit.signals.items()} | {n: v[t] for n, v in asked.items()}
            if not all(np.isfinite(v).all() for v in row.values()):
                continue
            out = controller.tick(row)[fit.target]
            off.append(float((np.abs(out - wanted[t]) / size).max()))
    found = np.array(off) if off else np.zeros(0)
    return Parrot(len(found), float((found > SAME).mean()) if off else 0.0, float(found.max()) if off else 0.0)


def asked_for(episode: Episode) -> np.ndarray:
    """(T, m) by a controller; in a recording that does not say, what was sent."""
    return episode.wanted if np.isfinite(episode.wanted).any() else episode.target


def _size(episode: Episode) -> np.ndarray:
    """(m,) of a target: its range by the contract, or what was asked for."""
    target = episode.contract.target
    if target.low and target.high:
        return np.array(target.high) - np.array(target.low)
    return np.maximum(np.nanmax(np.abs(asked_for(episode)), axis=0, initial=0.0), 1e-3)
