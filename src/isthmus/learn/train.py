"""Train a policy: a loop that can be stopped at any moment and goes on as if it never had been.

Everything the next iteration depends on is in the checkpoint: network, optimiser, normalizers, generators, every
world's physics, the policy's memory, the curriculum. A run stopped and resumed gives the same numbers as one that
was not.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isthmus.errors import BadInput, Interrupted
from isthmus.files import atomic_write
from isthmus.learn import checkpoint
from isthmus.learn.actor import Actor, Shape
from isthmus.learn.ppo import Collector, Critic, Learner
from isthmus.learn.runs import Run, fill
from isthmus.tasks.env import Env


@dataclass(frozen=True)
class Progress:
    """Where training stands after an iteration."""

    iteration: int
    steps: int
    seconds: float
    fraction: float
    """Of the budget, 0 to 1."""
    level: str
    metrics: dict[str, float]


class Trainer:
    """The state of a training run between two iterations."""

    def __init__(self, run: Run):
        self.run, c = run, run.plan.settings
        seeds = np.random.SeedSequence(run.plan.seed).generate_state(3)
        torch.manual_seed(int(seeds[0]))
        self.generator = torch.Generator().manual_seed(int(seeds[1]))
        self.env = Env(run.task, c.worlds, seed=int(seeds[2]), belief=run.belief, dumps=run.folder / "blowups")
        shape = Shape.of(run.task, c.hidden, c.mirror)
        self.actor = Actor(shape, c.init_std)
        self.critic = Critic(self.env.critic_size, c.critic_hidden)
        self.collector = Collector(self.env, self.actor, self.critic, c, self.generator)
        self.learner = Learner(self.actor, self.critic, c, self.generator)
        self.iteration, self.steps, self.seconds = 0, 0, 0.0

    def iterate(self) -> dict[str, float]:
        started = time.perf_counter()
        batch, finished = self.collector.collect()
        collected = time.perf_counter()
        metrics = self.learner.update(batch)
        self.iteration += 1
        self.steps += len(batch.action)
        spent = time.perf_counter() - started
        self.seconds += spent
        metrics |= {"std": self.actor.log_std.exp().mean().item(), "level": float(self.env.curriculum.index)}
        metrics |= {"lost_worlds": float(self.env.worlds_lost)}
        metrics |= {"time/steps_per_second": len(batch.action) / spent, "time/collect": (collected - started) / spent}
        if finished:
            for name in finished[0]:
                if name != "e":
                    metrics[f"episode/{name}"] = float(np.concatenate([f[name] for f in finished]).mean())
        return metrics

    # Checkpoints ------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, np.ndarray]:
        out = {f"actor.{k}": v.numpy() for k, v in self.actor.state_dict().items()}
        out |= {f"critic.{k}": v.numpy() for k, v in self.critic.state_dict().items()}
        for i, slot in enumerate(self.learner.optimizer.state_dict()["state"].values()):
            out |= {f"optimizer.{i}.{k}": v.numpy() for k, v in slot.items()}
        out |= {f"memory.{k}": v.numpy() for k, v in self.collector.memory.items()}
        out |= {"observation": self.collector.observation.numpy(), "critic_input": self.collector.critic_input.numpy()}
        return out | {"generator": self.generator.get_state().numpy()} | {f"env.{k}": v for k, v in self.env.state().items()}

    def save(self) -> Path:
        path = self.run.folder / "checkpoints" / f"{self.iteration:06d}.safetensors"
        meta = {
            "iteration": self.iteration,
            "steps": self.steps,
            "seconds": self.seconds,
            "step_size": self.learner.step_size,
            "rng": self.env.rng.bit_generator.state,
            "run": self.run.origin,
        }
        checkpoint.write(path, self.arrays(), meta)
        checkpoint.prune(self.run.folder)
        return path

    def restore(self, path: Path) -> None:
        arrays, meta = checkpoint.read(path)
        if meta.get("run") != self.run.origin:
            raise BadInput(f"{path} is a checkpoint of another run.")
        try:
            fill(self.actor, arrays, "actor.")
            fill(self.critic, arrays, "critic.")
            self._restore_optimizer(arrays)
            part = {k.removeprefix("env."): v for k, v in arrays.items() if k.startswith("env.")}
            self.env.restore(part, meta["rng"])
            self.collector.memory = {k: torch.from_numpy(arrays[f"memory.{k}"].copy()) for k in self.collector.memory}
            self.collector.observation = torch.from_numpy(arrays["observation"].copy())
            self.collector.critic_input = torch.from_numpy(arrays["critic_input"].copy())
            self.generator.set_state(torch.from_numpy(arrays["generator"].copy()))
            self.iteration, self.steps, self.seconds = int(meta["iteration"]), int(meta["steps"]), float(meta["seconds"])
            self.learner.set_step_size(float(meta["step_size"]))
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise BadInput(f"{path} does not fit this run: {error}.") from None

    def _restore_optimizer(self, arrays: dict[str, np.ndarray]) -> None:
        own = self.learner.optimizer.state_dict()
        count = sum(len(g["params"]) for g in own["param_groups"])
        names = ("step", "exp_avg", "exp_avg_sq")
        if f"optimizer.0.{names[0]}" in arrays:
            own["state"] = {i: {k: torch.from_numpy(arrays[f"optimizer.{i}.{k}"].copy()) for k in names} for i in range(count)}
            self.learner.optimizer.load_state_dict(own)


def train(run: Run, resume: bool, report: Callable[[Progress], None], save_every: float = 15.0) -> Trainer:
    """Run to the end of the plan's budget, with a checkpoint every `save_every` seconds.

    Ctrl-C stops after the current iteration with everything saved.
    """
    plan = run.plan
    trainer = Trainer(run)
    if resume and checkpoint.all_in(run.folder):
        trainer.restore(checkpoint.newest(run.folder))
    with _log(run.folder, trainer.iteration) as log, _stop_requests() as stopped:
        last_save = time.perf_counter()
        if trainer.iteration == 0:
            trainer.save()
        while _fraction(plan, trainer) < 1.0:
            metrics = trainer.iterate()
            log(trainer, metrics)
            fraction = _fraction(plan, trainer)
            level = trainer.env.curriculum.level.name
            report(Progress(trainer.iteration, trainer.steps, trainer.seconds, fraction, level, metrics))
            if stopped() or fraction >= 1.0 or time.perf_counter() - last_save > save_every:
                trainer.save()
                last_save = time.perf_counter()
            if stopped() and fraction < 1.0:
                raise Interrupted(f"stopped at iteration {trainer.iteration}; go on with --resume.")
    return trainer


def _fraction(plan: Any, trainer: Trainer) -> float:
    """How much of the budget is used, 0 to 1."""
    parts = []
    if plan.steps:
        parts.append(trainer.steps / plan.steps)
    if plan.minutes:
        parts.append(trainer.seconds / (60 * plan.minutes))
    return min(max(parts), 1.0) if parts else 1.0


@contextmanager
def _stop_requests() -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C and termination into a request that the loop reads between iterations."""
    asked: list[int] = []
    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, lambda n, _: asked.append(n))
    except ValueError:
        pass  # Not the main thread: whoever runs us decides about signals.
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _log(folder: Path, iteration: int) -> Iterator[Callable[[Trainer, dict[str, float]], None]]:
    """Curves as text and for TensorBoard; rows after the checkpoint that we go on from are dropped."""
    from torch.utils.tensorboard import SummaryWriter

    rows = folder / "metrics.jsonl"
    kept: list[str] = []
    if rows.exists():
        for line in rows.read_text().splitlines():
            try:
                if json.loads(line)["iteration"] <= iteration:
                    kept.append(line)
            except (ValueError, KeyError, TypeError):
                continue
        atomic_write(rows, "".join(f"{line}\n" for line in kept).encode())
    writer = SummaryWriter(str(folder / "events"), purge_step=iteration + 1, flush_secs=10)
    with rows.open("a", buffering=1) as file:

        def log(trainer: Trainer, metrics: dict[str, float]) -> None:
            row = {"iteration": trainer.iteration, "steps": trainer.steps, "seconds": round(trainer.seconds, 3)} | metrics
            file.write(json.dumps(row) + "\n")
            for name, value in metrics.items():
                writer.add_scalar(name if "/" in name else f"train/{name}", value, trainer.iteration)

        try:
            yield log
        finally:
            writer.close()
