"""Targets that are known in advance, as a controller: it counts ticks and plays them, and holds the last one.

So an experiment runs on a robot as a policy does, with preflight, ramp, guard and recording.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from isthmus.deploy.controller import Controller, Manifest, save
from isthmus.files import content_hash
from isthmus.sim.robot import Robot
from isthmus.world import Belief

OPSET = 18


def player(robot: Robot, targets: np.ndarray) -> bytes:
    """The graph: tick count in, targets (T, m) row by row out."""
    signal = robot.contract.signals[0]
    tables = [
        numpy_helper.from_array(np.asarray(targets, np.float32), "targets"),
        numpy_helper.from_array(np.array([[1.0]], np.float32), "one"),
        numpy_helper.from_array(np.array([[len(targets) - 1.0]], np.float32), "last"),
        numpy_helper.from_array(np.array([0], np.int64), "axis"),
    ]
    nodes = [
        helper.make_node("Cast", ["memory.tick"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Squeeze", ["whole", "axis"], ["row"]),
        helper.make_node("Gather", ["targets", "row"], [robot.contract.target.name], axis=0),
        helper.make_node("Add", ["memory.tick", "one"], ["after"]),
        helper.make_node("Min", ["after", "last"], ["next.tick"]),
    ]
    kind = lambda name, width: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, width])  # noqa: E731
    inputs = [kind(signal.name, signal.size), kind("memory.tick", 1)]
    outputs = [kind(robot.contract.target.name, targets.shape[1]), kind("next.tick", 1)]
    graph = helper.make_graph(nodes, "player", inputs, outputs, tables)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    return model.SerializeToString()


def save_player(path: Path, robot: Robot, belief: Belief, targets: np.ndarray) -> str:
    """Write it, checked row by row; returns its hash."""
    onnx = player(robot, targets)
    manifest = Manifest(
        task=f"{robot.name}/excite",
        robot=robot.contract,
        inputs=(robot.contract.signals[0].name,),
        operator=(),
        memory={"tick": (1,)},
        default=robot.default,
        model_hash=robot.model_hash,
        space_hash=robot.space.hash,
        belief_hash=belief.hash,
        run_hash="",
        graph_hash=content_hash(onnx),
    )
    controller = Controller(manifest, onnx)
    still = {robot.contract.signals[0].name: np.zeros(robot.contract.signals[0].size, np.float32)}
    controller.reset()
    played = np.array([controller.tick(still) for _ in range(len(targets) + 2)])
    assert np.array_equal(played[: len(targets)], np.asarray(targets, np.float32))
    assert np.array_equal(played[-1], played[len(targets) - 1])
    return save(path, manifest, onnx)
