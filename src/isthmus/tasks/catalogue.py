"""Tasks by name: robot × skill.

    get_task("go1/walk")                          measured settings (presets.py)
    get_task("menagerie:unitree_go2/walk")        settings derived from the robot
    get_task("my_robot.toml/reach")
    get_task("go1/walk", {"forward": 0.8})        the same as get_task("go1/walk:forward=0.8")
    get_task("my_task.py:Task")                   a function in a file that returns a Task
    get_task("package_task")                      from an installed package: entry point of the group `isthmus.tasks`

A task's name says all of it, so that a run finds its task again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.plugins import FILE_SPEC, Registry
from isthmus.robots import get_robot
from isthmus.sim.robot import Robot
from isthmus.tasks.presets import PRESETS
from isthmus.tasks.skill import Skill, override
from isthmus.tasks.skills import balance, hover, reach, swing_up, velocity
from isthmus.tasks.task import Task

SKILLS: dict[str, Skill] = {module.SKILL.name: module.SKILL for module in (balance, hover, reach, swing_up, velocity)}
PLUGINS = Registry("tasks")


def get_task(name: str, overrides: Mapping[str, float | str] | None = None) -> Task:
    """The task of this name; `overrides` replaces numbers of its skill's settings."""
    if name in TASKS and not overrides:
        return TASKS[name]()
    if FILE_SPEC.fullmatch(name) or name in PLUGINS:
        return _plugin_task(name)
    plain, given = _split_overrides(name)
    given |= dict(overrides or {})
    full = plain + (":" + ",".join(f"{key}={value}" for key, value in given.items()) if given else "")
    if plain in PRESETS:
        return _preset_task(plain, full, given)
    robot, skill = _robot_and_skill(plain)
    return skill.task(full, robot, override(skill.settings(robot), given, f"the skill {skill.name}"))


def _preset_task(name: str, full_name: str, given: Mapping[str, float | str]) -> Task:
    preset = PRESETS[name]
    settings = override(preset.settings, given, f"the skill {preset.skill.name}")
    return preset.variant(preset.skill.task(full_name, preset.robot(), settings))


def skills_of(robot: Robot) -> dict[str, str | None]:
    """For every skill why the robot cannot have it, in words, or None where it fits."""
    return {name: skill.requires(_prepared(skill, robot)) for name, skill in SKILLS.items()}


def _robot_and_skill(name: str) -> tuple[Robot, Skill]:
    robot_name, _, skill_name = name.rpartition("/")
    if skill_name not in SKILLS or not robot_name:
        error = unknown_name("task", name, TASKS)
        if "did you mean" in str(error) or not robot_name:
            raise error
        raise unknown_name("skill", skill_name, SKILLS, f"the task {name!r}")
    skill = SKILLS[skill_name]
    robot = _prepared(skill, get_robot(robot_name))
    reason = skill.requires(robot)
    if reason is not None:
        can = [other for other, why in skills_of(robot).items() if why is None]
        raise BadInput(f"{robot_name} cannot {skill_name}: {reason}. It can: {', '.join(can) or 'nothing that we know'}.")
    return robot, skill


def _prepared(skill: Skill, robot: Robot) -> Robot:
    try:
        return skill.prepare(robot)
    except BadInput:
        return robot


def _split_overrides(name: str) -> tuple[str, dict[str, float | str]]:
    """`ROBOT/SKILL:key=value,…` in two parts; a colon before the last slash belongs to the robot."""
    head, slash, tail = name.rpartition("/")
    skill, _, text = tail.partition(":")
    pairs = [entry.partition("=") for entry in text.split(",")] if text else []
    if not all(key and sign for key, sign, _ in pairs):
        raise BadInput(f"{name!r} is not ROBOT/SKILL:setting=number,…")
    return head + slash + skill, {key: value for key, _, value in pairs}


def _plugin_task(name: str) -> Task:
    made = PLUGINS.resolve(name)
    task = made() if callable(made) else made
    if not isinstance(task, Task):
        raise BadInput(f"{name!r} is not a Task, nor a function that returns one.")
    return replace(task, name=name)


TASKS: dict[str, Callable[[], Task]] = {name: partial(_preset_task, name, name, {}) for name in PRESETS}
"""Tasks that come with Isthmus and have measured settings."""
