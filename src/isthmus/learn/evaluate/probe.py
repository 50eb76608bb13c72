"""How much of its world can be read from what a policy knows: R² of each parameter of e, on worlds held out.

ticks      the last frames that the policy observes
memory     all that it remembers of the past: a window of frames, or the state of its memory
estimate   ẑ, what it makes of that; for a teacher z, what it makes of what it is told
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import BadInput
from isthmus.learn.algorithms.distillation import teacher_latent
from isthmus.learn.evaluate.contenders import load_training_belief
from isthmus.learn.evaluate.ridge import RSquared, fit_ridge, r_squared
from isthmus.learn.policies.actor import Actor, Memory, reset_memory
from isthmus.learn.runs import Run, load_actor
from isthmus.tasks.env import Env
from isthmus.tasks.task import Task
from isthmus.world import Belief

PROBE_WINDOW = (0.6, 1.0)
"""Part of the episode in which the policy is asked, at moments evenly spread."""
PROBE_TIMES = 3
TRAIN_FRACTION = 0.7
"""Part of the worlds that the regressions are fitted on."""
MAX_TRAIN_ROWS = 3000
"""That the regressions are fitted on."""
MIN_WORLDS = 20
"""Worlds that must still stand."""


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
class FeatureProbe:
    """R² by parameter, for one set of features."""

    linear: dict[str, RSquared]
    nonlinear: dict[str, RSquared]
    best_model: dict[str, str]
    """Which of the two predicts left-out training worlds better."""

    def best(self, name: str) -> RSquared:
        return (self.linear if self.best_model[name] == "linear" else self.nonlinear)[name]

    def to_dict(self) -> dict[str, Any]:
        return {
            name: {"linear": read.to_dict(), "nonlinear": self.nonlinear[name].to_dict(), "better": self.best_model[name]}
            for name, read in self.linear.items()
        }


@dataclass(frozen=True)
class ProbeResult:
    probes: dict[str, FeatureProbe]
    """By set of features."""
    train_worlds: int
    """Worlds."""
    held_out_worlds: int

    @property
    def names(self) -> list[str]:
        """Parameters, the most readable first, judged by the last set of features."""
        last = list(self.probes.values())[-1]
        return sorted(last.linear, key=lambda name: -last.best(name).r2)


@torch.no_grad()
def record_features(task: Task, actor: Actor, e: np.ndarray, seed: int, report=lambda f: None) -> PolicyFeatures:
    """One episode in each world e, (n, d), which stays as it is; ask the policy at the late moments."""
    n = len(e)
    env = Env(task, n, seed=seed, training=False, e=e)
    memory, standing = actor.memory(n), np.ones(n, dtype=bool)
    moments = {round(m) for m in np.linspace(PROBE_WINDOW[0] * env.horizon, PROBE_WINDOW[1] * env.horizon - 1, PROBE_TIMES)}
    found: dict[str, list[np.ndarray]] = {}
    alive: list[np.ndarray] = []
    for tick in range(env.horizon):
        signals, before = actor.read_signals(env), memory
        target, memory = actor(signals, before)
        if tick in moments:
            for name, value in policy_features(actor, signals, before, memory).items():
                found.setdefault(name, []).append(value.numpy().astype(float))
            alive.append(standing.copy())
        step = env.step(target)
        standing &= ~step.terminated.numpy()
        done = step.terminated | step.timed_out
        if done.any():
            reset_memory(memory, done)
        if tick % 20 == 0:
            report(tick / env.horizon)
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
    probes = {}
    for what, x in seen.features.items():
        made = fit_ridge(x[inside], y[inside], worlds[inside], x[outside])
        reads = {kind: r_squared(y[outside], fit.predicted, worlds[outside]) for kind, fit in made.items()}
        curved = made["nonlinear"].left_out_r2 > made["linear"].left_out_r2
        probes[what] = FeatureProbe(
            dict(zip(names, reads["linear"], strict=True)),
            dict(zip(names, reads["nonlinear"], strict=True)),
            {name: "nonlinear" if c else "linear" for name, c in zip(names, curved, strict=True)},
        )
    return ProbeResult(probes, len(train), len(order) - len(train))


def probe(run: Run, worlds: int, seed: int, belief: Belief | None = None, report=lambda f: None) -> ProbeResult:
    """Of every parameter that the run's own worlds vary, or those of `belief`."""
    belief = belief or load_training_belief(run)
    names = tuple(name for name in belief.free().names if np.ptp(belief.interval(name, 0.99)) > 0)
    if not names:
        raise BadInput(f"{run.folder} trained in one world only: no parameter varies; give --belief FILE.")
    e = belief.sample(np.random.default_rng([seed, 5]), worlds)
    seen = record_features(run.task, load_actor(run), e, seed, lambda f: report(0.8 * f))
    found = fit_probes(seen, names, [run.task.robot.space.index(name) for name in names], seed)
    report(1.0)
    return found
