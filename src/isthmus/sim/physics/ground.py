"""Ground that gives way: each foot on a spring and a damper, with friction that holds while it sinks.

A contact of a model can be made softer, but then its friction creeps: both share one impedance, and a pyramid of friction
gives way at its edges. So this ground brings its own settings, and its surface rules over that of the feet. Realities have it,
and units that were found to walk on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from isthmus.core.errors import BadInput
from isthmus.sim.physics.component import Attached, Component, Parameters
from isthmus.world import Target

if TYPE_CHECKING:
    from isthmus.sim.robot import Robot
    from isthmus.sim.simulation import Simulation

CONTACT_IMPEDANCE = 0.5
"""MuJoCo's d: half constraint, half spring. In steps of 1 ms contacts are stable with it from 1 mm of softness on."""
IMPRATIO = 100.0
"""How much harder friction is than the surface."""
DEFAULT_DAMPING_RATIO = 0.5
"""Damping ratio of a robot's weight on usual soft ground."""
MAX_STIFFNESS, MAX_DAMPING = 1e7, 1e5
"""N/m and N·s/m that make sense at all."""
GROUND_UNITS = {"stiffness": "N/m", "damping": "N·s/m"}
GROUND_FIELDS = tuple(GROUND_UNITS)
"""Figures of a ground."""
CONTACT_FIELDS = ("friction", "solref", "solimp")
"""Fields of a geom that say what it is like to the touch."""


@dataclass(frozen=True)
class CompliantGround:
    stiffness: float
    """N/m at one point of contact: a round foot has one, a flat one several."""
    damping: float
    """N·s/m there."""

    def to_dict(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in GROUND_FIELDS}

    def is_no_harder_than(self, other: CompliantGround) -> bool:
        """Whether neither figure is larger than that of another ground, but for rounding."""
        return self.stiffness <= 1.001 * other.stiffness and self.damping <= 1.001 * other.damping

    def __str__(self) -> str:
        return f"{self.stiffness:.3g} N/m and {self.damping:.3g} N·s/m at a point of contact"

    @staticmethod
    def from_dict(fields: Any, where: str) -> CompliantGround:
        """From what `to_dict` gave, as a stranger may have written it."""
        stiffness, damping = (
            _number(fields.get(name) if isinstance(fields, Mapping) else None, where) for name in GROUND_FIELDS
        )
        if not 0 < stiffness <= MAX_STIFFNESS or not 0 < damping <= MAX_DAMPING:
            raise BadInput(f"{where}: ground has at most {MAX_STIFFNESS:g} N/m and {MAX_DAMPING:g} N·s/m, and more than none.")
        return CompliantGround(stiffness, damping)


def ground_from_sink_depth(robot: Robot, depth: float, damping_ratio: float = DEFAULT_DAMPING_RATIO) -> CompliantGround:
    """Ground into which round feet of a robot that stands sink by `depth` m; `ratio` is how its weight is damped on it."""
    mass, load = load_per_foot(robot)
    stiffness = load / depth
    return CompliantGround(stiffness, 2.0 * damping_ratio * float(np.sqrt(stiffness * mass)))


def sink_depth(robot: Robot, ground: CompliantGround) -> float:
    """m by which round feet sink in while the robot stands."""
    return load_per_foot(robot)[1] / ground.stiffness


def load_per_foot(robot: Robot) -> tuple[float, float]:
    """kg and N that each foot carries while the robot stands."""
    model = robot.model
    mass = float(model.body_subtreemass[model.body(robot.morphology.base).id]) / len(robot.morphology.feet)
    return mass, mass * float(np.linalg.norm(model.opt.gravity))


def foot_inverse_mass(robot: Robot) -> float:
    """MuJoCo's inverse weight of the feet, 1/kg: what a force on one would accelerate it by."""
    return float(robot.model.body_invweight0[_foot_bodies(robot), 0].mean())


def hardest_stable_ground(robot: Robot) -> CompliantGround:
    """Ground that the robot's physics steps can just follow: a point as light as a foot would begin to rattle on it."""
    w, step = foot_inverse_mass(robot), float(robot.model.opt.timestep)
    return CompliantGround(min(1.0 / (w * step**2), MAX_STIFFNESS), min(2.0 / (w * step), MAX_DAMPING))


def _foot_bodies(robot: Robot) -> list[int]:
    """Bodies of the feet."""
    return [int(robot.model.geom_bodyid[robot.model.geom(foot).id]) for foot in robot.morphology.foot_geoms]


def _number(x: Any, where: str) -> float:
    if not isinstance(x, int | float) or isinstance(x, bool):
        raise BadInput(f"{where}: the ground has two numbers, {' and '.join(GROUND_FIELDS)}.")
    return float(x)


def contact_parameters(robot: Robot) -> frozenset[str]:
    """Parameters of its Space that write what the ground or the feet are like to the touch."""
    targets = {p.name: map(Target.parse, p.targets) for p in robot.space.params}
    return frozenset(n for n, ts in targets.items() if any(t.kind == "geom" and t.field in CONTACT_FIELDS for t in ts))


def ground_geoms(model: mujoco.MjModel) -> np.ndarray:
    """Geoms of the world that something can touch."""
    fixed = model.geom_bodyid == 0
    return np.flatnonzero(fixed & ((model.geom_contype != 0) | (model.geom_conaffinity != 0)))


def set_compliant_contact(spec: mujoco.MjSpec) -> None:
    """The settings that this ground needs."""
    spec.option.cone, spec.option.impratio = mujoco.mjtCone.mjCONE_ELLIPTIC, IMPRATIO
    first = max(int(geom.priority) for geom in spec.geoms) + 1
    for geom in spec.worldbody.geoms:
        if geom.contype or geom.conaffinity:
            geom.priority = first


def compliant_ground() -> Component:
    """The ground of the robot's unit as a component."""
    return Component(AttachedGround, set_compliant_contact)


class AttachedGround(Attached):
    """The ground of the worlds of a simulation.

    A contact of impedance d with solref (-s, -c) is at rest a spring of stiffness s / ((1 - d) w), where w is MuJoCo's inverse
    weight of the foot, and a damper of c / ((1 - d) w).
    """

    def __init__(self, sim: Simulation):
        ground = sim.robot.unit.ground
        assert ground is not None
        self._nominal = {name: np.array([value]) for name, value in ground.to_dict().items()}
        self.arrays = {name: np.tile(row, (sim.n, 1)) for name, row in self._nominal.items()}
        """Stiffness and damping under e, (n, 1)."""
        self._foot_body_ids = _foot_bodies(sim.robot)
        self._ground_geoms, self._inverse_weight = ground_geoms(sim.model), sim.engine.field("body_invweight0")
        self._solref, self._solimp = sim.engine.field("geom_solref"), sim.engine.field("geom_solimp")

    def parameters(self) -> Parameters:
        return {f"ground.{name}": (row, self.arrays[name]) for name, row in self._nominal.items()}

    def apply(self, ids: np.ndarray) -> None:
        """Write the contact of worlds `ids`, whose inverse weights follow their masses."""
        law = np.concatenate([self.arrays[name][ids] for name in GROUND_FIELDS], axis=1)
        weight = self._inverse_weight[ids][:, self._foot_body_ids, 0].mean(1, keepdims=True)
        self._solref[np.ix_(ids, self._ground_geoms)] = (-(1.0 - CONTACT_IMPEDANCE) * weight * law)[:, None]
        self._solimp[np.ix_(ids, self._ground_geoms)] = np.array([CONTACT_IMPEDANCE, CONTACT_IMPEDANCE, 1e-3, 0.5, 2.0])
