"""The controller that a policy corrects, from where the user keeps it: a run folder, or a file with a law."""

from __future__ import annotations

from pathlib import Path

from isthmus.core.errors import BadInput
from isthmus.learn import runs
from isthmus.learn.policies.actor import Actor
from isthmus.learn.policies.actor_spec import available_signals
from isthmus.learn.policies.linear_controller import check_law, read_law
from isthmus.learn.runs import BaseController, Run
from isthmus.tasks.task import Task


def read_base(path: Path, task: Task, residual_scale: float) -> tuple[BaseController, Actor | None]:
    """The base for a policy of the task, and its weights if it is a policy itself."""
    if not path.is_dir():
        law = read_law(path, task.robot.name)
        check_law(law, available_signals(task.robot.contract, task), task.robot.contract.target, str(path))
        return BaseController(law=law, residual_scale=residual_scale), None
    run = runs.load(path)
    where = f"the base {path}"
    check_robot(run, task, where)
    if run.config.context.source == "privileged":
        raise BadInput(f"{where} is a teacher: no robot can tell it e. A student or rma of it can be a base.")
    return BaseController(config=run.config, run=run.initial_hash, residual_scale=residual_scale), runs.load_actor(run)


def check_robot(run: Run, task: Task, where: str) -> None:
    """Raise BadInput unless the run was made with the task's robot and Space."""
    own, robot = run.task.robot, task.robot
    if own.name != robot.name:
        raise BadInput(f"{where} was trained for {own.name}, not for {robot.name}.")
    if own.space.hash != robot.space.hash:
        raise BadInput(f"{where} was trained on another Space of {robot.name} than {task.name} has.")
