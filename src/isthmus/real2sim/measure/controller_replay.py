"""The controller on its own recorded signals: does it ask again for what it asked for then?

If not, what ran was another controller, or its history was not what its graph makes of these signals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.data.episode import Episode
from isthmus.deploy.controller import Controller
from isthmus.deploy.signal_map import SignalMap
from isthmus.real2sim.measure.closed_loop import operator_commands

TARGET_TOLERANCE = 1e-3
"""Of a target's own range: rounding of a recording makes no larger difference."""
MAX_DIFFERING_SHARE = 0.05
"""Share of ticks that may differ."""


@dataclass(frozen=True)
class ControllerReplay:
    ticks: int
    """Compared."""
    share: float
    """Of them, in which another target came out."""
    worst: float
    """Largest difference, in the target's range."""

    @property
    def differs(self) -> bool:
        return self.ticks > 0 and self.share > MAX_DIFFERING_SHARE


def replay_controller(controller: Controller, episodes: Sequence[Episode]) -> ControllerReplay:
    off: list[np.ndarray] = [np.zeros(0)]
    for episode in episodes:
        ticks, out = _replayed_targets(controller, episode, np.asarray(np.isfinite(episode.wanted).all(axis=1)))
        off.append((np.abs(out - episode.wanted[ticks]) / _target_range(episode, episode.wanted)).max(axis=1, initial=0.0))
    found = np.concatenate(off)
    return ControllerReplay(
        len(found), float((found > TARGET_TOLERANCE).mean()) if len(found) else 0.0, float(found.max(initial=0.0))
    )


def target_mismatch(controller: Controller, episode: Episode) -> float:
    """How far what was sent is from what the controller would have sent: median over ticks, in the target's range.

    For recordings of others: logged a tick early or late, clipped on the way, and not from the first tick on.
    """
    ticks, out = _replayed_targets(controller, episode, np.asarray(np.isfinite(episode.target).all(axis=1)))
    if not len(ticks):
        return 0.0
    sent = [episode.target[np.clip(ticks + late, 0, len(episode) - 1)] for late in (-1, 0, 1)]
    off = [(np.abs(out - x) / _target_range(episode, episode.target)).max(axis=1) for x in sent]
    return min(float(np.nanmedian(x)) for x in off)


def _replayed_targets(controller: Controller, episode: Episode, recorded_mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of ticks in which it was asked `then`, (T,), those with whole signals, (k,), and what it asks for now, (k, m)."""
    fit = SignalMap.by_name(controller.manifest, episode.contract)
    asked = operator_commands(controller, episode)
    measured = np.concatenate([episode.signals[s.name] for s in episode.contract.signals], 1)
    ticks, out = [], []
    for t in np.flatnonzero(recorded_mask):
        if t == 0 or not recorded_mask[t - 1]:
            controller.reset()  # as the runtime does when it asks anew
        row = {name: measured[t, columns] for name, columns in fit.signal_columns.items()} | {n: v[t] for n, v in asked.items()}
        if all(np.isfinite(v).all() for v in row.values()):
            ticks.append(t)
            out.append(controller.tick(row)[fit.target_order])
    return np.array(ticks, int), np.array(out).reshape(len(out), episode.contract.target.size)


def _target_range(episode: Episode, targets: np.ndarray) -> np.ndarray:
    """(m,) of a target: its range by the contract, or what was asked for, (T, m)."""
    target = episode.contract.target
    if target.low and target.high:
        return np.array(target.high) - np.array(target.low)
    return np.maximum(np.nanmax(np.abs(targets), axis=0, initial=0.0), 1e-3)
