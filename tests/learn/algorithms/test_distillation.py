"""Laws of the way from a teacher to a policy that finds out for itself."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from isthmus.cli.main import main
from isthmus.core.errors import BadInput
from isthmus.data.mcap.reader import read_episode
from isthmus.deploy.onnx_controller import OnnxController
from isthmus.learn import checkpoint, runs, training
from isthmus.learn.algorithms.algorithm import PPOTrainer
from isthmus.learn.algorithms.distillation import DistillationTrainer, teacher_latent
from isthmus.learn.algorithms.ppo import PPOConfig
from isthmus.learn.policies.actor import Actor
from isthmus.learn.policies.context import Context
from isthmus.learn.runs import RunConfig
from isthmus.robots import get_robot
from isthmus.sim.reality import Reality, VirtualRobot
from isthmus.tasks.catalogue import TASKS, get_task
from isthmus.world import Belief
from support.lockstep import fly

SMALL = PPOConfig(worlds=12, rollout_ticks=8, minibatch_size=48, hidden=(16,), critic_hidden=(16,), learning_rate=3e-3)
TOLD = Context("privileged", 3, 16)
KINDS = {"window": replace(TOLD, source="convolution", history=0.2), "memory": replace(TOLD, source="recurrent")}
KINDS["slow memory"] = replace(KINDS["memory"], update_ticks=3)


def teacher_of(name: str, seed: int = 0) -> Actor:
    """A teacher whose actions depend strongly on what it is told."""
    torch.manual_seed(seed)
    actor = Actor(RunConfig(name, settings=SMALL, context=TOLD).actor_spec(get_task(name))).eval()
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in actor.net.parameters():
            p.add_(0.15 * torch.randn(p.shape, generator=g))
        actor.normalize.mean += 0.1 * torch.randn(actor.observation_size, generator=g)
    return actor


def distiller(tmp_path: Path, name: str, method: str, kind: str, settings: PPOConfig = SMALL) -> DistillationTrainer:
    task = get_task(name)
    plan = RunConfig(name, method, 0, 100, settings=settings, context=KINDS[kind])
    made = DistillationTrainer(runs.create(tmp_path, plan, task, task.robot.prior))
    made.initialize_from(teacher_of(name))
    return made


@pytest.mark.parametrize("name", ["cartpole/balance", "go1/hard"])
def test_given_the_teachers_own_z_a_student_acts_as_the_teacher(tmp_path, name):
    """Body, statistics and symmetry were taken over: only z is left to find."""
    made = distiller(tmp_path, name, "student", "memory")
    actor, teacher = made.actor, made.teacher
    g = torch.Generator().manual_seed(1)
    seen, told = (
        torch.randn(30, actor.history_size, generator=g),
        torch.randn(30, teacher.observation_size - actor.history_size, generator=g),
    )
    with torch.no_grad():
        x = torch.cat([seen, told], dim=1)
        z = teacher_latent(teacher, teacher.normalize(x))
        # What is guessed passes the statistics unchanged but for their guard against a division by zero.
        mine = actor.act(torch.cat([seen, z], dim=1))
        assert torch.allclose(mine, teacher.act(x), atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_estimates_in_learning_are_those_of_the_rollout(tmp_path, kind):
    """Recomputed from what was kept, through ends of episodes, ẑ is what the policy acted on."""
    name = "cartpole/balance"
    task = replace(get_task(name), episode=0.3)
    plan = RunConfig(name, "rma", settings=SMALL, context=replace(KINDS[kind], history=0.1))
    made = DistillationTrainer(runs.create(tmp_path, plan, task, task.robot.prior))
    made.initialize_from(teacher_of(name))
    observed = []
    act = made.actor.act
    made.actor.act = lambda x: (observed.append(x[:, made.actor.history_size :].clone()), act(x))[1]
    for _ in range(3):
        observed.clear()
        rollout, _ = made._collect(8)
        ids = torch.tensor([3, 0, 7])
        with torch.no_grad():
            again = made._estimates(rollout, ids)
        assert torch.allclose(again, torch.stack(observed)[:, ids], atol=1e-5)
    assert rollout.episode_start.sum() > 0


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("student", "memory"),
        pytest.param("student", "window", marks=pytest.mark.slow),
        pytest.param("rma", "slow memory", marks=pytest.mark.slow),
    ],
)
def test_a_student_comes_to_do_what_its_teacher_does(tmp_path, method, kind):
    made = distiller(tmp_path, "cartpole/balance", method, kind, replace(SMALL, worlds=48, minibatch_size=192))
    losses = [made.learn()[0][f"{method}_loss"] for _ in range(25)]
    assert np.mean(losses[-3:]) < 0.6 * losses[0]


def test_rma_leaves_the_teachers_policy_as_it_is_and_a_student_does_not(tmp_path):
    for method, moves in (("rma", False), ("student", True)):
        made = distiller(tmp_path / method, "cartpole/balance", method, "memory")
        body = {k: v.clone() for k, v in made.actor.net.state_dict().items()}
        taught = {k: v.clone() for k, v in made.teacher.state_dict().items()}
        made.learn()
        assert any(not torch.equal(v, body[k]) for k, v in made.actor.net.state_dict().items()) == moves
        assert all(torch.equal(v, taught[k]) for k, v in made.teacher.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_and_resumed_equals_never_stopped(tmp_path, kind):
    made = distiller(tmp_path, "cartpole/balance", "student", kind)
    made.learn()
    made.save()
    again = training.make_trainer(runs.load(tmp_path))
    again.restore(checkpoint.newest(tmp_path))
    for _ in range(2):
        first, second = made.learn()[0], again.learn()[0]
        assert first == second
    for name, value in made.arrays().items():
        assert np.array_equal(value, again.arrays()[name]), name


# The command line -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taught(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("taught") / "t"
    task = get_task("cartpole/balance")
    plan = RunConfig(task.name, "teacher", steps=100, settings=SMALL, context=TOLD)
    PPOTrainer(runs.create(folder, plan, task, task.robot.prior)).save()
    return folder


@pytest.mark.slow
def test_a_student_of_a_teacher_by_the_command_line(taught, tmp_path, capsys, quick):
    out = tmp_path / "s"
    options = ["--method", "student", "--teacher", str(taught), "--steps", "600", "--worlds", "8", "--json"]
    assert main(["train", "cartpole/balance", *options, "-o", str(out)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["steps"] >= 600
    run = runs.load(out)
    assert run.config.teacher == runs.load(taught).initial_hash
    assert run.config.context.source == "recurrent"
    assert main(["train", "--resume", "--steps", "1200", "-o", str(out), "--json"]) == 0


@pytest.mark.slow
def test_rma_trains_its_own_teacher_first(tmp_path, quick):
    out = tmp_path / "r"
    options = ["--method", "rma", "--memory", "convolution", "--history", "0.2", "--every", "2", "--steps", "1000"]
    assert main(["train", "cartpole/balance", *options, "--worlds", "8", "-o", str(out), "--json"]) == 0
    run, own = runs.load(out), runs.load(out / "teacher")
    assert run.config.teacher == own.initial_hash
    assert (own.config.steps, run.config.steps) == (600, 400)
    assert run.config.context == replace(own.config.context, source="convolution", history=0.2, update_ticks=2)
    # The teacher is done: of a larger budget, what it did not take is the student's.
    assert main(["train", "--resume", "--steps", "1200", "-o", str(out), "--json"]) == 0
    assert (runs.load(out / "teacher").config.steps, runs.load(out).config.steps) == (600, 600)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["pendulum/swingup", "--method", "student", "--teacher", "TEACHER"], "was trained for cartpole, not for pendulum"),
        (["cartpole/balance", "--method", "student"], "a student needs a teacher: give the run of one"),
        (["cartpole/balance", "--teacher", "TEACHER"], "teacher goes with method student or rma, not with ppo"),
        (
            ["cartpole/balance", "--method", "rma", "--memory", "convolution", "--history", "99"],
            "longer than the link can give",
        ),
        (["cartpole/balance", "--method", "studnet"], "student"),
        (["cartpole/balance", "--history", "3"], "history goes with method student or rma, which look back; ppo does not"),
        (
            ["cartpole/balance", "--method", "rma", "--history", "99"],
            "goes with memory convolution",
        ),
        (["cartpole/balance", "--adr", "--width", "2"], "adr finds its own ranges"),
        (["cartpole/balance", "--method", "student", "--teacher", "NOWHERE"], "is not a run"),
    ],
)
def test_what_cannot_be_taught_is_said_in_one_sentence(taught, tmp_path, capsys, options, says):
    options = [str(taught) if o == "TEACHER" else o for o in options]
    assert main(["train", *options, "--steps", "100", "-o", str(tmp_path / "x")]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "x").exists()


def test_another_teacher_in_the_folder_is_not_taken(taught, tmp_path, capsys, quick):
    options = ["--method", "rma", "--steps", "100", "--worlds", "8", "-o", str(tmp_path / "r"), "--json"]
    assert main(["train", "cartpole/balance", *options]) == 0
    shutil.rmtree(tmp_path / "r/checkpoints")
    shutil.rmtree(tmp_path / "r/teacher")
    shutil.copytree(taught, tmp_path / "r/teacher")
    assert main(["train", "--resume", "-o", str(tmp_path / "r")]) == 2
    assert "is not the teacher that" in capsys.readouterr().err


def test_a_policy_that_was_told_nothing_cannot_teach(tmp_path, capsys, quick):
    assert main(["train", "cartpole/balance", "--steps", "200", "--worlds", "8", "-o", str(tmp_path / "p"), "--json"]) == 0
    options = ["--method", "student", "--teacher", str(tmp_path / "p"), "--steps", "100", "-o", str(tmp_path / "x")]
    assert main(["train", "cartpole/balance", *options]) == 2
    assert "is not a teacher: its method was 'ppo'" in capsys.readouterr().err


def test_a_teacher_of_another_space_is_refused_in_one_sentence(taught, tmp_path, capsys, monkeypatch):
    whole = get_task("cartpole/balance")
    space = replace(whole.robot.space, params=whole.robot.space.params[:-1])
    kept = tuple(f for f in whole.robot.prior.factors if set(f.names) <= set(space.names))
    monkeypatch.setitem(
        TASKS, "cartpole/balance", lambda: replace(whole, robot=replace(whole.robot, space=space, prior=Belief(space, kept)))
    )
    options = ["--method", "student", "--teacher", str(taught), "--steps", "100", "-o", str(tmp_path / "x")]
    assert main(["train", "cartpole/balance", *options]) == 2
    err = capsys.readouterr().err
    assert "another space of cartpole" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_student_runs_on_a_virtual_robot_with_its_own_signals_only(tiny, tmp_path):
    """And what it remembers goes from tick to tick: the same signals again, from a fresh memory, give the same targets."""
    assert main(["export", str(tiny["student"]), "-o", str(tmp_path / "s.controller"), "--json"]) == 0
    controller = OnnxController.load(tmp_path / "s.controller")
    assert set(controller.manifest.inputs) <= {s.name for s in get_robot("pendulum").contract.signals}
    assert controller.manifest.memory
    body = VirtualRobot(get_robot("pendulum"), Reality.from_dict({"robot": "pendulum", "params": {"payload": 0.05}}))
    ended, _ = fly(controller, body, 1.0, tmp_path / "r.mcap")
    assert ended.status == "completed"
    episode = read_episode(tmp_path / "r.mcap")
    asked = np.flatnonzero(np.isfinite(episode.wanted).all(axis=1))
    assert len(asked) >= 45
    controller.reset()
    again = [controller.tick({n: episode.signals[n][t] for n in controller.manifest.inputs}) for t in asked]
    assert np.array_equal(np.array(again, float), episode.wanted[asked])


def test_a_teacher_of_another_space_is_refused(taught):
    task = get_task("cartpole/balance")
    space = replace(task.robot.space, params=task.robot.space.params[:-1])
    other = replace(task, robot=replace(task.robot, space=space))
    with pytest.raises(BadInput, match="another Space of cartpole"):
        training.check_teacher(runs.load(taught), other)
