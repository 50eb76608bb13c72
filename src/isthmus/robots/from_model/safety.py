"""What a guard and a robot's own damping mode can know of a foreign robot: its config, else its model, else an estimate.

Damping of a joint, where the config gives none:

    D = max(2 kd, 0.05 kp)          a servo: strong for its own gains
    D = τ / SINK                    a plain motor: under its weight the robot sinks at the speed SINK
    D ≤ STABLE / (LOOP · 1/I)       what a loop on board can hold on the joint's inertia I without ringing

τ is what the robot's weight asks of the joint: a share of the motor's torque limit, or m g r for a robot of mass m and
radius of gyration r where no limit is known. This is an estimate, and a figure of the config is better. (For
Menagerie's go1 and go2 it gives 3 to 8 N·m·s/rad; our own go1 has 3.)
"""

from __future__ import annotations

import math

import mujoco
import numpy as np

from isthmus.core.constants import MODEL_GRAVITY
from isthmus.core.errors import BadInput
from isthmus.data.contract import NO_LIMIT, Safety
from isthmus.robots.from_model.config import Config, PerJoint, per_joint
from isthmus.robots.from_model.read_model import all_drive_joints, finite_limits_or_empty
from isthmus.robots.from_model.size import ModelSize

MAX_TILT = 1.0
"""rad: our choice, go1's, for what stands on the ground: beyond it nothing walks on. What flies gets no limit."""
MAX_UPRIGHT_ANGLE = 0.5
"""rad: a base whose own z axis is further from the vertical at home has another idea of up, and gets no limit."""
WEIGHT_TORQUE_SHARE = 1.0 / 3.0
"""Share of the motors' torque that the robot's weight takes: robots are built to carry about three times themselves."""
SINK_SPEED = 1.0
"""rad/s; for slides times the robot's size, in m/s."""
ONBOARD_LOOP_PERIOD, STABLE_DAMPING_SHARE = 0.002, 0.5
"""s per turn of the loop on board, and the share of its speed that it may take away in one: 2 would be unstable, and a leg
has three joints that act on each other."""


def safety_of(
    a: ModelSize, config: Config, home: np.ndarray, default: np.ndarray, limits: tuple[tuple[float, ...], ...]
) -> Safety:
    """`default` is the target at home, `limits` are the lowest and the highest target."""
    given, where = config.safety, f"'safety' of {config.where}"

    def numbers(value: PerJoint | None, what: str) -> dict[str, float]:
        return per_joint(value, a.labels, what, where) if value is not None else {}

    own = numbers(given.effort, "effort")
    effort = tuple(own.get(label, min(x, NO_LIMIT)) for label, x in zip(a.labels, _max_efforts(a), strict=True))
    own, estimate = numbers(given.damping, "damping"), damping_of(a)
    if own and not estimate:
        raise BadInput(f"{where}: 'damping' does nothing for motors that do not each drive a joint of their own.")
    damping = tuple(own.get(label, d) for label, d in zip(a.labels, estimate or (0.0,) * len(a.labels), strict=True))
    rest = ()
    if given.rest is not None:
        own = numbers(given.rest, "rest")
        rest = tuple(own.get(label, float(u)) for label, u in zip(a.labels, default, strict=True))
        for label, u, low, high in zip(a.labels, rest, *limits, strict=True):
            if not low <= u <= high:
                raise BadInput(f"{where}: 'rest' of {label!r} is {u:g}, outside the limits {low:g} … {high:g} of its target.")
    tilt = given.tilt if given.tilt is not None else MAX_TILT if _stands_upright(a, home) else 0.0
    return Safety(effort=finite_limits_or_empty(effort), tilt=tilt, rest=rest, damping=damping if any(damping) else ())


def _max_efforts(a: ModelSize) -> tuple[float, ...]:
    """Largest torque or force of each motor; infinite where it is not known."""
    return a.motors.torque_limit or tuple(x.torque_limit for x in a.actuators)


def _stands_upright(a: ModelSize, home: np.ndarray) -> bool:
    """A base that moves freely, on legs or wheels, whose attitude is measured and upright at home."""
    if not (a.free_joint and a.floor and a.joints and any(s.name == "quat" for s in a.signals)):
        return False
    at = int(a.model.joint(a.free_joint).qposadr[0]) + 3
    _, x, y, _ = home[at : at + 4] / np.linalg.norm(home[at : at + 4])
    return 1 - 2 * (x * x + y * y) > math.cos(MAX_UPRIGHT_ANGLE)


def damping_of(a: ModelSize) -> tuple[float, ...]:
    """N·m·s/rad or N·s/m per component of the target; empty where motors drive no joints, so that nothing can be damped."""
    m, native = a.model, a.motors.drive == "native"
    if not native and not all_drive_joints(a.actuators):
        return ()
    kp = a.motors.kp or tuple(x.kp if native else 0.0 for x in a.actuators)
    kd = a.motors.kd or tuple(x.kd if native else 0.0 for x in a.actuators)
    out = []
    for x, p, d, strength in zip(a.actuators, kp, kd, _max_efforts(a), strict=True):
        wanted, most = max(2.0 * d, 0.05 * p), math.inf
        if x.joint:
            joint = m.joint(x.joint)
            arm = 1.0 if joint.type[0] == mujoco.mjtJoint.mjJNT_SLIDE else a.radius_of_gyration()
            weight = WEIGHT_TORQUE_SHARE * strength if math.isfinite(strength) else MODEL_GRAVITY * a.moving_mass() * arm
            speed = SINK_SPEED * (a.radius_of_gyration() if joint.type[0] == mujoco.mjtJoint.mjJNT_SLIDE else 1.0)
            wanted = wanted or weight / speed
            most = STABLE_DAMPING_SHARE / (ONBOARD_LOOP_PERIOD * float(m.dof_invweight0[joint.dofadr[0]]))
        # Three digits: an estimate has no more, and the contract's hash must not depend on the machine's rounding.
        out.append(float(f"{max(d, min(wanted, most)):.3g}"))
    return tuple(out)
