"""What ground does a robot walk on? That of its model, unless one that gives way predicts better what it was not fitted to.

A fit without the right ground has bent the numbers to make up for it: friction, masses and gains. So what was fitted before is
fitted again together with the ground, from what was believed before the recordings.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from isthmus.real2sim.identify.fit import Minimum, find_minimum, noise_by_signal, sensor_noise_factors
from isthmus.real2sim.identify.model_selection import AS_BELIEVED, Candidate, best_world, choose, evaluate
from isthmus.real2sim.prepare.segments import Segments
from isthmus.real2sim.residual.prior import extend_space, free_parameters
from isthmus.sim.parameter_binding import resolve_targets
from isthmus.sim.physics.ground import GROUND_UNITS, CompliantGround, ground_from_sink_depth, hardest_stable_ground
from isthmus.sim.robot import Robot
from isthmus.world import Belief, Param

SOFT_GROUND = "soft ground"
"""Name of the law."""
MAX_SINK_DEPTH, MIN_DAMPING_RATIO = 0.03, 0.05
"""m that feet sink in while a robot stands, at most, and the damping ratio, at least."""
SCAN_COUNTS = 8, 4
"""Values of stiffness and of damping that are looked at before they are fitted."""


@dataclass(frozen=True)
class GroundFit:
    """The ground that was chosen, and what is believed of the robot's own numbers on it."""

    ground: CompliantGround | None
    """None is the model's own."""
    candidates: tuple[Candidate, Candidate]
    """That of the model and soft ground, each with numbers of its own."""
    belief: Belief
    unexplained_noise: dict[str, float]
    """σ by signal of what the fit with soft ground left."""
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """90 %, of the figures of soft ground, if it was chosen."""
    at_bounds: tuple[str, ...] = ()
    """Figures of it that the search let go no further, if it was chosen."""


def fit_ground(
    robot: Robot,
    train: Segments,
    held_out: Segments,
    belief: Belief,
    noise: np.ndarray,
    prior_belief: Belief | None = None,
    threads: int = 0,
    report: Callable[[int, float], None] = lambda step, cost: None,
) -> GroundFit:
    """Try soft ground for a robot on feet, of which `belief` is believed and `before` was before these recordings."""
    prior_belief = belief if prior_belief is None else prior_belief
    soft = replace(robot, unit=replace(robot.unit, ground=ground_from_sink_depth(robot, MAX_SINK_DEPTH)))
    names, extra = _refitted_parameters(soft, belief, prior_belief), ground_parameters(soft)
    larger, wide = extend_space(soft, prior_belief, extra)

    def tried(law: str, on: Robot, prior: Belief, names: tuple[str, ...], start: np.ndarray) -> tuple[Candidate, Minimum]:
        found = find_minimum(on, train, prior, noise, names, start, 2, threads, report)
        values = {name: float(found.e[on.space.index(name)]) for name in names}
        return evaluate(law, values, on, (train, held_out), noise, found.e, threads), found

    # Both from what was believed before, on the same recordings: else the one that was fitted last would seem to be better.
    worlds = np.array([belief.median(), prior_belief.median()])
    start = best_world(robot, train, noise, worlds, worlds[0], threads)
    known = tried(AS_BELIEVED, robot, prior_belief, _refitted_parameters(robot, belief, prior_belief), start)[0]
    values = [np.geomspace(p.low, p.high, n) for p, n in zip(extra, SCAN_COUNTS, strict=True)]
    tries = np.array([[*e, *ground] for e in worlds for ground in itertools.product(*values)])
    start = best_world(larger, train, noise, tries, tries[0], threads)
    better, ended = tried(SOFT_GROUND, larger, wide, (*names, *(p.name for p in extra)), start)
    left = noise_by_signal(robot, ended.noise)
    if choose([known, better]) is known:
        return GroundFit(None, (known, better), belief, left)
    found = ended.with_covariance()
    intervals = {name: found.interval(f"ground_{name}") for name in GROUND_UNITS}
    bounds = tuple(name for name in GROUND_UNITS if f"ground_{name}" in found.at_bounds())
    ground = CompliantGround(*(better.values[p.name] for p in extra))
    again = [found.factor(names)] if names else []
    return GroundFit(
        ground, (known, better), belief.with_factors(*sensor_noise_factors(robot, found), *again), left, intervals, bounds
    )


def ground_parameters(robot: Robot) -> tuple[Param, ...]:
    """The figures of soft ground, as numbers to fit: from where a robot sinks in deep to what physics steps can follow.

    Those of the recording's rate and those of the design: a twin is for both.
    """
    design = replace(robot, timestep=0.0)
    low, high = (
        ground_from_sink_depth(robot, MAX_SINK_DEPTH, MIN_DAMPING_RATIO).to_dict(),
        min(map(hardest_stable_ground, (robot, design)), key=lambda g: g.stiffness).to_dict(),
    )
    return tuple(
        Param(
            f"ground_{name}", unit, float(np.sqrt(low[name] * high[name])), low[name], high[name], (f"ground:.*/{name}",), "log"
        )
        for name, unit in GROUND_UNITS.items()
    )


def _refitted_parameters(robot: Robot, belief: Belief, prior_belief: Belief) -> tuple[str, ...]:
    """Numbers that the recordings were fitted by, and still do something; all that are open if none were."""
    acts = {robot.space.names[w.param] for w in resolve_targets(robot)}
    names = tuple(n for n in free_parameters(robot, prior_belief) if n in acts)
    fitted = tuple(n for n in names if belief.interval(n) != prior_belief.interval(n))
    return fitted or names
