"""A link to a simulated robot inside this process. Its clock is the robot's: sleeping is what makes the robot move.

So controller and robot are in lock-step, and a run takes as long as its arithmetic.
"""

from __future__ import annotations

from typing import Protocol

from isthmus.deploy.links.link import Command, Identity, Packet


class RobotBody(Protocol):
    """A robot that moves when it is told to: the virtual robot, or a stand-in for one in a test."""

    @property
    def identity(self) -> Identity: ...

    @property
    def period(self) -> float:
        """s that `advance` takes the robot forward."""
        ...

    def command(self, command: Command) -> None: ...

    def advance(self) -> list[Packet]:
        """One period of its life; what it says meanwhile."""
        ...

    def skip(self, seconds: float) -> None:
        """So much time passed without `advance`, because the machine was too slow. A simulated clock goes on by as much."""
        ...


class InProcessLink:
    def __init__(self, body: RobotBody):
        self.body, self.clock = body, self
        self._inbox: list[Packet] = []
        self._elapsed_periods = 0

    def now(self) -> float:
        return self._elapsed_periods * self.body.period

    def sleep_until(self, moment: float) -> None:
        # A period that ends a rounding error after the moment belongs to it.
        while (self._elapsed_periods + 1) * self.body.period <= moment + 1e-9:
            self._inbox += self.body.advance()
            self._elapsed_periods += 1

    def identity(self, timeout: float) -> Identity:
        return self.body.identity

    def read(self) -> list[Packet]:
        found, self._inbox = self._inbox, []
        return found

    def write(self, command: Command) -> None:
        self.body.command(command)

    def close(self) -> None:
        pass
