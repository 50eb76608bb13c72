"""A body whose packets the test decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from isthmus.data.contract import Contract
from isthmus.deploy.links.link import Command, Identity, Mode, Packet
from support.contracts import still

PERIOD = 0.002


@dataclass
class StandIn:
    """A body that obeys at once: its joints are where the last target says, and it sends what `say` makes of its packets."""

    contract: Contract
    pose: np.ndarray
    every: int = 10
    """Periods between packets."""
    say: Callable[[Packet], Iterable[Packet]] = lambda packet: [packet]
    mode: Mode = "idle"
    model_hash: str = ""
    timeout: float = 0.1
    moves: bool = True
    obeys: bool = True
    period: float = PERIOD
    commands: list[Command] = field(default_factory=list)
    periods: int = 0
    sequence: int = 0

    @cached_property
    def upright(self) -> np.ndarray:
        return still(self.contract)

    @cached_property
    def joints(self) -> list[int]:
        """Columns of the joints behind the targets."""
        if not self.contract.has_joint_targets:
            return []
        first, seen = self.contract.slices()["joint_pos"].start, self.contract["joint_pos"]
        return [first + seen.component_index(label) for label in self.contract.target.labels]

    @property
    def time(self) -> float:
        return self.periods * self.period

    @property
    def identity(self) -> Identity:
        return Identity(self.contract, "stand-in", self.model_hash, self.mode, self.timeout, "virtual")

    def command(self, command: Command) -> None:
        self.commands.append(command)
        if not self.obeys:
            return
        self.mode = command.mode
        if self.moves and self.mode == "track" and self.contract.has_joint_targets:
            self.pose = command.target.copy()

    def values(self) -> np.ndarray:
        values = self.upright.copy()
        if self.joints:
            values[self.joints] = self.pose
        return values

    def advance(self) -> list[Packet]:
        self.periods += 1
        if self.periods % self.every:
            return []
        self.sequence += 1
        return list(self.say(Packet(self.sequence, self.time, self.mode, self.values())))
