"""The experiment that tells most: targets whose recording would narrow the belief as far as the robot's limits allow.

    targets     a Fourier series for each motor about the robot's default, inside the contract's limits
    information what a fit to the recording would learn, F, from the same derivatives of the same residual
    worth       log det (1 + Σ½ F Σ½), Σ what is believed now: what is known already counts for nothing
    limits      positions, speeds, torques and tilt, in worlds drawn from the belief

CMA-ES searches the coefficients; all candidates of a generation are simulated side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import cma
import numpy as np

from isthmus.gap.residual import SCALE, Components, Residual, skipped
from isthmus.gap.segments import Segments, past_kept
from isthmus.identify.descend import Normal
from isthmus.identify.fit import free, noise_params
from isthmus.identify.prior import prior
from isthmus.sim.engine import Engine
from isthmus.sim.robot import Robot
from isthmus.world import Belief, Space
from isthmus.world.factors import Normal as NormalFactor

HARMONICS = (1, 2, 3, 5, 8, 13)
PERIOD = 5.0
"""s of the slowest wave, or the length of the experiment if that is shorter."""
RAMP = 0.5
"""s in which the waves grow from nothing, and fade to it."""
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
    targets: np.ndarray
    """(T, m)"""
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
    """What experiments of a given length are worth."""

    def __init__(
        self, robot: Robot, belief: Belief, seconds: float, ahead: float, names: Iterable[str] | None = None, threads: int = 0
    ):
        self.robot, self.belief, self.threads = robot, belief, threads
        self.names = free(robot, belief) if names is None else tuple(names)
        rate = robot.contract.rate
        self.ticks, self.skip = round(seconds * rate), skipped(robot)
        self.length = self.skip + max(2, round(ahead * rate))
        self.kept = past_kept(robot)
        self.e = belief.median()
        self.noise = _noise(robot, belief)
        self.space = robot.space.subset(self.names)
        self.prior = prior(belief, self.space)
        self.z = np.clip(self.space.unconstrained(self.e[[robot.space.index(n) for n in self.space.names]]), -4.0, 4.0)
        self.root = np.linalg.cholesky(np.linalg.inv(self.prior.precision))
        self.worlds = np.concatenate([self.e[None], belief.sample(np.random.default_rng(0), DRAWS)])

    def information(self, targets: np.ndarray) -> np.ndarray:
        """About z, (c, d, d), of candidates (c, T, m)."""
        segments = self._segments(targets)
        residual = Residual(self.robot, segments, self.noise, self.names, self.threads)
        S = len(segments)
        xi = np.zeros((S, len(residual.spread)))
        found = residual.linear(self.z, self.e, xi, np.full(len(self.z), STEP), np.full(xi.shape, 1.0 / SCALE))
        each = S // len(targets)
        parts = [slice(i * each, (i + 1) * each) for i in range(len(targets))]
        one = lambda part: type(found)(found.r[part], found.dz[part], found.dx[part])  # noqa: E731
        return np.stack([Normal(one(part), residual.hold).matrix for part in parts])

    def _segments(self, targets: np.ndarray) -> Segments:
        """The experiments as recordings without noise, whose starts are known, candidate by candidate."""
        c, T = targets.shape[:2]
        engine = Engine(self.robot, c, self.threads)
        engine.apply(np.repeat(self.e[None], c, axis=0), engine.all)
        engine.reset(engine.all)
        qpos, qvel, y = [], [], []
        for t in range(T):
            qpos.append(engine.qpos.copy())
            qvel.append(engine.qvel.copy())
            y.append(engine.noiseless())
            engine.replay(targets[:, t])
        q, v, seen = (np.stack(x, axis=1) for x in (qpos, qvel, y))
        rows = []
        default = np.array(self.robot.default)
        padded = np.concatenate([np.broadcast_to(default, (c, self.kept, len(default))), targets], axis=1)
        for i in range(c):
            for first in range(0, T - self.length, self.length - self.skip):
                sent = padded[i, first : first + self.kept][::-1]
                window = slice(first, first + self.length)
                rows.append(
                    (sent, targets[i, window], seen[i, first : first + self.length + 1], q[i, first], v[i, first], 0, 0.0)
                )
        return Segments(*(np.array(column) for column in zip(*rows, strict=True)))

    def worth(self, matrix: np.ndarray) -> float:
        inside = self.root.T @ matrix @ self.root
        return 0.5 * float(np.linalg.slogdet(np.eye(len(inside)) + 0.5 * (inside + inside.T))[1])

    def beyond(self, targets: np.ndarray) -> np.ndarray:
        """By how much the worst world exceeds the limits, as a part of them, (c,)."""
        robot, contract = self.robot, self.robot.contract
        c, w = len(targets), len(self.worlds)
        engine = Engine(robot, c * w, self.threads)
        engine.apply(np.tile(self.worlds, (c, 1)), engine.all)
        engine.reset(engine.all)
        wide = np.repeat(targets, w, axis=0)
        effort = np.array(contract.safety.effort or (np.inf,) * contract.target.size)
        slices = contract.slices()
        worst = np.zeros(c * w)
        for t in range(targets.shape[1]):
            engine.replay(wide[:, t])
            y = engine.noiseless()
            over = [(np.abs(engine.ctrl) / effort).max(1) - MARGIN]
            for signal in contract.signals:
                if signal.low and signal.high:
                    low, high = np.array(signal.low), np.array(signal.high)
                    middle, half = 0.5 * (low + high), 0.5 * (high - low)
                    over.append((np.abs(y[:, slices[signal.name]] - middle) / half).max(1) - MARGIN)
                if signal.name == "quat" and contract.safety.tilt:
                    quat = y[:, slices["quat"]]
                    up = 1.0 - 2.0 * (quat[:, 1] ** 2 + quat[:, 2] ** 2)
                    over.append(np.arccos(np.clip(up, -1, 1)) / contract.safety.tilt - MARGIN)
            worst = np.maximum(worst, np.max(np.nan_to_num(over, nan=10.0), axis=0))
        worst[engine.blown] = 10.0
        return np.maximum(worst.reshape(c, w).max(1), 0.0)

    def experiment(self, targets: np.ndarray) -> Experiment:
        matrix = self.information(targets[None])[0]
        covariance = np.linalg.inv(matrix + self.prior.precision)
        covariance = 0.5 * (covariance + covariance.T)
        mean = covariance @ (matrix @ self.z + self.prior.precision @ self.prior.mean)
        return Experiment(targets, self.space, covariance, mean, self.worth(matrix), float(self.beyond(targets[None])[0]))


def _noise(robot: Robot, belief: Belief) -> np.ndarray:
    """σ per component as it is believed."""
    e = belief.median()
    by_signal = {signal: float(e[robot.space.index(name)]) for name, signal in noise_params(robot.space).items()}
    return np.array([max(by_signal.get(c.signal, 0.0), LEAST_NOISE) for c in Components(robot.contract).all])


class Waves:
    """Coefficients to targets."""

    def __init__(self, robot: Robot, seconds: float):
        target, rate = robot.contract.target, robot.contract.rate
        self.default = np.array(robot.default)
        low = np.array(target.low or self.default - 1.0)
        high = np.array(target.high or self.default + 1.0)
        self.room = np.minimum(high - self.default, self.default - low)
        # A default at the end of its range leaves room to one side only.
        self.room = np.where(self.room > 0.05 * (high - low), self.room, 0.25 * (high - low))
        self.limits = (low, high)
        t = np.arange(round(seconds * rate)) / rate
        omega = 2 * np.pi * np.array(HARMONICS) / min(PERIOD, seconds)
        omega = omega[omega < np.pi * rate / 4]
        ramp = np.clip(np.minimum(t, seconds - t) / RAMP, 0.0, 1.0)
        self.basis = ramp[:, None] * np.concatenate([np.sin(np.outer(t, omega)), np.cos(np.outer(t, omega))], axis=1)
        self.size = self.basis.shape[1] * target.size

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """(c, size) -> (c, T, m); a unit of a coefficient fills the room that there is with about one wave."""
        c, m = len(x), len(self.default)
        raw = self.basis @ x.reshape(c, self.basis.shape[1], m)
        return np.clip(self.default + self.room * np.tanh(0.7 * raw), *self.limits)


def excite(
    robot: Robot,
    belief: Belief,
    seconds: float = 10.0,
    ahead: float = 0.5,
    names: Iterable[str] | None = None,
    tries: int = 400,
    seed: int = 0,
    threads: int = 0,
    report: Callable[[float, float], None] = lambda done, worth: None,
) -> Experiment:
    """The best of some `tries` experiments of that length, for a fit that predicts `ahead` seconds."""
    judge, waves = Judge(robot, belief, seconds, ahead, names, threads), Waves(robot, seconds)
    rng = np.random.default_rng(seed)
    options = {"seed": seed + 1, "verbose": -9, "CMA_diagonal": waves.size > 40, "maxfevals": tries}
    search = cma.CMAEvolutionStrategy(0.3 * rng.standard_normal(waves.size), 0.4, options)
    best: tuple[float, np.ndarray] | None = None
    done = 0
    while done < tries and not search.stop():
        x = np.array(search.ask())
        targets = waves(x)
        worth = np.array([judge.worth(matrix) for matrix in judge.information(targets)])
        cost = FORBIDDEN * judge.beyond(targets) - worth
        search.tell(list(x), cost.tolist())
        i = int(np.argmin(cost))
        if best is None or cost[i] < best[0]:
            best = (float(cost[i]), targets[i])
        done += len(x)
        report(min(done / tries, 1.0), -best[0])
    assert best is not None
    return judge.experiment(best[1])


def chirp(robot: Robot, seconds: float, low: float = 0.2, high: float = 4.0, part: float = 0.5) -> np.ndarray:
    """What one would try by hand, (T, m): each motor sweeps from `low` to `high` Hz over `part` of its room."""
    waves, rate = Waves(robot, seconds), robot.contract.rate
    t = np.arange(round(seconds * rate)) / rate
    phase = 2 * np.pi * low * seconds / np.log(high / low) * ((high / low) ** (t / seconds) - 1.0)
    shift = np.linspace(0, np.pi, len(waves.default), endpoint=False)
    ramp = np.clip(np.minimum(t, seconds - t) / RAMP, 0.0, 1.0)[:, None]
    return np.clip(waves.default + part * waves.room * ramp * np.sin(phase[:, None] + shift), *waves.limits)
