"""Controllers of a few operators, and recordings of simulated robots under them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from isthmus.data.contract import Law
from isthmus.data.episode import Episode
from isthmus.deploy.controller import Controller, Manifest, save
from isthmus.files import content_hash
from isthmus.identify.plant import lived
from isthmus.sim.engine import Engine
from isthmus.sim.robot import Robot


def following(robot: Robot, targets: np.ndarray, law: Law, path: Path, task: str = "") -> Controller:
    """Plays targets, (T, m), with a law's answer to the signals on top; saved at `path`."""
    contract = robot.contract
    number = lambda name, x, kind=np.float32: numpy_helper.from_array(np.asarray(x, kind), name)
    kind = lambda name, width: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, width])
    tables = [
        number("targets", targets + np.array(law.constant)),
        number("one", [[1.0]]),
        number("last", [[len(targets) - 1.0]]),
        number("axis", [0], np.int64),
        number("low", contract.target.low),
        number("high", contract.target.high),
        *(number(f"gain.{name}", np.array(rows).T) for name, rows in law.gains.items()),
    ]
    nodes = [
        helper.make_node("Cast", ["memory.tick"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Squeeze", ["whole", "axis"], ["row"]),
        helper.make_node("Gather", ["targets", "row"], ["sum.0"], axis=0),
        helper.make_node("Add", ["memory.tick", "one"], ["after"]),
        helper.make_node("Min", ["after", "last"], ["next.tick"]),
    ]
    for i, name in enumerate(law.gains):
        nodes.append(helper.make_node("MatMul", [name, f"gain.{name}"], [f"part.{i}"]))
        nodes.append(helper.make_node("Add", [f"sum.{i}", f"part.{i}"], [f"sum.{i + 1}"]))
    nodes.append(helper.make_node("Max", [f"sum.{len(law.gains)}", "low"], ["above"]))
    nodes.append(helper.make_node("Min", ["above", "high"], [contract.target.name]))
    inputs = [kind(name, contract[name].size) for name in law.gains] + [kind("memory.tick", 1)]
    outputs = [kind(contract.target.name, contract.target.size), kind("next.tick", 1)]
    graph = helper.make_graph(nodes, "following", inputs, outputs, tables)
    onnx = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    manifest = Manifest(
        task=task or f"{robot.name}/follow",
        robot=contract,
        inputs=tuple(law.gains),
        operator=(),
        memory={"tick": (1,)},
        default=robot.default,
        model_hash=robot.model_hash,
        space_hash=robot.space.hash,
        belief_hash=robot.prior.hash,
        run_hash="",
        graph_hash=content_hash(onnx),
    )
    save(path, manifest, onnx)
    return Controller.load(path)


def recorded(robot: Robot, controller: Controller, e: np.ndarray, ticks: int, seed: int) -> Episode:
    """What one world, e, records with the controller in the loop."""
    engine, slices = Engine(robot, 1, threads=1), robot.contract.slices()
    engine.apply(e[None], engine.all)
    engine.reset(engine.all)
    controller.reset()

    def drive(tick: int, y: np.ndarray) -> np.ndarray:
        return controller.tick({name: y[0, slices[name]] for name in controller.manifest.inputs})[None].astype(float)

    return lived(engine, drive, ticks, np.random.default_rng(seed))
