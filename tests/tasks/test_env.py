"""Laws of the environment: what is paid, when episodes end, what is commanded, and that it can be stopped and continued."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from isthmus.sim.reality import Reality
from isthmus.tasks.catalogue import TASKS, get_task
from isthmus.tasks.env import Env
from isthmus.tasks.samplers.curriculum import Curriculum
from isthmus.tasks.task import Level, RewardTerm, Task

N = 8


def targets_of(env: Env, generator: torch.Generator, size: float = 0.1) -> torch.Tensor:
    low, high = (torch.nan_to_num(x, neginf=-1.0, posinf=1.0) for x in env.limits)
    move = torch.rand(env.n, len(low), generator=generator) * 2 - 1
    return env.default + size * (high - low) / 2 * move


def short(task: Task, ticks: int = 12) -> Task:
    return replace(task, episode=ticks / task.robot.contract.rate)


def run(env: Env, ticks: int, seed: int = 0) -> list:
    g = torch.Generator().manual_seed(seed)
    return [env.step(targets_of(env, g)) for _ in range(ticks)]


# Rewards and ends ------------------------------------------------------------------------------------------------------


def test_the_reward_is_the_sum_of_terms_times_weight_times_tick(task):
    wanted = []

    def watched(s):
        value = sum(t.weight * t.value(s) for t in task.rewards) / task.robot.contract.rate
        value = value.clamp_min(0) if task.only_positive_rewards else value
        wanted.append(value + sum(f.weight * f.value(s).float() for f in task.terminations))
        return task.score(s)

    steps = run(Env(replace(task, score=watched), N, seed=1), 10)
    for step, want in zip(steps, wanted, strict=True):
        assert torch.allclose(step.reward, want, atol=1e-5)


@pytest.mark.parametrize("positive", [True, False])
def test_falling_early_never_pays(task, positive):
    """Where rewards are clipped at zero, living on under costs is no worse than ending; failures still cost."""
    costs = (RewardTerm("cost", -5.0, lambda s: torch.ones(N)),)
    failures = (RewardTerm("odd", -2.0, lambda s: torch.arange(N) % 2 == 1),)
    step = run(Env(replace(task, rewards=costs, terminations=failures, only_positive_rewards=positive), N), 1)[0]
    lived = 0.0 if positive else -5.0 / task.robot.contract.rate
    assert step.reward[::2].tolist() == pytest.approx([lived] * 4)
    assert step.reward[1::2].tolist() == pytest.approx([lived - 2] * 4)


def test_an_episode_times_out_after_its_length_and_not_before(task):
    calm = replace(short(task), terminations=())
    env = Env(calm, N, seed=2, training=False)
    for k, step in enumerate(run(env, 30), start=1):
        assert step.timed_out.all() == (k % 12 == 0)
        assert step.timed_out.any() == (k % 12 == 0)
        assert not step.terminated.any()
        assert step.final_critic.shape == ((N if k % 12 == 0 else 0), env.critic_size)


def test_a_failure_ends_an_episode_and_is_no_time_out(task):
    def odd_ones_late(s):
        return (torch.arange(N) % 2 == 1) & (s.time > 4.5 * env.sim.tick)

    base = replace(short(task), terminations=())
    env = Env(replace(base, terminations=(RewardTerm("late", -7.0, odd_ones_late),)), N, seed=3, training=False)
    steps = run(env, 12)
    for k, step in enumerate(steps, start=1):
        odd = torch.arange(N) % 2 == 1
        assert step.terminated.tolist() == (odd & (k % 5 == 0)).tolist()
        assert step.timed_out.tolist() == (~odd & (k == 12)).tolist()
        assert (step.reward[step.terminated] < -6).all()
    assert steps[4].finished["length"] == pytest.approx(5 * env.sim.tick)
    assert steps[4].finished["failed"].all()
    assert steps[11].finished["length"] == pytest.approx(12 * env.sim.tick)
    assert not steps[11].finished["failed"].any()


def test_the_last_tick_counts_as_a_failure_when_it_is_one(task):
    env = Env(
        replace(short(task), terminations=(RewardTerm("all", 0.0, lambda s: torch.ones(N, dtype=torch.bool)),)),
        N,
        training=False,
    )
    env.episode_ticks[:] = 11
    step = run(env, 1)[0]
    assert step.terminated.all()
    assert not step.timed_out.any()


@pytest.mark.parametrize("training", [True, False])
def test_statistics_of_an_episode_are_means_over_its_own_ticks(task, training):
    """A score of one everywhere is a score of one, also in first episodes that start in the middle."""
    ones = replace(
        short(task), score=lambda s: torch.ones(N), terminations=(), metrics={"two": lambda s: torch.full((N,), 2.0)}
    )
    env = Env(ones, N, seed=4, training=training)
    left = 12 - env.episode_ticks.clone()
    for k, step in enumerate(run(env, 12), start=1):
        if step.timed_out.any():
            assert step.finished["score"] == pytest.approx(1.0)
            assert step.finished["two"] == pytest.approx(2.0)
            ends = left[step.timed_out] == k
            assert step.finished["length"][ends.numpy()] == pytest.approx(k * env.sim.tick)


def test_ticks_lost_to_a_failure_count_as_zero(task):
    failing = RewardTerm("now", 0.0, lambda s: s.time > 2.5 * env.sim.tick)
    env = Env(replace(short(task), score=lambda s: torch.ones(N), terminations=(failing,)), N, training=False)
    assert run(env, 3)[-1].finished["score"] == pytest.approx(3 / 12)


def test_first_episodes_have_random_lengths_in_training_only(task):
    ages = Env(task, 64, seed=5).episode_ticks
    assert len(set(ages.tolist())) > 20
    assert ages.min() >= 0
    assert ages.max() < round(task.episode * task.robot.contract.rate)
    assert (Env(task, 4, seed=5, training=False).episode_ticks == 0).all()


# Commands --------------------------------------------------------------------------------------------------------------

COMMANDED = sorted(name for name, make in TASKS.items() if make().command is not None)


@pytest.mark.parametrize("name", COMMANDED)
def test_commands_stay_inside_their_limits_scaled_by_the_level(name):
    task = get_task(name)
    low, high = torch.tensor(task.command.signal.low), torch.tensor(task.command.signal.high)
    for level in range(len(task.levels)):
        env = Env(task, 256, seed=6)
        env.curriculum.index = level
        env._draw_command(torch.arange(256), env.rng)
        scale = task.levels[level].command
        assert (env.command >= low * scale - 1e-6).all()
        assert (env.command <= high * scale + 1e-6).all()
        moving = env.command[env.command.abs().sum(1) > 0]
        assert (moving.max(0).values > (low + 0.9 * (high - low)) * scale).all()
        still = 1 - len(moving) / 256
        assert still == pytest.approx(task.command.zero_fraction, abs=4 * (0.25 / 256) ** 0.5)


@pytest.mark.parametrize("name", COMMANDED)
def test_commands_hold_for_their_time_and_for_the_episode_in_evaluation(name):
    task = get_task(name)
    low, high = 0.2, 0.5
    fast = replace(
        task, terminations=(), episode=3 * high, command=replace(task.command, zero_fraction=0.0, resample_interval=(low, high))
    )
    env = Env(fast, 4, seed=7)
    env.episode_ticks[:] = 0
    changes: list[list[float]] = [[0.0] for _ in range(4)]
    before = env.command.clone()
    ticks = round(2.2 * high / env.sim.tick)
    for k in range(1, ticks):
        env.step(env.default.repeat(4, 1))
        for i in torch.nonzero((env.command != before).any(1))[:, 0].tolist():
            changes[i].append(k * env.sim.tick)
        before = env.command.clone()
    for times in changes:
        gaps = np.diff(times)
        assert len(gaps) >= 2
        assert gaps.min() >= low - env.sim.tick
        assert gaps.max() <= high + 2 * env.sim.tick
    quiet = Env(fast, 4, seed=7, training=False)
    before = quiet.command.clone()
    run(quiet, 40)
    assert torch.equal(quiet.command, before)


# What can be seen --------------------------------------------------------------------------------------------------------


def test_the_policy_sees_what_the_contract_offers_and_the_command(task):
    env = Env(task, N)
    signals = env.signals()
    offered = {s.name: s.size for s in task.robot.contract.signals}
    if task.command is not None:
        offered[task.command.signal.name] = task.command.signal.size
    assert {k: v.shape[1] for k, v in signals.items()} == offered
    assert all(v.dtype == torch.float32 for v in signals.values())


def test_go1_cannot_sense_its_linear_velocity():
    assert not {"lin_vel", "velocity", "linvel"} & set(Env(get_task("go1/walk"), 1).signals())


def test_the_critic_sees_e_in_unit_coordinates(task):
    env = Env(task, N, training=False)
    e = env.critic()[:, -len(task.robot.space) :]
    assert torch.allclose(e, torch.from_numpy(task.robot.space.unit(env.sim.e) * 2 - 1).float())
    assert e.abs().max() <= 1
    assert env.critic().shape == (N, env.critic_size) == (N, sum(len(labels) for labels, _ in env.critic_labels()))


def test_a_critic_that_is_not_told_e_does_not_see_it(task):
    env = Env(task, 4, seed=1)
    told = env.critic()
    env.critic_sees_e = False
    assert env.critic_size == env.critic().shape[1] == told.shape[1] - len(task.robot.space)
    assert torch.equal(env.critic(), told[:, : env.critic_size])


def test_what_the_critic_sees_of_a_world_does_not_depend_on_the_others(task):
    """Whether another world starts anew in this tick must not show."""
    env = Env(task, N, seed=8)
    for _ in run(env, 25):
        seen = env.critic()
        env.true_state = env.read_state()
        assert torch.equal(env.critic(), seen)


def test_one_value_of_e_per_world_can_be_given(task):
    e = task.robot.prior.sample(np.random.default_rng(0), N)
    env = Env(short(task), N, e=e)
    run(env, 15)
    assert np.array_equal(env.sim.e, e)


def test_the_same_seed_gives_the_same_run_on_any_number_of_threads(task):
    a, b = (run(Env(task, N, seed=9, threads=t), 6) for t in (1, 2))
    assert all(torch.equal(x.reward, y.reward) and torch.equal(x.terminated, y.terminated) for x, y in zip(a, b, strict=True))
    c = run(Env(task, N, seed=10), 6)
    assert not all(torch.equal(x.reward, y.reward) for x, y in zip(a, c, strict=True))


# Stop and continue ---------------------------------------------------------------------------------------------------------


def outcome(env: Env, ticks: int, seed: int) -> list[torch.Tensor]:
    g, seen = torch.Generator().manual_seed(seed), []
    for _ in range(ticks):
        seen += [*env.signals().values(), env.critic()]
        step = env.step(targets_of(env, g, 0.3))
        seen += [
            step.reward,
            step.terminated,
            step.timed_out,
            step.final_critic,
            torch.from_numpy(np.array(step.finished["score"])),
        ]
    return [*seen, torch.tensor(env.curriculum.index), torch.tensor(env.diverged_worlds)]


def test_a_restored_environment_continues_bit_for_bit(task):
    """Through ends of episodes, pushes, new commands and a step of the curriculum."""
    levels = (replace(task.levels[0], score=-9.0), replace(task.levels[-1], name="next"))
    hurried = replace(short(task, 15), levels=levels)
    if task.command is not None:
        hurried = replace(hurried, command=replace(task.command, resample_interval=(0.05, 0.2)))
    env = Env(hurried, N, seed=11)
    env.curriculum.window = 10
    run(env, 9)
    saved, rng = env.state(), env.rng.bit_generator.state
    straight = outcome(env, 30, 1)
    other = Env(hurried, N, seed=99)
    other.curriculum.window = 10
    run(other, 3)
    other.restore(saved, rng)
    again = outcome(other, 30, 1)
    assert len(again) == len(straight)
    assert all(torch.equal(a, b) for a, b in zip(again, straight, strict=True))
    assert env.curriculum.index == 1, "the run must have crossed a level"


def test_saved_state_is_plain_arrays(task):
    env = Env(task, 2)
    for name, value in env.state().items():
        assert isinstance(value, np.ndarray), name
        assert value.dtype != object, name
    assert not any(np.shares_memory(v, env.sim.engine.batch.state) for v in env.state().values())


# Curriculum ------------------------------------------------------------------------------------------------------------


def test_the_curriculum_moves_only_when_ready_and_never_back():
    levels = (Level("a", score=0.6), Level("b", score=0.5), Level("c"))
    c = Curriculum(levels, window=10)
    at = lambda level, n: np.full(n, level)
    assert not c.record(np.ones(5), at(0, 5)), "too few episodes"
    assert not c.record(np.zeros(5), at(0, 5)), "not good enough on average"
    assert not c.record(np.full(5, 0.59), at(0, 5))
    assert c.index == 0
    assert not c.record(np.full(5, 0.595), at(0, 5)), "just below"
    assert c.index == 0
    assert c.record(np.full(10, 0.7), at(0, 10))
    assert c.level.name == "b"
    assert len(c.recent_scores) == 0, "what was reached at the last level does not count"
    assert not c.record(np.ones(50), at(0, 50)), "nor does an episode that began there"
    for _ in range(9):
        c.record(np.zeros(10), at(1, 10))
    assert c.index == 1, "failing does not bring an old level back"
    assert c.record(np.ones(10), at(1, 10))
    assert c.level.name == "c"
    assert not c.record(np.ones(99), at(2, 99)), "the last level is the last"
    assert c.index == 2


def test_a_restored_curriculum_is_where_it_was():
    c = Curriculum((Level("a", score=0.5), Level("b", score=0.5), Level("c")), window=4)
    c.record(np.ones(4), np.zeros(4))
    c.record(np.full(3, 0.9), np.ones(3))
    other = Curriculum(c.levels, window=4)
    other.restore(c.state())
    assert other.level.name == "b"
    assert c.record(np.ones(1), np.ones(1))
    assert other.record(np.ones(1), np.ones(1))


def test_levels_widen_belief_and_disturbance(task):
    env = Env(task, 2)
    for index, level in enumerate(task.levels):
        env.curriculum.index = index
        env._apply_level()
        assert env.belief.hash == task.robot.prior.scaled(level.width).hash
        assert env.disturbances.config == task.disturbance.scaled(level.disturbance)
    assert env.belief.hash == task.robot.prior.hash
    assert Env(task, 2, training=False).curriculum.index == len(task.levels) - 1


# Blow-up ---------------------------------------------------------------------------------------------------------------


def test_a_world_that_blows_up_fails_alone_and_is_counted(task, tmp_path):
    env = Env(replace(task, terminations=()), N, seed=12, training=False, dump_folder=tmp_path)
    run(env, 3)
    env.sim.qvel[5] = np.nan
    step = run(env, 1)[0]
    assert step.terminated.tolist() == [i == 5 for i in range(N)]
    assert env.diverged_worlds == 1
    assert torch.isfinite(step.reward).all()
    assert torch.isfinite(env.critic()).all()
    assert all(torch.isfinite(v).all() for v in env.signals().values())
    assert env.episode_ticks[5] == 0
    assert (env.episode_ticks[:5] == 4).all()
    assert len(list(tmp_path.iterdir())) == 1
    later = run(env, 3)
    assert not any(s.terminated.any() for s in later)
    assert env.diverged_worlds == 1


def test_a_reality_takes_the_place_of_all_worlds():
    """Numbers, missing physics and gears of a reality reach the task; an empty one is the nominal robot."""
    task = get_task("pendulum/swingup")
    tables = {"params": {"payload": 0.3}, "unmodelled": {"backlash": 0.02}, "faults": {"flip": ["hinge"]}}
    reality = Reality.from_dict({"robot": "pendulum", **tables})
    env = Env(task, 4, training=False, reality=reality)
    assert (env.sim.e == reality.e(task.robot)).all()
    for _ in range(20):
        env.step(torch.full((4, 1), 1.0))
    # The flipped motor pushed the other way, and the flipped encoder says that it did not.
    turned = env.sim.qpos[:, 0]
    assert (turned < -0.05).all()
    assert (env.signals()["joint_pos"][:, 0].numpy() * turned < 0).all()

    # A task is about links, whatever rotors in their play do.
    assert (env.sim.qpos[:, 0] != env.sim.qpos[:, 1]).all()
    assert np.allclose(env.read_state().joint_pos[:, 0], env.sim.qpos[:, 0])
    assert np.allclose(env.read_state().joint_vel[:, 0], env.sim.qvel[:, 0])

    start = np.zeros((4, len(task.robot.space))) + task.robot.space.nominal
    plain = Env(replace(task, start=None), 4, training=False, e=start)
    empty = Env(replace(task, start=None), 4, training=False, reality=Reality("pendulum"))
    for _ in range(25):
        for world in (plain, empty):
            world.step(torch.full((4, 1), 0.5))
    assert np.allclose(plain.sim.qpos, empty.sim.qpos, rtol=0.03)
