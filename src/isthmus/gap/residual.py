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
from dataclasses import dataclass, replace

import numpy as np

from isthmus.data.contract import Contract
from isthmus.gap.observer import Observer, follows
from isthmus.gap.segments import Segments
from isthmus.gap.tangent import dof_of, integrate
from isthmus.sim.engine import Engine
from isthmus.sim.robot import Robot
from isthmus.sim.sources import column_sources

MOST_WORLDS = 8192
"""Copies are stepped in groups of at most so many worlds."""
BLOWN = 1e3
"""Residual of a world whose physics failed, and the largest of any."""
UNKNOWN = (0.1, 1.0)
"""How far the guess of a state that no signal measures may be off: m or rad, and m/s or rad/s."""
ANYWHERE = 10.0
"""The same of a measured state, in its unit: as good as free, for a sensor's offset may be anything."""
SETTLE = 0.6
"""s that an observer gets to find height and speed of a robot on its feet."""
QUIET = 1.5
"""Spread of a signal over that of its noise below which it does not move."""
SCALE = 10.0
"""Unit of a move of a measured state, times its noise."""


@dataclass(frozen=True)
class Component:
    """One number per tick that is compared."""

    signal: str
    label: str
    unit: str


class Components:
    """What is compared: each component of each signal; of an attitude, the three numbers of the rotation between the two."""

    def __init__(self, contract: Contract):
        self.contract = contract
        self.all: list[Component] = []
        self._plain: list[tuple[int, int]] = []
        self._attitudes: list[tuple[int, int]] = []
        for signal, where in zip(contract.signals, contract.slices().values(), strict=True):
            if signal.name == "quat" and signal.labels == ("w", "x", "y", "z"):
                self._attitudes.append((len(self.all), where.start))
                self.all += [Component(signal.name, axis, signal.unit) for axis in "xyz"]
                continue
            for i, (label, unit) in enumerate(zip(signal.labels, signal.units, strict=True)):
                self._plain.append((len(self.all), where.start + i))
                self.all.append(Component(signal.name, label, unit))

    def __len__(self) -> int:
        return len(self.all)

    def difference(self, y: np.ndarray, measured: np.ndarray) -> np.ndarray:
        """(..., width) and (..., width) -> (..., components); an attitude's in units of a quaternion's component."""
        out = np.empty((*y.shape[:-1], len(self)))
        if self._plain:
            mine, columns = map(list, zip(*self._plain, strict=True))
            out[..., mine] = y[..., columns] - measured[..., columns]
        for mine, at in self._attitudes:
            out[..., mine : mine + 3] = _turn(measured[..., at : at + 4], y[..., at : at + 4])
        return out

    def noisy(self, y: np.ndarray, sigma: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Signals, (..., width), with noise of σ, (components,), as a robot would send them."""
        out = y.copy()
        draws = rng.standard_normal((*y.shape[:-1], len(self))) * np.nan_to_num(sigma)
        for mine, column in self._plain:
            out[..., column] += draws[..., mine]
        for mine, at in self._attitudes:
            out[..., at + 1 : at + 4] += draws[..., mine : mine + 3]
            out[..., at : at + 4] /= np.linalg.norm(out[..., at : at + 4], axis=-1, keepdims=True)
        return out

    def columns(self) -> list[tuple[list[int], list[int]]]:
        """Numbers of components, and the columns of the signals that they are made of."""
        attitudes = [([*range(mine, mine + 3)], [*range(at, at + 4)]) for mine, at in self._attitudes]
        return [([mine], [column]) for mine, column in self._plain] + attitudes

    def unrolled(self, measured: np.ndarray) -> np.ndarray:
        """Signals over time, (T, width), as components that can be smoothed and subtracted, (T, components)."""
        out = np.empty((len(measured), len(self)))
        for mine, column in self._plain:
            out[:, mine] = measured[:, column]
        for mine, at in self._attitudes:
            quat = measured[:, at : at + 4]
            # The two signs of a quaternion are one attitude: keep to the side of the tick before.
            flips = np.cumprod(np.where((quat[1:] * quat[:-1]).sum(1) < 0, -1.0, 1.0))
            out[:, mine : mine + 3] = quat[:, 1:] * np.concatenate([[1.0], flips])[:, None]
        return out


def _turn(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Vector part of a⁻¹ b, the sign of the shorter way."""
    aw, av, bw, bv = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    scalar = aw * bw + (av * bv).sum(-1, keepdims=True)
    vector = aw * bv - bw * av - np.cross(av, bv)
    return vector * np.where(scalar < 0, -1.0, 1.0)


@dataclass(frozen=True)
class Linear:
    """r and its derivatives at one point: r(z + δ, ξ + η) ≈ r + Jz δ + Jx η."""

    r: np.ndarray
    """(S, ticks, components); 0 where nothing was measured."""
    dz: np.ndarray
    """(S, ticks, components, d) by the unconstrained coordinates of the chosen parameters."""
    dx: np.ndarray
    """(S, ticks, components, 2 nv) by the start of the segment, in units of its spread."""
    followed: bool = False
    """Whether an observer keeps the states, and there are no starts to find."""

    def of(self, which: np.ndarray | slice) -> Linear:
        """Of some segments."""
        return replace(self, r=self.r[which], dz=self.dz[which], dx=self.dx[which])


class Residual:
    """Of all segments of all recordings of one robot, as a function of some parameters of its Space."""

    def __init__(
        self,
        robot: Robot,
        segments: Segments,
        noise: np.ndarray,
        names: Iterable[str],
        threads: int = 0,
        followed: int | None = None,
    ):
        """`noise`, (components,), is σ; `names` are the parameters that may vary.

        A robot on its feet is followed over all ticks, or the first `followed` of them.
        """
        self.robot, self.segments, self.threads = robot, segments, threads
        self.space = robot.space.subset(names)
        self.columns = np.array([robot.space.index(name) for name in self.space.names], dtype=int)
        self.components = Components(robot.contract)
        self._observer = Observer(robot) if follows(robot) else None
        self._ticks_followed = segments.ticks if followed is None else followed
        self._engines: dict[int, Engine] = {}
        self.skip = skipped(robot)
        self.rescale(np.asarray(noise, float))
        difference = self.components.difference(segments.measured, segments.measured)
        self.seen = np.isfinite(difference) & np.isfinite(self.noise)
        self.seen[:, : self.skip] = False
        if self._observer is not None:
            # Soft contacts creep, each friction at its own pace. Of a robot that stands still that is all there is to see.
            self.seen[calm(segments.measured, self.noise, self.components).all(1)] = False

    def holding(self, name: str) -> Residual:
        """The same with one parameter less that may vary; engines are shared."""
        out = copy(self)
        out.space = self.space.subset(n for n in self.space.names if n != name)
        out.columns = self.columns[[n != name for n in self.space.names]]
        return out

    def rescale(self, noise: np.ndarray) -> np.ndarray:
        """Take another σ, (components,); returns the spread of the starts that goes with it, (2 nv,)."""
        self.noise = noise
        self.spread, self.hold = spread(self.robot, self.components, noise) if self._observer is None else (np.zeros(0),) * 2
        return self.spread

    def world(self, z: np.ndarray, e: np.ndarray) -> np.ndarray:
        """e, (..., d of the robot), with the chosen parameters at z, (..., d)."""
        out = np.broadcast_to(e, (*z.shape[:-1], len(e))).copy()
        out[..., self.columns] = self.space.from_unconstrained(z)
        return out

    @property
    def followed(self) -> bool:
        """Whether an observer keeps the states, and there are no starts to find."""
        return self._observer is not None

    def predict(self, e: np.ndarray, xi: np.ndarray, shake: np.ndarray | None = None) -> np.ndarray:
        """Signals without noise, (k, S, ticks + 1, width), of k copies with values e, (k, d), and starts ξ, (k, S, 2 nv).

        `shake`, (S, ticks + 1, components), is noise in units of σ on top of what an observer sees.
        """
        most = max(1, MOST_WORLDS // len(self.segments))
        groups = [self._replay(e[i : i + most], xi[i : i + most], shake) for i in range(0, len(e), most)]
        return np.concatenate(groups)

    def _replay(self, e: np.ndarray, xi: np.ndarray, shake: np.ndarray | None) -> np.ndarray:
        k, S = len(e), len(self.segments)
        tiled = lambda a: np.tile(a, (k, *[1] * (a.ndim - 1)))  # noqa: E731
        # Only an observer looks at what was measured.
        measured = tiled(self.segments.measured) if self._observer else None
        shaken = None if shake is None else tiled(shake * self.noise)
        return self.live(np.repeat(e, S, axis=0), xi, measured, shaken=shaken).reshape(k, S, -1, self.width)

    @property
    def width(self) -> int:
        """Of all signals side by side."""
        return self.segments.measured.shape[-1]

    def live(
        self,
        e: np.ndarray,
        xi: np.ndarray,
        measured: np.ndarray | None = None,
        push: Callable[[Engine, int], np.ndarray] | None = None,
        shaken: np.ndarray | None = None,
        sense: Callable[[np.ndarray], np.ndarray] | None = None,
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
        engine.apply(e, engine.all)
        qpos, qvel = self.moved(tiled(segments.qpos), tiled(segments.qvel), xi.reshape(n, -1))
        engine.reset(engine.all, qpos, qvel, tiled(segments.sent))
        y = np.empty((n, ticks + 1, engine.wiring.width))
        said = lambda: engine.noiseless() if sense is None else sense(engine.noiseless())  # noqa: E731
        y[:, 0] = said()
        targets = tiled(segments.target)
        for t in range(ticks):
            if push is not None:
                engine.push(push(engine, t), engine.all)
            if self._observer is not None and measured is not None and t < self._ticks_followed:
                off = self.components.difference(y[:, t], measured[:, t])
                self._observer.pull(engine, off if shaken is None else off - shaken[:, t])
            engine.replay(targets[:, t])
            y[:, t + 1] = said()
        y[engine.blown] = np.nan
        return y

    def follow(self, engine: Engine, y: np.ndarray, tick: int | np.ndarray, which: np.ndarray | slice = slice(None)) -> None:
        """Let the observer, if there is one, correct an engine that says y, (n, width), each world at a tick of a segment."""
        if self._observer is not None and np.any(tick < self._ticks_followed):
            off = self.components.difference(y, self.segments.measured[which, tick])
            self._observer.pull(engine, np.where(np.atleast_1d(tick < self._ticks_followed)[:, None], off, np.nan))

    def engine(self, n: int) -> Engine:
        """One with n worlds, which is kept; nobody else may be using it."""
        if n not in self._engines:
            self._engines[n] = Engine(self.robot, n, self.threads)
        return self._engines[n]

    def moved(self, qpos: np.ndarray, qvel: np.ndarray, xi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """States moved by ξ: angles along the tangent, velocities by addition."""
        if not xi.shape[1]:
            return qpos, qvel
        nv = qvel.shape[1]
        step = xi * self.spread
        return integrate(self.robot.model, qpos, step[:, :nv]), qvel + step[:, nv:]

    def __call__(self, e: np.ndarray, xi: np.ndarray, shake: np.ndarray | None = None) -> np.ndarray:
        """r, (k, S, ticks + 1, components)."""
        return self.off(self.predict(e, xi, shake), self.segments.measured, self.seen)

    def off(self, y: np.ndarray, measured: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """r, (…, components), of signals, (…, width), against those measured, where they are `seen`, (…, components)."""
        r = self.components.difference(y, np.broadcast_to(measured, y.shape)) / self.noise
        r = np.where(np.isnan(r) & seen, BLOWN, r)
        return np.where(seen, np.clip(r, -BLOWN, BLOWN), 0.0)

    def linear(
        self,
        z: np.ndarray,
        e: np.ndarray,
        xi: np.ndarray,
        hz: np.ndarray,
        hx: np.ndarray,
        shake: np.ndarray | None = None,
        both_ways: bool = True,
    ) -> Linear:
        """r and its derivatives at z, (d,), and ξ, (S, 2 nv), over steps of ±hz, (d,), and ±hx, (S, 2 nv).

        One way only takes half of the work, and is off by half of the curvature times the step.

        `e` gives all other parameters. Feet that touch and slip make r a function with many small edges. A derivative over a
        step as long as the numbers are uncertain sees past them, and is what the fit needs to know.
        """
        d, nx = len(z), xi.shape[1]
        dz, dx = np.diag(hz), np.eye(nx)[:, None] * hx
        ways = (1.0, -1.0) if both_ways else (1.0,)
        zs = np.concatenate([z[None]] + [np.concatenate([z + way * dz, np.tile(z, (nx, 1))]) for way in ways])
        xis = np.concatenate([xi[None]] + [np.concatenate([np.tile(xi, (d, 1, 1)), xi + way * dx]) for way in ways])
        r = self(self.world(zs, e), xis, shake=shake)
        there, back = r[1 : 1 + d + nx], r[1 + d + nx :] if both_ways else r[0]
        h = np.concatenate([np.broadcast_to(hz[:, None], (d, len(xi))), hx.T])[:, :, None, None]
        by = np.moveaxis((there - back) / (len(ways) * h), 0, -1)
        return Linear(r[0], by[..., :d], by[..., d:], self.followed)

    def by_starts(self, e: np.ndarray, xi: np.ndarray, h: np.ndarray) -> np.ndarray:
        """dr/dξ alone, (S, n, 2 nv), at ξ, (S, 2 nv), over steps of ±h; of a residual in which no number varies."""
        none = np.zeros(0)
        return self.linear(none, e, xi, none, h).dx.reshape(len(xi), -1, xi.shape[1])


def calm(measured: np.ndarray, noise: np.ndarray, components: Components) -> np.ndarray:
    """(S, components) whether a signal, (S, ticks, width), spreads hardly more than its noise, or is not there."""
    out = np.empty((len(measured), len(components)), bool)
    for mine, columns in components.columns():
        there = np.isfinite(measured[..., columns])
        values = np.where(there, measured[..., columns], 0.0)
        count = np.maximum(there.sum(1, keepdims=True), 1)
        about = np.where(there, values - values.sum(1, keepdims=True) / count, 0.0)
        spread = np.sqrt((about**2).sum(1) / count[:, 0]).max(-1)
        out[:, mine] = ~(spread > QUIET * noise[mine[0]])[:, None]
    return out


def spread(robot: Robot, components: Components, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each coordinate of a start, (2 nv,): the unit of a move, and the weight of its square, in the same units."""
    model = robot.model
    off = np.repeat(UNKNOWN, model.nv)
    unit = off.copy()
    sigma = {(c.signal, c.label): s for c, s in zip(components.all, noise, strict=True)}
    for signal, (array, columns) in zip(robot.contract.signals, column_sources(robot, model), strict=True):
        for label, column in zip(signal.labels, columns, strict=True):
            dof = dof_of(model, column) if array == "qpos" else column
            known = sigma.get((signal.name, label), np.nan)
            if array in ("qpos", "qvel") and dof >= 0 and np.isfinite(known):
                where = dof if array == "qpos" else model.nv + dof
                unit[where], off[where] = min(unit[where], SCALE * known), ANYWHERE
    return unit, (unit / off) ** 2


def skipped(robot: Robot) -> int:
    """Ticks at the start of a segment that are not compared.

    Signals that arrive late are from before it, and an observer first has to find the state of a robot on its feet.
    """
    waits = (robot.longest("sensor_delay"), SETTLE if follows(robot) else 0.0)
    return sum(int(np.ceil(wait * robot.contract.rate - 1e-9)) for wait in waits)
