"""What came out of a loop, in numbers and in plain sentences: before, what was wrong, what was done, now; and the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from isthmus.pipeline.evidence import Attempt, LoopHistory, Repair, is_solved
from isthmus.real2sim.identify.model_selection import AS_BELIEVED
from isthmus.real2sim.identify.motor_laws import LAW_PARAMETER_PREFIX, MOTOR_LAW_TERMS
from isthmus.world import Space


@dataclass(frozen=True)
class IdentifiedParameter:
    """A number that was found."""

    name: str
    unit: str
    value: float
    low: float
    high: float
    prior_interval: tuple[float, float]

    @property
    def distance_outside_prior(self) -> float:
        """How far its interval is beyond what was believed, in widths of that; negative where the two overlap."""
        low, high = self.prior_interval
        return max(low - self.high, self.low - high) / max(high - low, 1e-300)

    @property
    def is_outside_prior(self) -> bool:
        return self.distance_outside_prior > 0.0

    def __str__(self) -> str:
        unit = "" if self.unit == "1" else f" {self.unit}"
        before = f"believed {self.prior_interval[0]:.3g} to {self.prior_interval[1]:.3g}"
        return f"{self.name} {self.value:.3g}{unit} ({self.low:.3g} to {self.high:.3g}; {before})"


def identified_parameters(parameters: Mapping[str, Mapping[str, Any]]) -> list[IdentifiedParameter]:
    """What `isthmus identify` found, the furthest from what was believed first."""
    rows = [
        IdentifiedParameter(name, p["unit"], p["value"], p["low"], p["high"], (p["before"][0], p["before"][1]))
        for name, p in parameters.items()
    ]
    return sorted(rows, key=lambda m: -m.distance_outside_prior)


def parameters_outside_prior(parameters: Mapping[str, Mapping[str, Any]]) -> list[IdentifiedParameter]:
    """Those that were found outside of what was believed."""
    return [m for m in identified_parameters(parameters) if m.is_outside_prior]


@dataclass(frozen=True)
class LoopResult:
    good: bool
    """Whether the robot can now do what it should."""
    sentences: tuple[str, ...]
    before: dict[str, Any]
    after: dict[str, Any] | None
    best: dict[str, Any]
    """Of the policy that did best on the robot; of equals the last."""
    cause: str | None
    done: tuple[str, ...]
    """What was done, in words."""
    robot_seconds: float
    """Of the robot's time that were recorded."""
    truth: dict[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def loop_result(history: LoopHistory, space: Space, truth: dict[str, Any] | None) -> LoopResult:
    """`truth` is what a virtual robot really was."""
    first, best = (history.attempts[0], history.best_attempt) if history.attempts else (None, None)
    changed = history.attempts[-1] if len(history.attempts) > 1 else None
    able = best is not None and not history.stop_reason and _manual_repair(history) is None and is_solved(best)
    lines = []
    if first is not None:
        lines.append(f"Before: {_describe_performance(first)}.")
    if first is not None and first.diagnosis.get("headline"):
        lines.append(f"What seemed wrong: {_lower_first(first.diagnosis['headline'])}")
    did = tuple(_describe_repair(repair) for repair in history.repairs)
    if did:
        lines.append(f"What was done: {'; then '.join(did)}.")
    if changed is not None:
        lines.append(f"Now: {_describe_performance(changed)}.")
    if best is not None and best is not (changed or first):
        lines.append(f"The best was an earlier one, {best.controller.name}: {_describe_performance(best)}.")
    if best is not None and best.certificate_record is not None:
        lines.append(
            "Validation: "
            f"{'passed' if best.certificate_record.exit_code == 0 else best.certificate_record.failure or 'not passed'}."
        )
    if history.stop_reason:
        lines.append(f"It stopped there: {history.stop_reason.rstrip('.')}.")
    if truth is not None:
        lines.append(f"In truth: {_describe_truth(truth, space)}.")
    return LoopResult(
        able,
        tuple(lines),
        _attempt_record(first) if first else {},
        _attempt_record(changed) if changed else None,
        _attempt_record(best) | {"run": str(best.run), "controller": str(best.controller)} if best else {},
        first.cause if first else None,
        did,
        history.robot_seconds,
        truth,
    )


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _manual_repair(history: LoopHistory) -> Repair | None:
    return next((r for r in history.repairs if r.action == "by hand"), None)


def _describe_performance(attempt: Attempt) -> str:
    """What a policy could do on the robot."""
    if attempt.watched_success is not None:
        rate, low, high = (100 * attempt.watched_success[k] for k in ("rate", "low", "high"))
        return f"success in {rate:.0f} % of {attempt.watched_success['n']} episodes on the robot ({low:.0f} to {high:.0f} %)"
    if not attempt.recordings:
        return (
            "it could not be started on the robot "
            f"({attempt.run_records[-1].result.get('reason') or attempt.run_records[-1].failure})"
        )
    ended = [str(d.result.get("reason") or d.failure) for d in attempt.run_records if d.exit_code != 0]
    if ended:
        return f"on the robot it ended early ({ended[0]})"
    return f"it ran for {attempt.robot_seconds:.0f} s on the robot to the end"


def _attempt_record(attempt: Attempt) -> dict[str, Any]:
    score = (attempt.gap_record.result.get("score") or None) if attempt.gap_record and not attempt.gap_record.failure else None
    return {
        "success": attempt.watched_success,
        "score": attempt.watched_record.result.get("score") if attempt.watched_record else None,
        "gap": score,
        "recorded_seconds": attempt.robot_seconds,
        "validated": attempt.certificate_record.exit_code == 0 if attempt.certificate_record else None,
    }


def _describe_motor_law(result: dict[str, Any]) -> str:
    """Name of a motor law and the figures that are its own, from what `isthmus actuator` says."""
    name = result["law"]
    values = next((t.get("values") or {} for t in result.get("candidates", ()) if t["law"] == name), {})
    own = next((rung.fields for rung in MOTOR_LAW_TERMS if rung.name == name), ())
    figures = ", ".join(
        f"{field} {values[LAW_PARAMETER_PREFIX + field]:.3g}" for field in own if LAW_PARAMETER_PREFIX + field in values
    )
    return f"{name}: {figures}" if figures else name


def _describe_repair(repair: Repair) -> str:
    match repair.action:
        case "none":
            return "nothing had to be repaired"
        case "by hand":
            return "nothing: this is for a person to repair, no training mends it"
        case "longer":
            return "it was trained for longer"
        case "adapt":
            return "it was trained to find out its world and to adapt to it"
        case "wider":
            return "it was trained in a wider range of worlds"
    parts = [
        "an experiment was chosen and made, and its numbers were found"
        if repair.experiment_record
        else "its numbers were found"
    ]
    if repair.identify_record is not None and not repair.identify_record.failure:
        found = parameters_outside_prior(repair.identify_record.result["parameters"])[:3]
        if found:
            parts[0] += ": " + ", ".join(map(str, found))
    for done in repair.learning_records:
        if done.call.arguments[0] == "actuator" and done.exit_code == 0:
            if done.result.get("law") != AS_BELIEVED:
                parts.append(f"the law of its motors was found ({_describe_motor_law(done.result)})")
        elif done.exit_code == 0 and (ground := done.result.get("ground")):
            parts.append(f"it was found to walk on ground into which it sinks by {1e3 * ground['sink']:.2g} mm")
        elif done.exit_code == 0:
            parts.append("a force that no number explains was learned")
    return ", ".join(parts) + ", and the policy was trained on the twin"


def _describe_truth(truth: Mapping[str, Any], space: Space) -> str:
    words = []
    for table in ("params", "unmodelled", "faults", "sensors"):
        for name, value in (truth.get(table) or {}).items():
            unit = space[name].unit if table == "params" else "1"
            words.append(f"{name} {_format_value(value)}" + ("" if unit == "1" else f" {unit}"))
    return ", ".join(words) or "it was as its model says, but for finer physics"


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{k} {_format_value(v)}" for k, v in value.items()) + ")"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_format_value, value)) + "]"
    return f"{value:g}" if isinstance(value, float | int) and not isinstance(value, bool) else str(value)
