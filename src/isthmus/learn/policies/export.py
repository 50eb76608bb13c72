"""Write the policy as a controller: an ONNX graph and its contract in one file, checked tick by tick.

    recorded     1,000 ticks of the task, 200 in each of five worlds
    extreme      signals far outside what training saw
    boundary     each limit of each signal
    ramp         every input climbs by its own slope for longer than the history is

The graph is traced from the module that training used. Memory between ticks goes in and comes out, so the graph
has no hidden state. What it remembers is compared at every tick, too, and each tick begins with what the module remembers:
with memories of their own, last digits drift apart under a policy that sees its own last action.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import check_writable, content_hash
from isthmus.core.progress import Progress, silent
from isthmus.core.results import Result
from isthmus.data.contract import Signal
from isthmus.deploy.manifest import Manifest
from isthmus.deploy.onnx_controller import OnnxController, save_controller
from isthmus.learn.policies.actor import Actor, Memory
from isthmus.learn.runs import Run, as_run, load_actor
from isthmus.tasks.env import Env

TOLERANCE = 1e-5
"""Largest difference between graph and training, relative to numbers larger than one."""
TICKS = 200
"""Ticks of the task in each world of the check."""
WORLDS = 5
EXTREME_TICKS = 100
"""Ticks with signals far outside of what training saw."""
OPSET = 18
"""Version of ONNX's operators; every onnxruntime that a robot may have reads it."""
BRANCH_WARNINGS = tuple(f"Converting a tensor to a Python {kind}" for kind in ("boolean", "float", "number"))
"""How the exporter warns of a decision that it cannot see."""

Signals = dict[str, Tensor]


class ExportGraph(nn.Module):
    """The actor with its named inputs and outputs laid out in a fixed order."""

    def __init__(self, actor: Actor):
        super().__init__()
        self.actor = actor
        self.signals = tuple(s.name for s in actor.spec.signals)
        self.memory = tuple(actor.memory(1))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip((*self.signals, *self.memory), inputs, strict=True))
        memory = {k: named[k] for k in self.memory}
        target, memory = self.actor({k: named[k] for k in self.signals}, memory)
        return (target, *(memory[k] for k in self.memory))


def graph_bytes(actor: Actor) -> bytes:
    graph = ExportGraph(actor).eval()
    example = [torch.zeros(1, s.size) for s in actor.spec.signals] + list(actor.memory(1).values())
    names_in = [*graph.signals, *(f"memory.{k}" for k in graph.memory)]
    names_out = [actor.spec.target.name, *(f"next.{k}" for k in graph.memory)]
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        path = Path(scratch) / "controller.onnx"
        # The exporter that traces, some twenty times faster than the one that compiles (dynamo=True): an actor has no branches,
        # its graph is for one world, and `compare` is the judge.
        torch.onnx.export(
            graph, tuple(example), path, input_names=names_in, output_names=names_out, dynamo=False, opset_version=OPSET
        )
        written = path.read_bytes()
    branch = next((str(w.message) for w in told if str(w.message).startswith(BRANCH_WARNINGS)), "")
    if branch:
        raise BadInput(f"the policy takes another way for other signals, of which a graph would have one only: {branch}")
    return _with_all_inputs(written, dict(zip(names_in, example, strict=True)))


def _with_all_inputs(graph: bytes, inputs: Signals) -> bytes:
    """Tracing forgets inputs that nothing depends on; a controller is given every one that its contract names."""
    import onnx

    model = onnx.load_from_string(graph)
    there = {value.name for value in model.graph.input}
    kind = onnx.TensorProto.FLOAT
    rest = [onnx.helper.make_tensor_value_info(name, kind, x.shape) for name, x in inputs.items() if name not in there]
    model.graph.input.extend(rest)
    return model.SerializeToString(deterministic=True)


def make_manifest(run: Run, actor: Actor, onnx: bytes) -> Manifest:
    """Everything that must agree between the policy and the robot, at full precision."""
    robot, command = run.task.robot, run.task.command
    offered = {s.name: s for s in robot.contract.signals}
    operator = (command.signal,) if command and command.signal in actor.spec.signals else ()
    for signal in actor.spec.signals:
        if signal not in operator and offered.get(signal.name) != signal:
            raise unknown_name("signal", signal.name, offered, f"the policy's inputs: {robot.name} does not measure it")
    return Manifest(
        task=run.task.name,
        robot=robot.contract,
        inputs=tuple(s.name for s in actor.spec.signals if s not in operator),
        operator=operator,
        memory={k: tuple(v.shape[1:]) for k, v in actor.memory(1).items()},
        default=robot.default,
        model_hash=robot.model_hash,
        space_hash=robot.space.hash,
        belief_hash=run.belief.hash,
        run_hash=run.record["hash"],
        graph_hash=content_hash(onnx),
    )


@dataclass(frozen=True)
class ExportResult(Result, kind="export"):
    controller: str
    """File of the controller."""
    controller_hash: str
    run: str
    """Folder of the run."""
    run_hash: str
    largest_difference: Mapping[str, float]
    """Between graph and training, by kind of signals, relative to targets larger than one."""
    ticks: int
    """Recorded ticks that were compared."""
    bytes: int


def export(run: Run | Path | str, out: Path | str, *, progress: Progress = silent) -> ExportResult:
    """Write a run's newest policy as a controller; a graph that differs from training is an error."""
    run, out = as_run(run), Path(out)
    check_writable(out)
    return export_actor(run, load_actor(run), out, progress)


def export_actor(run: Run, actor: Actor, path: Path, progress: Progress = silent) -> ExportResult:
    """The same for a policy in memory."""
    if actor.spec.privileged:
        raise BadInput(f"{run.folder} is a teacher: no robot can tell it e. Train a student or rma with it and export that.")
    onnx = graph_bytes(actor)
    manifest = make_manifest(run, actor, onnx)
    worst = largest_differences(run, actor, OnnxController(manifest, onnx), progress)
    for kind, difference in worst.items():
        if not difference <= TOLERANCE:
            raise BadInput(
                f"the exported graph differs from the policy by {difference:.2g} on {kind} signals, more than {TOLERANCE:g}; "
                "nothing written."
            )
    found = save_controller(path, manifest, onnx)
    return ExportResult(*(str(path), found, str(run.folder), run.record["hash"], worst, TICKS * WORLDS, path.stat().st_size))


@torch.no_grad()
def largest_differences(run: Run, actor: Actor, controller: OnnxController, progress: Progress = silent) -> dict[str, float]:
    """Largest difference between module and graph, targets and memory, per kind of signals."""
    controller.reset()
    start = [_difference(controller.memory[k], v.numpy()) for k, v in actor.memory(1).items()]
    worst: dict[str, float] = {"recorded": max(start, default=0.0), "extreme": 0.0, "boundary": 0.0, "ramp": 0.0}

    def both(kind: str, signals: Signals, memory: Memory) -> tuple[Tensor, Memory]:
        """A tick of n worlds: what the module makes of it, against the graph, which takes one world after the other."""
        target, after = actor(signals, memory)
        for i in range(len(target)):
            for k, kept in controller.memory.items():
                kept[0] = memory[k][i].numpy()
            out = controller.tick({k: v[i].numpy() for k, v in signals.items()})
            pairs = [(out, target[i].numpy()), *((controller.memory[k][0], v[i].numpy()) for k, v in after.items())]
            # NumPy's maximum keeps a NaN, Python's would lose it.
            worst[kind] = float(np.maximum.reduce([worst[kind], *(_difference(a, b) for a, b in pairs)]))
        return target, after

    env = Env(run.task, WORLDS, seed=7, belief=run.belief, training=False)
    memory = actor.memory(WORLDS)
    for tick in range(TICKS):
        target, memory = both("recorded", {k: v for k, v in env.signals().items() if k in controller.inputs}, memory)
        env.step(target)
        progress((tick + 1) / TICKS)
    memory = actor.memory(1)
    for kind, signals in synthetic_signals(actor.spec.signals, actor.spec.max_memory_frames):
        _, memory = both(kind, signals, memory)
    return worst


def synthetic_signals(signals: tuple[Signal, ...], history: int) -> Iterator[tuple[str, Signals]]:
    """Signals that no recording shows."""
    rng = np.random.default_rng(0)
    row = lambda values: torch.tensor(np.asarray(values, np.float32)[None])  # noqa: E731
    for _ in range(EXTREME_TICKS):
        yield "extreme", {s.name: row(rng.normal(0, 30, s.size)) for s in signals}
    still = {s.name: row(np.zeros(s.size)) for s in signals}
    for s in signals:
        for edge in (s.low or (-1.0,) * s.size, s.high or (1.0,) * s.size):
            for beyond in (0.999, 1.0, 1.001, 1000.0):
                yield "boundary", still | {s.name: row(np.array(edge) * beyond)}
    slopes = {s.name: rng.uniform(-1, 1, s.size) for s in signals}
    for tick in range(3 * history + 3):
        yield "ramp", {s.name: row(slopes[s.name] * tick / (history + 1)) for s in signals}


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference, relative to numbers larger than one."""
    return float((np.abs(a - b) / np.maximum(np.abs(b), 1.0)).max())
