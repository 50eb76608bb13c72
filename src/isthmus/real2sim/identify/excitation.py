"""The experiment that tells most: one whose recording would narrow the belief as far as the robot's limits allow.

    orders      waves of the motors' targets, or commands to a policy (`courses`)
    information what a fit to the recording would learn, F, from the same derivatives of the same residual
    worth       log det (1 + Σ½ F Σ½), Σ what is believed now: what is known already counts for nothing
    limits      positions, speeds, torques and tilt, in worlds drawn from the belief

CMA-ES searches the coefficients; all candidates of a generation are simulated side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import cma
import numpy as np

from isthmus.core.errors import BadInput
from isthmus.real2sim.identify.excitation_signals import ExcitationSignal
from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.segments import Segments, past_target_ticks
from isthmus.real2sim.residual.estimators import START_SCALE_SIGMAS, settle_ticks
from isthmus.real2sim.residual.normal_equations import NormalEquations
from isthmus.real2sim.residual.prior import free_parameters, gaussian_prior, noise_parameters
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation
from isthmus.world import Belief, Space
from isthmus.world.factors import Normal as NormalFactor

LIMIT_CHECK_WORLDS = 6
"""Worlds in which limits are checked, beside the median."""
LIMIT_MARGIN = 0.9
"""Part of a limit that may be used."""
DERIVATIVE_STEP = 0.1
"""Of parameters, in unconstrained coordinates, for derivatives."""
LIMIT_PENALTY_NATS = 50.0
"""Cost of going beyond a limit by all of it, nats."""
MIN_NOISE = 1e-4
"""Of a signal of which none is known, in its unit."""


@dataclass(frozen=True)
class Experiment:
    commands: np.ndarray
    """(T, k), and the targets that come of them if the median is true, (T, m)."""
    targets: np.ndarray
    space: Space
    """The parameters in question."""
    covariance: np.ndarray
    """(d, d) of their unconstrained coordinates that is expected after a fit, and their mean, if the median is true."""
    mean: np.ndarray
    information_gain_nats: float
    """nats"""
    limit_excess: float
    """By how much limits are exceeded, as a part of them; 0 if they are kept."""

    def expected_belief(self) -> Belief:
        """What is expected to be believed afterwards, of these parameters."""
        rows = tuple(tuple(map(float, row)) for row in self.covariance)
        return Belief(self.space, (NormalFactor(self.space.names, tuple(map(float, self.mean)), rows),))


class ExperimentEvaluator:
    """What experiments on a course are worth."""

    def __init__(
        self,
        robot: Robot,
        belief: Belief,
        excitation: ExcitationSignal,
        horizon_seconds: float,
        names: Iterable[str] | None = None,
        threads: int = 0,
        unexplained_noise: Mapping[str, float] | None = None,
    ):
        """`left` is what a fit has left of each signal, as far as that is known: a recording will be no clearer to the next."""
        self.robot, self.belief, self.excitation, self.threads = robot, belief, excitation, threads
        self.names = free_parameters(robot, belief) if names is None else tuple(names)
        rate, self.settle_ticks = robot.contract.rate, settle_ticks(robot)
        self.segment_ticks = self.settle_ticks + max(2, round(horizon_seconds * rate))
        if excitation.ticks <= self.segment_ticks:
            least = (self.segment_ticks + 1) / rate
            raise BadInput(f"the experiment is too short: {robot.name} needs more than {least:.2g} s with this horizon.")
        self.past_ticks = past_target_ticks(robot)
        self.e = belief.median()
        self.noise = _believed_noise(robot, belief, unexplained_noise or {})
        self.space = robot.space.subset(self.names)
        self.prior = gaussian_prior(belief, self.space)
        self.z = np.clip(self.space.unconstrained(self.e[[robot.space.index(n) for n in self.space.names]]), -4.0, 4.0)
        self.prior_root = np.linalg.cholesky(np.linalg.inv(self.prior.precision))
        self.worlds = np.concatenate([self.e[None], belief.sample(np.random.default_rng(0), LIMIT_CHECK_WORLDS)])

    def information(self, commands: np.ndarray) -> np.ndarray:
        """About z, (c, d, d), of candidates (c, T, k)."""
        segments, _ = self._simulate_recordings(commands)
        residual = ParameterResidual(self.robot, segments, self.noise, self.names, self.threads)
        S = len(segments)
        xi = np.zeros((S, len(residual.start_scale)))
        found = residual.linearize(
            self.z, self.e, xi, np.full(len(self.z), DERIVATIVE_STEP), np.full(xi.shape, 1.0 / START_SCALE_SIGMAS)
        )
        each = S // len(commands)
        parts = [slice(i * each, (i + 1) * each) for i in range(len(commands))]
        told = np.stack([NormalEquations(found.take(part), residual.start_weight).matrix for part in parts])
        return told / residual.estimator.typical_redundancy

    def _simulate_recordings(self, commands: np.ndarray) -> tuple[Segments, np.ndarray]:
        """The experiments as recordings without noise, whose starts are known, one after the other; and (c, T, m) targets."""
        c, T = commands.shape[:2]
        engine, drive = self._make_engine(self.e[None], c), self.excitation.drive(commands)
        qpos, qvel, y, sent = [], [], [], []
        for t in range(T):
            q, v = engine.encoder_state()
            qpos.append(q)
            qvel.append(v)
            y.append(engine.noiseless_signals())
            sent.append(drive(t, y[-1]))
            engine.replay(sent[-1])
        targets = np.stack(sent, axis=1)
        q, v, seen = (np.stack(x, axis=1) for x in (qpos, qvel, y))
        rows = []
        default = np.array(self.robot.default)
        padded = np.concatenate([np.broadcast_to(default, (c, self.past_ticks, len(default))), targets], axis=1)
        for i in range(c):
            for first in range(0, T - self.segment_ticks, self.segment_ticks - self.settle_ticks):
                past = padded[i, first : first + self.past_ticks][::-1]
                window = slice(first, first + self.segment_ticks)
                rows.append(
                    (
                        past,
                        targets[i, window],
                        seen[i, first : first + self.segment_ticks + 1],
                        q[i, first],
                        v[i, first],
                        0,
                        0.0,
                    )
                )
        return Segments(*(np.array(column) for column in zip(*rows, strict=True))), targets

    def _make_engine(self, worlds: np.ndarray, copies: int) -> Simulation:
        """Worlds (w, d) at rest at home, so many times over."""
        engine = Simulation(self.robot, copies * len(worlds), self.threads)
        engine.apply(np.tile(worlds, (copies, 1)), engine.all_ids)
        engine.reset(engine.all_ids)
        return engine

    def information_gain_nats(self, information: np.ndarray) -> float:
        inside = self.prior_root.T @ information @ self.prior_root
        return 0.5 * float(np.linalg.slogdet(np.eye(len(inside)) + 0.5 * (inside + inside.T))[1])

    def limit_excess(self, commands: np.ndarray) -> np.ndarray:
        """By how much the worst world exceeds the limits, as a part of them, (c,)."""
        contract = self.robot.contract
        c, w = len(commands), len(self.worlds)
        engine, drive = self._make_engine(self.worlds, c), self.excitation.drive(np.repeat(commands, w, axis=0))
        effort = np.array(contract.safety.effort or (np.inf,) * contract.target.size)
        slices = contract.slices()
        worst = np.zeros(c * w)
        y = engine.noiseless_signals()
        for t in range(commands.shape[1]):
            engine.replay(drive(t, y))
            y = engine.noiseless_signals()
            over = [(np.abs(engine.motor_torque()) / effort).max(1) - LIMIT_MARGIN] if self.excitation.limits_torque else []
            for signal in contract.signals:
                if signal.low and signal.high:
                    low, high = np.array(signal.low), np.array(signal.high)
                    middle, half = 0.5 * (low + high), 0.5 * (high - low)
                    over.append((np.abs(y[:, slices[signal.name]] - middle) / half).max(1) - LIMIT_MARGIN)
                if signal.name == "quat" and contract.safety.tilt:
                    quat = y[:, slices["quat"]]
                    up = 1.0 - 2.0 * (quat[:, 1] ** 2 + quat[:, 2] ** 2)
                    over.append(np.arccos(np.clip(up, -1, 1)) / contract.safety.tilt - LIMIT_MARGIN)
            worst = np.maximum(worst, np.max(np.nan_to_num(over, nan=10.0), axis=0, initial=0.0))
        worst[engine.diverged] = 10.0
        return np.maximum(worst.reshape(c, w).max(1), 0.0)

    def experiment(self, commands: np.ndarray) -> Experiment:
        """What to expect of orders (T, k)."""
        matrix, targets = self.information(commands[None])[0], self._simulate_recordings(commands[None])[1][0]
        covariance = np.linalg.inv(matrix + self.prior.precision)
        covariance = 0.5 * (covariance + covariance.T)
        mean = covariance @ (matrix @ self.z + self.prior.precision @ self.prior.mean)
        beyond = float(self.limit_excess(commands[None])[0])
        return Experiment(commands, targets, self.space, covariance, mean, self.information_gain_nats(matrix), beyond)


def _believed_noise(robot: Robot, belief: Belief, unexplained_noise: Mapping[str, float]) -> np.ndarray:
    """σ per component as it is believed, (components,)."""
    e = belief.median()
    known = {signal: float(e[robot.space.index(name)]) for name, signal in noise_parameters(robot.space).items()}
    known.update(unexplained_noise)
    return np.array([max(known.get(c.signal, 0.0), MIN_NOISE) for c in Components(robot.contract).entries])


def excite(
    evaluator: ExperimentEvaluator,
    tries: int = 400,
    seed: int = 0,
    report: Callable[[float, float], None] = lambda done, worth: None,
) -> Experiment:
    """The best of some `tries` experiments."""
    course, rng = evaluator.excitation, np.random.default_rng(seed)
    options = {"seed": seed + 1, "verbose": -9, "CMA_diagonal": course.coefficient_count > 40, "maxfevals": tries}
    search = cma.CMAEvolutionStrategy(0.3 * rng.standard_normal(course.coefficient_count), 0.4, options)
    best: tuple[float, np.ndarray] | None = None
    done = 0
    while done < tries and not search.stop():
        x = np.array(search.ask())
        orders = course(x)
        worth = np.array([evaluator.information_gain_nats(matrix) for matrix in evaluator.information(orders)])
        cost = LIMIT_PENALTY_NATS * evaluator.limit_excess(orders) - worth
        search.tell(list(x), cost.tolist())
        i = int(np.argmin(cost))
        if best is None or cost[i] < best[0]:
            best = (float(cost[i]), orders[i])
        done += len(x)
        report(min(done / tries, 1.0), -best[0])
    assert best is not None
    return evaluator.experiment(best[1])
