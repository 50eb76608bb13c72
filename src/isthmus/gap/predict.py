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

from isthmus.gap.residual import Residual, skipped
from isthmus.gap.segments import Segments
from isthmus.gap.starts import suited
from isthmus.sim.robot import Robot

WARM = 0.1
"""s that a start is fitted to, and at least LEAST ticks."""
LEAST = 5
ROUNDS, STEPS = 2, 3
"""Derivatives of a start that are taken, and steps with each."""
FIRST = 0.03
"""Step of the first derivative, in units of the spread of the starts; later ones are as long as a start is uncertain."""
NARROW, WIDE = 1e-3, 1.0
NONE = np.zeros(0)
NORMAL_MEDIAN = 0.6745
"""Median size of a normal number."""


@dataclass(frozen=True)
class Predicted:
    """S segments, (S, ticks, components) each, from the first tick after the warm-up; NaN where nothing was measured."""

    error: np.ndarray
    """In units of the sensor's noise."""
    expected: np.ndarray
    """Its standard deviation in the right simulator, 1 or more."""

    @property
    def relative(self) -> np.ndarray:
        return self.error / self.expected


def warmed(robot: Robot) -> int:
    """Ticks of the warm-up, those that are not compared included."""
    return skipped(robot) + max(LEAST, round(WARM * robot.contract.rate))


class Predictor:
    """Segments of a warm-up and some ticks more, predicted in any world."""

    def __init__(self, robot: Robot, segments: Segments, noise: np.ndarray, threads: int = 0):
        warm = self.warm = warmed(robot)
        early = replace(segments, target=segments.target[:, :warm], measured=segments.measured[:, : warm + 1])
        self.early = Residual(robot, early, noise, (), threads)
        self.whole = Residual(robot, segments, noise, (), threads, followed=warm + 1)
        self.seen = self.whole.seen[:, warm + 1 :]
        self._starts: dict[bytes, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def __call__(self, e: np.ndarray) -> Predicted:
        """In the world e, (d,)."""
        if self.whole.followed:
            return Predicted(self._ahead(self.whole, e), self._made_up(e))
        xi, _, steps = self._start(e)
        found = self.whole.linear(NONE, e, xi, NONE, steps)
        dx = found.dx[:, : self.warm + 1]
        covariance = np.linalg.inv(_normal(dx.reshape(len(dx), -1, dx.shape[-1]), self.whole.hold))
        ahead = found.dx[:, self.warm + 1 :]
        grown = np.einsum("stci,sij,stcj->stc", ahead, covariance, ahead, optimize=True)
        error = np.where(self.seen, found.r[:, self.warm + 1 :], np.nan)
        return Predicted(error, np.sqrt(1.0 + np.maximum(grown, 0.0)))

    def worlds(self, e: np.ndarray, near: np.ndarray, expected: np.ndarray) -> list[Predicted]:
        """In each of k worlds, (k, d), with what was expected in a world `near` them: much cheaper than one by one."""
        if self.whole.followed:
            return [Predicted(self._ahead(self.whole, one), expected) for one in e]
        xi, dx, _ = self._start(near)
        best = suited(self.early, e, np.repeat(xi[None], len(e), axis=0), dx, STEPS)
        r = self.whole(e, best.xi)[:, :, self.warm + 1 :]
        return [Predicted(np.where(self.seen, one, np.nan), expected) for one in r]

    def _ahead(self, residual: Residual, e: np.ndarray) -> np.ndarray:
        """Errors after the warm-up, (S, ticks, components), of a robot that is followed until then."""
        r = residual(e[None], np.zeros((1, len(self.seen), 0)))[0]
        return np.where(residual.seen[:, self.warm + 1 :], r[:, self.warm + 1 :], np.nan)

    def _made_up(self, e: np.ndarray) -> np.ndarray:
        """Typical size of the errors where the world e is the truth, (1, ticks, components), 1 or more."""
        whole, segments = self.whole, self.whole.segments
        alone = Residual(self.whole.robot, segments, whole.noise, (), whole.threads, followed=0)
        y = alone.predict(e[None], np.zeros((1, len(segments), 0)))[0]
        noisy = whole.components.noisy(y, whole.noise, np.random.default_rng(0))
        made = replace(segments, measured=np.where(np.isfinite(segments.measured), noisy, np.nan))
        error = self._ahead(Residual(whole.robot, made, whole.noise, (), whole.threads, followed=self.warm + 1), e)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            typical = np.nanmedian(np.abs(error), axis=0) / NORMAL_MEDIAN
        return np.maximum(np.nan_to_num(typical, nan=1.0), 1.0)[None]

    def starts(self, e: np.ndarray) -> np.ndarray:
        """ξ, (S, 2 nv), that suits the warm-up in the world e, (d,); (S, 0) of a robot that is followed."""
        return np.zeros((len(self.seen), 0)) if self.whole.followed else self._start(e)[0]

    def _start(self, e: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        key = e.tobytes()
        if key not in self._starts:
            self._starts[key] = self._fitted(e)
        return self._starts[key]

    def _fitted(self, e: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """ξ, (S, 2 nv), that suits the warm-up, dr/dξ there, (S, n, 2 nv), and steps as long as ξ is uncertain."""
        xi = np.zeros((len(self.early.segments), len(self.early.spread)))
        steps = np.full(xi.shape, FIRST)
        dx = np.zeros(0)
        for _ in range(ROUNDS):
            dx = self.early.by_starts(e, xi, steps)
            xi = suited(self.early, e[None], xi[None], dx, STEPS).xi[0]
            variance = np.einsum("sii->si", np.linalg.inv(_normal(dx, self.early.hold)))
            steps = np.clip(np.sqrt(np.maximum(variance, 0.0)), NARROW, WIDE)
        return xi, dx, steps


def _normal(dx: np.ndarray, hold: np.ndarray) -> np.ndarray:
    """Information about ξ, (S, 2 nv, 2 nv)."""
    return np.einsum("sni,snj->sij", dx, dx, optimize=True) + np.diag(hold + 1e-12)
