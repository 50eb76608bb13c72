"""Fisher information about the parameters, free of what the noise of the starts pretends to say."""

from __future__ import annotations

import numpy as np

from isthmus.core.progress import Progress, silent
from isthmus.real2sim.residual.normal_equations import (
    NormalEquations,
    Point,
)
from isthmus.real2sim.residual.prior import GaussianPrior
from isthmus.real2sim.residual.residual import ParameterResidual

INFORMATION_DRAWS = 4
"""Of the starts' errors, or of an observer's signals, each with its opposite."""


REDUNDANCY_SECONDS = 0.4
"""s over which errors of an observer hang together."""


TYPICAL_TICK_REDUNDANCY = 5.0
"""How many times ticks of a walking robot usually say the same, for experiments that nobody has done yet."""


CONTACT_EDGE_INFLATION = 5.0
"""Variance of what is found over what smooth errors would give: feet that touch earlier or later make many small valleys, and a
descent ends in one of them. From fits to ten recordings of a walking go1 whose numbers were known."""


def tick_redundancy(residual: ParameterResidual, normal: NormalEquations, prior: GaussianPrior) -> float:
    """How many times ticks that follow each other say the same, at least once.

    An error that an observer has not yet corrected shows in many ticks, and a foot that touches early in many signals. So the
    sum of what the ticks of a stretch say about z, Σ dr/dz · w r, varies more than if each spoke for itself; on average over
    directions, that many times more.
    """
    S, ticks = residual.seen.shape[:2]
    stretch = min(max(1, round(REDUNDANCY_SECONDS * residual.robot.contract.rate)), ticks - residual.settle_ticks)
    first = residual.settle_ticks + (ticks - residual.settle_ticks) % stretch
    said = (normal.weighted_dr_dz * normal.r[..., None]).reshape(S, ticks, -1, normal.weighted_dr_dz.shape[-1]).sum(2)
    sums = said[:, first:].reshape(-1, stretch, said.shape[-1]).sum(1)
    A = normal.matrix + prior.precision
    varies, alone = (np.trace(np.linalg.solve(A, B)) for B in (sums.T @ sums, normal.matrix))
    return max(1.0, float(varies / alone)) if alone > 0 else 1.0


def fisher_information(
    residual: ParameterResidual,
    prior: GaussianPrior,
    point: Point,
    normal: NormalEquations,
    e: np.ndarray,
    draws: int = INFORMATION_DRAWS,
    report: Progress = silent,
) -> np.ndarray:
    """What the data say about z, (d, d), with what the noise of the starts pretends to say taken out.

    A robot at rest says nothing about its friction. But noise makes every fitted start move a little, and a start that moves
    has a derivative by friction. That part of a derivative is as random as the error of its start: the product of
    derivatives at starts shaken once by +δ and once by -δ, with δ as large as that error, is free of it on average. Where an
    observer follows the robot, its signals are shaken: that also takes out what feet that touch earlier or later add to a
    derivative's square, and what is left is divided by how often ticks repeat each other.
    """
    rng, total = np.random.default_rng(0), np.zeros_like(normal.matrix)
    steps = normal.derivative_steps(prior)
    for draw in range(draws):
        if residual.uses_observer:
            noise = rng.standard_normal(residual.seen.shape)
            a, b = (residual.linearize(point.z, e, point.xi, *steps, noise_draw=sign * noise) for sign in (1.0, -1.0))
        else:
            shake = normal.draw_start_error(rng)
            a, b = (residual.linearize(point.z, e, point.xi + sign * shake, *steps) for sign in (1.0, -1.0))
        total += normal.information_product(a, b) / draws
        report((draw + 1) / draws)
    if residual.uses_observer:
        total /= CONTACT_EDGE_INFLATION * tick_redundancy(residual, normal, prior)
    values, vectors = np.linalg.eigh(total)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T
