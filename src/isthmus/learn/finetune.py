"""Go on from a trained policy on other worlds, and stay near it.

The policy, its critic and the scale of its inputs are those of the run that it starts from. The scale and whatever finds
out about the world stay as they are; the body of the policy learns with PPO, in small steps and within `Bound`. For the
first `SETTLING` iterations only the critic learns, whose values were those of other worlds.

A policy that ignores e may go on as a teacher. It begins as the same policy: what it is told has no weight yet.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from isthmus.errors import BadInput
from isthmus.learn import checkpoint
from isthmus.learn.actor import Actor
from isthmus.learn.bound import Bound
from isthmus.learn.context import Context
from isthmus.learn.ppo import PPO, Learner
from isthmus.learn.residual import check_robot
from isthmus.learn.runs import Plan, Run, fill
from isthmus.learn.trainer import PPOTrainer
from isthmus.tasks.sampler import Sampler
from isthmus.tasks.task import Task

SETTLING = 5


def gentle(settings: PPO) -> PPO:
    """Settings of a run, with smaller steps for what starts from it."""
    return replace(settings, step_size=1e-4, step_range=(1e-5, 1e-3))


def plan_from(start: Run, task: Task, kl: float, teach: bool = False) -> Plan:
    """What to train when a policy is fine-tuned, or goes on as a teacher; a run that does not fit the task is a BadInput."""
    where = f"the run {start.folder}"
    check_robot(start, task, where)
    old = start.plan
    plan = Plan(task.name, old.method, settings=old.settings, context=old.context, base=old.base, start=start.origin, kl=kl)
    if plan.shape(task) != old.shape(start.task):
        raise BadInput(f"{where} observes or acts in another way than a policy of {task.name}; it cannot be fine-tuned to it.")
    if not teach or old.method == "teacher":
        return plan
    if old.method != "ppo" or old.base is not None:
        raise BadInput(f"{where} cannot go on as a teacher: only a policy of --method ppo without a base can.")
    return replace(plan, method="teacher", context=Context("privileged"))


class FineTuner(PPOTrainer):
    def __init__(self, run: Run, sampler: Sampler | None = None):
        super().__init__(run, sampler)
        self.env.graduate()
        self.collector.begin()
        self.start = Actor(run.plan.shape(run.task)).eval().requires_grad_(False)
        self.modules["start"] = self.start
        if self.actor.estimator is not None:
            self.actor.estimator.requires_grad_(False)
        self.bound = Bound(self.actor, self.start, run.plan.kl)
        self.learner = Learner(self.actor, self.critic, gentle(run.plan.settings), self.generator, self.bound)
        self.optimizer = self.learner.optimizer

    def adopt(self, start: Run) -> None:
        """Take over the newest policy of a run, and its critic if that saw what ours sees."""
        arrays, _ = checkpoint.read(checkpoint.newest(start.folder))
        begun = Actor(start.plan.shape(start.task))
        fill(begun, arrays, "actor.")
        take_policy(self.start, begun)
        self.actor.load_state_dict(self.start.state_dict())
        if "critic.normalize.mean" in arrays and self._same_critic(start):
            fill(self.critic, arrays, "critic.")
        self.collector.begin()

    def _same_critic(self, start: Run) -> bool:
        own = self.run.plan.settings
        if own.asymmetric:
            return start.plan.settings.critic_told == own.critic_told and _labels(start.task) == _labels(self.run.task)
        return self.run.plan.context == start.plan.context

    def learn(self) -> tuple[dict[str, float], int, list[dict]]:
        self.learner.policy_weight = 0.0 if self.iteration < SETTLING else 1.0
        return super().learn()

    def carried(self) -> dict[str, Tensor]:
        return super().carried() | {"kl_weight": torch.tensor([self.bound.weight])}

    def carry(self, tensors: dict[str, Tensor]) -> None:
        super().carry(tensors)
        self.bound.weight = float(tensors["kl_weight"])


@torch.no_grad()
def take_policy(actor: Actor, start: Actor) -> None:
    """Make an actor act as `start` does, which has the same shape or is told less; what `start` is not told weighs nothing."""
    own, begun = actor.state_dict(), start.state_dict()
    if own.keys() == begun.keys():
        actor.load_state_dict(begun)
        return
    body = start.body.state_dict()
    first = body["0.weight"]
    body["0.weight"] = torch.cat([first, torch.zeros(len(first), actor.shape.context.size)], dim=1)
    actor.body.load_state_dict(body)
    for name in ("mean", "var"):
        getattr(actor.normalize, name)[: actor.seen] = getattr(start.normalize, name)
    actor.log_std.copy_(start.log_std)


def _labels(task: Task) -> list[tuple[str, tuple[str, ...]]]:
    """What an asymmetric critic sees, besides what every task of a robot has."""
    command = [(task.command.signal.name, task.command.signal.labels)] if task.command else []
    return [(seen.name, seen.labels) for seen in task.critic] + command
