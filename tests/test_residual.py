"""A policy that corrects another controller: exactly the base until it learns, and one graph with it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from isthmus.adapt import methods
from isthmus.adapt.methods import Parents
from isthmus.cli.main import main
from isthmus.data.contract import Law
from isthmus.deploy.controller import Controller
from isthmus.errors import BadInput
from isthmus.files import content_hash
from isthmus.learn import checkpoint, export, runs
from isthmus.learn.actor import Actor, Shape, forget
from isthmus.learn.context import Context
from isthmus.learn.law import Linear
from isthmus.learn.mirror import reflection
from isthmus.learn.ppo import PPO
from isthmus.learn.residual import read_base
from isthmus.learn.runs import Base, Plan
from isthmus.sim.reality.virtual import level_target
from isthmus.tasks import get_task
from isthmus.tasks.env import Env

SMALL = PPO(worlds=8, ticks=8, minibatch=32, hidden=(16,), critic_hidden=(16,))
PENDULUM = Law((0.1,), {"joint_vel": ((-0.4,),), "joint_pos:angle": ((3.0, 0.5),)})
FILE = 'robot = "pendulum"\nconstant = [0.1]\n[gains]\njoint_vel = [[-0.4]]\n"joint_pos:angle" = [[3.0, 0.5]]\n'


def flying() -> Law:
    """The levelling law of the crazyflie, and a pull towards the commanded place."""
    level = get_task("crazyflie/hover").robot.contract.safety.level
    assert level is not None
    up = ((0.0, 0.0, 0.02),) * 4
    down = ((0.0, 0.0, -0.02),) * 4
    return Law(level.constant, {**level.gains, "quat:gravity": ((0.0, 0.0, 0.001),) * 4, "command": up, "position": down})


def lively(shape: Shape, seed: int = 0) -> Actor:
    """An actor whose actions depend on all that it sees."""
    torch.manual_seed(seed)
    actor = Actor(shape).eval()
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in [*actor.net.parameters(), *(actor.estimator.parameters() if actor.estimator else ())]:
            p.add_(0.2 * torch.randn(p.shape, generator=g))
    return actor


def on_top(name: str, base: Law | Actor, still: bool = True, share: float = 0.5) -> Actor:
    """A residual actor with the base's weights; `still` has the network as training begins."""
    shape = Shape.of(get_task(name), (16,), base=base if isinstance(base, Law) else base.shape, share=share)
    actor = Actor(shape).eval() if still else lively(shape, seed=1)
    if isinstance(base, Actor):
        actor.base.load_state_dict(base.state_dict())
    return actor


def bases(name: str) -> list[Law | Actor]:
    task = get_task(name)
    if name == "pendulum/swingup":
        finds_out = Context("recurrent", size=3, hidden=8, every=3)
        return [PENDULUM, lively(Shape.of(task, (16,), context=finds_out))]
    policy = lively(Shape.of(task, (16,)))
    return [flying(), policy] if name == "crazyflie/hover" else [policy, on_top(name, policy, still=False)]


CASES = [(name, kind) for name in ("pendulum/swingup", "crazyflie/hover", "go1/walk") for kind in (0, 1)]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def case(request) -> tuple[str, Law | Actor]:
    """A law, a policy with a gait, with reflexes or with a memory, and a policy that is itself a residual."""
    name, kind = request.param
    return name, bases(name)[kind]


# Laws of the residual -------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_before_it_learns_a_residual_is_its_base_over_episodes(case):
    """Also through falls and new episodes, and with the base's own history, gait, reflexes and estimates."""
    name, base = case
    task = replace(get_task(name), episode=0.6)
    actor, alone = on_top(name, base), Linear(base, task.robot.contract.target) if isinstance(base, Law) else base
    env = Env(task, 5, seed=3)
    memory, own = actor.memory(5), alone.memory(5)
    moved, ends = [], 0
    for _ in range(40):
        signals = env.signals()
        target, memory = actor(signals, memory)
        wanted, own = alone(signals, own)
        assert torch.equal(target, wanted)
        moved.append(target)
        step = env.step(target)
        done = step.failed | step.timed_out
        forget(memory, done)
        forget(own, done)
        ends += int(done.sum())
    assert torch.stack(moved).std(0).min() > 1e-3
    assert ends >= 5


def test_the_base_has_its_own_memory_under_its_name(case):
    name, base = case
    actor = on_top(name, base)
    below = {k.removeprefix("base."): v.shape for k, v in actor.memory(3).items() if k.startswith("base.")}
    assert below == {} if isinstance(base, Law) else {k: v.shape for k, v in base.memory(3).items()}
    assert all(not v.any() for v in actor.memory(3).values())
    assert not any(p.requires_grad for p in actor.base.parameters())


@torch.no_grad()
@pytest.mark.parametrize("share", [0.1, 1.0])
def test_a_correction_stays_within_its_share_of_the_reach(share):
    for name in ("pendulum/swingup", "crazyflie/hover"):
        task = get_task(name)
        actor = on_top(name, bases(name)[0], share=share)
        signals = Env(task, 4, seed=0).signals()
        _, memory = actor.observe(signals, actor.memory(4))
        policy, target = task.policy, task.robot.contract.target
        mix = np.abs(policy.mix).sum(1) if policy.mix else np.ones(target.size)
        most = torch.tensor(share * policy.reach * policy.clip * mix, dtype=torch.float32)
        for action in (99.0 * torch.ones(4, target.size), 99.0 * torch.randn(4, target.size)):
            got = actor.target(action, memory)
            assert ((got - memory["base_target"]).abs() <= most + 1e-6).all()
            assert (got >= torch.tensor(target.low)).all()
            assert (got <= torch.tensor(target.high)).all()


@torch.no_grad()
def test_the_policy_sees_what_its_base_asks_for(case):
    name, base = case
    task, actor = get_task(name), on_top(name, base, still=False)
    signals = Env(task, 4, seed=1).signals()
    observation, memory = actor.observe(signals, actor.memory(4))
    m = actor.shape.target.size
    seen = observation.view(4, -1, actor.frame)[:, -1, -2 * m : -m]
    assert torch.equal(seen, memory["base_target"] - torch.tensor(task.robot.default))
    other = dict(memory) | {"base_target": memory["base_target"] * 0}
    assert not torch.equal(actor.target(actor.act(observation), memory), actor.target(actor.act(observation), other))


def image(x: torch.Tensor, labels, kind: str, mirror) -> torch.Tensor:
    r = reflection([(list(labels), kind)], mirror)
    return x[:, list(r.order)] * torch.tensor(r.signs)


@torch.no_grad()
@pytest.mark.parametrize("name", ["go1/walk", "crazyflie/hover", "pendulum/swingup"])
def test_a_residual_treats_a_mirror_image_as_a_mirror_image(name):
    """The whole actor, base included; on the other side a gait is half a cycle later."""
    task = get_task(name)
    mirror = task.robot.mirror
    actor = on_top(name, bases(name)[1], still=False)
    here, there = actor.memory(6), actor.memory(6)
    for key in there:
        if key.endswith("phase"):
            there[key] += 0.5
    g = torch.Generator().manual_seed(5)
    target = actor.shape.target
    for _ in range(6):
        signals = {s.name: torch.randn(6, s.size, generator=g) for s in actor.shape.signals}
        other = {s.name: image(signals[s.name], s.labels, s.name, mirror) for s in actor.shape.signals}
        if name == "pendulum/swingup":
            other = {k: -v for k, v in signals.items()}
        elif "quat" in other:
            other["quat"] = signals["quat"] * torch.tensor([1.0, -1.0, 1.0, -1.0])
        left, here = actor(signals, here)
        right, there = actor(other, there)
        assert torch.allclose(right, image(left, target.labels, "target", mirror), atol=1e-5)
    assert left.std(0).min() > 1e-3


@torch.no_grad()
def test_a_law_is_that_of_the_robots_damping_mode():
    """The same targets as the virtual robot's, also for -q instead of q."""
    contract = get_task("crazyflie/hover").robot.contract
    law = contract.safety.level
    module, rng = Linear(law, replace(contract.target, low=(), high=())), np.random.default_rng(0)
    signals = {s.name: rng.normal(size=(50, s.size)) for s in contract.signals}
    got, _ = module({k: torch.tensor(v, dtype=torch.float32) for k, v in signals.items()}, {})
    want = np.stack([level_target(law, {k: v[i] for k, v in signals.items()}) for i in range(50)])
    assert got.numpy() == pytest.approx(want, abs=1e-6)
    flipped, _ = module({k: torch.tensor(-v if k == "quat" else v, dtype=torch.float32) for k, v in signals.items()}, {})
    assert torch.allclose(got, flipped)


# Runs and controllers -------------------------------------------------------------------------------------------------


def work(iterations: int):
    def go(trainer) -> None:
        trainer.save()
        for _ in range(iterations):
            trainer.iterate()
        trainer.save()

    return go


def policy_run(folder: Path, name: str = "pendulum/swingup", **fields) -> Path:
    """A run with a policy that was hardly trained."""
    task = get_task(name)
    methods.begin(folder, Plan(name, steps=1, settings=SMALL, **fields), task, task.robot.prior, Parents(), work(1))
    return folder


def residual_run(folder: Path, base: Path, name: str = "pendulum/swingup", iterations: int = 3):
    task = get_task(name)
    found, weights = read_base(base, task, 0.4)
    plan = Plan(name, steps=1, settings=SMALL, base=found)
    return methods.begin(folder, plan, task, task.robot.prior, Parents(base=weights), work(iterations))


def test_a_run_keeps_its_base_and_trains_on_top_of_it(tmp_path):
    """Also when the base is itself a residual, and when the folder that it came from is gone."""
    policy_run(tmp_path / "a")
    first = runs.load_actor(runs.load(tmp_path / "a"))
    residual_run(tmp_path / "b", tmp_path / "a")
    trainer = residual_run(tmp_path / "c", tmp_path / "b")
    middle = runs.load_actor(runs.load(tmp_path / "b"))
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b")
    run = runs.load(tmp_path / "c")
    assert run.plan == trainer.run.plan
    assert run.plan.base.plan.base.share == 0.4
    found = runs.load_actor(run)
    same = lambda a, b: all(torch.equal(v, b.state_dict()[k]) for k, v in a.state_dict().items())
    assert same(trainer.actor, found)
    assert same(middle, found.base)
    assert same(first, found.base.base)
    assert list(found.net.parameters())[-2].abs().max() > 0


def test_stopped_and_resumed_equals_uninterrupted(tmp_path):
    policy_run(tmp_path / "a")
    whole = residual_run(tmp_path / "whole", tmp_path / "a", iterations=4).arrays()
    residual_run(tmp_path / "parts", tmp_path / "a", iterations=2)
    again = methods.resume(tmp_path / "parts", 0, 0.0, work(2)).arrays()
    assert whole.keys() == again.keys()
    for name in whole:
        assert np.array_equal(whole[name], again[name], equal_nan=True), name


def test_a_run_that_lost_its_base_is_not_resumed(tmp_path):
    policy_run(tmp_path / "a")
    residual_run(tmp_path / "b", tmp_path / "a", iterations=0)
    shutil.rmtree(tmp_path / "b" / "checkpoints")
    with pytest.raises(BadInput, match="start again"):
        methods.resume(tmp_path / "b", 0, 0.0, work(1))


@pytest.mark.parametrize("kind", [pytest.param("law", marks=pytest.mark.slow), "policy"])
def test_a_residual_exports_as_one_graph(tmp_path, monkeypatch, kind):
    name = "crazyflie/hover" if kind == "law" else "pendulum/swingup"
    task, base = get_task(name), bases(name)[kind == "policy"]
    actor = on_top(name, base, still=False)
    below = Base(law=base) if isinstance(base, Law) else Base(plan=Plan(name, settings=SMALL))
    run = runs.create(tmp_path / "run", Plan(name, settings=SMALL, base=below), task, task.robot.prior)
    monkeypatch.setattr(export, "TICKS", 60)
    checked = export.export(run, actor, tmp_path / "a.controller")
    assert 0 < checked["worst"] <= export.TOLERANCE
    manifest = Controller.load(tmp_path / "a.controller").manifest
    assert set(manifest.memory) == set(actor.memory(1))
    assert manifest.operator == ((task.command.signal,) if task.command else ())
    assert ("base.hidden" in manifest.memory) == (kind == "policy")


def test_the_base_of_a_record_is_read_strictly(tmp_path):
    residual_run(tmp_path / "b", _law(tmp_path, FILE), iterations=0)
    record = json.loads((tmp_path / "b" / "run.json").read_text())
    for change, hint in (
        ({"law": None}, "one of the two"),
        ({"share": 1.5}, "reach"),
        ({"shre": 0.5}, "share"),
        ({"law": {"constant": [0.0, 0.0], "gains": {}}}, "constants"),
        ({"law": None, "plan": {"task": "cartpole/balance"}}, "other targets"),
    ):
        plan = record["plan"] | {"base": record["plan"]["base"] | change}
        rest = {k: v for k, v in record.items() if k != "hash"} | {"plan": plan}
        (tmp_path / "b" / "run.json").write_text(json.dumps(rest | {"hash": content_hash(rest)}))
        with pytest.raises(BadInput, match=hint):
            runs.load_actor(runs.load(tmp_path / "b"))
    deep: dict = {"task": "pendulum/swingup"}
    for _ in range(300):
        deep = {"task": "pendulum/swingup", "base": {"plan": deep}}
    rest |= {"plan": deep}
    (tmp_path / "b" / "run.json").write_text(json.dumps(rest | {"hash": content_hash(rest)}))
    with pytest.raises(BadInput, match="bases"):
        runs.load(tmp_path / "b")


def _law(folder: Path, text: str) -> Path:
    (folder / "law.toml").write_text(text)
    return folder / "law.toml"


# The command ----------------------------------------------------------------------------------------------------------


def test_a_residual_is_trained_from_the_command_line(tmp_path, capsys, quick):
    law, out = str(_law(tmp_path, FILE)), str(tmp_path / "r")
    options = ["--reach", "0.25", "--steps", "300", "--worlds", "8", "--json"]
    assert main(["train", "pendulum/swingup", "--base", law, "-o", out, *options]) == 0
    capsys.readouterr()
    run = runs.load(tmp_path / "r")
    assert run.plan.base == Base(law=PENDULUM, share=0.25)
    actor = runs.load_actor(run)
    assert actor.reach.tolist() == [0.25 * run.task.policy.reach]
    assert torch.equal(actor.base.gain, torch.tensor([[-0.4, 3.0, 0.5]]))


def test_the_laws_in_the_guide_are_laws(tmp_path):
    guide = Path(__file__).parents[1] / "docs" / "guides" / "residual-and-fine-tuning.md"
    found = re.findall(r"```toml\n(.*?)```", guide.read_text(), re.DOTALL)
    tasks = {"cartpole": "cartpole/balance", "pendulum": "pendulum/swingup"}
    for text in found:
        task = get_task(tasks[re.findall(r'robot = "(.*)"', text)[0]])
        base, weights = read_base(_law(tmp_path, text), task, 0.5)
        assert base.law is not None
        assert weights is None
    assert len(found) == 2


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (FILE.replace('"pendulum"', '"cartpole"'), "for 'cartpole', not for pendulum"),
        (FILE.replace('robot = "pendulum"\n', ""), 'write robot = "pendulum"'),
        (FILE.replace("joint_vel", "joint_velocity"), "'joint_vel'"),
        (FILE.replace(":angle", ":angel"), "'angle'"),
        (FILE.replace(":angle", ":gravity"), "only a quaternion"),
        (FILE.replace("[0.1]", "[0.1, 0.2]"), "2 constants, but joint_torque has 1"),
        (FILE.replace("3.0, 0.5", "3.0"), "'joint_pos:angle' must have 1 rows of 2 numbers"),
        (FILE.replace("[[-0.4]]", "[[-0.4], [1.0]]"), "'joint_vel' must have 1 rows of 1 numbers"),
        (FILE.replace("-0.4", '"a"'), "must be a number"),
        (FILE.replace("-0.4", "nan"), "finite"),
        (FILE.replace("constant", "constnat"), "'constant'"),
        (FILE.split("[gains]", maxsplit=1)[0], "no gains"),
        ("robot = ", "not valid TOML"),
    ],
)
def test_a_law_that_does_not_fit_is_one_sentence(tmp_path, capsys, text, hint):
    law = _law(tmp_path, text)
    assert main(["train", "pendulum/swingup", "--base", str(law), "-o", str(tmp_path / "r")]) == 2
    err = capsys.readouterr().err
    assert hint in err
    assert str(law) in err
    assert err.count("\n") == 1
    assert not (tmp_path / "r").exists()


def test_bases_and_options_that_do_not_fit_are_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _law(tmp_path, FILE)
    policy_run(tmp_path / "a")
    policy_run(tmp_path / "cart", "cartpole/balance")
    policy_run(tmp_path / "teacher", method="teacher", context=Context("privileged", 3, 8))
    runs.create(
        tmp_path / "new", Plan("pendulum/swingup"), get_task("pendulum/swingup"), get_task("pendulum/swingup").robot.prior
    )
    before = sorted(tmp_path.rglob("*"))
    for options, hint in (
        (["--base", "absent"], "absent"),
        (["--base", "cart"], "for cartpole, not for pendulum"),
        (["--base", "teacher"], "is a teacher"),
        (["--base", "new"], "no checkpoint"),
        (["--base", "a/checkpoints"], "not a run"),
        (["--base", "a", "--method", "student", "--teacher", "teacher"], "only ppo"),
        (["--base", "law.toml", "--method", "rma"], "only ppo"),
        (["--base", "a", "--reach", "0"], "above 0 and up to 1"),
        (["--base", "a", "--reach", "1.5"], "above 0 and up to 1"),
        (["--base", "a", "--reach", "nan"], "above 0 and up to 1"),
        (["--reach", "0.2"], "--reach goes with --base"),
        (["--base", "a", "--from", "a"], "--base does not go with --from"),
    ):
        assert main(["train", "pendulum/swingup", "-o", "r", *options]) == 2, options
        err = capsys.readouterr().err
        assert hint in err, options
        assert err.count("\n") == 1, options
    assert main(["train", "-o", "a", "--resume", "--base", "law.toml"]) == 2
    assert "--base cannot change" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_policy_of_another_space_is_no_base(tmp_path):
    policy_run(tmp_path / "a")
    task = get_task("pendulum/swingup")
    other = replace(task.robot, space=replace(task.robot.space, params=task.robot.space.params[1:]))
    with pytest.raises(BadInput, match="another Space"):
        read_base(tmp_path / "a", replace(task, robot=other), 0.5)


def test_checkpoints_hold_the_base(tmp_path):
    """Its weights, and what it asked for before the first tick."""
    policy_run(tmp_path / "a")
    kept = residual_run(tmp_path / "b", tmp_path / "a", iterations=0).collector.memory
    base = runs.load_actor(runs.load(tmp_path / "a"))
    with torch.no_grad():
        asked = base.target(base.act(kept["base.frames"].flatten(1)), {})
    assert torch.equal(kept["base_target"], asked)
    above, _ = checkpoint.read(checkpoint.newest(tmp_path / "b"))
    below, _ = checkpoint.read(checkpoint.newest(tmp_path / "a"))
    for name, array in below.items():
        if name.startswith("actor."):
            assert np.array_equal(above["actor.base." + name.removeprefix("actor.")], array)
