"""A policy for go1 that reaches its clips, and its controller."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from robots_for_tests import arm, manifest, summing

from isthmus.deploy.controller import Controller, Manifest, pack
from isthmus.errors import BadInput
from isthmus.learn import export as export_module
from isthmus.learn import runs
from isthmus.learn.actor import Actor, Shape
from isthmus.learn.export import export
from isthmus.tasks import get_task


class Exported:
    """A policy for go1 that reaches its clips, as training would leave it, and its controller."""

    def __init__(self, folder):
        task = get_task("go1/walk")
        self.run = runs.create(folder / "run", runs.Plan("go1/walk"), task, task.robot.prior)
        torch.manual_seed(0)
        self.actor = Actor(Shape.of(task)).eval()
        with torch.no_grad():
            last = [m for m in self.actor.net.modules() if isinstance(m, torch.nn.Linear)][-1]
            last.weight *= 150.0
            last.bias += torch.linspace(-0.3, 0.3, 12)
            self.actor.normalize.mean += 0.1 * torch.randn(self.actor.inputs)
            self.actor.normalize.var *= 0.5 + torch.rand(self.actor.inputs)
        self.path = folder / "a.controller"
        self.onnx = export_module.graph_bytes(self.actor)
        self.checked = self.export(self.path)

    def export(self, path, onnx_bytes: bytes | None = None, run=None, ticks: int = 60) -> dict:
        """As `isthmus export` does, but with a graph that is there already, and for a shorter time."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(export_module, "graph_bytes", lambda actor: onnx_bytes or self.onnx)
            patch.setattr(export_module, "TICKS", ticks)
            return export(run or self.run, self.actor, path)


def trajectory(manifest: Manifest, ticks: int, seed: int = 0, size: float = 1.0):
    rng = np.random.default_rng(seed)
    walk = {s.name: np.zeros(s.size) for s in manifest.signals}
    for _ in range(ticks):
        walk = {k: 0.9 * v + size * rng.normal(size=v.shape) for k, v in walk.items()}
        yield {k: v.astype(np.float32) for k, v in walk.items()}


CONTRACT, DEFAULT = arm(), np.array([0.1, -0.2])


def small(change=lambda data: None, **fields) -> bytes:
    """The file of a small controller, signed, whatever was changed in its graph or manifest."""
    data = summing(CONTRACT, DEFAULT)
    change(data)
    raw = data.SerializeToString()
    return pack(replace(manifest(CONTRACT, DEFAULT, raw), **fields), raw)


GOOD = small()


def refuse(data: bytes, path) -> str:
    path.write_bytes(data)
    with pytest.raises(BadInput) as error:
        Controller.load(path)
    assert str(path) in str(error.value)
    return str(error.value)
