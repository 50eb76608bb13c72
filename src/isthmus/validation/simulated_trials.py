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

from isthmus.core.statistics import Rate
from isthmus.deploy.controller import Controller
from isthmus.tasks.task import Task
from isthmus.validation.protocol import Protocol, Stage
from isthmus.validation.sequential_test import Decision, SequentialTest, fixed_size_test
from isthmus.validation.simulated_episodes import TrialTable, simulate_trials
from isthmus.validation.stage import StageSetup, set_up_stage
from isthmus.world import Belief

BATCH_WORLDS = 32
"""Worlds that are flown together."""
WORST_WORLDS_KEPT = 5
"""Worlds that are named."""
MIN_FAILURES = 3
"""Failures from which on it makes sense to say what they have in common."""
StageProgress = Callable[[float, str], None]


@dataclass(frozen=True)
class FailedWorld:
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
class ParameterDifference:
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
class StageResult:
    """What came out of a stage."""

    stage: Stage
    decision: Decision
    rate: Rate
    """Of the trials that decided; low and high are the gate's bounds, which hold at stopping."""
    max_trials: int
    seed: int
    environment: str
    """`twin`, `prior` or `real`."""
    skipped_parts: tuple[str, ...] = ()
    simulated: Rate | None = None
    """Over all worlds that were simulated, those after the decision included; as if that many had been meant."""
    fixed_size_trials: int = 0
    """Trials that a test of fixed size with the same error rates needs."""
    predicted: Rate | None = None
    """On a real robot: what the simulator says of the same stage."""
    assisted: dict[str, Any] = field(default_factory=dict)
    worst: tuple[FailedWorld, ...] = ()
    parameter_differences: tuple[ParameterDifference, ...] = ()
    trials: tuple[dict[str, Any], ...] = ()
    """On a real robot: conditions, outcome and prediction of each."""
    stop_reason: str = ""
    """Why there were no more trials, if something came in between."""
    worst_poses: tuple[np.ndarray, float] | None = field(default=None, repr=False)
    """qpos of the worst world, (frames, nq), and s between them."""

    @property
    def passed(self) -> bool:
        return self.decision == "pass"

    def to_dict(self) -> dict[str, Any]:
        own = {
            "stage": self.stage.name,
            "decision": self.decision,
            "where": self.environment,
            "success": vars(self.rate),
            "required": self.stage.required,
            "expected": self.stage.expected,
            "false_pass": self.stage.false_pass,
            "false_fail": self.stage.false_fail,
            "trials": self.rate.n,
            "most": self.max_trials,
            "fixed_size": self.fixed_size_trials,
            "seed": self.seed,
            "left_out": list(self.skipped_parts),
        }
        if self.predicted is not None:
            own["predicted"] = vars(self.predicted)
        if self.stop_reason:
            own["stopped"] = self.stop_reason
        if self.assisted:
            own["assisted"] = self.assisted
        if self.simulated is not None:
            own["simulated"] = vars(self.simulated)
        own["worst"] = [w.to_dict() for w in self.worst]
        own["in_common"] = [vars(c) for c in self.parameter_differences]
        return own | ({"record": list(self.trials)} if self.trials else {})


def derive_seed(*parts: int) -> int:
    """One seed of many, as numbers for batches must not be each other's neighbours."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def simulate_stages(
    protocol: Protocol,
    task: Task,
    belief: Belief,
    controller: Controller,
    seed: int,
    environment: str,
    report: StageProgress = lambda fraction, note: None,
    run_all: bool = False,
) -> list[StageResult]:
    """Every stage up to the first that does not pass; with `through` all of them."""
    found: list[StageResult] = []
    families = [set_up_stage(stage, task, belief) for stage in protocol.stages]
    for k, own in enumerate(families):
        at = lambda f, k=k: report((k + f) / len(families), protocol.stages[k].name)  # noqa: E731
        found.append(simulate_stage(own, controller, derive_seed(seed, k), environment, at))
        if not found[-1].passed and not run_all:
            break
    return found


def simulate_stage(
    stage_setup: StageSetup,
    controller: Controller,
    seed: int,
    environment: str,
    report: Callable[[float], None] = lambda fraction: None,
) -> StageResult:
    """One stage, in batches; trials count in the order of their worlds, and none counts after the decision."""
    stage = stage_setup.stage
    gate = SequentialTest(stage.goal, stage.most)
    batches: list[tuple[int, TrialTable]] = []
    while gate.decision == "open":
        batch_seed, done = derive_seed(seed, len(batches)), gate.n
        e = stage_setup.sample_worlds(np.random.default_rng([batch_seed, 1]), BATCH_WORLDS)
        at = lambda f, done=done: report(min(1.0, (done + f * BATCH_WORLDS) / gate.max_trials))  # noqa: E731
        batches.append((batch_seed, simulate_trials(stage_setup, controller, e, batch_seed, report=at)))
        for good in batches[-1][1].success:
            if gate.decision == "open":
                gate.add(bool(good))
    report(1.0)
    worst, film = worst_worlds(stage_setup, batches)
    return StageResult(
        *(
            stage,
            gate.decision,
            Rate(gate.rate, gate.low, gate.high, gate.n),
            gate.max_trials,
            seed,
            environment,
            stage_setup.skipped_parts,
        ),
        simulated=Rate.from_counts(int(sum(b.success.sum() for _, b in batches)), sum(len(b.success) for _, b in batches)),
        fixed_size_trials=fixed_size_test(stage.goal)[0],
        worst=worst,
        parameter_differences=differing_parameters(stage_setup, batches),
        worst_poses=film if gate.decision != "pass" else None,
    )


def worst_worlds(
    stage_setup: StageSetup, batches: list[tuple[int, TrialTable]]
) -> tuple[tuple[FailedWorld, ...], tuple[np.ndarray, float] | None]:
    """Those that did not succeed and scored least, and the poses of the first of them."""
    space = stage_setup.belief.space
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
    for score, length, number, seed, i, batch in rows[:WORST_WORLDS_KEPT]:
        away = np.abs(unit[number] - middle) / np.where(spread > 1e-9, spread, np.inf)
        unusual = tuple(space.names[j] for j in np.argsort(-away)[:4] if away[j] > 1.0)
        e = dict(zip(space.names, batch.e[i].tolist(), strict=True))
        found.append(FailedWorld(number, seed, i, score, bool(batch.failed[i]), length, e, unusual))
    if not rows:
        return (), None
    *_, length, _, _, i, batch = rows[0]
    frames = min(len(batch.poses), int(length / batch.pose_interval) + 6)
    return tuple(found), (batch.poses[:frames, i], batch.pose_interval)


def differing_parameters(
    stage_setup: StageSetup, batches: list[tuple[int, TrialTable]], false_positive_rate: float = 0.01
) -> tuple[ParameterDifference, ...]:
    """Numbers whose means differ between failures and successes; `chance` that any does so where none matters."""
    space = stage_setup.belief.space
    level = float(stats.norm.isf(false_positive_rate / 2 / len(space)))
    e = np.concatenate([batch.e for _, batch in batches])
    bad = ~np.concatenate([batch.success for _, batch in batches])
    if not MIN_FAILURES <= bad.sum() <= len(bad) - MIN_FAILURES:
        return ()
    unit = space.unit(e)
    error = np.sqrt(unit[bad].var(axis=0, ddof=1) / bad.sum() + unit[~bad].var(axis=0, ddof=1) / (~bad).sum())
    z = np.divide(unit[bad].mean(axis=0) - unit[~bad].mean(axis=0), error, out=np.zeros_like(error), where=error > 1e-12)
    order = [j for j in np.argsort(-np.abs(z)) if abs(z[j]) >= level]
    return tuple(
        ParameterDifference(
            space.names[j], float(e[bad, j].mean()), float(e[~bad, j].mean()), space.params[j].unit, float(z[j])
        )
        for j in order[:4]
    )
