"""Time to learn: seconds of training until an evaluation over fresh worlds meets the task's goal, per seed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from isthmus.learn import runs
from isthmus.learn.algorithms.algorithm import PPOTrainer
from isthmus.learn.evaluate.evaluate import Evaluation, evaluate_actor
from isthmus.learn.recipes import budget_minutes, recipe
from isthmus.tasks.catalogue import get_task

WORLDS = 500
LIMIT = 3.0
"""Give up after this many times the task's own budget."""


@dataclass(frozen=True)
class Goal:
    text: str
    met: Callable[[Evaluation], bool]


GOALS = {
    "go1/walk": Goal(
        "velocity error < 0.25 m/s, falls < 2 %",
        lambda e: e.metrics["velocity_error"].value < 0.25 and e.falls.rate < 0.02,
    ),
    "crazyflie/hover": Goal("success ≥ 90 %", lambda e: e.success.rate >= 0.9),
    "pendulum/swingup": Goal("success ≥ 90 %", lambda e: e.success.rate >= 0.9),
    "cartpole/balance": Goal("success ≥ 90 %", lambda e: e.success.rate >= 0.9),
}


@dataclass(frozen=True)
class Learnt:
    task: str
    seed: int
    seconds: float | None
    """Training time to the goal, evaluation not counted; None if it was not met."""
    steps: int
    final: Evaluation
    """Evaluation on yet other worlds when training ended: at the task's own budget, or at the goal if that was later."""


def learn(task_name: str, seed: int, check_every: float) -> Learnt:
    task, goal = get_task(task_name), GOALS[task_name]
    with tempfile.TemporaryDirectory() as folder:
        run = runs.create(
            Path(folder) / "run", runs.RunConfig(task_name, seed=seed, settings=recipe(task_name)), task, task.robot.prior
        )
        trainer = PPOTrainer(run)
        reached, steps, next_check = None, 0, check_every
        limit = 60 * budget_minutes(task_name)
        while trainer.seconds < limit * LIMIT:
            trainer.iterate()
            last_level = trainer.env.curriculum.index == len(task.levels) - 1
            if reached is None and last_level and trainer.seconds >= next_check:
                result = evaluate_actor(task, trainer.actor, WORLDS, seed=10_000 + seed)
                next_check = trainer.seconds + check_every
                # Asking often finds a lucky moment in the end: other worlds must agree.
                if goal.met(result) and goal.met(evaluate_actor(task, trainer.actor, WORLDS, seed=30_000 + seed)):
                    reached, steps = trainer.seconds, trainer.steps
            if trainer.seconds >= limit and (reached is not None or trainer.seconds >= limit * LIMIT):
                break
        return Learnt(task_name, seed, reached, steps, evaluate_actor(task, trainer.actor, WORLDS, seed=20_000 + seed))


def measure(names: list[str] | None, seeds: int) -> list[Learnt]:
    found = []
    for name in names or GOALS:
        for seed in range(seeds):
            started = time.perf_counter()
            check = 10.0 if budget_minutes(name) > 1 else 3.0
            found.append(learn(name, seed, check))
            got = found[-1]
            said = "not reached" if got.seconds is None else f"{got.seconds:.0f} s"
            print(f"{name} seed {seed}: goal after {said} ({time.perf_counter() - started:.0f} s in all)", flush=True)
    return found


def table(found: list[Learnt]) -> list[str]:
    lines = [
        "| task | goal | seed | seconds to goal | million ticks | after the recipe's budget |",
        "|---|---|---|---|---|---|",
    ]
    for f in found:
        said = "not reached" if f.seconds is None else f"{f.seconds:.0f}"
        metrics = ", ".join(f"{k.replace('_', ' ')} {m:.3f}" for k, (m, _) in f.final.metrics.items())
        rate = f.final.success
        interval = f"{100 * rate.rate:.1f} % ({100 * rate.low:.1f} to {100 * rate.high:.1f})"
        result = f"success {interval}, failed {100 * f.final.falls.rate:.1f} %, {metrics}"
        lines.append(f"| {f.task} | {GOALS[f.task].text} | {f.seed} | {said} | {f.steps / 1e6:.2f} | {result} |")
    return lines
