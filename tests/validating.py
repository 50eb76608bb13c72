"""Controllers of a few operators for tests of validation: an energy swing-up of the pendulum, good or broken."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import helper
from robots_for_tests import constant, floats, model

from isthmus.deploy.controller import Manifest, save
from isthmus.files import content_hash
from isthmus.robots.pendulum import GRAVITY_TORQUE, INERTIA
from isthmus.tasks import get_task


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
    save(path, manifest, data)
    return path
