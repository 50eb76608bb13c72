"""From evidence to causes with probabilities that add up.

    q(cause) ∝ exp(s(cause))                               s = -slope · log(1 + (B - E) / u) + bias
    E    evidence of the best explanation of the cause     B    that of the best one of all
    u = unit + share · min(B, cap)                         0 where numbers inside the belief explain all

A logarithm of a logarithm: evidence is that of a model which is itself a little wrong, and a hundred times as much of it is not
a hundred times as sure. So what an explanation lacks of the best one counts by its share of it; up to a cap, for where numbers
inside are hopeless all others have a huge evidence, and what tells them apart is small beside it.

    p = q · M         M    how often a robot of which one cause was said turned out to have another

A cause that was mistaken for others in one case of eight is never more than seven eighths probable, however large its evidence.
Under these weights the causes of virtual robots, which were known, are most probable (`python -m bench.diagnosis tune`).

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
TOLD: tuple[Cause, ...] = ("nothing", *BIASED)
"""Causes that are told apart by what was measured; "nothing" for all of a robot that is as believed."""
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
    slope: float = 8.12
    unit: float = 2.96
    """Of evidence."""
    share: float = 0.59
    """Of the best evidence, that another one may well lack …"""
    cap: float = 96.0
    """… up to so much of it."""
    bias: tuple[float, ...] = (-4.20, -3.83, -4.18, -4.74, 0.13)
    """Of `BIASED`."""
    packets: float = 2.15
    """Slope of what the network did."""
    rest: float = 11.0
    """Slope of what nothing explains, log(left / noise), in favour of missing physics …"""
    farthest: float = 2.04
    """… up to so many times the noise: what is further off is not physics."""
    mistaken: tuple[tuple[float, ...], ...] = (
        (0.9448, 0.0340, 0.0043, 0.0121, 0.0024, 0.0024),
        (0.0108, 0.9090, 0.0036, 0.0397, 0.0327, 0.0042),
        (0.0064, 0.0118, 0.9540, 0.0156, 0.0061, 0.0061),
        (0.0060, 0.0084, 0.0301, 0.9473, 0.0042, 0.0040),
        (0.0085, 0.0214, 0.0084, 0.0212, 0.9322, 0.0083),
        (0.0086, 0.0078, 0.0056, 0.0056, 0.0056, 0.9668),
    )
    """M, by rows: where a cause of `TOLD` was said, how often it was each of them. () for never another."""


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
    p = probabilities(evidence, weights)
    clues = {cause: next((c for c in evidence.clues if c.cause == cause), None) for cause in CAUSES}
    found = [Hypothesis(cause, float(q), clues[cause]) for cause, q in zip(CAUSES, p, strict=True)]
    return Verdict(tuple(sorted(found, key=lambda h: -h.p)))


def probabilities(evidence: Evidence, weights: Weights = WEIGHTS) -> np.ndarray:
    """(causes,) that add up to 1."""
    s = scores(evidence, weights)
    p = np.exp(s - s.max())
    p /= p.sum()
    if weights.mistaken:
        within = as_believed(evidence.outcome)
        p[_AS_BELIEVED[0]] = p[_AS_BELIEVED].sum()
        p[_TOLD] = p[_TOLD] @ np.array(weights.mistaken)
        p[_AS_BELIEVED] = p[_AS_BELIEVED[0]] * np.exp([within[cause] for cause in AS_BELIEVED])
    return p


_AS_BELIEVED, _TOLD = ([CAUSES.index(cause) for cause in some] for some in (AS_BELIEVED, TOLD))


def scores(evidence: Evidence, weights: Weights) -> np.ndarray:
    """(causes,) log odds against a robot that is as believed."""
    s: dict[Cause, float] = dict.fromkeys(CAUSES, 0.0)
    s |= dict(zip(BIASED, weights.bias, strict=True)) | as_believed(evidence.outcome)
    found: dict[Cause, float] = {cause: max(evidence.best(cause), 0.0) for cause in EXPLAINED}
    best = max(found.values())
    unit = weights.unit + weights.share * min(best, weights.cap)
    for cause, E in found.items():
        s[cause] += weights.slope * float(np.log1p(best / unit) - np.log1p((best - E) / unit))
    s["link"] += weights.packets * max(evidence.packets.evidence, -5.0)
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
