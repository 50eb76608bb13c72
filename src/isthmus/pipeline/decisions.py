"""Every decision of the loop, as pure functions of evidence that hardware can give.

decision                   function               from
record again?              records_again          takes, recorded seconds, a take that repeats the one before
can anything be repaired?  reason_not_repairable  a recording, its measured gap, hypotheses
does it perform its task?  performs_task          every run completed; recorded success, where it is measurable
which repair?              choose_repair          cause, performance, twin, round: the table REPAIRS
ground, actuator, force?   is_unexplained, …      held-out error, cause, clue, friction outside its prior
train further?             next_training          success over the twin's worlds: RetrainRules
deploy?                    reason_not_to_deploy   the same
finished?                  is_finished            certificate and performs_task
another round?             has_improved           rank
which policy?              best_attempt           rank, of equals the last
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from isthmus.core.statistics import Rate
from isthmus.pipeline.evidence import Action, Attempt, LoopHistory, RobotEvidence
from isthmus.pipeline.settings import RECORDING, REPAIR, RETRAIN

# What the robot shows ---------------------------------------------------------------------------------------------


def performs_task(evidence: RobotEvidence) -> bool:
    """Whether every run completed and the recorded success, where it is measurable, is high enough."""
    completed = bool(evidence.statuses) and all(status == "completed" for status in evidence.statuses)
    return completed and (evidence.success is None or evidence.success >= REPAIR.min_success)


def is_finished(evidence: RobotEvidence) -> bool:
    """Whether the policy passed its validation and the robot performs its task."""
    return evidence.certified is True and performs_task(evidence)


def ranks(evidence: Sequence[RobotEvidence]) -> list[tuple[float, ...]]:
    """A sortable rank of each: not stopped, certificate passed, recorded success, recorded score, recorded seconds.

    An entry that any of them lacks is left out for all.
    """
    rows: list[tuple[float | None, ...]] = [
        (
            float(not any(status in ("guard", "refused", "failed") for status in e.statuses)),
            None if e.certified is None else float(e.certified),
            e.success,
            e.score,
            round(e.seconds, 1),  # runs of equal length differ by some ticks
        )
        for e in evidence
    ]
    kept = [i for i in range(5) if all(row[i] is not None for row in rows)]
    return [tuple(float(row[i] or 0.0) for i in kept) for row in rows]


def has_improved(evidence: Sequence[RobotEvidence]) -> bool:
    """Whether the last attempt ranks above all before it."""
    found = ranks(evidence)
    return len(found) < 2 or found[-1] > max(found[:-1])


def best_attempt(attempts: Sequence[Attempt]) -> Attempt:
    """The attempt of the highest rank, of equals the last: its policy is handed over."""
    found = ranks([a.evidence for a in attempts])
    return attempts[max(range(len(attempts)), key=lambda i: (found[i], i))]


def records_again(takes: int, recorded_seconds: float, asked_seconds: float, recorded: bool, repeats: bool) -> bool:
    """Whether a robot that was stopped early is recorded once more; not if nothing new would come of it."""
    enough = recorded_seconds >= RECORDING.min_recorded_fraction * asked_seconds
    return recorded and not enough and not repeats and takes < RECORDING.max_takes


def reason_not_repairable(attempt: Attempt) -> str:
    """Why nothing can be repaired after an attempt; empty if something can."""
    reasons = attempt.evidence.reasons
    if not attempt.recordings:
        return f"the robot could not be run: {reasons[-1] if reasons else 'nothing was recorded'}"
    if attempt.measured is None or attempt.measured.failure:
        stopped = next((f" The robot had been stopped: {reason}" for reason in reasons if reason), "")
        return (
            f"the recording cannot be used: {attempt.measured.failure if attempt.measured else 'it was not measured'}{stopped}"
        )
    if attempt.diagnosis is None or not attempt.diagnosis.hypotheses:
        return (attempt.diagnosis.headline if attempt.diagnosis else "") or "the recording says nothing"
    return ""


# Which repair -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Situation:
    """What the choice of a repair depends on."""

    cause: str | None
    """Diagnosed; None if it cannot be told."""
    performs_task: bool
    twin_known: bool
    last_action: Action | None
    round_index: int
    """From 1."""


@dataclass(frozen=True)
class RepairRule:
    causes: tuple[str | None, ...]
    """Empty for any."""
    action: Action
    applies: Callable[[Situation], bool] = lambda situation: True


REPAIRS: tuple[RepairRule, ...] = (
    RepairRule(("wiring", "controller"), "by hand"),
    RepairRule(("nothing",), "none", lambda s: s.performs_task),
    RepairRule(("nothing", "policy"), "longer"),
    RepairRule(("states",), "wider"),
    # The twin is as good as it can be, and its policy still fails.
    RepairRule(("inside",), "adapt", lambda s: s.twin_known and s.last_action != "adapt"),
    RepairRule((None,), "experiment"),
    RepairRule((), "experiment", lambda s: s.round_index > 1),
    RepairRule((), "identify"),
)
"""The first rule that fits."""

BODY_FORCES = ("drag", "drag of rotors", "pull", "cable")
"""Missing physics that acts on a body, not in its motors."""


def choose_repair(situation: Situation) -> Action:
    return next(r.action for r in REPAIRS if (not r.causes or situation.cause in r.causes) and r.applies(situation))


def situation_of(history: LoopHistory, round_index: int) -> Situation:
    last = history.attempts[-1]
    action = history.repairs[-1].action if history.repairs else None
    return Situation(last.cause, performs_task(last.evidence), history.last_twin is not None, action, round_index)


def is_unexplained(cause: str | None, errors: Iterable[float]) -> bool:
    """Whether parameters alone do not explain a recording, from prediction errors in units of the noise."""
    largest = max((e for e in errors if math.isfinite(e)), default=0.0)
    return cause == "physics" or largest >= REPAIR.unexplained_error


def learns_ground(legged: bool, friction_outside_prior: bool, unexplained: bool, clue: str) -> bool:
    """Whether the ground contact model comes first: without it, friction is biased and may hide nearly all of the error."""
    return legged and (friction_outside_prior or (unexplained and not clue))


def learns_actuator(drives_joints: bool, clue: str) -> bool:
    """Whether unexplained physics is looked for in the motors; otherwise in a force on the body."""
    return drives_joints and clue not in BODY_FORCES


# Training on the twin ---------------------------------------------------------------------------------------------


def next_training(rates: Sequence[float], from_scratch: bool) -> Literal["good", "restart", "stop", "continue"]:
    """What follows trainings with these success rates over the twin's worlds, the last series of them."""
    if rates[-1] >= RETRAIN.good_success:
        return "good"
    if not from_scratch and rates[-1] < RETRAIN.restart_from_scratch_below:
        return "restart"
    stuck = rates[-1] < RETRAIN.abandon_scratch_below or rates[-1] <= max(rates[:-1], default=-1.0)
    return "stop" if stuck else "continue"


def reason_not_to_deploy(success: Rate) -> str:
    """Why a policy is not tried on the robot; empty if it is."""
    if success.high >= RETRAIN.min_success_to_deploy:
        return ""
    return (
        f"a policy that was trained on the twin succeeds in {100 * success.rate:.0f} % of its worlds: this robot cannot do "
        "the task, or needs far more training"
    )
