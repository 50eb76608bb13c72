"""One physical unit: what is believed of its numbers, what its model lacks, and how we came to know.

    unit7.twin              a zip archive without compression, covered by a hash
      twin.json             robot, hash of its model, the Belief, and one entry per fit
      unit.json             figures of its motors, its ground and its learned forces, if it has any
      learned.safetensors   the numbers of those forces

A twin comes after a robot: `on(robot)` is a robot like any other, to simulate, to train and to evaluate on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.files import atomic_write, content_hash, read_bytes
from isthmus.data import archive
from isthmus.data.episode import as_plain_json
from isthmus.sim.physics.ground import hardest_stable_ground
from isthmus.sim.physics.learned_forces import LearnedForces
from isthmus.sim.physics.motor_law import MotorLaw
from isthmus.sim.physics.unit_physics import MAX_FILE_BYTES, UnitPhysics
from isthmus.sim.robot import MOTOR_FIELDS, Robot
from isthmus.world import Belief, belief_on_space

MAX_BYTES = 64 * 2**20
MAX_FITS = 10_000


@dataclass(frozen=True)
class Twin:
    robot: str
    """Name or path, as it was given."""
    model_hash: str
    belief: Belief
    unit: UnitPhysics = field(default_factory=UnitPhysics)
    """How it differs from its model beyond the numbers of the Belief."""
    history: tuple[Mapping[str, Any], ...] = ()
    """One entry per fit, the oldest first: recordings by hash, errors before and after, the belief it led to."""
    hash: str = field(default="", compare=False)
    """Of the file it was read from."""

    @property
    def unexplained_noise(self) -> Mapping[str, float]:
        """σ by signal of what the last fit left: of its sensors, and of what the model lacks. Empty where no fit says so."""
        return next((entry["left"] for entry in reversed(self.history) if "left" in entry), {})

    def with_fit(self, belief: Belief, entry: Mapping[str, Any]) -> Twin:
        """The same unit after one more fit."""
        noted = as_plain_json({**entry, "belief_hash": belief.hash}, "an entry of the twin's history")
        return replace(self, belief=belief, history=(*self.history, noted), hash="")

    def belief_before(self, recordings: Iterable[str], prior: Belief) -> Belief:
        """What was believed before any of the recordings, by hash, was fitted to; before the first fit that is `prior`."""
        told, known = set(recordings), prior
        for entry in self.history:
            if told.intersection(map(str, entry.get("recordings") or ())):
                return Belief.from_dict(entry["before"], "the twin's history") if "before" in entry else known
            known = Belief.from_dict(entry["belief"], "the twin's history") if "belief" in entry else known
        return self.belief

    def apply_to(self, robot: Robot, source: str) -> Robot:
        """The robot with this unit's numbers, motors, ground and forces; another robot or another model of it is an error."""
        if self.model_hash != robot.model_hash:
            raise BadInput(f"{source} is a twin of another model than that of {robot.name}: it was made of {self.robot}.")
        found = replace(robot, prior=belief_on_space(self.belief, robot.space, source), unit=self.unit)
        if self.unit.ground and not robot.morphology.legged:
            raise BadInput(f"{source} has a ground under its feet, and {robot.name} has no feet.")
        if self.unit.ground and not self.unit.ground.is_no_harder_than(hardest_stable_ground(robot)):
            raise BadInput(f"{source} has ground that is too hard for physics steps of {robot.name}: {self.unit.ground}.")
        MotorLaw(found.motors_of_unit, found.contract.target.size, 0.001, frozenset())
        LearnedForces(found, found.model, float(found.model.opt.timestep))
        return found

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "twin",
            "robot": self.robot,
            "model_hash": self.model_hash,
            "belief": self.belief.to_dict(),
            "history": [dict(entry) for entry in self.history],
        }

    def save(self, path: Path) -> Twin:
        """Write it; returns the twin with the hash of its file."""
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        data = archive.pack({"twin.json": text, **self.unit.to_files()})
        atomic_write(path, data)
        return replace(self, hash=content_hash(data))

    @staticmethod
    def load(path: Path) -> Twin:
        where = str(path)
        data = read_bytes(path, MAX_BYTES)
        parts = archive.unpack(data, {"twin.json": MAX_BYTES}, MAX_FILE_BYTES, "a twin", where)
        try:
            fields = json.loads(parts["twin.json"])
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{where} is not a twin: {error}.") from None
        if not isinstance(fields, dict) or fields.get("kind") != "twin":
            raise BadInput(f"{where} is not a twin.")
        robot, model_hash, history = (fields.get(name) for name in ("robot", "model_hash", "history"))
        if not isinstance(robot, str) or not isinstance(model_hash, str):
            raise BadInput(f"{where} does not say of which robot it is a twin.")
        if not isinstance(history, list) or len(history) > MAX_FITS or not all(isinstance(h, dict) for h in history):
            raise BadInput(f"{where}: the history of a twin is a list of at most {MAX_FITS} entries.")
        if not all(_is_noise_by_signal(entry["left"]) for entry in history if "left" in entry):
            raise BadInput(f"{where}: what a fit left is one positive number for each signal.")
        belief = Belief.from_dict(fields.get("belief") or {}, where)
        unit = UnitPhysics.from_files(parts, MOTOR_FIELDS, where)
        return Twin(robot, model_hash, belief, unit, tuple(history), content_hash(data))


def _is_noise_by_signal(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(x, int | float) and 0.0 < x < np.inf for x in value.values())


def is_twin(path: Path) -> bool:
    return path.suffix == ".twin"
