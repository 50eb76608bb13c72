"""Runs in lock-step with robots inside this process."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from isthmus.data.episode import Episode
from isthmus.data.mcap.writer import EpisodeWriter
from isthmus.deploy.command_schedule import CommandSchedule
from isthmus.deploy.controller import Controller
from isthmus.deploy.guard.guard import GUARD_STATES
from isthmus.deploy.links.in_process import InProcessLink, RobotBody
from isthmus.deploy.links.link import Packet
from isthmus.deploy.preflight import Check, PreparedRobot, preflight
from isthmus.deploy.recorder import STATUS_COLUMNS, Recorder
from isthmus.deploy.run_result import RunResult
from isthmus.deploy.runtime import ControlLoop
from support.contracts import contracts
from support.controllers import counting
from support.fake_bodies import PERIOD, StandIn

CONTRACTS = contracts()
GO1 = CONTRACTS["go1"][0]
GAIN = 0.0005


def stand_in(name: str = "go1", **options) -> StandIn:
    contract, default = CONTRACTS[name]
    contract = options.pop("contract", contract)
    return StandIn(contract, **({"pose": default, "every": int(1 / contract.rate / PERIOD)} | options))


def counter(name: str = "go1", signal: str = "", model_hash: str = "m" * 64) -> Controller:
    contract, default = CONTRACTS[name]
    return counting(contract, default, signal, GAIN, model_hash)


def ready(controller: Controller, link, operator: CommandSchedule | None = None) -> tuple[PreparedRobot, list[Check]]:
    """Preflight that is expected to pass."""
    asked = (operator or CommandSchedule(controller.manifest.operator)).values_at(0.0)
    checks, flight = preflight(controller, link, asked)
    assert flight is not None, [c for c in checks if not c.ok]
    return flight, checks


def fly(
    controller: Controller,
    body: RobotBody,
    seconds: float,
    path: Path | io.BytesIO | None = None,
    commands: tuple[str, ...] = (),
    link: Callable[[RobotBody], InProcessLink] = InProcessLink,
    stopping: Callable[[], str] = lambda: "",
) -> tuple[RunResult, ControlLoop]:
    """Preflight and run."""
    made, operator = link(body), CommandSchedule(controller.manifest.operator, commands)
    flight, _ = ready(controller, made, operator)
    recorder = path and Recorder(
        EpisodeWriter(path, flight.identity.contract, controller.manifest.operator, STATUS_COLUMNS, {})
    )
    loop = ControlLoop(controller, made, flight, operator, recorder or None)
    return loop.run(seconds, stopping), loop


def states(episode: Episode) -> list[str]:
    return [GUARD_STATES[int(i)] for i in episode.status["state"]]


def changes(names: list[str]) -> list[str]:
    return [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]


def quiet(start: float, seconds: float) -> Callable[[Packet], list[Packet]]:
    """Say nothing for some time; what would have been said is lost."""
    return lambda packet: [] if start <= packet.time < start + seconds else [packet]
