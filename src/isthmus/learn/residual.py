"""The controller that a policy corrects, from where the user keeps it: a run folder, or a file with a law."""

from __future__ import annotations

from pathlib import Path

from isthmus.errors import BadInput
from isthmus.learn import runs
from isthmus.learn.actor import Actor
from isthmus.learn.law import check_law, read_law
from isthmus.learn.runs import Base, Run
from isthmus.learn.shape import sensed
from isthmus.tasks.task import Task


def read_base(path: Path, task: Task, share: float) -> tuple[Base, Actor | None]:
    """The base for a policy of the task, and its weights if it is a policy itself."""
    if not path.is_dir():
        law = read_law(path, task.robot.name)
        check_law(law, sensed(task.robot.contract, task), task.robot.contract.target, str(path))
        return Base(law=law, share=share), None
    run = runs.load(path)
    where = f"the base {path}"
    check_robot(run, task, where)
    if run.plan.context.source == "privileged":
        raise BadInput(f"{where} is a teacher: no robot can tell it e. A student or rma of it can be a base.")
    return Base(plan=run.plan, run=run.origin, share=share), runs.load_actor(run)


def check_robot(run: Run, task: Task, where: str) -> None:
    """Raise BadInput unless the run was made with the task's robot and Space."""
    own, robot = run.task.robot, task.robot
    if own.name != robot.name:
        raise BadInput(f"{where} was trained for {own.name}, not for {robot.name}.")
    if own.space.hash != robot.space.hash:
        raise BadInput(f"{where} was trained on another Space of {robot.name} than {task.name} has.")
