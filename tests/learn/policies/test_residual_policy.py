"""A policy that corrects another controller: exactly the base until it learns, and one graph with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from isthmus.data.contract import AffineFeedback
from isthmus.deploy.onnx_controller import OnnxController
from isthmus.learn import runs
from isthmus.learn.policies import export
from isthmus.learn.policies.actor import Actor, ActorSpec, reset_memory
from isthmus.learn.policies.context import Context
from isthmus.learn.policies.linear_controller import LinearController
from isthmus.learn.policies.symmetry import reflection
from isthmus.learn.runs import BaseController, RunConfig
from isthmus.sim.reality.virtual_robot import level_target
from isthmus.tasks.catalogue import get_task
from isthmus.tasks.env import Env
from support.short_training import PENDULUM, SMALL


def flying() -> AffineFeedback:
    """The levelling law of the crazyflie, and a pull towards the commanded place."""
    level = get_task("crazyflie/hover").robot.contract.safety.level
    assert level is not None
    up = ((0.0, 0.0, 0.02),) * 4
    down = ((0.0, 0.0, -0.02),) * 4
    return AffineFeedback(
        level.constant, {**level.gains, "quat:gravity": ((0.0, 0.0, 0.001),) * 4, "command": up, "position": down}
    )


def lively(shape: ActorSpec, seed: int = 0) -> Actor:
    """An actor whose actions depend on all that it sees."""
    torch.manual_seed(seed)
    actor = Actor(shape).eval()
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in [*actor.net.parameters(), *(actor.estimator.parameters() if actor.estimator else ())]:
            p.add_(0.2 * torch.randn(p.shape, generator=g))
    return actor


def on_top(name: str, base: AffineFeedback | Actor, still: bool = True, share: float = 0.5) -> Actor:
    """A residual actor with the base's weights; `still` has the network as training begins."""
    shape = ActorSpec.for_task(
        get_task(name), (16,), base=base if isinstance(base, AffineFeedback) else base.spec, residual_scale=share
    )
    actor = Actor(shape).eval() if still else lively(shape, seed=1)
    if isinstance(base, Actor):
        actor.base.load_state_dict(base.state_dict())
    return actor


def bases(name: str) -> list[AffineFeedback | Actor]:
    task = get_task(name)
    if name == "pendulum/swingup":
        finds_out = Context("recurrent", latent_size=3, hidden=8, update_ticks=3)
        return [PENDULUM, lively(ActorSpec.for_task(task, (16,), context=finds_out))]
    policy = lively(ActorSpec.for_task(task, (16,)))
    return [flying(), policy] if name == "crazyflie/hover" else [policy, on_top(name, policy, still=False)]


CASES = [(name, kind) for name in ("pendulum/swingup", "crazyflie/hover", "go1/walk") for kind in (0, 1)]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def case(request) -> tuple[str, AffineFeedback | Actor]:
    """A law, a policy with a gait, with reflexes or with a memory, and a policy that is itself a residual."""
    name, kind = request.param
    return name, bases(name)[kind]


# Laws of the residual -------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_before_it_learns_a_residual_is_its_base_over_episodes(case):
    """Also through falls and new episodes, and with the base's own history, gait, reflexes and estimates."""
    name, base = case
    task = replace(get_task(name), episode=0.6)
    actor, alone = (
        on_top(name, base),
        LinearController(base, task.robot.contract.target) if isinstance(base, AffineFeedback) else base,
    )
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
        done = step.terminated | step.timed_out
        reset_memory(memory, done)
        reset_memory(own, done)
        ends += int(done.sum())
    assert torch.stack(moved).std(0).min() > 1e-3
    assert ends >= 5


def test_the_base_has_its_own_memory_under_its_name(case):
    name, base = case
    actor = on_top(name, base)
    below = {k.removeprefix("base."): v.shape for k, v in actor.memory(3).items() if k.startswith("base.")}
    assert below == ({} if isinstance(base, AffineFeedback) else {k: v.shape for k, v in base.memory(3).items()})
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
        mix = np.abs(policy.mixer).sum(1) if policy.mixer else np.ones(target.size)
        most = torch.tensor(share * policy.action_scale * policy.action_clip * mix, dtype=torch.float32)
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
    m = actor.spec.target.size
    seen = observation.view(4, -1, actor.frame_size)[:, -1, -2 * m : -m]
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
    mirror = task.robot.morphology.mirror
    actor = on_top(name, bases(name)[1], still=False)
    here, there = actor.memory(6), actor.memory(6)
    for key in there:
        if key.endswith("phase"):
            there[key] += 0.5
    g = torch.Generator().manual_seed(5)
    target = actor.spec.target
    for _ in range(6):
        signals = {s.name: torch.randn(6, s.size, generator=g) for s in actor.spec.signals}
        other = {s.name: image(signals[s.name], s.labels, s.name, mirror) for s in actor.spec.signals}
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
    module, rng = LinearController(law, replace(contract.target, low=(), high=())), np.random.default_rng(0)
    signals = {s.name: rng.normal(size=(50, s.size)) for s in contract.signals}
    got, _ = module({k: torch.tensor(v, dtype=torch.float32) for k, v in signals.items()}, {})
    want = np.stack([level_target(law, {k: v[i] for k, v in signals.items()}) for i in range(50)])
    assert got.numpy() == pytest.approx(want, abs=1e-6)
    flipped, _ = module({k: torch.tensor(-v if k == "quat" else v, dtype=torch.float32) for k, v in signals.items()}, {})
    assert torch.allclose(got, flipped)


# One graph ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pytest.param("law", marks=pytest.mark.slow), "policy"])
def test_a_residual_exports_as_one_graph(tmp_path, monkeypatch, kind):
    name = "crazyflie/hover" if kind == "law" else "pendulum/swingup"
    task, base = get_task(name), bases(name)[kind == "policy"]
    actor = on_top(name, base, still=False)
    below = (
        BaseController(law=base) if isinstance(base, AffineFeedback) else BaseController(config=RunConfig(name, settings=SMALL))
    )
    run = runs.create(tmp_path / "run", RunConfig(name, settings=SMALL, base=below), task, task.robot.prior)
    monkeypatch.setattr(export, "TICKS", 60)
    checked = export.export_actor(run, actor, tmp_path / "a.controller")
    assert 0 < max(checked.largest_difference.values()) <= export.TOLERANCE
    manifest = OnnxController.load(tmp_path / "a.controller").manifest
    assert set(manifest.memory) == set(actor.memory(1))
    assert manifest.operator == ((task.command.signal,) if task.command else ())
    assert ("base.hidden" in manifest.memory) == (kind == "policy")
