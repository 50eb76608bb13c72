"""Controllers: of a few operators, exported from a policy for go1, and an energy swing-up of the pendulum, good or broken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from isthmus.core.errors import BadInput
from isthmus.core.files import content_hash
from isthmus.data.contract import Contract, Signal
from isthmus.deploy.manifest import Manifest
from isthmus.deploy.onnx_controller import OnnxController, pack_controller, save_controller
from isthmus.learn import runs
from isthmus.learn.policies import export as export_module
from isthmus.learn.policies.actor import Actor, ActorSpec
from isthmus.learn.policies.export import export_actor
from isthmus.robots.pendulum import GRAVITY_TORQUE, INERTIA
from isthmus.tasks.catalogue import get_task
from support.contracts import arm

# A few operators --------------------------------------------------------------------------------------------------------------


def floats(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def constant(name: str, values: np.ndarray) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.asarray(values), name)


def model(nodes, inputs, outputs, constants=()) -> onnx.ModelProto:
    made = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def summing(contract: Contract, default: np.ndarray, signal: str = "", gain: float = 0.05) -> onnx.ModelProto:
    """target = default + gain · (how many ticks were asked + sum of a signal + sum of the command), memory: the count."""
    name = signal or contract.signals[-1].name
    nodes = [
        helper.make_node("Add", ["memory.count", "one"], ["next.count"]),
        helper.make_node("ReduceSum", [name, "axis"], ["seen"], keepdims=1),
        helper.make_node("ReduceSum", ["command", "axis"], ["asked"], keepdims=1),
        helper.make_node("Add", ["seen", "asked"], ["both"]),
        helper.make_node("Add", ["both", "next.count"], ["all"]),
        helper.make_node("Mul", ["all", "gain"], ["scaled"]),
        helper.make_node("Add", ["default", "scaled"], [contract.target.name]),
    ]
    inputs = [floats(name, 1, contract[name].size), floats("command", 1, 2), floats("memory.count", 1, 1)]
    outputs = [floats(contract.target.name, 1, contract.target.size), floats("next.count", 1, 1)]
    rows = {"one": np.ones((1, 1)), "gain": np.array(gain), "default": np.array(default)[None]}
    constants = [constant(k, v.astype(np.float32)) for k, v in rows.items()] + [constant("axis", np.array([1]))]
    return model(nodes, inputs, outputs, constants)


COMMAND = Signal("command", "m/s", ("forward", "yaw"), low=(-1.0, -0.5), high=(1.0, 0.5))


def manifest(
    contract: Contract, default: np.ndarray, onnx_bytes: bytes, signal: str = "", model_hash: str = "m" * 64
) -> Manifest:
    return Manifest(
        task="none",
        robot=contract,
        inputs=(signal or contract.signals[-1].name,),
        operator=(COMMAND,),
        memory={"count": (1,)},
        default=tuple(float(x) for x in default),
        model_hash=model_hash,
        space_hash="s" * 64,
        belief_hash="b" * 64,
        run_hash="r" * 64,
        graph_hash=content_hash(onnx_bytes),
    )


def counting(
    contract: Contract, default: np.ndarray, signal: str = "", gain: float = 0.0005, model_hash: str = "m" * 64
) -> OnnxController:
    """A controller whose target tells how often it was asked since it was reset, and what it saw."""
    data = summing(contract, default, signal, gain).SerializeToString()
    return OnnxController(manifest(contract, default, data, signal, model_hash), data)


# Exported ---------------------------------------------------------------------------------------------------------------------


class Exported:
    """A policy for go1 that reaches its clips, as training would leave it, and its controller."""

    def __init__(self, folder):
        task = get_task("go1/walk")
        self.run = runs.create(folder / "run", runs.RunConfig("go1/walk"), task, task.robot.prior)
        torch.manual_seed(0)
        self.actor = Actor(ActorSpec.for_task(task)).eval()
        with torch.no_grad():
            last = [m for m in self.actor.net.modules() if isinstance(m, torch.nn.Linear)][-1]
            last.weight *= 150.0
            last.bias += torch.linspace(-0.3, 0.3, 12)
            self.actor.normalize.mean += 0.1 * torch.randn(self.actor.observation_size)
            self.actor.normalize.var *= 0.5 + torch.rand(self.actor.observation_size)
        self.path = folder / "a.controller"
        self.onnx = export_module.graph_bytes(self.actor)
        self.checked = self.export(self.path)

    def export(self, path, onnx_bytes: bytes | None = None, run=None, ticks: int = 60) -> dict:
        """As `isthmus export` does, but with a graph that is there already, and for a shorter time."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(export_module, "graph_bytes", lambda actor: onnx_bytes or self.onnx)
            patch.setattr(export_module, "TICKS", ticks)
            return export_actor(run or self.run, self.actor, path)


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
    return pack_controller(replace(manifest(CONTRACT, DEFAULT, raw), **fields), raw)


GOOD = small()


def refuse(data: bytes, path) -> str:
    path.write_bytes(data)
    with pytest.raises(BadInput) as error:
        OnnxController.load(path)
    assert str(path) in str(error.value)
    return str(error.value)


# Swing-up ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gains:
    pump: float = 4.0
    """1/(rad/s): torque per missing energy and speed."""
    stiff: float = 8.0
    damp: float = 1.2
    near: float = -0.7
    """Cosine from which on it catches."""


def swing_up(path: Path, gains: Gains | None = None, task: str = "pendulum/swingup") -> Path:
    """torque = pump · missing energy · speed far from upright, stiff sin(q) - damp q̇ near it."""
    g = gains or Gains()
    robot = get_task("pendulum/swingup").robot
    nodes = [
        helper.make_node("Cos", ["joint_pos"], ["cos"]),
        helper.make_node("Sin", ["joint_pos"], ["sin"]),
        helper.make_node("Mul", ["joint_vel", "joint_vel"], ["v2"]),
        helper.make_node("Mul", ["v2", "kinetic"], ["e1"]),
        helper.make_node("Mul", ["cos", "minus"], ["e2"]),
        helper.make_node("Add", ["e1", "e2"], ["e3"]),
        helper.make_node("Add", ["e3", "minus"], ["excess"]),
        helper.make_node("Mul", ["excess", "joint_vel"], ["e4"]),
        helper.make_node("Mul", ["e4", "pump"], ["pumping"]),
        helper.make_node("Mul", ["sin", "stiff"], ["p"]),
        helper.make_node("Mul", ["joint_vel", "damp"], ["d"]),
        helper.make_node("Add", ["p", "d"], ["catching"]),
        helper.make_node("Less", ["cos", "near"], ["up"]),
        helper.make_node("Where", ["up", "catching", "pumping"], ["wanted"]),
        helper.make_node("Clip", ["wanted", "low", "high"], [robot.contract.target.name]),
    ]
    one = lambda name, x: constant(name, np.array([[x]], np.float32))
    limit = float(robot.contract.target.high[0])
    constants = [
        one("kinetic", 0.25 * INERTIA / GRAVITY_TORQUE),
        one("minus", -0.5),
        one("pump", -g.pump),
        one("stiff", g.stiff),
        one("damp", -g.damp),
        one("near", g.near),
        constant("low", np.float32(-limit)),
        constant("high", np.float32(limit)),
    ]
    inputs, outputs = [floats("joint_pos", 1, 1), floats("joint_vel", 1, 1)], [floats(robot.contract.target.name, 1, 1)]
    data = model(nodes, inputs, outputs, constants).SerializeToString()
    manifest = Manifest(
        task=task,
        robot=robot.contract,
        inputs=("joint_pos", "joint_vel"),
        operator=(),
        memory={},
        default=robot.default,
        model_hash=robot.model_hash,
        space_hash=robot.space.hash,
        belief_hash=robot.prior.hash,
        run_hash="r" * 64,
        graph_hash=content_hash(data),
    )
    save_controller(path, manifest, data)
    return path
