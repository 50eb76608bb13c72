"""Left and right are alike: a policy that treats the mirror image of a situation as its mirror image.

A reflection permutes components and flips signs. It is worked out once, from labels: `FL_hip` becomes `FR_hip`, and
the components that the robot names change sign. `Symmetric` makes any network obey it exactly,

    f(x) = (net(x) + M net(M x)) / 2,

so that everything learnt on one side holds on the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from isthmus.core.errors import BadInput
from isthmus.sim.morphology import Mirror

VectorLabels = tuple[list[str], str]
"""Labels of a vector's components, and the vector's name."""


@dataclass(frozen=True)
class Reflection:
    """x -> x[order] · signs; applying it twice changes nothing."""

    order: tuple[int, ...]
    signs: tuple[float, ...]

    def append_swapped_pair(self, size: int) -> Reflection:
        """The reflection of a vector that is followed by two of `size` numbers, each the other's mirror image."""
        k = len(self.order)
        swapped = (*range(k + size, k + 2 * size), *range(k, k + size))
        return Reflection((*self.order, *swapped), (*self.signs, *((1.0,) * 2 * size)))


def mirrored_label(label: str, mirror: Mirror) -> str:
    """The label on the other side: `FL_hip` -> `FR_hip`, `strength_FL` -> `strength_FR`."""
    swap = {a: b for pair in mirror.pairs for a, b in (pair, pair[::-1])}
    return "_".join(swap.get(part, part) for part in label.split("_"))


def reflection(parts: list[VectorLabels], mirror: Mirror) -> Reflection:
    """The reflection of vectors laid side by side."""
    order: list[int] = []
    signs: list[float] = []
    for labels, kind in parts:
        where = {label: len(signs) + i for i, label in enumerate(labels)}
        for label in labels:
            other = mirrored_label(label, mirror)
            if other not in where:
                raise BadInput(f"the mirror image {other!r} of {label!r} is not a component of {kind}.")
            order.append(where[other])
        signs += [-1.0 if any(re.fullmatch(p, f"{kind}/{label}") for p in mirror.negated) else 1.0 for label in labels]
    return Reflection(tuple(order), tuple(signs))


class Symmetric(nn.Module):
    """A network made to commute with reflections of its input and output."""

    in_order: Tensor
    in_signs: Tensor
    out_order: Tensor
    out_signs: Tensor

    def __init__(self, net: nn.Module, inputs: Reflection, outputs: Reflection):
        super().__init__()
        self.net = net
        for name, r in (("in", inputs), ("out", outputs)):
            self.register_buffer(f"{name}_order", torch.tensor(r.order), persistent=False)
            self.register_buffer(f"{name}_signs", torch.tensor(r.signs), persistent=False)

    def reflect(self, x: Tensor) -> Tensor:
        """Mirror images of inputs, (n, inputs)."""
        return x.index_select(1, self.in_order) * self.in_signs

    def forward(self, x: Tensor) -> Tensor:
        here, there = self.net(torch.cat([x, self.reflect(x)])).split(len(x))
        return 0.5 * (here + there.index_select(1, self.out_order) * self.out_signs)
