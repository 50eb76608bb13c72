"""What explanations are worth that were searched for together with the numbers.

The best one of the sensors by the quadratic, and all laws of missing forces at once, of which the one that would be missed most
is named.

    alone       with numbers inside the belief
    together    with numbers anywhere, less the odds against two causes at once; only where such numbers leave something,
                and it is worth more than those odds
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from isthmus.core.progress import Progress, silent, sub_progress
from isthmus.real2sim.diagnose.baseline import EvidenceBaseline
from isthmus.real2sim.diagnose.baseline_fit import UNEXPLAINED_NOISE_RATIO, belief_ends
from isthmus.real2sim.diagnose.hypotheses import is_drift_of
from isthmus.real2sim.diagnose.hypothesis_residual import refit_jointly
from isthmus.real2sim.diagnose.laplace_evidence import MIN_AMOUNT, Hypothesis, LaplaceResult, constrained_minimum
from isthmus.world import Belief

REFITTED_CAUSES = ("sensor", "physics")
"""Causes whose explanations are; a number outside is in the numbers already."""
MIN_SEARCH_EVIDENCE = 15.0
"""Log evidence of one, around numbers that were found without, above which it is worth a search."""
MIN_RIVAL_DEFICIT = 1.0
"""Log evidence that an explanation lacks at least, if another of its cause was chosen."""
TWO_CAUSES_LOG_ODDS = 30.0
"""Log odds against a number outside and something else at once."""


def refine_explanations(
    baseline: EvidenceBaseline,
    belief: Belief,
    results: Sequence[tuple[Hypothesis | None, LaplaceResult]],
    report: Progress = silent,
) -> tuple[list[tuple[Hypothesis | None, LaplaceResult]], float]:
    """What was told, that of sensors and laws found anew where there is something to explain; and the least that they leave.

    Of a robot that is not followed: around one that is, every explanation was tried already.
    """
    (_, nothing), *others = results
    worth = max(
        (one.evidence - nothing.evidence for b, one in others if b is not None and b.cause in REFITTED_CAUSES), default=0.0
    )
    if baseline.fit.noise_ratio <= UNEXPLAINED_NOISE_RATIO and worth <= MIN_SEARCH_EVIDENCE:
        return list(results), baseline.fit.noise_ratio
    parts = [
        sub_progress(report, i / len(REFITTED_CAUSES), (i + 1) / len(REFITTED_CAUSES)) for i in range(len(REFITTED_CAUSES))
    ]
    found = [
        f
        for cause, own in zip(REFITTED_CAUSES, parts, strict=True)
        if (f := _refit_cause(baseline, belief, results, cause, own)) is not None
    ]
    alone = max([one.evidence - nothing.evidence for _, one in others] + [f.alone_evidence for f in found])
    out = list(results)
    for f in found:
        block, one = results[f.index]
        assert block is not None
        evidence = f.two_causes_evidence if f.two_causes_evidence > alone else f.alone_evidence
        # Others of its cause, which were not searched for, are not better than the one that was chosen among them.
        for i, (other, its) in enumerate(results):
            if other is not None and other.cause == block.cause:
                out[i] = (
                    other,
                    replace(its, gain=min(its.gain, nothing.evidence + evidence + its.complexity_cost - MIN_RIVAL_DEFICIT)),
                )
        out[f.index] = block, replace(one, gain=nothing.evidence + evidence + one.complexity_cost, z=f.z, amounts=f.amounts)
    return out, min([baseline.fit.noise_ratio, *(f.noise_ratio for f in found)])


@dataclass(frozen=True)
class _RefitResult:
    index: int
    """Of what was told."""
    z: np.ndarray
    amounts: np.ndarray
    alone_evidence: float
    """Log evidence over that of numbers inside the belief."""
    two_causes_evidence: float
    noise_ratio: float


def _refit_cause(
    baseline: EvidenceBaseline,
    belief: Belief,
    results: Sequence[tuple[Hypothesis | None, LaplaceResult]],
    cause: str,
    report: Progress,
) -> _RefitResult | None:
    mine = [(i, block, one) for i, (block, one) in enumerate(results) if block is not None and block.cause == cause]
    if not mine:
        return None
    nothing, d = results[0][1], len(baseline.fit.names)
    if cause == "sensor":
        mine = [max(mine, key=lambda m: m[2].evidence)]
        if mine[0][2].evidence <= nothing.evidence:
            return None
    again = baseline.force_law_fit if cause == "physics" else None
    again = again or refit_jointly(baseline.fit, baseline.extended, [block for _, block, _ in mine], report)
    z, A = again.point.z, again.curvature(baseline.tick_redundancy)
    missed = _log_likelihood_loss(z, A)
    edges = np.cumsum([d, *(len(block.spread) for _, block, _ in mine)])
    parts = [np.arange(a, b) for a, b in pairwise(edges.tolist())]
    able = [k for k, (_, block, _) in enumerate(mine) if block.low < 0.0 or z[parts[k]].max() > 0.0]
    if not able:
        return None
    k = max(able, key=lambda k: missed(parts[k]))
    (which, block, one), part = mine[k], parts[k]
    for i, (other, steady) in enumerate(results):
        if other is not None and is_drift_of(block, other):
            # A drift that does not change is a bias.
            waves = np.flatnonzero(np.ptp(block.along, axis=1).any(axis=1))
            if missed(part[waves]) < one.complexity_cost - steady.complexity_cost:
                which, block, one, part = i, other, steady, np.delete(part, waves)
    # All others are none: numbers and amounts move to where they would be then.
    kept, dropped = np.concatenate([np.arange(d), part]), np.setdiff1d(np.arange(d, len(z)), part)
    H = A[np.ix_(kept, kept)]
    own = z[kept] + np.linalg.solve(H, A[np.ix_(kept, dropped)] @ z[dropped])
    limits = np.full((len(kept), 2), [-np.inf, np.inf])
    limits[d:] = np.stack([block.low / block.spread, block.high / block.spread], axis=1)
    anywhere, cost_anywhere = constrained_minimum(H, own, limits)
    limits[:d] = belief_ends(belief, baseline.fit.names)
    inside, cost_inside = constrained_minimum(H, own, limits)
    if np.abs(inside[d:]).max() < MIN_AMOUNT:
        return None
    gain = (
        (baseline.fit.cost - again.cost) * baseline.fit.comparison_count
        - missed(dropped)
        - (one.complexity_cost - nothing.complexity_cost)
    )
    alone, more = baseline.laplace.outside_gain + gain - cost_inside, gain - cost_anywhere
    if baseline.fit.noise_ratio <= UNEXPLAINED_NOISE_RATIO:
        # Around numbers that leave little, both are estimates of one thing, and either may have stopped short of it.
        alone = max(alone, one.evidence - nothing.evidence)
    together = (
        baseline.laplace.outside_gain + more - TWO_CAUSES_LOG_ODDS
        if baseline.fit.noise_ratio > UNEXPLAINED_NOISE_RATIO and more > TWO_CAUSES_LOG_ODDS
        else -np.inf
    )
    point = anywhere if together > alone else inside
    return _RefitResult(which, point[:d], point[d:] * block.spread, alone, together, again.noise_ratio)


def _log_likelihood_loss(z: np.ndarray, A: np.ndarray) -> Callable[[np.ndarray], float]:
    """How much log-likelihood is lost without some amounts of z, by their places; A is the curvature there."""
    spread = np.linalg.inv(A)
    return lambda at: 0.5 * float(z[at] @ np.linalg.solve(spread[np.ix_(at, at)], z[at])) if len(at) else 0.0
