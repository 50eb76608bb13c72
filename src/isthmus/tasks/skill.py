"""A skill: what any robot with the right morphology can be asked to do, with settings that are derived from the robot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from isthmus.core.errors import BadInput, unknown_name
from isthmus.sim.robot import Robot
from isthmus.tasks.task import Task


@dataclass(frozen=True)
class Skill:
    name: str
    doc: str
    requires: Callable[[Robot], str | None]
    """Why a robot cannot have this skill, in words, or None."""
    settings: Callable[[Robot], Any]
    """A frozen dataclass of settings, derived from the robot."""
    task: Callable[[str, Robot, Any], Task]
    """(name of the task, robot, settings) -> task."""
    prepare: Callable[[Robot], Robot] = lambda robot: robot
    """The robot as this skill drives it, e.g. behind position controllers."""


def override(settings: Any, values: Mapping[str, float | str], where: str) -> Any:
    """Settings with some fields replaced; numbers may be given as text."""
    known = {f.name: getattr(settings, f.name) for f in fields(settings)}
    numbers = {name: value for name, value in known.items() if isinstance(value, int | float) and not isinstance(value, bool)}
    changed = {}
    for name, value in values.items():
        if name not in numbers:
            raise unknown_name("setting", name, numbers, where)
        try:
            changed[name] = type(numbers[name])(float(value))
        except ValueError:
            raise BadInput(f"{where}: {name} is a number, not {value!r}.") from None
    return replace(settings, **changed)


def missing_signals(robot: Robot, names: tuple[str, ...]) -> str | None:
    """Which of the signals the robot's contract lacks, in words, or None."""
    missing = [name for name in names if name not in {s.name for s in robot.contract.signals}]
    return f"its contract has no signal {', '.join(missing)}" if missing else None
