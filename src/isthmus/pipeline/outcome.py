"""What came out of a loop: LoopResult, and its sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isthmus.core.results import Result
from isthmus.core.statistics import Estimate, Rate
from isthmus.deploy.run_result import RunResult
from isthmus.learn.evaluate.evaluate import Evaluation
from isthmus.learn.train import TrainResult
from isthmus.pipeline.command_line import command_line, shell_text
from isthmus.pipeline.decisions import best_attempt, is_finished
from isthmus.pipeline.evidence import Attempt, LoopHistory, Repair, RobotEvidence
from isthmus.pipeline.journal import CallRecord
from isthmus.pipeline.library import Diagnosis, GapResult
from isthmus.real2sim.identify.fit_actuator import ActuatorResult
from isthmus.real2sim.identify.identify import IdentifyResult
from isthmus.real2sim.identify.learn_residual import ResidualResult
from isthmus.real2sim.identify.model_selection import AS_BELIEVED
from isthmus.real2sim.identify.motor_laws import LAW_PARAMETER_PREFIX, MOTOR_LAW_TERMS
from isthmus.validation.certificate import Certificate
from isthmus.world import Space


@dataclass(frozen=True)
class IdentifiedParameter:
    """An identified parameter beside its prior."""

    name: str
    unit: str
    value: float
    low: float
    high: float
    prior_interval: tuple[float, float]

    @property
    def distance_outside_prior(self) -> float:
        """Distance of its interval from the prior's, in widths of the latter; negative where they overlap."""
        low, high = self.prior_interval
        return max(low - self.high, self.low - high) / max(high - low, 1e-300)

    @property
    def is_outside_prior(self) -> bool:
        return self.distance_outside_prior > 0.0

    def __str__(self) -> str:
        unit = "" if self.unit == "1" else f" {self.unit}"
        prior = f"prior {self.prior_interval[0]:.3g} to {self.prior_interval[1]:.3g}"
        return f"{self.name} {self.value:.3g}{unit} ({self.low:.3g} to {self.high:.3g}; {prior})"


def identified_parameters(result: IdentifyResult) -> list[IdentifiedParameter]:
    """Parameters that `identify` found, those farthest outside their prior first."""
    rows = [IdentifiedParameter(name, p.unit, p.value, p.low, p.high, p.before) for name, p in result.parameters.items()]
    return sorted(rows, key=lambda m: -m.distance_outside_prior)


def parameters_outside_prior(result: IdentifyResult) -> list[IdentifiedParameter]:
    return [m for m in identified_parameters(result) if m.is_outside_prior]


def clue_name(diagnosis: Diagnosis | None) -> str:
    """Which missing physics a diagnosis points at; empty if it does not say."""
    hypotheses = diagnosis.hypotheses if diagnosis else ()
    clue = next((h.clue or {} for h in hypotheses if h.cause == "physics"), {})
    return str(clue.get("name") or "")


@dataclass(frozen=True)
class VirtualScore:
    """A policy in many episodes of a virtual robot, for the report. Not evidence: no decision of the loop reads it."""

    controller: str
    """Name of the controller's file."""
    success: Rate
    score: float


@dataclass(frozen=True)
class AttemptSummary:
    """A policy on the robot."""

    run: str
    controller: str
    evidence: RobotEvidence
    gap: Estimate | None
    """Prediction error of the simulator that it was trained in, in units of the sensor noise."""
    headline: str
    """Verdict of the diagnosis."""
    cause: str | None


@dataclass(frozen=True)
class RepairSummary:
    cause: str | None
    action: str
    twin: str | None
    text: str


@dataclass(frozen=True)
class CallSummary:
    name: str
    command: str
    """Equivalent `isthmus` command."""
    status: str
    seconds: float = field(compare=False)


@dataclass(frozen=True)
class LoopResult(Result, kind="loop"):
    able: bool
    """Whether the robot performs its task with the best policy, which passed its validation."""
    sentences: tuple[str, ...]
    task: str
    link: str
    seed: int
    cause: str | None
    """Diagnosed for the first policy."""
    stop_reason: str
    """Why the loop could not go on; empty if it came to its end."""
    attempts: tuple[AttemptSummary, ...]
    repairs: tuple[RepairSummary, ...]
    best: AttemptSummary | None
    """The policy that is handed over: of the highest rank."""
    robot_seconds: float
    """Robot time that was recorded, s."""
    calls: tuple[CallSummary, ...]
    folder: str
    virtual_scores: tuple[VirtualScore, ...] = ()
    """Of a virtual robot, for each attempt: computed after the last decision."""
    truth: Mapping[str, Any] | None = None
    """Of a virtual robot: its hidden dynamics, which the loop does not read; filled in afterwards by who started it."""


def summarize_attempt(attempt: Attempt) -> AttemptSummary:
    diagnosis, gap = attempt.diagnosis, attempt.gap
    return AttemptSummary(
        str(attempt.run),
        str(attempt.controller),
        attempt.evidence,
        gap.score if gap else None,
        diagnosis.headline if diagnosis else "",
        attempt.cause,
    )


def summarize_call(record: CallRecord) -> CallSummary:
    command = shell_text(["isthmus", *command_line(record.call.verb, record.call.arguments)])
    return CallSummary(record.call.name, command, record.status, round(record.seconds, 3))


def is_able(history: LoopHistory) -> bool:
    """Whether the loop came to its end and its best policy is finished."""
    by_hand = any(r.action == "by hand" for r in history.repairs)
    return (
        bool(history.attempts)
        and not history.stop_reason
        and not by_hand
        and is_finished(best_attempt(history.attempts).evidence)
    )


def loop_sentences(history: LoopHistory, scores: Sequence[VirtualScore]) -> tuple[str, ...]:
    """What came out, in plain words."""
    attempts, lines = history.attempts, []
    by_name = {score.controller: score for score in scores}

    def performance(attempt: Attempt) -> str:
        score = by_name.get(attempt.controller.name)
        return describe_performance(attempt) + (f" [report only: {describe_virtual_score(score)}]" if score else "")

    if attempts:
        lines.append(f"Before: {performance(attempts[0])}.")
        if (diagnosis := attempts[0].diagnosis) is not None and diagnosis.headline:
            lines.append(f"Diagnosis: {_lower_first(diagnosis.headline)}")
    if history.repairs:
        lines.append(f"Repair: {'; then '.join(describe_repair(repair) for repair in history.repairs)}.")
    if len(attempts) > 1:
        lines.append(f"After: {performance(attempts[-1])}.")
    if attempts:
        best = best_attempt(attempts)
        if best is not attempts[-1]:
            lines.append(f"Best: an earlier policy, {best.controller.name}: {performance(best)}.")
        if best.validation is not None:
            passed = best.certificate is not None and best.certificate.passed
            lines.append(f"Validation: {'passed' if passed else best.validation.failure or 'not passed'}.")
    if history.stop_reason:
        lines.append(f"Stopped: {history.stop_reason.rstrip('.')}.")
    return tuple(lines)


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def describe_performance(attempt: Attempt) -> str:
    """What a policy did on the robot, as recorded."""
    evidence = attempt.evidence
    if not attempt.recordings:
        return f"it could not be started on the robot ({(evidence.reasons or ('no run',))[-1]})"
    if evidence.reasons:
        ran = f"it ended early on the robot ({evidence.reasons[0] or evidence.statuses[0]})"
    else:
        ran = f"it ran for {evidence.seconds:.0f} s on the robot to the end"
    if evidence.success is None:
        return ran
    return f"{ran}, recorded success {100 * evidence.success:.0f} %"


def describe_virtual_score(score: VirtualScore) -> str:
    rate, low, high = (100 * x for x in (score.success.rate, score.success.low, score.success.high))
    return f"success in {rate:.0f} % of {score.success.n} episodes of the virtual robot ({low:.0f} to {high:.0f} %)"


def describe_motor_law(result: ActuatorResult) -> str:
    """Name of an actuator model and its own parameters."""
    values = next((c.values for c in result.candidates if c.law == result.law), {})
    own = next((term.fields for term in MOTOR_LAW_TERMS if term.name == result.law), ())
    figures = ", ".join(
        f"{name} {values[LAW_PARAMETER_PREFIX + name]:.3g}" for name in own if LAW_PARAMETER_PREFIX + name in values
    )
    return f"{result.law}: {figures}" if figures else result.law


def describe_repair(repair: Repair) -> str:
    match repair.action:
        case "none":
            return "none was needed"
        case "by hand":
            return "none by training: a person has to correct this"
        case "longer":
            return "the policy was trained for longer"
        case "adapt":
            return "a policy was trained that estimates its dynamics and adapts (RMA)"
        case "wider":
            return "the policy was trained with wider randomization"
    parts = ["the parameters were identified" + (" from an experiment" if repair.experiment else "")]
    found = repair.identification.result_as(IdentifyResult) if repair.identification else None
    if found is not None and (outside := parameters_outside_prior(found)[:3]):
        parts[0] += ": " + ", ".join(map(str, outside))
    for record in repair.learned:
        match record.result:
            case ActuatorResult(law=law) as actuator if law != AS_BELIEVED:
                parts.append(f"an actuator model was fitted ({describe_motor_law(actuator)})")
            case ResidualResult(kept=True, ground=ground) if ground:
                parts.append(f"soft ground was found, into which it sinks by {1e3 * ground.sink:.2g} mm")
            case ResidualResult(kept=True):
                parts.append("residual dynamics were learned")
    return ", ".join(parts) + ", and the policy was trained on the twin"


def describe_truth(truth: Mapping[str, Any], space: Space) -> str:
    """The hidden dynamics of a virtual robot in words."""
    words = []
    for table in ("params", "unmodelled", "faults", "sensors"):
        for name, value in (truth.get(table) or {}).items():
            unit = space[name].unit if table == "params" else "1"
            words.append(f"{name} {_format_value(value)}" + ("" if unit == "1" else f" {unit}"))
    return ", ".join(words) or "as its model, but for finer physics"


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{k} {_format_value(v)}" for k, v in value.items()) + ")"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_format_value, value)) + "]"
    return f"{value:g}" if isinstance(value, float | int) and not isinstance(value, bool) else str(value)


def describe_call(record: CallRecord) -> str:
    """What a call found, in a few words."""
    match record.result:
        case TrainResult(evaluation=evaluation):
            return f"success in {evaluation.success} of its worlds"
        case Evaluation(success=success):
            return f"success in {success}"
        case RunResult(status=status, reason=reason, seconds=seconds):
            ended = "not started" if status == "refused" else f"{status} after {seconds:.1f} s"
            return f"{ended}: {reason}" if reason else ended
        case GapResult() as gap:
            return _describe_gap(gap)
        case Diagnosis(headline=headline, gap=gap):
            return f"{headline} {_describe_gap(gap)}"
        case IdentifyResult() as identified:
            outside = parameters_outside_prior(identified)[:3]
            found = [f"{m.name} {m.value:.3g}{'' if m.unit == '1' else ' ' + m.unit}" for m in outside]
            return ", ".join(found) or "no parameter is outside its prior"
        case ActuatorResult(law=law):
            return f"actuator model: {law}"
        case ResidualResult(kept=kept, ground=ground):
            if ground:
                return f"soft ground: feet sink in by {1e3 * ground.sink:.2g} mm while it stands"
            return "kept" if kept else "does not predict better, not kept"
        case Certificate(passed=passed):
            return "passed" if passed else "not passed"
    return ""


def _describe_gap(gap: GapResult) -> str:
    return f"prediction error {gap.score.value:.3g} times the noise" if gap.score else "the gap cannot be measured"
