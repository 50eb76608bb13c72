"""Policies that nobody trained, robots that remember what they were told, and runs of one on the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from isthmus.core.geometry import to_matrix
from isthmus.data.contract import Contract
from isthmus.data.episode import Episode
from isthmus.data.mcap.writer import read_episode
from isthmus.deploy.command_schedule import CommandSchedule
from isthmus.deploy.links.in_process import InProcessLink, RobotBody
from isthmus.deploy.links.link import Command, Identity, Packet
from isthmus.deploy.manifest import Manifest
from isthmus.deploy.onnx_controller import OnnxController
from isthmus.deploy.preflight import Check, preflight
from isthmus.deploy.run_result import RunResult
from isthmus.learn.policies import export
from isthmus.learn.policies.actor import Actor, ActorSpec
from isthmus.learn.runs import Run, RunConfig
from isthmus.robots import get_robot
from isthmus.sim.reality.tables import Faults
from isthmus.sim.reality.wiring_faults import WiringFaults
from isthmus.tasks.task import Task
from support import lockstep
from support.contracts import GRAVITY
from support.virtual_robots import GO1, virtual


@dataclass(frozen=True)
class Made:
    """An actor as training has it, and the graph as export writes it."""

    run: Run
    actor: Actor
    onnx: bytes
    manifest: Manifest

    @property
    def controller(self) -> OnnxController:
        return OnnxController(self.manifest, self.onnx)


def make(task: Task, prepare: Callable[[Actor], None] = lambda actor: None, mirrored: bool = True) -> Made:
    torch.manual_seed(0)
    actor = Actor(ActorSpec.for_task(task, (16,), mirrored))
    with torch.no_grad():
        prepare(actor)
    run = Run(Path(), RunConfig(task.name), task, task.robot.prior, {"hash": "0" * 64})
    data = export.graph_bytes(actor)
    return Made(run, actor, data, export.make_manifest(run, actor, data))


class Watched:
    """A robot that remembers what it was told. What it says and hears may pass through a bridge that changes it."""

    def __init__(
        self,
        body: RobotBody,
        contract: Contract | None = None,
        say: Callable[[Packet], list[Packet]] = lambda packet: [packet],
        hear: Callable[[Command], Command] = lambda command: command,
    ):
        self.body, self.period, self.say, self.hear = body, body.period, say, hear
        self.contract = contract or body.identity.contract
        self.commands: list[Command] = []

    @property
    def identity(self) -> Identity:
        return replace(self.body.identity, contract=self.contract)

    def command(self, command: Command) -> None:
        self.commands.append(command)
        self.body.command(self.hear(command))

    def advance(self) -> list[Packet]:
        return [said for packet in self.body.advance() for said in self.say(packet)]


def real(start: np.ndarray | None = None, robot: str = "go1", **tables) -> Watched:
    """A virtual robot with a reality of these tables."""
    return Watched(virtual(get_robot(robot), start=start, **tables))


class Still:
    """go1 at rest in its default pose on ground that is tilted by a quaternion, behind the wires of `faults`."""

    period = 0.002

    def __init__(self, quat: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0), pace: float = 1.0, faults: Faults | None = None):
        quat_ = np.array(quat) / np.linalg.norm(quat)
        up = to_matrix(quat_[None])[0].T @ [0.0, 0.0, GRAVITY]
        sensed = np.concatenate([GO1.default, np.zeros(12), np.zeros(3), quat_, up])
        self.values = WiringFaults(faults or Faults(), GO1.contract).signals(sensed[None])[0]
        self.pace, self.count = pace, 0
        self.identity = Identity(GO1.contract, "still", GO1.model_hash, "idle", 0.1)

    def command(self, command: Command) -> None:
        pass

    def advance(self) -> list[Packet]:
        self.count += 1
        return [Packet(self.count, self.count * self.period * self.pace, "idle", self.values.copy())]


def look(made: Made, body: Watched) -> list[Check]:
    """The checks of a preflight, in which no command is ever sent."""
    found, flight = preflight(made.controller, InProcessLink(body), CommandSchedule(made.manifest.operator).values_at(0.0))
    assert body.commands == []
    assert (flight is not None) == all(c.ok for c in found)
    return found


def failed(made: Made, body: Watched) -> dict[str, str]:
    """Checks that failed, and what they say."""
    return {c.name: c.text for c in look(made, body) if not c.ok}


def fly(made: Made, body: Watched, seconds: float, path: Path | None = None, link: InProcessLink | None = None) -> RunResult:
    """A whole run on a robot that passes preflight."""
    return lockstep.fly(made.controller, body, seconds, path, link=lambda body: link or InProcessLink(body))[0]


def recorded(made: Made, body: Watched, seconds: float, path: Path) -> tuple[RunResult, Episode]:
    outcome = fly(made, body, seconds, path)
    return outcome, read_episode(path)
