"""The ways to learn, by name: what each one's policy knows, and who trains it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from isthmus.adapt.distill import Distiller, check_teacher
from isthmus.errors import BadInput
from isthmus.learn import checkpoint, runs
from isthmus.learn.context import Context
from isthmus.learn.runs import Plan, Run, load_actor
from isthmus.learn.trainer import PPOTrainer, Trainer
from isthmus.tasks.task import Task
from isthmus.world import Belief

METHODS = {
    "ppo": "one policy for all worlds, which ignores e",
    "teacher": "a policy that is told e: the upper bound, and the teacher of the next two",
    "student": "finds out from its own past what to do, by imitating a teacher",
    "rma": "finds out from its own past what a teacher is told, and acts as the teacher does",
}


TEACHING = 0.6
"""Part of the budget that goes to the teacher, where a run trains its own."""
OWN = "teacher"
"""Folder inside a run for a teacher of its own."""

Work = Callable[[Trainer], None]
"""Trains to the end of the budget."""


def context_of(method: str, memory: str, history: float, every: int, teacher: Run | None) -> Context:
    """What the policy of a method knows of its world."""
    if method == "ppo":
        return Context()
    if method == "teacher":
        return Context("privileged")
    told = teacher.plan.context if teacher else Context()
    return replace(told, source=memory, history=history, every=every)  # type: ignore[arg-type]


def begin(folder: Path, plan: Plan, task: Task, belief: Belief, work: Work, teacher: Run | None = None) -> Trainer:
    """Train a new run; whatever does not fit is found before anything is written."""
    plan.shape(task)
    if not plan.context.estimated:
        return _train(trainer_of(runs.create(folder, plan, task, belief)), work)
    if teacher is None:
        if plan.method == "student":
            raise BadInput("a student needs a teacher: give --teacher RUN, made with --method teacher.")
        runs.check_free(folder)
        mine = replace(plan, method="teacher", context=replace(plan.context, source="privileged"))
        own = runs.create(folder / OWN, _share(mine, TEACHING), task, belief)
        run = runs.create(folder, replace(_share(plan, 1 - TEACHING), teacher=own.origin), task, belief)
        _train(trainer_of(own), work)
        return _taught(run, own, work)
    check_teacher(teacher, task)
    load_actor(teacher)
    return _taught(runs.create(folder, replace(plan, teacher=teacher.origin), task, belief), teacher, work)


def resume(folder: Path, steps: int, minutes: float, work: Work) -> Trainer:
    """Go on with a run exactly where it was; a new budget may be given."""
    run = runs.load(folder)
    run = runs.extend(run, steps, minutes) if steps or minutes else run
    if run.plan.context.estimated and not checkpoint.all_in(folder):
        if not (folder / OWN / "run.json").exists():
            raise BadInput(f"{folder} was stopped before its teacher was taken over; delete it and start again.")
        own = runs.load(folder / OWN)
        _train(_found(own), work)
        return _taught(run, own, work)
    return _train(_found(run), work)


def _train(trainer: Trainer, work: Work) -> Trainer:
    work(trainer)
    return trainer


def _taught(run: Run, teacher: Run, work: Work) -> Trainer:
    trainer = Distiller(run)
    trainer.adopt(load_actor(teacher))
    return _train(trainer, work)


def _found(run: Run) -> Trainer:
    trainer = trainer_of(run)
    if checkpoint.all_in(run.folder):
        trainer.restore(checkpoint.newest(run.folder))
    return trainer


def _share(plan: Plan, part: float) -> Plan:
    return replace(plan, steps=round(plan.steps * part), minutes=plan.minutes * part)


def trainer_of(run: Run) -> Trainer:
    return Distiller(run) if run.plan.context.estimated else PPOTrainer(run)
