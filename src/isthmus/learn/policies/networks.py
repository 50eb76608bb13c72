"""Small networks, and the statistics that bring their inputs to one scale."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from isthmus.core.errors import BadInput


class Normalizer(nn.Module):
    """Running mean and spread of what was seen; part of the module, so it can never be left behind."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, size: int, limit: float = 8.0, min_std: Tensor | None = None):
        """`least`, (size,), is the smallest spread that inputs are divided by: one that hardly varied is not blown up."""
        super().__init__()
        self.limit = limit
        self.least: Tensor | None
        self.register_buffer("least", None if min_std is None else min_std.square(), persistent=False)
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))
        self.register_buffer("count", torch.tensor(1e-2))

    def forward(self, x: Tensor) -> Tensor:
        var = self.var if self.least is None else torch.maximum(self.var, self.least)
        return ((x - self.mean) * torch.rsqrt(var + 1e-5)).clamp(-self.limit, self.limit)

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
        layers += [orthogonal(nn.Linear(a, b), 2**0.5), nn.ELU()]
    return nn.Sequential(*layers, orthogonal(nn.Linear(sizes[-1], outputs), last_gain))


def orthogonal(layer: nn.Linear, gain: float) -> nn.Linear:
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def gradient_step(loss: Tensor, optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], max_norm: float) -> None:
    """One step down the loss, with gradients no longer than `longest`; a loss that is no number is an error."""
    if not torch.isfinite(loss):
        raise BadInput("learning broke down: the loss is no longer a number; the last checkpoint is whole.")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, max_norm, foreach=True)
    optimizer.step()
