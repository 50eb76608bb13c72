"""Recordings as the simulator steps: on the robot's own ticks, in stretches without a hole.

A `Track` is what can be replayed. Targets are held until the next one, as a motor controller holds them; signals are
interpolated between the two stamps around a tick. Where time jumps or a target is missing, a track ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.data.checks.findings import true_runs
from isthmus.data.contract import Contract
from isthmus.data.episode import Episode
from isthmus.sim.robot import Robot

GAP_STEP_RATIO = 2.5
"""A step of time longer than this many usual ones, and longer than this many ticks, is a hole."""
RATE_TOLERANCE = 0.05
"""A recording whose rate differs from the robot's by a smaller share is replayed at the robot's."""
STAMP_TOLERANCE = 0.02
"""Stamps within this share of a tick from a regular grid are taken as they are."""


@dataclass(frozen=True)
class Track:
    """T consecutive ticks of one recording."""

    recording: int
    """Which of the recordings, from 0."""
    start: float
    """s since the start of that recording."""
    target: np.ndarray
    """(T, m) sent at each tick."""
    measured: np.ndarray
    """(T, width) all signals of the contract side by side; NaN where missing."""

    def __len__(self) -> int:
        return len(self.target)


def replay_rate(episodes: Sequence[Episode], contract: Contract) -> float:
    """Ticks per second at which to replay: the recordings' own, the robot's where they are close to it."""
    rates = sorted(e.rate for e in episodes)
    rate = rates[len(rates) // 2]
    return contract.rate if abs(rate / contract.rate - 1.0) < RATE_TOLERANCE else float(f"{rate:.4g}")


def to_tracks(episodes: Iterable[Episode], contract: Contract, tick: float) -> list[Track]:
    """All stretches of all recordings, on ticks of `tick` seconds."""
    return [t for i, episode in enumerate(episodes) for t in _episode_tracks(i, episode, contract, tick)]


def _episode_tracks(recording: int, episode: Episode, contract: Contract, tick: float) -> Iterator[Track]:
    check_contract(episode, contract)
    measured = np.concatenate([episode.signals[s.name] for s in contract.signals], axis=1)
    for piece in _gapless_spans(episode.time, np.asarray(np.isfinite(episode.target).all(axis=1)), tick):
        time, target, signals = episode.time[piece], episode.target[piece], measured[piece]
        grid = time[0] + tick * np.arange(int((time[-1] - time[0]) / tick + 1e-3) + 1)
        if len(grid) != len(time) or np.abs(grid - time).max() > STAMP_TOLERANCE * tick:
            target, signals = _zero_order_hold(time, target, grid), _interpolate(time, signals, grid)
        yield Track(recording, float(time[0]), target, signals)


def check_contract(episode: Episode, contract: Contract) -> None:
    """A recording speaks of this robot, or it is refused: same signals, labels and units, and the same targets."""
    for mine, other in (
        (contract.target, episode.contract.target),
        *((s, _signal_or_none(episode.contract, s.name)) for s in contract.signals),
    ):
        if other is None:
            raise BadInput(f"the recording is of {episode.contract.robot} and has no signal {mine.name!r} of {contract.robot}.")
        if mine.labels != other.labels or mine.units != other.units:
            if episode.contract.robot != contract.robot:
                raise BadInput(f"the recording is of {episode.contract.robot}, not of {contract.robot}.")
            raise BadInput(
                f"{mine.name!r} of the recording has the labels {', '.join(other.labels)} in {other.unit}, "
                f"but those of {contract.robot} are {', '.join(mine.labels)} in {mine.unit}."
            )


def _signal_or_none(contract: Contract, name: str):
    return contract[name] if contract.has(name) else None


def gap_ticks(time: np.ndarray, tick: float) -> np.ndarray:
    """Ticks after which time jumps."""
    steps = np.diff(time)
    return np.flatnonzero(steps > GAP_STEP_RATIO * max(float(np.median(steps)), tick)) if len(steps) else np.zeros(0, int)


def _gapless_spans(time: np.ndarray, valid: np.ndarray, tick: float) -> Iterator[slice]:
    """Stretches in which time goes on and every target is there."""
    if len(time) < 2:
        return
    breaks = np.zeros(len(time) - 1, bool)
    breaks[gap_ticks(time, tick)] = True
    starts = valid & np.concatenate([[True], breaks | ~valid[:-1]])
    ends = valid & np.concatenate([breaks | ~valid[1:], [True]])
    for first, last in zip(np.flatnonzero(starts), np.flatnonzero(ends), strict=True):
        if last > first:
            yield slice(int(first), int(last) + 1)


def _zero_order_hold(time: np.ndarray, values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    at = np.searchsorted(time, grid + 1e-9, side="right") - 1
    return values[np.maximum(at, 0)]


def _interpolate(time: np.ndarray, values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    return np.stack([np.interp(grid, time, column) for column in values.T], axis=1)


def in_control(robot: Robot, episodes: Sequence[Episode], tracks: Sequence[Track]) -> list[Track]:
    """The parts of tracks in which the policy was in control, without those in which the robot got up or sat down."""
    out, rate = [], robot.contract.rate
    for track in tracks:
        for a, b in true_runs(control_mask(episodes[track.recording], track, rate)):
            out.append(replace(track, start=track.start + a / rate, target=track.target[a:b], measured=track.measured[a:b]))
    return out


def control_mask(episode: Episode, track: Track, rate: float) -> np.ndarray:
    """(T,) whether the policy was in control at each tick of a track; always in a recording that does not say."""
    wanted = np.asarray(np.isfinite(episode.wanted).all(axis=1))
    if not wanted.any():
        return np.ones(len(track), bool)
    return wanted[episode_tick(episode, track, rate)]


def episode_tick(episode: Episode, track: Track, rate: float) -> np.ndarray:
    """(T,) the sample of the episode that holds at each tick of a track."""
    time = track.start + np.arange(len(track)) / rate
    return np.clip(np.searchsorted(episode.time, time + 0.25 / rate, side="right") - 1, 0, len(episode) - 1)


def longest_run(mask: np.ndarray) -> tuple[int, int]:
    """First tick and length of the longest run of True, (T,); 0, 0 without any."""
    start, stop = max(true_runs(mask), key=lambda run: run[1] - run[0], default=(0, 0))
    return start, stop - start
