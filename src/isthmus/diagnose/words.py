"""A verdict in words: what is wrong, what speaks for it, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.diagnose.evidence import Clue, Evidence
from isthmus.diagnose.judge import Cause, Hypothesis, Verdict
from isthmus.diagnose.outcome import Outcome
from isthmus.world import Belief

DOES = {
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
NAMED = 0.01
"""Causes that are less probable are not worth a sentence."""
ACTION: dict[Cause, str] = {
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
NOISY = "filter this signal in the robot's bridge, or widen the randomization to hold its noise and train again"


@dataclass(frozen=True)
class Advice:
    """One cause."""

    sentence: str
    action: str
    gain: str
    """What that is worth, as a sentence; empty where nobody can tell."""


def advice(hypothesis: Hypothesis, evidence: Evidence, belief: Belief) -> Advice:
    noisy = hypothesis.clue is not None and hypothesis.clue.kind == "noise"
    action = NOISY if noisy else ACTION[hypothesis.cause]
    return Advice(_sentence(hypothesis, evidence, belief), action, gain(hypothesis.cause, evidence.outcome))


def gain(cause: Cause, outcome: Outcome | None) -> str:
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


def _sentence(h: Hypothesis, evidence: Evidence, belief: Belief) -> str:
    match h.cause:
        case "nothing":
            return "nothing is wrong: numbers inside of what was believed explain the recordings"
        case "policy" | "inside" | "states":
            return _failed(h.cause, evidence.outcome)
        case "outside" if h.clue is not None:
            return _outside(h.clue, belief)
        case "sensor" if h.clue is not None:
            return f"a sensor is wrong: {h.clue.name}" if h.clue.evidence > 0 else "a sensor is wrong, but none that stands out"
        case "physics":
            what = (
                DOES.get(h.clue.name, h.clue.name) if h.clue is not None and h.clue.evidence > 0 else "no law that we know fits"
            )
            return f"physics is missing: {what}; numbers alone leave {evidence.left:.2g} times the noise"
        case "wiring" if h.clue is not None:
            return f"the wiring or a setting is wrong: {h.clue.name}"
        case "link":
            unsure = "; until it is repaired, nothing else is certain" if evidence.packets.plain else ""
            return f"the network is bad: {evidence.packets.text or 'nothing that stands out'}{unsure}"
        case "controller":
            return f"the controller asks for other targets than were recorded in {100 * evidence.parrot.share:.0f} % of ticks"
        case _:
            return {"outside": "a number is outside of what was believed", "sensor": "a sensor is wrong"}.get(
                h.cause, "the wiring or a setting is wrong"
            )


def _failed(cause: Cause, outcome: Outcome | None) -> str:
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


def _outside(clue: Clue, belief: Belief) -> str:
    low, high = belief.interval(clue.name, 1.0)
    if clue.value is None or low <= clue.value <= high:
        return "a number is outside of what was believed, but none that stands out"
    unit = belief.space[clue.name].unit
    unit = "" if unit == "1" else f" {unit}"
    return f"the number {clue.name} is outside of what was believed: about {clue.value:.3g}{unit}, not {low:.3g} to {high:.3g}"


def percent(p: float) -> str:
    """Never all, for nobody can know that."""
    return "over 99 %" if p > 0.99 else "under 1 %" if p < 0.01 else f"{100 * p:.0f} %"


def headline(verdict: Verdict, evidence: Evidence, belief: Belief) -> str:
    """One sentence."""
    first = verdict.hypotheses[0]
    if verdict.cause is None:
        second = verdict.hypotheses[1]
        return f"Cannot tell: {first.cause} ({percent(first.p)}) or {second.cause} ({percent(second.p)})."
    text = advice(first, evidence, belief).sentence
    return f"{text[:1].upper()}{text[1:]} ({percent(first.p)} sure)."
