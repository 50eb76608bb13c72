"""Multi-step prediction errors of worlds, each segment from its best start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.real2sim.prepare.components import Component, Components
from isthmus.real2sim.prepare.segments import Segments
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.sim.robot import Robot


@dataclass(frozen=True)
class PredictionErrors:
    """Multi-step prediction error per component, root mean square, in the signal's unit."""

    components: tuple[Component, ...]
    rms: np.ndarray
    """(components,)"""
    relative: np.ndarray
    """(components,) in units of the floor of the noise."""

    @property
    def overall(self) -> float:
        """Root mean square of the relative errors."""
        seen = self.relative[np.isfinite(self.relative)]
        return float(np.sqrt(np.mean(seen**2))) if len(seen) else float("nan")


def prediction_errors(
    robot: Robot, segments: Segments, noise_floor: np.ndarray, sigma: np.ndarray, worlds: Sequence[np.ndarray], threads: int = 0
) -> list[PredictionErrors]:
    """Of predictions in each of the worlds e, every segment from the start that suits it best."""
    components = tuple(Components(robot.contract).entries)
    found = []
    for squares, count in squared_errors(robot, segments, sigma, worlds, threads):
        with np.errstate(invalid="ignore", divide="ignore"):
            rms = np.sqrt(squares.sum(0) / count.sum(0))
        found.append(PredictionErrors(components, rms, rms / noise_floor))
    return found


def squared_errors(
    robot: Robot, segments: Segments, sigma: np.ndarray, worlds: Sequence[np.ndarray], threads: int = 0, steps: int = 40
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The same by segment: sum of squared errors in the signal's unit and number of comparisons, both (S, components).

    Starts are looked for in at most so many steps.
    """
    residual = ParameterResidual(robot, segments, sigma, (), threads)
    count = residual.seen.sum(1)
    found = []
    for e in worlds:
        xi = residual.estimator.best_starts(residual, e, steps)
        r = residual(e[None], xi[None])[0] * sigma
        found.append(((r**2).sum(1), count))
    return found
