"""The certificate of a controller: what was shown by which trials, and of what. Data only; studio makes the page."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from isthmus.core.errors import BadInput
from isthmus.core.files import content_hash, read_json, write_json
from isthmus.core.results import Result
from isthmus.deploy.controller import Controller
from isthmus.tasks.task import Task
from isthmus.validation.protocol import Protocol
from isthmus.validation.stage_result import Environment, StageResult
from isthmus.world import Belief

DECISION_WORDS = {"pass": "passed", "fail": "failed", "undecided": "not decided", "open": "not finished"}


@dataclass(frozen=True)
class Certificate(Result, kind="certificate"):
    passed: bool
    controller: str
    """Name of its file."""
    task: str
    robot: str
    tested_on: str
    """A twin's file, the robot's prior, a link or a trial sheet."""
    environment: Environment
    unit: str
    """Serial name of the robot, if there is one."""
    protocol: str
    description: str
    """Of the protocol."""
    stages: tuple[StageResult, ...]
    not_reached: tuple[str, ...]
    """Stages of the protocol that were not tried."""
    inputs: Mapping[str, str]
    """Hashes of the controller, its training run, the robot's model, the belief, the twin and the protocol."""
    seed: int
    created_at: float = field(default_factory=time.time)
    """s since 1970."""

    @property
    def first_failed(self) -> StageResult | None:
        """The first stage that did not pass."""
        return next((stage for stage in self.stages if not stage.passed), None)

    @property
    def hash(self) -> str:
        return content_hash(self.to_dict())


def input_hashes(controller: Controller, task: Task, belief: Belief, twin: str, protocol: Protocol) -> dict[str, str]:
    found = {
        "controller": controller.hash,
        "run": controller.manifest.run_hash,
        "model": task.robot.model_hash,
        "belief": belief.hash,
        "protocol": protocol.hash,
    }
    return found | ({"twin": twin} if twin else {})


def save_certificate(certificate: Certificate, path: Path) -> None:
    """Write it as JSON, with its own hash."""
    write_json(path, certificate.to_dict() | {"hash": certificate.hash})


def load_certificate(path: Path) -> Certificate:
    """The certificate in a file; one that was changed after it was written is a BadInput."""
    table = read_json(path)
    own = {k: v for k, v in table.items() if k != "hash"}
    if table.get("kind") != Certificate.kind:
        raise BadInput(f"{path} is not a certificate.")
    if content_hash(own) != table.get("hash"):
        raise BadInput(f"{path} was changed after it was written: its hash does not fit.")
    return Certificate.from_dict(own, str(path))
