"""How well each dynamics parameter can be read from a policy's features: R² on held-out worlds.

ticks      the last frames that the policy observes
memory     all that it remembers of the past: a window of frames, or the state of its memory
estimate   ẑ, what it makes of that; for a teacher z, what it makes of what it is told
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import BadInput
from isthmus.core.progress import Progress, silent, sub_progress
from isthmus.core.results import Result
from isthmus.core.statistics import Estimate
from isthmus.learn import checkpoint
from isthmus.learn.algorithms.distillation import teacher_latent
from isthmus.learn.evaluate.contenders import load_training_belief
from isthmus.learn.evaluate.ridge import fit_ridge, r_squared
from isthmus.learn.evaluate.rollout import Decision, rollout
from isthmus.learn.policies.actor import Actor, Memory
from isthmus.learn.runs import Run, as_run, load_actor
from isthmus.robots.dynamics import resolve_dynamics
from isthmus.tasks.env import Env
from isthmus.tasks.task import Task

if TYPE_CHECKING:
    from isthmus.robots.dynamics import DynamicsSource

PROBE_WINDOW = (0.6, 1.0)
"""Part of the episode in which features are taken, at moments evenly spread."""
PROBE_TIMES = 3
TRAIN_FRACTION = 0.7
"""Part of the worlds that the regressions are fitted on."""
MAX_TRAIN_ROWS = 3000
"""Rows that the regressions are fitted on."""
MIN_WORLDS = 20
"""Worlds that must still stand late in the episode."""


@dataclass(frozen=True)
class PolicyFeatures:
    """What a policy knew at late moments in many worlds."""

    e: np.ndarray
    """Unit coordinates, (n, d)."""
    features: dict[str, np.ndarray]
    """By name, (moments, n, width)."""
    alive: np.ndarray
    """Worlds whose first episode was not over, (moments, n)."""


@dataclass(frozen=True)
class ParameterProbe:
    """R² of one parameter on held-out worlds, with 95 % intervals."""

    linear: Estimate
    nonlinear: Estimate
    best_model: Literal["linear", "nonlinear"]
    """Which of the two predicts left-out training worlds better."""

    @property
    def best(self) -> Estimate:
        return self.linear if self.best_model == "linear" else self.nonlinear


@dataclass(frozen=True)
class ProbeResult(Result, kind="probe"):
    features: Mapping[str, Mapping[str, ParameterProbe]]
    """By set of features (ticks, memory, estimate), by parameter."""
    train_worlds: int
    held_out_worlds: int
    worlds: int
    """Worlds that were simulated; those that fell early are in neither part."""
    seed: int
    run: str = ""
    task: str = ""
    method: str = ""
    checkpoint: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Hashes of the run and of the belief that the worlds were drawn from."""
    files: tuple[str, ...] = ()
    """Figures that were written."""

    @property
    def names(self) -> list[str]:
        """Parameters, the most readable first, judged by the last set of features."""
        last = list(self.features.values())[-1]
        return sorted(last, key=lambda name: -last[name].best.value)


@torch.no_grad()
def record_features(task: Task, actor: Actor, e: np.ndarray, seed: int, progress: Progress = silent) -> PolicyFeatures:
    """One episode in each world e, (n, d), which stays as it is; the policy's features at late moments."""
    n = len(e)
    env = Env(task, n, seed=seed, training=False, e=e)
    standing = np.ones(n, dtype=bool)
    moments = {round(m) for m in np.linspace(PROBE_WINDOW[0] * env.horizon, PROBE_WINDOW[1] * env.horizon - 1, PROBE_TIMES)}
    found: dict[str, list[np.ndarray]] = {}
    alive: list[np.ndarray] = []

    def keep_features(decision: Decision) -> None:
        if decision.tick in moments:
            features = policy_features(actor, decision.signals, decision.memory_before, decision.memory)
            for name, value in features.items():
                found.setdefault(name, []).append(value.numpy().astype(float))
            alive.append(standing.copy())

    for tick in rollout(env, actor, on_decision=keep_features, progress=progress):
        standing &= ~tick.step.terminated.numpy()
    return PolicyFeatures(task.robot.space.unit(e), {name: np.stack(rows) for name, rows in found.items()}, np.stack(alive))


def policy_features(actor: Actor, signals: dict[str, Tensor], before: Memory, after: Memory) -> dict[str, Tensor]:
    """What the policy knows at this tick, (n, width) each."""
    known = {"ticks": after["frames"][:, -actor.spec.policy.history :].flatten(1)}
    if actor.spec.privileged:
        observation, _ = actor.observe(signals, before)
        return known | {"estimate": teacher_latent(actor, actor.normalize(observation))}
    if actor.estimator is not None:
        observation, _ = actor.observe(signals, before)
        past = after["hidden"] if "hidden" in after else after["frames"].flatten(1)
        return known | {"memory": past, "estimate": observation[:, actor.history_size :]}
    return known


def fit_probes(seen: PolicyFeatures, names: tuple[str, ...], columns: list[int], seed: int = 0) -> ProbeResult:
    """Split the worlds, fit on one part and judge on the other."""
    moments, n = seen.alive.shape
    order = np.random.default_rng([seed, 4]).permutation(np.nonzero(seen.alive.any(axis=0))[0])
    if len(order) < MIN_WORLDS:
        raise BadInput(f"only {len(order)} of {n} worlds still stand late in the episode; at least {MIN_WORLDS} are needed.")
    train = order[: min(round(TRAIN_FRACTION * len(order)), MAX_TRAIN_ROWS // moments)]
    worlds = np.tile(np.arange(n), (moments, 1))
    inside = np.isin(worlds, train) & seen.alive
    outside = ~np.isin(worlds, train) & seen.alive
    y = np.tile(seen.e[:, columns], (moments, 1, 1))
    features: dict[str, dict[str, ParameterProbe]] = {}
    for what, x in seen.features.items():
        made = fit_ridge(x[inside], y[inside], worlds[inside], x[outside])
        linear, nonlinear = (r_squared(y[outside], made[kind].predicted, worlds[outside]) for kind in ("linear", "nonlinear"))
        curved = made["nonlinear"].left_out_r2 > made["linear"].left_out_r2
        features[what] = {
            name: ParameterProbe(linear[i], nonlinear[i], "nonlinear" if curved[i] else "linear")
            for i, name in enumerate(names)
        }
    return ProbeResult(features, len(train), len(order) - len(train), n, seed)


def probe(
    run: Run | Path | str,
    *,
    worlds: int = 600,
    dynamics: DynamicsSource | None = None,
    seed: int = 1000,
    progress: Progress = silent,
) -> ProbeResult:
    """R² with which each varying parameter can be read from what a run's policy knows, on held-out worlds.

    `dynamics` gives the worlds, a belief or a twin; by default those that the run trained over.
    """
    if seed < 0:
        raise BadInput("seed must not be negative.")
    if worlds < MIN_WORLDS:
        raise BadInput(f"worlds must be at least {MIN_WORLDS}.")
    run = as_run(run)
    robot, belief = resolve_dynamics(dynamics, run.task.robot, load_training_belief(run))
    task = run.task.on(robot)
    names = tuple(name for name in belief.free().names if np.ptp(belief.interval(name, 0.99)) > 0)
    if not names:
        raise BadInput(f"{run.folder} trained in one world only: no parameter varies; give other dynamics.")
    e = belief.sample(np.random.default_rng([seed, 5]), worlds)
    seen = record_features(task, load_actor(run), e, seed, sub_progress(progress, 0.0, 0.8))
    found = fit_probes(seen, names, [task.robot.space.index(name) for name in names], seed)
    progress(1.0)
    return replace(
        found,
        run=str(run.folder),
        task=run.config.task,
        method=run.config.method,
        checkpoint=checkpoint.newest(run.folder).name,
        inputs={"run": run.record["hash"], "belief": belief.hash},
    )
