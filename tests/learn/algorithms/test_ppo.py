"""The parts of PPO against what they are defined to be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence

from isthmus.data.contract import Signal
from isthmus.learn.algorithms.ppo import (
    Collector,
    Critic,
    PPOConfig,
    PPOUpdate,
    RolloutBatch,
    gaussian_log_prob,
    generalized_advantages,
)
from isthmus.learn.policies.actor import Actor, ActorSpec
from isthmus.learn.policies.networks import Normalizer
from isthmus.tasks.env import Step
from isthmus.tasks.task import ObservationTerm, PolicySpec


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_actor(m: int = 2, seed: int = 0) -> Actor:
    torch.manual_seed(seed)
    labels = tuple(f"u{i}" for i in range(m))
    shape = ActorSpec(
        (Signal("x", "1", ("x",)),), Signal("u", "1", labels), (0.0,) * m, PolicySpec((ObservationTerm("x"),), 1.0), 50.0, (8,)
    )
    return Actor(shape)


# Advantages -----------------------------------------------------------------------------------------------------------


def test_advantages_are_the_discounted_sum_of_surprises():
    """A_t = Σ_k (γ λ)^k δ_{t+k} up to the end of the episode, δ = r + γ V' - V, by brute force."""
    g, ticks, n, gamma, lam = generator(), 15, 6, 0.97, 0.9
    reward, value = torch.randn(ticks, n, generator=g).double(), torch.randn(ticks, n, generator=g).double()
    last = torch.randn(n, generator=g).double()
    ended = (torch.rand(ticks, n, generator=g) < 0.2).double()
    got = generalized_advantages(reward, value, last, ended, gamma, lam)
    following = torch.cat([value[1:], last[None]])
    for i in range(n):
        for t in range(ticks):
            total, factor = 0.0, 1.0
            for k in range(t, ticks):
                total += factor * float(reward[k, i] + gamma * following[k, i] * (1 - ended[k, i]) - value[k, i])
                factor *= gamma * lam
                if ended[k, i]:
                    break
            assert got[t, i].item() == pytest.approx(total, abs=1e-10)


def test_with_full_trace_the_advantage_is_return_minus_value():
    g, gamma = generator(1), 0.9
    reward, value = torch.randn(10, 3, generator=g).double(), torch.randn(10, 3, generator=g).double()
    got = generalized_advantages(reward, value, torch.zeros(3).double(), torch.zeros(10, 3).double(), gamma, 1.0)
    for t in range(10):
        ret = sum(gamma ** (k - t) * reward[k] for k in range(t, 10))
        assert torch.allclose(got[t], ret - value[t])


def test_nothing_leaks_across_the_end_of_an_episode():
    g = generator(2)
    reward, value, last = torch.randn(8, 2, generator=g), torch.randn(8, 2, generator=g), torch.randn(2, generator=g)
    ended = torch.zeros(8, 2)
    ended[3] = 1
    one = generalized_advantages(reward, value, last, ended, 0.99, 0.95)
    reward[4:], value[4:], last[:] = 7.0, -3.0, 50.0
    assert torch.equal(generalized_advantages(reward, value, last, ended, 0.99, 0.95)[:4], one[:4])


# Episodes cut by the clock ------------------------------------------------------------------------------------------------


class OnePerTick:
    """Pays 1 per tick for ever; the clock cuts episodes, or they fail, at an age of `horizon`."""

    n = 4

    def __init__(self, horizon: int, fails: bool):
        self.horizon, self.fails = horizon, fails
        self.age = torch.tensor([0, 1, 2, 3]) % horizon

    def signals(self):
        return {"x": torch.zeros(self.n, 1)}

    def critic(self):
        return torch.zeros(self.n, 1)

    def step(self, target):
        self.age = self.age + 1
        done = self.age >= self.horizon
        self.age = torch.where(done, 0, self.age)
        none = torch.zeros(self.n, dtype=torch.bool)
        failed, timed_out = (done, none) if self.fails else (none, done)
        return Step(torch.ones(self.n), failed, timed_out, torch.zeros(int(timed_out.sum()), 1), {"score": np.zeros(0)})


class Constant(nn.Module):
    def __init__(self, value: float):
        super().__init__()
        self.value = value

    def forward(self, x):
        return torch.full((len(x),), self.value)


@pytest.mark.parametrize("horizon", [1, 3, 7, 100])
def test_a_cut_by_the_clock_does_not_bias_the_value(horizon):
    """With V = 1 / (1 - γ) everywhere every return equals it, however often the clock cuts."""
    config = PPOConfig(rollout_ticks=10, gamma=0.9, lam=0.95)
    truth = 1 / (1 - 0.9)
    batch, _ = Collector(OnePerTick(horizon, fails=False), small_actor(), Constant(truth), config, generator()).collect()
    assert torch.allclose(batch.returns, torch.tensor(truth))
    assert torch.allclose(batch.advantage, torch.tensor(0.0), atol=1e-5)


def test_values_learnt_through_cuts_converge_to_the_endless_sum():
    config = PPOConfig(rollout_ticks=10, gamma=0.9)
    collector = Collector(OnePerTick(3, fails=False), small_actor(), Constant(0.0), config, generator())
    for _ in range(40):
        collector.critic.value = collector.collect()[0].returns.mean().item()
    assert collector.critic.value == pytest.approx(10.0, rel=1e-3)


def test_a_failure_is_worth_nothing_afterwards():
    config = PPOConfig(rollout_ticks=9, gamma=0.9, lam=1.0)
    batch, _ = Collector(OnePerTick(3, fails=True), small_actor(), Constant(0.0), config, generator()).collect()
    returns = sorted({round(v, 4) for v in batch.returns.tolist()})
    assert returns == [1.0, 1.9, 2.71]


def test_what_was_collected_is_what_was_done():
    actor = small_actor()
    batch, _ = Collector(OnePerTick(5, fails=True), actor, Constant(0.0), PPOConfig(rollout_ticks=6), generator()).collect()
    with torch.no_grad():
        assert torch.allclose(actor.act(batch.observation), batch.mean, atol=1e-6)
        assert torch.allclose(gaussian_log_prob(batch.action, batch.mean, actor.log_std), batch.log_prob)
    assert batch.observation.shape == (24, actor.observation_size)
    assert batch.action.std() == pytest.approx(1.0, abs=0.3)


# Densities ----------------------------------------------------------------------------------------------------------------


def test_log_prob_is_that_of_a_diagonal_normal():
    g = generator(3)
    action, mean, log_std = torch.randn(20, 5, generator=g), torch.randn(20, 5, generator=g), 0.5 * torch.randn(5, generator=g)
    want = Independent(Normal(mean, log_std.exp()), 1).log_prob(action)
    assert torch.allclose(gaussian_log_prob(action, mean, log_std), want, atol=1e-5)


def pieces(actor: Actor, n: int = 64, seed: int = 4) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Data of a minibatch under an older policy, and the older log std."""
    g = generator(seed)
    m = actor.spec.target.size
    obs, cri = torch.randn(n, actor.observation_size, generator=g), torch.randn(n, 3, generator=g)
    old_log_std = actor.log_std.detach() - 0.3
    old_mean = actor.net(obs).detach() + 0.2 * torch.randn(n, m, generator=g)
    action = old_mean + old_log_std.exp() * torch.randn(n, m, generator=g)
    old_logp, advantage = gaussian_log_prob(action, old_mean, old_log_std), torch.randn(n, generator=g)
    return [obs, cri, action, old_mean, old_logp, advantage, torch.zeros(n)], old_log_std


def learner(actor: Actor, **changes) -> PPOUpdate:
    torch.manual_seed(1)
    return PPOUpdate(actor, Critic(3, (8,)), replace(PPOConfig(minibatch_size=64), **changes), generator())


def test_the_divergence_is_from_the_old_policy_to_the_new():
    actor = small_actor()
    data, old_log_std = pieces(actor)
    with torch.no_grad():
        new = Independent(Normal(actor.net(data[0]), actor.log_std.exp().clone()), 1)
        want = kl_divergence(Independent(Normal(data[3], old_log_std.exp()), 1), new).mean()
    assert learner(actor)._minibatch_step(data, old_log_std)["kl"] == pytest.approx(want.item(), rel=1e-4)


# Updates ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gain", [1.0, -1.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_beyond_the_clip_only_the_way_back_is_open(gain, advantage):
    """A ratio that is already too large for a good action, or too small for a bad one, gives no gradient."""
    actor = small_actor()
    data, old_log_std = pieces(actor)
    with torch.no_grad():
        data[4] = gaussian_log_prob(data[2], actor.net(data[0]), actor.log_std) - gain
        data[5] = torch.full((64,), advantage)
    before = [p.detach().clone() for p in actor.net.parameters()]
    learner(actor, entropy_coef=0.0, value_coef=0.0)._minibatch_step(data, old_log_std)
    same = all(torch.equal(a, b) for a, b in zip(before, actor.net.parameters(), strict=True))
    assert same == (gain == advantage)


def batch_of(actor: Actor, good: torch.Tensor, n: int = 512) -> RolloutBatch:
    """Experience in which actions towards `good` were better than expected."""
    g = generator(5)
    obs = torch.randn(n, actor.observation_size, generator=g)
    with torch.no_grad():
        mean = actor.act(obs)
        action = mean + actor.log_std.exp() * torch.randn(n, len(good), generator=g)
        logp = gaussian_log_prob(action, mean, actor.log_std)
    return RolloutBatch(obs, torch.randn(n, 3, generator=g), action, mean, logp, (action - mean) @ good, torch.ones(n))


def test_an_update_moves_towards_what_was_better_and_learns_the_value():
    actor, good = small_actor(), torch.tensor([1.0, -1.0])
    batch = batch_of(actor, good)
    update = learner(actor, epochs=4)
    first = update.critic.net(batch.critic_input)[:, 0].sub(1).square().mean().item()
    update.update(batch)
    with torch.no_grad():
        shift = (actor.net(batch.observation) - batch.mean).mean(0)
        assert shift[0] > 0.02
        assert shift[1] < -0.02
        assert (update.critic.net(batch.critic_input)[:, 0] - 1).square().mean() < 0.7 * first


@pytest.mark.parametrize("n", [5, 40, 200])
def test_an_update_uses_its_data_however_little_there_is(n):
    actor = small_actor()
    before = [p.detach().clone() for p in actor.net.parameters()]
    learner(actor, minibatch_size=128).update(batch_of(actor, torch.tensor([1.0, 1.0]), n))
    assert any(not torch.equal(a, b) for a, b in zip(before, actor.net.parameters(), strict=True))


def test_the_step_size_follows_the_divergence_inside_its_range():
    update = learner(small_actor(), learning_rate=1e-3, desired_kl=0.01, learning_rate_range=(5e-4, 2e-3))
    for kl, want in ((0.01, 1e-3), (0.03, 1e-3 / 1.5), (0.03, 5e-4), (0.03, 5e-4), (0.001, 7.5e-4), (0.001, 1.125e-3)):
        update._adapt_learning_rate(kl)
        assert update.learning_rate == pytest.approx(want) == update.optimizer.param_groups[0]["lr"]
    for _ in range(9):
        update._adapt_learning_rate(0.001)
    assert update.learning_rate == 2e-3


def test_the_spread_of_actions_never_falls_below_its_floor():
    actor = small_actor()
    with torch.no_grad():
        actor.log_std.fill_(np.log(0.0501))
    update = learner(actor, min_std=0.05, learning_rate=0.5, entropy_coef=-1.0)
    for _ in range(3):
        data, old = pieces(actor)
        update._minibatch_step(data, old)
    assert actor.log_std.exp().min() >= 0.05 - 1e-6


def test_entropy_widens_the_actions_when_nothing_else_matters():
    actor = small_actor()
    data, old = pieces(actor)
    data[5] = torch.zeros(64)
    before = actor.log_std.detach().clone()
    learner(actor, entropy_coef=0.01)._minibatch_step(data, old)
    assert (actor.log_std > before).all()


# Normalisation ------------------------------------------------------------------------------------------------------------


def test_the_normalizer_has_the_statistics_of_all_it_saw():
    g = generator(6)
    x = torch.randn(3000, 4, generator=g) * torch.tensor([1.0, 5.0, 0.1, 2.0]) + torch.tensor([0.0, 3.0, -1.0, 10.0])
    norm = Normalizer(4)
    for part in x.split([500, 1, 1200, 1299]):
        norm.update(part)
    assert torch.allclose(norm.mean, x.mean(0), rtol=1e-3, atol=1e-3)
    assert torch.allclose(norm.var, x.var(0, unbiased=False), rtol=1e-2, atol=1e-3)
    out = norm(x)
    assert out.mean(0).abs().max() < 0.02
    assert (out.std(0) - 1).abs().max() < 0.02


def test_the_normalizer_clips_and_never_divides_by_zero():
    norm = Normalizer(1)
    norm.update(torch.full((100, 1), 3.0))
    assert torch.isfinite(norm(torch.tensor([[3.0], [1e9], [-1e9]]))).all()
    assert norm(torch.tensor([[1e9]])) == 8.0


def test_normalising_does_not_change_the_statistics():
    norm = Normalizer(2)
    before = norm.mean.clone(), norm.var.clone()
    norm(torch.randn(50, 2, generator=generator()))
    assert torch.equal(norm.mean, before[0])
    assert torch.equal(norm.var, before[1])
