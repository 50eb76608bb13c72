"""A verdict in words: what is wrong, what speaks for it, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.real2sim.diagnose.evidence import Evidence, Explanation
from isthmus.real2sim.diagnose.outcome import TaskOutcome
from isthmus.real2sim.diagnose.verdict import Cause, RankedCause, Verdict
from isthmus.world import Belief

FORCE_LAW_TEXTS = {
    "stick": "it sticks before it moves, and slips",
    "play": "there is play when it changes direction",
    "friction under load": "friction grows with the load",
    "resistance": "it resists the more, the faster it moves",
    "fading strength": "motors get weaker with time",
    "drag": "something slows the body down as it moves",
    "drag of rotors": "something slows the body down as it moves across its rotors",
    "pull": "something pulls the body to one side",
    "spring": "drives bend, and spring back",
    "cable": "something pulls the body back to where it started",
}
MIN_SENTENCE_PROBABILITY = 0.01
"""Causes that are less probable are not worth a sentence."""
ACTION_BY_CAUSE: dict[Cause, str] = {
    "nothing": "nothing to repair: `isthmus validate` says whether it is good enough",
    "policy": "train longer, or change the task: it fails in its own simulator",
    "inside": "`isthmus identify` and train on the twin, or let the policy adapt (`isthmus train --method rma`)",
    "states": "train where it was driven: wider starts, commands or disturbances",
    "outside": "`isthmus identify`, then train on the twin; or widen the randomization to hold this number",
    "sensor": "calibrate this sensor or correct it in the robot's bridge; nothing has to be trained again",
    "physics": "`isthmus identify`, then `isthmus actuator` or `isthmus residual`, and train on the twin",
    "wiring": "correct the wiring or the robot's bridge; nothing has to be trained again",
    "link": "repair the network, or train with longer delays",
    "controller": "export again, and run that file: what ran was not this controller, or its memory was not its own",
}
NOISE_ACTION = "filter this signal in the robot's bridge, or widen the randomization to hold its noise and train again"


@dataclass(frozen=True)
class Advice:
    """One cause."""

    sentence: str
    action: str
    gain: str
    """What that is worth, as a sentence; empty where nobody can tell."""


def advice_for(ranked_cause: RankedCause, evidence: Evidence, belief: Belief) -> Advice:
    noisy = ranked_cause.explanation is not None and ranked_cause.explanation.kind == "noise"
    action = NOISE_ACTION if noisy else ACTION_BY_CAUSE[ranked_cause.cause]
    return Advice(_sentence(ranked_cause, evidence, belief), action, expected_gain(ranked_cause.cause, evidence.outcome))


def expected_gain(cause: Cause, outcome: TaskOutcome | None) -> str:
    """Of a repair: the score of the task as recorded, and that of simulated worlds without what is wrong."""
    if outcome is None or cause in ("nothing", "policy"):
        return ""
    how = (
        "this policy in the worlds that it was trained in"
        if cause in ("sensor", "wiring", "link", "controller")
        else "if a policy gets as good there as this one is in the worlds that it was trained in; in the simulator with the "
        f"numbers as found, this one has {outcome.found_score.mean:.2f}"
    )
    after = outcome.believed_score
    return (
        f"score {outcome.score:.2f} as recorded, {after.mean:.2f} ({after.low:.2f} to {after.high:.2f}) and success in "
        f"{100 * outcome.believed_success:.0f} % of worlds after the repair: {how}"
    )


def _sentence(ranked_cause: RankedCause, evidence: Evidence, belief: Belief) -> str:
    match ranked_cause.cause:
        case "nothing":
            return "nothing is wrong: numbers inside of what was believed explain the recordings"
        case "policy" | "inside" | "states":
            return _policy_sentence(ranked_cause.cause, evidence.outcome)
        case "outside" if ranked_cause.explanation is not None:
            return _outside_sentence(ranked_cause.explanation, belief)
        case "sensor" if ranked_cause.explanation is not None:
            return (
                f"a sensor is wrong: {ranked_cause.explanation.name}"
                if ranked_cause.explanation.evidence > 0
                else "a sensor is wrong, but none that stands out"
            )
        case "physics":
            what = (
                FORCE_LAW_TEXTS.get(ranked_cause.explanation.name, ranked_cause.explanation.name)
                if ranked_cause.explanation is not None and ranked_cause.explanation.evidence > 0
                else "no law that we know fits"
            )
            return f"physics is missing: {what}; numbers alone leave {evidence.baseline_error:.2g} times the noise"
        case "wiring" if ranked_cause.explanation is not None:
            return f"the wiring or a setting is wrong: {ranked_cause.explanation.name}"
        case "link":
            unsure = "; until it is repaired, nothing else is certain" if evidence.link.is_clearly_bad else ""
            return f"the network is bad: {evidence.link.text or 'nothing that stands out'}{unsure}"
        case "controller":
            return f"the controller asks for other targets than were recorded in {100 * evidence.replay.share:.0f} % of ticks"
        case _:
            return {"outside": "a number is outside of what was believed", "sensor": "a sensor is wrong"}.get(
                ranked_cause.cause, "the wiring or a setting is wrong"
            )


def _policy_sentence(cause: Cause, outcome: TaskOutcome | None) -> str:
    where = {
        "policy": "the policy or the task is to blame: the robot is as believed",
        "inside": "the policy is weak in this world, which is inside of what was believed",
        "states": "the robot is as believed, but was driven where the policy never was in training",
    }[cause]
    if outcome is None or not outcome.failed:
        return where
    worlds = (
        f"{100 * outcome.believed_success:.0f} % of worlds believed, {100 * outcome.found_success:.0f} % of worlds as found"
    )
    return f"{where}; it failed in the recordings and succeeds in simulation in {worlds}"


def _outside_sentence(explanation: Explanation, belief: Belief) -> str:
    low, high = belief.interval(explanation.name, 1.0)
    if explanation.value is None or low <= explanation.value <= high:
        return "a number is outside of what was believed, but none that stands out"
    unit = belief.space[explanation.name].unit
    unit = "" if unit == "1" else f" {unit}"
    return (
        f"the number {explanation.name} is outside of what was believed: about "
        f"{explanation.value:.3g}{unit}, not {low:.3g} to {high:.3g}"
    )


def format_percent(p: float) -> str:
    """Never all, for nobody can know that."""
    return "over 99 %" if p > 0.99 else "under 1 %" if p < 0.01 else f"{100 * p:.0f} %"


def headline(verdict: Verdict, evidence: Evidence, belief: Belief) -> str:
    """One sentence."""
    first = verdict.ranked_causes[0]
    if verdict.cause is None:
        second = verdict.ranked_causes[1]
        return (
            f"Cannot tell: {first.cause} ({format_percent(first.probability)}) or {second.cause} "
            f"({format_percent(second.probability)})."
        )
    text = advice_for(first, evidence, belief).sentence
    return f"{text[:1].upper()}{text[1:]} ({format_percent(first.probability)} sure)."
