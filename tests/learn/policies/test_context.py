"""Laws of a policy that knows, or finds out, in which world it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from isthmus.core.errors import BadInput
from isthmus.learn import runs
from isthmus.learn.policies import export as export_module
from isthmus.learn.policies.actor import Actor, ActorSpec, reset_memory
from isthmus.learn.policies.context import Context, RecurrentHistory
from isthmus.learn.policies.export import export_actor
from isthmus.learn.policies.symmetry import reflection
from isthmus.tasks.catalogue import get_task
from isthmus.tasks.env import Env
from isthmus.tasks.task import privileged_signals

FOUND = [Context("convolution", 4, 16, 0.3), Context("recurrent", 4, 16), Context("recurrent", 4, 16, update_ticks=3)]
FOUND += [Context("convolution", 4, 16, 0.3, update_ticks=4)]


def shaken(context: Context, name: str = "go1/walk", mirrored: bool = True, size: float = 0.2) -> Actor:
    """A policy whose weights and statistics are far from where they start."""
    torch.manual_seed(0)
    actor = Actor(ActorSpec.for_task(get_task(name), (16,), mirrored, context)).eval()
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in actor.parameters():
            p.add_(size * torch.randn(p.shape, generator=g))
        x = 0.3 + torch.randn(50, actor.observation_size, generator=g) * (0.3 + torch.rand(actor.observation_size, generator=g))
        actor.normalize.update(x, actor.net.reflect if mirrored else None)
        if actor.estimator is not None:
            frames, phi = 0.3 + torch.randn(50, actor.frame_size, generator=g), actor.estimator
            reflect = (lambda f: f[:, phi.order] * phi.signs) if mirrored else None
            phi.normalize.update(frames * (0.3 + torch.rand(actor.frame_size, generator=g)), reflect)
    return actor


def drive(actor: Actor, ticks: int, n: int = 3, seed: int = 2, mirror: bool = False, start: float = 0.0):
    """Targets and memories under signals that wander; with `mirror` all of it as in a mirror."""
    task, g = get_task("go1/walk"), torch.Generator().manual_seed(seed)
    walk = {s.name: torch.zeros(n, s.size) for s in actor.spec.signals}
    memory = actor.memory(n) | {"phase": torch.full((n, 1), start)}
    for _ in range(ticks):
        walk = {k: 0.8 * v + 0.3 * torch.randn(v.shape, generator=g) for k, v in walk.items()}
        signals = {
            s.name: image(walk[s.name], s, task.robot.morphology.mirror) if mirror else walk[s.name] for s in actor.spec.signals
        }
        with torch.no_grad():
            target, memory = actor(signals, memory)
        yield target, memory


def image(x: torch.Tensor, signal, mirror) -> torch.Tensor:
    if signal.name == "quat":
        return x * torch.tensor([1.0, -1.0, 1.0, -1.0])
    r = reflection([(list(signal.labels), signal.name)], mirror)
    return x[:, list(r.order)] * torch.tensor(r.signs)


@pytest.mark.parametrize("context", FOUND, ids=str)
def test_a_policy_that_finds_out_treats_mirrored_histories_as_mirror_images(context):
    actor, task = shaken(context), get_task("go1/walk")
    for (here, _), (there, _) in zip(drive(actor, 30), drive(actor, 30, mirror=True, start=0.5), strict=True):
        want = image(here, actor.spec.target, task.robot.morphology.mirror)
        assert torch.allclose(there, want, atol=1e-4)
    assert (here - actor.default).abs().max() > 0.01


def test_a_teacher_treats_a_mirrored_world_as_a_mirror_image():
    actor, task = shaken(Context("privileged", 4, 16)), get_task("go1/walk")
    parts = actor.spec.observation_labels() * actor.spec.policy.history + [
        (list(s.labels), s.name) for s in actor.spec.privileged
    ]
    r = reflection(parts, task.robot.morphology.mirror)
    x = torch.randn(20, actor.observation_size, generator=torch.Generator().manual_seed(3))
    there = actor.act(x[:, list(r.order)] * torch.tensor(r.signs))
    assert torch.allclose(there, image(actor.act(x), actor.spec.target, task.robot.morphology.mirror), atol=1e-5)


def test_only_a_teacher_depends_on_what_no_sensor_measures():
    """In a world that is told to be another one, a teacher acts differently and nobody else does."""
    task = get_task("go1/walk")
    for source in ("none", "privileged", "convolution", "recurrent"):
        actor = shaken(Context(source, 4, 16, 0.3))
        env = Env(task, 2, seed=0, training=False, e=np.tile(task.robot.space.nominal, (2, 1)))
        first = actor.read_signals(env)
        second = {k: v + 0.3 if k == "e" else v for k, v in first.items()}
        with torch.no_grad():
            a, b = (actor(signals, actor.memory(2))[0] for signals in (first, second))
        assert torch.equal(a, b) == (source != "privileged")
        assert ("e" in first) == (source == "privileged")


def test_what_a_teacher_is_told_is_the_disturbance_and_e():
    task = get_task("crazyflie/hover")
    env = Env(task, 5, seed=1)
    told = env.privileged()
    assert [(s.name, s.size) for s in privileged_signals(task)] == [(k, v.shape[1]) for k, v in told.items()]
    assert torch.allclose(told["e"], torch.from_numpy(task.robot.space.unit(env.sim.e) * 2 - 1).float())
    steady = torch.from_numpy(np.linalg.norm(env.disturbances.steady, axis=1) / env.disturbances.mass).float()
    assert torch.allclose(told["force"].norm(dim=1), steady, atol=1e-5)
    assert told["force"].abs().max() > 0
    env.step(env.default.repeat(5, 1))
    weight = torch.from_numpy(np.linalg.norm(env.disturbances.force, axis=1) / env.disturbances.mass).float()
    assert torch.allclose(env.privileged()["force"].norm(dim=1), weight, atol=1e-5)
    assert weight.max() > 0


@pytest.mark.parametrize("context", [c for c in FOUND if c.update_ticks > 1], ids=str)
def test_an_estimate_holds_between_its_ticks(context):
    actor = shaken(context)
    estimates = [memory["z"].clone() for _, memory in drive(actor, 3 * context.update_ticks)]
    for t, z in enumerate(estimates):
        same = torch.equal(z, estimates[t - 1]) if t else False
        assert same == (t % context.update_ticks != 0)


def test_a_window_forgets_what_is_older_and_a_memory_does_not():
    """The same last ten frames after different pasts."""
    for context, remembers in ((Context("convolution", 4, 16, 0.2), False), (Context("recurrent", 4, 16), True)):
        actor = shaken(context)
        g = torch.Generator().manual_seed(5)
        frames = torch.randn(1, 30, actor.frame_size, generator=g)
        other = torch.cat([torch.randn(1, 20, actor.frame_size, generator=g), frames[:, 20:]], dim=1)
        phi = actor.estimator
        out = []
        for past in (frames, other):
            memory = phi.memory(1)
            for t in range(10, 31):
                with torch.no_grad():
                    z, memory = phi(past[:, max(0, t - phi.frames) : t], memory)
            out.append(z)
        assert torch.equal(*out) != remembers


def test_a_recurrent_memory_is_torchs_own_gated_unit():
    torch.manual_seed(0)
    ours = RecurrentHistory(6, Context("recurrent", 3, 5))
    theirs = torch.nn.GRUCell(5, 5)
    with torch.no_grad():
        # torch's update gate keeps where ours renews.
        sign = torch.tensor([1.0] * 5 + [-1.0] * 5 + [1.0] * 5)
        theirs.weight_ih.copy_(ours.inward.weight * sign[:, None])
        theirs.bias_ih.copy_(ours.inward.bias * sign)
        theirs.weight_hh.copy_(torch.cat([ours.gates.weight, ours.candidate.weight]) * sign[:, None])
        theirs.bias_hh.zero_()
        # torch resets after the matrix, ours before it: equal where the reset gate is one number.
        for table in (theirs.weight_ih, theirs.weight_hh, ours.inward.weight, ours.gates.weight):
            table[:5] = 0.0
        theirs.bias_ih[:5] = ours.inward.bias[:5] = 0.7
        frame, h = torch.randn(4, 6), torch.randn(4, 5)
        assert torch.allclose(ours.step(frame, h), theirs(ours.embed(frame), h), atol=1e-6)


@pytest.mark.parametrize("context", FOUND, ids=str)
def test_worlds_do_not_mix_and_forgetting_starts_anew(context):
    actor = shaken(context)
    *_, (_, memory) = drive(actor, 12)
    reset_memory(memory, torch.tensor([True, False, False]))
    signals = {s.name: torch.ones(3, s.size) for s in actor.spec.signals}
    with torch.no_grad():
        target, _ = actor(signals, {k: v.clone() for k, v in memory.items()})
        fresh, _ = actor({k: v[:1] for k, v in signals.items()}, actor.memory(1))
        alone, _ = actor({k: v[1:2] for k, v in signals.items()}, {k: v[1:2] for k, v in memory.items()})
    assert torch.allclose(target[0], fresh[0], atol=1e-6)
    assert torch.allclose(target[1], alone[0], atol=1e-6)
    assert not torch.allclose(target[1], target[0], atol=1e-3)


@pytest.mark.parametrize("context", [FOUND[0], FOUND[2]], ids=str)
def test_the_controller_of_a_policy_that_finds_out_equals_it_tick_by_tick(context, tmp_path, monkeypatch):
    actor, task = shaken(context), get_task("go1/walk")
    plan = runs.RunConfig("go1/walk", "student", context=context)
    run = runs.create(tmp_path / "run", plan, task, task.robot.prior)
    monkeypatch.setattr(export_module, "TICKS", 80)
    found = export_actor(run, actor, tmp_path / "a.controller")
    assert max(found.largest_difference.values()) < 1e-5


def test_a_teacher_cannot_be_exported(tmp_path):
    task = get_task("go1/walk")
    run = runs.create(tmp_path / "run", runs.RunConfig("go1/walk", "teacher"), task, task.robot.prior)
    with pytest.raises(BadInput, match="is a teacher: no robot can tell it e"):
        export_actor(run, shaken(Context("privileged", 4, 16)), tmp_path / "a.controller")
    assert not (tmp_path / "a.controller").exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"history": 30.0}, "longer than the link can give: an episode of go1/walk lasts 10 s"),
        ({"history": 0.02}, "less than two ticks of go1, 0.04 s"),
    ],
)
def test_a_history_must_fit_between_two_ticks_and_an_episode(change, says):
    with pytest.raises(BadInput, match=says):
        ActorSpec.for_task(get_task("go1/walk"), (8,), context=replace(Context("convolution"), **change))


@pytest.mark.parametrize("change", [{"history": -1.0}, {"history": float("nan")}, {"update_ticks": 0}, {"latent_size": 0}])
def test_a_context_without_sense_is_refused(change):
    with pytest.raises(BadInput, match=r"context|history"):
        Context("recurrent", **change)
