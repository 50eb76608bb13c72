"""A gearbox with play or give between each motor and its link.

The motor turns a rotor of its own, a body with the inertia that the joint's armature stood for; rotor and link are held
together by a spring with a dead zone:

    J θ̈ = motor(θ, θ̇) - s        (M q̈ + …) = s + …        s = k · (what of θ - q lies outside ± play / 2) + c (θ̇ - q̇)

Without flex the ends of the play are hard: a constraint instead of a spring. The motor controller is on the rotor, and
joint signals show θ where the robot has its encoders there. Rotors come after all joints of the model, so that no other
number moves its place.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property

import mujoco
import numpy as np

from isthmus.sim import parameter_binding
from isthmus.sim.reality.tables import Unmodelled
from isthmus.sim.robot import Robot

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

    def append_rotors(self, rows: np.ndarray, array: str) -> np.ndarray:
        """State of the model, (…, nq) or (…, nv), with rotors that go with their links."""
        return np.concatenate([rows, rows[..., list(self.link_qpos if array == "qpos" else self.link_qvel)]], axis=-1)


def damper_torque(q: np.ndarray, qd: np.ndarray, theta: np.ndarray, speed: np.ndarray, gearbox: Gearbox) -> np.ndarray:
    """Torque of the damper on the link, (n, m): c (θ̇ - q̇) outside the play, none within. The rotor feels its opposite."""
    return np.where(np.abs(theta - q) > gearbox.half_backlash, gearbox.damping * (speed - qd), 0.0)


def _armature_under(robot: Robot, e: np.ndarray) -> np.ndarray:
    """Of every degree of freedom under e, (d,)."""
    nominal = {"dof_armature": robot.model.dof_armature.copy()}
    arrays = {"dof_armature": nominal["dof_armature"][None].copy()}
    writes = [w for w in parameter_binding.resolved_writes(robot) if w.array == "dof_armature"]
    parameter_binding.Binding(writes, arrays, nominal).apply(e[None], np.array([0]))
    return arrays["dof_armature"][0]


def link_mobility(robot: Robot, dofs: list[int]) -> np.ndarray:
    """1/I of links without their rotors."""
    model = copy.deepcopy(robot.model)
    model.dof_armature[dofs] = 0.0
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model.dof_invweight0[dofs]


def add_rotors(spec: mujoco.MjSpec, robot: Robot, gearbox: Gearbox) -> None:
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
