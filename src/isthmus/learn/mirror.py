"""Left and right are alike: the mirror image of an experience is an experience too.

A reflection permutes components and flips signs. It is worked out once, from labels: `FL_hip` becomes `FR_hip`, and
the components that the robot names change sign.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from isthmus.errors import BadInput
from isthmus.learn.actor import Actor, prepared_size
from isthmus.sim.robot import Mirror
from isthmus.tasks.env import Env
from isthmus.tasks.task import Observe

_XYZ = ("x", "y", "z")


def reflected_label(label: str, mirror: Mirror) -> str:
    """The label on the other side: `FL_hip` -> `FR_hip`, `strength_FL` -> `strength_FR`."""
    parts = label.split("_")
    swap = {a: b for pair in mirror.pairs for a, b in (pair, pair[::-1])}
    return "_".join(swap.get(p, p) for p in parts)


def table(labels: list[str], kind: str, mirror: Mirror) -> tuple[list[int], list[float]]:
    """Permutation and signs for components `labels` of one vector named `kind`."""
    where = {label: i for i, label in enumerate(labels)}
    order, signs = [], []
    for label in labels:
        other = reflected_label(label, mirror)
        if other not in where:
            raise BadInput(f"the mirror image {other!r} of {label!r} is not a component of {kind}.")
        order.append(where[other])
        signs.append(-1.0 if any(re.fullmatch(p, f"{kind}/{label}") for p in mirror.negated) else 1.0)
    return order, signs


class Reflection:
    """Mirror images of actions, observations and critic inputs of one environment."""

    def __init__(self, env: Env, actor: Actor, normalizers: dict):
        mirror = env.task.robot.mirror
        assert mirror is not None
        self._normalizers = normalizers
        joints = list(actor.shape.target.labels)
        self._tables: dict[str, tuple[Tensor, Tensor]] = {}
        self._add("action", [(joints, "target")], mirror)
        frame: list[tuple[list[str], str]] = []
        by_name = {s.name: s for s in actor.shape.signals}
        for o in actor.shape.policy.observe:
            frame.append(_described(o, list(by_name[o.signal].labels), prepared_size(o, by_name[o.signal])))
        frame.append((joints, "target"))
        self._add("observation", frame * actor.shape.policy.history, mirror)
        self._add("critic", env.critic_labels(), mirror)

    def _add(self, name: str, parts: list[tuple[list[str], str]], mirror: Mirror) -> None:
        order: list[int] = []
        signs: list[float] = []
        for labels, kind in parts:
            o, s = table(labels, kind, mirror)
            order += [len(signs) + i for i in o]
            signs += s
        self._tables[name] = torch.tensor(order), torch.tensor(signs)

    def raw(self, x: Tensor, name: str) -> Tensor:
        order, signs = self._tables[name]
        return x[:, order] * signs

    def action(self, a: Tensor) -> Tensor:
        return self.raw(a, "action")

    def normalized(self, x: Tensor, name: str) -> Tensor:
        """The mirror image of normalised inputs, as if the raw ones had been reflected first."""
        order, signs = self._tables[name]
        norm = self._normalizers[name]
        std = (norm.var + 1e-5).sqrt()
        scale = signs * std[order] / std
        return x[:, order] * scale + (signs * norm.mean[order] - norm.mean) / std


def _described(o: Observe, labels: list[str], size: int) -> tuple[list[str], str]:
    if o.as_ == "gravity":
        return list(_XYZ), "gravity"
    if o.as_ in ("value", "offset"):
        return labels, o.signal
    raise BadInput(f"an observation seen as {o.as_!r} has no mirror image yet.")
