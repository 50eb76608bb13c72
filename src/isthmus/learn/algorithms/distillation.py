"""From a teacher that is told e to a policy that finds out: roll out the student, ask the teacher, regress.

    student    min |π(x, φ(past)) - π_T(x, μ(e))|²    over φ and π: imitates what the teacher does (DAgger, Ross et al., 2011)
    rma        min |φ(past) - μ(e)|²                  over φ alone: finds out what the teacher is told (Kumar et al., 2021)

The states are those that the student itself gets into, and every mirror image counts as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from isthmus.core.errors import BadInput
from isthmus.learn.algorithms.algorithm import Trainer
from isthmus.learn.policies.actor import Actor, Memory, reset_memory
from isthmus.learn.policies.base_controller import check_robot
from isthmus.learn.policies.context import Estimator, PrivilegedEncoder, RecurrentHistory
from isthmus.learn.policies.networks import gradient_step
from isthmus.learn.policies.symmetry import Symmetric
from isthmus.learn.runs import Run
from isthmus.tasks.samplers.sampler import Sampler
from isthmus.tasks.task import Task, privileged_signals

Objective = Literal["student", "rma"]
LEARNING_RATE_HALVING_ITERATIONS = 50
"""Iterations after which the step size has halved; it goes on falling as 1 / iteration, down to a tenth."""


@dataclass
class DistillationRollout:
    """What one iteration saw, (ticks, n, …)."""

    observation: Tensor
    """The last few frames, as the policy observes them."""
    privileged: Tensor
    """What the teacher is told at the same moment."""
    earlier_frames: Tensor
    """Frames before the first tick that φ still looks back on, (n, H - 1, frame); none if φ has a memory …"""
    frames: Tensor
    """… and the newest frame of each tick, (ticks, n, frame)."""
    estimator_memory: Memory
    """Of φ, before the first tick."""
    episode_start: Tensor
    """1 where an episode began with this tick, (ticks, n, 1)."""

    def windows(self, ids: Tensor) -> Tensor:
        """What φ saw in some worlds, (ticks, k, H, frame); the first frame of an episode stands for all before it."""
        strip = torch.cat([self.earlier_frames[ids], self.frames[:, ids].transpose(0, 1)], dim=1)
        ticks, before = len(self.frames), self.earlier_frames.shape[1]
        at = torch.arange(ticks)[:, None] + torch.arange(before + 1)
        begun = torch.where(self.episode_start[:, ids, 0] > 0.5, before + torch.arange(ticks)[:, None], 0).cummax(0).values
        rows = torch.arange(len(ids))[None, :, None]
        return strip[rows, torch.maximum(at[:, None], begun[:, :, None])]


class DistillationTrainer(Trainer):
    """Trains the estimator φ of `actor`, and for a student its body too, under `teacher`."""

    def __init__(self, run: Run, sampler: Sampler | None = None):
        super().__init__(run, sampler)
        plan = run.config
        self.objective: Objective = "rma" if plan.method == "rma" else "student"
        self.env.to_last_level()
        told = replace(plan, context=replace(plan.context, source="privileged"))
        self.teacher = Actor(told.actor_spec(run.task)).eval().requires_grad_(False)
        self.modules["teacher"] = self.teacher
        self.parameters = [*self.estimator.net.parameters()]
        if self.objective == "student":
            self.parameters += self.actor.body.parameters()
        self.optimizer = torch.optim.Adam(self.parameters, lr=plan.settings.learning_rate, fused=True)
        self.memory = self.actor.memory(self.env.n)
        self.episode_start = torch.ones(self.env.n, 1)
        self._observe()

    @property
    def estimator(self) -> Estimator:
        assert self.actor.estimator is not None
        return self.actor.estimator

    def initialize_from(self, teacher: Actor) -> None:
        """Take over a teacher: as the one to ask, and its policy and statistics as the student's first."""
        self.teacher.load_state_dict(teacher.state_dict())
        self.actor.body.load_state_dict(teacher.body.state_dict())
        k, f = self.actor.history_size, self.actor.frame_size
        with torch.no_grad():
            for name in ("mean", "var"):
                statistics = getattr(teacher.normalize, name)
                getattr(self.actor.normalize, name)[:k] = statistics[:k]
                getattr(self.estimator.normalize, name)[:] = statistics[k - f : k]
            self.actor.log_std.copy_(teacher.log_std)
        self.memory = self.actor.memory(self.env.n)
        self._observe()

    def _observe(self) -> None:
        """Observe the present and note what the teacher would be told."""
        with torch.no_grad():
            self.estimator_memory = {name: self.memory[name] for name in self.estimator.memory(1)}
            self.observation, self.memory = self.actor.observe(self.env.signals(), self.memory)
            told = self.env.privileged()
            self.privileged = torch.cat([told[s.name] for s in self.teacher.spec.privileged], dim=1)

    # One iteration ----------------------------------------------------------------------------------------------

    def learn(self) -> tuple[dict[str, float], int, list[dict]]:
        c = self.run.config.settings
        self.set_learning_rate(c.learning_rate * max(0.1, 1.0 / (1.0 + self.iteration / LEARNING_RATE_HALVING_ITERATIONS)))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            rollout, finished = self._collect(c.rollout_ticks)
        finally:
            torch.set_num_threads(threads)
        metrics = self._update(rollout)
        return metrics | {"step_size": self.learning_rate}, c.rollout_ticks * self.env.n, finished

    @torch.no_grad()
    def _collect(self, ticks: int) -> tuple[DistillationRollout, list[dict]]:
        env, actor, n = self.env, self.actor, self.env.n
        before = self.estimator.frames - 1
        rollout = DistillationRollout(
            observation=torch.empty(ticks, n, actor.history_size),
            privileged=torch.empty(ticks, n, self.privileged.shape[1]),
            earlier_frames=self.memory["frames"][:, -1 - before : -1].clone()
            if before
            else torch.empty(n, 0, actor.frame_size),
            frames=torch.empty(ticks, n, actor.frame_size),
            estimator_memory={k: v.clone() for k, v in self.estimator_memory.items()},
            episode_start=torch.empty(ticks, n, 1),
        )
        finished: list[dict] = []
        for t in range(ticks):
            rollout.observation[t], rollout.privileged[t] = self.observation[:, : actor.history_size], self.privileged
            rollout.frames[t], rollout.episode_start[t] = self.memory["frames"][:, -1], self.episode_start
            action = actor.act(self.observation)
            step = env.step(actor.target(action, self.memory))
            done = step.terminated | step.timed_out
            self.memory = actor.remember(self.memory, action)
            if done.any():
                reset_memory(self.memory, done)
                finished.append(step.finished)
            self.episode_start = done.float()[:, None]
            self._observe()
        return rollout, finished

    def _update(self, rollout: DistillationRollout) -> dict[str, float]:
        """Passes over the iteration in groups of worlds, so that a memory can be followed through time."""
        c, n = self.run.config.settings, self.env.n
        ticks = len(rollout.observation)
        worlds = max(1, c.minibatch_size // ticks)
        total, count = 0.0, 0
        for _ in range(c.epochs):
            for ids in torch.randperm(n, generator=self.generator).split(worlds):
                loss = self._loss(rollout, ids)
                gradient_step(loss, self.optimizer, self.parameters, c.max_grad_norm)
                total, count = total + loss.item(), count + 1
        return {f"{self.objective}_loss": total / count}

    def _loss(self, rollout: DistillationRollout, ids: Tensor) -> Tensor:
        seen, told = (x[:, ids].flatten(0, 1) for x in (rollout.observation, rollout.privileged))
        z = self._estimates(rollout, ids).flatten(0, 1)
        with torch.no_grad():
            wanted = self.teacher.normalize(torch.cat([seen, told], dim=1))
            answer = teacher_latent(self.teacher, wanted) if self.objective == "rma" else self.teacher.net(wanted)
        if self.objective == "rma":
            return (z - answer).square().mean()
        # ẑ is not normalised, so it may follow what is.
        x = torch.cat([self.actor.normalize(torch.cat([seen, z], dim=1))[:, : self.actor.history_size], z], dim=1)
        return (self.actor.net(x) - answer).square().mean()

    def _estimates(self, rollout: DistillationRollout, ids: Tensor) -> Tensor:
        """ẑ of some worlds at all ticks, (ticks, k, outputs), with gradients back to the first tick."""
        phi, past = self.estimator, rollout.windows(ids)
        memory = {name: value[ids] for name, value in rollout.estimator_memory.items()}
        if phi.context.update_ticks == 1:
            # All worlds and ticks at once; worlds come first, because their mirror images follow them.
            worlds = phi.with_mirror_images(past.transpose(0, 1))
            if isinstance(phi.net, RecurrentHistory):
                fresh = rollout.episode_start[:, ids].repeat(1, phi.sides, 1)
                z = phi.net.estimate(
                    phi.net.unroll(worlds[:, :, -1].transpose(0, 1), phi.sides_as_rows(memory["hidden"]), fresh)
                )
            else:
                z = phi.net(worlds.flatten(0, 1)).view(*worlds.shape[:2], -1).transpose(0, 1)
            return torch.cat(z.chunk(phi.sides, dim=1), dim=2)
        out = []
        for frames, fresh in zip(past, rollout.episode_start[:, ids], strict=True):
            memory = {name: value * (1 - fresh) for name, value in memory.items()}
            z, memory = phi(frames, memory)
            out.append(z)
        return torch.stack(out)

    # Checkpoints ------------------------------------------------------------------------------------------------

    def carried(self) -> dict[str, Tensor]:
        own = {"observation": self.observation, "told": self.privileged, "fresh": self.episode_start}
        own |= {f"before.{k}": v for k, v in self.estimator_memory.items()}
        return own | {f"memory.{k}": v for k, v in self.memory.items()}

    def restore_carried(self, tensors: dict[str, Tensor]) -> None:
        self.observation, self.privileged, self.episode_start = (tensors[k] for k in ("observation", "told", "fresh"))
        self.estimator_memory = {k: tensors[f"before.{k}"] for k in self.estimator_memory}
        self.memory = {k: tensors[f"memory.{k}"] for k in self.memory}


def teacher_latent(teacher: Actor, x: Tensor) -> Tensor:
    """μ of normalised observations, (n, inputs), laid out as an estimator's ẑ."""
    told = teacher.net_without_symmetry
    assert isinstance(told, PrivilegedEncoder)
    z = told.encoder(x[:, told.observation_size :])
    if not isinstance(teacher.net, Symmetric):
        return z
    return torch.cat([z, told.encoder(teacher.net.reflect(x)[:, told.observation_size :])], dim=1)


def check_teacher(teacher: Run, task: Task) -> None:
    """Raise BadInput unless the run can teach a student of the task."""
    where, own = f"the teacher {teacher.folder}", teacher.task
    check_robot(teacher, task, where)
    if teacher.config.context.source != "privileged":
        raise BadInput(f"{where} is not a teacher: its method was {teacher.config.method!r}; train one with --method teacher.")
    if own.policy != task.policy or privileged_signals(own) != privileged_signals(task):
        raise BadInput(f"{where} observes or acts in another way than {task.name}; a teacher of {task.name} is needed.")
