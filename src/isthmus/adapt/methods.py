"""The ways to learn, by name: what each one's policy knows, and who trains it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from isthmus.adapt import sampling
from isthmus.adapt.distill import Distiller, check_teacher
from isthmus.adapt.sampling import sampler_of
from isthmus.errors import BadInput
from isthmus.learn import checkpoint, runs
from isthmus.learn.actor import Actor
from isthmus.learn.context import Context
from isthmus.learn.finetune import FineTuner
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


@dataclass(frozen=True)
class Parents:
    """What a run is made from, beside its task and belief."""

    teacher: Run | None = None
    """Whom a student or rma learns from."""
    base: Actor | None = None
    """Weights of the policy that this one corrects."""
    start: Run | None = None
    """Whose policy is fine-tuned."""
    failures: Belief | None = None
    """Worlds known to fail, to revisit."""


def begin(folder: Path, plan: Plan, task: Task, belief: Belief, parents: Parents, work: Work) -> Trainer:
    """Train a new run; whatever does not fit is found before anything is written."""
    plan.shape(task)
    sampling.check(plan, belief)
    make = lambda p: sampling.create(folder, p, task, belief, parents.failures)  # noqa: E731
    if parents.start is not None:
        load_actor(parents.start)
        tuner = trainer_of(make(replace(plan, parent=runs.seedless_hash(parents.start))))
        assert isinstance(tuner, FineTuner)
        tuner.adopt(parents.start)
        return _train(tuner, work)
    if not plan.context.estimated:
        trainer = trainer_of(make(plan))
        if parents.base is not None:
            assert isinstance(trainer, PPOTrainer)
            trainer.take_base(parents.base)
        return _train(trainer, work)
    teacher = parents.teacher
    if teacher is not None:
        check_teacher(teacher, task)
        load_actor(teacher)
        return _taught(make(replace(plan, teacher=teacher.origin, parent=runs.seedless_hash(teacher))), teacher, work)
    if plan.method == "student":
        raise BadInput("a student needs a teacher: give --teacher RUN, made with --method teacher.")
    runs.check_free(folder)
    own = replace(plan, method="teacher", context=replace(plan.context, source="privileged"), revisit=0.0)
    teacher = runs.create(folder / OWN, _share(own, TEACHING), task, belief)
    run = make(replace(_share(plan, 1 - TEACHING), teacher=teacher.origin, parent=runs.seedless_hash(teacher)))
    _train(trainer_of(teacher), work)
    return _taught(run, teacher, work)


def resume(folder: Path, steps: int, minutes: float, work: Work) -> Trainer:
    """Go on with a run exactly where it was; a new budget may be given."""
    run = runs.load(folder)
    run = _extended(run, steps, minutes) if steps or minutes else run
    base = run.plan.base
    if (run.plan.start or (base and base.plan)) and not checkpoint.all_in(folder):
        raise BadInput(f"{folder} was stopped before the policy under it was taken over; delete it and start again.")
    if run.plan.context.estimated and not checkpoint.all_in(folder):
        if not (folder / OWN / "run.json").exists():
            raise BadInput(f"{folder} was stopped before its teacher was taken over; delete it and start again.")
        own = runs.load(folder / OWN)
        if own.origin != run.plan.teacher:
            raise BadInput(f"{folder / OWN} is not the teacher that {folder} was started with.")
        _train(_found(own), work)
        return _taught(run, own, work)
    return _train(_found(run), work)


def _extended(run: Run, steps: int, minutes: float) -> Run:
    """The run with another budget. One that trains its own teacher shares it with that as at the beginning, or, if the teacher
    is done, gets what is left of it."""
    folder = run.folder / OWN
    if not (folder / "run.json").exists():
        return runs.extend(run, steps, minutes)
    own = runs.load(folder)
    if checkpoint.all_in(run.folder):
        spent = (own.plan.steps, own.plan.minutes)
        left = (max(steps - spent[0], 0), max(minutes - spent[1], 0.0))
        return runs.extend(run, *left) if any(left) else run
    runs.extend(own, round(steps * TEACHING), minutes * TEACHING)
    return runs.extend(run, round(steps * (1 - TEACHING)), minutes * (1 - TEACHING))


def _train(trainer: Trainer, work: Work) -> Trainer:
    try:
        work(trainer)
    finally:
        sampling.keep(trainer)
    return trainer


def _taught(run: Run, teacher: Run, work: Work) -> Trainer:
    trainer = Distiller(run, sampler_of(run))
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
    if run.plan.start:
        return FineTuner(run, sampler_of(run))
    kind = Distiller if run.plan.context.estimated else PPOTrainer
    return kind(run, sampler_of(run))
