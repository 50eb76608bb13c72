"""The same commands in the simulator: the controller in the loop, from where the recording began, in many worlds.

A `Stretch` is a part of a recording in which the policy was in charge. `relive` runs the controller's own graph through it in
worlds of its own: it gets what simulated sensors say and the operator's recorded commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isthmus.data.episode import Episode
from isthmus.deploy.controller import Controller
from isthmus.deploy.crowd import Crowd
from isthmus.deploy.fit import Fit
from isthmus.errors import BadInput
from isthmus.gap.parabola import HALF
from isthmus.gap.segments import StateReader, past_kept
from isthmus.gap.tracks import Track
from isthmus.sim.engine import Engine
from isthmus.sim.robot import Robot

LONGEST, SHORTEST = 20.0, 1.0
"""s of a stretch."""


@dataclass(frozen=True)
class Stretch:
    """T ticks of one recording."""

    recording: int
    start: float
    """s since the start of the recording."""
    measured: np.ndarray
    """(T, width)"""
    target: np.ndarray
    """(T, m)"""
    operator: Mapping[str, np.ndarray]
    """(T, k) per signal of the operator; (T, n, k) where n worlds are each asked for something else."""
    before: np.ndarray
    """(k, width) what the policy saw before, from when it took over, and what the operator asked, (k, …) per signal."""
    asked_before: Mapping[str, np.ndarray]
    sent: np.ndarray
    """(kept, m) targets before it, newest first."""
    qpos: np.ndarray
    """(nq,) and (nv,): guess of the state at its first tick."""
    qvel: np.ndarray

    def __len__(self) -> int:
        return len(self.target)

    def first(self, ticks: int) -> Stretch:
        """So many ticks of it, at most."""
        asked = {name: rows[:ticks] for name, rows in self.operator.items()}
        return replace(self, measured=self.measured[:ticks], target=self.target[:ticks], operator=asked)


@dataclass(frozen=True)
class Lived:
    """n worlds over T ticks."""

    measured: np.ndarray
    """(n, T, width), NaN from where the physics of a world failed."""
    target: np.ndarray
    """(n, T, m)"""


def stretches(robot: Robot, controller: Controller, episodes: Sequence[Episode], found: Sequence[Track]) -> list[Stretch]:
    """Of each recording the longest part in which the policy was in charge; none of a recording where that is too short."""
    rate, out = robot.contract.rate, []
    reader = StateReader(robot)
    for i, episode in enumerate(episodes):
        best: tuple[int, Track, int] | None = None
        for track in (t for t in found if t.recording == i):
            first, length = _longest(_in_charge(episode, track, rate))
            if length >= SHORTEST * rate + 2 * HALF and (best is None or length > best[2]):
                best = first, track, length
        if best is not None:
            first, track, length = best
            part = slice(first, first + min(length, round(LONGEST * rate)))
            out.append(_stretch(robot, controller, reader, episode, track, part))
    return out


def charged(robot: Robot, episodes: Sequence[Episode], found: Sequence[Track]) -> list[Track]:
    """The parts in which the policy was in charge, without those in which the robot got up or sat down."""
    out, rate = [], robot.contract.rate
    for track in found:
        edges = _edges(_in_charge(episodes[track.recording], track, rate))
        for a, b in zip(edges[::2], edges[1::2], strict=True):
            out.append(replace(track, start=track.start + a / rate, target=track.target[a:b], measured=track.measured[a:b]))
    return out


def _in_charge(episode: Episode, track: Track, rate: float) -> np.ndarray:
    """(T,) whether the policy was asked: in a recording that does not say, always."""
    wanted = np.asarray(np.isfinite(episode.wanted).all(axis=1))
    if not wanted.any():
        return np.ones(len(track), bool)
    return wanted[_held(episode, track, rate)]


def _held(episode: Episode, track: Track, rate: float) -> np.ndarray:
    """The tick of the episode that each tick of a track is in."""
    time = track.start + np.arange(len(track)) / rate
    return np.clip(np.searchsorted(episode.time, time + 0.25 / rate, side="right") - 1, 0, len(episode) - 1)


def _longest(where: np.ndarray) -> tuple[int, int]:
    edges = _edges(where)
    starts, ends = edges[::2], edges[1::2]
    if not len(starts):
        return 0, 0
    i = int(np.argmax(ends - starts))
    return int(starts[i]), int(ends[i] - starts[i])


def _edges(where: np.ndarray) -> np.ndarray:
    """Where runs of ticks begin and end, in turn."""
    return np.flatnonzero(np.diff(np.concatenate([[0], where.astype(int), [0]])))


def _stretch(
    robot: Robot, controller: Controller, reader: StateReader, episode: Episode, track: Track, charge: slice
) -> Stretch:
    """The part of a track in which the policy is in charge, but for the ticks that the guess of a state needs before."""
    rows = _held(episode, track, robot.contract.rate)
    begin = max(charge.start, HALF)
    first, part = slice(charge.start, begin), slice(begin, charge.stop)
    asked = commands(controller, episode)
    past = np.maximum(begin - 1 - np.arange(past_kept(robot)), 0)
    (qpos,), (qvel,) = reader.at(track.measured, np.array([begin]))
    return Stretch(
        recording=track.recording,
        start=track.start + begin / robot.contract.rate,
        measured=track.measured[part],
        target=track.target[part],
        operator={name: values[rows[part]] for name, values in asked.items()},
        before=np.nan_to_num(track.measured[first]),
        asked_before={name: values[rows[first]] for name, values in asked.items()},
        sent=track.target[past],
        qpos=qpos,
        qvel=qvel,
    )


def commands(controller: Controller, episode: Episode) -> dict[str, np.ndarray]:
    """What the operator asked, (ticks, k) per signal that the controller takes."""
    found = {}
    for signal in controller.manifest.operator:
        values = episode.signals.get(signal.name)
        if values is None:
            raise BadInput(f"the controller takes the command {signal.name!r}, which a recording of it lacks.")
        if values.shape[1] != signal.size:
            raise BadInput(f"the command {signal.name!r} of a recording does not have the controller's {signal.size} parts.")
        found[signal.name] = np.nan_to_num(values)
    return found


def relive(
    robot: Robot,
    controller: Controller,
    stretch: Stretch,
    e: np.ndarray,
    seed: int = 0,
    threads: int = 0,
    report: Callable[[float], None] = lambda share: None,
) -> Lived:
    """What sensors and policy would have said in the worlds e, (n, d)."""
    n, T = len(e), len(stretch)
    rng = np.random.default_rng(seed)
    engine = Engine(robot, n, threads)
    engine.apply(e, engine.all)
    qpos, qvel = np.tile(stretch.qpos, (n, 1)), np.tile(stretch.qvel, (n, 1))
    engine.reset(engine.all, qpos, qvel, np.tile(stretch.sent, (n, 1, 1)))
    y, u = np.full((n, T, robot.contract.width), np.nan), np.full((n, T, robot.contract.target.size), np.nan)
    crowd = Crowd(controller, Fit.by_name(controller.manifest, robot.contract), n)
    everyone = lambda asked, t: {name: np.broadcast_to(rows[t], (n, rows.shape[-1])) for name, rows in asked.items()}  # noqa: E731
    for t in range(len(stretch.before)):
        crowd(stretch.before[t][None], everyone(stretch.asked_before, t), np.empty_like(u[:, 0]), np.array([0]))
    crowd.remember()
    alive = np.ones(n, bool)
    for t in range(T):
        y[alive, t] = engine.measured(rng)[alive]
        crowd(y[:, t], everyone(stretch.operator, t), u[:, t], np.flatnonzero(alive))
        engine.step(np.where(alive[:, None], np.nan_to_num(u[:, t]), np.array(robot.default)))
        alive &= ~engine.blown & np.isfinite(u[:, t]).all(axis=1)
        if t % 20 == 0:
            report(t / T)
        if engine.blown.any():
            engine.reset(np.flatnonzero(engine.blown))
    return Lived(y, u)
