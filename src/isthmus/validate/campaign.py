"""Stage after stage in simulation: worlds in batches, looked at one by one, until the gate of the stage is decided.

    result = run(protocol, task, belief, controller, seed=0)

A campaign ends with the first stage that does not pass. Its worst worlds, what they have in common and how one of them went
are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from isthmus.data.rate import Rate
from isthmus.deploy.controller import Controller
from isthmus.tasks.task import Task
from isthmus.validate.gate import Decision, Gate, fixed_size
from isthmus.validate.protocol import Protocol, Stage
from isthmus.validate.trials import Flown, fly
from isthmus.validate.worlds import Family, family
from isthmus.world import Belief

BATCH = 32
"""Worlds that are flown together."""
WORST = 5
"""Worlds that are named."""
LEAST = 3
"""Failures from which on it makes sense to say what they have in common."""
Report = Callable[[float, str], None]


@dataclass(frozen=True)
class World:
    """One trial that went wrong."""

    trial: int
    seed: int
    """Of the batch that it was flown in."""
    place: int
    """Its row there."""
    score: float
    failed: bool
    length: float
    """s until it was over."""
    e: dict[str, float]
    unusual: tuple[str, ...]
    """Numbers that are furthest from their middle, the most unusual first."""

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"unusual": list(self.unusual)}


@dataclass(frozen=True)
class Common:
    """A number in which failures differ from successes."""

    name: str
    failures: float
    """Mean over the worlds that did not succeed …"""
    successes: float
    """… and over those that did."""
    unit: str
    z: float
    """Difference in standard errors."""


@dataclass(frozen=True)
class Result:
    """What came out of a stage."""

    stage: Stage
    decision: Decision
    rate: Rate
    """Of the trials that decided; low and high are the gate's bounds, which hold at stopping."""
    most: int
    seed: int
    where: str
    """`twin`, `prior` or `real`."""
    left_out: tuple[str, ...] = ()
    simulated: Rate | None = None
    """Over all worlds that were simulated, those after the decision included; as if that many had been meant."""
    fixed: int = 0
    """Trials that a test of fixed size with the same error rates needs."""
    predicted: Rate | None = None
    """On a real robot: what the simulator says of the same stage."""
    assisted: dict[str, Any] = field(default_factory=dict)
    worst: tuple[World, ...] = ()
    common: tuple[Common, ...] = ()
    trials: tuple[dict[str, Any], ...] = ()
    """On a real robot: conditions, outcome and prediction of each."""
    stopped: str = ""
    """Why there were no more trials, if something came in between."""
    film: tuple[np.ndarray, float] | None = field(default=None, repr=False)
    """qpos of the worst world, (frames, nq), and s between them."""

    @property
    def passed(self) -> bool:
        return self.decision == "pass"

    def to_dict(self) -> dict[str, Any]:
        own = {
            "stage": self.stage.name,
            "decision": self.decision,
            "where": self.where,
            "success": vars(self.rate),
            "required": self.stage.required,
            "expected": self.stage.expected,
            "false_pass": self.stage.false_pass,
            "false_fail": self.stage.false_fail,
            "trials": self.rate.n,
            "most": self.most,
            "fixed_size": self.fixed,
            "seed": self.seed,
            "left_out": list(self.left_out),
        }
        if self.predicted is not None:
            own["predicted"] = vars(self.predicted)
        if self.stopped:
            own["stopped"] = self.stopped
        if self.assisted:
            own["assisted"] = self.assisted
        if self.simulated is not None:
            own["simulated"] = vars(self.simulated)
        own["worst"] = [w.to_dict() for w in self.worst]
        own["in_common"] = [vars(c) for c in self.common]
        return own | ({"record": list(self.trials)} if self.trials else {})


def seed_of(*parts: int) -> int:
    """One seed of many, as numbers for batches must not be each other's neighbours."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def run(
    protocol: Protocol,
    task: Task,
    belief: Belief,
    controller: Controller,
    seed: int,
    where: str,
    report: Report = lambda fraction, note: None,
    through: bool = False,
) -> list[Result]:
    """Every stage up to the first that does not pass; with `through` all of them."""
    found: list[Result] = []
    families = [family(stage, task, belief) for stage in protocol.stages]
    for k, own in enumerate(families):
        at = lambda f, k=k: report((k + f) / len(families), protocol.stages[k].name)  # noqa: E731
        found.append(simulate(own, controller, seed_of(seed, k), where, at))
        if not found[-1].passed and not through:
            break
    return found


def simulate(
    own: Family, controller: Controller, seed: int, where: str, report: Callable[[float], None] = lambda fraction: None
) -> Result:
    """One stage, in batches; trials count in the order of their worlds, and none counts after the decision."""
    stage = own.stage
    gate = Gate(stage.goal, stage.most)
    batches: list[tuple[int, Flown]] = []
    while gate.decision == "open":
        batch_seed, done = seed_of(seed, len(batches)), gate.n
        e = own.draw(np.random.default_rng([batch_seed, 1]), BATCH)
        at = lambda f, done=done: report(min(1.0, (done + f * BATCH) / gate.most))  # noqa: E731
        batches.append((batch_seed, fly(own, controller, e, batch_seed, report=at)))
        for good in batches[-1][1].success:
            if gate.decision == "open":
                gate.add(bool(good))
    report(1.0)
    worst, film = worst_worlds(own, batches)
    return Result(
        *(stage, gate.decision, Rate(gate.rate, gate.low, gate.high, gate.n), gate.most, seed, where, own.left_out),
        simulated=Rate.of(int(sum(b.success.sum() for _, b in batches)), sum(len(b.success) for _, b in batches)),
        fixed=fixed_size(stage.goal)[0],
        worst=worst,
        common=in_common(own, batches),
        film=film if gate.decision != "pass" else None,
    )


def worst_worlds(own: Family, batches: list[tuple[int, Flown]]) -> tuple[tuple[World, ...], tuple[np.ndarray, float] | None]:
    """Those that did not succeed and scored least, and the poses of the first of them."""
    space = own.belief.space
    rows, trial = [], 0
    for seed, batch in batches:
        for i in range(len(batch.success)):
            if not batch.success[i]:
                rows.append((float(batch.score[i]), float(batch.length[i]), trial, seed, i, batch))
            trial += 1
    rows.sort(key=lambda row: row[:3])
    everything = np.concatenate([batch.e for _, batch in batches])
    unit = space.unit(everything)
    middle, spread = np.median(unit, axis=0), unit.std(axis=0)
    found = []
    for score, length, number, seed, i, batch in rows[:WORST]:
        away = np.abs(unit[number] - middle) / np.where(spread > 1e-9, spread, np.inf)
        unusual = tuple(space.names[j] for j in np.argsort(-away)[:4] if away[j] > 1.0)
        e = dict(zip(space.names, batch.e[i].tolist(), strict=True))
        found.append(World(number, seed, i, score, bool(batch.failed[i]), length, e, unusual))
    if not rows:
        return (), None
    *_, length, _, _, i, batch = rows[0]
    frames = min(len(batch.path), int(length / batch.frame) + 6)
    return tuple(found), (batch.path[:frames, i], batch.frame)


def in_common(own: Family, batches: list[tuple[int, Flown]], chance: float = 0.01) -> tuple[Common, ...]:
    """Numbers whose means differ between failures and successes; `chance` that any does so where none matters."""
    space = own.belief.space
    level = float(stats.norm.isf(chance / 2 / len(space)))
    e = np.concatenate([batch.e for _, batch in batches])
    bad = ~np.concatenate([batch.success for _, batch in batches])
    if not LEAST <= bad.sum() <= len(bad) - LEAST:
        return ()
    unit = space.unit(e)
    error = np.sqrt(unit[bad].var(axis=0, ddof=1) / bad.sum() + unit[~bad].var(axis=0, ddof=1) / (~bad).sum())
    z = np.divide(unit[bad].mean(axis=0) - unit[~bad].mean(axis=0), error, out=np.zeros_like(error), where=error > 1e-12)
    order = [j for j in np.argsort(-np.abs(z)) if abs(z[j]) >= level]
    return tuple(
        Common(space.names[j], float(e[bad, j].mean()), float(e[~bad, j].mean()), space.params[j].unit, float(z[j]))
        for j in order[:4]
    )
