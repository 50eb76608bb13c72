"""Predictions beyond what a start was fitted to, in units of the error that they would have in the right simulator.

    warm-up    the first ticks of a segment: the state at its start is moved until they fit, ξ ~ N(ξ*, Σ)
    ahead      the ticks after: r = (predicted - measured) / σ has the variance 1 + J Σ Jᵀ if the simulator is right, with
               J = dr/dξ: the sensor's own noise, and what the noise of the warm-up has grown to

Errors divided by the root of that are 1 on average at every horizon if nothing but noise is wrong.

Robots on their feet are followed by an observer through the warm-up. What the right simulator would do then is tried: signals
that it makes up itself under the same targets, with noise, are predicted in the same way.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np

from isthmus.real2sim.prepare.segments import Segments
from isthmus.real2sim.residual.estimators import estimator_for, settle_ticks
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.real2sim.residual.segment_starts import solve_starts
from isthmus.sim.robot import Robot

WARM_UP_SECONDS = 0.1
"""s that a start is fitted to, and at least LEAST ticks."""
MIN_WARM_UP_TICKS = 5
START_LINEARIZATIONS, STEPS_PER_LINEARIZATION = 2, 3
"""Derivatives of a start that are taken, and steps with each."""
FIRST_DERIVATIVE_STEP = 0.03
"""Step of the first derivative, in units of the spread of the starts; later ones are as long as a start is uncertain."""
MIN_DERIVATIVE_STEP, MAX_DERIVATIVE_STEP = 1e-3, 1.0
NO_PARAMETERS = np.zeros(0)
NORMAL_MEDIAN = 0.6745
"""Median size of a normal number."""


@dataclass(frozen=True)
class Prediction:
    """S segments, (S, ticks, components) each, from the first tick after the warm-up; NaN where nothing was measured."""

    error: np.ndarray
    """In units of the sensor's noise."""
    expected_std: np.ndarray
    """Its standard deviation in the right simulator, 1 or more."""

    @property
    def normalized_error(self) -> np.ndarray:
        return self.error / self.expected_std


def warm_up_ticks(robot: Robot) -> int:
    """Ticks of the warm-up, those that are not compared included."""
    return settle_ticks(robot) + max(MIN_WARM_UP_TICKS, round(WARM_UP_SECONDS * robot.contract.rate))


class Predictor:
    """Segments of a warm-up and some ticks more, predicted in any world."""

    def __init__(self, robot: Robot, segments: Segments, noise: np.ndarray, threads: int = 0):
        warm = self.warm_up = warm_up_ticks(robot)
        early = replace(segments, target=segments.target[:, :warm], measured=segments.measured[:, : warm + 1])
        self.warm_up_residual = ParameterResidual(robot, early, noise, (), threads)
        self.full_residual = ParameterResidual(robot, segments, noise, (), threads, estimator=estimator_for(robot, warm + 1))
        self.seen = self.full_residual.seen[:, warm + 1 :]
        self._start_cache: dict[bytes, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def __call__(self, e: np.ndarray) -> Prediction:
        """In the world e, (d,)."""
        if not self.full_residual.has_starts:
            return Prediction(self._errors_after_warm_up(self.full_residual, e), self._simulated_expected_std(e))
        xi, _, steps = self._cached_start(e)
        found = self.full_residual.linearize(NO_PARAMETERS, e, xi, NO_PARAMETERS, steps)
        dx = found.dr_dxi[:, : self.warm_up + 1]
        covariance = np.linalg.inv(_start_information(dx.reshape(len(dx), -1, dx.shape[-1]), self.full_residual.start_weight))
        ahead = found.dr_dxi[:, self.warm_up + 1 :]
        grown = np.einsum("stci,sij,stcj->stc", ahead, covariance, ahead, optimize=True)
        error = np.where(self.seen, found.r[:, self.warm_up + 1 :], np.nan)
        return Prediction(error, np.sqrt(1.0 + np.maximum(grown, 0.0)))

    def predict_worlds(self, e: np.ndarray, reference: np.ndarray, expected_std: np.ndarray) -> list[Prediction]:
        """In each of k worlds, (k, d), with what was expected in a world `near` them: much cheaper than one by one."""
        if not self.full_residual.has_starts:
            return [Prediction(self._errors_after_warm_up(self.full_residual, one), expected_std) for one in e]
        xi, dx, _ = self._cached_start(reference)
        best = solve_starts(self.warm_up_residual, e, np.repeat(xi[None], len(e), axis=0), dx, STEPS_PER_LINEARIZATION)
        r = self.full_residual(e, best.xi)[:, :, self.warm_up + 1 :]
        return [Prediction(np.where(self.seen, one, np.nan), expected_std) for one in r]

    def _errors_after_warm_up(self, residual: ParameterResidual, e: np.ndarray) -> np.ndarray:
        """Errors after the warm-up, (S, ticks, components), of a robot that is followed until then."""
        r = residual(e[None], np.zeros((1, len(self.seen), 0)))[0]
        return np.where(residual.seen[:, self.warm_up + 1 :], r[:, self.warm_up + 1 :], np.nan)

    def _simulated_expected_std(self, e: np.ndarray) -> np.ndarray:
        """Typical size of the errors where the world e is the truth, (1, ticks, components), 1 or more."""
        whole, segments = self.full_residual, self.full_residual.segments
        alone = ParameterResidual(
            self.full_residual.robot, segments, whole.noise, (), whole.threads, estimator=estimator_for(whole.robot, 0)
        )
        y = alone.predict(e[None], np.zeros((1, len(segments), 0)))[0]
        noisy = whole.components.add_noise(y, whole.noise, np.random.default_rng(0))
        made = replace(segments, measured=np.where(np.isfinite(segments.measured), noisy, np.nan))
        error = self._errors_after_warm_up(
            ParameterResidual(whole.robot, made, whole.noise, (), whole.threads, estimator=whole.estimator), e
        )
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            typical = np.nanmedian(np.abs(error), axis=0) / NORMAL_MEDIAN
        return np.maximum(np.nan_to_num(typical, nan=1.0), 1.0)[None]

    def starts(self, e: np.ndarray) -> np.ndarray:
        """ξ, (S, 2 nv), that suits the warm-up in the world e, (d,); (S, 0) of a robot that is followed."""
        return np.zeros((len(self.seen), 0)) if not self.full_residual.has_starts else self._cached_start(e)[0]

    def _cached_start(self, e: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        key = e.tobytes()
        if key not in self._start_cache:
            self._start_cache[key] = self._fit_start(e)
        return self._start_cache[key]

    def _fit_start(self, e: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """ξ, (S, 2 nv), that suits the warm-up, dr/dξ there, (S, n, 2 nv), and steps as long as ξ is uncertain."""
        xi = np.zeros((len(self.warm_up_residual.segments), len(self.warm_up_residual.start_scale)))
        steps = np.full(xi.shape, FIRST_DERIVATIVE_STEP)
        dx = np.zeros(0)
        for _ in range(START_LINEARIZATIONS):
            dx = self.warm_up_residual.start_jacobian(e, xi, steps)
            xi = solve_starts(self.warm_up_residual, e[None], xi[None], dx, STEPS_PER_LINEARIZATION).xi[0]
            variance = np.einsum("sii->si", np.linalg.inv(_start_information(dx, self.warm_up_residual.start_weight)))
            steps = np.clip(np.sqrt(np.maximum(variance, 0.0)), MIN_DERIVATIVE_STEP, MAX_DERIVATIVE_STEP)
        return xi, dx, steps


def _start_information(dr_dxi: np.ndarray, start_weight: np.ndarray) -> np.ndarray:
    """Information about ξ, (S, 2 nv, 2 nv)."""
    return np.einsum("sni,snj->sij", dr_dxi, dr_dxi, optimize=True) + np.diag(start_weight + 1e-12)
