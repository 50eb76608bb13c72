"""Targets that are known in advance, as a controller: it counts ticks and plays them, and holds the last one.

So an experiment runs on a robot as a policy does, with preflight, ramp, guard and recording.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from isthmus.core.files import content_hash
from isthmus.data.contract import Contract
from isthmus.deploy.manifest import Manifest
from isthmus.deploy.onnx_controller import OnnxController, save_controller

OPSET = 18


def player_graph(contract: Contract, targets: np.ndarray) -> bytes:
    """ONNX graph: tick count in, targets (T, m) row by row out."""
    from onnx import TensorProto, helper, numpy_helper

    signal = contract.signals[0]
    tables = [
        numpy_helper.from_array(np.asarray(targets, np.float32), "targets"),
        numpy_helper.from_array(np.array([[1.0]], np.float32), "one"),
        numpy_helper.from_array(np.array([[len(targets) - 1.0]], np.float32), "last"),
        numpy_helper.from_array(np.array([0], np.int64), "axis"),
    ]
    nodes = [
        helper.make_node("Cast", ["memory.tick"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Squeeze", ["whole", "axis"], ["row"]),
        helper.make_node("Gather", ["targets", "row"], [contract.target.name], axis=0),
        helper.make_node("Add", ["memory.tick", "one"], ["after"]),
        helper.make_node("Min", ["after", "last"], ["next.tick"]),
    ]
    kind = lambda name, width: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, width])  # noqa: E731
    inputs = [kind(signal.name, signal.size), kind("memory.tick", 1)]
    outputs = [kind(contract.target.name, targets.shape[1]), kind("next.tick", 1)]
    graph = helper.make_graph(nodes, "player", inputs, outputs, tables)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    return model.SerializeToString()


def save_player(
    path: Path,
    contract: Contract,
    default: tuple[float, ...],
    targets: np.ndarray,
    model_hash: str,
    space_hash: str,
    belief_hash: str,
) -> str:
    """Write a controller that plays targets, (T, m), checked row by row; returns its hash."""
    onnx = player_graph(contract, targets)
    manifest = Manifest(
        task=f"{contract.robot}/excite",
        robot=contract,
        inputs=(contract.signals[0].name,),
        operator=(),
        memory={"tick": (1,)},
        default=default,
        model_hash=model_hash,
        space_hash=space_hash,
        belief_hash=belief_hash,
        run_hash="",
        graph_hash=content_hash(onnx),
    )
    controller = OnnxController(manifest, onnx)
    still = {contract.signals[0].name: np.zeros(contract.signals[0].size, np.float32)}
    controller.reset()
    played = np.array([controller.tick(still) for _ in range(len(targets) + 2)])
    assert np.array_equal(played[: len(targets)], np.asarray(targets, np.float32))
    assert np.array_equal(played[-1], played[len(targets) - 1])
    return save_controller(path, manifest, onnx)
