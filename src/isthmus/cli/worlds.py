"""The worlds that an option names: a file with a belief, or a twin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.errors import BadInput

if TYPE_CHECKING:
    from isthmus.identify.twin import Twin
    from isthmus.sim.robot import Robot
    from isthmus.tasks.task import Task
    from isthmus.world import Belief


def worlds_of(path: Path | None, robot: Robot, default: Belief | None = None) -> tuple[Robot, Belief]:
    """The robot and what is believed of it: a twin brings its own motors, ground and forces, a belief only numbers."""
    from isthmus.identify.twin import Twin, is_twin
    from isthmus.world import Belief, adopt

    if path is None:
        return robot, robot.prior if default is None else default
    if is_twin(path):
        unit = Twin.load(path).on(robot, str(path))
        return unit, unit.prior
    return robot, adopt(Belief.load(path), robot.space, str(path))


def robot_of(name: str) -> tuple[Robot, Twin | None]:
    """The robot that a name, a model file or a twin stands for, and the twin."""
    from isthmus.identify.twin import Twin, is_twin
    from isthmus.robots import TAKEN, get_robot

    if not is_twin(Path(name)):
        try:
            return get_robot(name), None
        except BadInput as error:
            # Where a robot is asked for, a twin will do, too.
            raise BadInput(str(error).replace(TAKEN, f"{TAKEN}, or a twin (.twin)")) from None
    twin = Twin.load(Path(name))
    return twin.on(get_robot(twin.robot), name), twin


def as_designed(task: Task) -> Task:
    """The task with a robot of its kind, not with the motors, ground and forces of one that a run was trained on."""
    from isthmus.sim.unit import Unit

    return replace(task, robot=replace(task.robot, unit=Unit()))


def task_on(task: Task, robot: Robot) -> Task:
    """The task with the motors, ground and forces of this very robot; the worlds that it is meant for stay its own."""
    return replace(task, robot=replace(task.robot, unit=robot.unit))
