"""The ways to learn, by name: what each one's policy knows, and who trains it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from isthmus.core.errors import BadInput
from isthmus.learn import checkpoint, run_samplers, runs
from isthmus.learn.algorithms.algorithm import PPOTrainer, Trainer
from isthmus.learn.algorithms.distillation import DistillationTrainer, check_teacher
from isthmus.learn.algorithms.finetune import FineTuneTrainer
from isthmus.learn.policies.actor import Actor
from isthmus.learn.policies.context import Context
from isthmus.learn.run_samplers import make_sampler
from isthmus.learn.runs import Run, RunConfig, load_actor
from isthmus.tasks.task import Task
from isthmus.world import Belief

METHODS = {
    "ppo": "one policy for all worlds, which ignores e",
    "teacher": "a policy that is told e: the upper bound, and the teacher of the next two",
    "student": "finds out from its own past what to do, by imitating a teacher",
    "rma": "finds out from its own past what a teacher is told, and acts as the teacher does",
}


TEACHER_BUDGET_FRACTION = 0.6
"""Part of the budget that goes to the teacher, where a run trains its own."""
TEACHER_FOLDER = "teacher"
"""Folder inside a run for a teacher of its own."""

TrainingLoop = Callable[[Trainer], None]
"""Trains to the end of the budget."""


def make_context(method: str, memory: str, history: float, every: int, teacher: Run | None) -> Context:
    """What the policy of a method knows of its world."""
    if method == "ppo":
        return Context()
    if method == "teacher":
        return Context("privileged")
    told = teacher.config.context if teacher else Context()
    return replace(told, source=memory, history=history, update_ticks=every)  # type: ignore[arg-type]


@dataclass(frozen=True)
class TrainingInputs:
    """What a run is made from, beside its task and belief."""

    teacher: Run | None = None
    """Whom a student or rma learns from."""
    base: Actor | None = None
    """Weights of the policy that this one corrects."""
    initial_run: Run | None = None
    """Whose policy is fine-tuned."""
    failures: Belief | None = None
    """Worlds known to fail, to revisit."""


def train(
    folder: Path, config: RunConfig, task: Task, belief: Belief, inputs: TrainingInputs, training_loop: TrainingLoop
) -> Trainer:
    """Train a new run; whatever does not fit is found before anything is written."""
    config.actor_spec(task)
    run_samplers.check_sampler_config(config, belief)
    make = lambda p: run_samplers.create_run(folder, p, task, belief, inputs.failures)  # noqa: E731
    if inputs.initial_run is not None:
        load_actor(inputs.initial_run)
        tuner = make_trainer(make(replace(config, parent=runs.experiment_hash(inputs.initial_run))))
        assert isinstance(tuner, FineTuneTrainer)
        tuner.initialize_from(inputs.initial_run)
        return _run_loop(tuner, training_loop)
    if not config.context.estimated:
        trainer = make_trainer(make(config))
        if inputs.base is not None:
            assert isinstance(trainer, PPOTrainer)
            trainer.load_base(inputs.base)
        return _run_loop(trainer, training_loop)
    teacher = inputs.teacher
    if teacher is not None:
        check_teacher(teacher, task)
        load_actor(teacher)
        return _train_student(
            make(replace(config, teacher=teacher.initial_hash, parent=runs.experiment_hash(teacher))), teacher, training_loop
        )
    if config.method == "student":
        raise BadInput("a student needs a teacher: give the run of one, made with method teacher.")
    runs.check_new_folder(folder)
    own = replace(config, method="teacher", context=replace(config.context, source="privileged"), revisit_fraction=0.0)
    teacher = runs.create(folder / TEACHER_FOLDER, _scale_budget(own, TEACHER_BUDGET_FRACTION), task, belief)
    run = make(
        replace(
            _scale_budget(config, 1 - TEACHER_BUDGET_FRACTION),
            teacher=teacher.initial_hash,
            parent=runs.experiment_hash(teacher),
        )
    )
    _run_loop(make_trainer(teacher), training_loop)
    return _train_student(run, teacher, training_loop)


def resume(folder: Path, steps: int, minutes: float, training_loop: TrainingLoop) -> Trainer:
    """Go on with a run exactly where it was; a new budget may be given."""
    run = runs.load(folder)
    run = _with_budget(run, steps, minutes) if steps or minutes else run
    base = run.config.base
    if (run.config.initial_run or (base and base.config)) and not checkpoint.list_checkpoints(folder):
        raise BadInput(f"{folder} was stopped before the policy under it was taken over; delete it and start again.")
    if run.config.context.estimated and not checkpoint.list_checkpoints(folder):
        if not (folder / TEACHER_FOLDER / "run.json").exists():
            raise BadInput(f"{folder} was stopped before its teacher was taken over; delete it and start again.")
        own = runs.load(folder / TEACHER_FOLDER)
        if own.initial_hash != run.config.teacher:
            raise BadInput(f"{folder / TEACHER_FOLDER} is not the teacher that {folder} was started with.")
        _run_loop(_restored_trainer(own), training_loop)
        return _train_student(run, own, training_loop)
    return _run_loop(_restored_trainer(run), training_loop)


def _with_budget(run: Run, steps: int, minutes: float) -> Run:
    """The run with another budget. One that trains its own teacher shares it with that as at the beginning, or, if the teacher
    is done, gets what is left of it."""
    folder = run.folder / TEACHER_FOLDER
    if not (folder / "run.json").exists():
        return runs.set_budget(run, steps, minutes)
    own = runs.load(folder)
    if checkpoint.list_checkpoints(run.folder):
        spent = (own.config.steps, own.config.minutes)
        left = (max(steps - spent[0], 0), max(minutes - spent[1], 0.0))
        return runs.set_budget(run, *left) if any(left) else run
    runs.set_budget(own, round(steps * TEACHER_BUDGET_FRACTION), minutes * TEACHER_BUDGET_FRACTION)
    return runs.set_budget(run, round(steps * (1 - TEACHER_BUDGET_FRACTION)), minutes * (1 - TEACHER_BUDGET_FRACTION))


def _run_loop(trainer: Trainer, training_loop: TrainingLoop) -> Trainer:
    try:
        training_loop(trainer)
    finally:
        run_samplers.save_reached_ranges(trainer)
    return trainer


def _train_student(run: Run, teacher: Run, training_loop: TrainingLoop) -> Trainer:
    trainer = DistillationTrainer(run, make_sampler(run))
    trainer.initialize_from(load_actor(teacher))
    return _run_loop(trainer, training_loop)


def _restored_trainer(run: Run) -> Trainer:
    trainer = make_trainer(run)
    if checkpoint.list_checkpoints(run.folder):
        trainer.restore(checkpoint.newest(run.folder))
    return trainer


def _scale_budget(config: RunConfig, fraction: float) -> RunConfig:
    return replace(config, steps=round(config.steps * fraction), minutes=config.minutes * fraction)


def make_trainer(run: Run) -> Trainer:
    if run.config.initial_run:
        return FineTuneTrainer(run, make_sampler(run))
    kind = DistillationTrainer if run.config.context.estimated else PPOTrainer
    return kind(run, make_sampler(run))
