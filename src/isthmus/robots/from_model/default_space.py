"""What may be unknown about a robot of which we have only a model: its default Space and prior.

Ranges are those of our own robots, in proportion: masses and gains by factors, delays in control ticks, a payload by
the robot's mass, torques by the strength of its motors. A parameter that could not change anything is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import mujoco
import numpy as np

from isthmus.robots.from_model.size import ModelSize
from isthmus.robots.parameters import ParameterRange, delays, factor, offset, vary


def exact_pattern(names: Iterable[str]) -> str:
    """A regular expression for exactly these names; a target cannot hold a slash, so a dot stands for it."""
    return "|".join(re.escape(n).replace("/", ".") for n in names)


def default_ranges(a: ModelSize) -> Iterator[ParameterRange]:
    yield from _ground_ranges(a)
    yield from _body_ranges(a)
    yield from _native_actuator_ranges(a) if a.motors.drive == "native" else _motor_ranges(a)
    yield from _joint_ranges(a)
    yield from delays(action=(a.tick / 2, 3 * a.tick, a.tick), sensor=(a.tick / 4, 2 * a.tick, a.tick / 2))
    yield from _sensor_ranges(a)


def _ground_ranges(a: ModelSize) -> Iterator[ParameterRange]:
    if not a.floor:
        return
    floor, shortest = a.model.geom(a.floor), 2 * float(a.model.opt.timestep)
    friction, time = float(floor.friction[0]), float(floor.solref[0])
    yield vary(
        "ground_friction",
        "1",
        f"geom:{exact_pattern([a.floor])}/friction[0]",
        friction,
        (min(0.05, friction), max(3.0, friction)),
        (0.2, 1.5),
        scale="log",
        doc="sliding friction between robot and ground",
    )
    if time >= shortest:
        yield vary(
            "contact_time",
            "s",
            f"geom:{exact_pattern([a.floor])}/solref[0]",
            time,
            (shortest, 4 * time),
            (max(shortest, 0.6 * time), 1.5 * time),
            scale="log",
            doc="time constant of the contact: larger is softer ground",
        )


def _body_ranges(a: ModelSize) -> Iterator[ParameterRange]:
    moving = a.moving_body_names()
    links = [b for b in moving if not a.free_joint or b != a.base]
    if links:
        yield factor(
            "link_mass",
            f"body:{exact_pattern(links)}/mass",
            (0.5, 2.0),
            (0.85, 1.15),
            doc="mass of the links, with their inertia",
        )
    if a.base not in moving:
        return
    if a.free_joint:
        yield factor(
            "base_mass",
            f"body:{exact_pattern([a.base])}/mass",
            (0.5, 2.0),
            (0.85, 1.15),
            doc="mass of the base, with its inertia",
        )
    yield vary(
        "payload",
        "kg",
        f"body:{exact_pattern([a.base])}/payload",
        0.0,
        (0.0, 0.6 * a.moving_mass()),
        (0.0, 0.15 * a.moving_mass()),
        doc=f"mass carried by {a.base}",
    )
    reach = min(0.02, 0.1 * a.radius_of_gyration())
    for i, axis in enumerate("xyz"):
        if not a.com_matters(i):
            continue
        yield offset(
            f"com_{axis}",
            "m",
            f"body:{exact_pattern([a.base])}/com[{i}]",
            4 * reach,
            reach,
            doc=f"shift of the centre of mass of {a.base}",
        )


def _motor_ranges(a: ModelSize) -> Iterator[ParameterRange]:
    limited = [label for label, limit in zip(a.labels, a.motors.torque_limit, strict=True) if np.isfinite(limit)]
    targets = ("motor:.*/strength", *([f"motor:{exact_pattern(limited)}/torque_limit"] if limited else []))
    yield factor("strength", targets, (0.3, 1.5), (0.85, 1.1), doc="torque that the motors give, against what was asked")
    if a.motors.drive == "position":
        yield factor("kp", "motor:.*/kp", (0.3, 3.0), (0.85, 1.15), doc="proportional gain of the motor controllers")
        if max(a.motors.kd) > 0:
            yield factor("kd", "motor:.*/kd", (0.3, 3.0), (0.75, 1.3), doc="derivative gain of the motor controllers")


def _native_actuator_ranges(a: ModelSize) -> Iterator[ParameterRange]:
    m = a.model
    servos = [x.name for x in a.actuators if x.kind == "position"]
    if servos:
        where = f"actuator:{exact_pattern(servos)}"
        yield factor(
            "servo_gain",
            (f"{where}/gainprm[0]", f"{where}/biasprm[1]"),
            (0.3, 3.0),
            (0.85, 1.15),
            doc="stiffness of the servos",
        )
    damped = [x.name for x in a.actuators if x.kind == "position" and x.kd > 0]
    if damped:
        yield factor(
            "servo_damping",
            f"actuator:{exact_pattern(damped)}/biasprm[2]",
            (0.3, 3.0),
            (0.75, 1.3),
            doc="damping of the servos",
        )
    forced = [x.name for x in a.actuators if m.actuator_forcelimited[m.actuator(x.name).id]]
    plain = [x.name for x in a.actuators if x.kind == "motor"]
    capped = sorted({x.joint for x in a.actuators if x.joint and m.jnt_actfrclimited[m.joint(x.joint).id]})
    targets = [f"actuator:{exact_pattern(plain)}/gainprm[0]"] if plain else []
    targets += [f"actuator:{exact_pattern(forced)}/forcerange[{i}]" for i in (0, 1) if forced]
    targets += [f"joint:{exact_pattern(capped)}/actfrcrange[{i}]" for i in (0, 1) if capped]
    if targets:
        yield factor("strength", tuple(targets), (0.3, 1.5), (0.85, 1.1), doc="largest torque of the motors")


def _joint_ranges(a: ModelSize) -> Iterator[ParameterRange]:
    if not a.joints:
        return
    m, dofs, torque = a.model, a.joint_dofs(), a.typical_torque()
    inertia = float(np.median(m.dof_M0[dofs]))
    kinds = (
        (
            "joint_damping",
            "damping",
            m.dof_damping,
            "N·m·s/rad",
            (0.1, 10.0),
            (0.5, 2.0),
            0.005 * torque,
            "viscous friction in the joints",
        ),
        (
            "joint_friction",
            "frictionloss",
            m.dof_frictionloss,
            "N·m",
            (0.05, 10.0),
            (0.3, 2.0),
            0.01 * torque,
            "Coulomb friction in the joints",
        ),
        (
            "armature",
            "armature",
            m.dof_armature,
            "kg·m²",
            (0.2, 5.0),
            (0.6, 1.5),
            0.1 * inertia,
            "rotor inertia seen at the joint",
        ),
    )
    for name, field, nominal, unit, bounds, prior, most, doc in kinds:
        present = [j for j, dof in zip(a.joints, dofs, strict=True) if nominal[dof] > 0]
        if present:
            yield factor(name, f"joint:{exact_pattern(present)}/{field}", bounds, prior, doc=doc)
        else:
            yield vary(name, unit, f"joint:{exact_pattern(a.joints)}/{field}", 0.0, (0.0, 20 * most), (0.0, most), doc=doc)


SENSOR_NOISE = {
    "joint_pos": (0.005, (0.0, 0.1), (0.002, 0.015)),
    "joint_vel": (0.3, (0.0, 5.0), (0.1, 1.0)),
    "gyro": (0.05, (0.0, 1.0), (0.02, 0.2)),
    "quat": (0.005, (0.0, 0.1), (0.0, 0.015)),
    "position": (0.003, (0.0, 0.1), (0.0, 0.01)),
    "velocity": (0.02, (0.0, 1.0), (0.0, 0.05)),
}
"""Standard deviation of each signal: nominal, bounds, prior. The first four are go1's; the others, motion
capture's."""


def _sensor_ranges(a: ModelSize) -> Iterator[ParameterRange]:
    named = {s.name: s for s in a.signals}
    if "gyro" in named:
        for axis in "xyz":
            yield offset(
                f"gyro_bias_{axis}", "rad/s", f"signal:gyro/bias[{axis}]", 0.3, 0.05, doc="constant error of the gyroscope"
            )
    if "joint_pos" in named:
        for joint in a.joints:
            slides = a.model.joint(joint).type[0] == mujoco.mjtJoint.mjJNT_SLIDE
            unit, bound = ("m", 0.02) if slides else ("rad", 0.2)
            yield offset(
                f"encoder_offset_{as_identifier(joint)}",
                unit,
                f"signal:joint_pos/bias[{joint}]",
                bound,
                bound / 10,
                doc="calibration error of the encoder",
            )
    for name, (nominal, bounds, prior) in SENSOR_NOISE.items():
        if name in named:
            yield vary(
                f"{name}_noise", named[name].unit, f"signal:{name}/noise", nominal, bounds, prior, doc="standard deviation"
            )


def as_identifier(name: str) -> str:
    """A name as part of a parameter's name."""
    return re.sub(r"\W", "_", name)
