"""Trials in simulation: the exported controller, one episode in each of n worlds, until the stage is decided.

    outcome = simulate_stage(stage_setup, controller, seed, "twin")

Worlds are simulated in batches and counted one by one. The worst worlds, the parameters in which failures differ from
successes, and the motion of the worst world are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from isthmus.core.progress import Progress, silent
from isthmus.core.statistics import Rate
from isthmus.deploy.batch_controller import BatchController
from isthmus.deploy.controller import Controller
from isthmus.deploy.signal_map import SignalMap
from isthmus.tasks.env import Env
from isthmus.tasks.samplers.sampler import succeeded
from isthmus.validation.sequential_test import SequentialTest, fixed_size_test
from isthmus.validation.stage import StageSetup
from isthmus.validation.stage_result import Environment, FailedWorld, ParameterDifference, StageResult

BATCH_WORLDS = 32
"""Worlds that are simulated together."""
WORST_WORLDS_KEPT = 5
"""Failed worlds that are named in the result."""
MIN_FAILURES = 3
"""Failures, and successes, that a comparison of their parameters needs."""
FADE_INTERVAL = 0.5
"""s between updates of parameters that fade."""
POSE_INTERVAL = 0.1
"""s between recorded poses."""


@dataclass(frozen=True)
class TrialTable:
    """One row per world."""

    e: np.ndarray
    """(n, d) at the start."""
    success: np.ndarray
    failed: np.ndarray
    score: np.ndarray
    length: np.ndarray
    """s until the end of the episode."""
    poses: np.ndarray
    """qpos every `pose_interval` s, (frames, n, nq) float32; after the end of its episode a world's pose stays."""
    pose_interval: float
    """s between poses."""
    diverged_worlds: int
    """Worlds whose physics failed."""


@torch.no_grad()
def simulate_trials(
    stage_setup: StageSetup,
    controller: Controller,
    e: np.ndarray,
    seed: int,
    command: np.ndarray | None = None,
    progress: Progress = silent,
) -> TrialTable:
    """One episode in each world of e, (n, d). `command` is (n, k); without one, commands are drawn."""
    task, n = stage_setup.task, len(e)
    env = Env(task, n, seed=seed, training=False, e=e, reality=stage_setup.reality)
    if command is not None:
        env.command[:] = torch.from_numpy(np.asarray(command, dtype=np.float32))
    crowd = BatchController(controller, SignalMap.from_contracts(controller.manifest, task.robot.contract), n)
    every, frame = (max(1, round(s / env.sim.tick)) for s in (FADE_INTERVAL, POSE_INTERVAL))
    waiting = np.ones(n, dtype=bool)
    target = np.tile(np.array(task.robot.default, dtype=np.float32), (n, 1))
    rows: dict[str, np.ndarray] = {}
    poses = [env.sim.qpos[:, : task.robot.model.nq].astype(np.float32)]
    for tick in range(env.horizon):
        signals = env.signals()
        flat = np.concatenate([signals[s.name].numpy() for s in task.robot.contract.signals], axis=1)
        asked = dict.fromkeys((s.name for s in controller.manifest.operator), env.command.numpy())
        crowd(flat, asked, target, np.flatnonzero(waiting))
        step = env.step(torch.from_numpy(target.copy()))
        ids = torch.nonzero(step.terminated | step.timed_out)[:, 0].numpy()
        first = waiting[ids]
        for name in ("score", "failed", "length") if len(ids) else ():
            store = rows.setdefault(name, np.zeros(n, dtype=step.finished[name].dtype))
            store[ids[first]] = step.finished[name][first]
        waiting[ids] = False
        if not waiting.any():
            break
        if stage_setup.parameter_fades and (tick + 1) % every == 0:
            left = np.flatnonzero(waiting)
            env.set_parameters(stage_setup.faded_parameters(e[left], (tick + 1) / env.horizon), left)
        if (tick + 1) % frame == 0:
            poses.append(np.where(waiting[:, None], env.sim.qpos[:, : task.robot.model.nq], poses[-1]).astype(np.float32))
            progress(tick / env.horizon)
    progress(1.0)
    good = succeeded(rows, task.success_threshold)
    return TrialTable(
        *(e, good, rows["failed"], rows["score"], rows["length"], np.stack(poses), frame * env.sim.tick, env.diverged_worlds)
    )


@dataclass(frozen=True)
class WorstMotion:
    """Motion of the worst world of a stage."""

    poses: np.ndarray
    """qpos, (frames, nq) float32."""
    interval: float
    """s between poses."""


def derive_seed(*parts: int) -> int:
    """An independent seed from several numbers."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def simulate_stage(
    stage_setup: StageSetup,
    controller: Controller,
    seed: int,
    environment: Environment,
    progress: Progress = silent,
) -> tuple[StageResult, WorstMotion | None]:
    """One stage in batches of worlds, and the motion of its worst world if it did not pass.

    Trials count in the order of their worlds, and none counts after the decision.
    """
    stage = stage_setup.stage
    gate = SequentialTest(stage.goal, stage.most)
    batches: list[tuple[int, TrialTable]] = []
    while gate.decision == "open":
        batch_seed, done = derive_seed(seed, len(batches)), gate.n
        e = stage_setup.sample_worlds(np.random.default_rng([batch_seed, 1]), BATCH_WORLDS)
        at = lambda f, note="", done=done: progress(min(1.0, (done + f * BATCH_WORLDS) / gate.max_trials))  # noqa: E731
        batches.append((batch_seed, simulate_trials(stage_setup, controller, e, batch_seed, progress=at)))
        for good in batches[-1][1].success:
            if gate.decision == "open":
                gate.add(bool(good))
    progress(1.0)
    worst, motion = worst_worlds(stage_setup, batches)
    result = StageResult(
        name=stage.name,
        description=stage.doc,
        decision=gate.decision,
        environment=environment,
        success=Rate(gate.rate, gate.low, gate.high, gate.n),
        required=stage.required,
        expected=stage.expected,
        false_pass=stage.false_pass,
        false_fail=stage.false_fail,
        trials=gate.n,
        max_trials=gate.max_trials,
        fixed_size_trials=fixed_size_test(stage.goal)[0],
        seed=seed,
        omitted=stage_setup.skipped_parts,
        simulated=Rate.from_counts(int(sum(b.success.sum() for _, b in batches)), sum(len(b.success) for _, b in batches)),
        worst=worst,
        parameter_differences=differing_parameters(stage_setup, batches),
    )
    return result, None if result.passed else motion


def worst_worlds(
    stage_setup: StageSetup, batches: list[tuple[int, TrialTable]]
) -> tuple[tuple[FailedWorld, ...], WorstMotion | None]:
    """Failed worlds with the lowest scores, and the motion of the first of them."""
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
    return tuple(found), WorstMotion(batch.poses[:frames, i], batch.pose_interval)


def differing_parameters(
    stage_setup: StageSetup, batches: list[tuple[int, TrialTable]], false_positive_rate: float = 0.01
) -> tuple[ParameterDifference, ...]:
    """Parameters whose means differ between failures and successes, at most four.

    `false_positive_rate` is the probability that any is named where none matters (Bonferroni).
    """
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
