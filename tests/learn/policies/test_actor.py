"""From signals to targets: one definition, on the robot as in training."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from isthmus.core.errors import BadInput
from isthmus.core.geometry import to_matrix
from isthmus.learn.policies.actor import Actor, ActorSpec, reset_memory
from isthmus.learn.policies.actor_spec import available_signals
from isthmus.learn.policies.observation_terms import compute_observation_term
from isthmus.tasks.catalogue import get_task
from isthmus.tasks.task import ObservationTerm

N = 5


@pytest.fixture(scope="module")
def actor(task) -> Actor:
    torch.manual_seed(0)
    made = Actor(ActorSpec.for_task(task, (16,)))
    with torch.no_grad():
        list(made.net.parameters())[-2].mul_(100)
    return made


def signals_of(actor: Actor, n: int = N, seed: int = 0) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {s.name: torch.randn(n, s.size, generator=g) for s in actor.spec.signals}


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_one_tick_is_observe_act_target_remember(actor):
    memory = actor.memory(N)
    with torch.no_grad():
        for tick in range(4):
            signals = signals_of(actor, seed=tick)
            target, after = actor(signals, memory)
            observation, kept = actor.observe(signals, memory)
            action = actor.act(observation)
            assert torch.equal(target, actor.target(action, kept))
            assert same(after, actor.remember(kept, action))
            memory = after


def test_the_first_frame_fills_the_history(actor):
    observation, memory = actor.observe(signals_of(actor), actor.memory(N))
    frames = observation.view(N, actor.spec.policy.history, actor.frame_size)
    assert (frames == frames[:, :1]).all()
    assert (memory["started"] == 1).all()


def test_history_is_oldest_first_newest_last(actor):
    h = actor.spec.policy.history
    memory, newest = actor.memory(N), []
    for tick in range(h + 2):
        observation, memory = actor.observe(signals_of(actor, seed=tick), memory)
        newest.append(observation.view(N, h, actor.frame_size)[:, -1].clone())
        memory = actor.remember(memory, torch.full((N, actor.spec.target.size), 0.1 * tick))
    assert torch.equal(observation.view(N, h, actor.frame_size), torch.stack(newest[-h:], dim=1))


def test_a_frame_holds_the_prepared_signals_and_the_last_action(actor):
    signals, memory = signals_of(actor), actor.memory(N)
    memory["action"] = torch.arange(actor.spec.target.size).float().repeat(N, 1)
    frame = actor.observe(signals, memory)[0].view(N, -1, actor.frame_size)[:, -1]
    parts = torch.cat([compute_observation_term(o, signals, actor.default) for o in actor.spec.policy.observations], dim=1)
    assert torch.equal(frame[:, : parts.shape[1]], parts)
    assert torch.equal(frame[:, -actor.spec.target.size :], memory["action"])


def test_targets_stay_inside_the_contracts_limits(actor):
    target = actor.spec.target
    for size in (1e6, -1e6):
        got = actor.target(torch.full((1, target.size), size), actor.memory(1))
        if target.low:
            assert (got >= torch.tensor(target.low) - 1e-6).all()
            assert (got <= torch.tensor(target.high) + 1e-6).all()
        reach = actor.reach * actor.spec.policy.action_clip
        assert ((got - actor.default).abs() <= reach + 1e-6).all()


def test_no_action_at_the_start_is_the_default_target(actor):
    assert torch.allclose(actor.target(torch.zeros(1, actor.spec.target.size), actor.memory(1)), actor.default[None])


def test_the_remembered_action_is_the_clipped_one(actor):
    c = actor.spec.policy.action_clip
    kept = actor.remember(actor.memory(1), torch.full((1, actor.spec.target.size), 99.0))
    assert (kept["action"] == c).all()


def test_worlds_do_not_see_each_other(actor):
    memory = actor.memory(N)
    _, memory = actor(signals_of(actor), memory)
    one = {k: v[2:3] for k, v in signals_of(actor, seed=1).items()}
    alone, _ = actor(one, {k: v[2:3] for k, v in memory.items()})
    together, _ = actor(signals_of(actor, seed=1), memory)
    assert torch.allclose(together[2:3], alone, atol=1e-6)


def test_forgetting_makes_a_world_new_and_leaves_the_others(actor):
    memory = actor.memory(N)
    for tick in range(3):
        _, memory = actor(signals_of(actor, seed=tick), memory)
    memory = {k: v.detach().clone() for k, v in memory.items()}
    before = {k: v.clone() for k, v in memory.items()}
    gone = torch.tensor([False, True, False, False, True])
    reset_memory(memory, gone)
    assert same({k: v[gone] for k, v in memory.items()}, actor.memory(2))
    assert same({k: v[~gone] for k, v in memory.items()}, {k: v[~gone] for k, v in before.items()})


def test_memory_is_not_changed_by_a_tick(actor):
    memory = actor.memory(N)
    before = {k: v.clone() for k, v in memory.items()}
    actor(signals_of(actor), memory)
    assert same(memory, before)


def test_the_policy_needs_nothing_but_what_the_robot_senses(task, actor):
    assert {s.name for s in actor.spec.signals} <= set(available_signals(task.robot.contract, task))


def test_observing_what_the_robot_cannot_sense_is_refused():
    task = get_task("go1/walk")
    wrong = replace(task, policy=replace(task.policy, observations=(*task.policy.observations, ObservationTerm("lin_vel"))))
    with pytest.raises(BadInput, match=r"lin_vel.*cannot sense"):
        ActorSpec.for_task(wrong)
    near = replace(task, policy=replace(task.policy, observations=(ObservationTerm("joint_pose"),)))
    with pytest.raises(BadInput, match="joint_pos"):
        ActorSpec.for_task(near)


def test_an_unknown_preparation_is_refused():
    task = get_task("go1/walk")
    for observe, hint in ((ObservationTerm("gyro", "gravty"), "gravity"), (ObservationTerm("gyro", "gravity"), "quaternion")):
        with pytest.raises(BadInput, match=hint):
            Actor(ActorSpec.for_task(replace(task, policy=replace(task.policy, observations=(observe,)))))


def test_preparations_are_what_they_say():
    x = torch.tensor([[0.3, -1.2]])
    default = torch.tensor([0.1, 0.2])
    assert torch.allclose(compute_observation_term(ObservationTerm("q", "value", 2.0), {"q": x}, default), 2 * x)
    assert torch.allclose(compute_observation_term(ObservationTerm("q", "offset", 0.5), {"q": x}, default), 0.5 * (x - default))
    assert torch.allclose(
        compute_observation_term(ObservationTerm("q", "angle"), {"q": x}, default), torch.cat([x.sin(), x.cos()], dim=1)
    )
    q = torch.nn.functional.normalize(torch.randn(20, 4, generator=torch.Generator().manual_seed(0)))
    mats = torch.from_numpy(to_matrix(q.numpy()))
    assert torch.allclose(
        compute_observation_term(ObservationTerm("q", "attitude"), {"q": 3 * q}, default).view(20, 3, 3), mats, atol=1e-6
    )
    assert torch.allclose(
        compute_observation_term(ObservationTerm("q", "gravity"), {"q": 3 * q}, default), -mats[:, 2], atol=1e-6
    )
