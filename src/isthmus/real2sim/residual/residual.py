"""The one residual: by how much the simulator mispredicts a recording, in units of the sensors' noise.

    y(e, ξ)                     what the sensors would have said, replaying a segment in the world e from its start moved by ξ
    r = (y - measured) / σ      per signal and tick
    dr/de, dr/dξ                by perturbed copies of the world, stepped side by side in the batch

Identification minimises r, diagnosis reads it, excitation reads its derivative. Each segment starts from a state of its
own, which the recording gives only roughly: ξ, (S, 2 nv), moves it, in units of `spread`. How tightly the guess is held,
`hold`, is next to nothing: a prior on a measured start would be information about the sensor's offset.

A robot on its feet is followed by an `Observer` instead, tick by tick: then ξ is empty, (S, 0), and r is what each tick
brings that the ticks before did not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import Self

import numpy as np

from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.segments import Segments
from isthmus.real2sim.residual.estimators import StateEstimator, estimator_for
from isthmus.real2sim.residual.normal_equations import Linearization
from isthmus.sim.engines.mujoco.tangent import integrate
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation

MAX_WORLDS_PER_BATCH = 8192
"""Copies are stepped in groups of at most so many worlds."""
FAILED_RESIDUAL = 1e3
"""Residual of a world whose physics failed, and the largest of any."""


class ParameterResidual:
    """Of all segments of all recordings of one robot, as a function of some parameters of its Space."""

    def __init__(
        self,
        robot: Robot,
        segments: Segments,
        noise: np.ndarray,
        names: Iterable[str],
        threads: int = 0,
        estimator: StateEstimator | None = None,
    ):
        """`noise`, (components,), is σ; `names` are the parameters that may vary.

        `estimator` is by default the one for the robot: free starts, or an observer of a robot on feet.
        """
        self.robot, self.segments, self.threads = robot, segments, threads
        self.space = robot.space.subset(names)
        self.parameter_columns = np.array([robot.space.index(name) for name in self.space.names], dtype=int)
        self.components = Components(robot.contract)
        self.estimator = estimator or estimator_for(robot)
        self._engines: dict[int, Simulation] = {}
        self.settle_ticks = self.estimator.settle_ticks
        self.noise = np.asarray(noise, float)
        self.start_scale, self.start_weight = self.estimator.start_scale(self.components, self.noise)
        difference = self.components.difference(segments.measured, segments.measured)
        self.seen = np.isfinite(difference) & np.isfinite(self.noise)
        self.seen[:, : self.settle_ticks] = False
        self.seen[~self.estimator.is_informative(self.components, segments, self.noise)] = False

    def with_fixed(self, name: str) -> ParameterResidual:
        """The same with one parameter less that may vary; engines are shared."""
        out = copy(self)
        out.space = self.space.subset(n for n in self.space.names if n != name)
        out.parameter_columns = self.parameter_columns[[n != name for n in self.space.names]]
        return out

    def with_noise(self, noise: np.ndarray) -> Self:
        """The same with another σ, (components,); what is compared stays, and engines are shared.

        Starts ξ that were found before are to be rescaled by the ratio of `start_scale`.
        """
        out = copy(self)
        out.noise = noise
        out.start_scale, out.start_weight = self.estimator.start_scale(self.components, noise)
        return out

    def parameter_values(self, z: np.ndarray, e: np.ndarray) -> np.ndarray:
        """e, (..., d of the robot), with the chosen parameters at z, (..., d)."""
        out = np.broadcast_to(e, (*z.shape[:-1], len(e))).copy()
        out[..., self.parameter_columns] = self.space.from_unconstrained(z)
        return out

    @property
    def has_starts(self) -> bool:
        """Whether starts are fitted; else an observer corrects the states."""
        return bool(len(self.start_scale))

    def predict(self, e: np.ndarray, xi: np.ndarray, noise_draw: np.ndarray | None = None) -> np.ndarray:
        """Signals without noise, (k, S, ticks + 1, width), of k copies with values e, (k, d), and starts ξ, (k, S, 2 nv).

        `shake`, (S, ticks + 1, components), is noise in units of σ on top of what an observer sees.
        """
        most = max(1, MAX_WORLDS_PER_BATCH // len(self.segments))
        groups = [self._simulate_batch(e[i : i + most], xi[i : i + most], noise_draw) for i in range(0, len(e), most)]
        return np.concatenate(groups)

    def _simulate_batch(self, e: np.ndarray, xi: np.ndarray, noise_draw: np.ndarray | None) -> np.ndarray:
        k, S = len(e), len(self.segments)
        tiled = lambda a: np.tile(a, (k, *[1] * (a.ndim - 1)))  # noqa: E731
        shaken = None if noise_draw is None else tiled(noise_draw * self.noise)
        return self.simulate(np.repeat(e, S, axis=0), xi, observer_noise=shaken).reshape(k, S, -1, self.width)

    @property
    def width(self) -> int:
        """Of all signals side by side."""
        return self.segments.measured.shape[-1]

    def simulate(
        self,
        e: np.ndarray,
        xi: np.ndarray,
        forces: Callable[[Simulation, int], np.ndarray] | None = None,
        observer_noise: np.ndarray | None = None,
        distort: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> np.ndarray:
        """Signals without noise, (n, ticks + 1, width), of n = k · S worlds, all segments of a copy one after the other.

        Each has its own e, (n, d), and start ξ, (k, S, x). `forces` gives the generalised forces of a tick, (n, nv);
        `observer_noise`, (n, ticks + 1, components), is added to what an observer compares with; `distort` gives what sensors
        with errors make of signals, (n, width).
        """
        n, segments = len(e), self.segments
        k, ticks = n // len(segments), segments.ticks
        engine = self.engine(n)
        tiled = lambda a: np.tile(a, (k, *[1] * (a.ndim - 1)))  # noqa: E731
        engine.apply(e, engine.all_ids)
        qpos, qvel = self.start_states(tiled(segments.qpos), tiled(segments.qvel), xi.reshape(n, -1))
        engine.reset(engine.all_ids, qpos, qvel, tiled(segments.past_targets))
        y = np.empty((n, ticks + 1, engine.layout.signal_width))
        said = lambda: engine.noiseless_signals() if distort is None else distort(engine.noiseless_signals())  # noqa: E731
        y[:, 0] = said()
        targets, corrected = tiled(segments.target), self.estimator.corrected_ticks
        measured = tiled(segments.measured) if corrected else y  # only an observer compares while it simulates
        for t in range(ticks):
            if forces is not None:
                engine.apply_force(forces(engine, t), engine.all_ids)
            if t < corrected:
                off = self.components.difference(y[:, t], measured[:, t])
                self.estimator.correct(engine, off if observer_noise is None else off - observer_noise[:, t])
            engine.replay(targets[:, t])
            y[:, t + 1] = said()
        y[engine.diverged] = np.nan
        return y

    def correct_state(
        self, engine: Simulation, y: np.ndarray, tick: int | np.ndarray, segment_index: np.ndarray | slice = slice(None)
    ) -> None:
        """Let an observer correct an engine with signals y, (n, width), each world at a tick of a segment."""
        corrected = tick < self.estimator.corrected_ticks
        if np.any(corrected):
            off = self.components.difference(y, self.segments.measured[segment_index, tick])
            self.estimator.correct(engine, np.where(np.atleast_1d(corrected)[:, None], off, np.nan))

    def engine(self, n: int) -> Simulation:
        """One with n worlds, which is kept; nobody else may be using it."""
        if n not in self._engines:
            self._engines[n] = Simulation(self.robot, n, self.threads)
        return self._engines[n]

    def start_states(self, qpos: np.ndarray, qvel: np.ndarray, xi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """States moved by ξ: angles along the tangent, velocities by addition."""
        if not xi.shape[1]:
            return qpos, qvel
        nv = qvel.shape[1]
        step = xi * self.start_scale
        return integrate(self.robot.model, qpos, step[:, :nv]), qvel + step[:, nv:]

    def __call__(self, e: np.ndarray, xi: np.ndarray, noise_draw: np.ndarray | None = None) -> np.ndarray:
        """r, (k, S, ticks + 1, components)."""
        return self.error(self.predict(e, xi, noise_draw), self.segments.measured, self.seen)

    def error(self, y: np.ndarray, measured: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """r, (…, components), of signals, (…, width), against those measured, where they are `seen`, (…, components)."""
        r = self.components.difference(y, np.broadcast_to(measured, y.shape)) / self.noise
        r = np.where(np.isnan(r) & seen, FAILED_RESIDUAL, r)
        return np.where(seen, np.clip(r, -FAILED_RESIDUAL, FAILED_RESIDUAL), 0.0)

    def linearize(
        self,
        z: np.ndarray,
        e: np.ndarray,
        xi: np.ndarray,
        hz: np.ndarray,
        hx: np.ndarray,
        noise_draw: np.ndarray | None = None,
        central: bool = True,
    ) -> Linearization:
        """r and its derivatives at z, (d,), and ξ, (S, 2 nv), over steps of ±hz, (d,), and ±hx, (S, 2 nv).

        One way only takes half of the work, and is off by half of the curvature times the step.

        `e` gives all other parameters. Feet that touch and slip make r a function with many small edges. A derivative over a
        step as long as the numbers are uncertain sees past them, and is what the fit needs to know.
        """
        d, nx = len(z), xi.shape[1]
        dz, dx = np.diag(hz), np.eye(nx)[:, None] * hx
        ways = (1.0, -1.0) if central else (1.0,)
        zs = np.concatenate([z[None]] + [np.concatenate([z + way * dz, np.tile(z, (nx, 1))]) for way in ways])
        xis = np.concatenate([xi[None]] + [np.concatenate([np.tile(xi, (d, 1, 1)), xi + way * dx]) for way in ways])
        r = self(self.parameter_values(zs, e), xis, noise_draw=noise_draw)
        there, back = r[1 : 1 + d + nx], r[1 + d + nx :] if central else r[0]
        h = np.concatenate([np.broadcast_to(hz[:, None], (d, len(xi))), hx.T])[:, :, None, None]
        by = np.moveaxis((there - back) / (len(ways) * h), 0, -1)
        return Linearization(r[0], by[..., :d], by[..., d:], self.estimator.steps)

    def start_jacobian(self, e: np.ndarray, xi: np.ndarray, h: np.ndarray) -> np.ndarray:
        """dr/dξ alone, (S, n, 2 nv), at ξ, (S, 2 nv), over steps of ±h; of a residual in which no number varies."""
        none = np.zeros(0)
        return self.linearize(none, e, xi, none, h).dr_dxi.reshape(len(xi), -1, xi.shape[1])
