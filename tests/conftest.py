"""Shared by all tests: the shipped robots and tasks, and targets to drive them with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import settings

from isthmus.robots import ROBOTS
from isthmus.sim.robot import Robot
from isthmus.tasks import TASKS
from isthmus.tasks.task import Task

torch.set_num_threads(1)
settings.register_profile("isthmus", deadline=None, derandomize=True, database=None)
settings.load_profile("isthmus")


@pytest.fixture(scope="module", params=sorted(ROBOTS))
def robot(request) -> Robot:
    """Every robot of the catalogue."""
    return ROBOTS[request.param]()


@pytest.fixture(scope="module", params=sorted(name for name in TASKS if not name.endswith("/hard")))
def task(request) -> Task:
    """Every task of the catalogue, but for hard variants, which differ in their worlds only."""
    return TASKS[request.param]()


@pytest.fixture(scope="session")
def targets():
    """(robot, rng, n, size) -> targets around the default, (n, m), up to `size` of half their range away."""

    def draw(robot: Robot, rng: np.random.Generator, n: int, size: float = 0.15) -> np.ndarray:
        signal = robot.contract.target
        low, high = np.array(signal.low or (-1.0,) * signal.size), np.array(signal.high or (1.0,) * signal.size)
        move = size * (high - low) / 2 * rng.uniform(-1, 1, (n, signal.size))
        return np.clip(np.array(robot.default) + move, low, high)

    return draw


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """A controller that was exported from a policy for go1, with the policy and its run."""
    from exporting import Exported

    return Exported(tmp_path_factory.mktemp("exported"))
