"""Which law do the motors follow? The simplest that predicts what it was not fitted to as well as any.

    measured    torques were recorded: laws are driven through the recorded motion and compared with them
    unseen      no torque was recorded: laws drive the simulated robot, whose motion is compared with the recorded one

Every rung of the ladder is fitted, then a network on top of the best; of unseen torques until nothing but noise is left. A rung
counts as better only if what it predicts better is more than chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isthmus.gap.segments import Segments
from isthmus.identify.bench import Bench, bench_features, fit_law, learn_rest, torque
from isthmus.identify.fit import Fit, by_signal, fit, free, noises, optimum
from isthmus.identify.ladder import (
    DELAY,
    FIGURE,
    GEARS,
    LADDER,
    Rung,
    extended,
    owned,
    params,
    reopened,
    settled,
    without_losses,
)
from isthmus.identify.missing import learn
from isthmus.identify.rollout import with_force
from isthmus.identify.tried import AS_BELIEVED, Tried, choose, judged, nearest, relative
from isthmus.sim.learned import Learned
from isthmus.sim.robot import Robot
from isthmus.sim.unit import Unit
from isthmus.world import Belief, Param, Space

NETWORK = "network"
SPRING, SCANNED = f"{FIGURE}spring", 16
"""Parameter of a law: how stiff a gear is; so many values are looked at before one is fitted."""
BLOCKS, HELD_OUT = 10, 5
"""Of pieces on a bench, and one in so many of them is held out."""
Report = Callable[[float], None]


@dataclass(frozen=True)
class Actuator:
    """The chosen law of some motors of a robot."""

    labels: tuple[str, ...]
    chosen: str
    tried: tuple[Tried, ...]
    motors: dict[str, tuple[float, ...]]
    """Figures that differ from the design's, one number per motor of the robot."""
    learned: Learned | None
    rate: float
    """Hz of the recording that it was fitted to."""
    unit: str
    delay: float = 0.0
    """s that commands take; part of the link, not of the motors."""


def climb_bench(robot: Robot, bench: Bench, report: Report = lambda done: None) -> Actuator:
    """Where torques were measured."""
    block = np.arange(len(bench)) * BLOCKS // len(bench)
    out = block % HELD_OUT == HELD_OUT // 2 if len(bench) >= BLOCKS else np.arange(len(bench)) % 2 == 1
    train, held = bench.take(~out), bench.take(out)
    extra: tuple[Param, ...] = ()
    tried: list[Tried] = []
    laws: dict[str, tuple[Param, ...]] = {}
    bare = replace(robot, space=Space(()), prior=Belief(Space(())), unit=Unit(without_losses(robot, bench.labels)))
    values = np.zeros(0)
    # A motor's torque does not show what the gear behind it makes of it.
    ladder = [r for r in LADDER if not set(r.fields) & set(GEARS)]
    for i, rung in enumerate(ladder):
        new = params(bare, bench.labels, rung)
        report(i / (len(ladder) + 1))
        if not new:
            continue
        extra = (*extra, *new)
        space = Space(extra)
        values = fit_law(bare, train, extra, np.concatenate([values, [p.nominal for p in new]]))
        miss = [((torque(bare, b, space, values[None])[0] - b.judged) ** 2).mean(1) for b in (train, held)]
        laws[rung.name] = extra
        tried.append(Tried.of(rung.name, dict(zip(space.names, map(float, values), strict=True)), *miss))
    base = choose(tried)
    space = Space(laws[base.name])
    at = np.array([base.values[name] for name in space.names])
    given = [torque(bare, b, space, at[None])[0] for b in (train, held)]
    learned = learn_rest(bare, train, given[0])
    miss = []
    for b, g in zip((train, held), given, strict=True):
        x = bench_features(bare, b, learned)
        added = learned.net(x.reshape(-1, x.shape[-1])).reshape(g.shape)
        miss.append(((g + added - b.judged) ** 2).mean(1))
    tried.append(Tried.of(NETWORK, base.values, *miss))
    chosen = choose([base, tried[-1]])
    motors = settled(bare, space.params, base.values)
    network = learned if chosen is tried[-1] else None
    delay = base.values.get(DELAY, 0.0)
    return Actuator(bench.labels, chosen.name, tuple(tried), motors, network, 1.0 / bench.dt, "N·m", delay)


@dataclass(frozen=True)
class Climbed:
    """What recordings without torques say of motors."""

    actuator: Actuator
    belief: Belief
    """Of the robot's own parameters, with the law in force."""
    left: dict[str, float]
    """σ by signal of what the last fit left; empty if nothing was fitted."""


def climb(
    robot: Robot,
    train: Segments,
    held: Segments,
    belief: Belief,
    noise: np.ndarray,
    labels: Sequence[str],
    threads: int = 0,
    report: Report = lambda done: None,
    before: Belief | None = None,
    ladder: Sequence[Rung] = LADDER,
) -> Climbed:
    """Where no torque was measured; also what is then believed of the robot's own parameters. `ladder` names laws to try.

    The robot's own figures of its motors are searched again with every law, whatever was believed of them: a fit without the
    right law has bent them to make up for it. All other numbers are, too, with the law that is chosen, from what was believed
    `before` these recordings, by default `belief`. What is believed in the end is from that fit, whatever the law's figures
    are; with a network, and where held-out pieces speak against that fit, from one with all of the law in force.
    """
    labels, numbers, before = tuple(labels), free(robot, belief), belief if before is None else before
    own = tuple(n for n in owned(robot) if n in numbers)
    first = reopened(before, own)
    pieces = _Pieces(train, held, noise, threads)
    tried, found = _laws(robot, pieces, reopened(belief, own), own, labels, ladder, report)
    base, last = choose(tried), None
    extra, e = found[base.name]
    if base is not tried[0] and numbers:
        others = [robot.space.index(n) for n in numbers if n not in own]
        unbent = e.copy()
        unbent[others] = before.median()[others]
        larger, wide = extended(robot, first, extra)
        whole = _together(larger, pieces, wide, (*numbers, *(p.name for p in extra)), (e, unbent))
        again = pieces.judged(base.name, {n: whole.value(n) for n in base.values}, larger, whole.e)
        if choose([again, base]) is again:
            tried = [again if t is base else t for t in tried]
            # A delay of the law is no figure of a motor: nothing keeps it, and what was found beside it does not stay.
            base, e, last = again, whole.e, None if DELAY in base.values else whole
    motors = settled(robot, extra, base.values)
    here = replace(robot, unit=replace(robot.unit, motors=motors))
    world = e[: len(robot.space)]
    chosen, network = base, None
    if not base.explains:
        learned = learn(here, train, world, noise, "motor", labels, threads=threads)
        forced = with_force(here, learned)
        tried.append(pieces.judged(NETWORK, base.values, forced, world))
        if (chosen := choose([base, tried[-1]])) is not base:
            here, network, last = forced, learned, None
    actuator = Actuator(labels, chosen.name, tuple(tried), motors, network, robot.contract.rate, "noise")
    if chosen is tried[0] or not numbers:
        return Climbed(actuator, belief, {})
    report((len(ladder) + 1) / (len(ladder) + 2))
    last = last or pieces.fit(here, first, numbers, world)
    return Climbed(actuator, belief.put(last.factor(numbers), *noises(robot, last)), by_signal(robot, last.noise))


@dataclass(frozen=True)
class _Pieces:
    """Of recordings: those that laws are fitted to, those that are held out, and the noise of their signals."""

    train: Segments
    held: Segments
    noise: np.ndarray
    threads: int

    def fit(self, robot: Robot, belief: Belief, names: tuple[str, ...], start: np.ndarray) -> Fit:
        return fit(robot, self.train, belief, self.noise, names, start, threads=self.threads)

    def optimum(self, robot: Robot, belief: Belief, names: tuple[str, ...], start: np.ndarray) -> np.ndarray:
        return optimum(robot, self.train, belief, self.noise, names, start, rounds=2, threads=self.threads).e

    def judged(self, name: str, values: dict[str, float], robot: Robot, e: np.ndarray) -> Tried:
        return judged(name, values, robot, (self.train, self.held), self.noise, e, self.threads)


Found = dict[str, tuple[tuple[Param, ...], np.ndarray]]
"""By law: its figures as parameters beside the robot's own, and the values of all, (all,)."""


def _laws(
    robot: Robot,
    pieces: _Pieces,
    belief: Belief,
    own: tuple[str, ...],
    labels: tuple[str, ...],
    ladder: Sequence[Rung],
    report: Report,
) -> tuple[list[Tried], Found]:
    """The laws of a ladder, each fitted beside the motors' `own` figures, up to one that leaves nothing but noise."""
    tried: list[Tried] = []
    found: Found = {"": ((), belief.median())}
    for i, rung in enumerate((None, *ladder)):
        report(i / (len(ladder) + 2))
        new = params(robot, labels, rung) if rung else ()
        if rung and not new:
            continue
        extra, e = [at for name, at in found.items() if not rung or name not in rung.without][-1]
        extra = (*extra, *new)
        larger, wide = extended(robot, belief, extra)
        names = (*own, *(p.name for p in extra))
        # From the law below on: the middle of what a motor could lose is far from any motor.
        e = np.concatenate([e, [p.nominal for p in new]])
        if any(p.name == SPRING for p in new):
            e = _scanned(larger, pieces, e, larger.space.index(SPRING))
        e = pieces.optimum(larger, wide, names, e) if names else e
        name = rung.name if rung else AS_BELIEVED
        found[name] = (extra, e)
        tried.append(pieces.judged(name, {n: float(e[larger.space.index(n)]) for n in names}, larger, e))
        if tried[-1].explains:
            break
    return tried, found


def _together(robot: Robot, pieces: _Pieces, belief: Belief, names: tuple[str, ...], starts: tuple[np.ndarray, ...]) -> Fit:
    """All numbers beside a law's figures: masses and the like were found without it, and bent to make up for it.

    From several starts, (all,), since what was bent may be in another valley. They are compared with one noise for
    all: what a worse fit leaves is no reason to ask less of it.
    """
    ends = [pieces.optimum(robot, belief, names, start) for start in starts]
    errors = [relative(robot, pieces.train, pieces.noise, e, pieces.threads).mean() for e in ends]
    return pieces.fit(robot, belief, names, ends[int(np.argmin(errors))])


def _scanned(robot: Robot, pieces: _Pieces, e: np.ndarray, i: int) -> np.ndarray:
    """e with that value of parameter i, of some over its range, that does best: every resonance makes a valley of its own."""
    param = robot.space.params[i]
    tries = np.repeat(e[None], SCANNED, axis=0)
    tries[:, i] = np.geomspace(param.low, param.high, SCANNED)
    return nearest(robot, pieces.train, pieces.noise, tries, e, pieces.threads)
