"""What a loop was asked for, and everything that it did, in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from isthmus.learn.recipes import budget_minutes
from isthmus.pipeline.budgets import task_budget
from isthmus.pipeline.journal import CallRecord

SHIPPED_REALITY = "hidden.toml"
"""Name, in the loop's folder, of a reality that comes with a task."""
MIN_SUCCESS_RATE = 0.9
"""Part of the episodes that must succeed for a robot to be called able."""
TRAINING_BUDGET_SHARES = (0.5, 0.25)
"""Of a budget, for the first training and for all others; the rest is for everything else."""
MAX_TRAININGS, MAX_TRAININGS_IN_BUDGET = 6, 2
"""How often a policy is trained for a twin, at most, and within a budget."""


@dataclass(frozen=True)
class LoopSettings:
    """What a loop was asked for; it goes on only under the same."""

    task: str
    link: str
    """Link to the robot, as `isthmus run` takes it."""
    watched: str = ""
    """Reality of a virtual robot, as `isthmus evaluate` takes it, for watching it; nothing here reads what it says."""
    seconds: float = 10.0
    rounds: int = 1
    budget: float = 0.0
    """Minutes for all of it; 0 takes what it needs."""
    seed: int = 0
    run: str = ""
    """A policy to begin with, instead of training one."""

    def reality_argument(self, folder: Path) -> str:
        """Of a virtual robot, as commands take it."""
        return str(folder / SHIPPED_REALITY) if self.watched == SHIPPED_REALITY else self.watched

    def robot_link(self, folder: Path) -> str:
        """The link to the robot."""
        return f"sim:{self.reality_argument(folder)}" if self.watched else self.link

    @property
    def max_trainings(self) -> int:
        """How often a policy is trained after a repair, at most."""
        return MAX_TRAININGS_IN_BUDGET if self.budget else MAX_TRAININGS

    def training_options(self, which: Literal["first", "on", "anew"]) -> tuple[str, ...]:
        """Options that say how long a policy is trained: the first of all, one that goes on, one that begins anew."""
        if self.budget:
            share = (
                TRAINING_BUDGET_SHARES[0]
                if which == "first"
                else TRAINING_BUDGET_SHARES[1] / (self.rounds * MAX_TRAININGS_IN_BUDGET)
            )
            return "--minutes", f"{self.budget * share:.4g}"
        if ticks := task_budget(self.task).training_ticks[which == "on"]:
            return "--steps", str(ticks)
        return "--minutes", f"{budget_minutes(self.task) * (0.5 if which == 'on' else 1.0):.4g}"


def recorded_seconds(runs: Iterable[CallRecord]) -> float:
    """s of the robot's time in some runs."""
    return sum(float(done.result.get("seconds") or 0.0) for done in runs)


@dataclass(frozen=True)
class Attempt:
    """A policy on the robot."""

    name: str
    run: Path
    controller: Path
    run_records: tuple[CallRecord, ...] = ()
    watched_record: CallRecord | None = None
    gap_record: CallRecord | None = None
    certificate_record: CallRecord | None = None

    @property
    def recordings(self) -> tuple[Path, ...]:
        return tuple(p for done in self.run_records for p in done.call.outputs if p.exists())

    @property
    def diagnosis(self) -> dict[str, Any]:
        return (self.gap_record.result.get("why") or {}) if self.gap_record and not self.gap_record.failure else {}

    @property
    def cause(self) -> str | None:
        return self.diagnosis.get("cause")

    @property
    def watched_success(self) -> dict[str, Any] | None:
        """Of a virtual robot: rate with its interval."""
        return self.watched_record.result.get("success") if self.watched_record and not self.watched_record.failure else None

    @property
    def robot_seconds(self) -> float:
        """Of the robot's time that was recorded."""
        return recorded_seconds(self.run_records)


@dataclass(frozen=True)
class Repair:
    """What was done about a gap."""

    cause: str | None
    action: str
    """none, by hand, longer, wider, adapt, numbers or experiment."""
    twin: Path | None = None
    identify_record: CallRecord | None = None
    experiment_record: CallRecord | None = None
    learning_records: tuple[CallRecord, ...] = ()
    """Motor laws and forces that were tried on top of the numbers."""


@dataclass
class LoopHistory:
    """Everything that a loop did, in order."""

    attempts: list[Attempt] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    stop_reason: str = ""
    """Why it could not go on; empty if it came to its end."""
    sweep_records: tuple[CallRecord, ...] = ()
    """The first and the last policy in many worlds."""

    @property
    def robot_seconds(self) -> float:
        """Of the robot's time that was recorded."""
        return sum(a.robot_seconds for a in self.attempts) + recorded_seconds(
            r.experiment_record for r in self.repairs if r.experiment_record is not None
        )

    @property
    def last_twin(self) -> Path | None:
        """The last that was made."""
        return next((r.twin for r in reversed(self.repairs) if r.twin), None)

    @property
    def best_attempt(self) -> Attempt:
        """The policy that did best on the robot, as far as that is known; of equals the last."""
        return max(reversed(self.attempts), key=lambda a: a.watched_success["rate"] if a.watched_success else 0.0)


def is_solved(attempt: Attempt) -> bool:
    """Whether it passed its validation and the robot did its task: of a virtual one as watched, of another as recorded."""
    if attempt.certificate_record is None or attempt.certificate_record.exit_code != 0:
        return False
    return performs_task(attempt)


def has_improved(history: LoopHistory) -> bool:
    """Whether the last policy is better than all before; of a robot that nobody watches, nobody can tell."""
    rates = [a.watched_success["rate"] for a in history.attempts if a.watched_success]
    return len(rates) < 2 or rates[-1] > max(rates[:-1])


def performs_task(attempt: Attempt) -> bool:
    """Whether the robot does its task."""
    if attempt.watched_record is not None:
        return attempt.watched_success is not None and float(attempt.watched_success["rate"]) >= MIN_SUCCESS_RATE
    measures = (
        ((attempt.gap_record.result.get("behaviour") or {}).get("measures") or [])
        if attempt.gap_record is not None and not attempt.gap_record.failure
        else []
    )
    recorded = next((m["recorded"] for m in measures if m["name"] == "success"), None)
    return (
        bool(attempt.run_records)
        and all(d.exit_code == 0 for d in attempt.run_records)
        and (recorded is None or recorded >= MIN_SUCCESS_RATE)
    )
