"""What runs on the robot: one graph from raw named signals to named targets, and the manifest that says what they are.

    controller = Controller.load("a.controller")
    target = controller.tick(signals)            one value per motor, in the manifest's order

A controller may come from a stranger. Loading it executes nothing but arithmetic, and every bit of the file is covered by
the hash at its end. The file is a zip archive without compression:

    contract.json       the manifest: names, order, units, frames, rate, gains, limits, hashes of where it came from
    controller.onnx     signals and memory in, targets and memory out
    archive comment     SHA-256 of everything before it
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.data.contract import Contract, Signal
from isthmus.deploy import graph
from isthmus.errors import BadInput
from isthmus.files import atomic_write, content_hash
from isthmus.parse import build

MAX_GRAPH = 64 * 2**20
MAX_MANIFEST = 2**20
MAX_MEMORY = 2**20
"""Numbers that a controller may remember from tick to tick."""
_HASH = 64


@dataclass(frozen=True)
class Manifest:
    """Everything that must agree between a policy and a robot, at full precision."""

    task: str
    robot: Contract
    """Of the robot that the policy was trained for."""
    inputs: tuple[str, ...]
    """Signals of the robot that the graph needs."""
    operator: tuple[Signal, ...]
    """Inputs that come from whoever uses the robot: a commanded velocity, a place to go to."""
    memory: Mapping[str, tuple[int, ...]]
    """What goes from one tick to the next, with shapes."""
    default: tuple[float, ...]
    """Target that holds the pose in which the policy expects to start."""
    model_hash: str
    space_hash: str
    belief_hash: str
    run_hash: str
    graph_hash: str

    def __post_init__(self) -> None:
        for name in self.inputs:
            self.robot[name]
        names = [*self.inputs, *(s.name for s in self.operator)]
        if len(set(names)) != len(names) or not names:
            raise BadInput("the inputs must be distinct, and at least one.")
        if len(self.default) != self.robot.target.size:
            raise BadInput(f"the default has {len(self.default)} numbers for {self.robot.target.size} targets.")
        if any(d < 1 for shape in self.memory.values() for d in shape):
            raise BadInput("the memory has an empty shape.")
        if sum(math.prod(shape) for shape in self.memory.values()) > MAX_MEMORY:
            raise BadInput(f"the memory holds more than {MAX_MEMORY} numbers.")

    @property
    def signals(self) -> tuple[Signal, ...]:
        """All inputs of the graph, the robot's first."""
        return (*(self.robot[name] for name in self.inputs), *self.operator)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "controller"} | asdict(self) | {"robot": self.robot.to_dict()}

    @staticmethod
    def from_dict(data: Any, where: str) -> Manifest:
        if not isinstance(data, Mapping) or data.get("kind") != "controller":
            raise BadInput(f"{where} is not a controller's contract.")
        rest = {k: v for k, v in data.items() if k != "kind"}
        robot = rest.get("robot")
        if isinstance(robot, Mapping):
            rest["robot"] = {k: v for k, v in robot.items() if k != "kind"}
        return build(Manifest, rest, where)


def pack(manifest: Manifest, onnx: bytes) -> bytes:
    data = io.BytesIO()
    text = json.dumps(manifest.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as file:
        for name, content in (("contract.json", text), ("controller.onnx", onnx)):
            file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
        file.comment = b"0" * _HASH
    body = data.getvalue()[:-_HASH]
    return body + content_hash(body).encode()


def unpack(data: bytes, where: str) -> tuple[Manifest, bytes]:
    """The inverse of `pack`; any other bytes are a BadInput."""
    if len(data) <= _HASH or content_hash(data[:-_HASH]).encode() != data[-_HASH:]:
        raise BadInput(f"{where} is not a controller, or it is damaged: its contents do not have the hash at its end.")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            entries = {i.filename: i for i in file.infolist()}
            if set(entries) != {"contract.json", "controller.onnx"} or len(file.infolist()) != 2:
                raise BadInput(f"{where} does not hold exactly a contract and a graph.")
            for name, limit in (("contract.json", MAX_MANIFEST), ("controller.onnx", MAX_GRAPH)):
                if entries[name].compress_type != zipfile.ZIP_STORED or entries[name].file_size > limit:
                    raise BadInput(f"{where}: {name} is compressed, or larger than {limit // 2**20} MiB.")
            text, onnx = file.read("contract.json"), file.read("controller.onnx")
            fields = json.loads(text)
    except (zipfile.BadZipFile, ValueError, OSError, RecursionError, RuntimeError, NotImplementedError, EOFError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{where} is not a controller: {error}.") from None
    manifest = Manifest.from_dict(fields, f"{where}: contract.json")
    if content_hash(onnx) != manifest.graph_hash:
        raise BadInput(f"{where}: the contract belongs to another graph.")
    return manifest, onnx


class Controller:
    def __init__(self, manifest: Manifest, onnx: bytes, where: str = "the controller"):
        """A graph that does not fit its manifest is an error here, not at the first tick."""
        graph.check(onnx, where)
        self.manifest, self._session = manifest, _session(onnx, where)
        self.hash = ""
        self._inputs = {s.name: np.zeros((1, s.size), np.float32) for s in manifest.signals}
        self._outputs = [manifest.robot.target.name, *(f"next.{k}" for k in manifest.memory)]
        self._memory_names = [f"memory.{k}" for k in manifest.memory]
        self._check(where)
        self.reset()
        try:
            self.tick({s.name: np.zeros(s.size) for s in manifest.signals})
        except Exception as error:
            raise BadInput(f"{where}: the graph fails at its first tick: {_brief(error)}.") from None
        self.reset()

    @staticmethod
    def load(path: Path | str) -> Controller:
        path = Path(path)
        try:
            if path.stat().st_size > MAX_GRAPH + 2 * MAX_MANIFEST:
                raise BadInput(f"{path} is too large for a controller.")
            data = path.read_bytes()
        except OSError as error:
            raise BadInput(f"cannot read {path}: {error.strerror or error}.") from None
        controller = Controller(*unpack(data, str(path)), str(path))
        controller.hash = content_hash(data)
        return controller

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self._inputs)

    @property
    def memory(self) -> dict[str, np.ndarray]:
        """What the last tick left for the next one, by the manifest's names, (1, …)."""
        return dict(zip(self.manifest.memory, self._memory.values(), strict=True))

    def reset(self) -> None:
        """Forget everything: the state before the first tick."""
        self._memory = {
            name: np.zeros((1, *shape), np.float32)
            for name, shape in zip(self._memory_names, self.manifest.memory.values(), strict=True)
        }

    def tick(self, signals: Mapping[str, np.ndarray]) -> np.ndarray:
        """Targets for these signals, (m,) float32; moves the memory on."""
        for name, row in self._inputs.items():
            row[0] = signals[name]
        out = self._session.run(self._outputs, self._inputs | self._memory)
        self._memory = dict(zip(self._memory_names, out[1:], strict=True))
        return out[0][0]

    def _check(self, where: str) -> None:
        m = self.manifest
        into = {s.name: (1, s.size) for s in m.signals} | {f"memory.{k}": (1, *v) for k, v in m.memory.items()}
        out = {m.robot.target.name: (1, m.robot.target.size)} | {f"next.{k}": (1, *v) for k, v in m.memory.items()}
        for what, promised, found in (
            ("input", into, self._session.get_inputs()),
            ("output", out, self._session.get_outputs()),
        ):
            has = {x.name: tuple(x.shape) if x.type == "tensor(float)" else x.type for x in found}
            for name in promised.keys() | has.keys():
                if promised.get(name) != has.get(name):
                    says, is_ = promised.get(name, "nothing"), has.get(name, "nothing")
                    raise BadInput(f"{where}: for the {what} {name!r} the contract says {says}, but the graph has {is_}.")


def _session(onnx: bytes, where: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise BadInput(f"{where}: the graph cannot be run: {_brief(error)}.") from None


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def save(path: Path, manifest: Manifest, onnx: bytes) -> str:
    """Write a controller and return its hash."""
    data = pack(manifest, onnx)
    atomic_write(path, data)
    return content_hash(data)
