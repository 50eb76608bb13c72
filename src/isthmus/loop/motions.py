"""Recordings of a loop's policies, beside and over what the simulator makes of the same commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.data.reader import read
from isthmus.deploy.controller import Controller
from isthmus.errors import BadInput
from isthmus.gap.closed import Lived, Stretch, relive, stretches
from isthmus.gap.parabola import HALF
from isthmus.gap.seen import states
from isthmus.gap.tracks import tracks
from isthmus.identify.twin import Twin
from isthmus.loop.story import Attempt, Story
from isthmus.progress import Report, part, silent
from isthmus.sim.robot import Robot
from isthmus.studio.report.motion import Motion, motion
from isthmus.studio.report.page import figure, paragraph
from isthmus.studio.report.player import player
from isthmus.studio.report.solids import scene
from isthmus.studio.report.svg import Line, chart
from isthmus.world import Belief

WORLDS = 24
"""In which the controller relives its recording."""
SHOWN, SECONDS = 4, 8.0
"""Signals that are drawn over each other, and the seconds of a recording that are shown."""
POINTS = 200
"""Of a line."""


@dataclass(frozen=True)
class Relived:
    """A recording, and the same commands in the simulator as it was believed to be."""

    attempt: Attempt
    robot: Robot
    stretch: Stretch
    lived: Lived

    @property
    def time(self) -> np.ndarray:
        return np.arange(len(self.stretch)) / self.robot.contract.rate

    @property
    def name(self) -> str:
        return "before" if self.attempt.name == "prior" else "after"


def relived(robot: Robot, story: Story, a: Attempt, report: Report = silent) -> Relived | None:
    """None where the policy was not in charge for long enough."""
    if not a.recordings or not a.controller.exists():
        return None
    try:
        unit, belief = _believed(story, robot, a)
        controller, episodes = Controller.load(a.controller), [read(p) for p in a.recordings]
        found = stretches(unit, controller, episodes, tracks(episodes, unit.contract, 1.0 / unit.contract.rate))
    except BadInput:
        return None
    if not found:
        return None
    shown = max(found, key=len).first(round(SECONDS * unit.contract.rate))
    e = belief.sample(np.random.default_rng(0), WORLDS)
    return Relived(a, unit, shown, relive(unit, controller, shown, e, report=report))


def first_and_last(robot: Robot, story: Story, report: Report = silent) -> list[Relived]:
    """The first and the last policy that was in charge for long enough."""
    attempts, found = list(story.attempts), []
    while attempts and len(found) < 2:
        at = 0.5 * len(found)
        lived = relived(robot, story, attempts.pop(-1 if found else 0), part(report, at, at + 0.5))
        found += [lived] if lived is not None else []
    return found


def _believed(story: Story, robot: Robot, a: Attempt) -> tuple[Robot, Belief]:
    """The simulator that a policy was trained in."""
    i = story.attempts.index(a)
    twin = story.repairs[i - 1].twin if i else None
    if twin is None:
        return robot, robot.prior
    unit = Twin.load(twin).on(robot, str(twin))
    return unit, unit.prior


def animated(robot: Robot, lived: Sequence[Relived]) -> str:
    """Recordings of the first and the last policy, side by side."""
    drawn = scene(robot.model, robot.base)
    motions = [m for m in (_motion(x, robot, drawn) for x in lived) if m is not None]
    if not motions or not drawn.own:
        return ""
    caption = "Recordings of the robot, as its sensors tell them, from when the policy took over."
    if robot.feet:
        caption += " Nothing measures where a walking robot is: its place is worked out from the feet on the ground."
    return player(motions, caption)


def _motion(x: Relived, robot: Robot, drawn: Any) -> Motion | None:
    ticks = min(len(x.stretch), round(SECONDS * robot.contract.rate)) - 2 * HALF
    if ticks < 2:
        return None
    home = np.tile(np.array(robot.home), (ticks, 1))
    qpos = states(robot, x.stretch.measured[: ticks + 2 * HALF], home)
    return motion(x.name, drawn, robot.model, x.time[HALF : HALF + ticks], qpos)


def overlaid(robot: Robot, lived: Sequence[Relived]) -> str:
    """The signals that differ most, recorded over simulated."""
    if not lived:
        return ""
    names = _telling(lived[0])
    parts = [
        paragraph(
            "Each policy in the simulator that it was trained in, from where its recording began and with the same commands, "
            f"in {WORLDS} worlds: bands hold 90 % of them. Before, that is the prior; after, the twin."
        )
    ]
    for x in lived:
        parts.append(f"<h3>{'Before' if x.name == 'before' else 'After'}</h3>")
        for i in names:
            parts.append(figure(_overlay(x, i), ""))
    return "".join(parts)


def _telling(x: Relived) -> list[int]:
    """Components that are furthest from their worlds, no two of one signal before every signal has one."""
    owner = [signal.name for signal in x.robot.contract.signals for _ in signal.labels]
    middle, low, high = _band(x.lived.measured)
    wide = np.nanmedian(high - low, axis=0) + 1e-9
    with np.errstate(all="ignore"):
        off = np.nanmedian(np.abs(x.stretch.measured - middle), axis=0) / wide
    order = [int(i) for i in np.argsort(-np.nan_to_num(off))]
    best = {owner[i]: i for i in reversed(order)}
    first = sorted(best.values(), key=order.index)
    return (first + [i for i in order if i not in first])[:SHOWN]


def _band(measured: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(n, …) -> the middle and the ends of 90 % of worlds, each (…)."""
    # Worlds whose physics failed are rare, and to leave them out takes a hundred times as long.
    quantile = np.quantile if np.isfinite(measured).all() else np.nanquantile
    with np.errstate(all="ignore"):
        low, middle, high = quantile(measured, (0.05, 0.5, 0.95), axis=0)
    return middle, low, high


def _overlay(x: Relived, i: int) -> str:
    signal, label = [(signal, label) for signal in x.robot.contract.signals for label in signal.labels][i]
    ticks = min(len(x.time), round(SECONDS * x.robot.contract.rate))
    some = np.unique(np.linspace(0, ticks - 1, POINTS).astype(int))
    middle, low, high = _band(x.lived.measured[:, some, i])
    good = np.isfinite(low + high)
    lines = [
        Line("recorded", x.time[some], x.stretch.measured[some, i]),
        Line("simulated", x.time[some][good], middle[good], low[good], high[good]),
    ]
    unit = "" if signal.unit in ("", "1") else f", {signal.unit}"
    name = f"{signal.name} {label}"
    return chart(lines, "seconds", f"{name}{unit}", f"{name}, {x.name}", log=False)
