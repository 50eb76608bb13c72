"""Train a policy over thousands of worlds, and evaluate it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from isthmus.core.errors import BadInput
from isthmus.core.progress import Progress, silent, sub_progress
from isthmus.core.results import Result
from isthmus.learn import run_samplers, runs, training
from isthmus.learn.algorithms.algorithm import Trainer
from isthmus.learn.evaluate.evaluate import Evaluation, evaluate_actor
from isthmus.learn.run_plan import TrainOptions, plan_run
from isthmus.learn.runs import Run
from isthmus.learn.training_loop import TrainingProgress, run_training_loop
from isthmus.tasks.samplers.adr import ParameterRangeReached
from isthmus.tasks.task import Task

if TYPE_CHECKING:
    from isthmus.robots.dynamics import DynamicsSource

EVALUATION_WORLDS = 200
EVALUATION_PROGRESS = 0.97
"""Where the bar stands when training ends and the evaluation begins."""


@dataclass(frozen=True)
class TrainResult(Result, kind="train"):
    run: str
    """Folder of the run."""
    run_hash: str
    belief_hash: str
    task: str
    method: str
    steps: int
    """Control ticks over all worlds."""
    seconds: float
    """Training time, s; the evaluation is not counted."""
    level: str
    """Level of the curriculum that was reached."""
    evaluation: Evaluation
    """In fresh worlds of the run's belief."""
    reached_ranges: tuple[ParameterRangeReached, ...] = ()
    """Ranges that automatic randomization (adr) reached, widest first."""


def train(
    task: str | Task,
    out: Path | str,
    *,
    method: str = "ppo",
    dynamics: DynamicsSource | None = None,
    width: float = 1.0,
    teacher: Run | Path | str | None = None,
    memory: Literal["convolution", "recurrent"] = "recurrent",
    history: float = 1.0,
    update_ticks: int = 1,
    base: Path | str | None = None,
    residual_scale: float = 0.5,
    start: Run | Path | str | None = None,
    max_kl: float = 0.05,
    blind_critic: bool = False,
    adr: bool = False,
    revisit_fraction: float = 0.0,
    failures: Sequence[Path | str] = (),
    worlds: int = 0,
    minutes: float = 0.0,
    steps: int = 0,
    seed: int = 0,
    save_every: float = 15.0,
    resume: bool = False,
    progress: Progress = silent,
) -> TrainResult:
    """Train a policy for a task into the folder `out`, or go on with the run in it, and evaluate it in 200 fresh worlds.

    method            ppo, teacher, student or rma
    dynamics          worlds: a belief or a twin, loaded or as a file; by default the robot's prior
    width             scale factor of the ranges around nominal (1 = as given, 0 = the nominal world alone)
    teacher           run that a student or rma imitates; rma trains its own without one
    memory, history   how a student or rma looks back: recurrent, or a convolution over `history` seconds
    update_ticks      ticks from one estimate of the world to the next
    base              controller that the policy corrects: a run folder, or a TOML file with a linear law
    residual_scale    with base, part of the task's action scale that the correction may use, above 0 and up to 1
    start             run to fine-tune, within max_kl nats per action (0: no bound)
    blind_critic      the critic sees only what the policy observes
    adr               begin near nominal and widen each parameter's range as far as the policy copes
    revisit_fraction  share of episodes in worlds where the policy failed before; 0.3 if only `failures` are given
    failures          files with worlds known to fail: beliefs, twins, recordings that know their e
    minutes, steps    budget; without either the task's own. A resumed run may get a new one
    save_every        seconds between checkpoints
    resume            go on with the run in `out`, bit for bit as if never stopped
    """
    out = Path(out)
    options = TrainOptions(
        *(method, dynamics, width, teacher, memory, history, update_ticks, base, residual_scale, start, max_kl),
        *(blind_critic, adr, revisit_fraction, tuple(failures), worlds, minutes, steps, seed),
    )
    if not 0 <= save_every < math.inf:
        raise BadInput("save_every must be a finite number, not negative.")

    def training_loop(trainer: Trainer) -> None:
        run_training_loop(trainer, lambda p: progress(EVALUATION_PROGRESS * p.fraction, _note(trainer, p)), save_every)

    if resume:
        options.check_resume()
        _check_task(task, out)
        trainer = training.resume(out, steps, minutes, training_loop)
    else:
        trainer = training.train(out, *plan_run(task, options), training_loop)
    run, evaluation_progress = trainer.run, sub_progress(progress, EVALUATION_PROGRESS, 1.0)
    evaluation = evaluate_actor(
        run.task,
        trainer.actor.eval(),
        EVALUATION_WORLDS,
        run.config.seed + 1,
        run.belief,
        lambda fraction, note="", /: evaluation_progress(fraction, "evaluating"),
    )
    return TrainResult(
        run=str(out),
        run_hash=run.record["hash"],
        belief_hash=run.belief.hash,
        task=run.config.task,
        method=run.config.method,
        steps=trainer.steps,
        seconds=trainer.seconds,
        level=trainer.env.curriculum.level.name,
        evaluation=replace(evaluation, run=str(out), inputs={"run": run.record["hash"], "belief": run.belief.hash}),
        reached_ranges=tuple(run_samplers.reached_ranges(trainer)),
    )


def _note(trainer: Trainer, p: TrainingProgress) -> str:
    """Method, level, score and speed in a few words."""
    score, method = p.metrics.get("episode/score"), trainer.run.config.method
    parts = [*([] if method == "ppo" else [method]), f"[{p.level}]", *([] if score is None else [f"score {score:.2f}"])]
    return " ".join(parts) + f", {p.metrics['time/steps_per_second'] / 1e3:.1f}k ticks/s"


def _check_task(task: str | Task, out: Path) -> None:
    """Raise BadInput unless the run in the folder is one of the task, where one is named."""
    name, trained = task if isinstance(task, str) else task.name, runs.load(out).config.task
    if name and name != trained:
        raise BadInput(f"{out} is a run of {trained}, not of {name}.")
