"""What the simulator needs to know of a robot. The catalogue of robots is in `isthmus.robots`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

import mujoco

from isthmus.core.errors import BadInput
from isthmus.core.files import content_hash
from isthmus.data.contract import Contract
from isthmus.sim.morphology import Morphology
from isthmus.sim.physics.unit_physics import UnitPhysics
from isthmus.world import Belief, Space

Drive = Literal["position", "effort", "native"]
Encoder = Literal["rotor", "link"]


@dataclass(frozen=True)
class MotorParams:
    """Nominal motor figures, one number per component of the contract's target, in its order.

    `position`: the target is a joint angle, tracked by the motor controller with kp and kd.
    `effort`:   the target is a torque or thrust.
    `native`:   the target goes to the MuJoCo actuators of the model as it is.
    """

    drive: Drive
    kp: tuple[float, ...] = ()
    kd: tuple[float, ...] = ()
    torque_limit: tuple[float, ...] = ()
    speed_limit: tuple[float, ...] = ()
    """No-load speed, rad/s; empty means that torque does not depend on speed."""
    coulomb: tuple[float, ...] = ()
    viscous: tuple[float, ...] = ()
    strength: tuple[float, ...] = ()
    """Part of what is asked that the motor gives; empty means all."""
    lag: tuple[float, ...] = ()
    """Time constant of the motor's response, s."""
    spring: tuple[float, ...] = ()
    """Stiffness between gearbox and link, N·m/rad; empty means rigid."""
    rotor_inertia: tuple[float, ...] = ()
    """Reflected inertia on the motor's side of a spring or a play, kg·m²; empty takes the joints' armature."""
    stribeck: tuple[float, ...] = ()
    """Friction at rest on top of `coulomb`, N·m, which is gone at a few times `stribeck_speed`, rad/s."""
    stribeck_speed: tuple[float, ...] = ()
    load_friction: tuple[float, ...] = ()
    """Part of the motor's torque that is lost to friction."""
    backlash: tuple[float, ...] = ()
    """Play of the gear to either side, rad."""
    encoder: Encoder = "rotor"
    """Which side of a play or a spring the joints' signals show. The motor controller is on the rotor in any case."""


MOTOR_FIELDS = tuple(f.name for f in fields(MotorParams) if f.name not in ("drive", "encoder"))


@dataclass(frozen=True)
class Robot:
    name: str
    xml: str
    """MJCF text; `folder` resolves its file names."""
    contract: Contract
    sources: Mapping[str, str]
    """Where each signal comes from in the simulator: qpos, qvel, pos:J, quat:J, linvel:J, angvel:J, accel:J,
    sensor:S."""
    motors: MotorParams
    morphology: Morphology
    """What it has: roots, legs and feet, arms, rotors, mirror symmetry."""
    space: Space
    prior: Belief
    home: tuple[float, ...]
    """qpos at reset."""
    default: tuple[float, ...]
    """Target that holds the home pose, in the contract's order."""
    substeps: int
    """Physics steps of a tick."""
    folder: Path | None = None
    doc: str = ""
    timestep: float = 0.0
    """s of a physics step; 0 takes the model's own."""
    unit: UnitPhysics = field(default_factory=UnitPhysics)
    """How this very robot differs from its design."""

    def spec(self) -> mujoco.MjSpec:
        """The model as an editable specification."""
        spec = read_spec(self.xml, self.folder, self.name)
        if self.timestep:
            spec.option.timestep = self.timestep
        return spec

    def at_rate(self, rate: float) -> Robot:
        """The same robot with `rate` control ticks per second, and physics steps no longer than before."""
        if rate == self.contract.rate:
            return self
        step = float(self.model.opt.timestep)
        substeps = max(1, math.ceil(1.0 / (rate * step) - 1e-6))
        return replace(self, contract=replace(self.contract, rate=rate), substeps=substeps, timestep=1.0 / (rate * substeps))

    def max_delay(self, delay: str) -> float:
        """The largest `action_delay` or `sensor_delay` that the space allows, s."""
        return max((p.high for p in self.space.params if any(t.endswith(f"/{delay}") for t in p.targets)), default=0.0)

    @cached_property
    def motors_of_unit(self) -> MotorParams:
        """The motors that it has: the design's, with the figures of the unit."""
        size = self.contract.target.size
        for name, row in self.unit.motors.items():
            if len(row) != size:
                raise BadInput(f"{name} of the unit's motors has {len(row)} numbers, but {self.name} has {size} motors.")
        return replace(self.motors, **self.unit.motors)

    @cached_property
    def model(self) -> mujoco.MjModel:
        return _compiled_model(self.xml, self.folder, self.timestep, self.name)

    @cached_property
    def model_hash(self) -> str:
        return content_hash(self.xml.encode())


@lru_cache(maxsize=64)
def _compiled_model(xml: str, folder: Path | None, timestep: float, name: str) -> mujoco.MjModel:
    """One model for all robots of the same text: variants of a robot differ in much that is not in it. Never written to."""
    spec = read_spec(xml, folder, name)
    if timestep:
        spec.option.timestep = timestep
    return compile_spec(spec, name)


def read_spec(xml: str, folder: Path | None, name: str) -> mujoco.MjSpec:
    """Parse MJCF or URDF text; text that is no model is one sentence."""
    try:
        spec = mujoco.MjSpec.from_string(xml)
    except (ValueError, OSError) as error:
        raise BadInput(f"the model of {name} does not parse: {' '.join(str(error).split())}.") from None
    if folder is not None:
        spec.modelfiledir = str(folder)
    return spec


def compile_spec(spec: mujoco.MjSpec, name: str) -> mujoco.MjModel:
    try:
        model = spec.compile()
    except (ValueError, OSError) as error:
        raise BadInput(f"the model of {name} does not compile: {' '.join(str(error).split())}.") from None
    # A world that blows up must stay visible to us: MuJoCo would silently put it back to its start.
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    return model
