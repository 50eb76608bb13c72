"""Proximal policy optimisation (Schulman et al., 2017) over thousands of worlds, in one file.

Per iteration: `Collector` runs the policy for `ticks` ticks in all worlds; `advantages` is GAE with the value of
episodes cut by the clock taken into account; `Learner.update` makes several passes of clipped policy-gradient
steps, with a step size that follows the KL divergence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from isthmus.core.errors import BadInput
from isthmus.learn.algorithms.kl import KLBound, gaussian_kl
from isthmus.learn.policies.actor import Actor, Memory, reset_memory
from isthmus.learn.policies.networks import Normalizer, gradient_step, mlp
from isthmus.learn.policies.symmetry import Symmetric
from isthmus.tasks.env import Env

MAX_COUNT, MAX_LAYERS = 2**20, 8
"""Settings may come from a stranger's run."""


@dataclass(frozen=True)
class PPOConfig:
    """Settings of the algorithm. Each task has its own defaults, in `isthmus.learn.recipes`."""

    worlds: int = 512
    rollout_ticks: int = 24
    """Ticks per world and iteration."""
    epochs: int = 4
    minibatch_size: int = 2048
    hidden: tuple[int, ...] = (128, 128)
    critic_hidden: tuple[int, ...] = (128, 128)
    gamma: float = 0.99
    lam: float = 0.95
    """GAE's lambda."""
    clip_range: float = 0.2
    entropy_coef: float = 0.005
    value_coef: float = 1.0
    learning_rate: float = 1e-3
    learning_rate_range: tuple[float, float] = (1e-5, 1e-2)
    desired_kl: float = 0.01
    max_grad_norm: float = 1.0
    init_std: float = 1.0
    min_std: float = 0.05
    symmetry: bool = True
    """Make the policy treat left and right alike, where the robot is symmetric."""
    asymmetric_critic: bool = True
    """The critic sees the true state, and e if it is told; otherwise only what the policy observes."""
    critic_sees_e: bool = True
    """An asymmetric critic is told e. Where worlds are few it then remembers each of them, and the policy learns less."""

    def __post_init__(self) -> None:
        counts = (self.worlds, self.rollout_ticks, self.epochs, self.minibatch_size, *self.hidden, *self.critic_hidden)
        if min(counts) < 1 or max(counts) > MAX_COUNT or len(self.hidden) > MAX_LAYERS or len(self.critic_hidden) > MAX_LAYERS:
            raise BadInput(
                f"worlds, ticks, epochs, minibatch and widths are 1 to {MAX_COUNT}, and layers at most {MAX_LAYERS}."
            )


class Critic(nn.Module):
    """The value of a state, from all that the simulator knows, or from what the policy observes."""

    def __init__(self, inputs: int, hidden: tuple[int, ...]):
        super().__init__()
        self.normalize = Normalizer(inputs)
        self.net = mlp(inputs, hidden, 1, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.normalize(x))[:, 0]


@dataclass
class RolloutBatch:
    """Experience of one iteration, flattened to (ticks · worlds, …)."""

    observation: Tensor
    critic_input: Tensor
    action: Tensor
    mean: Tensor
    log_prob: Tensor
    advantage: Tensor
    returns: Tensor


def gaussian_log_prob(action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Log density of a diagonal normal, (n, m) -> (n,)."""
    z = (action - mean) * torch.exp(-log_std)
    return -0.5 * z.square().sum(1) - log_std.sum() - 0.9189385332046727 * action.shape[1]


def generalized_advantages(reward: Tensor, value: Tensor, last_value: Tensor, done: Tensor, gamma: float, lam: float) -> Tensor:
    """Generalised advantage estimation, (ticks, n); `ended` cuts the recursion at the end of an episode."""
    out, running = torch.empty_like(reward), torch.zeros_like(last_value)
    following = last_value
    for t in reversed(range(len(reward))):
        on = 1.0 - done[t]
        delta = reward[t] + gamma * following * on - value[t]
        running = delta + gamma * lam * on * running
        out[t] = running
        following = value[t]
    return out


class Collector:
    """Runs the policy in the environment and keeps what the learner needs."""

    def __init__(self, env: Env, actor: Actor, critic: Critic, config: PPOConfig, generator: torch.Generator):
        self.env, self.actor, self.critic, self.config, self.generator = env, actor, critic, config, generator
        if not config.asymmetric_critic:
            env.on_episode_end = self._record_final_observation
        self.reset_memory()

    @torch.no_grad()
    def reset_memory(self) -> None:
        """Observe with an empty memory."""
        self.memory: Memory = self.actor.memory(self.env.n)
        self._observe()

    def _observe(self) -> None:
        self.observation, self.memory = self.actor.observe(self.actor.read_signals(self.env), self.memory)
        self.critic_input = self.env.critic() if self.config.asymmetric_critic else self.observation

    def _record_final_observation(self, ids: Tensor) -> None:
        """What a blind critic sees while worlds `ids` are where their episode ended, (n, inputs)."""
        self._final_observation, _ = self.actor.observe(self.actor.read_signals(self.env), self.memory)

    def collect(self) -> tuple[RolloutBatch, list[dict]]:
        """Experience of one iteration, and the statistics of the episodes that ended in it.

        The tensors are small and the physics wants the cores: torch keeps to one thread meanwhile.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.no_grad():
                return self._collect()
        finally:
            torch.set_num_threads(threads)

    def _collect(self) -> tuple[RolloutBatch, list[dict]]:
        env, actor, c = self.env, self.actor, self.config
        steps, n, m = c.rollout_ticks, env.n, actor.spec.target.size
        obs = torch.empty(steps, n, actor.observation_size)
        cri = torch.empty(steps, n, self.critic_input.shape[1])
        act, mean = torch.empty(steps, n, m), torch.empty(steps, n, m)
        rew, ended = torch.empty(steps, n), torch.empty(steps, n)
        std = actor.log_std.exp()
        finished: list[dict] = []
        cut: list[tuple[int, Tensor, Tensor]] = []
        for t in range(steps):
            obs[t], cri[t] = self.observation, self.critic_input
            mean[t] = actor.act(self.observation)
            act[t] = mean[t] + std * torch.randn(n, m, generator=self.generator)
            target = actor.target(act[t], self.memory)
            self.memory = actor.remember(self.memory, act[t])
            step = env.step(target)
            rew[t] = step.reward
            if len(step.final_critic):
                cut.append(
                    (t, step.timed_out, step.final_critic if c.asymmetric_critic else self._final_observation[step.timed_out])
                )
            done = step.terminated | step.timed_out
            ended[t] = done.float()
            if done.any():
                reset_memory(self.memory, done)
                finished.append(step.finished)
            self._observe()
        val = self.critic(cri.flatten(0, 1)).view(steps, n)
        for t, timed_out, last in cut:
            # The episode was cut by the clock, not lost: what would have followed still counts.
            rew[t, timed_out] += c.gamma * self.critic(last)
        adv = generalized_advantages(rew, val, self.critic(self.critic_input), ended, c.gamma, c.lam)
        logp = gaussian_log_prob(act.flatten(0, 1), mean.flatten(0, 1), actor.log_std)
        batch = RolloutBatch(
            observation=obs.flatten(0, 1),
            critic_input=cri.flatten(0, 1),
            action=act.flatten(0, 1),
            mean=mean.flatten(0, 1),
            log_prob=logp,
            advantage=adv.flatten(),
            returns=(val + adv).flatten(),
        )
        return batch, finished


class PPOUpdate:
    def __init__(
        self, actor: Actor, critic: Critic, config: PPOConfig, generator: torch.Generator, kl_bound: KLBound | None = None
    ):
        """With a `bound` the policy stays near another one, and the scale of its inputs stays as it is."""
        self.actor, self.critic, self.config, self.generator, self.kl_bound = actor, critic, config, generator, kl_bound
        self.policy_weight = 1.0
        """0 trains the critic alone."""
        self.parameters = [p for p in (*actor.parameters(), *critic.parameters()) if p.requires_grad]
        self.optimizer = torch.optim.Adam(self.parameters, lr=config.learning_rate, eps=1e-5, fused=True)
        self.learning_rate = config.learning_rate

    def update(self, batch: RolloutBatch) -> dict[str, float]:
        c, n = self.config, len(batch.action)
        with torch.no_grad():
            old_log_std = self.actor.log_std.clone()
            # Inputs are normalised once: the statistics hold still during the update.
            obs, cri = self.actor.normalize(batch.observation), self.critic.normalize(batch.critic_input)
            adv = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
            data = (obs, cri, batch.action, batch.mean, batch.log_prob, adv, batch.returns)
        sums = {"policy_loss": 0.0, "value_loss": 0.0, "kl": 0.0, "clipped": 0.0}
        count = 0
        for _ in range(c.epochs):
            order = torch.randperm(n, generator=self.generator)
            for ids in order.split(c.minibatch_size):
                if len(ids) < c.minibatch_size // 2 < n:
                    continue
                got = self._minibatch_step([x[ids] for x in data], old_log_std)
                for key, value in got.items():
                    sums[key] += value
                count += 1
        found = {k: v / max(count, 1) for k, v in sums.items()} | {"step_size": self.learning_rate}
        self.critic.normalize.update(batch.critic_input)
        if self.kl_bound is not None:
            return found | {"kl_from_start": self.kl_bound.enforce(obs), "kl_weight": self.kl_bound.weight}
        net = self.actor.net
        self.actor.normalize.update(batch.observation, net.reflect if isinstance(net, Symmetric) else None)
        return found

    def _minibatch_step(self, data: list[Tensor], old_log_std: Tensor) -> dict[str, float]:
        c = self.config
        obs, cri, action, old_mean, old_logp, adv, ret = data
        log_std = self.actor.log_std
        mean = self.actor.net(obs)
        logp = gaussian_log_prob(action, mean, log_std)
        ratio = torch.exp(logp - old_logp)
        policy_loss = -torch.minimum(ratio * adv, ratio.clamp(1 - c.clip_range, 1 + c.clip_range) * adv).mean()
        value_loss = (self.critic.net(cri)[:, 0] - ret).square().mean()
        improve = policy_loss - c.entropy_coef * log_std.sum() + (self.kl_bound.penalty(obs, mean) if self.kl_bound else 0.0)
        loss = self.policy_weight * improve + c.value_coef * value_loss
        with torch.no_grad():
            kl = float(gaussian_kl(old_mean, old_log_std, mean, log_std))
            if self.policy_weight:
                self._adapt_learning_rate(kl)
        gradient_step(loss, self.optimizer, self.parameters, c.max_grad_norm)
        with torch.no_grad():
            log_std.clamp_(min=torch.tensor(c.min_std).log())
            clipped = float(((ratio - 1).abs() > c.clip_range).float().mean())
        return {"policy_loss": policy_loss.item(), "value_loss": value_loss.item(), "kl": kl, "clipped": clipped}

    def _adapt_learning_rate(self, kl: float) -> None:
        """Smaller steps when the policy moves too far, larger ones when it hardly moves."""
        low, high = self.config.learning_rate_range
        if kl > 2 * self.config.desired_kl:
            self.set_learning_rate(max(low, self.learning_rate / 1.5))
        elif 0 < kl < 0.5 * self.config.desired_kl:
            self.set_learning_rate(min(high, self.learning_rate * 1.5))

    def set_learning_rate(self, value: float) -> None:
        self.learning_rate = value
        for group in self.optimizer.param_groups:
            group["lr"] = value
