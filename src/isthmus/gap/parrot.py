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
    off: list[np.ndarray] = [np.zeros(0)]
    for episode in episodes:
        ticks, out = _asked_again(controller, episode, np.asarray(np.isfinite(episode.wanted).all(axis=1)))
        off.append((np.abs(out - episode.wanted[ticks]) / _size(episode, episode.wanted)).max(axis=1, initial=0.0))
    found = np.concatenate(off)
    return Parrot(len(found), float((found > SAME).mean()) if len(found) else 0.0, float(found.max(initial=0.0)))


def strangeness(controller: Controller, episode: Episode) -> float:
    """How far what was sent is from what the controller would have sent: median over ticks, in the target's range.

    For recordings of others: logged a tick early or late, clipped on the way, and not from the first tick on.
    """
    ticks, out = _asked_again(controller, episode, np.asarray(np.isfinite(episode.target).all(axis=1)))
    if not len(ticks):
        return 0.0
    sent = [episode.target[np.clip(ticks + late, 0, len(episode) - 1)] for late in (-1, 0, 1)]
    off = [(np.abs(out - x) / _size(episode, episode.target)).max(axis=1) for x in sent]
    return min(float(np.nanmedian(x)) for x in off)


def _asked_again(controller: Controller, episode: Episode, then: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of ticks in which it was asked `then`, (T,), those with whole signals, (k,), and what it asks for now, (k, m)."""
    fit = Fit.by_name(controller.manifest, episode.contract)
    asked = commands(controller, episode)
    measured = np.concatenate([episode.signals[s.name] for s in episode.contract.signals], 1)
    ticks, out = [], []
    for t in np.flatnonzero(then):
        if t == 0 or not then[t - 1]:
            controller.reset()  # as the runtime does when it asks anew
        row = {name: measured[t, columns] for name, columns in fit.signals.items()} | {n: v[t] for n, v in asked.items()}
        if all(np.isfinite(v).all() for v in row.values()):
            ticks.append(t)
            out.append(controller.tick(row)[fit.target])
    return np.array(ticks, int), np.array(out).reshape(len(out), episode.contract.target.size)


def _size(episode: Episode, asked: np.ndarray) -> np.ndarray:
    """(m,) of a target: its range by the contract, or what was asked for, (T, m)."""
    target = episode.contract.target
    if target.low and target.high:
        return np.array(target.high) - np.array(target.low)
    return np.maximum(np.nanmax(np.abs(asked), axis=0, initial=0.0), 1e-3)
