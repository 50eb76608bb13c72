"""Go on from a trained policy on other worlds, and stay near it.

The policy, its critic and the scale of its inputs are those of the run that it starts from. The scale and whatever finds
out about the world stay as they are; the body of the policy learns with PPO, in small steps and within `Bound`. For the
first `CRITIC_WARMUP_ITERATIONS` iterations only the critic learns, whose values were those of other worlds.

A policy that ignores e may go on as a teacher. It begins as the same policy: what it is told has no weight yet.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from isthmus.core.errors import BadInput
from isthmus.learn import checkpoint
from isthmus.learn.algorithms.algorithm import PPOTrainer
from isthmus.learn.algorithms.kl import KLBound
from isthmus.learn.algorithms.ppo import PPOConfig, PPOUpdate
from isthmus.learn.policies.actor import Actor
from isthmus.learn.policies.base_controller import check_robot
from isthmus.learn.policies.context import Context
from isthmus.learn.runs import Run, RunConfig, load_tensors
from isthmus.tasks.samplers.sampler import Sampler
from isthmus.tasks.task import Task

CRITIC_WARMUP_ITERATIONS = 5


def finetune_settings(settings: PPOConfig) -> PPOConfig:
    """Settings of a run, with smaller steps for what starts from it."""
    return replace(settings, learning_rate=1e-4, learning_rate_range=(1e-5, 1e-3))


def finetune_config(initial_run: Run, task: Task, max_kl: float, as_teacher: bool = False) -> RunConfig:
    """What to train when a policy is fine-tuned, or goes on as a teacher; a run that does not fit the task is a BadInput."""
    where = f"the run {initial_run.folder}"
    check_robot(initial_run, task, where)
    old = initial_run.config
    plan = RunConfig(
        task.name,
        old.method,
        settings=old.settings,
        context=old.context,
        base=old.base,
        initial_run=initial_run.initial_hash,
        max_kl=max_kl,
    )
    if plan.actor_spec(task) != old.actor_spec(initial_run.task):
        raise BadInput(f"{where} observes or acts in another way than a policy of {task.name}; it cannot be fine-tuned to it.")
    if not as_teacher or old.method == "teacher":
        return plan
    if old.method != "ppo" or old.base is not None:
        raise BadInput(f"{where} cannot go on as a teacher: only a policy of --method ppo without a base can.")
    return replace(plan, method="teacher", context=Context("privileged"))


class FineTuneTrainer(PPOTrainer):
    def __init__(self, run: Run, sampler: Sampler | None = None):
        super().__init__(run, sampler)
        self.env.to_last_level()
        self.collector.reset_memory()
        self.initial_actor = Actor(run.config.actor_spec(run.task)).eval().requires_grad_(False)
        self.modules["start"] = self.initial_actor
        if self.actor.estimator is not None:
            self.actor.estimator.requires_grad_(False)
        self.kl_bound = KLBound(self.actor, self.initial_actor, run.config.max_kl)
        self.ppo_update = PPOUpdate(
            self.actor, self.critic, finetune_settings(run.config.settings), self.generator, self.kl_bound
        )
        self.optimizer = self.ppo_update.optimizer

    def initialize_from(self, initial_run: Run) -> None:
        """Take over the newest policy of a run, and its critic if that saw what ours sees."""
        arrays, _ = checkpoint.read(checkpoint.newest(initial_run.folder))
        begun = Actor(initial_run.config.actor_spec(initial_run.task))
        load_tensors(begun, arrays, "actor.")
        copy_policy(self.initial_actor, begun)
        self.actor.load_state_dict(self.initial_actor.state_dict())
        if "critic.normalize.mean" in arrays and self._critic_matches(initial_run):
            load_tensors(self.critic, arrays, "critic.")
        self.collector.reset_memory()

    def _critic_matches(self, initial_run: Run) -> bool:
        own = self.run.config.settings
        if own.asymmetric_critic:
            return initial_run.config.settings.critic_sees_e == own.critic_sees_e and _critic_labels(
                initial_run.task
            ) == _critic_labels(self.run.task)
        return self.run.config.context == initial_run.config.context

    def learn(self) -> tuple[dict[str, float], int, list[dict]]:
        self.ppo_update.policy_weight = 0.0 if self.iteration < CRITIC_WARMUP_ITERATIONS else 1.0
        return super().learn()

    def carried(self) -> dict[str, Tensor]:
        return super().carried() | {"kl_weight": torch.tensor([self.kl_bound.weight])}

    def restore_carried(self, tensors: dict[str, Tensor]) -> None:
        super().restore_carried(tensors)
        self.kl_bound.weight = float(tensors["kl_weight"])


@torch.no_grad()
def copy_policy(actor: Actor, source: Actor) -> None:
    """Make an actor act as `start` does, which has the same shape or is told less; what `start` is not told weighs nothing."""
    own, begun = actor.state_dict(), source.state_dict()
    if own.keys() == begun.keys():
        actor.load_state_dict(begun)
        return
    body = source.body.state_dict()
    first = body["0.weight"]
    body["0.weight"] = torch.cat([first, torch.zeros(len(first), actor.spec.context.latent_size)], dim=1)
    actor.body.load_state_dict(body)
    for name in ("mean", "var"):
        getattr(actor.normalize, name)[: actor.history_size] = getattr(source.normalize, name)
    actor.log_std.copy_(source.log_std)


def _critic_labels(task: Task) -> list[tuple[str, tuple[str, ...]]]:
    """What an asymmetric critic sees, besides what every task of a robot has."""
    command = [(task.command.signal.name, task.command.signal.labels)] if task.command else []
    return [(seen.name, seen.labels) for seen in task.critic] + command
