"""From evidence to causes with probabilities that add up.

    p(cause) ∝ exp(s(cause))        s(nothing) = 0
    s = slope · log(1 + E / unit) - (best E - E) / heat + bias         E: evidence of the best explanation of each cause

A logarithm of a logarithm: evidence is that of a linear model, and a hundred times as much of it is not a hundred times as
sure. The same holds of its differences. The weights were set by hand on recordings of virtual robots with known causes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from isthmus.diagnose.evidence import Clue, Evidence

Cause = Literal["nothing", "outside", "sensor", "physics", "wiring", "link", "controller"]
CAUSES: tuple[Cause, ...] = ("nothing", "outside", "sensor", "physics", "wiring", "link", "controller")
EXPLAINED: tuple[Cause, ...] = ("outside", "sensor", "physics", "wiring")
"""Causes that come with explanations of what was measured."""
UNSURE = 0.5
"""A cause that is less probable than this is not named."""
CERTAIN, RARE = 8.0, -3.0
"""Log odds of a controller that does not repeat itself, and of one that nobody could ask."""


@dataclass(frozen=True)
class Weights:
    slope: float = 2.0
    unit: float = 2.0
    """Of evidence."""
    bias: tuple[float, ...] = (0.0, -2.0, -2.0, -2.0, -2.0, -1.0, 0.0)
    """By cause."""
    heat: float = 6.0
    """Difference of evidence that makes a cause e times less probable than the best one, up to `most` of them."""
    most: float = 3.0
    rest: float = 3.0
    """Slope of what no number explains, log(left / noise), in favour of missing physics …"""
    farthest: float = 4.0
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
    """(causes,) log odds against nothing."""
    s = np.array(weights.bias)
    found = {cause: max(evidence.best(cause), 0.0) for cause in EXPLAINED}
    top = max(found.values())
    for cause, E in found.items():
        behind = min((top - E) / weights.heat, weights.most)
        s[CAUSES.index(cause)] += weights.slope * np.log1p(E / weights.unit) - behind
    s[CAUSES.index("link")] += max(evidence.packets.evidence, -5.0)
    repeated = 0 if not evidence.parrot.ticks else 1 if evidence.parrot.differs else -1
    s[CAUSES.index("controller")] += CERTAIN * repeated if repeated else RARE
    s[CAUSES.index("physics")] += weights.rest * np.log(np.clip(evidence.left, 1.0, weights.farthest))
    return s
