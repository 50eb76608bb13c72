"""A controller as one ONNX graph from raw named signals to named targets, with the manifest that describes them.

    controller = OnnxController.load("a.controller")
    target = controller.tick(signals)            one value per motor, in the manifest's order

The file may come from an untrusted source. Loading it executes nothing but arithmetic, and every bit of it is covered by
the hash at its end. It is a zip archive without compression:

    contract.json       the manifest: names, order, units, frames, rate, gains, limits, hashes of where it came from
    controller.onnx     signals and memory in, targets and memory out
    archive comment     SHA-256 of everything before it
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput, unreadable_file
from isthmus.core.files import atomic_write, content_hash
from isthmus.data import archive
from isthmus.deploy import onnx_screening
from isthmus.deploy.manifest import Manifest

MAX_GRAPH = 64 * 2**20
"""Bytes of the ONNX graph."""
MAX_MANIFEST = 2**20
"""Bytes of contract.json."""
MAX_ARENA_BYTES = 256 * 2**20
"""Bytes that the runtime may allocate for weights and for values between the operators of a tick."""
MAX_TICK_SECONDS = 1.0
"""s: no policy takes this long."""


def pack_controller(manifest: Manifest, onnx: bytes) -> bytes:
    text = json.dumps(manifest.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    return archive.pack({"contract.json": text, "controller.onnx": onnx})


def unpack_controller(data: bytes, where: str) -> tuple[Manifest, bytes]:
    """Manifest and graph that `pack_controller` packed; BadInput for any other bytes."""
    needed = {"contract.json": MAX_MANIFEST, "controller.onnx": MAX_GRAPH}
    parts = archive.unpack(data, needed, {}, "a controller", where)
    try:
        fields = json.loads(parts["contract.json"])
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where} is not a controller: {error}.") from None
    manifest, onnx = Manifest.from_dict(fields, f"{where}: contract.json"), parts["controller.onnx"]
    if content_hash(onnx) != manifest.graph_hash:
        raise BadInput(f"{where}: the contract belongs to another graph.")
    return manifest, onnx


class OnnxController:
    def __init__(self, manifest: Manifest, onnx: bytes, where: str = "the controller"):
        """A graph that does not fit its manifest is an error here, not at the first tick."""
        onnx_screening.check_graph(onnx, where)
        self.manifest, self._session = manifest, _session(onnx, where)
        self.hash = ""
        self._check_interface(where)
        self._bind_buffers()
        self.reset()
        self._check_first_tick(where)
        self.reset()

    @staticmethod
    def load(path: Path | str) -> OnnxController:
        path = Path(path)
        try:
            if path.stat().st_size > MAX_GRAPH + 2 * MAX_MANIFEST:
                raise BadInput(f"{path} is too large for a controller.")
            data = path.read_bytes()
        except OSError as error:
            raise unreadable_file(path, error) from None
        controller = OnnxController(*unpack_controller(data, str(path)), str(path))
        controller.hash = content_hash(data)
        return controller

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self._inputs)

    @property
    def memory(self) -> dict[str, np.ndarray]:
        """What the last tick left for the next one, by the manifest's names, (1, …)."""
        return self._memory[self._active_buffer]

    def reset(self) -> None:
        """Forget everything: the state before the first tick."""
        for kept in self._memory[self._active_buffer].values():
            kept[:] = 0.0

    def tick(self, signals: Mapping[str, np.ndarray]) -> np.ndarray:
        """Targets for these signals, (m,) float32; moves the memory on."""
        for name, row in self._inputs.items():
            row[0] = signals[name]
        self._session.run_with_iobinding(self._bindings[self._active_buffer])
        self._active_buffer = 1 - self._active_buffer
        return self._target[0].copy()

    def _check_first_tick(self, where: str) -> None:
        """Run one tick. Shapes do not depend on signals, so any later tick takes as much memory and about the same time."""
        import onnxruntime

        options = onnxruntime.RunOptions()
        options.log_severity_level = 4
        timer = threading.Timer(MAX_TICK_SECONDS, lambda: setattr(options, "terminate", True))
        timer.daemon = True
        timer.start()
        try:
            self._session.run_with_iobinding(self._bindings[self._active_buffer], options)
        except Exception as error:
            slow = f"it takes longer than {MAX_TICK_SECONDS:g} s" if options.terminate else _short_message(error)
            raise BadInput(f"{where}: the graph fails at its first tick: {slow}.") from None
        finally:
            timer.cancel()

    def _bind_buffers(self) -> None:
        """Bind fixed buffers: memory alternates between two, so the runtime copies nothing."""
        from onnxruntime import OrtValue

        m = self.manifest
        zeros = lambda shape: np.zeros((1, *shape), np.float32)  # noqa: E731
        self._inputs = {s.name: zeros((s.size,)) for s in m.signals}
        self._target = zeros((m.robot.target.size,))
        self._memory = [{name: zeros(shape) for name, shape in m.memory.items()} for _ in range(2)]
        self._bindings, self._active_buffer = [self._session.io_binding() for _ in range(2)], 0
        for turn, binding in enumerate(self._bindings):
            into = self._inputs | {f"memory.{k}": v for k, v in self._memory[turn].items()}
            out = {m.robot.target.name: self._target} | {f"next.{k}": v for k, v in self._memory[1 - turn].items()}
            for name, array in into.items():
                binding.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(array))
            for name, array in out.items():
                binding.bind_ortvalue_output(name, OrtValue.ortvalue_from_numpy(array))

    def _check_interface(self, where: str) -> None:
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
    # Bytes can be a model in two formats at once; what was checked is the ONNX one.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    # Memory comes from an allocator with an upper limit, and nothing is computed before the first tick.
    _limit_memory()
    options.add_session_config_entry("session.use_env_allocators", "1")
    skipped = {"ConstantFolding"}
    try:
        return onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"], disabled_optimizers=skipped)
    except Exception as error:
        raise BadInput(f"{where}: the graph cannot be run: {_short_message(error)}.") from None


@cache
def _limit_memory() -> None:
    """Give the runtime of this process one allocator of at most MAX_ARENA_BYTES bytes, which all controllers share."""
    import onnxruntime

    kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    info = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
    limits = {"max_mem": MAX_ARENA_BYTES, "arena_extend_strategy": 1}
    onnxruntime.create_and_register_allocator(info, onnxruntime.OrtArenaCfg(limits))


def _short_message(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def save_controller(path: Path, manifest: Manifest, onnx: bytes) -> str:
    """Write a controller and return its hash."""
    data = pack_controller(manifest, onnx)
    atomic_write(path, data)
    return content_hash(data)
