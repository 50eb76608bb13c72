"""What travels between a controller and a robot, and what a link between them must do.

    robot -> controller    Packet: all signals of the robot's contract, with a sequence number and the robot's clock
    controller -> robot    Command: a mode and a target
    once, on request       Identity: which robot this is, what it offers, what state it is in

A robot that hears no command for longer than its time-out goes to damping by itself.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from isthmus.data.contract import Contract

Mode = Literal["idle", "track", "damp", "busy"]
"""`idle`: the robot holds itself up and waits; `track`: it follows targets; `damp`: its joints are damped;
`busy`: its built-in controller is on and does not listen."""
MODES: tuple[Mode, ...] = ("idle", "track", "damp", "busy")


@dataclass(frozen=True, slots=True)
class Packet:
    sequence: int
    time: float
    """The robot's clock, s."""
    mode: Mode
    """What the robot is doing."""
    values: np.ndarray
    """All signals of the robot's contract side by side, float64, (width,)."""
    owner: int = 0
    """Which controller the robot obeys; 0 where nobody is in control, or the robot cannot tell."""


@dataclass(frozen=True, slots=True)
class Command:
    sequence: int
    time: float
    """The controller's clock, s."""
    mode: Mode
    """`track` the target, `damp`, or `idle` to give the robot back."""
    target: np.ndarray
    """In the order of the robot's contract, float64, (m,)."""
    owner: int = 0
    """Which controller sends this: a number that it draws for each run."""


@dataclass(frozen=True)
class Identity:
    contract: Contract
    unit: str
    """Which specimen this is."""
    model_hash: str
    """Hash of the robot's model, empty where the robot cannot tell."""
    mode: Mode
    timeout: float
    """s without commands after which the robot damps its joints by itself."""
    source: Literal["real", "virtual"] = "real"


class Clock(Protocol):
    def now(self) -> float:
        """Seconds, from any start, never back."""
        ...

    def sleep_until(self, moment: float) -> None: ...


class Link(Protocol):
    """Transport to one robot: who it is, packets from it, commands to it. Every driver implements this."""

    @property
    def clock(self) -> Clock: ...

    def identity(self, timeout: float) -> Identity:
        """Ask the robot who it is; no answer within `timeout` seconds is a BadInput."""
        ...

    def read(self) -> list[Packet]:
        """Packets that arrived since the last call, in the order of their arrival. Never waits."""
        ...

    def write(self, command: Command) -> None:
        """Send and return at once. A link that is down loses the command; the robot's time-out takes over."""
        ...

    def close(self) -> None: ...


class WallClock:
    """Time as it passes, or `speed` times as fast."""

    def __init__(self, speed: float = 1.0):
        self.speed = speed

    def now(self) -> float:
        return time.perf_counter() * self.speed

    def sleep_until(self, moment: float) -> None:
        left = moment / self.speed - time.perf_counter()
        if left > 0:
            time.sleep(left)
