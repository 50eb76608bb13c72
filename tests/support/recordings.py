"""Recordings: of simulated robots under controllers of a few operators, and of a pendulum that differs from its model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from isthmus.core.files import content_hash
from isthmus.data.contract import AffineFeedback, Signal
from isthmus.data.episode import Episode
from isthmus.data.mcap.writer import write_episode
from isthmus.deploy.manifest import Manifest
from isthmus.deploy.onnx_controller import OnnxController, save_controller, unpack_controller
from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.segments import cut
from isthmus.real2sim.prepare.tracks import to_tracks
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.robots import get_robot
from isthmus.robots.twin import Twin
from isthmus.sim.reality import Reality
from isthmus.sim.reality.simulation import real_simulation
from isthmus.sim.robot import Robot
from isthmus.sim.simulate_recording import random_multisine, record_engine
from isthmus.sim.simulation import Simulation


def following(robot: Robot, targets: np.ndarray, law: AffineFeedback, path: Path, task: str = "") -> OnnxController:
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
    save_controller(path, manifest, onnx)
    return OnnxController.load(path)


def recorded(robot: Robot, controller: OnnxController, e: np.ndarray, ticks: int, seed: int) -> Episode:
    """What one world, e, records with the controller in the loop."""
    engine, slices = Simulation(robot, 1, threads=1), robot.contract.slices()
    engine.apply(e[None], engine.all_ids)
    engine.reset(engine.all_ids)
    controller.reset()

    def drive(tick: int, y: np.ndarray) -> np.ndarray:
        return controller.tick({name: y[0, slices[name]] for name in controller.manifest.inputs})[None].astype(float)

    return record_engine(engine, drive, ticks, np.random.default_rng(seed))


def commanded(robot: Robot, targets: np.ndarray, dead: float, path: Path) -> tuple[OnnxController, Signal]:
    """Plays targets, (T, 1), and adds a command, but for its first `dead` to either side."""
    contract, push = robot.contract, Signal("command", "N·m", ("push",), low=(-1.0,), high=(1.0,))
    played = following(robot, targets, AffineFeedback((0.0,), {"joint_pos": ((0.0,),)}), path)
    model = onnx.load_from_string(unpack_controller(path.read_bytes(), str(path))[1])
    graph = model.graph
    graph.input.append(helper.make_tensor_value_info("command", TensorProto.FLOAT, [1, 1]))
    graph.initializer.append(numpy_helper.from_array(np.array([[dead]], np.float32), "dead"))
    (last,) = (n for n in graph.node if n.output[0] == "above")
    added = [
        helper.make_node("Sub", ["command", "dead"], ["over"]),
        helper.make_node("Relu", ["over"], ["up"]),
        helper.make_node("Add", ["command", "dead"], ["under"]),
        helper.make_node("Neg", ["under"], ["lower"]),
        helper.make_node("Relu", ["lower"], ["down"]),
        helper.make_node("Sub", ["up", "down"], ["answer"]),
        helper.make_node("Add", [last.input[0], "answer"], ["answered"]),
    ]
    at = list(graph.node).index(last)
    last.input[0] = "answered"
    nodes = [*list(graph.node)[:at], *added, *list(graph.node)[at:]]
    del graph.node[:]
    graph.node.extend(nodes)
    data = model.SerializeToString()
    manifest = replace(played.manifest, operator=(push,), graph_hash=content_hash(data))
    assert contract.target.size == 1
    save_controller(path, manifest, data)
    return OnnxController.load(path), push


def residual_of(robot, episode: Episode, names=(), ticks: int = 20, noise: float = 1e-3) -> ParameterResidual:
    found = to_tracks([episode], robot.contract, 1.0 / robot.contract.rate)
    return ParameterResidual(robot, cut(found, robot, ticks), np.full(len(Components(robot.contract)), noise), names, threads=1)


SECONDS = 8.0


def swung(folder: Path) -> Path:
    """p.controller, swing.mcap and desk.twin in a folder: a weak motor with play in its gear."""
    robot = get_robot("pendulum")
    tick, slices = 1.0 / robot.contract.rate, robot.contract.slices()
    law = AffineFeedback((0.0,), {"joint_pos": ((0.0,),), "joint_vel": ((0.0,),)})
    controller = following(robot, random_multisine(robot, SECONDS, 3, 0.4), law, folder / "p.controller")
    reality = Reality.from_dict({"robot": "pendulum", "params": {"strength": 0.6}, "unmodelled": {"backlash": 0.1}})
    controller.reset()

    def drive(t: int, y: np.ndarray) -> np.ndarray:
        return controller.tick({name: y[0, slices[name]] for name in controller.manifest.inputs})[None].astype(float)

    episode = record_engine(
        real_simulation(robot, reality, 1, tick=tick), drive, round(SECONDS / tick), np.random.default_rng(1)
    )
    write_episode(folder / "swing.mcap", episode)
    Twin("pendulum", robot.model_hash, robot.prior).save(folder / "desk.twin")
    return folder
