"""Fine-tuning stays near where it began, and a critic that sees no more than the policy."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from isthmus.cli.main import main
from isthmus.core.errors import BadInput
from isthmus.learn import checkpoint, runs, training
from isthmus.learn.algorithms import finetune
from isthmus.learn.algorithms.algorithm import PPOTrainer
from isthmus.learn.algorithms.distillation import DistillationTrainer
from isthmus.learn.algorithms.finetune import FineTuneTrainer, finetune_config
from isthmus.learn.algorithms.kl import KLBound
from isthmus.learn.algorithms.ppo import PPOConfig
from isthmus.learn.policies.actor import Actor
from isthmus.learn.policies.base_controller import read_base
from isthmus.learn.policies.context import Context
from isthmus.learn.runs import Run, RunConfig
from isthmus.learn.training import TrainingInputs
from isthmus.tasks.catalogue import get_task
from isthmus.world import Belief
from support.short_training import SMALL, work

NAME = "pendulum/swingup"
TOLD = Context("privileged", 3, 8)
FINDS_OUT = replace(TOLD, source="recurrent")


def trained(folder: Path, name: str = NAME, settings: PPOConfig = SMALL, **fields) -> Run:
    """A run that was hardly trained."""
    task = get_task(name)
    training.train(
        folder, RunConfig(name, steps=1, settings=settings, **fields), task, task.robot.prior, TrainingInputs(), work(2)
    )
    return runs.load(folder)


def student_run(folder: Path) -> Run:
    """A policy that finds out, as distillation begins with it."""
    teacher = trained(folder.with_name("teacher"), method="teacher", context=TOLD)
    plan = RunConfig(NAME, "student", steps=1, settings=SMALL, context=FINDS_OUT)
    training.train(folder, plan, teacher.task, teacher.belief, TrainingInputs(teacher), work(1))
    return runs.load(folder)


def tuner_of(folder: Path, start: Run, kl: float = 0.0, belief: Belief | None = None) -> FineTuneTrainer:
    plan = replace(finetune_config(start, start.task, kl), steps=1)
    tuner = FineTuneTrainer(runs.create(folder, plan, start.task, belief or start.belief))
    tuner.initialize_from(start)
    return tuner


def state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in module.state_dict().items()}


def changed(before: dict, module: torch.nn.Module) -> set[str]:
    return {k for k, v in module.state_dict().items() if not torch.equal(v, before[k])}


@torch.no_grad()
def measured(start: Actor, actor: Actor, observation: torch.Tensor) -> float:
    """KL(start ‖ actor) by torch's own definition."""
    pair = [Independent(Normal(a.act(observation), a.log_std.exp().expand(len(observation), -1)), 1) for a in (start, actor)]
    return float(kl_divergence(*pair).mean())


def lurch(tuner: FineTuneTrainer, size: float = 0.03) -> list[torch.Tensor]:
    """Make every step huge, and note the observations of each update."""
    seen: list[torch.Tensor] = []
    tuner.ppo_update.config = replace(tuner.ppo_update.config, learning_rate_range=(size, size))
    tuner.ppo_update.set_learning_rate(size)
    update = tuner.ppo_update.update
    tuner.ppo_update.update = lambda batch: (seen.append(batch.observation.clone()), update(batch))[1]
    return seen


# The start ------------------------------------------------------------------------------------------------------------


def test_it_begins_as_the_policy_that_it_starts_from(tmp_path):
    start = trained(tmp_path / "a")
    arrays, _ = checkpoint.read(checkpoint.newest(tmp_path / "a"))
    tuner = tuner_of(tmp_path / "f", start, belief=start.belief.nominal())
    tuner.save()
    again, _ = checkpoint.read(checkpoint.newest(tmp_path / "f"))
    for name, array in arrays.items():
        if name.startswith(("actor.", "critic.")):
            assert np.array_equal(again[name], array), name
        if name.startswith("actor."):
            assert np.array_equal(again["start." + name.removeprefix("actor.")], array), name
    assert not tuner.optimizer.state_dict()["state"]
    assert tuner.learning_rate < start.config.settings.learning_rate
    assert tuner.env.prior == start.belief.nominal()
    assert tuner.run.config.initial_run == start.initial_hash


@pytest.mark.parametrize("name", [NAME, "go1/walk"])
def test_a_teacher_begins_as_the_policy_that_ignored_e(tmp_path, name):
    start = trained(tmp_path / "a", name)
    plan = finetune_config(start, start.task, 0.0, as_teacher=True)
    assert (plan.method, plan.context.source) == ("teacher", "privileged")
    tuner = FineTuneTrainer(runs.create(tmp_path / "f", replace(plan, steps=1), start.task, start.belief))
    tuner.initialize_from(start)
    before, seen = runs.load_actor(start), tuner.collector.observation
    with torch.no_grad():
        assert torch.allclose(tuner.actor.act(seen), before.act(seen[:, : before.history_size]), atol=1e-6)
    tuner.iteration = finetune.CRITIC_WARMUP_ITERATIONS
    tuner.iterate()
    first = tuner.actor.body.state_dict()["0.weight"][:, tuner.actor.history_size :]
    assert first.abs().max() > 0, "it begins to listen"
    assert tuner.iterate()["kl_from_start"] > 0


def test_it_begins_at_the_last_level(tmp_path):
    task = get_task("go1/walk")
    run = runs.create(tmp_path / "a", RunConfig("go1/walk", settings=SMALL), task, task.robot.prior)
    PPOTrainer(run).save()
    tuner = tuner_of(tmp_path / "f", run)
    assert tuner.env.curriculum.index == len(task.levels) - 1 > 0
    assert (tuner.env.start_level == tuner.env.curriculum.index).all()


def test_at_first_only_the_critic_learns_and_the_scale_never_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(finetune, "CRITIC_WARMUP_ITERATIONS", 2)
    tuner = tuner_of(tmp_path / "f", trained(tmp_path / "a"), kl=0.1)
    actor, critic = state(tuner.actor), state(tuner.critic)
    for _ in range(2):
        assert tuner.iterate()["kl_from_start"] == 0
    assert not changed(actor, tuner.actor)
    assert "net.0.weight" in changed(critic, tuner.critic)
    assert tuner.kl_bound.weight == 1.0
    assert tuner.iterate()["kl_from_start"] > 0
    moved = changed(actor, tuner.actor)
    assert {"net.net.0.weight", "log_std"} <= moved
    assert not {name for name in moved if name.startswith("normalize")}


def test_what_finds_out_about_the_world_stays_as_it_is(tmp_path, monkeypatch):
    """A student goes on with PPO: the body learns, its estimator does not, and the run still is a student's."""
    monkeypatch.setattr(finetune, "CRITIC_WARMUP_ITERATIONS", 0)
    start = student_run(tmp_path / "s")
    task = start.task
    plan = replace(finetune_config(start, task, 0.0), steps=1)
    tuner = training.train(tmp_path / "f", plan, task, task.robot.prior, TrainingInputs(initial_run=start), work(3))
    before = state(runs.load_actor(start))
    moved = changed(before, tuner.actor)
    assert any(name.startswith("net.") for name in moved)
    assert not {name for name in moved if name.startswith(("estimator", "normalize"))}
    run = runs.load(tmp_path / "f")
    assert (run.config.method, run.config.context) == ("student", start.config.context)
    assert isinstance(training.make_trainer(run), FineTuneTrainer)
    assert isinstance(training.make_trainer(start), DistillationTrainer)
    assert not changed(state(tuner.actor), runs.load_actor(run))


# The bound ------------------------------------------------------------------------------------------------------------


def test_no_update_leaves_the_policy_beyond_the_bound(tmp_path, monkeypatch):
    """With steps far too large for it, on the states of the update, by torch's own measure; without a bound it does."""
    monkeypatch.setattr(finetune, "CRITIC_WARMUP_ITERATIONS", 0)
    start, limit = trained(tmp_path / "a"), 1e-3
    origin = runs.load_actor(start)
    bounded = tuner_of(tmp_path / "bounded", start, kl=limit)
    seen = lurch(bounded)
    for k in range(4):
        told = bounded.iterate()["kl_from_start"]
        found = measured(origin, bounded.actor, seen[k])
        assert found <= limit * (1 + 1e-4)
        assert told == pytest.approx(found, rel=1e-3, abs=1e-7)
        assert found > 0.5 * limit
    free = tuner_of(tmp_path / "free", start)
    seen = lurch(free)
    for k in range(4):
        told = free.iterate()["kl_from_start"]
        assert told == pytest.approx(measured(origin, free.actor, seen[k]), rel=1e-3)
    assert told > 50 * limit


@pytest.mark.parametrize("limit", [0.0, 1e-4, 0.02, 1e9])
def test_pulling_back_goes_along_the_line_to_the_start(tmp_path, limit):
    run = trained(tmp_path / "a")
    actor, start = runs.load_actor(run), runs.load_actor(run)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(200, actor.observation_size, generator=g)
    with torch.no_grad():
        for p in actor.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=g))
    moved = [p.detach() - q.detach() for p, q in zip(actor.parameters(), start.parameters(), strict=True)]
    bound = KLBound(actor, start.requires_grad_(False), limit)
    got = bound.enforce(actor.normalize(x))
    kept = [p.detach() - q.detach() for p, q in zip(actor.parameters(), start.parameters(), strict=True)]
    a = kept[0].flatten()[0] / moved[0].flatten()[0]
    for before, after in zip(moved, kept, strict=True):
        assert torch.allclose(after, a * before, atol=1e-5)
    assert got == pytest.approx(measured(start, actor, x), rel=1e-3)
    if limit in (0.0, 1e9):
        assert a == pytest.approx(1.0, abs=1e-6)
    else:
        assert 0.9 * limit < got <= limit


def test_the_penalty_follows_the_divergence_and_pulls_towards_the_start(tmp_path):
    run = trained(tmp_path / "a")
    actor, start = runs.load_actor(run), runs.load_actor(run).requires_grad_(False)
    x = torch.randn(100, actor.observation_size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        actor.log_std.add_(0.1)
    bound = KLBound(actor, start, 1.0)
    before = bound.penalty(x, actor.net(x))
    before.backward()
    assert (actor.log_std.grad > 0).all()
    bound.enforce(x)
    assert bound.weight == 0.5
    bound.limit = 1e-3
    bound.enforce(x)
    assert bound.weight == 1.0
    assert KLBound(actor, start, 0.0).penalty(x, actor.net(x)) == 0


def test_stopped_and_resumed_equals_uninterrupted(tmp_path, monkeypatch):
    """Also while the bound is at work, and without the run that it started from."""
    monkeypatch.setattr(finetune, "CRITIC_WARMUP_ITERATIONS", 1)
    monkeypatch.setattr(finetune, "finetune_settings", lambda settings: replace(settings, learning_rate=0.03))
    start = trained(tmp_path / "a")
    plan = replace(finetune_config(start, start.task, 1e-3), steps=1)
    begin = lambda name, k: training.train(
        tmp_path / name, plan, start.task, start.belief, TrainingInputs(initial_run=start), work(k)
    )
    whole = begin("whole", 5).arrays()
    begin("parts", 2)
    shutil.rmtree(tmp_path / "a")
    again = training.resume(tmp_path / "parts", 0, 0.0, work(3)).arrays()
    assert whole["carried.kl_weight"] != 1
    assert whole.keys() == again.keys()
    for name in whole:
        assert np.array_equal(whole[name], again[name], equal_nan=True), name
    shutil.rmtree(tmp_path / "parts" / "checkpoints")
    with pytest.raises(BadInput, match="start again"):
        training.resume(tmp_path / "parts", 0, 0.0, work(1))


def test_a_residual_is_fine_tuned_with_its_base(tmp_path, monkeypatch):
    monkeypatch.setattr(finetune, "CRITIC_WARMUP_ITERATIONS", 0)
    trained(tmp_path / "a")
    base, weights = read_base(tmp_path / "a", get_task(NAME), 0.5)
    task = get_task(NAME)
    training.train(
        tmp_path / "r",
        RunConfig(NAME, steps=1, settings=SMALL, base=base),
        task,
        task.robot.prior,
        TrainingInputs(base=weights),
        work(1),
    )
    tuner = tuner_of(tmp_path / "f", runs.load(tmp_path / "r"))
    tuner.iterate()
    assert not changed(state(weights), tuner.actor.base)
    assert changed(state(tuner.initial_actor), tuner.actor)


# The critic -----------------------------------------------------------------------------------------------------------


def trainer_with(
    folder: Path, asymmetric: bool, task=None, settings: PPOConfig = SMALL, belief: Belief | None = None
) -> PPOTrainer:
    task = task or get_task(NAME)
    plan = RunConfig(NAME, steps=1, settings=replace(settings, asymmetric_critic=asymmetric))
    return PPOTrainer(runs.create(folder, plan, task, belief or task.robot.prior))


@torch.no_grad()
@pytest.mark.parametrize("asymmetric", [True, False])
def test_a_blind_critic_does_not_depend_on_e(tmp_path, asymmetric):
    trainer = trainer_with(tmp_path / "a", asymmetric)
    width = trainer.env.critic_size if asymmetric else trainer.actor.observation_size
    assert trainer.critic.normalize.mean.shape == (width,)
    collector, noise = trainer.collector, trainer.env.rng.bit_generator.state
    values = []
    for shift in (0.0, 0.7):
        trainer.env.normalized_e += shift
        trainer.env.rng.bit_generator.state = noise
        collector.reset_memory()
        values.append(trainer.critic(collector.critic_input))
    assert torch.equal(*values) != asymmetric


def test_a_blind_critic_values_the_end_of_an_episode_where_it_was(tmp_path):
    """With exact sensors it sees the angles that an asymmetric one is given, and not those of the next episode."""
    task = replace(get_task(NAME), episode=0.2)
    exact = {name: 0.0 for name in task.robot.space.names if name.endswith(("_noise", "_offset", "_delay"))}
    trainer = trainer_with(tmp_path / "a", False, task, belief=task.robot.prior.nominal().fix(exact))
    collector, step, asked, ends = trainer.collector, trainer.env.step, [], []

    def watched(target):
        told = step(target)
        if len(told.final_critic):
            ends.append((told.final_critic, collector.memory["action"][told.timed_out]))
        return told

    trainer.env.step = watched
    collector.critic = lambda x: (asked.append(x), torch.zeros(len(x)))[1]
    rows = []
    for _ in range(3):
        asked.clear()
        collector.collect()
        # First all states of the iteration, then the ends of episodes, then the present.
        rows += asked[1:-1]
    seen, truth, action = torch.cat(rows), *(torch.cat(x) for x in zip(*ends, strict=True))
    assert len(seen) >= 8
    assert torch.allclose(seen[:, :2], truth[:, :2], atol=1e-5)
    assert torch.equal(seen[:, -1:], action)
    assert (seen[:, 0].abs() > 0.02).any()


def test_learning_with_a_blind_critic_stops_and_goes_on(tmp_path):
    """Its values come to explain the returns, and a checkpoint holds all of it."""
    settings = replace(SMALL, worlds=32, rollout_ticks=32, minibatch_size=256, learning_rate=3e-3)
    trainer = trainer_with(tmp_path / "a", False, settings=settings)
    for _ in range(14):
        trainer.iterate()
    batch, _ = trainer.collector.collect()
    with torch.no_grad():
        left = (batch.returns - trainer.critic(batch.critic_input)).var() / batch.returns.var()
    assert left < 0.6
    trainer.save()
    other = PPOTrainer(runs.load(tmp_path / "a"))
    other.restore(checkpoint.newest(tmp_path / "a"))
    trainer.iterate()
    other.iterate()
    ours, theirs = trainer.arrays(), other.arrays()
    assert all(np.array_equal(ours[name], theirs[name], equal_nan=True) for name in ours)


# The command ----------------------------------------------------------------------------------------------------------


def test_fine_tuning_and_blind_critics_from_the_command_line(tmp_path, capsys, monkeypatch, quick):
    monkeypatch.chdir(tmp_path)
    prior = get_task(NAME).robot.prior
    prior.fix({"payload": 0.05}).save(tmp_path / "b.json")
    size = ["--steps", "500", "--worlds", "8", "--json"]
    assert main(["train", NAME, "-o", "a", "--blind-critic", *size]) == 0
    assert not runs.load(tmp_path / "a").config.settings.asymmetric_critic
    assert main(["train", NAME, "--from", "a", "--belief", "b.json", "--kl", "0.02", "-o", "f", *size]) == 0
    run = runs.load(tmp_path / "f")
    assert run.config.max_kl == 0.02
    assert run.config.initial_run == runs.load(tmp_path / "a").initial_hash
    assert run.belief == Belief.load(tmp_path / "b.json")
    assert not run.config.settings.asymmetric_critic
    assert '"kl_from_start"' in (tmp_path / "f" / "metrics.jsonl").read_text()
    capsys.readouterr()


def test_runs_and_options_that_do_not_fit_are_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained(tmp_path / "a")
    trained(tmp_path / "cart", "cartpole/balance")
    student_run(tmp_path / "s")
    before = sorted(tmp_path.rglob("*"))
    for options, hint in (
        (["--from", "absent"], "absent is not a run"),
        (["--from", "cart"], "for cartpole, not for pendulum"),
        (["--from", "a", "--teacher", "a"], "teacher does not go with start"),
        (["--from", "a", "--method", "rma"], "method does not go with start"),
        (["--from", "s", "--method", "teacher"], "s cannot go on as a teacher"),
        (["--from", "a", "--history", "2"], "history does not go with start"),
        (["--from", "a", "--blind-critic"], "blind_critic does not go with start"),
        (["--from", "a", "--kl", "-1"], "max_kl must be a finite number"),
        (["--from", "a", "--kl", "nan"], "max_kl must be a finite number"),
        (["--kl", "0.1"], "max_kl goes with start"),
        (["--method", "teacher", "--blind-critic"], "blind_critic goes with method ppo"),
    ):
        assert main(["train", NAME, "-o", "r", *options]) == 2, options
        err = capsys.readouterr().err
        assert hint in err, options
        assert err.count("\n") == 1, options
    assert main(["train", "-o", "a", "--resume", "--from", "a"]) == 2
    assert "start cannot change" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_policy_of_another_space_or_shape_is_not_fine_tuned(tmp_path):
    start = trained(tmp_path / "a")
    task = start.task
    with pytest.raises(BadInput, match="another way"):
        finetune_config(start, replace(task, policy=replace(task.policy, history=2)), 0.0)
    other = replace(task.robot, space=replace(task.robot.space, params=task.robot.space.params[1:]))
    with pytest.raises(BadInput, match="another Space"):
        finetune_config(start, replace(task, robot=other), 0.0)
