"""How the state behind a recording is found: two estimators with one interface.

FreeStarts    each segment starts from a state of its own, moved by ξ, (S, 2 nv), and fitted together with the parameters.
Observer      a robot on feet. What a foot does depends on height and velocity of the base, which no sensor of a walking robot
              measures and no search over starts finds well: the error of a start jumps when a foot touches a tick earlier. So
              the state is corrected after every tick by a share of the difference,

                  x ← x + K (measured - predicted)

              and height and velocity of the base follow from the feet on the ground. What is compared is each prediction before
              it is corrected: one tick ahead, from a state that the simulated world has itself made of the past. ξ is empty.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.segments import Segments
from isthmus.real2sim.residual.gauss_newton import DERIVATIVE_WIDTHS, coarse_to_fine, gauss_newton
from isthmus.real2sim.residual.normal_equations import DerivativeSteps, NormalEquations, Point
from isthmus.real2sim.residual.prior import GaussianPrior
from isthmus.sim.engines.mujoco.tangent import dof_of, integrate
from isthmus.sim.indexing import signal_sources
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation
from isthmus.world import Space

if TYPE_CHECKING:
    from isthmus.real2sim.residual.residual import ParameterResidual

UNMEASURED_START_STD = (0.1, 1.0)
"""How far the guess of a state that no signal measures may be off: m or rad, and m/s or rad/s."""
MEASURED_START_STD = 10.0
"""The same of a measured state, in its unit: as good as free, because a sensor's offset may be anything."""
START_SCALE_SIGMAS = 10.0
"""Unit of a move of a measured state, in standard deviations of its noise."""
OBSERVER_GAIN = 0.3
"""Share of a difference by which a position, an attitude or a velocity is corrected in each tick."""
OBSERVER_SETTLE_SECONDS = 0.6
"""s that an observer gets to find height and velocity of a robot on feet."""
ANGLE_PER_QUATERNION_VECTOR = 2.0
"""Angle of a small rotation over the vector part of its quaternion."""
REST_NOISE_RATIO = 1.5
"""Spread of a signal over that of its noise below which it does not move."""
REDUNDANCY_SECONDS = 0.4
"""s over which errors of an observer are correlated."""
TYPICAL_TICK_REDUNDANCY = 5.0
"""How many times ticks of a walking robot usually repeat each other, for experiments that nobody has done yet."""
CONTACT_EDGE_INFLATION = 5.0
"""Variance of what is found over what smooth errors would give: feet that touch earlier or later make many small valleys, and a
descent ends in one of them. From fits to ten recordings of a walking go1 whose parameters were known."""

StepReport = Callable[[int, float], None]
"""Called with the number of the step and the cost after it."""


class StateEstimator(Protocol):
    """How the states of segments are found while parameters vary; x is the size of a segment's ξ."""

    settle_ticks: int
    """Ticks at the start of a segment that are not compared."""
    corrected_ticks: int
    """First ticks of a segment after which the state is corrected."""
    steps: DerivativeSteps
    smooth: bool
    """Whether r is a smooth function of the parameters, so that a quadratic around a minimum can be trusted."""
    typical_redundancy: float
    """What `redundancy` usually is, for recordings that do not exist yet."""

    def start_scale(self, components: Components, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(x,) unit of ξ in m, rad, m/s or rad/s, and (x,) weight of its square in the cost, for noise σ, (components,)."""
        ...

    def is_informative(self, components: Components, segments: Segments, noise: np.ndarray) -> np.ndarray:
        """(S,) whether a segment is compared."""
        ...

    def correct(self, simulation: Simulation, error: np.ndarray) -> None:
        """Correct the worlds of a simulation by predicted - measured, (n, components); NaN corrects nothing."""
        ...

    def minimise(
        self,
        residual: ParameterResidual,
        prior: GaussianPrior,
        z: np.ndarray,
        e: np.ndarray,
        xi: np.ndarray | None,
        first: bool,
        max_steps: int,
        report: StepReport,
        min_gain: float,
    ) -> tuple[Point, NormalEquations]:
        """The minimum near z, (d,), and ξ, (S, x); `first` of a series of fits with refined noise."""
        ...

    def best_starts(self, residual: ParameterResidual, e: np.ndarray, steps: int) -> np.ndarray:
        """ξ, (S, x), of least cost in a world e, (all,), of a residual in which no parameter varies."""
        ...

    def information_draw(
        self, residual: ParameterResidual, normal: NormalEquations, point: Point, e: np.ndarray, prior: GaussianPrior,
        rng: np.random.Generator,
    ) -> np.ndarray:  # fmt: skip
        """Information about z, (d, d), as the product of derivatives that were perturbed by +δ and by -δ."""
        ...

    def redundancy(self, residual: ParameterResidual, normal: NormalEquations, prior: GaussianPrior) -> float:
        """How many times ticks repeat each other, >= 1."""
        ...


def needs_observer(robot: Robot) -> bool:
    """Whether the state of a robot is corrected tick by tick, because its starts cannot be searched for: it stands on feet."""
    return bool(robot.morphology.feet)


def estimator_for(robot: Robot, corrected_ticks: int | None = None) -> StateEstimator:
    """The estimator of a robot's states; an observer corrects after all ticks, or after the first `corrected_ticks`."""
    return Observer(robot, corrected_ticks) if needs_observer(robot) else FreeStarts(robot)


def settle_ticks(robot: Robot) -> int:
    """Ticks at the start of a segment that are not compared."""
    return estimator_for(robot).settle_ticks


def _ticks(robot: Robot, seconds: float) -> int:
    return int(np.ceil(seconds * robot.contract.rate - 1e-9))


class FreeStarts:
    """Each segment starts from a state of its own, fitted with the parameters: x = 2 nv."""

    corrected_ticks = 0
    steps = DerivativeSteps(first=0.03, shortest=1e-4, longest=0.3, one_sided_share=0.1)
    smooth = True
    typical_redundancy = 1.0

    def __init__(self, robot: Robot):
        self._robot = robot
        self.settle_ticks = _ticks(robot, robot.max_delay("sensor_delay"))  # delayed signals are from before the segment

    def start_scale(self, components: Components, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        model = self._robot.model
        off = np.repeat(UNMEASURED_START_STD, model.nv)
        unit = off.copy()
        sigma = {(c.signal, c.label): s for c, s in zip(components.entries, noise, strict=True)}
        for signal, (array, columns) in zip(self._robot.contract.signals, signal_sources(self._robot, model), strict=True):
            for label, column in zip(signal.labels, columns, strict=True):
                dof = dof_of(model, column) if array == "qpos" else column
                known = sigma.get((signal.name, label), np.nan)
                if array in ("qpos", "qvel") and dof >= 0 and np.isfinite(known):
                    where = dof if array == "qpos" else model.nv + dof
                    unit[where], off[where] = min(unit[where], START_SCALE_SIGMAS * known), MEASURED_START_STD
        return unit, (unit / off) ** 2

    def is_informative(self, components: Components, segments: Segments, noise: np.ndarray) -> np.ndarray:
        return np.ones(len(segments), bool)

    def correct(self, simulation: Simulation, error: np.ndarray) -> None:
        """Nothing: a segment runs free from its start."""

    def minimise(
        self,
        residual: ParameterResidual,
        prior: GaussianPrior,
        z: np.ndarray,
        e: np.ndarray,
        xi: np.ndarray | None,
        first: bool,
        max_steps: int,
        report: StepReport,
        min_gain: float,
    ) -> tuple[Point, NormalEquations]:
        return gauss_newton(residual, prior, z, e, xi, max_steps, report, min_gain)

    def best_starts(self, residual: ParameterResidual, e: np.ndarray, steps: int) -> np.ndarray:
        nothing = GaussianPrior(Space(()), np.zeros(0), np.zeros((0, 0)))
        return gauss_newton(residual, nothing, np.zeros(0), e, steps=steps)[0].xi

    def information_draw(
        self, residual: ParameterResidual, normal: NormalEquations, point: Point, e: np.ndarray, prior: GaussianPrior,
        rng: np.random.Generator,
    ) -> np.ndarray:  # fmt: skip
        """Starts are moved by a draw of the error that noise leaves in them."""
        shake, steps = normal.draw_start_error(rng), normal.derivative_steps(prior)
        a, b = (residual.linearize(point.z, e, point.xi + sign * shake, *steps) for sign in (1.0, -1.0))
        return normal.information_product(a, b)

    def redundancy(self, residual: ParameterResidual, normal: NormalEquations, prior: GaussianPrior) -> float:
        return 1.0


class Observer:
    """The state of a robot on feet is corrected after every tick: x = 0."""

    steps = DerivativeSteps(first=0.1, shortest=0.1, longest=0.3, one_sided_share=1.0)
    """Shorter ones see the edges at which a foot touches."""
    smooth = False
    typical_redundancy = CONTACT_EDGE_INFLATION * TYPICAL_TICK_REDUNDANCY

    def __init__(self, robot: Robot, corrected_ticks: int | None = None):
        self.corrected_ticks = sys.maxsize if corrected_ticks is None else corrected_ticks
        self.settle_ticks = _ticks(robot, robot.max_delay("sensor_delay")) + _ticks(robot, OBSERVER_SETTLE_SECONDS)
        self._model = model = robot.model
        self._rate = robot.contract.rate
        positions: list[tuple[int, int, float]] = []
        velocities: list[tuple[int, int, float]] = []
        at = 0
        for signal, (array, columns) in zip(robot.contract.signals, signal_sources(robot, model), strict=True):
            if signal.name == "quat" and signal.labels == ("w", "x", "y", "z"):
                if array == "qpos":
                    gain = ANGLE_PER_QUATERNION_VECTOR * OBSERVER_GAIN
                    positions += [(at + i, dof_of(model, columns[1 + i]), gain) for i in range(3)]
                at += 3
                continue
            for i, column in enumerate(columns):
                if array == "qpos":
                    positions.append((at + i, dof_of(model, column), OBSERVER_GAIN))
                elif array == "qvel":
                    velocities.append((at + i, column, OBSERVER_GAIN))
            at += signal.size
        self._position, self._velocity = _CorrectedDofs(positions), _CorrectedDofs(velocities)

    def start_scale(self, components: Components, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(0), np.zeros(0)

    def is_informative(self, components: Components, segments: Segments, noise: np.ndarray) -> np.ndarray:
        """Segments at rest are not: soft contacts creep, each friction at its own pace, and there is nothing else to see."""
        return np.logical_not(at_rest(segments.measured, noise, components).all(axis=1))

    def correct(self, simulation: Simulation, error: np.ndarray) -> None:
        error = np.nan_to_num(error)
        step, change = np.zeros((2, simulation.n, simulation.model.nv))
        if len(self._position.dofs):
            step[:, self._position.dofs] = -self._position.gain * error[:, self._position.components]
            simulation.qpos[:] = integrate(self._model, simulation.qpos, step)
        change[:, self._velocity.dofs] = -self._velocity.gain * error[:, self._velocity.components]
        simulation.qvel[:] += change
        simulation.correct(step, change)

    def minimise(
        self,
        residual: ParameterResidual,
        prior: GaussianPrior,
        z: np.ndarray,
        e: np.ndarray,
        xi: np.ndarray | None,
        first: bool,
        max_steps: int,
        report: StepReport,
        min_gain: float,
    ) -> tuple[Point, NormalEquations]:
        """Derivatives are wide at first, and only the narrowest in later fits of a series."""
        return coarse_to_fine(residual, prior, z, e, DERIVATIVE_WIDTHS if first else DERIVATIVE_WIDTHS[-2:], report)

    def best_starts(self, residual: ParameterResidual, e: np.ndarray, steps: int) -> np.ndarray:
        return np.zeros((len(residual.segments), 0))

    def information_draw(
        self, residual: ParameterResidual, normal: NormalEquations, point: Point, e: np.ndarray, prior: GaussianPrior,
        rng: np.random.Generator,
    ) -> np.ndarray:  # fmt: skip
        """The observer's signals are perturbed by noise: that also takes out what feet that touch earlier or later add to a
        derivative's square."""
        noise, steps = rng.standard_normal(residual.seen.shape), normal.derivative_steps(prior)
        a, b = (residual.linearize(point.z, e, point.xi, *steps, noise_draw=sign * noise) for sign in (1.0, -1.0))
        return normal.information_product(a, b, filter_edges=False)

    def redundancy(self, residual: ParameterResidual, normal: NormalEquations, prior: GaussianPrior) -> float:
        """That of ticks, and the variance that contact edges add.

        An error that the observer has not yet corrected shows in many ticks, and a foot that touches early in many signals. So
        the sum of what the ticks of a stretch say about z, Σ dr/dz · w r, varies more than if each spoke for itself; on average
        over directions, that many times more.
        """
        S, ticks = residual.seen.shape[:2]
        stretch = min(max(1, round(REDUNDANCY_SECONDS * self._rate)), ticks - self.settle_ticks)
        first = self.settle_ticks + (ticks - self.settle_ticks) % stretch
        said = (normal.weighted_dr_dz * normal.r[..., None]).reshape(S, ticks, -1, normal.weighted_dr_dz.shape[-1]).sum(2)
        sums = said[:, first:].reshape(-1, stretch, said.shape[-1]).sum(1)
        A = normal.matrix + prior.precision
        varies, alone = (np.trace(np.linalg.solve(A, B)) for B in (sums.T @ sums, normal.matrix))
        return CONTACT_EDGE_INFLATION * (max(1.0, float(varies / alone)) if alone > 0 else 1.0)


class _CorrectedDofs:
    """Components that are compared, the degrees of freedom that they measure, and the gains of their correction."""

    def __init__(self, rows: list[tuple[int, int, float]]):
        self.components = np.array([c for c, _, _ in rows], dtype=int)
        self.dofs = np.array([d for _, d, _ in rows], dtype=int)
        self.gain = np.array([s for _, _, s in rows])


def at_rest(measured: np.ndarray, noise: np.ndarray, components: Components) -> np.ndarray:
    """(S, components) whether a signal, (S, ticks, width), spreads hardly more than its noise, or was not measured."""
    out = np.empty((len(measured), len(components)), bool)
    for mine, columns in components.columns():
        there = np.isfinite(measured[..., columns])
        values = np.where(there, measured[..., columns], 0.0)
        count = np.maximum(there.sum(1, keepdims=True), 1)
        about = np.where(there, values - values.sum(1, keepdims=True) / count, 0.0)
        spread = np.sqrt((about**2).sum(1) / count[:, 0]).max(-1)
        out[:, mine] = ~(spread > REST_NOISE_RATIO * noise[mine[0]])[:, None]
    return out
