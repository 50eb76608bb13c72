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

from isthmus.real2sim.diagnose.evidence import Evidence, Explanation
from isthmus.real2sim.diagnose.outcome import TaskOutcome

Cause = Literal["nothing", "policy", "inside", "states", "outside", "sensor", "physics", "wiring", "link", "controller"]
CAUSES: tuple[Cause, ...] = get_args(Cause)
AS_BELIEVED_CAUSES: tuple[Cause, ...] = ("nothing", "policy", "inside", "states")
"""Causes of a robot that is as it was believed to be."""
EXPLAINABLE_CAUSES: tuple[Cause, ...] = ("outside", "sensor", "physics", "wiring")
"""Causes that come with explanations of what was measured."""
BIASED_CAUSES: tuple[Cause, ...] = (*EXPLAINABLE_CAUSES, "link")
MEASURED_CAUSES: tuple[Cause, ...] = ("nothing", *BIASED_CAUSES)
"""Causes that are told apart by what was measured; "nothing" for all of a robot that is as believed."""
MIN_NAMED_PROBABILITY = 0.5
"""A cause that is less probable than this is not named."""
CONTROLLER_MISMATCH_LOG_ODDS, CONTROLLER_UNKNOWN_LOG_ODDS = 8.0, -3.0
"""Log odds of a controller that does not repeat itself, and of one that nobody could ask."""
FITTING_LOG_ODDS, OTHER_LOG_ODDS = 0.0, -4.0
"""Log odds among causes of a robot as believed: of the one that fits its outcome, and of the others."""
UNCOVERED_P_VALUE = 0.05
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
    link_slope: float = 2.15
    """Slope of what the network did."""
    unexplained_slope: float = 11.0
    """Slope of what nothing explains, log(left / noise), in favour of missing physics …"""
    max_noise_ratio: float = 2.04
    """… up to so many times the noise: what is further off is not physics."""
    confusion: tuple[tuple[float, ...], ...] = (
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
class RankedCause:
    cause: Cause
    probability: float
    explanation: Explanation | None
    """The explanation behind it."""


@dataclass(frozen=True)
class Verdict:
    ranked_causes: tuple[RankedCause, ...]
    """Most probable first; probabilities add up to 1."""

    @property
    def cause(self) -> Cause | None:
        """None: cannot tell."""
        return self.ranked_causes[0].cause if self.ranked_causes[0].probability >= MIN_NAMED_PROBABILITY else None

    def probability(self, cause: Cause) -> float:
        return next(h.probability for h in self.ranked_causes if h.cause == cause)


def rank_causes(evidence: Evidence, weights: Weights = WEIGHTS) -> Verdict:
    p = cause_probabilities(evidence, weights)
    clues = {cause: next((c for c in evidence.explanations if c.cause == cause), None) for cause in CAUSES}
    found = [RankedCause(cause, float(q), clues[cause]) for cause, q in zip(CAUSES, p, strict=True)]
    return Verdict(tuple(sorted(found, key=lambda h: -h.probability)))


def cause_probabilities(evidence: Evidence, weights: Weights = WEIGHTS) -> np.ndarray:
    """(causes,) that add up to 1."""
    s = cause_log_odds(evidence, weights)
    p = np.exp(s - s.max())
    p /= p.sum()
    if weights.confusion:
        within = as_believed_log_odds(evidence.outcome)
        p[_AS_BELIEVED_COLUMNS[0]] = p[_AS_BELIEVED_COLUMNS].sum()
        p[_MEASURED_COLUMNS] = p[_MEASURED_COLUMNS] @ np.array(weights.confusion)
        p[_AS_BELIEVED_COLUMNS] = p[_AS_BELIEVED_COLUMNS[0]] * np.exp([within[cause] for cause in AS_BELIEVED_CAUSES])
    return p


_AS_BELIEVED_COLUMNS, _MEASURED_COLUMNS = (
    [CAUSES.index(cause) for cause in some] for some in (AS_BELIEVED_CAUSES, MEASURED_CAUSES)
)


def cause_log_odds(evidence: Evidence, weights: Weights) -> np.ndarray:
    """(causes,) log odds against a robot that is as believed."""
    s: dict[Cause, float] = dict.fromkeys(CAUSES, 0.0)
    s |= dict(zip(BIASED_CAUSES, weights.bias, strict=True)) | as_believed_log_odds(evidence.outcome)
    found: dict[Cause, float] = {cause: max(evidence.best_evidence(cause), 0.0) for cause in EXPLAINABLE_CAUSES}
    best = max(found.values())
    unit = weights.unit + weights.share * min(best, weights.cap)
    for cause, E in found.items():
        s[cause] += weights.slope * float(np.log1p(best / unit) - np.log1p((best - E) / unit))
    s["link"] += weights.link_slope * max(evidence.link.evidence, -5.0)
    repeated = 0 if not evidence.replay.ticks else 1 if evidence.replay.differs else -1
    s["controller"] += CONTROLLER_MISMATCH_LOG_ODDS * repeated if repeated else CONTROLLER_UNKNOWN_LOG_ODDS
    s["physics"] += weights.unexplained_slope * float(np.log(np.clip(evidence.best_error, 1.0, weights.max_noise_ratio)))
    return np.array([s[cause] for cause in CAUSES])


def as_believed_log_odds(outcome: TaskOutcome | None) -> dict[Cause, float]:
    """Log odds among causes of a robot that is as it was believed to be; together they are as likely as 1."""
    fits: Cause = "nothing"
    if outcome is not None and outcome.failed:
        if outcome.believed_success < 0.5:
            fits = "policy"
        elif outcome.found_success < 0.5:
            fits = "inside"
        elif outcome.p_uncovered < UNCOVERED_P_VALUE:
            fits = "states"
    s = np.array([FITTING_LOG_ODDS if cause == fits else OTHER_LOG_ODDS for cause in AS_BELIEVED_CAUSES])
    s -= np.log(np.exp(s).sum())
    return dict(zip(AS_BELIEVED_CAUSES, map(float, s), strict=True))
