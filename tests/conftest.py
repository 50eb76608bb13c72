"""Shared by all tests: the shipped robots and tasks, and targets to drive them with."""

from __future__ import annotations

import gc
import itertools
import os
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

# On cores that are busy, a second thread made a triangular solve of ten rows take 5 ms instead of 0.03. This is read when
# NumPy and SciPy are loaded, and handed on to programs that tests start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
import torch
from hypothesis import settings

from isthmus.robots import ROBOTS
from isthmus.sim.robot import Robot
from isthmus.tasks.catalogue import TASKS
from isthmus.tasks.task import Task

torch.set_num_threads(1)
settings.register_profile("isthmus", deadline=None, derandomize=True, database=None)
settings.load_profile("isthmus")


def pytest_collection_finish() -> None:
    """What is there now stays: every run on a robot collects garbage first, and need not look through all of it."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


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
    from support.controllers import Exported

    return Exported(tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="session")
def walk():
    """A policy for go1 that stands, and its controller: its actions are tiny."""
    from isthmus.tasks.catalogue import get_task
    from support.deployments import make

    return make(get_task("go1/walk"))


@pytest.fixture
def no_hurry(monkeypatch):
    """How fast this machine is must not decide over a check: each look at the watch is 10 µs after the one before."""
    watch = SimpleNamespace(perf_counter=partial(next, (1e-5 * k for k in itertools.count())))
    monkeypatch.setattr("isthmus.deploy.preflight.time", watch)


@pytest.fixture
def quick(monkeypatch):
    """An evaluation at the end of training takes half a second in a few worlds only."""
    from isthmus.learn.evaluate import evaluate as module

    whole = module.run_episodes
    short = lambda task, actor, worlds, *args, **options: whole(replace(task, episode=0.5), actor, 4, *args, **options)
    monkeypatch.setattr(module, "run_episodes", short)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Folders of barely trained runs: two seeds of ppo, a teacher and its student on the pendulum, ppo on the cartpole."""
    from isthmus.cli.main import main
    from isthmus.learn.evaluate import evaluate as module

    folder = tmp_path_factory.mktemp("tiny")
    size = ["--steps", "400", "--json"]
    asked = {
        "ppo-0": ["pendulum/swingup", "--worlds", "8"],
        "ppo-1": ["pendulum/swingup", "--worlds", "8", "--seed", "1"],
        "teacher": ["pendulum/swingup", "--worlds", "8", "--method", "teacher"],
        "student": ["pendulum/swingup", "--method", "student", "--teacher", str(folder / "teacher")],
        "cart": ["cartpole/balance", "--worlds", "8"],
    }
    whole = module.run_episodes
    with pytest.MonkeyPatch.context() as patch:
        short = lambda task, actor, worlds, *args, **options: whole(replace(task, episode=0.2), actor, 2, *args, **options)
        patch.setattr(module, "run_episodes", short)
        for name, options in asked.items():
            assert main(["train", *options, *size, "-o", str(folder / name)]) == 0
    return {name: folder / name for name in asked}


@pytest.fixture(scope="module")
def entries(tiny):
    """Two seeds of ppo, a teacher and its student, as a comparison has them."""
    from isthmus.learn.evaluate.contenders import load_contenders
    from isthmus.tasks.catalogue import get_task

    return load_contenders(tuple(tiny[n] for n in ("ppo-0", "ppo-1", "teacher", "student")), get_task("pendulum/swingup"))


@pytest.fixture
def short(monkeypatch):
    """Episodes of a comparison end after 0.3 s."""
    from isthmus.learn.evaluate import paired_results, recovery

    whole, follow = paired_results.run_episodes, recovery.record_trace
    monkeypatch.setattr(paired_results, "run_episodes", lambda task, *rest: whole(replace(task, episode=0.3), *rest))
    monkeypatch.setattr(recovery, "record_trace", lambda task, *rest: follow(replace(task, episode=0.3), *rest))
