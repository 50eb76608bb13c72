"""What came out of a loop, in numbers and in plain sentences: before, what was wrong, what was done, now; and the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from isthmus.identify.ladder import FIGURE, LADDER
from isthmus.identify.tried import AS_BELIEVED
from isthmus.loop.story import Attempt, Repair, Story, good
from isthmus.world import Space


@dataclass(frozen=True)
class Found:
    """A number that was found."""

    name: str
    unit: str
    value: float
    low: float
    high: float
    before: tuple[float, float]

    @property
    def outside(self) -> float:
        """How far its interval is beyond what was believed, in widths of that; negative where the two overlap."""
        low, high = self.before
        return max(low - self.high, self.low - high) / max(high - low, 1e-300)

    @property
    def out(self) -> bool:
        return self.outside > 0.0

    def __str__(self) -> str:
        unit = "" if self.unit == "1" else f" {self.unit}"
        before = f"believed {self.before[0]:.3g} to {self.before[1]:.3g}"
        return f"{self.name} {self.value:.3g}{unit} ({self.low:.3g} to {self.high:.3g}; {before})"


def numbers(parameters: Mapping[str, Mapping[str, Any]]) -> list[Found]:
    """What `isthmus identify` found, the furthest from what was believed first."""
    rows = [
        Found(name, p["unit"], p["value"], p["low"], p["high"], (p["before"][0], p["before"][1]))
        for name, p in parameters.items()
    ]
    return sorted(rows, key=lambda m: -m.outside)


def moved(parameters: Mapping[str, Mapping[str, Any]]) -> list[Found]:
    """Those that were found outside of what was believed."""
    return [m for m in numbers(parameters) if m.out]


@dataclass(frozen=True)
class Outcome:
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


def outcome(story: Story, space: Space, truth: dict[str, Any] | None) -> Outcome:
    """`truth` is what a virtual robot really was."""
    first, best = (story.attempts[0], story.best) if story.attempts else (None, None)
    changed = story.attempts[-1] if len(story.attempts) > 1 else None
    able = best is not None and not story.stopped and _by_hand(story) is None and good(best)
    lines = []
    if first is not None:
        lines.append(f"Before: {_could(first)}.")
    if first is not None and first.why.get("headline"):
        lines.append(f"What seemed wrong: {_lower(first.why['headline'])}")
    did = tuple(_did(repair) for repair in story.repairs)
    if did:
        lines.append(f"What was done: {'; then '.join(did)}.")
    if changed is not None:
        lines.append(f"Now: {_could(changed)}.")
    if best is not None and best is not (changed or first):
        lines.append(f"The best was an earlier one, {best.controller.name}: {_could(best)}.")
    if best is not None and best.certificate is not None:
        lines.append(f"Validation: {'passed' if best.certificate.code == 0 else best.certificate.failed or 'not passed'}.")
    if story.stopped:
        lines.append(f"It stopped there: {story.stopped.rstrip('.')}.")
    if truth is not None:
        lines.append(f"In truth: {_truly(truth, space)}.")
    return Outcome(
        able,
        tuple(lines),
        _numbers(first) if first else {},
        _numbers(changed) if changed else None,
        _numbers(best) | {"run": str(best.run), "controller": str(best.controller)} if best else {},
        first.cause if first else None,
        did,
        story.seconds,
        truth,
    )


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _by_hand(story: Story) -> Repair | None:
    return next((r for r in story.repairs if r.what == "by hand"), None)


def _could(a: Attempt) -> str:
    """What a policy could do on the robot."""
    if a.success is not None:
        rate, low, high = (100 * a.success[k] for k in ("rate", "low", "high"))
        return f"success in {rate:.0f} % of {a.success['n']} episodes on the robot ({low:.0f} to {high:.0f} %)"
    if not a.recordings:
        return f"it could not be started on the robot ({a.records[-1].result.get('why') or a.records[-1].failed})"
    ended = [str(d.result.get("why") or d.failed) for d in a.records if d.code != 0]
    if ended:
        return f"on the robot it ended early ({ended[0]})"
    return f"it ran for {a.seconds:.0f} s on the robot to the end"


def _numbers(a: Attempt) -> dict[str, Any]:
    score = (a.gap.result.get("score") or None) if a.gap and not a.gap.failed else None
    return {
        "success": a.success,
        "score": a.watched.result.get("score") if a.watched else None,
        "gap": score,
        "recorded_seconds": a.seconds,
        "validated": a.certificate.code == 0 if a.certificate else None,
    }


def _law(result: dict[str, Any]) -> str:
    """Name of a motor law and the figures that are its own, from what `isthmus actuator` says."""
    name = result["law"]
    values = next((t.get("values") or {} for t in result.get("tried", ()) if t["law"] == name), {})
    own = next((rung.fields for rung in LADDER if rung.name == name), ())
    figures = ", ".join(f"{field} {values[FIGURE + field]:.3g}" for field in own if FIGURE + field in values)
    return f"{name}: {figures}" if figures else name


def _did(repair: Repair) -> str:
    match repair.what:
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
    parts = ["an experiment was chosen and made, and its numbers were found" if repair.probe else "its numbers were found"]
    if repair.identified is not None and not repair.identified.failed:
        found = moved(repair.identified.result["parameters"])[:3]
        if found:
            parts[0] += ": " + ", ".join(map(str, found))
    for done in repair.learned:
        if done.step.args[0] == "actuator" and done.code == 0:
            if done.result.get("law") != AS_BELIEVED:
                parts.append(f"the law of its motors was found ({_law(done.result)})")
        elif done.code == 0 and (ground := done.result.get("ground")):
            parts.append(f"it was found to walk on ground into which it sinks by {1e3 * ground['sink']:.2g} mm")
        elif done.code == 0:
            parts.append("a force that no number explains was learned")
    return ", ".join(parts) + ", and the policy was trained on the twin"


def _truly(truth: Mapping[str, Any], space: Space) -> str:
    words = []
    for table in ("params", "unmodelled", "faults", "sensors"):
        for name, value in (truth.get(table) or {}).items():
            unit = space[name].unit if table == "params" else "1"
            words.append(f"{name} {_value(value)}" + ("" if unit == "1" else f" {unit}"))
    return ", ".join(words) or "it was as its model says, but for finer physics"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{k} {_value(v)}" for k, v in value.items()) + ")"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return f"{value:g}" if isinstance(value, float | int) and not isinstance(value, bool) else str(value)
