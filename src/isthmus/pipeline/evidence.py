"""What a loop did and what came of it: attempts on the robot, repairs between them, and the evidence of each attempt."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.data.mcap.reader import read_episode
from isthmus.deploy.run_result import RunResult
from isthmus.pipeline.journal import CallRecord
from isthmus.pipeline.library import Diagnosis, GapResult
from isthmus.validation.certificate import Certificate

Action = Literal["none", "by hand", "longer", "wider", "adapt", "identify", "experiment"]
"""A repair: none needed; for a person; more training; wider randomization; a policy that adapts (RMA); identification, which
an experiment may precede."""


@dataclass(frozen=True)
class RobotEvidence:
    """What the robot showed of one policy: only what hardware can show.

    There is no field for episodes inside a virtual robot's hidden dynamics, so no decision can read them.
    """

    statuses: tuple[str, ...] = ()
    """How each run ended: completed, guard, interrupted, refused, or failed without a result."""
    reasons: tuple[str, ...] = ()
    """Why the runs that did not complete ended."""
    seconds: float = 0.0
    """Recorded, over all runs, s."""
    success: float | None = None
    """Success computed from the recordings, 0 to 1; None where sensors do not tell."""
    score: float | None = None
    """The task's score computed from the recordings, 0 to 1."""
    certified: bool | None = None
    """Whether the policy passed its validation; None if it was not validated."""


def run_seconds(records: Iterable[CallRecord]) -> float:
    """Robot time that some runs took, s."""
    return sum(result.seconds for record in records if (result := record.result_as(RunResult)) is not None)


@dataclass(frozen=True)
class Attempt:
    """A policy on the robot."""

    name: Literal["prior", "twin"]
    """What it was trained on."""
    run: Path
    controller: Path
    runs: tuple[CallRecord, ...] = ()
    measured: CallRecord | None = None
    """Of `diagnose`, or of `measure` in the last round."""
    validation: CallRecord | None = None

    @property
    def recordings(self) -> tuple[Path, ...]:
        return tuple(p for record in self.runs for p in record.call.outputs if p.exists())

    @property
    def diagnosis(self) -> Diagnosis | None:
        return self.measured.result_as(Diagnosis) if self.measured else None

    @property
    def gap(self) -> GapResult | None:
        if self.measured is None:
            return None
        return self.diagnosis.gap if self.diagnosis else self.measured.result_as(GapResult)

    @property
    def certificate(self) -> Certificate | None:
        return self.validation.result_as(Certificate) if self.validation else None

    @property
    def cause(self) -> str | None:
        return self.diagnosis.cause if self.diagnosis else None

    @property
    def evidence(self) -> RobotEvidence:
        results = [record.result_as(RunResult) for record in self.runs]
        ended = [
            (result.status, result.reason) if result else ("failed", record.failure)
            for record, result in zip(self.runs, results, strict=True)
        ]
        return RobotEvidence(
            statuses=tuple(status for status, _ in ended),
            reasons=tuple(reason for status, reason in ended if status != "completed"),
            seconds=run_seconds(self.runs),
            success=recorded_metric(self.gap, "success"),
            score=recorded_metric(self.gap, "score"),
            certified=(self.certificate is not None and self.certificate.passed) if self.validation else None,
        )


def recorded_metric(gap: GapResult | None, name: str) -> float | None:
    """A metric of the task as the recordings show it; None where it cannot be computed from them."""
    measures = ((gap.behaviour or {}).get("measures") or []) if gap else []
    value = next((m["recorded"] for m in measures if m["name"] == name), None)
    return float(value) if value is not None and math.isfinite(value) else None


@dataclass(frozen=True)
class Repair:
    """What was done about a gap."""

    cause: str | None
    action: Action
    twin: Path | None = None
    """Dynamics to retrain on; None for the prior."""
    identification: CallRecord | None = None
    experiment: CallRecord | None = None
    learned: tuple[CallRecord, ...] = ()
    """Ground contact model, actuator model and residual dynamics that were tried after the identification."""


@dataclass
class LoopHistory:
    """Everything that a loop did, in order."""

    attempts: list[Attempt] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    stop_reason: str = ""
    """Why it could not go on; empty if it came to its end."""
    sweeps: tuple[CallRecord, ...] = ()
    """Evaluations of the first and the last policy in wider worlds, for the report."""

    @property
    def robot_seconds(self) -> float:
        """Robot time that was recorded, s."""
        experiments = [r.experiment for r in self.repairs if r.experiment is not None]
        return sum(a.evidence.seconds for a in self.attempts) + run_seconds(experiments)

    @property
    def last_twin(self) -> Path | None:
        return next((r.twin for r in reversed(self.repairs) if r.twin), None)


def repeats_samples(recording: Path, before: Path) -> bool:
    """Whether a recording has the same signals and targets as another, sample for sample."""
    try:
        a, b = read_episode(recording), read_episode(before)
    except BadInput:
        return False
    pairs = [(a.target, b.target), *((a.signals[n], b.signals[n]) for n in a.signals if n in b.signals)]
    return a.signals.keys() == b.signals.keys() and all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)
