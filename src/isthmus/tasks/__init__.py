"""What robots are asked to do."""

from __future__ import annotations

from collections.abc import Callable

from isthmus.errors import unknown
from isthmus.tasks import go1
from isthmus.tasks.task import Task

TASKS: dict[str, Callable[[], Task]] = {"go1/walk": go1.walk, "go1/terrain": go1.terrain}


def get_task(name: str) -> Task:
    if name in TASKS:
        return TASKS[name]()
    raise unknown("task", name, TASKS)
