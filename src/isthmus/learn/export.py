"""Write the policy as a controller: an ONNX graph and its contract in one file, checked tick by tick.

The graph is traced from the module that training used. Memory between ticks goes in and comes out, so the graph
has no hidden state.
"""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from isthmus.errors import BadInput
from isthmus.files import atomic_write, content_hash
from isthmus.learn.actor import Actor
from isthmus.learn.runs import Run
from isthmus.tasks.env import Env

TOLERANCE = 1e-5
TICKS = 1000


class Graph(nn.Module):
    """The actor with its named inputs and outputs laid out in a fixed order."""

    def __init__(self, actor: Actor):
        super().__init__()
        self.actor = actor
        self.signals = tuple(s.name for s in actor.shape.signals)
        self.memory = tuple(actor.memory(1))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip((*self.signals, *self.memory), inputs, strict=True))
        memory = {k: named[k] for k in self.memory}
        target, memory = self.actor({k: named[k] for k in self.signals}, memory)
        return (target, *(memory[k] for k in self.memory))


def graph_bytes(actor: Actor) -> bytes:
    graph = Graph(actor).eval()
    example = [torch.zeros(1, s.size) for s in actor.shape.signals] + list(actor.memory(1).values())
    names_in = [*graph.signals, *(f"memory.{k}" for k in graph.memory)]
    names_out = [actor.shape.target.name, *(f"next.{k}" for k in graph.memory)]
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "controller.onnx"
        program = torch.onnx.export(
            graph, tuple(example), input_names=names_in, output_names=names_out, dynamo=True, verbose=False, optimize=True
        )
        assert program is not None
        program.save(str(path), external_data=False)
        return path.read_bytes()


def contract_of(run: Run, actor: Actor) -> dict[str, Any]:
    """Everything that must agree between the policy and the robot, at full precision."""
    robot = run.task.robot
    return {
        "kind": "controller",
        "task": run.task.name,
        "robot": robot.contract.to_dict(),
        "inputs": [asdict(s) for s in actor.shape.signals],
        "memory": {k: list(v.shape[1:]) for k, v in actor.memory(1).items()},
        "output": asdict(actor.shape.target),
        "default": list(robot.default),
        "model_hash": robot.model_hash,
        "space_hash": robot.space.hash,
        "belief_hash": run.belief.hash,
        "run_hash": run.record["hash"],
    }


def export(run: Run, actor: Actor, path: Path, report: Callable[[float], None] = lambda fraction: None) -> dict[str, Any]:
    """Write the controller and return what was checked; a graph that differs from training is an error."""
    onnx = graph_bytes(actor)
    worst = compare(run, actor, onnx, report)
    if not worst <= TOLERANCE:
        raise BadInput(f"the exported graph differs from the policy by {worst:.2g}, more than {TOLERANCE:g}; nothing written.")
    contract = contract_of(run, actor) | {"graph_hash": content_hash(onnx)}
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as file:
        for name, content in (("contract.json", json.dumps(contract, indent=2, ensure_ascii=False)), ("controller.onnx", onnx)):
            file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    atomic_write(path, data.getvalue())
    return {"ticks": TICKS, "worst": worst, "bytes": data.tell(), "hash": content_hash(data.getvalue())}


@torch.no_grad()
def compare(run: Run, actor: Actor, onnx: bytes, report: Callable[[float], None] = lambda fraction: None) -> float:
    """Largest difference between the torch module and the graph over recorded ticks and extreme signals."""
    import onnxruntime

    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    env = Env(run.task, 1, seed=7, belief=run.belief, training=False)
    rng = np.random.default_rng(0)
    memory, worst = actor.memory(1), 0.0
    kept = {k: v.numpy() for k, v in memory.items()}
    for tick in range(TICKS):
        signals = env.signals()
        if tick % 10 == 9:
            signals = {k: torch.from_numpy(rng.normal(0, 30, v.shape).astype(np.float32)) for k, v in signals.items()}
        target, memory = actor(signals, memory)
        feed = {k: signals[k].numpy() for k in signals} | {f"memory.{k}": v for k, v in kept.items()}
        out = session.run(None, {k: feed[k] for k in names})
        kept = dict(zip(memory, out[1:], strict=True))
        pairs = [(np.asarray(out[0]), target.numpy()), *((np.asarray(kept[k]), memory[k].numpy()) for k in memory)]
        # NumPy's maximum keeps a NaN, Python's would lose it.
        worst = float(np.maximum.reduce([worst, *(_difference(a, b) for a, b in pairs)]))
        env.step(target)
        report((tick + 1) / TICKS)
    return worst


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference, relative to numbers larger than one."""
    return float((np.abs(a - b) / np.maximum(np.abs(b), 1.0)).max())
