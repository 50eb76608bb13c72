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

from isthmus.errors import BadInput
from isthmus.gap.residual import SCALE, Components, Residual, skipped
from isthmus.gap.segments import Segments, past_kept
from isthmus.identify.courses import Course
from isthmus.identify.descend import EDGES, USUAL, Normal
from isthmus.identify.fit import free, noise_params
from isthmus.identify.prior import prior
from isthmus.sim.engine import Engine
from isthmus.sim.robot import Robot
from isthmus.world import Belief, Space
from isthmus.world.factors import Normal as NormalFactor

DRAWS = 6
"""Worlds in which limits are checked, beside the median."""
MARGIN = 0.9
"""Part of a limit that may be used."""
STEP = 0.1
"""Of parameters, in unconstrained coordinates, for derivatives."""
FORBIDDEN = 50.0
"""Cost of going beyond a limit by all of it, nats."""
LEAST_NOISE = 1e-4
"""Of a signal of which none is known, in its unit."""


@dataclass(frozen=True)
class Experiment:
    orders: np.ndarray
    """(T, k), and the targets that come of them if the median is true, (T, m)."""
    targets: np.ndarray
    space: Space
    """The parameters in question."""
    covariance: np.ndarray
    """(d, d) of their unconstrained coordinates that is expected after a fit, and their mean, if the median is true."""
    mean: np.ndarray
    worth: float
    """nats"""
    beyond: float
    """By how much limits are exceeded, as a part of them; 0 if they are kept."""

    def belief(self) -> Belief:
        """What is expected to be believed afterwards, of these parameters."""
        rows = tuple(tuple(map(float, row)) for row in self.covariance)
        return Belief(self.space, (NormalFactor(self.space.names, tuple(map(float, self.mean)), rows),))


class Judge:
    """What experiments on a course are worth."""

    def __init__(
        self,
        robot: Robot,
        belief: Belief,
        course: Course,
        ahead: float,
        names: Iterable[str] | None = None,
        threads: int = 0,
        left: Mapping[str, float] | None = None,
    ):
        """`left` is what a fit has left of each signal, as far as that is known: a recording will be no clearer to the next."""
        self.robot, self.belief, self.course, self.threads = robot, belief, course, threads
        self.names = free(robot, belief) if names is None else tuple(names)
        rate, self.skip = robot.contract.rate, skipped(robot)
        self.length = self.skip + max(2, round(ahead * rate))
        if course.ticks <= self.length:
            least = (self.length + 1) / rate
            raise BadInput(f"the experiment is too short: {robot.name} needs more than {least:.2g} s with this horizon.")
        self.kept = past_kept(robot)
        self.e = belief.median()
        self.noise = _noise(robot, belief, left or {})
        self.space = robot.space.subset(self.names)
        self.prior = prior(belief, self.space)
        self.z = np.clip(self.space.unconstrained(self.e[[robot.space.index(n) for n in self.space.names]]), -4.0, 4.0)
        self.root = np.linalg.cholesky(np.linalg.inv(self.prior.precision))
        self.worlds = np.concatenate([self.e[None], belief.sample(np.random.default_rng(0), DRAWS)])

    def information(self, orders: np.ndarray) -> np.ndarray:
        """About z, (c, d, d), of candidates (c, T, k)."""
        segments, _ = self._recorded(orders)
        residual = Residual(self.robot, segments, self.noise, self.names, self.threads)
        S = len(segments)
        xi = np.zeros((S, len(residual.spread)))
        found = residual.linear(self.z, self.e, xi, np.full(len(self.z), STEP), np.full(xi.shape, 1.0 / SCALE))
        each = S // len(orders)
        parts = [slice(i * each, (i + 1) * each) for i in range(len(orders))]
        told = np.stack([Normal(found.of(part), residual.hold).matrix for part in parts])
        return told / (EDGES * USUAL) if residual.followed else told

    def _recorded(self, orders: np.ndarray) -> tuple[Segments, np.ndarray]:
        """The experiments as recordings without noise, whose starts are known, one after the other; and (c, T, m) targets."""
        c, T = orders.shape[:2]
        engine, drive = self._engine(self.e[None], c), self.course.drive(orders)
        qpos, qvel, y, sent = [], [], [], []
        for t in range(T):
            q, v = engine.shown()
            qpos.append(q)
            qvel.append(v)
            y.append(engine.noiseless())
            sent.append(drive(t, y[-1]))
            engine.replay(sent[-1])
        targets = np.stack(sent, axis=1)
        q, v, seen = (np.stack(x, axis=1) for x in (qpos, qvel, y))
        rows = []
        default = np.array(self.robot.default)
        padded = np.concatenate([np.broadcast_to(default, (c, self.kept, len(default))), targets], axis=1)
        for i in range(c):
            for first in range(0, T - self.length, self.length - self.skip):
                past = padded[i, first : first + self.kept][::-1]
                window = slice(first, first + self.length)
                rows.append(
                    (past, targets[i, window], seen[i, first : first + self.length + 1], q[i, first], v[i, first], 0, 0.0)
                )
        return Segments(*(np.array(column) for column in zip(*rows, strict=True))), targets

    def _engine(self, worlds: np.ndarray, copies: int) -> Engine:
        """Worlds (w, d) at rest at home, so many times over."""
        engine = Engine(self.robot, copies * len(worlds), self.threads)
        engine.apply(np.tile(worlds, (copies, 1)), engine.all)
        engine.reset(engine.all)
        return engine

    def worth(self, matrix: np.ndarray) -> float:
        inside = self.root.T @ matrix @ self.root
        return 0.5 * float(np.linalg.slogdet(np.eye(len(inside)) + 0.5 * (inside + inside.T))[1])

    def beyond(self, orders: np.ndarray) -> np.ndarray:
        """By how much the worst world exceeds the limits, as a part of them, (c,)."""
        contract = self.robot.contract
        c, w = len(orders), len(self.worlds)
        engine, drive = self._engine(self.worlds, c), self.course.drive(np.repeat(orders, w, axis=0))
        effort = np.array(contract.safety.effort or (np.inf,) * contract.target.size)
        slices = contract.slices()
        worst = np.zeros(c * w)
        y = engine.noiseless()
        for t in range(orders.shape[1]):
            engine.replay(drive(t, y))
            y = engine.noiseless()
            over = [(np.abs(engine.efforts()) / effort).max(1) - MARGIN] if self.course.strict else []
            for signal in contract.signals:
                if signal.low and signal.high:
                    low, high = np.array(signal.low), np.array(signal.high)
                    middle, half = 0.5 * (low + high), 0.5 * (high - low)
                    over.append((np.abs(y[:, slices[signal.name]] - middle) / half).max(1) - MARGIN)
                if signal.name == "quat" and contract.safety.tilt:
                    quat = y[:, slices["quat"]]
                    up = 1.0 - 2.0 * (quat[:, 1] ** 2 + quat[:, 2] ** 2)
                    over.append(np.arccos(np.clip(up, -1, 1)) / contract.safety.tilt - MARGIN)
            worst = np.maximum(worst, np.max(np.nan_to_num(over, nan=10.0), axis=0, initial=0.0))
        worst[engine.blown] = 10.0
        return np.maximum(worst.reshape(c, w).max(1), 0.0)

    def experiment(self, orders: np.ndarray) -> Experiment:
        """What to expect of orders (T, k)."""
        matrix, targets = self.information(orders[None])[0], self._recorded(orders[None])[1][0]
        covariance = np.linalg.inv(matrix + self.prior.precision)
        covariance = 0.5 * (covariance + covariance.T)
        mean = covariance @ (matrix @ self.z + self.prior.precision @ self.prior.mean)
        beyond = float(self.beyond(orders[None])[0])
        return Experiment(orders, targets, self.space, covariance, mean, self.worth(matrix), beyond)


def _noise(robot: Robot, belief: Belief, left: Mapping[str, float]) -> np.ndarray:
    """σ per component as it is believed, (components,)."""
    e = belief.median()
    known = {signal: float(e[robot.space.index(name)]) for name, signal in noise_params(robot.space).items()}
    known.update(left)
    return np.array([max(known.get(c.signal, 0.0), LEAST_NOISE) for c in Components(robot.contract).all])


def excite(
    judge: Judge, tries: int = 400, seed: int = 0, report: Callable[[float, float], None] = lambda done, worth: None
) -> Experiment:
    """The best of some `tries` experiments."""
    course, rng = judge.course, np.random.default_rng(seed)
    options = {"seed": seed + 1, "verbose": -9, "CMA_diagonal": course.size > 40, "maxfevals": tries}
    search = cma.CMAEvolutionStrategy(0.3 * rng.standard_normal(course.size), 0.4, options)
    best: tuple[float, np.ndarray] | None = None
    done = 0
    while done < tries and not search.stop():
        x = np.array(search.ask())
        orders = course(x)
        worth = np.array([judge.worth(matrix) for matrix in judge.information(orders)])
        cost = FORBIDDEN * judge.beyond(orders) - worth
        search.tell(list(x), cost.tolist())
        i = int(np.argmin(cost))
        if best is None or cost[i] < best[0]:
            best = (float(cost[i]), orders[i])
        done += len(x)
        report(min(done / tries, 1.0), -best[0])
    assert best is not None
    return judge.experiment(best[1])
