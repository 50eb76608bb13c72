"""One unknown number of the world: what it is, where it may lie, and where it acts.

A `Param` is data. Its target is text such as ``geom:.*_foot/friction[0]``, so that a space of parameters can be
written to a file, hashed, compared and sent to another machine.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from isthmus.core.errors import BadInput

Scale = Literal["linear", "log"]
ApplyMode = Literal["set", "scale", "add"]

_TARGET_PATTERN = re.compile(r"(?P<kind>[a-z]+):(?P<pattern>[^/]*)/(?P<field>[A-Za-z_]\w*)(?:\[(?P<index>[^\[\]]+)\])?")


@dataclass(frozen=True)
class Target:
    """A parsed target: objects of `kind` whose name matches `pattern`, and which component of which field."""

    kind: str
    pattern: str
    field: str
    index: str | None

    @staticmethod
    def parse(text: str) -> Target:
        match = _TARGET_PATTERN.fullmatch(text)
        if match is None:
            raise BadInput(f"target {text!r} is not of the form kind:pattern/field or kind:pattern/field[index].")
        try:
            re.compile(match["pattern"])
        except (re.error, OverflowError, RecursionError) as error:
            raise BadInput(f"target {text!r} has a pattern that is not a regular expression: {error}.") from None
        return Target(match["kind"], match["pattern"], match["field"], match["index"])


@dataclass(frozen=True)
class Param:
    """A scalar unknown with hard physical bounds.

    The bounds are what is physically possible, not what is likely: a `Belief` says what is likely.
    """

    name: str
    unit: str
    nominal: float
    low: float
    high: float
    targets: tuple[str, ...]
    scale: Scale = "linear"
    """Coordinate in which distances are even: `log` for positive numbers that vary by factors."""
    how: ApplyMode = "set"
    """How a value meets the nominal field: replaces it, multiplies it, or is added to it."""
    doc: str = ""

    def __post_init__(self) -> None:
        where = f"parameter {self.name!r}"
        for field in ("nominal", "low", "high"):
            object.__setattr__(self, field, float(getattr(self, field)))
        if not re.fullmatch(r"[A-Za-z_]\w*", self.name):
            raise BadInput(f"{where}: a name has only letters, digits and underscores.")
        if self.scale not in ("linear", "log"):
            raise BadInput(f"{where}: scale {self.scale!r} is neither 'linear' nor 'log'.")
        if self.how not in ("set", "scale", "add"):
            raise BadInput(f"{where}: how {self.how!r} is none of 'set', 'scale', 'add'.")
        if not all(math.isfinite(v) for v in (self.nominal, self.low, self.high)):
            raise BadInput(f"{where}: nominal and bounds must be finite numbers.")
        if not math.isfinite(self.high - self.low):
            raise BadInput(f"{where}: the range from {self.low:g} to {self.high:g} is too wide.")
        if not self.low < self.high:
            raise BadInput(f"{where}: low {self.low:g} is not below high {self.high:g}.")
        if not self.low <= self.nominal <= self.high:
            raise BadInput(f"{where}: nominal {self.nominal:g} lies outside [{self.low:g}, {self.high:g}].")
        if self.scale == "log" and self.low <= 0:
            raise BadInput(f"{where}: a log scale needs a positive lower bound, not {self.low:g}.")
        if not self.targets:
            raise BadInput(f"{where}: it acts nowhere; give at least one target.")
        for target in self.targets:
            Target.parse(target)
