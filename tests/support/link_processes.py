"""Controllers and robots as processes, and listeners on the link between them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from isthmus.core.files import content_hash
from isthmus.deploy.links import wire
from isthmus.deploy.links.link import Command, Packet
from isthmus.deploy.links.zenoh import ZenohLink
from isthmus.deploy.manifest import Manifest
from isthmus.deploy.onnx_controller import save_controller
from isthmus.sim.robot import Robot

SPEED = 0.5
"""Times real time."""
LONG = 60.0
"""s that anything may take on a busy machine."""
PERIOD = 0.002
"""s of the robot's life from one packet to the next."""


def constant(robot: Robot, path: Path) -> Path:
    """A controller that always asks for the default target."""
    contract, m = robot.contract, robot.contract.target.size
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["joint_pos", "zero"], ["nothing"]),
            helper.make_node("Add", ["nothing", "default"], [contract.target.name]),
        ],
        "constant",
        [helper.make_tensor_value_info("joint_pos", TensorProto.FLOAT, [1, m])],
        [helper.make_tensor_value_info(contract.target.name, TensorProto.FLOAT, [1, m])],
        [
            helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0]),
            helper.make_tensor("default", TensorProto.FLOAT, [1, m], robot.default),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    data, none = model.SerializeToString(), "0" * 64
    manifest = Manifest(
        "constant", contract, ("joint_pos",), (), {}, robot.default, robot.model_hash, none, none, none, content_hash(data)
    )
    save_controller(path, manifest, data)
    return path


def free_endpoint() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"tcp/127.0.0.1:{s.getsockname()[1]}"


@contextmanager
def isthmus(*args, **kwargs) -> Iterator[subprocess.Popen]:
    """`isthmus ARGS` as a process, which does not outlive the block."""
    command = [sys.executable, "-m", "isthmus", *map(str, args)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, **kwargs)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen) -> tuple[int, dict]:
    """Exit code and report of a process that was started with --json."""
    out, err = process.communicate(timeout=2 * LONG)
    assert out.strip(), err
    return process.returncode, json.loads(out)


class Listener:
    """Another end of the link that never sends anything."""

    def __init__(self, endpoint: str):
        self.link = ZenohLink(endpoint)
        self.last: Packet | None = None

    def until(self, what: str, condition: Callable[[Packet], bool]) -> Packet:
        """The next packet for which the condition holds."""
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            for packet in self.link.read():
                self.last = packet
                if condition(packet):
                    return packet
            time.sleep(0.005)
        raise AssertionError(f"waited {LONG:g} s for {what}; the last packet was {self.last}")

    def mode(self, mode: str) -> Packet:
        return self.until(f"the mode {mode}", lambda p: p.mode == mode)

    def newest(self) -> Packet:
        """A packet that was sent after this call."""
        self.link.read()
        return self.until("a packet", lambda p: True)


@contextmanager
def listener(endpoint: str) -> Iterator[Listener]:
    found = Listener(endpoint)
    try:
        yield found
    finally:
        found.link.close()


@contextmanager
def robot(name: str, endpoint: str, *options) -> Iterator[subprocess.Popen]:
    """`isthmus robot` that answers."""
    with isthmus("robot", name, "--link", f"zenoh:{endpoint}", "--speed", SPEED, *options) as process:
        with listener(endpoint) as ears:
            ears.link.identity(LONG)
        yield process


@contextmanager
def run(file: Path, endpoint: str, *options) -> Iterator[subprocess.Popen]:
    with isthmus("run", file, "--link", f"zenoh:{endpoint}", "--speed", SPEED, "--json", *options) as process:
        yield process


def garbage(rng: np.random.Generator, target: np.ndarray) -> Iterator[bytes]:
    """Bytes of all lengths, whole samples that were cut, and well-formed ones that make no sense."""
    whole = wire.pack_command(Command(10**15, 0.0, "track", target))
    yield from (rng.bytes(int(n)) for n in rng.integers(0, 200, 50))
    yield from (whole[:n] for n in range(len(whole)))
    yield whole + b"\0"
    yield whole[:4] + rng.bytes(len(whole) - 4)
    for strange in (np.full_like(target, np.nan), np.full_like(target, np.inf), np.zeros(len(target) + 1), np.zeros(0)):
        yield wire.pack_command(Command(10**15, 0.0, "track", strange))
    yield wire.pack_command(Command(10**15, 0.0, "busy", target))
    yield wire.pack_packet(Packet(10**15, 1e9, "damp", np.zeros(2)))
