"""Everything that must agree between a policy and a robot: names, order, units, frames, rate, gains, limits, hashes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from isthmus.core.errors import BadInput
from isthmus.core.from_plain import from_plain
from isthmus.data.contract import Contract, Signal

MAX_MEMORY_VALUES = 2**20
"""Numbers that a controller may keep from tick to tick."""
MAX_MEMORY_DIMENSIONS = 8


@dataclass(frozen=True)
class Manifest:
    """Everything that must agree between a policy and a robot, at full precision."""

    task: str
    robot: Contract
    """Of the robot that the policy was trained for."""
    inputs: tuple[str, ...]
    """Signals of the robot that the graph needs."""
    operator: tuple[Signal, ...]
    """Inputs that come from whoever uses the robot: a commanded velocity, a place to go to."""
    memory: Mapping[str, tuple[int, ...]]
    """What goes from one tick to the next, with shapes."""
    default: tuple[float, ...]
    """Target that holds the pose in which the policy expects to start."""
    model_hash: str
    space_hash: str
    belief_hash: str
    run_hash: str
    graph_hash: str
    kind: Literal["controller"] = "controller"

    def __post_init__(self) -> None:
        for name in self.inputs:
            self.robot[name]
        names = [*self.inputs, *(s.name for s in self.operator)]
        if len(set(names)) != len(names) or not names:
            raise BadInput("the inputs must be distinct, and at least one.")
        if len(self.default) != self.robot.target.size:
            raise BadInput(f"the default has {len(self.default)} numbers for {self.robot.target.size} targets.")
        limits = zip(self.default, self.robot.target.low or self.default, self.robot.target.high or self.default, strict=True)
        if any(not low <= x <= high for x, low, high in limits):
            raise BadInput("the default lies outside the target's limits.")
        if any(d < 1 for shape in self.memory.values() for d in shape) or any(
            len(s) > MAX_MEMORY_DIMENSIONS for s in self.memory.values()
        ):
            raise BadInput(f"the memory has an empty shape, or one of more than {MAX_MEMORY_DIMENSIONS} dimensions.")
        if sum(math.prod(shape) for shape in self.memory.values()) > MAX_MEMORY_VALUES:
            raise BadInput(f"the memory holds more than {MAX_MEMORY_VALUES} numbers.")

    @property
    def signals(self) -> tuple[Signal, ...]:
        """All inputs of the graph, the robot's first."""
        return (*(self.robot[name] for name in self.inputs), *self.operator)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind} | asdict(self)

    @staticmethod
    def from_dict(data: Any, where: str) -> Manifest:
        if not isinstance(data, Mapping) or data.get("kind") != "controller":
            raise BadInput(f"{where} is not a controller's contract.")
        return from_plain(Manifest, data, where)
