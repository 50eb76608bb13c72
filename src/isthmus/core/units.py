"""Units of measurement, by exact factors.

factor("deg", "rad", "joint_pos")     0.017453…: a value in degrees times this is the value in radians
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

from isthmus.core.errors import BadInput, unknown_name

_G = Fraction(980665, 100000)
"""m/s²: `constants.STANDARD_GRAVITY`, exactly."""

# Dimension -> unit -> (a, b): one of this unit is a · π^b of the first unit of its dimension.
UNITS: dict[str, dict[str, tuple[Fraction, int]]] = {
    "angle": {"rad": (Fraction(1), 0), "deg": (Fraction(1, 180), 1), "rev": (Fraction(2), 1), "mrad": (Fraction(1, 1000), 0)},
    "angular velocity": {
        "rad/s": (Fraction(1), 0),
        "deg/s": (Fraction(1, 180), 1),
        "rpm": (Fraction(1, 30), 1),
        "rev/s": (Fraction(2), 1),
    },
    "length": {
        "m": (Fraction(1), 0),
        "mm": (Fraction(1, 1000), 0),
        "cm": (Fraction(1, 100), 0),
        "km": (Fraction(1000), 0),
    },
    "velocity": {
        "m/s": (Fraction(1), 0),
        "mm/s": (Fraction(1, 1000), 0),
        "cm/s": (Fraction(1, 100), 0),
        "km/h": (Fraction(5, 18), 0),
    },
    "acceleration": {"m/s²": (Fraction(1), 0), "g": (_G, 0), "mm/s²": (Fraction(1, 1000), 0)},
    "time": {
        "s": (Fraction(1), 0),
        "ms": (Fraction(1, 10**3), 0),
        "us": (Fraction(1, 10**6), 0),
        "ns": (Fraction(1, 10**9), 0),
        "min": (Fraction(60), 0),
    },
    "torque": {
        "N·m": (Fraction(1), 0),
        "mN·m": (Fraction(1, 1000), 0),
        "N·mm": (Fraction(1, 1000), 0),
        "kgf·cm": (_G / 100, 0),
    },
    "force": {
        "N": (Fraction(1), 0),
        "mN": (Fraction(1, 1000), 0),
        "kN": (Fraction(1000), 0),
        "gf": (_G / 1000, 0),
        "kgf": (_G, 0),
    },
    "voltage": {"V": (Fraction(1), 0), "mV": (Fraction(1, 1000), 0)},
    "current": {"A": (Fraction(1), 0), "mA": (Fraction(1, 1000), 0)},
    "temperature": {"°C": (Fraction(1), 0)},
    "number": {"1": (Fraction(1), 0), "%": (Fraction(1, 100), 0)},
}

ALIASES = {
    "degree": "deg",
    "degrees": "deg",
    "°": "deg",
    "radian": "rad",
    "radians": "rad",
    "rad/sec": "rad/s",
    "degree/s": "deg/s",
    "degrees/s": "deg/s",
    "deg/sec": "deg/s",
    "dps": "deg/s",
    "°/s": "deg/s",
    "rev/min": "rpm",
    "rps": "rev/s",
    "turn": "rev",
    "turns": "rev",
    "kph": "km/h",
    "m/sec": "m/s",
    "m/s^2": "m/s²",
    "m/s2": "m/s²",
    "m/s/s": "m/s²",
    "mm/s^2": "mm/s²",
    "sec": "s",
    "second": "s",
    "seconds": "s",
    "msec": "ms",
    "µs": "us",
    "μs": "us",
    "C": "°C",
    "degC": "°C",
    "": "1",
    "unitless": "1",
}


def conversion_factor(from_unit: str, to_unit: str, where: str) -> float:
    """What a value in `from_unit` is multiplied by to be in `to_unit`; `where` names the place in errors."""
    if from_unit == to_unit:
        return 1.0
    (dimension, a, b), (other, c, d) = _find_unit(from_unit, where), _find_unit(to_unit, where)
    if dimension != other:
        fitting = ", ".join(UNITS[other])
        raise BadInput(f"{where}: {from_unit!r} is a unit of {dimension}, but {to_unit!r} is needed; fitting: {fitting}.")
    ratio, power = a / c, b - d
    # One rounding per step, so that degrees to radians is exactly what everybody else computes: π / 180.
    return ratio.numerator * math.pi**power / ratio.denominator if power >= 0 else ratio.numerator / math.pi / ratio.denominator


def _find_unit(unit: str, where: str) -> tuple[str, Fraction, int]:
    name = _canonical_unit(unit)
    if name not in _dimension_by_unit():
        raise unknown_name("unit", unit, [*_dimension_by_unit(), *filter(None, ALIASES)], where)
    dimension = _dimension_by_unit()[name]
    return dimension, *UNITS[dimension][name]


def _canonical_unit(unit: str) -> str:
    """The table's spelling: N*m, N m, Nm and N.m are N·m."""
    unit = unit.strip()
    if unit in ALIASES:
        return ALIASES[unit]
    dotted = unit.replace("*", "·").replace(".", "·").replace(" ", "·")
    return {"Nm": "N·m", "mNm": "mN·m", "Nmm": "N·mm", "kgfcm": "kgf·cm"}.get(dotted, dotted)


@cache
def _dimension_by_unit() -> dict[str, str]:
    return {name: dimension for dimension, units in UNITS.items() for name in units}
