"""How well a policy does over many worlds: one episode in each, success with an exact interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from isthmus.core.statistics import Rate
from isthmus.learn.policies.actor import Actor, reset_memory
from isthmus.sim.reality import Reality
from isthmus.tasks.env import Env
from isthmus.tasks.samplers.sampler import succeeded
from isthmus.tasks.task import Task
from isthmus.world import Belief


@dataclass(frozen=True)
class Evaluation:
    success: Rate
    falls: Rate
    score: float
    metrics: dict[str, tuple[float, float]]
    """Mean over episodes and its standard error."""
    rewards: dict[str, float]
    """Mean reward of each term per second."""
    episodes: dict[str, np.ndarray]
    """One row per world: e, score, failed, length and metrics."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "success": vars(self.success),
            "failed": vars(self.falls),
            "score": self.score,
            "metrics": {k: {"mean": m, "standard_error": s} for k, (m, s) in self.metrics.items()},
            "rewards_per_second": self.rewards,
        }


@torch.no_grad()
def evaluate(
    task: Task,
    actor: Actor,
    worlds: int,
    seed: int = 0,
    belief: Belief | None = None,
    e: np.ndarray | None = None,
    reality: Reality | None = None,
    report=lambda fraction: None,
) -> Evaluation:
    """Run one full episode in each of `worlds` worlds at the task's last level, disturbances on."""
    env = Env(task, worlds, seed=seed, belief=belief, training=False, e=e, reality=reality)
    memory = actor.memory(worlds)
    waiting = np.ones(worlds, dtype=bool)
    rows: dict[str, np.ndarray] = {}
    for tick in range(env.horizon):
        target, memory = actor(actor.read_signals(env), memory)
        step = env.step(target)
        done = step.terminated | step.timed_out
        if done.any():
            ids = torch.nonzero(done)[:, 0].numpy()
            first = waiting[ids]
            for name, values in step.finished.items():
                store = rows.setdefault(name, np.zeros((worlds, *values.shape[1:]), dtype=values.dtype))
                store[ids[first]] = values[first]
            waiting[ids] = False
            reset_memory(memory, done)
        if tick % 20 == 0:
            report(tick / env.horizon)
    report(1.0)
    assert not waiting.any()
    good = succeeded(rows, task.success_threshold)
    spread = lambda x: (float(x.mean()), float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan"))  # noqa: E731
    return Evaluation(
        success=Rate.from_counts(int(good.sum()), worlds),
        falls=Rate.from_counts(int(rows["failed"].sum()), worlds),
        score=float(rows["score"].mean()),
        metrics={name: spread(rows[name]) for name in task.metrics},
        rewards={t.name: float(rows[f"reward/{t.name}"].mean()) / env.sim.tick for t in task.rewards},
        episodes=rows,
    )
