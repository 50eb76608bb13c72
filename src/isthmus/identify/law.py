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

from isthmus.data import archive
from isthmus.errors import BadInput, unknown
from isthmus.files import atomic_write, read_bytes
from isthmus.identify.actuator import Actuator
from isthmus.identify.ladder import MOST_DELAY, figures, written
from isthmus.sim.robot import FIGURES, Robot
from isthmus.sim.unit import SIZES, Unit
from isthmus.world import Belief

MAX_BYTES = 2**20


def law_record(robot: Robot, found: Actuator) -> dict[str, Any]:
    return {
        "robot": robot.name,
        "motors": list(found.labels),
        "law": found.chosen,
        "rate": found.rate,
        "delay": found.delay,
        "unit": found.unit,
        "tried": [
            {"law": t.name, "values": t.values, "fitted": t.fitted, "held_out": t.held_out} for t in found.tried
        ],
        "network": None if found.learned is None else found.learned.to_dict(),
    }  # fmt: skip


def save_law(path: Path, robot: Robot, found: Actuator, inputs: list[str]) -> None:
    which = [robot.contract.target.component(label) for label in found.labels]
    figures = {name: tuple(row[i] for i in which) for name, row in found.motors.items()}
    unit = Unit(figures, () if found.learned is None else (found.learned,))
    text = json.dumps({"kind": "actuator", **law_record(robot, found), "inputs": inputs}, indent=2, ensure_ascii=False)
    atomic_write(path, archive.pack({"actuator.json": text, **unit.parts()}))


def with_delay(robot: Robot, belief: Belief, delay: float) -> Belief:
    """A belief in which commands take `delay` seconds, where a parameter of the robot says so and the delay is known."""
    name = written(robot).get("action_delay")
    if not delay or name is None:
        return belief
    param = robot.space[name]
    return belief.fix({name: min(max(delay, param.low), param.high)})


def put_law(path: Path, robot: Robot) -> tuple[Robot, float]:
    """The robot with the law of a file on those of its motors that the file names, and the delay of its commands, s."""
    where = str(path)
    data = read_bytes(path, 2 * sum(SIZES.values()))
    parts = archive.unpack(data, {"actuator.json": MAX_BYTES}, SIZES, "a motor law", where)
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
            raise unknown("motor", str(label), own, f"{where}, a law for motors of {fields.get('robot')}")
    law = Unit.of({name: content for name, content in parts.items() if name in SIZES}, FIGURES, where)
    nominal = figures(robot)
    motors = dict(robot.unit.motors)
    for name, row in law.motors.items():
        if len(row) != len(labels):
            raise BadInput(f"{where}: {name} has {len(row)} numbers for {len(labels)} motors.")
        new = list(motors.get(name, tuple(nominal[name])))
        for label, value in zip(labels, row, strict=True):
            new[own.index(label)] = value
        motors[name] = tuple(map(float, new))
    kept = tuple(x for x in robot.unit.learned if x.kind != "motor" or not set(x.names) & set(labels))
    delay = fields.get("delay", 0.0)
    if not isinstance(delay, int | float) or not 0 <= delay <= MOST_DELAY:
        raise BadInput(f"{where}: the delay of a motor law is a number of seconds between 0 and {MOST_DELAY:g}.")
    unit = replace(robot.unit, motors=motors, learned=(*kept, *law.learned))
    return replace(robot, unit=unit), float(delay)
