"""Laws of the worlds that episodes happen in: hard variants, changes on the way, and worlds that policies share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from isthmus.tasks.catalogue import TASKS, get_task
from isthmus.tasks.env import Env
from isthmus.tasks.task import ParameterShift
from isthmus.world import Belief

HARD = sorted(name for name in TASKS if name.endswith("/hard"))


@pytest.mark.parametrize("name", HARD)
def test_a_hard_variant_widens_the_worlds(name):
    """All but the ground of go1: ice takes practice, and hides what knowing the rest is worth."""
    hard = get_task(name)
    base = get_task({"go1/hard": "go1/walk", "crazyflie/hard": "crazyflie/hover"}[name])
    assert hard.robot.space.hash == base.robot.space.hash
    assert hard.robot.model_hash == base.robot.model_hash
    wider = 0
    for parameter in (n for n in base.robot.space.names if n != "ground_friction"):
        (low, high), (lower, higher) = (t.robot.prior.interval(parameter, 1.0) for t in (base, hard))
        assert lower <= low + 1e-12
        assert higher >= high - 1e-12
        wider += (lower, higher) != (low, high)
    assert wider >= 5
    assert hard.parameter_shift is not None
    assert set(hard.parameter_shift.parameters) <= set(hard.robot.prior.free().names)


def changing(every: float = 0.1) -> Env:
    task = replace(get_task("go1/hard"), parameter_shift=ParameterShift(("payload",), (every, every)), terminations=())
    return Env(task, 6, seed=3, training=False)


def test_a_change_draws_the_named_numbers_anew_and_leaves_the_others():
    env = changing()
    payload = env.task.robot.space.index("payload")
    before = env.sim.e.copy()
    for tick in range(1, 11):
        env.step(env.default.repeat(6, 1))
        same = np.isclose(env.sim.e, before)
        assert same[:, np.arange(len(before[0])) != payload].all()
        assert same[:, payload].all() == (tick % 5 != 0), tick
        before = env.sim.e.copy()
        assert torch.allclose(env.normalized_e, torch.from_numpy(env.task.robot.space.unit(before) * 2 - 1).float())


def test_a_change_reaches_the_physics_without_moving_anything_at_once():
    task = replace(get_task("go1/walk"), terminations=())
    env = Env(task, 2, seed=1, training=False, e=np.tile(task.robot.space.nominal, (2, 1)))
    env.disturbances.config = task.disturbance.scaled(0.0)
    env.disturbances.reset(env.sim.all_ids)
    still = env.default.repeat(2, 1)
    for _ in range(50):
        env.step(still)
    pose, speed = env.sim.qpos.copy(), env.sim.qvel.copy()
    e = env.sim.e[:1].copy()
    e[0, task.robot.space.index("payload")] = 6.0
    env.set_parameters(e, np.array([0]))
    assert np.array_equal(env.sim.qpos, pose)
    assert np.array_equal(env.sim.qvel, speed)
    for _ in range(25):
        env.step(still)
    sunk = pose[:, 2] - env.sim.qpos[:, 2]
    assert sunk[0] - abs(sunk[1]) > 0.005


def test_worlds_whose_numbers_are_given_do_not_change():
    task = get_task("go1/hard")
    env = Env(task, 2, seed=1, training=False, e=np.tile(task.robot.space.nominal, (2, 1)))
    assert np.isinf(env.parameter_shifts.seconds_left).all()


def test_stopped_and_continued_the_worlds_change_as_if_never_stopped():
    first, second = changing(0.14), changing(0.14)
    for _ in range(5):
        first.step(first.default.repeat(6, 1))
    second.restore(first.state(), first.rng.bit_generator.state)
    for _ in range(10):
        for env in (first, second):
            env.step(env.default.repeat(6, 1))
        assert np.array_equal(first.sim.e, second.sim.e)


@pytest.mark.parametrize("name", ["go1/hard", "crazyflie/hard"])
def test_policies_share_their_worlds_whatever_they_do(name):
    """One policy holds still, the other thrashes about and fails: e, commands, pushes and gusts are the same."""
    task = get_task(name)
    envs = [Env(task, 12, seed=5, training=False) for _ in range(2)]
    g = torch.Generator().manual_seed(0)
    alive = np.ones(12, dtype=bool)
    failures = 0
    for _ in range(min(envs[0].horizon - 1, 220)):
        assert np.array_equal(envs[0].sim.e[alive], envs[1].sim.e[alive])
        assert torch.equal(envs[0].command[alive], envs[1].command[alive])
        steps = [envs[0].step(envs[0].default.repeat(12, 1))]
        wild = envs[1].default + torch.randn(12, len(envs[1].default), generator=g) * envs[1].default.abs().mean()
        steps.append(envs[1].step(wild))
        assert np.array_equal(envs[0].disturbances.force[alive], envs[1].disturbances.force[alive])
        for step in steps:
            failures += int(step.terminated.sum())
            alive &= ~step.terminated.numpy()
    assert failures > 3


def test_graduating_begins_at_the_last_level_with_the_whole_prior():
    env = Env(get_task("go1/walk"), 4, seed=0)
    assert env.curriculum.index == 0
    env.to_last_level()
    assert env.curriculum.index == len(env.task.levels) - 1
    assert env.belief == env.prior


def test_a_belief_over_a_wider_range_is_within_hard_bounds():
    for name in HARD:
        robot = get_task(name).robot
        drawn = robot.prior.sample(np.random.default_rng(0), 500)
        robot.space.check(drawn)
        assert isinstance(robot.prior, Belief)
