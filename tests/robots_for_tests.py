"""Stand-ins for tests of the runtime: contracts, a body whose packets the test decides, and controllers of a few operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import onnx
from onnx import TensorProto, helper

from isthmus.data.contract import Contract, Safety, Signal, xyz
from isthmus.deploy.controller import Controller, Manifest
from isthmus.deploy.link import Command, Identity, Mode, Packet
from isthmus.deploy.operator import Operator
from isthmus.deploy.preflight import Check, Flight, preflight
from isthmus.files import content_hash
from isthmus.robots import ROBOTS

PERIOD = 0.002
GRAVITY = 9.81


def arm() -> Contract:
    """A robot that nobody has built: 200 Hz, motors in another order than the encoders, a battery, x before w."""
    return Contract(
        robot="arm",
        rate=200.0,
        signals=(
            Signal("battery", "V", ("v",), low=(20.0,), high=(30.0,)),
            Signal("quat", "1", ("x", "y", "z", "w"), "world"),
            Signal("joint_vel", "rad/s", ("elbow", "wrist", "shoulder"), low=(-4.0, -6.0, -2.0), high=(4.0, 6.0, 2.0)),
            Signal("joint_pos", "rad", ("wrist", "shoulder", "elbow"), low=(-1.0, -2.0, -1.5), high=(1.0, 2.0, 1.5)),
            xyz("gyro", "rad/s", "body", 20.0),
            Signal("accel", "m/s²", ("z", "x", "y"), "body", (-90.0,) * 3, (90.0,) * 3),
        ),
        target=Signal("joint_target", "rad", ("shoulder", "elbow"), low=(-2.0, -1.5), high=(2.0, 1.5)),
        gains={"kp": (40.0, 20.0), "kd": (2.0, 0.5)},
        safety=Safety(effort=(30.0, 12.0), tilt=0.5, rest=(0.4, -0.6), damping=(2.0, 1.0)),
    )


def contracts() -> dict[str, tuple[Contract, np.ndarray]]:
    """Contract and default target: position drives, an effort drive without limits of position, one with, and a flyer."""
    shipped = {name: make() for name, make in ROBOTS.items()}
    return {name: (r.contract, np.array(r.default)) for name, r in shipped.items()} | {"arm": (arm(), np.array([0.1, -0.2]))}


def still(contract: Contract, pose: np.ndarray | None = None) -> np.ndarray:
    """Signals of a robot that stands upright and at rest, its joints in that pose, (width,)."""
    values, at = np.zeros(contract.width), contract.slices()
    for s in contract.signals:
        if s.low and s.high:
            values[at[s.name]] = (np.array(s.low) + np.array(s.high)) / 2
    put(contract, values, "quat", w=1.0, x=0.0, y=0.0, z=0.0)
    put(contract, values, "accel", x=0.0, y=0.0, z=GRAVITY)
    if pose is not None and contract.joints:
        put(contract, values, "joint_pos", **dict(zip(contract.target.labels, pose, strict=True)))
    return values


def put(contract: Contract, values: np.ndarray, name: str, **components: float) -> np.ndarray:
    """Set components of a signal by their labels, in place; a signal that the robot lacks is left out."""
    if contract.has(name):
        start = contract.slices()[name].start
        for label, x in components.items():
            values[start + contract[name].component(label)] = x
    return values


def tilted(contract: Contract, values: np.ndarray, angle: float) -> np.ndarray:
    """The same body, pitched by `angle`, with an accelerometer that shows it."""
    out = put(contract, values.copy(), "quat", w=math.cos(angle / 2), x=0.0, y=math.sin(angle / 2), z=0.0)
    return put(contract, out, "accel", x=-GRAVITY * math.sin(angle), y=0.0, z=GRAVITY * math.cos(angle))


@dataclass
class StandIn:
    """A body that obeys at once: its joints are where the last target says, and it sends what `say` makes of its packets."""

    contract: Contract
    pose: np.ndarray
    every: int = 10
    """Periods between packets."""
    say: Callable[[Packet], Iterable[Packet]] = lambda packet: [packet]
    mode: Mode = "idle"
    model_hash: str = ""
    timeout: float = 0.1
    moves: bool = True
    obeys: bool = True
    period: float = PERIOD
    commands: list[Command] = field(default_factory=list)
    periods: int = 0
    sequence: int = 0

    @cached_property
    def upright(self) -> np.ndarray:
        return still(self.contract)

    @cached_property
    def joints(self) -> list[int]:
        """Columns of the joints behind the targets."""
        if not self.contract.joints:
            return []
        first, seen = self.contract.slices()["joint_pos"].start, self.contract["joint_pos"]
        return [first + seen.component(label) for label in self.contract.target.labels]

    @property
    def time(self) -> float:
        return self.periods * self.period

    @property
    def identity(self) -> Identity:
        return Identity(self.contract, "stand-in", self.model_hash, self.mode, self.timeout, "virtual")

    def command(self, command: Command) -> None:
        self.commands.append(command)
        if not self.obeys:
            return
        self.mode = command.mode
        if self.moves and self.mode == "track" and self.contract.joints:
            self.pose = command.target.copy()

    def values(self) -> np.ndarray:
        values = self.upright.copy()
        if self.joints:
            values[self.joints] = self.pose
        return values

    def advance(self) -> list[Packet]:
        self.periods += 1
        if self.periods % self.every:
            return []
        self.sequence += 1
        return list(self.say(Packet(self.sequence, self.time, self.mode, self.values())))


# Controllers ---------------------------------------------------------------------------------------------------------


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
) -> Controller:
    """A controller whose target tells how often it was asked since it was reset, and what it saw."""
    data = summing(contract, default, signal, gain).SerializeToString()
    return Controller(manifest(contract, default, data, signal, model_hash), data)


def ready(controller: Controller, link, operator: Operator | None = None) -> tuple[Flight, list[Check]]:
    """Preflight that is expected to pass."""
    asked = (operator or Operator(controller.manifest.operator)).at(0.0)
    checks, flight = preflight(controller, link, asked)
    assert flight is not None, [c for c in checks if not c.ok]
    return flight, checks


def reordered(contract: Contract, seed: int = 0) -> Contract:
    """The same robot with its signals, their components and its motors in another order."""
    rng = np.random.default_rng(seed)

    def shuffled(s: Signal) -> tuple[Signal, np.ndarray]:
        order = rng.permutation(s.size)
        pick = lambda row: tuple(row[i] for i in order) if row else ()
        return replace(s, labels=pick(s.labels), low=pick(s.low), high=pick(s.high)), order

    signals = tuple(shuffled(s)[0] for s in contract.signals)
    target, order = shuffled(contract.target)
    pick = lambda row: tuple(row[i] for i in order) if row else ()
    safety = contract.safety
    safety = replace(safety, effort=pick(safety.effort), rest=pick(safety.rest), damping=pick(safety.damping))
    where = rng.permutation(len(signals))
    gains = {k: pick(v) for k, v in contract.gains.items()}
    return replace(contract, signals=tuple(signals[i] for i in where), target=target, gains=gains, safety=safety)
