"""Short tasks for comparisons."""

from __future__ import annotations

from dataclasses import replace

from isthmus.tasks.catalogue import get_task

PENDULUM = "pendulum/swingup"


def brief(name: str = PENDULUM, seconds: float = 0.6):
    return replace(get_task(name), episode=seconds)
