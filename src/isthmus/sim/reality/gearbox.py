"""A gearbox with play or give between each motor and its link.

The motor turns a rotor of its own, a body with the inertia that the joint's armature stood for; rotor and link are held
together by a spring with a dead zone:

    J θ̈ = motor(θ, θ̇) - s        (M q̈ + …) = s + …        s = k · (what of θ - q lies outside ± play / 2) + c (θ̇ - q̇)

Without flex the ends of the play are hard: a constraint instead of a spring. The motor controller is on the rotor, and
joint signals show θ where the robot has its encoders there. Rotors come after all joints of the model, so that no other
number moves its place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import mujoco
import numpy as np

from isthmus.sim import parameter_binding
from isthmus.sim.indexing import as_slice
from isthmus.sim.physics.component import Attached, Component, StateIndex
from isthmus.sim.physics.motors import link_mobility
from isthmus.sim.reality.tables import Unmodelled
from isthmus.sim.robot import Robot

if TYPE_CHECKING:
    from isthmus.sim.simulation import Simulation

DRIVE_DAMPING_RATIO = 0.03
"""Damping ratio of the flexible drive: steel, grease and bearings."""
BACKLASH_STOP_SOLVER_PARAMS = ([0.002, 1.0], [0.99, 0.999, 1e-3, 0.5, 2.0])
"""solref and solimp of the ends of the play."""
_MIN_ROTOR_MASS, _MIN_ROTOR_INERTIA = 1e-6, 1e-9
"""kg, kg·m²: the least of a body that MuJoCo accepts; the inertia that counts is the joint's armature."""


@dataclass(frozen=True)
class Gearbox:
    joints: tuple[str, ...]
    link_qpos: tuple[int, ...]
    """Columns of the links in qpos …"""
    link_qvel: tuple[int, ...]
    """… and in qvel."""
    nq: int
    nv: int
    """Sizes of the model without rotors, which are the columns where rotors begin."""
    inertia: tuple[float, ...]
    """kg·m²: J of each rotor, the armature of its joint."""
    mobility: tuple[float, ...]
    """1/J + 1/I of each rotor and link: how fast a torque between the two drives them apart."""
    half_backlash: float
    """rad from the middle to the end."""
    stiffness: float | None

    @staticmethod
    def for_robot(robot: Robot, unmodelled: Unmodelled, e: np.ndarray) -> Gearbox:
        model, joints = robot.model, robot.contract.target.labels
        rows = [model.joint(name).id for name in joints]
        q, v = (tuple(int(address[j]) for j in rows) for address in (model.jnt_qposadr, model.jnt_dofadr))
        inertia = _armature_under(robot, e)[list(v)]
        with np.errstate(divide="ignore"):
            mobility = 1.0 / inertia + link_mobility(robot, list(v))
        play = 0.5 * (unmodelled.backlash or 0.0)
        return Gearbox(
            joints, q, v, model.nq, model.nv, tuple(inertia.tolist()), tuple(mobility.tolist()), play, unmodelled.flex
        )

    @cached_property
    def damping(self) -> np.ndarray:
        """N·m·s/rad of the spring where it is engaged, (m,)."""
        return 2.0 * DRIVE_DAMPING_RATIO * np.sqrt((self.stiffness or 0.0) / np.array(self.mobility))

    def max_stiffness(self, dt: float) -> float:
        """The largest stiffness that steps of dt can follow: (ω dt)² = k (1/J + 1/I) dt² = 1, a quarter of the stable limit."""
        return 1.0 / (max(self.mobility) * dt**2)

    def rotor_columns(self, columns: list[int], array: str) -> list[int]:
        """The same columns of qpos or qvel, with those of the links replaced by those of their rotors."""
        links, start = (self.link_qpos, self.nq) if array == "qpos" else (self.link_qvel, self.nv)
        return [start + links.index(c) if c in links else c for c in columns]

    def index(self, at: StateIndex, encoders_on_rotor: bool) -> StateIndex:
        """Motors drive the rotors, encoders may be on them, and rotors start with their links."""
        if at.driven is None:
            return at
        sources = at.sources
        if encoders_on_rotor:
            sources = [(a, self.rotor_columns(c, a) if a in ("qpos", "qvel") else c) for a, c in sources]
        driven = self.rotor_columns(at.driven[0], "qpos"), self.rotor_columns(at.driven[1], "qvel")
        return replace(at, sources=sources, driven=driven, qpos_followers=self.link_qpos, qvel_followers=self.link_qvel)


def damper_torque(q: np.ndarray, qd: np.ndarray, theta: np.ndarray, speed: np.ndarray, gearbox: Gearbox) -> np.ndarray:
    """Torque of the damper on the link, (n, m): c (θ̇ - q̇) outside the play, none within. The rotor feels its opposite."""
    return np.where(np.abs(theta - q) > gearbox.half_backlash, gearbox.damping * (speed - qd), 0.0)


def _armature_under(robot: Robot, e: np.ndarray) -> np.ndarray:
    """Of every degree of freedom under e, (d,)."""
    nominal = {"dof_armature": robot.model.dof_armature.copy()}
    arrays = {"dof_armature": nominal["dof_armature"][None].copy()}
    writes = [w for w in parameter_binding.resolve_targets(robot) if w.array == "dof_armature"]
    parameter_binding.Binding(writes, arrays, nominal).apply(e[None], np.array([0]))
    return arrays["dof_armature"][0]


def add_rotors(spec: mujoco.MjSpec, robot: Robot, gearbox: Gearbox) -> None:
    spec.option.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    for name in gearbox.joints:
        link = robot.model.joint(name)
        slide = int(link.type[0]) == int(mujoco.mjtJoint.mjJNT_SLIDE)
        rotor = f"{name}:rotor"
        body = spec.worldbody.add_body(
            name=rotor, mass=_MIN_ROTOR_MASS, inertia=[_MIN_ROTOR_INERTIA] * 3, explicitinertial=True
        )
        kind = mujoco.mjtJoint.mjJNT_SLIDE if slide else mujoco.mjtJoint.mjJNT_HINGE
        # A level slide and an upright hinge: gravity moves neither.
        axis = [1.0, 0.0, 0.0] if slide else [0.0, 0.0, 1.0]
        body.add_joint(name=rotor, type=kind, axis=axis, armature=float(link.armature[0]))
        tendon = spec.add_tendon(name=rotor)
        tendon.wrap_joint(rotor, 1.0)
        tendon.wrap_joint(name, -1.0)
        if gearbox.stiffness is None:
            tendon.limited, tendon.range = 1, [-gearbox.half_backlash, gearbox.half_backlash]
            tendon.solref_limit, tendon.solimp_limit = BACKLASH_STOP_SOLVER_PARAMS
        else:
            # Its damping is ours: MuJoCo's implicit one would not conserve the momentum of two separate trees.
            tendon.stiffness = [gearbox.stiffness, 0.0, 0.0]
            tendon.springlength = [-gearbox.half_backlash, gearbox.half_backlash]
    for actuator in spec.actuators:
        if actuator.target in gearbox.joints:
            actuator.target = f"{actuator.target}:rotor"


class AttachedGearbox(Attached):
    """Rotors with the armature of their joints, and the damping of a flexible drive."""

    needs_set_const = True

    def __init__(self, sim: Simulation, gearbox: Gearbox):
        self._sim, self.gearbox = sim, gearbox
        self.every = 0 if gearbox.stiffness is None else 1
        self._armature = sim.engine.field("dof_armature")
        self._armature_varies = "dof_armature" in sim.varied_arrays
        self._link_columns = as_slice(list(gearbox.link_qpos)), as_slice(list(gearbox.link_qvel))

    def write_model(self, ids: np.ndarray) -> None:
        model = self._sim.model
        links, rotors = np.array(self.gearbox.link_qvel), np.arange(self.gearbox.nv, model.nv)
        nominal = np.tile(model.dof_armature[links], (len(ids), 1))
        inertia = self._armature[np.ix_(ids, links)] if self._armature_varies else nominal
        self._armature[np.ix_(ids, rotors)] = inertia
        self._armature[np.ix_(ids, links)] = 0.0

    def before_step(self, substep: int) -> None:
        del substep
        gear, qpos, qvel, force = self.gearbox, self._sim.qpos, self._sim.qvel, self._sim.qfrc_applied
        q, v = self._link_columns
        tau = damper_torque(qpos[:, q], qvel[:, v], qpos[:, gear.nq :], qvel[:, gear.nv :], gear)
        force[:, v], force[:, gear.nv :] = tau, -tau


def gearbox_component(robot: Robot, gearbox: Gearbox) -> Component:
    return Component(
        attach=lambda sim: AttachedGearbox(sim, gearbox),
        edit=lambda spec: add_rotors(spec, robot, gearbox),
        index=lambda at: gearbox.index(at, robot.motors.encoder == "rotor"),
    )
