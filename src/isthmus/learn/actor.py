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

from isthmus.data.contract import Law
from isthmus.errors import BadInput
from isthmus.learn.context import Estimator, Guessed, Told
from isthmus.learn.law import Linear
from isthmus.learn.mirror import Symmetric, reflection
from isthmus.learn.nets import Normalizer, mlp
from isthmus.learn.prepare import prepare
from isthmus.learn.shape import Shape
from isthmus.tasks.env import Env
from isthmus.tasks.state import limits_of

Memory = dict[str, Tensor]
TOLD_SPREAD = 0.03
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

    def __init__(self, shape: Shape, init_std: float = 1.0):
        super().__init__()
        self.shape, self.gait = shape, shape.policy.gait
        m, history = shape.target.size, shape.policy.history
        parts = shape.parts()
        self.frame = sum(len(labels) for labels, _ in parts)
        if self.gait is not None:
            self.register_buffer("gait_offset", torch.tensor(self.gait.offset, dtype=torch.float32))
            self.register_buffer("gait_lift", torch.tensor(self.gait.lift, dtype=torch.float32))
        reach = shape.policy.reach if isinstance(shape.policy.reach, tuple) else (shape.policy.reach,) * m
        self.register_buffer("default", torch.tensor(shape.default, dtype=torch.float32))
        self.register_buffer("reach", torch.tensor(reach, dtype=torch.float32) * shape.share)
        for name, end in zip(("low", "high"), limits_of(shape.target), strict=True):
            self.register_buffer(name, end)
        if shape.policy.mix:
            if {len(row) for row in shape.policy.mix} != {m} or not len(shape.policy.mix) == len(shape.policy.actions) == m:
                raise BadInput(f"a mix is a square table with {m} rows, and {m} named actions.")
            self.register_buffer("mix", torch.tensor(shape.policy.mix, dtype=torch.float32))
        if shape.policy.reflexes:
            gains = [torch.tensor(r.gain, dtype=torch.float32) for r in shape.policy.reflexes]
            self.register_buffer("reflex", torch.cat(gains, dim=1))
        self.base = _base(shape)
        self.estimator: Estimator | None = None
        if shape.context.estimated:
            mirror = reflection(parts, shape.mirror) if shape.mirror else None
            self.estimator = Estimator(self.frame, shape.rate, shape.context, mirror)
        self.seen = self.frame * history
        """Numbers of the observation that come from the last frames; what is told or guessed follows them."""
        told = sum(s.size for s in shape.told)
        self.inputs = self.seen + told + (self.estimator.outputs if self.estimator else 0)
        least = torch.cat([torch.zeros(self.seen), torch.full((told,), TOLD_SPREAD)]) if told else None
        self.normalize = Normalizer(self.inputs, least=least)
        self.net = self._net(m, told)
        self.log_std = nn.Parameter(torch.full((m,), init_std).log())

    def _net(self, m: int, told: int) -> nn.Module:
        shape, context, k = self.shape, self.shape.context, self.seen
        known = context.size if told or self.estimator else 0
        # What corrects a base begins as no correction at all.
        body = mlp(k + known, shape.hidden, m, 0.01 if self.base is None else 0.0)
        net: nn.Module = Told(body, k, told, context) if told else Guessed(body, k, known) if self.estimator else body
        if shape.mirror is None:
            return net
        beside = [(list(s.labels), s.name) for s in shape.told]
        inputs = reflection(shape.parts() * shape.policy.history + beside, shape.mirror)
        if self.estimator:
            inputs = inputs.then_swap(context.size)
        return Symmetric(net, inputs, reflection([shape.action()], shape.mirror))

    @property
    def inner(self) -> nn.Module:
        """The network without its symmetry."""
        return self.net.net if isinstance(self.net, Symmetric) else self.net

    @property
    def body(self) -> nn.Module:
        """π(x, z), whoever gives z; π(x) where nobody does."""
        inner = self.inner
        return inner.body if isinstance(inner, Told | Guessed) else inner

    def memory(self, n: int) -> Memory:
        """What an actor remembers before its first tick."""
        m = self.shape.target.size
        kept = {
            "frames": torch.zeros(n, self.shape.depth, self.frame),
            "action": torch.zeros(n, m),
            "started": torch.zeros(n, 1),
        }
        if self.gait is not None:
            kept |= {"phase": torch.zeros(n, 1), "gate": torch.zeros(n, 1)}
        if self.estimator is not None:
            kept |= self.estimator.memory(n)
        if self.base is not None:
            kept |= {"base_target": torch.zeros(n, m)} | {f"base.{k}": v for k, v in self.base.memory(n).items()}
        return kept | {"reflex": torch.zeros(n, m)} if self.shape.policy.reflexes else kept

    def observe(self, signals: dict[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Build the observation, (n, inputs). The first frame of an episode fills the whole history."""
        parts = [prepare(o, signals, self.default) for o in self.shape.policy.observe]
        kept = dict(memory)
        if self.gait is not None:
            kept["gate"] = (10.0 * signals[self.gait.gate].norm(dim=1, keepdim=True)).clamp(0.0, 1.0)
            angle = 2 * torch.pi * memory["phase"]
            parts += [torch.sin(angle) * kept["gate"], torch.cos(angle) * kept["gate"]]
        if self.shape.policy.reflexes:
            seen = [prepare(r.observe, signals, self.default) for r in self.shape.policy.reflexes]
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
        seen = [frames[:, -self.shape.policy.history :].flatten(1), *(signals[s.name] for s in self.shape.told)]
        if self.estimator is not None:
            z, remembered = self.estimator(frames, memory)
            seen.append(z)
            kept |= remembered
        return torch.cat(seen, dim=1) if len(seen) > 1 else seen[0], kept

    def sees(self, env: Env) -> dict[str, Tensor]:
        """The signals of an environment that this actor is given: a teacher is also told what no sensor measures."""
        return env.signals() | env.privileged() if self.shape.told else env.signals()

    def act(self, observation: Tensor) -> Tensor:
        """The mean action, (n, m)."""
        return self.net(self.normalize(observation))

    def target(self, action: Tensor, memory: Memory) -> Tensor:
        """Targets in the robot's units, inside its limits."""
        c = self.shape.policy.clip
        action = action.clamp(-c, c)
        if self.shape.policy.reflexes:
            action = action + memory["reflex"]
        if self.shape.policy.mix:
            action = action @ self.mix.T
        target = (self.default if self.base is None else memory["base_target"]) + self.reach * action
        if self.gait is not None:
            swing = torch.sin(2 * torch.pi * (memory["phase"] + self.gait_offset)).clamp_min(0.0)
            target = target + self.gait_lift * swing * memory["gate"]
        return torch.clamp(target, self.low, self.high)

    def remember(self, memory: Memory, action: Tensor) -> Memory:
        """Memory for the next tick."""
        c = self.shape.policy.clip
        kept = memory | {"action": action.clamp(-c, c)}
        if self.gait is not None:
            phase = memory["phase"] + self.gait.frequency / self.shape.rate
            kept["phase"] = phase - torch.floor(phase)
        return kept

    def forward(self, signals: dict[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """One tick on the robot: signals and memory in, targets and memory out."""
        observation, memory = self.observe(signals, memory)
        action = self.act(observation)
        return self.target(action, memory), self.remember(memory, action)


def forget(memory: Memory, ids: Tensor) -> None:
    """Clear the memory of worlds that start a new episode, in place."""
    for value in memory.values():
        value[ids] = 0.0


def _base(shape: Shape) -> Actor | Linear | None:
    """The controller that an actor corrects; its weights stay as they are."""
    if shape.base is None:
        return None
    if isinstance(shape.base, Law):
        return Linear(shape.base, shape.target)
    return Actor(shape.base).eval().requires_grad_(False)
