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

import numpy as np

from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.segments import Segments
from isthmus.real2sim.residual.estimators import Observer, needs_observer
from isthmus.real2sim.residual.normal_equations import Linearization
from isthmus.sim.engines.mujoco.tangent import dof_of, integrate
from isthmus.sim.indexing import signal_sources
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation

MAX_WORLDS_PER_BATCH = 8192
"""Copies are stepped in groups of at most so many worlds."""
FAILED_RESIDUAL = 1e3
"""Residual of a world whose physics failed, and the largest of any."""
UNMEASURED_START_STD = (0.1, 1.0)
"""How far the guess of a state that no signal measures may be off: m or rad, and m/s or rad/s."""
MEASURED_START_STD = 10.0
"""The same of a measured state, in its unit: as good as free, for a sensor's offset may be anything."""
OBSERVER_SETTLE_SECONDS = 0.6
"""s that an observer gets to find height and speed of a robot on its feet."""
REST_NOISE_RATIO = 1.5
"""Spread of a signal over that of its noise below which it does not move."""
START_SCALE_SIGMAS = 10.0
"""Unit of a move of a measured state, times its noise."""


class ParameterResidual:
    """Of all segments of all recordings of one robot, as a function of some parameters of its Space."""

    def __init__(
        self,
        robot: Robot,
        segments: Segments,
        noise: np.ndarray,
        names: Iterable[str],
        threads: int = 0,
        observer_ticks: int | None = None,
    ):
        """`noise`, (components,), is σ; `names` are the parameters that may vary.

        A robot on its feet is followed over all ticks, or the first `followed` of them.
        """
        self.robot, self.segments, self.threads = robot, segments, threads
        self.space = robot.space.subset(names)
        self.parameter_columns = np.array([robot.space.index(name) for name in self.space.names], dtype=int)
        self.components = Components(robot.contract)
        self._observer = Observer(robot) if needs_observer(robot) else None
        self._observer_ticks = segments.ticks if observer_ticks is None else observer_ticks
        self._engines: dict[int, Simulation] = {}
        self.settle_ticks = settle_ticks(robot)
        self.set_noise(np.asarray(noise, float))
        difference = self.components.difference(segments.measured, segments.measured)
        self.seen = np.isfinite(difference) & np.isfinite(self.noise)
        self.seen[:, : self.settle_ticks] = False
        if self._observer is not None:
            # Soft contacts creep, each friction at its own pace. Of a robot that stands still that is all there is to see.
            self.seen[at_rest(segments.measured, self.noise, self.components).all(1)] = False

    def with_fixed(self, name: str) -> ParameterResidual:
        """The same with one parameter less that may vary; engines are shared."""
        out = copy(self)
        out.space = self.space.subset(n for n in self.space.names if n != name)
        out.parameter_columns = self.parameter_columns[[n != name for n in self.space.names]]
        return out

    def set_noise(self, noise: np.ndarray) -> np.ndarray:
        """Take another σ, (components,); returns the spread of the starts that goes with it, (2 nv,)."""
        self.noise = noise
        self.start_scale, self.start_weight = (
            start_scales(self.robot, self.components, noise) if self._observer is None else (np.zeros(0),) * 2
        )
        return self.start_scale

    def parameter_values(self, z: np.ndarray, e: np.ndarray) -> np.ndarray:
        """e, (..., d of the robot), with the chosen parameters at z, (..., d)."""
        out = np.broadcast_to(e, (*z.shape[:-1], len(e))).copy()
        out[..., self.parameter_columns] = self.space.from_unconstrained(z)
        return out

    @property
    def uses_observer(self) -> bool:
        """Whether an observer keeps the states, and there are no starts to find."""
        return self._observer is not None

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
        # Only an observer looks at what was measured.
        measured = tiled(self.segments.measured) if self._observer else None
        shaken = None if noise_draw is None else tiled(noise_draw * self.noise)
        return self.simulate(np.repeat(e, S, axis=0), xi, measured, observer_noise=shaken).reshape(k, S, -1, self.width)

    @property
    def width(self) -> int:
        """Of all signals side by side."""
        return self.segments.measured.shape[-1]

    def simulate(
        self,
        e: np.ndarray,
        xi: np.ndarray,
        measured: np.ndarray | None = None,
        forces: Callable[[Simulation, int], np.ndarray] | None = None,
        observer_noise: np.ndarray | None = None,
        distort: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> np.ndarray:
        """Signals without noise, (n, ticks + 1, width), of n = k · S worlds, all segments of a copy one after the other.

        Each has its own e, (n, d), its start ξ, (k, S, 2 nv), and what an observer follows, (n, ticks + 1, width). `push` gives
        the generalised forces of a tick, (n, nv); `shaken`, (n, ticks + 1, components), is noise on what is followed; `sense`
        gives what wrong sensors make of signals, (n, width).
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
        targets = tiled(segments.target)
        for t in range(ticks):
            if forces is not None:
                engine.apply_force(forces(engine, t), engine.all_ids)
            if self._observer is not None and measured is not None and t < self._observer_ticks:
                off = self.components.difference(y[:, t], measured[:, t])
                self._observer.correct(engine, off if observer_noise is None else off - observer_noise[:, t])
            engine.replay(targets[:, t])
            y[:, t + 1] = said()
        y[engine.diverged] = np.nan
        return y

    def correct_state(
        self, engine: Simulation, y: np.ndarray, tick: int | np.ndarray, segment_index: np.ndarray | slice = slice(None)
    ) -> None:
        """Let the observer, if there is one, correct an engine that says y, (n, width), each world at a tick of a segment."""
        if self._observer is not None and np.any(tick < self._observer_ticks):
            off = self.components.difference(y, self.segments.measured[segment_index, tick])
            self._observer.correct(engine, np.where(np.atleast_1d(tick < self._observer_ticks)[:, None], off, np.nan))

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
        return Linearization(r[0], by[..., :d], by[..., d:], self.uses_observer)

    def start_jacobian(self, e: np.ndarray, xi: np.ndarray, h: np.ndarray) -> np.ndarray:
        """dr/dξ alone, (S, n, 2 nv), at ξ, (S, 2 nv), over steps of ±h; of a residual in which no number varies."""
        none = np.zeros(0)
        return self.linearize(none, e, xi, none, h).dr_dxi.reshape(len(xi), -1, xi.shape[1])


def at_rest(measured: np.ndarray, noise: np.ndarray, components: Components) -> np.ndarray:
    """(S, components) whether a signal, (S, ticks, width), spreads hardly more than its noise, or is not there."""
    out = np.empty((len(measured), len(components)), bool)
    for mine, columns in components.columns():
        there = np.isfinite(measured[..., columns])
        values = np.where(there, measured[..., columns], 0.0)
        count = np.maximum(there.sum(1, keepdims=True), 1)
        about = np.where(there, values - values.sum(1, keepdims=True) / count, 0.0)
        spread = np.sqrt((about**2).sum(1) / count[:, 0]).max(-1)
        out[:, mine] = ~(spread > REST_NOISE_RATIO * noise[mine[0]])[:, None]
    return out


def start_scales(robot: Robot, components: Components, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each coordinate of a start, (2 nv,): the unit of a move, and the weight of its square, in the same units."""
    model = robot.model
    off = np.repeat(UNMEASURED_START_STD, model.nv)
    unit = off.copy()
    sigma = {(c.signal, c.label): s for c, s in zip(components.entries, noise, strict=True)}
    for signal, (array, columns) in zip(robot.contract.signals, signal_sources(robot, model), strict=True):
        for label, column in zip(signal.labels, columns, strict=True):
            dof = dof_of(model, column) if array == "qpos" else column
            known = sigma.get((signal.name, label), np.nan)
            if array in ("qpos", "qvel") and dof >= 0 and np.isfinite(known):
                where = dof if array == "qpos" else model.nv + dof
                unit[where], off[where] = min(unit[where], START_SCALE_SIGMAS * known), MEASURED_START_STD
    return unit, (unit / off) ** 2


def settle_ticks(robot: Robot) -> int:
    """Ticks at the start of a segment that are not compared.

    Signals that arrive late are from before it, and an observer first has to find the state of a robot on its feet.
    """
    waits = (robot.max_delay("sensor_delay"), OBSERVER_SETTLE_SECONDS if needs_observer(robot) else 0.0)
    return sum(int(np.ceil(wait * robot.contract.rate - 1e-9)) for wait in waits)
