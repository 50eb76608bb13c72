"""A task trains on any engine: a few iterations of PPO on the plainest one."""

from __future__ import annotations

from dataclasses import replace

import torch

from isthmus.learn.algorithms.ppo import Collector, Critic, PPOUpdate
from isthmus.learn.policies.actor import Actor, ActorSpec
from isthmus.learn.recipes import recipe
from isthmus.tasks.catalogue import get_task
from isthmus.tasks.env import Env

TASK = "pendulum/swingup"


def curve(engine: str, iterations: int) -> list[float]:
    """Mean return of each iteration's rollout."""
    task, config = get_task(TASK), replace(recipe(TASK), worlds=8, rollout_ticks=16)
    torch.manual_seed(0)
    env = Env(task, config.worlds, seed=0, engine=engine)
    actor = Actor(ActorSpec.for_task(task, config.hidden, config.symmetry), config.init_std)
    critic, generator = Critic(env.critic_size, config.critic_hidden), torch.Generator().manual_seed(0)
    collector = Collector(env, actor, critic, config, generator)
    learner = PPOUpdate(actor, critic, config, generator)
    rewards = []
    for _ in range(iterations):
        batch, _ = collector.collect()
        learner.update(batch)
        rewards.append(float(batch.returns.mean()))
    return rewards


def test_a_task_trains_on_the_reference_engine_as_on_the_batch_engine():
    reference, batch = curve("reference", 3), curve("batch", 3)
    assert len(set(reference)) == 3
    assert torch.allclose(torch.tensor(reference), torch.tensor(batch), atol=1e-3)
