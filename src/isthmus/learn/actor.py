"""From raw named signals to named targets: one torch module, in training and on the robot.

    frame    = each observed signal, prepared and scaled, and the last action          (n, f)
    history  = the last h frames, newest last                                          (n, h f)
    action   = net(normalize(history))                                                 (n, m)
    target   = clip(default + reach · clip(action))                                    (n, m)

What the module remembers between ticks (`Memory`) goes in and out explicitly, so that it can be exported as a graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from isthmus.data.contract import Contract, Signal
from isthmus.errors import BadInput, unknown
from isthmus.tasks.state import gravity_in
from isthmus.tasks.task import Observe, Policy, Task

Memory = dict[str, Tensor]


@dataclass(frozen=True)
class Shape:
    """Everything that fixes an actor's inputs and outputs."""

    signals: tuple[Signal, ...]
    """Inputs: signals of the robot and the task's command."""
    target: Signal
    default: tuple[float, ...]
    policy: Policy
    hidden: tuple[int, ...] = (128, 128)

    @staticmethod
    def of(task: Task, hidden: tuple[int, ...] = (128, 128)) -> Shape:
        """The shape of an actor for a task; observing what the robot cannot sense is an error."""
        offered = sensed(task.robot.contract, task)
        chosen = [_pick(o, offered, task) for o in task.policy.observe]
        return Shape(tuple(dict.fromkeys(chosen)), task.robot.contract.target, task.robot.default, task.policy, hidden)


def sensed(contract: Contract, task: Task) -> dict[str, Signal]:
    """Signals that reach the policy on the robot: its sensors' and the operator's command."""
    named = {s.name: s for s in contract.signals}
    return named | ({task.command.signal.name: task.command.signal} if task.command else {})


def _pick(observe: Observe, offered: dict[str, Signal], task: Task) -> Signal:
    if observe.signal not in offered:
        raise unknown("signal", observe.signal, offered, f"the observation of {task.name}: {task.robot.name} cannot sense it")
    return offered[observe.signal]


def prepared_size(observe: Observe, signal: Signal) -> int:
    sizes = {"value": signal.size, "offset": signal.size, "gravity": 3, "angle": 2 * signal.size, "attitude": 9}
    if observe.as_ not in sizes:
        raise unknown("preparation", observe.as_, sizes, f"the observation of {signal.name!r}")
    if observe.as_ in ("gravity", "attitude") and signal.size != 4:
        raise BadInput(f"signal {signal.name!r} has {signal.size} components; only a quaternion can be seen as {observe.as_}.")
    return sizes[observe.as_]


def prepare(observe: Observe, x: Tensor, default: Tensor) -> Tensor:
    """One part of the frame."""
    if observe.as_ == "offset":
        x = x - default
    elif observe.as_ == "gravity":
        x = gravity_in(x / x.norm(dim=1, keepdim=True).clamp_min(1e-6))
    elif observe.as_ == "angle":
        x = torch.cat([torch.sin(x), torch.cos(x)], dim=1)
    elif observe.as_ == "attitude":
        x = rotation_of(x / x.norm(dim=1, keepdim=True).clamp_min(1e-6))
    return x * observe.scale


def rotation_of(q: Tensor) -> Tensor:
    """Rotation matrices of unit quaternions, (n, 4) -> (n, 9), row by row."""
    w, x, y, z = q.unbind(1)
    rows = [
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    return torch.stack(rows, dim=1)


class Normalizer(nn.Module):
    """Running mean and spread of what was seen; part of the module, so it can never be left behind."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, size: int, limit: float = 8.0):
        super().__init__()
        self.limit = limit
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))
        self.register_buffer("count", torch.tensor(1e-2))

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) * torch.rsqrt(self.var + 1e-5)).clamp(-self.limit, self.limit)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Take in a batch, (n, size)."""
        count = torch.tensor(float(len(x)))
        mean, var = x.mean(0), x.var(0, unbiased=False)
        total = self.count + count
        delta = mean - self.mean
        self.mean += delta * (count / total)
        self.var.copy_((self.var * self.count + var * count + delta.square() * self.count * count / total) / total)
        # Forget slowly, so that the statistics follow a policy that has learnt to move.
        self.count.copy_(torch.clamp(total, max=2e6))


def mlp(inputs: int, hidden: tuple[int, ...], outputs: int, last_gain: float) -> nn.Sequential:
    sizes, layers = (inputs, *hidden), []
    for a, b in zip(sizes[:-1], sizes[1:], strict=True):
        layers += [_orthogonal(nn.Linear(a, b), 2**0.5), nn.ELU()]
    return nn.Sequential(*layers, _orthogonal(nn.Linear(sizes[-1], outputs), last_gain))


def _orthogonal(layer: nn.Linear, gain: float) -> nn.Linear:
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Actor(nn.Module):
    default: Tensor
    reach: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, shape: Shape, init_std: float = 1.0):
        super().__init__()
        self.shape = shape
        by_name = {s.name: s for s in shape.signals}
        m = shape.target.size
        self.frame = sum(prepared_size(o, by_name[o.signal]) for o in shape.policy.observe) + m
        self.inputs = self.frame * shape.policy.history
        reach = shape.policy.reach if isinstance(shape.policy.reach, tuple) else (shape.policy.reach,) * m
        self.register_buffer("default", torch.tensor(shape.default, dtype=torch.float32))
        self.register_buffer("reach", torch.tensor(reach, dtype=torch.float32))
        self.register_buffer("low", torch.tensor(shape.target.low or (-float("inf"),) * m, dtype=torch.float32))
        self.register_buffer("high", torch.tensor(shape.target.high or (float("inf"),) * m, dtype=torch.float32))
        self.normalize = Normalizer(self.inputs)
        self.net = mlp(self.inputs, shape.hidden, m, 0.01)
        self.log_std = nn.Parameter(torch.full((m,), init_std).log())

    def memory(self, n: int) -> Memory:
        """What an actor remembers before its first tick."""
        m, h = self.shape.target.size, self.shape.policy.history
        return {"frames": torch.zeros(n, h, self.frame), "action": torch.zeros(n, m), "started": torch.zeros(n, 1)}

    def observe(self, signals: dict[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Build the observation, (n, inputs). The first frame of an episode fills the whole history."""
        parts = [prepare(o, signals[o.signal], self.default) for o in self.shape.policy.observe]
        frame = torch.cat([*parts, memory["action"]], dim=1)[:, None]
        h = self.shape.policy.history
        shifted = torch.cat([memory["frames"][:, 1:], frame], dim=1)
        frames = torch.where(memory["started"][:, :, None] > 0.5, shifted, frame.expand(-1, h, -1))
        kept = {"frames": frames, "action": memory["action"], "started": torch.ones_like(memory["started"])}
        return frames.flatten(1), kept

    def act(self, observation: Tensor) -> Tensor:
        """The mean action, (n, m)."""
        return self.net(self.normalize(observation))

    def target(self, action: Tensor) -> Tensor:
        """Targets in the robot's units, inside its limits."""
        c = self.shape.policy.clip
        return torch.clamp(self.default + self.reach * action.clamp(-c, c), self.low, self.high)

    def remember(self, memory: Memory, action: Tensor) -> Memory:
        c = self.shape.policy.clip
        return memory | {"action": action.clamp(-c, c)}

    def forward(self, signals: dict[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """One tick on the robot: signals and memory in, targets and memory out."""
        observation, memory = self.observe(signals, memory)
        action = self.act(observation)
        return self.target(action), self.remember(memory, action)


def forget(memory: Memory, ids: Tensor) -> None:
    """Clear the memory of worlds that start a new episode, in place."""
    for value in memory.values():
        value[ids] = 0.0
