"""The episode loop: a policy in n worlds, tick by tick, each world's memory cleared where its episode ends.

    for tick in rollout(env, actor):      signals -> actor -> env.step
        tick.step.reward                  (n,)

`run_episodes` keeps the first episode of every world as one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from isthmus.core.progress import Progress, silent
from isthmus.learn.policies.actor import Actor, Memory, reset_memory
from isthmus.sim.reality import Reality
from isthmus.tasks.env import Env, Step
from isthmus.tasks.task import Task
from isthmus.world import Belief

EpisodeTable = dict[str, np.ndarray]
"""By name: e, score, return, failed, length and metrics, one row per world."""
PROGRESS_TICKS = 20
"""Ticks between two reports of progress."""


@dataclass(frozen=True)
class Decision:
    """What the policy saw and decided at one tick, before the physics of that tick."""

    tick: int
    signals: dict[str, Tensor]
    memory_before: Memory
    memory: Memory
    """After the tick."""


@dataclass(frozen=True)
class Tick:
    tick: int
    step: Step
    done: Tensor
    """Worlds whose episode ended in this tick, (n,)."""


def rollout(
    env: Env,
    actor: Actor,
    before_tick: Callable[[int], None] | None = None,
    on_decision: Callable[[Decision], None] | None = None,
    progress: Progress = silent,
) -> Iterator[Tick]:
    """Run one episode length, `env.horizon` ticks, in all worlds. Worlds that end early start again.

    `before_tick` may change the environment; `on_decision` sees the policy's inputs before they are overwritten.
    """
    memory = actor.memory(env.n)
    for tick in range(env.horizon):
        if before_tick is not None:
            before_tick(tick)
        with torch.no_grad():
            signals, before = actor.read_signals(env), memory
            target, memory = actor(signals, before)
            if on_decision is not None:
                on_decision(Decision(tick, signals, before, memory))
            step = env.step(target)
        done = step.terminated | step.timed_out
        yield Tick(tick, step, done)
        if done.any():
            reset_memory(memory, done)
        if tick % PROGRESS_TICKS == 0:
            progress(tick / env.horizon)


def run_episodes(
    task: Task,
    actor: Actor,
    worlds: int,
    seed: int = 0,
    belief: Belief | None = None,
    e: np.ndarray | None = None,
    reality: Reality | None = None,
    progress: Progress = silent,
) -> EpisodeTable:
    """The first episode in each of `worlds` worlds, at the task's last level with disturbances: one row per world."""
    env = Env(task, worlds, seed=seed, belief=belief, training=False, e=e, reality=reality)
    waiting = np.ones(worlds, dtype=bool)
    rows: EpisodeTable = {}
    for tick in rollout(env, actor, progress=progress):
        if not tick.done.any():
            continue
        ids = torch.nonzero(tick.done)[:, 0].numpy()
        first = waiting[ids]
        for name, values in tick.step.finished.items():
            store = rows.setdefault(name, np.zeros((worlds, *values.shape[1:]), dtype=values.dtype))
            store[ids[first]] = values[first]
        waiting[ids] = False
    progress(1.0)
    assert not waiting.any()
    return rows
