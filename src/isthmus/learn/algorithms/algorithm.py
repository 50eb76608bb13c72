"""A training run between two iterations, and its checkpoints.

Everything the next iteration depends on is in the checkpoint: networks, optimiser, normalizers, generators, every
world's physics, the policy's memory, the curriculum. A run stopped and resumed gives the same numbers as one that was
not.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from isthmus.core.errors import BadInput
from isthmus.learn import checkpoint
from isthmus.learn.algorithms.ppo import Collector, Critic, PPOUpdate
from isthmus.learn.policies.actor import Actor
from isthmus.learn.runs import Run, load_tensors
from isthmus.tasks.env import Env
from isthmus.tasks.samplers.sampler import Sampler


class Trainer:
    """What all methods have in common. A method says what it learns in `learn` and what else it keeps in `carried`."""

    optimizer: torch.optim.Optimizer

    def __init__(self, run: Run, sampler: Sampler | None = None):
        """`sampler` chooses the worlds; without one they are drawn from the run's belief."""
        self.run = run
        seeds = np.random.SeedSequence(run.config.seed).generate_state(3)
        torch.manual_seed(int(seeds[0]))
        self.generator = torch.Generator().manual_seed(int(seeds[1]))
        dumps = run.folder / "blowups"
        n = run.config.settings.worlds
        self.env = Env(run.task, n, seed=int(seeds[2]), belief=run.belief, dump_folder=dumps, sampler=sampler)
        self.actor = Actor(run.config.actor_spec(run.task), run.config.settings.init_std)
        self.modules: dict[str, nn.Module] = {"actor": self.actor}
        """Everything with weights or statistics, by name."""
        self.iteration, self.steps, self.seconds = 0, 0, 0.0

    def learn(self) -> tuple[dict[str, float], int, list[dict]]:
        """One iteration: what to log, the ticks it took, and the statistics of the episodes that ended in it."""
        raise AssertionError("a method defines this")

    def carried(self) -> dict[str, Tensor]:
        """Tensors that go from one iteration to the next."""
        raise AssertionError("a method defines this")

    def restore_carried(self, tensors: dict[str, Tensor]) -> None:
        raise AssertionError("a method defines this")

    @property
    def learning_rate(self) -> float:
        return self.optimizer.param_groups[0]["lr"]

    def iterate(self) -> dict[str, float]:
        started = time.perf_counter()
        metrics, steps, finished = self.learn()
        spent = time.perf_counter() - started
        self.iteration += 1
        self.steps += steps
        self.seconds += spent
        metrics |= {"level": float(self.env.curriculum.index), "lost_worlds": float(self.env.diverged_worlds)}
        metrics |= self.env.sampler.metrics()
        metrics["time/steps_per_second"] = steps / spent
        if finished:
            for name in finished[0]:
                if name != "e":
                    metrics[f"episode/{name}"] = float(np.concatenate([f[name] for f in finished]).mean())
        return metrics

    # Checkpoints ------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, np.ndarray]:
        out = {f"{name}.{k}": v.numpy() for name, module in self.modules.items() for k, v in module.state_dict().items()}
        for i, slot in self.optimizer.state_dict()["state"].items():
            out |= {f"optimizer.{i}.{k}": v.numpy() for k, v in slot.items()}
        out |= {f"carried.{k}": v.numpy() for k, v in self.carried().items()}
        return out | {"generator": self.generator.get_state().numpy()} | {f"env.{k}": v for k, v in self.env.state().items()}

    def save(self) -> Path:
        path = self.run.folder / "checkpoints" / f"{self.iteration:06d}.safetensors"
        meta = {
            "iteration": self.iteration,
            "steps": self.steps,
            "seconds": self.seconds,
            "step_size": self.learning_rate,
            "rng": self.env.rng.bit_generator.state,
            "run": self.run.initial_hash,
        }
        checkpoint.write(path, self.arrays(), meta)
        checkpoint.prune(self.run.folder)
        return path

    def restore(self, path: Path) -> None:
        arrays, meta = checkpoint.read(path)
        if meta.get("run") != self.run.initial_hash:
            raise BadInput(f"{path} is a checkpoint of another run.")
        try:
            for name, module in self.modules.items():
                load_tensors(module, arrays, f"{name}.")
            self._restore_optimizer(arrays)
            part = {k.removeprefix("env."): v for k, v in arrays.items() if k.startswith("env.")}
            self.env.restore(part, meta["rng"])
            self.restore_carried({k: torch.from_numpy(arrays[f"carried.{k}"].copy()) for k in self.carried()})
            self.generator.set_state(torch.from_numpy(arrays["generator"].copy()))
            self.iteration, self.steps, self.seconds = int(meta["iteration"]), int(meta["steps"]), float(meta["seconds"])
            self.set_learning_rate(float(meta["step_size"]))
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise BadInput(f"{path} does not fit this run: {error}.") from None

    def set_learning_rate(self, value: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = value

    def _restore_optimizer(self, arrays: dict[str, np.ndarray]) -> None:
        own = self.optimizer.state_dict()
        count = sum(len(g["params"]) for g in own["param_groups"])
        names = ("step", "exp_avg", "exp_avg_sq")
        stepped = [i for i in range(count) if f"optimizer.{i}.{names[0]}" in arrays]
        own["state"] = {i: {k: torch.from_numpy(arrays[f"optimizer.{i}.{k}"].copy()) for k in names} for i in stepped}
        self.optimizer.load_state_dict(own)


class PPOTrainer(Trainer):
    def __init__(self, run: Run, sampler: Sampler | None = None):
        super().__init__(run, sampler)
        c = run.config.settings
        self.env.critic_sees_e = c.critic_sees_e
        self.critic = Critic(self.env.critic_size if c.asymmetric_critic else self.actor.observation_size, c.critic_hidden)
        self.modules["critic"] = self.critic
        self.collector = Collector(self.env, self.actor, self.critic, c, self.generator)
        self.ppo_update = PPOUpdate(self.actor, self.critic, c, self.generator)
        self.optimizer = self.ppo_update.optimizer

    def load_base(self, base: Actor) -> None:
        """Take over the weights of the policy that this one corrects."""
        assert isinstance(self.actor.base, Actor)
        self.actor.base.load_state_dict(base.state_dict())
        self.collector.reset_memory()

    def learn(self) -> tuple[dict[str, float], int, list[dict]]:
        started = time.perf_counter()
        batch, finished = self.collector.collect()
        collected = time.perf_counter()
        metrics = self.ppo_update.update(batch)
        share = (collected - started) / (time.perf_counter() - started)
        return metrics | {"std": self.actor.log_std.exp().mean().item(), "time/collect": share}, len(batch.action), finished

    def carried(self) -> dict[str, Tensor]:
        c = self.collector
        return {"observation": c.observation, "critic_input": c.critic_input} | {f"memory.{k}": v for k, v in c.memory.items()}

    def restore_carried(self, tensors: dict[str, Tensor]) -> None:
        c = self.collector
        c.observation, c.critic_input = tensors["observation"], tensors["critic_input"]
        c.memory = {k: tensors[f"memory.{k}"] for k in c.memory}

    def set_learning_rate(self, value: float) -> None:
        self.ppo_update.set_learning_rate(value)
