"""What single recordings say about small changes of a unit's numbers, without a fit.

    s = -d cost / dz, F = information about z       at the numbers of the twin, each segment from the start that suits it best
    s ≈ F δ + noise of covariance F                 if the numbers are off by δ

One linearisation per recording. Where it is taken, z, may be moved to a change that has been found: then s says what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isthmus.data.episode import Episode
from isthmus.errors import BadInput
from isthmus.gap.horizon import horizon
from isthmus.gap.loss import loss, weights
from isthmus.gap.noise import LEAST, floor
from isthmus.gap.residual import Components, Linear, Residual, skipped
from isthmus.gap.segments import Segments, cut
from isthmus.gap.tracks import own_rate, tracks
from isthmus.identify.descend import Normal, descend, information
from isthmus.identify.fit import KEPT, free, noise_params
from isthmus.identify.prior import Prior, prior
from isthmus.sim.robot import Robot
from isthmus.world import Belief
from isthmus.world.factors import Fixed

TOGETHER = 16
"""Recordings that are simulated side by side."""
SAMPLE = 8
"""Recordings by which it is judged what recordings tell."""
PIECES = 3
"""Segments of the shortest recording, at least."""
STEP = 0.03
"""Of the derivative by a number, in unconstrained coordinates, for the first recordings; then as far as it takes to show."""


@dataclass(frozen=True)
class Unit:
    """A unit as its twin has it, and how its recordings are looked at."""

    robot: Robot
    """At the rate of the recordings."""
    e: np.ndarray
    """(all,) values of the robot's Space."""
    now: Prior
    """What the twin believes of the numbers that are watched."""
    wide: Prior
    """What is believed of any unit of this robot."""
    noise: np.ndarray
    """(components,) σ"""
    segments: tuple[Segments, ...]
    """By recording."""
    ahead: float
    """s that are predicted."""
    threads: int = 0


@dataclass(frozen=True)
class Score:
    """Of n recordings."""

    z: np.ndarray
    """(n, d) where they were taken."""
    s: np.ndarray
    """(n, d)"""
    F: np.ndarray
    """(n, d, d)"""
    cost: np.ndarray
    """(n,) -log likelihood there, up to a constant of the recording."""
    left: np.ndarray
    """(n,) logarithm of the squared error per comparison that no number explains, in units of the noise."""
    freedom: np.ndarray
    """(n,) comparisons that it is an average of."""

    def put(self, which: np.ndarray, other: Score) -> Score:
        """With the recordings `which` taken from another score."""
        fields = {name: getattr(self, name).copy() for name in Score.__dataclass_fields__}
        for name, values in fields.items():
            values[which] = getattr(other, name)
        return Score(**fields)


def look(
    robot: Robot,
    episodes: Sequence[Episode],
    belief: Belief,
    usual: Belief,
    names: Sequence[str] = (),
    ahead: float = 0.0,
    threads: int = 0,
    files: Sequence[str] = (),
    left: Mapping[str, float] | None = None,
) -> Unit:
    """Cut recordings into segments of one length; `usual` is what is believed of any unit, `ahead` of 0 chooses the horizon.

    Noise is what the fit of the twin has `left` of each signal, which is more than that of its sensors where the model lacks
    something; where that is not known it is the twin's, or that of the signals by themselves in the first recordings.
    """
    names = tuple(names) or free(robot, belief)
    robot = robot.at_rate(own_rate(episodes, robot.contract))
    found = [tracks([episode], robot.contract, 1.0 / robot.contract.rate) for episode in episodes]
    components = Components(robot.contract)
    noise = _noise(robot, belief, left or {}, floor([t for ts in found[:TOGETHER] for t in ts], components))
    if not np.isfinite(noise).any():
        raise BadInput("the recordings hold no signal of the robot that could be compared.")
    e, skip, rate = belief.median(), skipped(robot), robot.contract.rate
    if ahead:
        ticks = skip + max(1, round(ahead * rate))
    else:
        shortest = min(max(map(len, ts), default=0) for ts in found)
        ticks = horizon([t for ts in found[:SAMPLE] for t in ts], robot, noise, e, threads)
        ticks = max(min(ticks, skip + (shortest - skip) // PIECES), skip + 2)
    pieces = []
    for i, track in enumerate(found):
        try:
            pieces.append(cut(track, robot, ticks, ticks - skip))
        except BadInput:
            where = files[i] if i < len(files) else f"recording {i + 1}"
            longest = max(map(len, track), default=0) / rate
            text = f"no stretch of it has {ticks / rate:.2g} s without a hole; the longest has {longest:.2g} s"
            raise BadInput(f"{where} is too short: {text}.") from None
    space = robot.space.subset(names)
    now, wide = prior(belief, space), prior(usual, space)
    return Unit(robot, e, now, wide, noise, tuple(pieces), (ticks - skip) / rate, threads)


def _noise(robot: Robot, belief: Belief, left: Mapping[str, float], by_itself: np.ndarray) -> np.ndarray:
    """σ of each component, (components,)."""
    known: dict[str, float] = {}
    for name, signal in noise_params(robot.space).items():
        factor = next((f for f in belief.factors if name in f.names), None)
        if isinstance(factor, Fixed) and factor.value > 0:
            known[signal] = factor.value
    known |= left
    of_twin = np.array([max(known[c.signal], LEAST) if c.signal in known else np.nan for c in Components(robot.contract).all])
    return np.where(np.isfinite(by_itself) & np.isfinite(of_twin), of_twin, by_itself)


def alone(unit: Unit, name: str, z: np.ndarray) -> Unit:
    """The unit at z, (d,), with one number to watch: cheaper to score."""
    space = unit.now.space
    j, one = space.index(name), space.subset([name])
    e = unit.e.copy()
    e[[unit.robot.space.index(n) for n in space.names]] = space.from_unconstrained(z)
    now, wide = (Prior(one, z[[j]], np.array([[1.0 / p.spread[j] ** 2]])) for p in (unit.now, unit.wide))
    return replace(unit, e=e, now=now, wide=wide)


def score(
    unit: Unit,
    which: Sequence[int] | None = None,
    z: np.ndarray | None = None,
    report: Callable[[float], None] = lambda share: None,
) -> Score:
    """Of the recordings `which`, by default all, at z, (d,), by default the twin's own."""
    every = list(range(len(unit.segments))) if which is None else list(which)
    z = unit.now.mean if z is None else z
    parts, step = [], np.full(len(z), STEP)
    for first in range(0, len(every), TOGETHER):
        part, step = _together(unit, every[first : first + TOGETHER], z, step)
        parts.append(part)
        report(min(first + TOGETHER, len(every)) / len(every))
    return Score(*(np.concatenate([getattr(p, f) for p in parts]) for f in Score.__dataclass_fields__))


def told(unit: Unit) -> np.ndarray:
    """Information of one recording about z, (d, d), with what the noise of the starts pretends to say taken out.

    An average over a few recordings from all along.
    """
    which = np.unique(np.linspace(0, len(unit.segments) - 1, SAMPLE).astype(int))
    here, z = _Together(unit, which.tolist(), unit.now.mean), unit.now.mean
    whole = Normal(here.linear(np.full(len(z), STEP)), here.residual.hold)
    return information(here.residual, unit.wide, replace(here.at, z=z), whole, here.e, draws=2) / len(which)


class _Together:
    """A few recordings side by side, at z: each segment from the start that suits it best."""

    def __init__(self, unit: Unit, which: Sequence[int], z: np.ndarray):
        parts = [unit.segments[i] for i in which]
        self.z, self.of = z, np.repeat(np.arange(len(which)), [len(s) for s in parts])
        joined = Segments(*(np.concatenate([getattr(s, f) for s in parts]) for f in Segments.__dataclass_fields__))
        still = Residual(unit.robot, joined, unit.noise, (), unit.threads)
        nothing = prior(Belief(unit.robot.space), still.space)
        self.residual = Residual(unit.robot, joined, unit.noise, unit.now.space.names, unit.threads)
        self.e = self.residual.world(z, unit.e)
        self.at, found = descend(still, nothing, np.zeros(0), self.e)
        self.moves = found.scales(nothing)[1]

    def linear(self, step: np.ndarray) -> Linear:
        return self.residual.linear(self.z, self.e, self.at.xi, step, self.moves)


def _together(unit: Unit, which: Sequence[int], z: np.ndarray, step: np.ndarray) -> tuple[Score, np.ndarray]:
    """Scores of a few recordings, and the steps for the derivatives of the next."""
    here = _Together(unit, which, z)
    linear, residual, xi = here.linear(step), here.residual, here.at.xi
    rows = []
    for i in range(len(which)):
        mine = here.of == i
        one = Normal(linear.of(mine), residual.hold)
        s = -one.slope(xi[mine])
        soft = np.linalg.inv(one.matrix + unit.wide.precision)
        energy = float((weights(one.r) * one.r**2).sum()) / KEPT - float(s @ soft @ s)
        freedom = max(float(residual.seen[mine].sum() - xi[mine].size - np.trace(one.matrix @ soft)), 1.0)
        cost = float(loss(one.r).sum() + 0.5 * (residual.hold * xi[mine] ** 2).sum())
        rows.append((z, s, one.matrix, cost, np.log(max(energy / freedom, 1e-12)), freedom))
    # As far as it takes to show in one recording.
    alone = np.mean([np.diag(row[2]) for row in rows], axis=0) + np.diag(unit.wide.precision)
    return Score(*(np.array(column) for column in zip(*rows, strict=True))), np.clip(1.0 / np.sqrt(alone), 1e-3, 0.3)
