"""Recordings of a loop's policies, beside and over what the simulator makes of the same commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.progress import Progress, silent, sub_progress
from isthmus.data.mcap.reader import read_episode
from isthmus.deploy.onnx_controller import OnnxController
from isthmus.pipeline.evidence import Attempt, LoopHistory
from isthmus.real2sim.measure.closed_loop import ControlledStretch, Rollouts, controlled_stretches, resimulate
from isthmus.real2sim.prepare.prepare import prepare
from isthmus.real2sim.prepare.savitzky_golay import SG_HALF_TICKS
from isthmus.real2sim.prepare.state_from_signals import measured_states
from isthmus.robots.twin import Twin
from isthmus.sim.robot import Robot
from isthmus.studio.figures.axes import Line, line_chart
from isthmus.studio.figures.motion_player import player_html
from isthmus.studio.figures.poses import Motion, motion_from_states
from isthmus.studio.figures.solids import solid_scene
from isthmus.studio.reports.page import figure, paragraph
from isthmus.world import Belief

REPLAY_WORLDS = 24
"""In which the controller relives its recording."""
SIGNALS_SHOWN, SECONDS_SHOWN = 4, 8.0
"""Signals that are drawn over each other, and the seconds of a recording that are shown."""
POINTS_PER_LINE = 200
"""Of a line."""


@dataclass(frozen=True)
class ControllerReplay:
    """A recording, and the same commands in the simulator as it was believed to be."""

    attempt: Attempt
    robot: Robot
    stretch: ControlledStretch
    simulated: Rollouts

    @property
    def time(self) -> np.ndarray:
        return np.arange(len(self.stretch)) / self.robot.contract.rate

    @property
    def name(self) -> str:
        return "before" if self.attempt.name == "prior" else "after"


def replay_attempt(
    robot: Robot, history: LoopHistory, attempt: Attempt, progress: Progress = silent
) -> ControllerReplay | None:
    """None where the policy was not in charge for long enough."""
    if not attempt.recordings or not attempt.controller.exists():
        return None
    try:
        unit, belief = _training_simulator(history, robot, attempt)
        controller, episodes = OnnxController.load(attempt.controller), [read_episode(p) for p in attempt.recordings]
        prepared = prepare(unit, episodes)
        unit = prepared.robot
        found = controlled_stretches(unit, controller, prepared.episodes, prepared.tracks)
    except BadInput:
        return None
    if not found:
        return None
    shown = max(found, key=len).first_ticks(round(SECONDS_SHOWN * unit.contract.rate))
    e = belief.sample(np.random.default_rng(0), REPLAY_WORLDS)
    return ControllerReplay(attempt, unit, shown, resimulate(unit, controller, shown, e, report=progress))


def replay_first_and_last(robot: Robot, history: LoopHistory, progress: Progress = silent) -> list[ControllerReplay]:
    """The first and the last policy that was in charge for long enough."""
    attempts, found = list(history.attempts), []
    while attempts and len(found) < 2:
        at = 0.5 * len(found)
        lived = replay_attempt(robot, history, attempts.pop(-1 if found else 0), sub_progress(progress, at, at + 0.5))
        found += [lived] if lived is not None else []
    return found


def _training_simulator(history: LoopHistory, robot: Robot, attempt: Attempt) -> tuple[Robot, Belief]:
    """The simulator that a policy was trained in."""
    i = history.attempts.index(attempt)
    twin = history.repairs[i - 1].twin if i else None
    if twin is None:
        return robot, robot.prior
    unit = Twin.load(twin).apply_to(robot, str(twin))
    return unit, unit.prior


def motion_section(robot: Robot, replays: Sequence[ControllerReplay]) -> str:
    """Recordings of the first and the last policy, side by side."""
    drawn = solid_scene(robot.model, robot.morphology.base)
    motions = [m for m in (_recorded_motion(x, robot, drawn) for x in replays) if m is not None]
    if not motions or not drawn.framed_solids:
        return ""
    caption = "Recordings of the robot, as its sensors tell them, from when the policy took over."
    if robot.morphology.feet:
        caption += " Nothing measures where a walking robot is: its place is worked out from the feet on the ground."
    return player_html(motions, caption)


def _recorded_motion(replay: ControllerReplay, robot: Robot, drawn: Any) -> Motion | None:
    rated = replay.robot  # at the rate of the recording
    ticks = min(len(replay.stretch), round(SECONDS_SHOWN * rated.contract.rate)) - 2 * SG_HALF_TICKS
    if ticks < 2:
        return None
    home = np.tile(np.array(robot.home), (ticks, 1))
    qpos = measured_states(rated, replay.stretch.measured[: ticks + 2 * SG_HALF_TICKS], home)
    return motion_from_states(replay.name, drawn, robot.model, replay.time[SG_HALF_TICKS : SG_HALF_TICKS + ticks], qpos)


def overlay_section(robot: Robot, replays: Sequence[ControllerReplay]) -> str:
    """The signals that differ most, recorded over simulated."""
    if not replays:
        return ""
    names = _most_deviating_components(replays[0])
    parts = [
        paragraph(
            "Each policy in the simulator that it was trained in, from where its recording began and with the same commands, "
            f"in {REPLAY_WORLDS} worlds: bands hold 90 % of them. Before, that is the prior; after, the twin."
        )
    ]
    for x in replays:
        parts.append(f"<h3>{'Before' if x.name == 'before' else 'After'}</h3>")
        for i in names:
            parts.append(figure(_overlay_chart(x, i), ""))
    return "".join(parts)


def _most_deviating_components(replay: ControllerReplay) -> list[int]:
    """Components that are furthest from their worlds, no two of one signal before every signal has one."""
    owner = [signal.name for signal in replay.robot.contract.signals for _ in signal.labels]
    middle, low, high = _interval_90(replay.simulated.measured)
    wide = np.nanmedian(high - low, axis=0) + 1e-9
    with np.errstate(all="ignore"):
        off = np.nanmedian(np.abs(replay.stretch.measured - middle), axis=0) / wide
    order = [int(i) for i in np.argsort(-np.nan_to_num(off))]
    best = {owner[i]: i for i in reversed(order)}
    first = sorted(best.values(), key=order.index)
    return (first + [i for i in order if i not in first])[:SIGNALS_SHOWN]


def _interval_90(measured: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(n, …) -> the middle and the ends of 90 % of worlds, each (…)."""
    # Worlds whose physics failed are rare, and to leave them out takes a hundred times as long.
    quantile = np.quantile if np.isfinite(measured).all() else np.nanquantile
    with np.errstate(all="ignore"):
        low, middle, high = quantile(measured, (0.05, 0.5, 0.95), axis=0)
    return middle, low, high


def _overlay_chart(replay: ControllerReplay, i: int) -> str:
    signal, label = [(signal, label) for signal in replay.robot.contract.signals for label in signal.labels][i]
    ticks = min(len(replay.time), round(SECONDS_SHOWN * replay.robot.contract.rate))
    some = np.unique(np.linspace(0, ticks - 1, POINTS_PER_LINE).astype(int))
    middle, low, high = _interval_90(replay.simulated.measured[:, some, i])
    good = np.isfinite(low + high)
    lines = [
        Line("recorded", replay.time[some], replay.stretch.measured[some, i]),
        Line("simulated", replay.time[some][good], middle[good], low[good], high[good]),
    ]
    unit = "" if signal.unit in ("", "1") else f", {signal.unit}"
    name = f"{signal.name} {label}"
    return line_chart(lines, "seconds", f"{name}{unit}", f"{name}, {replay.name}", log=False)
