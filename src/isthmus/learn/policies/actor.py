"""From raw named signals to named targets: one torch module, in training and on the robot.

    frame    = each observed signal, prepared and scaled, and the last action          (n, f)
    history  = the last h frames, newest last                                          (n, h f)
    z        = what is known of the world: nothing, told by the simulator, or found out from the past
    action   = net(normalize(history), z)                                              (n, m)
    target   = clip(default + gait(phase) + reach · mix (clip(action) + reflex))       (n, m)

An actor may correct another controller, its base: a law or an actor, frozen. Then it also sees the base's target, and

    target   = clip(base's target + share · reach · mix clip(action))                  (n, m)

What the module remembers between ticks (`Memory`) goes in and out explicitly, so that it can be exported as a graph.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isthmus.core.errors import BadInput
from isthmus.data.contract import AffineFeedback
from isthmus.learn.policies.actor_spec import ActorSpec
from isthmus.learn.policies.context import EstimatedContext, Estimator, PrivilegedEncoder
from isthmus.learn.policies.linear_controller import LinearController
from isthmus.learn.policies.networks import Normalizer, mlp
from isthmus.learn.policies.observation_terms import compute_observation_term
from isthmus.learn.policies.symmetry import Symmetric, reflection
from isthmus.tasks.env import Env
from isthmus.tasks.state import signal_limits

Memory = dict[str, Tensor]
MIN_PRIVILEGED_STD = 0.03
"""Least spread of what a teacher is told; e is -1 to 1, and may hardly vary in training but be another one later."""


class Actor(nn.Module):
    default: Tensor
    gait_offset: Tensor
    gait_lift: Tensor
    reach: Tensor
    mix: Tensor
    reflex: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, spec: ActorSpec, init_std: float = 1.0):
        super().__init__()
        self.spec, self.gait_clock = spec, spec.policy.gait_clock
        m, history = spec.target.size, spec.policy.history
        parts = spec.observation_labels()
        self.frame_size = sum(len(labels) for labels, _ in parts)
        if self.gait_clock is not None:
            self.register_buffer("gait_offset", torch.tensor(self.gait_clock.offset, dtype=torch.float32))
            self.register_buffer("gait_lift", torch.tensor(self.gait_clock.lift, dtype=torch.float32))
        reach = spec.policy.action_scale if isinstance(spec.policy.action_scale, tuple) else (spec.policy.action_scale,) * m
        self.register_buffer("default", torch.tensor(spec.default, dtype=torch.float32))
        self.register_buffer("reach", torch.tensor(reach, dtype=torch.float32) * spec.residual_scale)
        for name, end in zip(("low", "high"), signal_limits(spec.target), strict=True):
            self.register_buffer(name, end)
        if spec.policy.mixer:
            if {len(row) for row in spec.policy.mixer} != {m} or not len(spec.policy.mixer) == len(
                spec.policy.action_names
            ) == m:
                raise BadInput(f"a mix is a square table with {m} rows, and {m} named actions.")
            self.register_buffer("mix", torch.tensor(spec.policy.mixer, dtype=torch.float32))
        if spec.policy.feedback:
            gains = [torch.tensor(r.gain, dtype=torch.float32) for r in spec.policy.feedback]
            self.register_buffer("reflex", torch.cat(gains, dim=1))
        self.base = _build_base(spec)
        self.estimator: Estimator | None = None
        if spec.context.estimated:
            mirror = reflection(parts, spec.mirror) if spec.mirror else None
            self.estimator = Estimator(self.frame_size, spec.rate, spec.context, mirror)
        self.history_size = self.frame_size * history
        """Numbers of the observation that come from the last frames; what is told or guessed follows them."""
        told = sum(s.size for s in spec.privileged)
        self.observation_size = self.history_size + told + (self.estimator.output_size if self.estimator else 0)
        least = torch.cat([torch.zeros(self.history_size), torch.full((told,), MIN_PRIVILEGED_STD)]) if told else None
        self.normalize = Normalizer(self.observation_size, min_std=least)
        self.net = self._build_net(m, told)
        self.log_std = nn.Parameter(torch.full((m,), init_std).log())

    def _build_net(self, m: int, privileged_size: int) -> nn.Module:
        shape, context, k = self.spec, self.spec.context, self.history_size
        known = context.latent_size if privileged_size or self.estimator else 0
        # What corrects a base begins as no correction at all.
        body = mlp(k + known, shape.hidden, m, 0.01 if self.base is None else 0.0)
        net: nn.Module = (
            PrivilegedEncoder(body, k, privileged_size, context)
            if privileged_size
            else EstimatedContext(body, k, known)
            if self.estimator
            else body
        )
        if shape.mirror is None:
            return net
        beside = [(list(s.labels), s.name) for s in shape.privileged]
        inputs = reflection(shape.observation_labels() * shape.policy.history + beside, shape.mirror)
        if self.estimator:
            inputs = inputs.append_swapped_pair(context.latent_size)
        return Symmetric(net, inputs, reflection([shape.action_labels()], shape.mirror))

    @property
    def net_without_symmetry(self) -> nn.Module:
        """The network without its symmetry."""
        return self.net.net if isinstance(self.net, Symmetric) else self.net

    @property
    def body(self) -> nn.Module:
        """π(x, z), whoever gives z; π(x) where nobody does."""
        inner = self.net_without_symmetry
        return inner.body if isinstance(inner, PrivilegedEncoder | EstimatedContext) else inner

    def memory(self, n: int) -> Memory:
        """What an actor remembers before its first tick."""
        m = self.spec.target.size
        kept = {
            "frames": torch.zeros(n, self.spec.memory_frames, self.frame_size),
            "action": torch.zeros(n, m),
            "started": torch.zeros(n, 1),
        }
        if self.gait_clock is not None:
            kept |= {"phase": torch.zeros(n, 1), "gate": torch.zeros(n, 1)}
        if self.estimator is not None:
            kept |= self.estimator.memory(n)
        if self.base is not None:
            kept |= {"base_target": torch.zeros(n, m)} | {f"base.{k}": v for k, v in self.base.memory(n).items()}
        return kept | {"reflex": torch.zeros(n, m)} if self.spec.policy.feedback else kept

    def observe(self, signals: dict[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Build the observation, (n, inputs). The first frame of an episode fills the whole history."""
        parts = [compute_observation_term(o, signals, self.default) for o in self.spec.policy.observations]
        kept = dict(memory)
        if self.gait_clock is not None:
            kept["gate"] = (10.0 * signals[self.gait_clock.gate].norm(dim=1, keepdim=True)).clamp(0.0, 1.0)
            angle = 2 * torch.pi * memory["phase"]
            parts += [torch.sin(angle) * kept["gate"], torch.cos(angle) * kept["gate"]]
        if self.spec.policy.feedback:
            seen = [compute_observation_term(r.observation, signals, self.default) for r in self.spec.policy.feedback]
            kept["reflex"] = torch.cat(seen, dim=1) @ self.reflex.T
        if self.base is not None:
            inner = {k.removeprefix("base."): v for k, v in memory.items() if k.startswith("base.")}
            kept["base_target"], inner = self.base(signals, inner)
            kept |= {f"base.{k}": v for k, v in inner.items()}
            parts.append(kept["base_target"] - self.default)
        frame = torch.cat([*parts, memory["action"]], dim=1)[:, None]
        shifted = torch.cat([memory["frames"][:, 1:], frame], dim=1)
        frames = kept["frames"] = torch.where(memory["started"][:, :, None] > 0.5, shifted, frame)
        kept["started"] = torch.ones_like(memory["started"])
        seen = [frames[:, -self.spec.policy.history :].flatten(1), *(signals[s.name] for s in self.spec.privileged)]
        if self.estimator is not None:
            z, remembered = self.estimator(frames, memory)
            seen.append(z)
            kept |= remembered
        return torch.cat(seen, dim=1) if len(seen) > 1 else seen[0], kept

    def read_signals(self, env: Env) -> dict[str, Tensor]:
        """The signals of an environment that this actor is given: a teacher is also told what no sensor measures."""
        return env.signals() | env.privileged() if self.spec.privileged else env.signals()

    def act(self, observation: Tensor) -> Tensor:
        """The mean action, (n, m)."""
        return self.net(self.normalize(observation))

    def target(self, action: Tensor, memory: Memory) -> Tensor:
        """Targets in the robot's units, inside its limits."""
        c = self.spec.policy.action_clip
        action = action.clamp(-c, c)
        if self.spec.policy.feedback:
            action = action + memory["reflex"]
        if self.spec.policy.mixer:
            action = action @ self.mix.T
        target = (self.default if self.base is None else memory["base_target"]) + self.reach * action
        if self.gait_clock is not None:
            swing = torch.sin(2 * torch.pi * (memory["phase"] + self.gait_offset)).clamp_min(0.0)
            target = target + self.gait_lift * swing * memory["gate"]
        return torch.clamp(target, self.low, self.high)

    def remember(self, memory: Memory, action: Tensor) -> Memory:
        """Memory for the next tick."""
        c = self.spec.policy.action_clip
        kept = memory | {"action": action.clamp(-c, c)}
        if self.gait_clock is not None:
            phase = memory["phase"] + self.gait_clock.frequency / self.spec.rate
            kept["phase"] = phase - torch.floor(phase)
        return kept

    def forward(self, signals: dict[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """One tick on the robot: signals and memory in, targets and memory out."""
        observation, memory = self.observe(signals, memory)
        action = self.act(observation)
        return self.target(action, memory), self.remember(memory, action)


def reset_memory(memory: Memory, ids: Tensor) -> None:
    """Clear the memory of worlds that start a new episode, in place."""
    for value in memory.values():
        value[ids] = 0.0


def _build_base(spec: ActorSpec) -> Actor | LinearController | None:
    """The controller that an actor corrects; its weights stay as they are."""
    if spec.base is None:
        return None
    if isinstance(spec.base, AffineFeedback):
        return LinearController(spec.base, spec.target)
    return Actor(spec.base).eval().requires_grad_(False)
