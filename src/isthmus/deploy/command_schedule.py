"""What the operator wants of the policy, over time: `forward=0.5`, or `5:forward=0.8` from the fifth second on."""

from __future__ import annotations

import math

import numpy as np

from isthmus.core.errors import BadInput, unknown_name
from isthmus.data.contract import Signal


class CommandSchedule:
    def __init__(self, signals: tuple[Signal, ...], entries: tuple[str, ...] = ()):
        """Start from zero, or from the value in range that is nearest to it."""
        self.signals = signals
        labels = {label: (s, i) for s in signals for i, label in enumerate(s.labels)}
        labels |= {f"{s.name}.{label}": (s, i) for s in signals for i, label in enumerate(s.labels)}
        values = {s.name: np.clip(np.zeros(s.size), s.low or -np.inf, s.high or np.inf) for s in signals}
        self._neutral = {k: v.copy() for k, v in values.items()}
        self._steps = [(-math.inf, self._neutral)]
        self._release_fade: tuple[float, float, dict[str, np.ndarray]] | None = None
        for moment, name, number in sorted((_parse_entry(e) for e in entries), key=lambda e: e[0]):
            if name not in labels:
                raise (
                    unknown_name("command", name, labels) if labels else BadInput(f"this controller takes no command {name!r}.")
                )
            signal, i = labels[name]
            low, high = (limits[i] if limits else end for limits, end in ((signal.low, -math.inf), (signal.high, math.inf)))
            if not low <= number <= high:
                raise BadInput(
                    f"the command {name} = {number:g} is outside {low:g} … {high:g}, which the policy was trained for."
                )
            values[signal.name][i] = number
            self._steps.append((moment, {k: v.copy() for k, v in values.items()}))

    def values_at(self, moment: float) -> dict[str, np.ndarray]:
        """Values at a moment, s since the policy took over; before that, those of the start."""
        if self._release_fade is not None:
            start, fade, last = self._release_fade
            left = max(0.0, 1.0 - max(0.0, moment - start) / fade)
            return {k: still + left * (last[k] - still) for k, still in self._neutral.items()}
        while len(self._steps) > 1 and not moment < self._steps[1][0] and not math.isnan(moment):
            self._steps.pop(0)
        return self._steps[0][1]

    def release(self, moment: float, fade: float) -> None:
        """From that moment on ask for less and less, and after `fade` seconds for nothing: the values of the start."""
        if self._release_fade is None:
            self._release_fade = (moment, fade, self.values_at(moment))

    def row_at(self, moment: float) -> np.ndarray:
        """The same side by side."""
        values = self.values_at(moment)
        return np.concatenate([values[s.name] for s in self.signals]) if self.signals else np.zeros(0)


def _parse_entry(entry: str) -> tuple[float, str, float]:
    moment, colon, rest = entry.rpartition(":")
    name, equals, number = rest.partition("=")
    try:
        when, value = float(moment) if colon else 0.0, float(number)
    except ValueError:
        when = value = math.nan
    if not equals or not math.isfinite(when + value) or when < 0:
        raise BadInput(f"--command takes NAME=VALUE or SECONDS:NAME=VALUE, not {entry!r}.")
    return when, name.strip(), value
