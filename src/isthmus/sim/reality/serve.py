"""A virtual robot in a process of its own, on the same link as hardware."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from isthmus.core.errors import unknown_name
from isthmus.core.plain import to_plain
from isthmus.core.results import Result
from isthmus.deploy.links.link import Command, Identity, Packet
from isthmus.sim.reality.virtual_robot import VirtualRobot


@dataclass(frozen=True)
class ServeResult(Result, kind="robot"):
    robot: str
    unit: str
    """Serial name of the virtual robot."""
    model_hash: str
    seconds: float
    """s of its own clock."""
    overruns: int
    """How often the machine was too slow for real time."""


class TruthLog:
    """A virtual robot that also logs its true state, one JSON object per line."""

    LOG_EVERY = 10
    """Periods per line: 50 lines per second."""

    def __init__(self, body: VirtualRobot, path: Path):
        self.body, self.period = body, body.period
        self._file, self._count = path.open("w"), 0

    @property
    def identity(self) -> Identity:
        return self.body.identity

    def command(self, command: Command) -> None:
        self.body.command(command)

    def advance(self) -> list[Packet]:
        packets = self.body.advance()
        if self._count % self.LOG_EVERY == 0:
            self._file.write(json.dumps(to_plain(self.body.truth())) + "\n")
        self._count += 1
        return packets

    def skip(self, seconds: float) -> None:
        self.body.skip(seconds)

    def close(self) -> None:
        self._file.close()


def serve(
    body: VirtualRobot,
    link: str = "zenoh",
    *,
    speed: float = 1.0,
    seconds: float = math.inf,
    truth: Path | None = None,
    stopping: Callable[[], bool] = lambda: False,
    on_listening: Callable[[str], None] = lambda endpoint: None,
) -> ServeResult:
    """Run a virtual robot in `speed` times real time for `seconds` s of the wall clock, or until `stopping()`.

    `link` is zenoh or zenoh:ENDPOINT; `truth` is a file for a log of the true state; `on_listening` hears the endpoint.
    """
    kind, _, endpoint = link.partition(":")
    if kind != "zenoh":
        raise unknown_name("link", link, ["zenoh"], "a robot's process")
    from isthmus.deploy.links.zenoh import DEFAULT_ENDPOINT, ZenohRobot

    log = TruthLog(body, truth) if truth else None
    end = ZenohRobot(log or body, endpoint or DEFAULT_ENDPOINT, speed)
    on_listening(endpoint or DEFAULT_ENDPOINT)
    over = time.monotonic() + seconds
    try:
        end.serve(lambda: not stopping() and time.monotonic() < over)
    finally:
        end.close()
        if log is not None:
            log.close()
    return ServeResult(body.robot.name, body.identity.unit, body.robot.model_hash, body.time, end.overruns)
