"""What a policy makes of commands in the simulator: small ones that it does not answer are its own, not the robot's fault.

From where the policy took over, one world per level of each command lives through the same seconds; all but the command is
alike. Of every signal and target the mean and the spread over the later half are compared with those without a command,

    answer(c) = Σ |f(c) - f(0)| / scale       f: means and spreads; scale: how much that signal moves under any command

A level is not answered if its answer is a small part of what would be in proportion to the strongest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isthmus.data.contract import Signal
from isthmus.deploy.controller import Controller
from isthmus.real2sim.measure.closed_loop import ControlledStretch, Rollouts, resimulate
from isthmus.sim.robot import Robot
from isthmus.world import Space, Target

COMMAND_LEVELS = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0)
"""Commands that are tried, as parts of the way to the end of what was trained for."""
RESPONSE_SECONDS = 3.0
MIN_PROPORTIONAL_RESPONSE = 0.2
"""Of an answer in proportion to the command: less than this is none."""
MIN_FULL_RESPONSE = 0.02
"""An answer to the strongest command that is smaller than this is none, in units of how much the signals move."""


@dataclass(frozen=True)
class CommandResponse:
    """To one component of the command, to one side of no command."""

    signal: str
    label: str
    unit: str
    asked: tuple[float, ...]
    """Levels, weakest first."""
    answered: tuple[float, ...]
    """1 is the strongest answer."""
    dead: float
    """Strongest level that is not answered, as are all below it; 0: every one is."""
    ignored: float
    """Share of the recorded ticks with a command to this side that is in the dead zone."""
    strongest: float
    """Of those, the strongest; 0 if there are none."""

    @property
    def text(self) -> str:
        """One sentence."""
        unit = "" if self.unit == "1" else f" {self.unit}"
        return (
            f"the policy does not answer {self.label}={self.strongest:.3g} in the simulator either: commands up to "
            f"{self.dead:.3g}{unit} do nothing, which is no failure of the robot"
        )

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"text": self.text if self.ignored > 0 else ""}


def command_responses(
    robot: Robot, controller: Controller, stretches: Sequence[ControlledStretch], e: np.ndarray, threads: int = 0
) -> list[CommandResponse]:
    """Of a controller in the world e, (d,), for each component and side of its commands, from where the first part began."""
    stretch = stretches[0]
    given = {s.name: np.concatenate([part.commands[s.name] for part in stretches]) for s in controller.manifest.operator}
    asked = [
        (signal, i, side)
        for signal in controller.manifest.operator
        for i in range(signal.size)
        for side in (-1, 1)
        if signal.low and signal.high and _command_limit(signal, i, side) != _zero_command(signal)[i]
    ]
    if not asked:
        return []
    ticks = min(len(stretch), round(RESPONSE_SECONDS * robot.contract.rate))
    operator = {
        s.name: np.tile(_zero_command(s), (1 + len(asked) * len(COMMAND_LEVELS), 1)) for s in controller.manifest.operator
    }
    for j, (signal, i, side) in enumerate(asked):
        none = _zero_command(signal)[i]
        rows = slice(1 + j * len(COMMAND_LEVELS), 1 + (j + 1) * len(COMMAND_LEVELS))
        operator[signal.name][rows, i] = none + np.array(COMMAND_LEVELS) * (_command_limit(signal, i, side) - none)
    part = replace(
        stretch,
        measured=stretch.measured[:ticks],
        target=stretch.target[:ticks],
        commands={name: np.broadcast_to(rows, (ticks, *rows.shape)) for name, rows in operator.items()},
    )
    lived = resimulate(
        robot,
        controller,
        part,
        np.tile(_without_sensor_noise(robot.space, e), (1 + len(asked) * len(COMMAND_LEVELS), 1)),
        threads=threads,
    )
    size = _response_sizes(lived).reshape(len(asked), len(COMMAND_LEVELS))
    return [_command_response(given, s, i, side, size[j]) for j, (s, i, side) in enumerate(asked)]


def dead_zone_sentences(responses: Sequence[CommandResponse]) -> list[str]:
    """What is worth a sentence: commands that were given and that the policy does not answer."""
    return [a.text for a in responses if a.ignored > 0]


def _command_response(
    recorded_commands: Mapping[str, np.ndarray], signal: Signal, component: int, side: int, response_sizes: np.ndarray
) -> CommandResponse:
    none, levels = _zero_command(signal)[component], np.array(COMMAND_LEVELS)
    values = none + levels * (_command_limit(signal, component, side) - none)
    strongest = float(response_sizes[np.isfinite(response_sizes)].max(initial=0.0))
    # A world that fell has answered, if not as it should: its size is infinite.
    silent = (
        response_sizes <= MIN_FULL_RESPONSE
        if not strongest > MIN_FULL_RESPONSE
        else response_sizes / strongest < MIN_PROPORTIONAL_RESPONSE * levels
    )
    count = len(levels) if silent.all() else int(np.argmin(silent))
    dead = float(values[count - 1]) if count else 0.0
    given = recorded_commands[signal.name][:, component]
    ours = side * (given - none) > 0
    inside = ours & (side * given <= side * dead) if count else np.zeros(len(given), bool)
    return CommandResponse(
        signal=signal.name,
        label=signal.labels[component],
        unit=signal.units[component],
        asked=tuple(values.tolist()),
        answered=tuple(np.minimum(response_sizes / strongest if strongest > 0 else response_sizes, 1.0).tolist()),
        dead=dead,
        ignored=float(inside.sum() / max(ours.sum(), 1)),
        strongest=float(given[inside][np.argmax(side * given[inside])]) if inside.any() else 0.0,
    )


def _response_sizes(rollouts: Rollouts) -> np.ndarray:
    """(n - 1,) of the answers of all worlds but the first, which was asked for nothing."""
    y = np.concatenate([rollouts.measured, rollouts.target], axis=2)
    later = y[:, y.shape[1] // 2 :]
    f = np.concatenate([later.mean(1), later.std(1)], axis=1)
    scale = np.nanstd(y, axis=(0, 1))
    scale = np.tile(np.where(scale > 0, scale, np.inf), 2)
    off = np.abs(f[1:] - f[0]) / scale
    return np.where(np.isfinite(off).all(1), off.sum(1), np.inf)


def _zero_command(signal: Signal) -> np.ndarray:
    """No command: zero, or what was trained for that is nearest to it."""
    return np.clip(0.0, signal.low or -np.inf, signal.high or np.inf) * np.ones(signal.size)


def _command_limit(signal: Signal, component: int, side: int) -> float:
    return (signal.high if side > 0 else signal.low)[component]


def _without_sensor_noise(space: Space, e: np.ndarray) -> np.ndarray:
    """The same world with sensors that do not make noise."""
    noisy = [any((t := Target.parse(text)).kind == "signal" and t.field == "noise" for text in p.targets) for p in space.params]
    return np.where(noisy, np.maximum(space.low, 0.0), e)
