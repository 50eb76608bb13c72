"""What robots are asked to do."""

from __future__ import annotations

from collections.abc import Callable

from isthmus.errors import unknown
from isthmus.tasks import cartpole, crazyflie, go1, pendulum
from isthmus.tasks.task import Task

TASKS: dict[str, Callable[[], Task]] = {
    "cartpole/balance": cartpole.balance,
    "crazyflie/hard": crazyflie.hard,
    "crazyflie/hover": crazyflie.hover,
    "go1/hard": go1.hard,
    "go1/terrain": go1.terrain,
    "go1/walk": go1.walk,
    "pendulum/swingup": pendulum.swingup,
}


def get_task(name: str) -> Task:
    if name in TASKS:
        return TASKS[name]()
    raise unknown("task", name, TASKS)
