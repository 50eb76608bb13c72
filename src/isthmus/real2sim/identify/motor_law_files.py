"""A motor law on disk: figures, the network if one was needed, and how every law that was tried did.

calf.actuator           a zip archive without compression, covered by a hash
  actuator.json         robot, motors, the law and its rate, errors of all laws
  unit.json             the figures and the force, as a unit has them
  learned.safetensors
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import atomic_write, read_bytes
from isthmus.data import archive
from isthmus.real2sim.identify.motor_identification import MotorModel
from isthmus.real2sim.identify.motor_laws import MAX_DELAY
from isthmus.sim.physics.motor_figures import nominal_motor_figures, parameter_by_motor_field
from isthmus.sim.physics.unit_physics import MAX_FILE_BYTES, UnitPhysics
from isthmus.sim.robot import MOTOR_FIELDS, Robot
from isthmus.world import Belief

MAX_BYTES = 2**20


def law_record(robot: Robot, motor_model: MotorModel) -> dict[str, Any]:
    return {
        "robot": robot.name,
        "motors": list(motor_model.labels),
        "law": motor_model.chosen_law,
        "rate": motor_model.rate,
        "delay": motor_model.command_delay,
        "unit": motor_model.unit,
        "tried": [
            {"law": t.name, "values": t.values, "fitted": t.train_error, "held_out": t.held_out_error}
            for t in motor_model.candidates
        ],
        "network": None if motor_model.learned is None else motor_model.learned.to_dict(),
    }  # fmt: skip


def save_law(path: Path, robot: Robot, motor_model: MotorModel, inputs: list[str]) -> None:
    which = [robot.contract.target.component_index(label) for label in motor_model.labels]
    figures = {name: tuple(row[i] for i in which) for name, row in motor_model.motor_figures.items()}
    unit = UnitPhysics(figures, () if motor_model.learned is None else (motor_model.learned,))
    text = json.dumps({"kind": "actuator", **law_record(robot, motor_model), "inputs": inputs}, indent=2, ensure_ascii=False)
    atomic_write(path, archive.pack({"actuator.json": text, **unit.to_files()}))


def belief_with_delay(robot: Robot, belief: Belief, delay: float) -> Belief:
    """A belief in which commands take `delay` seconds, where a parameter of the robot says so and the delay is known."""
    name = parameter_by_motor_field(robot).get("action_delay")
    if not delay or name is None:
        return belief
    param = robot.space[name]
    return belief.fix({name: min(max(delay, param.low), param.high)})


def load_law_onto(path: Path, robot: Robot) -> tuple[Robot, float]:
    """The robot with the law of a file on those of its motors that the file names, and the delay of its commands, s."""
    where = str(path)
    data = read_bytes(path, 2 * sum(MAX_FILE_BYTES.values()))
    parts = archive.unpack(data, {"actuator.json": MAX_BYTES}, MAX_FILE_BYTES, "a motor law", where)
    try:
        fields = json.loads(parts["actuator.json"])
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where} is not a motor law: {error}.") from None
    labels = fields.get("motors") if isinstance(fields, dict) and fields.get("kind") == "actuator" else None
    if not isinstance(labels, list):
        raise BadInput(f"{where} is not a motor law.")
    own = robot.contract.target.labels
    for label in labels:
        if label not in own:
            raise unknown_name("motor", str(label), own, f"{where}, a law for motors of {fields.get('robot')}")
    law = UnitPhysics.from_files(
        {name: content for name, content in parts.items() if name in MAX_FILE_BYTES}, MOTOR_FIELDS, where
    )
    nominal = nominal_motor_figures(robot)
    motors = dict(robot.unit.motors)
    for name, row in law.motors.items():
        if len(row) != len(labels):
            raise BadInput(f"{where}: {name} has {len(row)} numbers for {len(labels)} motors.")
        new = list(motors.get(name, tuple(nominal[name])))
        for label, value in zip(labels, row, strict=True):
            new[own.index(label)] = value
        motors[name] = tuple(map(float, new))
    kept = tuple(x for x in robot.unit.learned_forces if x.kind != "motor" or not set(x.names) & set(labels))
    delay = fields.get("delay", 0.0)
    if not isinstance(delay, int | float) or not 0 <= delay <= MAX_DELAY:
        raise BadInput(f"{where}: the delay of a motor law is a number of seconds between 0 and {MAX_DELAY:g}.")
    unit = replace(robot.unit, motors=motors, learned_forces=(*kept, *law.learned_forces))
    return replace(robot, unit=unit), float(delay)
