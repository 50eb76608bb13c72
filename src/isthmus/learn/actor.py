"""From raw named signals to named targets: one torch module, in training and on the robot.

    frame    = each observed signal, prepared and scaled, and the last action          (n, f)
    history  = the last h frames, newest last                                          (n, h f)
    action   = net(normalize(history))                                                 (n, m)
    target   = clip(default + gait(phase) + reach · mix (clip(action) + reflex))       (n, m)

What the module remembers between ticks (`Memory`) goes in and out explicitly, so that it can be exported as a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from isthmus.data.contract import Contract, Signal
from isthmus.errors import BadInput, unknown
from isthmus.learn.mirror import Part, Symmetric, reflection
from isthmus.sim.robot import Mirror
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
    rate: float
    """Control ticks per second: the clock of a gait advances by it."""
    hidden: tuple[int, ...] = (128, 128)
    mirror: Mirror | None = None
    """Makes left and right exactly alike, where the robot is."""

    @staticmethod
    def of(task: Task, hidden: tuple[int, ...] = (128, 128), mirrored: bool = True) -> Shape:
        """The shape of an actor for a task; observing what the robot cannot sense is an error."""
        contract = task.robot.contract
        offered = sensed(contract, task)
        wanted = [*task.policy.observe, *(r.observe for r in task.policy.reflexes)]
        names = [name for o in wanted for name in (o.signal, o.minus) if name]
        gate = [task.policy.gait.gate] if task.policy.gait else []
        chosen = tuple(dict.fromkeys(_pick(name, offered, task) for name in (*names, *gate)))
        mirror = task.robot.mirror if mirrored else None
        return Shape(chosen, contract.target, task.robot.default, task.policy, contract.rate, hidden, mirror)

    def parts(self) -> list[Part]:
        """Labels of one frame of the observation, part by part."""
        by_name = {s.name: s for s in self.signals}
        found = [prepared_labels(o, by_name[o.signal]) for o in self.policy.observe]
        clock: list[Part] = [(["sin", "cos"], "phase")] if self.policy.gait else []
        return [*found, *clock, self.action()]

    def action(self) -> Part:
        """Labels of the action."""
        return (list(self.policy.actions), "action") if self.policy.mix else (list(self.target.labels), "target")


def sensed(contract: Contract, task: Task) -> dict[str, Signal]:
    """Signals that reach the policy on the robot: its sensors' and the operator's command."""
    named = {s.name: s for s in contract.signals}
    return named | ({task.command.signal.name: task.command.signal} if task.command else {})


def _pick(name: str, offered: dict[str, Signal], task: Task) -> Signal:
    if name not in offered:
        raise unknown("signal", name, offered, f"the observation of {task.name}: {task.robot.name} cannot sense it")
    return offered[name]


def prepared_labels(observe: Observe, signal: Signal) -> Part:
    """Labels and name of what a signal becomes in the observation."""
    labels = {
        "value": list(signal.labels),
        "offset": list(signal.labels),
        "gravity": ["x", "y", "z"],
        "angle": [f"{f}_{label}" for f in ("sin", "cos") for label in signal.labels],
        "attitude": [a + b for a in "xyz" for b in "xyz"],
    }
    if observe.as_ not in labels:
        raise unknown("preparation", observe.as_, labels, f"the observation of {signal.name!r}")
    if observe.as_ in ("gravity", "attitude") and signal.size != 4:
        raise BadInput(f"signal {signal.name!r} has {signal.size} components; only a quaternion can be seen as {observe.as_}.")
    return labels[observe.as_], signal.name if observe.as_ in ("value", "offset") else observe.as_


def prepare(observe: Observe, signals: dict[str, Tensor], default: Tensor) -> Tensor:
    """One part of the frame."""
    x = signals[observe.signal]
    if observe.minus:
        x = x - signals[observe.minus]
    if observe.as_ == "offset":
        x = x - default
    elif observe.as_ in ("gravity", "attitude"):
        x = quadratic(x, GRAVITY if observe.as_ == "gravity" else ATTITUDE)
    elif observe.as_ == "angle":
        x = torch.cat([torch.sin(x), torch.cos(x)], dim=1)
    return x * observe.scale if observe.scale != 1.0 else x


FIRST, SECOND = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 3]), torch.tensor([0, 1, 2, 3, 1, 2, 3, 2, 3, 3])
"""The ten products of two components of a quaternion: ww, wx, wy, wz, xx, xy, xz, yy, yz, zz."""


def _forms(*rows: dict[str, float]) -> Tensor:
    """Coefficients of quadratic forms, one column each."""
    names = ["wxyz"[a] + "wxyz"[b] for a, b in zip(FIRST.tolist(), SECOND.tolist(), strict=True)]
    return torch.tensor([[row.get(name, 0.0) for row in rows] for name in names])


ATTITUDE = _forms(
    {"ww": 1, "xx": 1, "yy": -1, "zz": -1}, {"xy": 2, "wz": -2}, {"xz": 2, "wy": 2},
    {"xy": 2, "wz": 2}, {"ww": 1, "xx": -1, "yy": 1, "zz": -1}, {"yz": 2, "wx": -2},
    {"xz": 2, "wy": -2}, {"yz": 2, "wx": 2}, {"ww": 1, "xx": -1, "yy": -1, "zz": 1},
)  # fmt: skip
"""The rotation matrix of a quaternion of length one, row by row."""
GRAVITY = -ATTITUDE[:, 6:]
"""The down direction in the body's frame: minus the last row."""
LENGTH = _forms({"ww": 1, "xx": 1, "yy": 1, "zz": 1})


def quadratic(q: Tensor, forms: Tensor) -> Tensor:
    """Quadratic forms of quaternions of any length, (n, 4) -> (n, k): few operations, so a quick graph."""
    products = q.index_select(1, FIRST) * q.index_select(1, SECOND)
    return products @ forms / (products @ LENGTH).clamp_min(1e-12)


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
    def update(self, x: Tensor, reflect: Callable[[Tensor], Tensor] | None = None) -> None:
        """Take in a batch, (n, size), and its mirror images, so that left and right have equal statistics."""
        x = x if reflect is None else torch.cat([x, reflect(x)])
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
    for a, b in pairwise(sizes):
        layers += [_orthogonal(nn.Linear(a, b), 2**0.5), nn.ELU()]
    return nn.Sequential(*layers, _orthogonal(nn.Linear(sizes[-1], outputs), last_gain))


def _orthogonal(layer: nn.Linear, gain: float) -> nn.Linear:
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


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
        self.inputs = self.frame * history
        if self.gait is not None:
            self.register_buffer("gait_offset", torch.tensor(self.gait.offset, dtype=torch.float32))
            self.register_buffer("gait_lift", torch.tensor(self.gait.lift, dtype=torch.float32))
        reach = shape.policy.reach if isinstance(shape.policy.reach, tuple) else (shape.policy.reach,) * m
        self.register_buffer("default", torch.tensor(shape.default, dtype=torch.float32))
        self.register_buffer("reach", torch.tensor(reach, dtype=torch.float32))
        self.register_buffer("low", torch.tensor(shape.target.low or (-float("inf"),) * m, dtype=torch.float32))
        self.register_buffer("high", torch.tensor(shape.target.high or (float("inf"),) * m, dtype=torch.float32))
        if shape.policy.mix:
            if {len(row) for row in shape.policy.mix} != {m} or not len(shape.policy.mix) == len(shape.policy.actions) == m:
                raise BadInput(f"a mix is a square table with {m} rows, and {m} named actions.")
            self.register_buffer("mix", torch.tensor(shape.policy.mix, dtype=torch.float32))
        if shape.policy.reflexes:
            gains = [torch.tensor(r.gain, dtype=torch.float32) for r in shape.policy.reflexes]
            self.register_buffer("reflex", torch.cat(gains, dim=1))
        self.normalize = Normalizer(self.inputs)
        net = mlp(self.inputs, shape.hidden, m, 0.01)
        self.net: nn.Module = net
        if shape.mirror is not None:
            outputs = reflection([shape.action()], shape.mirror)
            self.net = Symmetric(net, reflection(parts * history, shape.mirror), outputs)
        self.log_std = nn.Parameter(torch.full((m,), init_std).log())

    def memory(self, n: int) -> Memory:
        """What an actor remembers before its first tick."""
        m, h = self.shape.target.size, self.shape.policy.history
        kept = {"frames": torch.zeros(n, h, self.frame), "action": torch.zeros(n, m), "started": torch.zeros(n, 1)}
        if self.gait is not None:
            kept |= {"phase": torch.zeros(n, 1), "gate": torch.zeros(n, 1)}
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
        frame = torch.cat([*parts, memory["action"]], dim=1)[:, None]
        h = self.shape.policy.history
        shifted = torch.cat([memory["frames"][:, 1:], frame], dim=1)
        kept["frames"] = torch.where(memory["started"][:, :, None] > 0.5, shifted, frame.expand(-1, h, -1))
        kept["started"] = torch.ones_like(memory["started"])
        return kept["frames"].flatten(1), kept

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
        target = self.default + self.reach * action
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
