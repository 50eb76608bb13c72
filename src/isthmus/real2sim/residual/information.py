"""Fisher information about the parameters, free of what the noise of the starts pretends to say."""

from __future__ import annotations

import numpy as np

from isthmus.core.progress import Progress, silent
from isthmus.real2sim.residual.normal_equations import NormalEquations, Point
from isthmus.real2sim.residual.prior import GaussianPrior
from isthmus.real2sim.residual.residual import ParameterResidual

INFORMATION_DRAWS = 4
"""Draws of the starts' errors, or of an observer's signals, each with its opposite."""


def fisher_information(
    residual: ParameterResidual,
    prior: GaussianPrior,
    point: Point,
    normal: NormalEquations,
    e: np.ndarray,
    draws: int = INFORMATION_DRAWS,
    report: Progress = silent,
) -> np.ndarray:
    """Information of the data about z, (d, d), symmetric and positive semidefinite.

    A robot at rest says nothing about its friction. But noise makes every fitted start move a little, and a start that moves
    has a derivative by friction. That part of a derivative is as random as the error of its start: the product of
    derivatives perturbed once by +δ and once by -δ, with δ as large as that error, is free of it on average. What is left is
    divided by how often ticks repeat each other.
    """
    rng, total = np.random.default_rng(0), np.zeros_like(normal.matrix)
    for draw in range(draws):
        total += residual.estimator.information_draw(residual, normal, point, e, prior, rng) / draws
        report((draw + 1) / draws)
    total /= residual.estimator.redundancy(residual, normal, prior)
    values, vectors = np.linalg.eigh(total)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T
