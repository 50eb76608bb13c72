"""A search for numbers and explanations together.

Where something is missing it has bent the numbers, and a quadratic around them says little of what they would be without. So
both are searched for from the middle of the belief, as the numbers were.

    z = [ numbers | amounts / spread ]        amounts of unit spread are searched for as numbers are
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from isthmus.core.progress import Progress, silent, step_progress
from isthmus.real2sim.diagnose.baseline_fit import SEARCH_SETTINGS, ParameterFit
from isthmus.real2sim.diagnose.extended_parameters import ExtendedResidual
from isthmus.real2sim.diagnose.laplace_evidence import Hypothesis
from isthmus.real2sim.residual.gauss_newton import gauss_newton
from isthmus.real2sim.residual.noise_fit import residual_noise
from isthmus.real2sim.residual.prior import GaussianPrior
from isthmus.real2sim.residual.residual import ParameterResidual


class HypothesisResidual(ParameterResidual):
    """A residual of numbers and amounts of a block, or of several that were joined, in units of the noise σ.

    Engines are shared with the one without.
    """

    def __init__(self, extended: ExtendedResidual, hypothesis: Hypothesis, noise: np.ndarray):
        without = extended.residual.with_noise(noise)
        self.__dict__ |= without.__dict__
        self._extended, self._hypothesis = ExtendedResidual(extended.parameters, without, extended.e), hypothesis

    def parameter_values(self, z: np.ndarray, e: np.ndarray) -> np.ndarray:
        """θ, (..., S, D), of coordinates z, (..., d + b)."""
        d, b = len(self._extended.parameters.names), self._hypothesis
        theta = np.einsum("...b,bsd->...sd", z[..., d:] * b.spread, b.along)
        theta[..., :d] += z[..., None, :d]
        return theta

    def __call__(self, e: np.ndarray, xi: np.ndarray, noise_draw: np.ndarray | None = None) -> np.ndarray:
        return self._extended(e, xi)


def refit_jointly(
    fit: ParameterFit, extended: ExtendedResidual, hypotheses: Sequence[Hypothesis], report: Progress = silent
) -> ParameterFit:
    """Numbers and, behind them, amounts of some blocks, in their order, searched for as numbers alone were."""
    before, block, d = fit.prior, _concatenate(hypotheses), len(fit.names)
    both = GaussianPrior(
        before.space, np.concatenate([before.mean, np.zeros(len(block.spread))]), np.eye(d + len(block.spread))
    )
    both.precision[:d, :d] = before.precision
    residual = HypothesisResidual(extended, block, fit.noise_floor)
    steps, close = SEARCH_SETTINGS[0]
    point, normal = gauss_newton(residual, both, both.mean, extended.e, None, steps, step_progress(report, steps), close)
    return ParameterFit(residual, both, point, normal, fit.noise_floor, residual_noise(residual, normal, both))


def _concatenate(hypotheses: Sequence[Hypothesis]) -> Hypothesis:
    along, spread = (np.concatenate([getattr(b, what) for b in hypotheses]) for what in ("along", "spread"))
    return replace(hypotheses[0], along=along, spread=spread)
