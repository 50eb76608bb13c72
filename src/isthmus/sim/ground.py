"""Ground that gives way: each foot on a spring and a damper, with friction that holds while it sinks.

A contact of a model can be made softer, but then its friction creeps: both share one impedance, and a pyramid of friction
gives way at its edges. So this ground brings its own settings, and its surface rules over that of the feet. Realities have it,
and units that were found to walk on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from isthmus.errors import BadInput
from isthmus.world import Target

if TYPE_CHECKING:
    from isthmus.sim.engine import Engine
    from isthmus.sim.robot import Robot

IMPEDANCE = 0.5
"""MuJoCo's d: half constraint, half spring. In steps of 1 ms contacts are stable with it from 1 mm of softness on."""
IMPRATIO = 100.0
"""How much harder friction is than the surface."""
DAMPING = 0.5
"""Damping ratio of a robot's weight on usual soft ground."""
STIFFEST, MOST_DAMPING = 1e7, 1e5
"""N/m and N·s/m that make sense at all."""
UNITS = {"stiffness": "N/m", "damping": "N·s/m"}
FIELDS = tuple(UNITS)
"""Figures of a ground."""
TOUCH = ("friction", "solref", "solimp")
"""Fields of a geom that say what it is like to the touch."""


@dataclass(frozen=True)
class Ground:
    stiffness: float
    """N/m at one point of contact: a round foot has one, a flat one several."""
    damping: float
    """N·s/m there."""

    def to_dict(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in FIELDS}

    def within(self, other: Ground) -> bool:
        """Whether neither figure is larger than that of another ground, but for rounding."""
        return self.stiffness <= 1.001 * other.stiffness and self.damping <= 1.001 * other.damping

    def __str__(self) -> str:
        return f"{self.stiffness:.3g} N/m and {self.damping:.3g} N·s/m at a point of contact"

    @staticmethod
    def of(fields: Any, where: str) -> Ground:
        """From what `to_dict` gave, as a stranger may have written it."""
        stiffness, damping = (_number(fields.get(name) if isinstance(fields, Mapping) else None, where) for name in FIELDS)
        if not 0 < stiffness <= STIFFEST or not 0 < damping <= MOST_DAMPING:
            raise BadInput(f"{where}: ground has at most {STIFFEST:g} N/m and {MOST_DAMPING:g} N·s/m, and more than none.")
        return Ground(stiffness, damping)


def sinking(robot: Robot, depth: float, ratio: float = DAMPING) -> Ground:
    """Ground into which round feet of a robot that stands sink by `depth` m; `ratio` is how its weight is damped on it."""
    mass, load = carried(robot)
    stiffness = load / depth
    return Ground(stiffness, 2.0 * ratio * float(np.sqrt(stiffness * mass)))


def sink(robot: Robot, ground: Ground) -> float:
    """m by which round feet sink in while the robot stands."""
    return carried(robot)[1] / ground.stiffness


def carried(robot: Robot) -> tuple[float, float]:
    """kg and N that each foot carries while the robot stands."""
    model = robot.model
    mass = float(model.body_subtreemass[model.body(robot.base).id]) / len(robot.feet)
    return mass, mass * float(np.linalg.norm(model.opt.gravity))


def mobility(robot: Robot) -> float:
    """MuJoCo's inverse weight of the feet, 1/kg: what a force on one would accelerate it by."""
    return float(robot.model.body_invweight0[_feet(robot), 0].mean())


def hardest(robot: Robot) -> Ground:
    """Ground that the robot's physics steps can just follow: a point as light as a foot would begin to rattle on it."""
    w, step = mobility(robot), float(robot.model.opt.timestep)
    return Ground(min(1.0 / (w * step**2), STIFFEST), min(2.0 / (w * step), MOST_DAMPING))


def _feet(robot: Robot) -> list[int]:
    """Bodies of the feet."""
    return [int(robot.model.geom_bodyid[robot.model.geom(foot).id]) for foot in robot.feet]


def walks(robot: Robot) -> bool:
    """Whether it has feet on the ground that carry its base."""
    return bool(robot.feet and robot.base)


def _number(x: Any, where: str) -> float:
    if not isinstance(x, int | float) or isinstance(x, bool):
        raise BadInput(f"{where}: the ground has two numbers, {' and '.join(FIELDS)}.")
    return float(x)


def surface(robot: Robot) -> frozenset[str]:
    """Parameters of its Space that write what the ground or the feet are like to the touch."""
    targets = {p.name: map(Target.parse, p.targets) for p in robot.space.params}
    return frozenset(n for n, ts in targets.items() if any(t.kind == "geom" and t.field in TOUCH for t in ts))


def floors(model: mujoco.MjModel) -> np.ndarray:
    """Geoms of the world that something can touch."""
    fixed = model.geom_bodyid == 0
    return np.flatnonzero(fixed & ((model.geom_contype != 0) | (model.geom_conaffinity != 0)))


def spec_of(robot: Robot, edit: Callable[[mujoco.MjSpec], None] | None) -> mujoco.MjSpec:
    """The robot's model, with the changes of an engine and of a ground of its own."""
    spec = robot.spec()
    if edit is not None:
        edit(spec)
    if robot.unit.ground:
        soften(spec)
    return spec


def soften(spec: mujoco.MjSpec) -> None:
    """The settings that this ground needs."""
    spec.option.cone, spec.option.impratio = mujoco.mjtCone.mjCONE_ELLIPTIC, IMPRATIO
    first = max(int(geom.priority) for geom in spec.geoms) + 1
    for geom in spec.worldbody.geoms:
        if geom.contype or geom.conaffinity:
            geom.priority = first


def nominal(robot: Robot) -> dict[str, np.ndarray]:
    """The figures of a robot's own ground, if it has one, as rows that a Space can write to."""
    law = robot.unit.ground
    return {f"ground.{name}": np.array([value]) for name, value in law.to_dict().items()} if law else {}


class Surface:
    """Of the worlds of an engine.

    A contact of impedance d with solref (-s, -c) is at rest a spring of stiffness s / ((1 - d) w), where w is MuJoCo's inverse
    weight of the foot, and a damper of c / ((1 - d) w).
    """

    def __init__(self, engine: Engine):
        self._feet = _feet(engine.robot)
        self._floor, self._weight = floors(engine.model), engine.batch.expand("body_invweight0")
        self._solref, self._solimp = engine.batch.expand("geom_solref"), engine.batch.expand("geom_solimp")

    def apply(self, arrays: Mapping[str, np.ndarray], ids: np.ndarray) -> None:
        """Write the ground of worlds `ids`, whose masses are settled, from "ground.stiffness" and "ground.damping", (n, 1)."""
        law = np.concatenate([arrays[f"ground.{name}"][ids] for name in FIELDS], axis=1)
        weight = self._weight[ids][:, self._feet, 0].mean(1, keepdims=True)
        self._solref[np.ix_(ids, self._floor)] = (-(1.0 - IMPEDANCE) * weight * law)[:, None]
        self._solimp[np.ix_(ids, self._floor)] = np.array([IMPEDANCE, IMPEDANCE, 1e-3, 0.5, 2.0])
