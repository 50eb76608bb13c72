"""What a robot measures and what it accepts, by name, with units, frames and limits.

The contract is the only thing that a simulated robot, a real robot, a policy and a recording have to agree on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from isthmus.errors import BadInput, unknown
from isthmus.files import content_hash


@dataclass(frozen=True)
class Signal:
    """A named vector with one label per component."""

    name: str
    unit: str
    labels: tuple[str, ...]
    frame: str = ""
    """Frame of reference of a vector in space: `body`, `world`, or empty where it makes no sense."""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    """Limits per component; empty means that none are known."""

    def __post_init__(self) -> None:
        if len(set(self.labels)) != len(self.labels) or not self.labels:
            raise BadInput(f"signal {self.name!r} needs distinct labels, at least one.")
        for limits in (self.low, self.high):
            if limits and len(limits) != len(self.labels):
                raise BadInput(f"signal {self.name!r} has {len(self.labels)} labels but {len(limits)} limits.")

    @property
    def size(self) -> int:
        return len(self.labels)

    def component(self, label: str) -> int:
        if label in self.labels:
            return self.labels.index(label)
        raise unknown("component", label, self.labels, f"signal {self.name!r}")


@dataclass(frozen=True)
class Contract:
    robot: str
    rate: float
    """Control ticks per second."""
    signals: tuple[Signal, ...]
    """What the robot can measure."""
    target: Signal
    """What it accepts: one value per motor."""
    gains: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Gains of the robot's own joint controller, per component of the target."""

    def __getitem__(self, name: str) -> Signal:
        for signal in self.signals:
            if signal.name == name:
                return signal
        raise unknown("signal", name, (s.name for s in self.signals), f"the contract of {self.robot}")

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "contract"} | asdict(self)

    @cached_property
    def hash(self) -> str:
        return content_hash(self.to_dict())


def xyz(name: str, unit: str, frame: str, limit: float = 0.0) -> Signal:
    """A vector in space."""
    limits = ((-limit,) * 3, (limit,) * 3) if limit else ((), ())
    return Signal(name, unit, ("x", "y", "z"), frame, *limits)
