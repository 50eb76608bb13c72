"""Recordings, explained by numbers alone: where every other explanation is compared from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from isthmus.core.progress import Progress, silent, sub_progress
from isthmus.real2sim.diagnose.baseline_fit import (
    LOST_NOISE_RATIO,
    UNEXPLAINED_NOISE_RATIO,
    ParameterFit,
    belief_ends,
    continue_search,
    fit_parameters,
    restart_from_short_segments,
    signal_spread,
)
from isthmus.real2sim.diagnose.extended_parameters import ExtendedParameters, ExtendedResidual
from isthmus.real2sim.diagnose.hypotheses import all_hypotheses
from isthmus.real2sim.diagnose.hypothesis_residual import refit_jointly
from isthmus.real2sim.diagnose.laplace_evidence import Hypothesis, LaplaceModel, LaplaceResult, bounded_minimum, laplace_model
from isthmus.real2sim.prepare.noise import NOISE_ONLY_RATIO
from isthmus.real2sim.prepare.tracks import Track
from isthmus.real2sim.residual.gauss_newton import STEP_SHARES
from isthmus.real2sim.residual.normal_equations import NormalEquations, pseudo_huber_loss
from isthmus.sim.robot import Robot
from isthmus.world import Belief

INSIDE_DERIVATIVE_WIDTHS = (0.36, 0.22)
"""Widths of the derivatives with which numbers are held inside the belief, of a robot that is followed."""


@dataclass(frozen=True)
class EvidenceBaseline:
    fit: ParameterFit
    extended: ExtendedResidual
    xi: np.ndarray
    """(S, 2 nv) starts of the segments, in units of what is left."""
    laplace: LaplaceModel
    tick_redundancy: float
    """How many times ticks say the same, and feet that touch earlier or later say it wrongly."""
    force_law_fit: ParameterFit | None
    """Numbers and all laws of missing forces together, where numbers alone leave more than noise."""


def evidence_baseline(
    robot: Robot,
    tracks: Sequence[Track],
    belief: Belief,
    threads: int = 0,
    search: bool = True,
    report: Progress = silent,
) -> EvidenceBaseline:
    """The best numbers, the belief's ends soft, and the quadratic around them that all questions are put to.

    `search` also for laws, and for better numbers, where they leave more than noise.
    """
    at = fit_parameters(robot, tracks, belief, threads, report=sub_progress(report, 0.0, 0.2))
    if search and at.noise_ratio > LOST_NOISE_RATIO and at.residual.estimator.smooth:
        at = restart_from_short_segments(at, tracks, belief, threads, sub_progress(report, 0.2, 0.6))
    residual, before, inside, laws = at.residual, at.prior, belief_ends(belief, at.names), None
    doubts = ExtendedParameters(robot, at.names, signal_spread(residual.segments))
    lab = ExtendedResidual(doubts, residual, belief.median())
    asked = all_hypotheses(doubts, before, inside, residual.segments)
    if search and at.noise_ratio > UNEXPLAINED_NOISE_RATIO and residual.estimator.smooth:
        physics = [b for b in asked if b.cause == "physics"]
        laws = refit_jointly(at, lab, physics, sub_progress(report, 0.6, 0.75)) if physics else None
        if laws is None or laws.noise_ratio > NOISE_ONLY_RATIO:
            at = continue_search(at, belief, sub_progress(report, 0.75, 0.95))
    often = residual.estimator.redundancy(residual, at.normal, before)
    # What is left is the noise from here on: where there is more of it than the sensors make, it is no evidence.
    at = replace(at, residual=residual.with_noise(np.fmax(at.unexplained_noise, at.noise_floor)))
    lab = ExtendedResidual(doubts, at.residual, belief.median())
    xi = at.point.xi * residual.start_scale / at.residual.start_scale
    return EvidenceBaseline(at, lab, xi, laplace_model(lab, before, at.point.z, xi, inside, asked, often), often, laws)


def hypothesis_results(baseline: EvidenceBaseline) -> list[tuple[Hypothesis | None, LaplaceResult]]:
    """What is told without any block, and with each of them.

    Around a robot that is followed, a quadratic holds only roughly. There every explanation is tried: the gain is that of the
    best of three points, the one that the quadratic says, the best numbers inside the belief, and the best ones anywhere, moved
    inside.
    """
    q = baseline.laplace
    told = [(block, q.explain(block)) for block in (None, *q.hypotheses)]
    if baseline.fit.residual.estimator.smooth:
        return told
    inside, clipped = _best_inside_belief(baseline), np.clip(q.z, *q.belief_bounds.T)
    tried: list[tuple[np.ndarray, np.ndarray]] = []
    for block, one in told:
        tried.append((one.z, one.amounts))
        for z in (inside, clipped):
            c = one.amounts
            if block is not None and block.cause == "outside":
                i = baseline.fit.names.index(block.name)
                c = np.clip(q.z[[i]] - z[i], block.low, block.high)
            tried.append((z, c))
    k = len(tried) // len(told)
    costs = _negative_log_densities(baseline, [block for block, _ in told for _ in range(k)], tried).reshape(-1, k)
    best = k * np.arange(len(told)) + costs.argmin(1)
    return [
        (block, replace(one, gain=-float(cost), z=tried[which][0], amounts=tried[which][1]))
        for (block, one), which, cost in zip(told, best, costs.min(1), strict=True)
    ]


def _best_inside_belief(baseline: EvidenceBaseline) -> np.ndarray:
    """(d,) the best numbers inside the belief, of a robot that is followed."""
    q, residual, e = baseline.laplace, baseline.fit.residual, baseline.extended.e
    z, xi = np.clip(q.z, *q.belief_bounds.T), np.zeros((len(residual.segments), 0))
    if np.abs(z - q.z).max(initial=0.0) < 1e-6:
        return z
    for width in INSIDE_DERIVATIVE_WIDTHS:
        found = NormalEquations(residual.linearize(z, e, xi, width * q.prior.std, xi, central=True), residual.start_weight)
        A = found.matrix / baseline.tick_redundancy + q.prior.precision
        slope = found.gradient(xi) / baseline.tick_redundancy + q.prior.gradient(z)
        step = bounded_minimum(A, slope, q.belief_bounds - z[:, None])
        points = [(z + share * step, np.zeros(0)) for share in (0.0, *STEP_SHARES)]
        z = points[int(_negative_log_densities(baseline, [None] * len(points), points).argmin())][0]
    return z


def _negative_log_densities(
    baseline: EvidenceBaseline, hypotheses: Sequence[Hypothesis | None], points: Sequence[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """-log density of points, each numbers and amounts of a block."""
    S, lab, prior = len(baseline.fit.residual.segments), baseline.extended, baseline.fit.prior
    thetas, own = np.zeros((len(points), S, len(lab.parameters))), np.zeros(len(points))
    for i, (block, (z, c)) in enumerate(zip(hypotheses, points, strict=True)):
        thetas[i, :, : len(z)] = z
        own[i] = prior.cost(z)
        if block is not None:
            thetas[i] += np.einsum("b,bsd->sd", c, block.along)
            own[i] += 0.5 * float(((c / block.spread) ** 2).sum())
    return pseudo_huber_loss(lab(thetas, np.zeros((len(points), S, 0)))).sum((1, 2, 3)) / baseline.tick_redundancy + own
