"""The same commands in the simulator: the controller in the loop, from where the recording began, in many worlds.

A `Stretch` is a part of a recording in which the policy was in charge. `relive` runs the controller's own graph through it in
worlds of its own: it gets what simulated sensors say and the operator's recorded commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.data.episode import Episode
from isthmus.deploy.batch_controller import BatchController
from isthmus.deploy.controller import Controller
from isthmus.deploy.signal_map import SignalMap
from isthmus.real2sim.prepare.savitzky_golay import SG_HALF_TICKS
from isthmus.real2sim.prepare.segments import StateReader, past_target_ticks
from isthmus.real2sim.prepare.tracks import Track, control_mask, episode_tick, longest_run
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation

MAX_STRETCH_SECONDS, MIN_STRETCH_SECONDS = 20.0, 1.0
"""s of a stretch."""


@dataclass(frozen=True)
class ControlledStretch:
    """T ticks of one recording."""

    recording: int
    start: float
    """s since the start of the recording."""
    measured: np.ndarray
    """(T, width)"""
    target: np.ndarray
    """(T, m)"""
    commands: Mapping[str, np.ndarray]
    """(T, k) per signal of the operator; (T, n, k) where n worlds are each asked for something else."""
    measured_before: np.ndarray
    """(k, width) what the policy saw before, from when it took over, and what the operator asked, (k, …) per signal."""
    commands_before: Mapping[str, np.ndarray]
    past_targets: np.ndarray
    """(kept, m) targets before it, newest first."""
    qpos: np.ndarray
    """(nq,) and (nv,): guess of the state at its first tick."""
    qvel: np.ndarray

    def __len__(self) -> int:
        return len(self.target)

    def first_ticks(self, ticks: int) -> ControlledStretch:
        """So many ticks of it, at most."""
        asked = {name: rows[:ticks] for name, rows in self.commands.items()}
        return replace(self, measured=self.measured[:ticks], target=self.target[:ticks], commands=asked)


@dataclass(frozen=True)
class Rollouts:
    """n worlds over T ticks."""

    measured: np.ndarray
    """(n, T, width), NaN from where the physics of a world failed."""
    target: np.ndarray
    """(n, T, m)"""


def controlled_stretches(
    robot: Robot, controller: Controller, episodes: Sequence[Episode], tracks: Sequence[Track]
) -> list[ControlledStretch]:
    """Of each recording the longest part in which the policy was in charge; none of a recording where that is too short."""
    rate, out = robot.contract.rate, []
    reader = StateReader(robot)
    for i, episode in enumerate(episodes):
        best: tuple[int, Track, int] | None = None
        for track in (t for t in tracks if t.recording == i):
            first, length = longest_run(control_mask(episode, track, rate))
            if length >= MIN_STRETCH_SECONDS * rate + 2 * SG_HALF_TICKS and (best is None or length > best[2]):
                best = first, track, length
        if best is not None:
            first, track, length = best
            part = slice(first, first + min(length, round(MAX_STRETCH_SECONDS * rate)))
            out.append(_make_stretch(robot, controller, reader, episode, track, part))
    return out


def _make_stretch(
    robot: Robot, controller: Controller, reader: StateReader, episode: Episode, track: Track, control_span: slice
) -> ControlledStretch:
    """The part of a track in which the policy is in charge, but for the ticks that the guess of a state needs before."""
    rows = episode_tick(episode, track, robot.contract.rate)
    begin = max(control_span.start, SG_HALF_TICKS)
    first, part = slice(control_span.start, begin), slice(begin, control_span.stop)
    asked = operator_commands(controller, episode)
    past = np.maximum(begin - 1 - np.arange(past_target_ticks(robot)), 0)
    (qpos,), (qvel,) = reader.states(track.measured, np.array([begin]))
    return ControlledStretch(
        recording=track.recording,
        start=track.start + begin / robot.contract.rate,
        measured=track.measured[part],
        target=track.target[part],
        commands={name: values[rows[part]] for name, values in asked.items()},
        measured_before=np.nan_to_num(track.measured[first]),
        commands_before={name: values[rows[first]] for name, values in asked.items()},
        past_targets=track.target[past],
        qpos=qpos,
        qvel=qvel,
    )


def operator_commands(controller: Controller, episode: Episode) -> dict[str, np.ndarray]:
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


def resimulate(
    robot: Robot,
    controller: Controller,
    stretch: ControlledStretch,
    e: np.ndarray,
    seed: int = 0,
    threads: int = 0,
    report: Callable[[float], None] = lambda share: None,
) -> Rollouts:
    """What sensors and policy would have said in the worlds e, (n, d)."""
    n, T = len(e), len(stretch)
    rng = np.random.default_rng(seed)
    engine = Simulation(robot, n, threads)
    engine.apply(e, engine.all_ids)
    qpos, qvel = np.tile(stretch.qpos, (n, 1)), np.tile(stretch.qvel, (n, 1))
    engine.reset(engine.all_ids, qpos, qvel, np.tile(stretch.past_targets, (n, 1, 1)))
    y, u = np.full((n, T, robot.contract.width), np.nan), np.full((n, T, robot.contract.target.size), np.nan)
    crowd = BatchController(controller, SignalMap.by_name(controller.manifest, robot.contract), n)
    everyone = lambda asked, t: {name: np.broadcast_to(rows[t], (n, rows.shape[-1])) for name, rows in asked.items()}  # noqa: E731
    for t in range(len(stretch.measured_before)):
        crowd(stretch.measured_before[t][None], everyone(stretch.commands_before, t), np.empty_like(u[:, 0]), np.array([0]))
    crowd.broadcast_memory()
    alive = np.ones(n, bool)
    for t in range(T):
        y[alive, t] = engine.signals(rng)[alive]
        crowd(y[:, t], everyone(stretch.commands, t), u[:, t], np.flatnonzero(alive))
        engine.step(np.where(alive[:, None], np.nan_to_num(u[:, t]), np.array(robot.default)))
        alive &= ~engine.diverged & np.isfinite(u[:, t]).all(axis=1)
        if t % 20 == 0:
            report(t / T)
        if engine.diverged.any():
            engine.reset(np.flatnonzero(engine.diverged))
    return Rollouts(y, u)
