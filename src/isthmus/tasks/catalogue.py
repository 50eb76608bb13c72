"""What robots are asked to do."""

from __future__ import annotations

from collections.abc import Callable

from isthmus.core.errors import unknown_name
from isthmus.tasks.skills import balance, hover, swing_up, velocity
from isthmus.tasks.task import Task

TASKS: dict[str, Callable[[], Task]] = {
    "cartpole/balance": balance.cartpole_balance,
    "crazyflie/hard": hover.crazyflie_hard,
    "crazyflie/hover": hover.crazyflie_hover,
    "go1/hard": velocity.go1_hard,
    "go1/terrain": velocity.go1_terrain,
    "go1/walk": velocity.go1_walk,
    "pendulum/swingup": swing_up.pendulum_swing_up,
}


def get_task(name: str) -> Task:
    """The task of a name, ROBOT/SKILL, as in `isthmus list`."""
    if name in TASKS:
        return TASKS[name]()
    raise unknown_name("task", name, TASKS)
