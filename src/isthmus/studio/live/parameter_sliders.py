"""From the parameters of a Space to sliders and back: no browser needed.

A slider shows a coordinate `s`. Where distances are even in the value itself, s = e. Where they are even in its
logarithm, s is the position in the range, in percent:

    s = 100 · (log e - log low) / (log high - log low)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.data.contract import Signal
from isthmus.world import Param, Space, Target

FOLDER_BY_TARGET_KIND = {
    "geom": "ground",
    "opt": "surroundings",
    "body": "body",
    "joint": "motors",
    "actuator": "motors",
    "motor": "motors",
    "link": "link",
    "signal": "sensors",
}
"""Folder of a parameter, by the kind of the first thing that it acts on."""
SLIDER_STEPS = 400
"""Positions of a slider."""


@dataclass(frozen=True)
class SliderSpec:
    """What a slider of the page needs to know, in its own coordinate."""

    low: float
    high: float
    step: float
    marks: tuple[tuple[float, str], ...]
    """Coordinate and text: the lowest, nominal and highest value in the parameter's unit."""
    hint: str


def folder_of(param: Param) -> str:
    return FOLDER_BY_TARGET_KIND[Target.parse(param.targets[0]).kind]


def params_by_folder(space: Space) -> dict[str, tuple[Param, ...]]:
    """Parameters by folder; folders in the order of GROUPS, empty ones left out."""
    folders = {g: tuple(p for p in space.params if folder_of(p) == g) for g in dict.fromkeys(FOLDER_BY_TARGET_KIND.values())}
    return {name: params for name, params in folders.items() if params}


def to_slider(param: Param, value: float) -> float:
    """Coordinate of a value, inside the slider's range."""
    value = min(max(value, param.low), param.high)
    if param.scale == "linear":
        return value
    return 100.0 * math.log(value / param.low) / math.log(param.high / param.low)


def from_slider(param: Param, s: float) -> float:
    """Value of a coordinate, inside the hard bounds; the ends of the slider give the bounds exactly."""
    if param.scale == "linear":
        return min(max(s, param.low), param.high)
    if s >= 100.0:
        return param.high
    return min(max(param.low * (param.high / param.low) ** (s / 100.0), param.low), param.high)


def slider_for(param: Param) -> SliderSpec:
    low, high = to_slider(param, param.low), to_slider(param, param.high)
    hint = f"{param.doc or param.name}; {_format_bounds(param)}, nominal {format_quantity(param.nominal, param.unit)}"
    ends = ((low, _format_number(param.low)), (high, _format_number(param.high)))
    nominal = to_slider(param, param.nominal)
    far = 0.12 * (high - low)
    middle = ((nominal, _format_number(param.nominal)),) if nominal - low > far and high - nominal > far else ()
    return SliderSpec(low, high, _round_step((high - low) / SLIDER_STEPS), (ends[0], *middle, ends[1]), hint)


def command_limits(signal: Signal) -> tuple[tuple[float, float], ...]:
    """Lowest and highest value of each component of a command, ±1 where the signal names no limits."""
    low = signal.low or (-1.0,) * signal.size
    high = signal.high or (1.0,) * signal.size
    return tuple(zip(low, high, strict=True))


def parse_assignments(text: str, space: Space, e: np.ndarray) -> np.ndarray:
    """e, (d,), after `name = value, name = value`; a wrong name, number or bound is a BadInput and changes nothing."""
    e = np.array(e, dtype=float)
    for part in filter(str.strip, text.replace(";", ",").split(",")):
        name, _, number = (x.strip() for x in part.partition("="))
        i = space.index(name)
        try:
            e[i] = float(number)
        except ValueError:
            raise BadInput(
                f"give {name!r} a number, as in {name} = {format_quantity(space[name].nominal, '')}, not {number!r}."
            ) from None
    space.check(e)
    return e


def format_quantity(value: float, unit: str) -> str:
    """A number for a person, with its unit."""
    return f"{_format_number(value)} {unit}" if unit not in ("", "1") else _format_number(value)


def parameter_label(param: Param, value: float) -> str:
    """Name and present value, for example `payload 2.5 kg`, or `kp ×1.2` for a factor on the nominal value."""
    if param.how == "scale" and param.unit in ("", "1"):
        return f"{param.name} ×{_format_number(value)}"
    return f"{param.name} {format_quantity(value, param.unit)}"


def _format_bounds(param: Param) -> str:
    return f"{_format_number(param.low)} to {format_quantity(param.high, param.unit)}"


def _format_number(value: float) -> str:
    text = f"{value:.3g}"
    return "0" if float(text) == 0 else text.replace("e-0", "e-").replace("e+0", "e")


def _round_step(step: float) -> float:
    """The next smaller 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return max(m for m in (1.0, 2.0, 5.0) if m * power <= step * (1 + 1e-9)) * power
