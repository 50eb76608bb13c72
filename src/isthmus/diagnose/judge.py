"""From evidence to causes with probabilities that add up.

    p(cause) ∝ exp(s(cause))        s = 0 where numbers inside the belief explain all
    s = slope · log(1 + E / unit) + bias         E: evidence of the best explanation of each cause

A logarithm of a logarithm: evidence is that of a model which is itself a little wrong, and a hundred times as much of it is not
a hundred times as sure. So it is the ratio of two evidences that tells causes apart, not their difference. Under these weights
the causes of virtual robots, which were known, are most probable (`python -m bench.diagnosis tune`).

Where numbers inside the belief explain all, the robot is as it was believed to be. If it failed nevertheless, that is

    policy     it fails in most worlds of the belief, too
    inside     it fails in the world that was found, but not in most others: the policy is weak there
    states     it fails in neither, but was driven where no world goes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from isthmus.diagnose.evidence import Clue, Evidence
from isthmus.diagnose.outcome import Outcome

Cause = Literal["nothing", "policy", "inside", "states", "outside", "sensor", "physics", "wiring", "link", "controller"]
CAUSES: tuple[Cause, ...] = get_args(Cause)
AS_BELIEVED: tuple[Cause, ...] = ("nothing", "policy", "inside", "states")
"""Causes of a robot that is as it was believed to be."""
EXPLAINED: tuple[Cause, ...] = ("outside", "sensor", "physics", "wiring")
"""Causes that come with explanations of what was measured."""
BIASED: tuple[Cause, ...] = (*EXPLAINED, "link")
UNSURE = 0.5
"""A cause that is less probable than this is not named."""
CERTAIN, RARE = 8.0, -3.0
"""Log odds of a controller that does not repeat itself, and of one that nobody could ask."""
LIKELY, UNLIKELY = 0.0, -4.0
"""Log odds among causes of a robot as believed: of the one that fits its outcome, and of the others."""
UNSEEN = 0.05
"""A robot that was driven where worlds go less likely than this was driven where none goes."""


@dataclass(frozen=True)
class Weights:
    slope: float = 9.0
    unit: float = 10.7
    """Of evidence."""
    bias: tuple[float, ...] = (-3.6, -3.1, -3.6, -3.9, 0.0)
    """Of `BIASED`."""
    rest: float = 11.6
    """Slope of what no number explains, log(left / noise), in favour of missing physics …"""
    farthest: float = 1.5
    """… up to so many times the noise: what is further off is not physics."""


WEIGHTS = Weights()


@dataclass(frozen=True)
class Hypothesis:
    cause: Cause
    p: float
    clue: Clue | None
    """The explanation behind it."""


@dataclass(frozen=True)
class Verdict:
    hypotheses: tuple[Hypothesis, ...]
    """Most probable first; probabilities add up to 1."""

    @property
    def cause(self) -> Cause | None:
        """None: cannot tell."""
        return self.hypotheses[0].cause if self.hypotheses[0].p >= UNSURE else None

    def p(self, cause: Cause) -> float:
        return next(h.p for h in self.hypotheses if h.cause == cause)


def judge(evidence: Evidence, weights: Weights = WEIGHTS) -> Verdict:
    s = scores(evidence, weights)
    p = np.exp(s - s.max())
    p /= p.sum()
    clues = {cause: next((c for c in evidence.clues if c.cause == cause), None) for cause in CAUSES}
    found = [Hypothesis(cause, float(q), clues[cause]) for cause, q in zip(CAUSES, p, strict=True)]
    return Verdict(tuple(sorted(found, key=lambda h: -h.p)))


def scores(evidence: Evidence, weights: Weights) -> np.ndarray:
    """(causes,) log odds against a robot that is as believed."""
    s: dict[Cause, float] = dict.fromkeys(CAUSES, 0.0)
    s |= dict(zip(BIASED, weights.bias, strict=True)) | as_believed(evidence.outcome)
    found: dict[Cause, float] = {cause: max(evidence.best(cause), 0.0) for cause in EXPLAINED}
    for cause, E in found.items():
        s[cause] += weights.slope * float(np.log1p(E / weights.unit))
    s["link"] += max(evidence.packets.evidence, -5.0)
    repeated = 0 if not evidence.parrot.ticks else 1 if evidence.parrot.differs else -1
    s["controller"] += CERTAIN * repeated if repeated else RARE
    s["physics"] += weights.rest * float(np.log(np.clip(evidence.rest, 1.0, weights.farthest)))
    return np.array([s[cause] for cause in CAUSES])


def as_believed(outcome: Outcome | None) -> dict[Cause, float]:
    """Log odds among causes of a robot that is as it was believed to be; together they are as likely as 1."""
    fits: Cause = "nothing"
    if outcome is not None and outcome.failed:
        if outcome.believed_success < 0.5:
            fits = "policy"
        elif outcome.found_success < 0.5:
            fits = "inside"
        elif outcome.p_uncovered < UNSEEN:
            fits = "states"
    s = np.array([LIKELY if cause == fits else UNLIKELY for cause in AS_BELIEVED])
    s -= np.log(np.exp(s).sum())
    return dict(zip(AS_BELIEVED, map(float, s), strict=True))
