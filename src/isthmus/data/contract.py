"""What a robot measures and what it accepts, by name, with units, frames and limits.

The contract is the only thing that a simulated robot, a real robot, a policy and a recording have to agree on.

Signals with a meaning for every robot have fixed names: `joint_pos` and `joint_vel` (with the labels of the target, where
targets are joints), `quat` (orientation of the body in the world), `gyro` and `accel` (in the body's frame).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import content_hash
from isthmus.core.from_plain import from_plain

MAX_RATE = 10_000.0
"""Hz."""
NO_LIMIT = 1e9
"""A limit of this size or more is none. It stands for one component among others that have limits, and is finite so that
JSON can hold it."""


@dataclass(frozen=True)
class Signal:
    """A named vector with one label per component."""

    name: str
    unit: str
    """One unit for all components, or a list with commas of one for each: `rad`, or `m, rad, rad`."""
    labels: tuple[str, ...]
    frame: str = ""
    """Frame of reference of a vector in space: `body`, `world`, or empty where it makes no sense."""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    """Limits per component; empty means that none are known, and NO_LIMIT that this component has none."""

    def __post_init__(self) -> None:
        if len(set(self.labels)) != len(self.labels) or not self.labels:
            raise BadInput(f"signal {self.name!r} needs distinct labels, at least one.")
        given = self.unit.count(",") + 1
        if given not in (1, len(self.labels)):
            raise BadInput(f"signal {self.name!r} has {len(self.labels)} labels but {given} units: {self.unit!r}.")
        for limits in (self.low, self.high):
            if limits and len(limits) != len(self.labels):
                raise BadInput(f"signal {self.name!r} has {len(self.labels)} labels but {len(limits)} limits.")
        if any(low > high for low, high in zip(self.low, self.high, strict=False)):
            raise BadInput(f"signal {self.name!r} has a lower limit above its upper one.")

    @property
    def size(self) -> int:
        return len(self.labels)

    @property
    def units(self) -> tuple[str, ...]:
        """The unit of each component."""
        parts = tuple(u.strip() for u in self.unit.split(","))
        return parts if len(parts) == self.size else parts * self.size

    def component_index(self, label: str) -> int:
        if label in self.labels:
            return self.labels.index(label)
        raise unknown_name("component", label, self.labels, f"signal {self.name!r}")


@dataclass(frozen=True)
class AffineFeedback:
    """target = constant + Σ gain · signal, with each gain a matrix of one row per component of the target."""

    constant: tuple[float, ...]
    gains: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Safety:
    """What a guard needs to know about a robot. What is left out is not guarded."""

    effort: tuple[float, ...] = ()
    """Largest torque or force per component of the target, N·m or N."""
    tilt: float = 0.0
    """Largest angle between the body's z axis and the vertical, rad; 0 means that any attitude is fine."""
    rest: tuple[float, ...] = ()
    """Target in which the robot can be switched off: a quadruped lies, rotors stand still."""
    damping: tuple[float, ...] = ()
    """N·m·s/rad or N·s/m per component of the target: the robot's damping mode gives effort = -damping · speed."""
    level: AffineFeedback | None = None
    """For what flies, the robot's damping mode instead: turn upright, stop turning, sink."""


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
    safety: Safety = field(default_factory=Safety)
    kind: Literal["contract"] = "contract"

    def __post_init__(self) -> None:
        if not 0 < self.rate <= MAX_RATE:
            raise BadInput(f"the contract of {self.robot} has a rate of {self.rate:g} Hz, not one up to {MAX_RATE:g}.")
        names = [s.name for s in self.signals]
        if len(set(names)) != len(names) or self.target.name in names:
            raise BadInput(f"the contract of {self.robot} has two signals of one name.")
        m, safety = self.target.size, self.safety
        per_motor = {"rest": safety.rest, "effort": safety.effort, "damping": safety.damping, **self.gains}
        for name, row in per_motor.items():
            if row and len(row) != m:
                raise BadInput(f"the contract of {self.robot} has {len(row)} numbers for {name}, but {m} targets.")
        for name, row in {"effort": safety.effort, "damping": safety.damping, "tilt": (safety.tilt,)}.items():
            if any(x < 0 for x in row):
                raise BadInput(f"the contract of {self.robot} has a negative {name}.")
        if safety.level is not None:
            widths = {n: self[n].size for n in safety.level.gains}
            right = [len(g) == m and {len(r) for r in g} == {widths[n]} for n, g in safety.level.gains.items()]
            if len(safety.level.constant) != m or not all(right):
                raise BadInput(f"the levelling law of {self.robot} does not fit its signals and targets.")
        # Servos without encoders exist, and their robot has no joint_pos at all. One that measures other joints, or in
        # other units, is a mistake that would cost the guard every rule about poses.
        if self.gains.get("kp") and self.has("joint_pos") and not self.has_joint_targets:
            seen = dict(zip(self["joint_pos"].labels, self["joint_pos"].units, strict=True))
            label, unit = next(p for p in zip(self.target.labels, self.target.units, strict=True) if seen.get(p[0]) != p[1])
            what = f"measured in {seen[label]!r}" if label in seen else "not measured"
            raise BadInput(f"{self.robot} has a gain kp for {label!r} in {unit!r}, but in joint_pos that joint is {what}.")

    @property
    def width(self) -> int:
        """Components of all signals together."""
        return sum(s.size for s in self.signals)

    @cached_property
    def has_joint_targets(self) -> bool:
        """Whether every target is the position of a measured joint, so that a pose can be held and approached."""
        if not self.has("joint_pos"):
            return False
        seen = dict(zip(self["joint_pos"].labels, self["joint_pos"].units, strict=True))
        return all(seen.get(label) == unit for label, unit in zip(self.target.labels, self.target.units, strict=True))

    @cached_property
    def component_names(self) -> tuple[str, ...]:
        """Of all components, in words and in order."""
        return tuple(f"{s.name} of {label}" for s in self.signals for label in s.labels)

    def has(self, name: str) -> bool:
        return any(s.name == name for s in self.signals)

    def slices(self) -> dict[str, slice]:
        """Where each signal is when all are put side by side."""
        return dict(self._slices)

    @cached_property
    def _slices(self) -> tuple[tuple[str, slice], ...]:
        ends = list(accumulate((s.size for s in self.signals), initial=0))
        return tuple((s.name, slice(*place)) for s, place in zip(self.signals, pairwise(ends), strict=True))

    @staticmethod
    def from_dict(data: Any, where: str = "the contract") -> Contract:
        """Read what `to_dict` wrote; anything else is a BadInput that says what is wrong."""
        if not isinstance(data, Mapping) or data.get("kind") != "contract":
            raise BadInput(f"{where} is not a robot's contract.")
        return from_plain(Contract, data, where)

    def __getitem__(self, name: str) -> Signal:
        for signal in self.signals:
            if signal.name == name:
                return signal
        raise unknown_name("signal", name, (s.name for s in self.signals), f"the contract of {self.robot}")

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind} | asdict(self)

    @cached_property
    def hash(self) -> str:
        return content_hash(self.to_dict())


def vector_signal(name: str, unit: str, frame: str, limit: float = 0.0) -> Signal:
    """A vector in space."""
    limits = ((-limit,) * 3, (limit,) * 3) if limit else ((), ())
    return Signal(name, unit, ("x", "y", "z"), frame, *limits)
