"""The controls of the page, read once per tick by the loop that steps the world: no thread but that one changes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import viser

from isthmus.data.contract import Signal
from isthmus.studio.live.parameter_sliders import (
    command_limits,
    from_slider,
    parameter_label,
    params_by_folder,
    slider_for,
    to_slider,
)
from isthmus.world import Param, Space

OPEN_FOLDERS = ("ground",)
"""Folders of parameters that start open."""


class ButtonPresses:
    """Buttons pressed since they were last asked for."""

    def __init__(self, gui: viser.GuiApi):
        self._gui, self._lock = gui, threading.Lock()
        self._pressed: list[str] = []

    def add_button_row(self, label: str, options: Sequence[str], hint: str) -> None:
        group = self._gui.add_button_group(label, options, hint=hint)

        @group.on_click
        def _(event: viser.GuiEvent) -> None:
            self.press(event.target.value)

    def press(self, name: str) -> None:
        with self._lock:
            self._pressed.append(name)

    def take(self) -> list[str]:
        with self._lock:
            pressed, self._pressed = self._pressed, []
        return pressed


class LabelledSlider:
    """A slider whose label tells its value."""

    def __init__(
        self,
        gui: viser.GuiApi,
        low: float,
        high: float,
        value: float,
        label: Callable[[float], str],
        hint: str,
        step: float = 0.01,
        marks: tuple[tuple[float, str], ...] | None = None,
    ):
        self._label, self._last_value = label, value
        self.slider = gui.add_slider(_non_breaking(label(value)), low, high, step, value, marks=marks, hint=hint)

    @property
    def value(self) -> float:
        return float(self.slider.value)

    def set(self, value: float) -> None:
        """Move the slider without counting as moved."""
        self.slider.value = value
        self._last_value = self.value
        self.slider.label = _non_breaking(self._label(value))

    def was_moved(self) -> bool:
        """Whether it was moved since this was last asked."""
        if self.value == self._last_value:
            return False
        self._last_value = self.value
        self.slider.label = _non_breaking(self._label(self._last_value))
        return True


class ParameterPanel:
    """One slider per parameter of a Space, in folders; `e` is the value in force."""

    def __init__(self, gui: viser.GuiApi, space: Space, e: np.ndarray):
        self.space, self.e = space, e.copy()
        self.sliders: dict[str, LabelledSlider] = {}
        for folder, params in params_by_folder(space).items():
            with gui.add_folder(f"{folder} ({len(params)})", expand_by_default=folder in OPEN_FOLDERS):
                for p in params:
                    s, at = slider_for(p), to_slider(p, float(self.e[space.index(p.name)]))
                    self.sliders[p.name] = LabelledSlider(gui, s.low, s.high, at, _value_label(p), s.hint, s.step, s.marks)

    def poll(self) -> bool:
        """Take in sliders that were moved; return whether e changed. A slider at rest leaves its value untouched."""
        moved = [name for name, knob in self.sliders.items() if knob.was_moved()]
        for name in moved:
            self.e[self.space.index(name)] = from_slider(self.space[name], self.sliders[name].value)
        return bool(moved)

    def set(self, e: np.ndarray) -> None:
        """Put all sliders to e, (d,), exactly."""
        self.space.check(e)
        self.e = np.array(e, dtype=float)
        for name, knob in self.sliders.items():
            knob.set(to_slider(self.space[name], float(self.e[self.space.index(name)])))


class CommandPanel:
    """One slider per component of the operator's command."""

    def __init__(self, gui: viser.GuiApi, signal: Signal):
        limits = command_limits(signal)
        self.neutral = tuple(0.0 if low <= 0 <= high else (low + high) / 2 for low, high in limits)
        """Zero, or the middle of a range that does not hold it."""
        self.sliders = [
            LabelledSlider(
                gui,
                low,
                high,
                start,
                partial(_signed_label, label),
                f"{label}, {unit}: {low:g} to {high:g}",
                (high - low) / 200,
            )
            for label, unit, (low, high), start in zip(signal.labels, signal.units, limits, self.neutral, strict=True)
        ]

    def value(self) -> np.ndarray:
        """The command, (m,), float32."""
        for knob in self.sliders:
            knob.was_moved()
        return np.array([knob.value for knob in self.sliders], dtype=np.float32)

    def set(self, value: Sequence[float]) -> None:
        for knob, x in zip(self.sliders, value, strict=True):
            knob.set(float(x))


def hide_number_boxes(gui: viser.GuiApi) -> None:
    """Leave out the number box beside each slider: it would show the coordinate, and the label tells the value."""
    gui.add_html("<style>.mantine-Slider-root + .mantine-NumberInput-root { display: none }</style>")


def _value_label(param: Param) -> Callable[[float], str]:
    return lambda s: parameter_label(param, from_slider(param, s))


def _signed_label(label: str, value: float) -> str:
    return f"{label} {value:+.2f}"


def _non_breaking(text: str) -> str:
    """The page breaks labels after a full stop or a hyphen, also in a number; look-alikes that do not break stay whole."""
    return text.replace(".", "\u2024\u2060").replace("-", "\u2212")
