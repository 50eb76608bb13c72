"""What ground does a robot walk on? That of its model, unless one that gives way predicts better what it was not fitted to.

A fit without the right ground has bent the numbers to make up for it: friction, masses and gains. So what was fitted before is
fitted again together with the ground, from what was believed before the recordings.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from isthmus.gap.segments import Segments
from isthmus.identify.fit import Optimum, by_signal, free, noises, optimum
from isthmus.identify.ladder import extended
from isthmus.identify.tried import AS_BELIEVED, Tried, choose, judged, nearest
from isthmus.sim.bind import writes_of
from isthmus.sim.ground import UNITS, Ground, hardest, sinking
from isthmus.sim.robot import Robot
from isthmus.world import Belief, Param

SOFT = "soft ground"
"""Name of the law."""
SINK, RATIO = 0.03, 0.05
"""m that feet sink in while a robot stands, at most, and the damping ratio, at least."""
LOOKED = 8, 4
"""Values of stiffness and of damping that are looked at before they are fitted."""


@dataclass(frozen=True)
class Trodden:
    """The ground that was chosen, and what is believed of the robot's own numbers on it."""

    ground: Ground | None
    """None is the model's own."""
    tried: tuple[Tried, Tried]
    """That of the model and soft ground, each with numbers of its own."""
    belief: Belief
    left: dict[str, float]
    """σ by signal of what the fit with soft ground left."""
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """90 %, of the figures of soft ground, if it was chosen."""
    at_bounds: tuple[str, ...] = ()
    """Figures of it that the search let go no further, if it was chosen."""


def tread(
    robot: Robot,
    train: Segments,
    held: Segments,
    belief: Belief,
    noise: np.ndarray,
    before: Belief | None = None,
    threads: int = 0,
    report: Callable[[int, float], None] = lambda step, cost: None,
) -> Trodden:
    """Try soft ground for a robot on feet, of which `belief` is believed and `before` was before these recordings."""
    before = belief if before is None else before
    soft = replace(robot, unit=replace(robot.unit, ground=sinking(robot, SINK)))
    names, extra = _again(soft, belief, before), params(soft)
    larger, wide = extended(soft, before, extra)

    def tried(law: str, on: Robot, prior: Belief, names: tuple[str, ...], start: np.ndarray) -> tuple[Tried, Optimum]:
        found = optimum(on, train, prior, noise, names, start, 2, threads, report)
        values = {name: float(found.e[on.space.index(name)]) for name in names}
        return judged(law, values, on, (train, held), noise, found.e, threads), found

    # Both from what was believed before, on the same recordings: else the one that was fitted last would seem to be better.
    worlds = np.array([belief.median(), before.median()])
    start = nearest(robot, train, noise, worlds, worlds[0], threads)
    known = tried(AS_BELIEVED, robot, before, _again(robot, belief, before), start)[0]
    values = [np.geomspace(p.low, p.high, n) for p, n in zip(extra, LOOKED, strict=True)]
    tries = np.array([[*e, *ground] for e in worlds for ground in itertools.product(*values)])
    start = nearest(larger, train, noise, tries, tries[0], threads)
    better, ended = tried(SOFT, larger, wide, (*names, *(p.name for p in extra)), start)
    left = by_signal(robot, ended.noise)
    if choose([known, better]) is known:
        return Trodden(None, (known, better), belief, left)
    found = ended.fit()
    intervals = {name: found.interval(f"ground_{name}") for name in UNITS}
    bounds = tuple(name for name in UNITS if f"ground_{name}" in found.at_bounds())
    ground = Ground(*(better.values[p.name] for p in extra))
    again = [found.factor(names)] if names else []
    return Trodden(ground, (known, better), belief.put(*noises(robot, found), *again), left, intervals, bounds)


def params(robot: Robot) -> tuple[Param, ...]:
    """The figures of soft ground, as numbers to fit: from where a robot sinks in deep to what physics steps can follow.

    Those of the recording's rate and those of the design: a twin is for both.
    """
    design = replace(robot, timestep=0.0)
    low, high = sinking(robot, SINK, RATIO).to_dict(), min(map(hardest, (robot, design)), key=lambda g: g.stiffness).to_dict()
    return tuple(
        Param(
            f"ground_{name}", unit, float(np.sqrt(low[name] * high[name])), low[name], high[name], (f"ground:.*/{name}",), "log"
        )
        for name, unit in UNITS.items()
    )


def _again(robot: Robot, belief: Belief, before: Belief) -> tuple[str, ...]:
    """Numbers that the recordings were fitted by, and still do something; all that are open if none were."""
    acts = {robot.space.names[w.param] for w in writes_of(robot)}
    names = tuple(n for n in free(robot, before) if n in acts)
    fitted = tuple(n for n in names if belief.interval(n) != before.interval(n))
    return fitted or names
