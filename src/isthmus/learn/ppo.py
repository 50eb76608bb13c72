"""Proximal policy optimisation (Schulman et al., 2017) over thousands of worlds, in one file.

Per iteration: `Collector` runs the policy for `ticks` ticks in all worlds; `advantages` is GAE with the value of
episodes cut by the clock taken into account; `Learner.update` makes several passes of clipped policy-gradient
steps, with a step size that follows the KL divergence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from isthmus.errors import BadInput
from isthmus.learn.actor import Actor, Memory, forget
from isthmus.learn.bound import Bound, divergence
from isthmus.learn.mirror import Symmetric
from isthmus.learn.nets import Normalizer, descend, mlp
from isthmus.tasks.env import Env

MOST, LAYERS = 2**20, 8
"""Settings may come from a stranger's run."""


@dataclass(frozen=True)
class PPO:
    """Settings of the algorithm. Each task has its own defaults, in `isthmus.learn.recipes`."""

    worlds: int = 512
    ticks: int = 24
    """Ticks per world and iteration."""
    epochs: int = 4
    minibatch: int = 2048
    hidden: tuple[int, ...] = (128, 128)
    critic_hidden: tuple[int, ...] = (128, 128)
    discount: float = 0.99
    trace: float = 0.95
    """GAE's lambda."""
    clip: float = 0.2
    entropy: float = 0.005
    value_weight: float = 1.0
    step_size: float = 1e-3
    step_range: tuple[float, float] = (1e-5, 1e-2)
    wanted_kl: float = 0.01
    max_norm: float = 1.0
    init_std: float = 1.0
    min_std: float = 0.05
    mirror: bool = True
    """Make the policy treat left and right alike, where the robot is symmetric."""
    asymmetric: bool = True
    """The critic sees the true state, and e if it is told; otherwise only what the policy observes."""
    critic_told: bool = True
    """An asymmetric critic is told e. Where worlds are few it then remembers each of them, and the policy learns less."""

    def __post_init__(self) -> None:
        counts = (self.worlds, self.ticks, self.epochs, self.minibatch, *self.hidden, *self.critic_hidden)
        if min(counts) < 1 or max(counts) > MOST or len(self.hidden) > LAYERS or len(self.critic_hidden) > LAYERS:
            raise BadInput(f"worlds, ticks, epochs, minibatch and widths are 1 to {MOST}, and layers at most {LAYERS}.")


class Critic(nn.Module):
    """The value of a state, from all that the simulator knows, or from what the policy observes."""

    def __init__(self, inputs: int, hidden: tuple[int, ...]):
        super().__init__()
        self.normalize = Normalizer(inputs)
        self.net = mlp(inputs, hidden, 1, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.normalize(x))[:, 0]


@dataclass
class Batch:
    """Experience of one iteration, flattened to (ticks · worlds, …)."""

    observation: Tensor
    critic: Tensor
    action: Tensor
    mean: Tensor
    log_prob: Tensor
    advantage: Tensor
    ret: Tensor


def log_prob(action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Log density of a diagonal normal, (n, m) -> (n,)."""
    z = (action - mean) * torch.exp(-log_std)
    return -0.5 * z.square().sum(1) - log_std.sum() - 0.9189385332046727 * action.shape[1]


def advantages(reward: Tensor, value: Tensor, last: Tensor, ended: Tensor, discount: float, trace: float) -> Tensor:
    """Generalised advantage estimation, (ticks, n); `ended` cuts the recursion at the end of an episode."""
    out, running = torch.empty_like(reward), torch.zeros_like(last)
    following = last
    for t in reversed(range(len(reward))):
        on = 1.0 - ended[t]
        delta = reward[t] + discount * following * on - value[t]
        running = delta + discount * trace * on * running
        out[t] = running
        following = value[t]
    return out


class Collector:
    """Runs the policy in the environment and keeps what the learner needs."""

    def __init__(self, env: Env, actor: Actor, critic: Critic, config: PPO, generator: torch.Generator):
        self.env, self.actor, self.critic, self.config, self.generator = env, actor, critic, config, generator
        if not config.asymmetric:
            env.at_end = self._note_last
        self.begin()

    @torch.no_grad()
    def begin(self) -> None:
        """Observe with an empty memory."""
        self.memory: Memory = self.actor.memory(self.env.n)
        self._look()

    def _look(self) -> None:
        self.observation, self.memory = self.actor.observe(self.actor.sees(self.env), self.memory)
        self.critic_input = self.env.critic() if self.config.asymmetric else self.observation

    def _note_last(self, ids: Tensor) -> None:
        """What a blind critic sees while worlds `ids` are where their episode ended, (n, inputs)."""
        self._last, _ = self.actor.observe(self.actor.sees(self.env), self.memory)

    def collect(self) -> tuple[Batch, list[dict]]:
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

    def _collect(self) -> tuple[Batch, list[dict]]:
        env, actor, c = self.env, self.actor, self.config
        steps, n, m = c.ticks, env.n, actor.shape.target.size
        obs = torch.empty(steps, n, actor.inputs)
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
            if len(step.last_critic):
                cut.append((t, step.timed_out, step.last_critic if c.asymmetric else self._last[step.timed_out]))
            done = step.failed | step.timed_out
            ended[t] = done.float()
            if done.any():
                forget(self.memory, done)
                finished.append(step.finished)
            self._look()
        val = self.critic(cri.flatten(0, 1)).view(steps, n)
        for t, timed_out, last in cut:
            # The episode was cut by the clock, not lost: what would have followed still counts.
            rew[t, timed_out] += c.discount * self.critic(last)
        adv = advantages(rew, val, self.critic(self.critic_input), ended, c.discount, c.trace)
        logp = log_prob(act.flatten(0, 1), mean.flatten(0, 1), actor.log_std)
        batch = Batch(
            observation=obs.flatten(0, 1),
            critic=cri.flatten(0, 1),
            action=act.flatten(0, 1),
            mean=mean.flatten(0, 1),
            log_prob=logp,
            advantage=adv.flatten(),
            ret=(val + adv).flatten(),
        )
        return batch, finished


class Learner:
    def __init__(self, actor: Actor, critic: Critic, config: PPO, generator: torch.Generator, bound: Bound | None = None):
        """With a `bound` the policy stays near another one, and the scale of its inputs stays as it is."""
        self.actor, self.critic, self.config, self.generator, self.bound = actor, critic, config, generator, bound
        self.policy_weight = 1.0
        """0 trains the critic alone."""
        self.parameters = [p for p in (*actor.parameters(), *critic.parameters()) if p.requires_grad]
        self.optimizer = torch.optim.Adam(self.parameters, lr=config.step_size, eps=1e-5, fused=True)
        self.step_size = config.step_size

    def update(self, batch: Batch) -> dict[str, float]:
        c, n = self.config, len(batch.action)
        with torch.no_grad():
            old_log_std = self.actor.log_std.clone()
            # Inputs are normalised once: the statistics hold still during the update.
            obs, cri = self.actor.normalize(batch.observation), self.critic.normalize(batch.critic)
            adv = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
            data = (obs, cri, batch.action, batch.mean, batch.log_prob, adv, batch.ret)
        sums = {"policy_loss": 0.0, "value_loss": 0.0, "kl": 0.0, "clipped": 0.0}
        count = 0
        for _ in range(c.epochs):
            order = torch.randperm(n, generator=self.generator)
            for ids in order.split(c.minibatch):
                if len(ids) < c.minibatch // 2 < n:
                    continue
                got = self._step([x[ids] for x in data], old_log_std)
                for key, value in got.items():
                    sums[key] += value
                count += 1
        found = {k: v / max(count, 1) for k, v in sums.items()} | {"step_size": self.step_size}
        self.critic.normalize.update(batch.critic)
        if self.bound is not None:
            return found | {"kl_from_start": self.bound.hold(obs), "kl_weight": self.bound.weight}
        net = self.actor.net
        self.actor.normalize.update(batch.observation, net.reflect if isinstance(net, Symmetric) else None)
        return found

    def _step(self, data: list[Tensor], old_log_std: Tensor) -> dict[str, float]:
        c = self.config
        obs, cri, action, old_mean, old_logp, adv, ret = data
        log_std = self.actor.log_std
        mean = self.actor.net(obs)
        logp = log_prob(action, mean, log_std)
        ratio = torch.exp(logp - old_logp)
        policy_loss = -torch.minimum(ratio * adv, ratio.clamp(1 - c.clip, 1 + c.clip) * adv).mean()
        value_loss = (self.critic.net(cri)[:, 0] - ret).square().mean()
        improve = policy_loss - c.entropy * log_std.sum() + (self.bound.penalty(obs, mean) if self.bound else 0.0)
        loss = self.policy_weight * improve + c.value_weight * value_loss
        with torch.no_grad():
            kl = float(divergence(old_mean, old_log_std, mean, log_std))
            if self.policy_weight:
                self._follow(kl)
        descend(loss, self.optimizer, self.parameters, c.max_norm)
        with torch.no_grad():
            log_std.clamp_(min=torch.tensor(c.min_std).log())
            clipped = float(((ratio - 1).abs() > c.clip).float().mean())
        return {"policy_loss": policy_loss.item(), "value_loss": value_loss.item(), "kl": kl, "clipped": clipped}

    def _follow(self, kl: float) -> None:
        """Smaller steps when the policy moves too far, larger ones when it hardly moves."""
        low, high = self.config.step_range
        if kl > 2 * self.config.wanted_kl:
            self.set_step_size(max(low, self.step_size / 1.5))
        elif 0 < kl < 0.5 * self.config.wanted_kl:
            self.set_step_size(min(high, self.step_size * 1.5))

    def set_step_size(self, value: float) -> None:
        self.step_size = value
        for group in self.optimizer.param_groups:
            group["lr"] = value
