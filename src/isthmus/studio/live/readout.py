"""How the robot is doing, as text for the page."""

from __future__ import annotations

import time
from collections import deque

import numpy as np

from isthmus.tasks.state import State
from isthmus.tasks.task import Task

AVERAGING_SECONDS = 1.0
"""s over which the numbers are averaged."""
COMMAND_MEASUREMENTS = {
    "forward": lambda s: s.lin_vel[:, 0],
    "sideways": lambda s: s.lin_vel[:, 1],
    "yaw": lambda s: s.ang_vel[:, 2],
    "x": lambda s: s.qpos[:, 0],
    "y": lambda s: s.qpos[:, 1],
    "z": lambda s: s.qpos[:, 2],
}
"""What a component of a command asks for, by its label, from the true state of a robot with a free base."""


class Readout:
    """Means over the last second of world time, falls since the start, and how fast time passes."""

    def __init__(self, task: Task, tick: float):
        self.task, self.tick = task, tick
        self.falls = self.blowups = 0
        self.failure_word = "falls" if task.robot.morphology.feet else "failures"
        self.time = 0.0
        """s of world time in all."""
        self.time_since_start = 0.0
        """s since the last start."""
        signal = task.command.signal if task.command else None
        self.labels = signal.labels if signal else ()
        self.units = signal.units if signal else ()
        ticks = max(round(AVERAGING_SECONDS / tick), 1)
        self._measured_rows: deque[np.ndarray] = deque(maxlen=ticks)
        self._scores: deque[float] = deque(maxlen=ticks)
        self._clock: deque[tuple[float, float]] = deque(maxlen=ticks)
        self.real_time_factor = 1.0
        """World seconds per second."""

    def add_tick(self, s: State, failed: bool, blown: bool) -> None:
        """Take in one tick; `s` is its state, after a reset that of the new start."""
        self.time += self.tick
        self.time_since_start = 0.0 if failed else self.time_since_start + self.tick
        self.falls += failed and not blown
        self.blowups += blown
        self._scores.append(float(self.task.score(s)[0]))
        free = s.qpos.shape[1] >= 7
        self._measured_rows.append(
            np.array(
                [float(COMMAND_MEASUREMENTS[x](s)[0]) if free and x in COMMAND_MEASUREMENTS else np.nan for x in self.labels]
            )
        )
        self._clock.append((time.monotonic(), self.time))
        (first, since), (last, until) = self._clock[0], self._clock[-1]
        if last > first:
            self.real_time_factor = (until - since) / (last - first)

    def restart(self) -> None:
        """The user put the robot back."""
        self.time_since_start = 0.0
        self._measured_rows.clear()
        self._scores.clear()

    def resume(self) -> None:
        """Time stood still: measure the pace anew."""
        self._clock.clear()

    def markdown(self, command: np.ndarray, paused: bool) -> str:
        score = f"{np.mean(self._scores):.2f}" if self._scores else "–"
        falls = f"{self.falls}" + (f" (+{self.blowups} blown up)" if self.blowups else "")
        pace = "paused" if paused else f"{self.real_time_factor:.2f}× real time"
        how = f"**{self.time_since_start:.1f} s** up · **{falls}** {self.failure_word} · score **{score}**"
        lines = [f"{how}\\", f"{self.time:.0f} s in all · {pace}", ""]
        measured = np.mean(self._measured_rows, axis=0) if self._measured_rows else np.full(len(self.labels), np.nan)
        if len(self.labels):
            lines += ["| | asked | measured | |", "|:--|--:|--:|:--|"]
            for label, unit, asked, got in zip(self.labels, self.units, command, measured, strict=True):
                lines.append(f"| {label} | {_signed(asked)} | {_signed(got)} | {unit} |")
        return "\n".join(lines)


def _signed(value: float) -> str:
    """Two decimals with a sign, no sign before zero; a dash for what is not known."""
    if np.isnan(value):
        return "–"
    text = f"{value:+.2f}"
    return "0.00" if float(text) == 0 else text
