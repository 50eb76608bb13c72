"""Gauss-Newton alternated with the noise of each signal, estimated from what the fit leaves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isthmus.real2sim.residual.gauss_newton import MIN_GAIN_PER_PARAMETER
from isthmus.real2sim.residual.normal_equations import NormalEquations, Point, robust_weights
from isthmus.real2sim.residual.prior import GaussianPrior
from isthmus.real2sim.residual.residual import ParameterResidual

NOISE_ROUNDS = 4
"""Of fitting and then taking the noise from what is left."""


MAX_STEPS = 40
"""Of one round, at most."""


NOISE_TOLERANCE = 0.03
"""The noise has settled when no component changes by a larger share."""


MAX_ABS_START_Z = 4.0
"""A search does not start closer to a hard bound than this, in unconstrained coordinates: there nothing seems to matter."""


_R = np.linspace(-8, 8, 4001)


_DENSITY = np.exp(-0.5 * _R**2) / np.sqrt(2 * np.pi)


ROBUST_VARIANCE_SHARE = float(np.sum(robust_weights(_R) * _R**2 * _DENSITY) * (_R[1] - _R[0]))
"""Share of a normal residual's variance that is left after large ones are weighted down."""


def minimise_with_noise(
    residual: ParameterResidual,
    prior: GaussianPrior,
    start: np.ndarray,
    rounds: int = NOISE_ROUNDS,
    report: Callable[[int, float], None] = lambda step, cost: None,
    max_steps: int = MAX_STEPS,
    min_gain: float = MIN_GAIN_PER_PARAMETER,
    xi: np.ndarray | None = None,
) -> tuple[ParameterResidual, Point, NormalEquations, int]:
    """The minimum nearest to `start`, (all,): the residual with the noise that the fit leaves, the point, and steps taken.

    A round takes at most `max_steps` of them, and ends when one gains less than `min_gain` per parameter. `xi`, (S, x), is
    where the starts begin.
    """
    z = np.clip(residual.space.unconstrained(start[residual.parameter_columns]), -MAX_ABS_START_Z, MAX_ABS_START_Z)
    steps = 0

    def count(step: int, cost: float) -> None:
        nonlocal steps
        steps += 1
        report(steps, cost)

    first = True
    while True:
        at, found = residual.estimator.minimise(residual, prior, z, start, xi, first, max_steps, count, min_gain)
        z, first, rounds = at.z, False, rounds - 1
        sigma = residual_noise(residual, found, prior)
        if rounds <= 0 or np.nanmax(np.abs(sigma / residual.noise - 1.0)) < NOISE_TOLERANCE:
            return residual, at, found, steps
        scaled = residual.with_noise(sigma)
        residual, xi = scaled, at.xi * residual.start_scale / scaled.start_scale


def residual_noise(residual: ParameterResidual, normal: NormalEquations, prior: GaussianPrior) -> np.ndarray:
    """σ per component, (components,), of what the fit leaves, in the signal's unit; what was never measured keeps its σ."""
    shape = residual.seen.shape
    r, seen = normal.r.reshape(shape), residual.seen
    used = normal.leverage(prior.precision).reshape(shape)
    energy = (robust_weights(r) * r**2).sum((0, 1)) / ROBUST_VARIANCE_SHARE
    free = seen.sum((0, 1)) - (used * seen).sum((0, 1))
    factor = np.sqrt(energy / np.maximum(free, 1.0))
    return residual.noise * np.where(free > 0, np.maximum(factor, 1e-3), 1.0)
