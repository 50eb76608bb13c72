"""A foreign model made ready: everything named, a floor, motors in N·m, and nothing that our engine does not simulate.

`read_model` opens a file, `prepare` edits it, and both return what MuJoCo would compile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np

from isthmus.core.errors import BadInput, unknown_name, unreadable_file
from isthmus.core.files import content_hash
from isthmus.robots.from_model.config import Config
from isthmus.sim.robot import compile_spec

MAX_MODEL_BYTES = 64 * 1024 * 1024
DEFAULT_FLOOR = {"friction": [0.8, 0.02, 0.01], "solref": [0.02, 1.0], "condim": 3}
"""Surface of the floor that we add: go1's."""
ONE_AXIS_JOINTS = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_JOINT_TRANSMISSIONS = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
_UNLIMITED = int(mujoco.mjtLimited.mjLIMITED_FALSE)


@dataclass(frozen=True)
class Actuator:
    """One actuator of the model as it came, in the units of its joint: rad or m, N·m or N."""

    name: str
    joint: str
    """Empty where it does not drive one hinge or slide joint."""
    kind: str
    """`motor` (force follows ctrl), `position` (a servo on the joint's angle) or `other`."""
    torque_per_ctrl: float
    """Joint torque per unit of ctrl."""
    ctrl_range: tuple[float, float]
    """Limits of ctrl; infinite where there are none."""
    kp: float
    kd: float
    torque_limit: float
    """Largest torque on the joint."""


def load_model_spec(path: Path, name: str) -> tuple[mujoco.MjSpec, str]:
    """Open an MJCF or URDF file; return it with the hash of every file that it uses."""
    try:
        if path.stat().st_size > MAX_MODEL_BYTES:
            raise BadInput(f"{path} is larger than {MAX_MODEL_BYTES // 2**20} MiB and is not read.")
        if not path.is_file():
            raise BadInput(f"{path} is not a file; a model is an MJCF or URDF file.")
        spec = mujoco.MjSpec.from_file(str(path))
        assets = {file: content_hash(place.read_bytes()) for file, place in _asset_files(spec, path.parent, name)}
        return spec, content_hash({"model": content_hash(path.read_bytes()), "assets": assets})
    except OSError as error:
        raise unreadable_file(path, error) from None
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"the model of {name} does not parse: {' '.join(str(error).split())}.") from None


def _asset_files(spec: mujoco.MjSpec, folder: Path, name: str) -> Iterable[tuple[str, Path]]:
    files = [(m.file, spec.meshdir) for m in (*spec.meshes, *spec.hfields)] + [(t.file, spec.texturedir) for t in spec.textures]
    for file, directory in files:
        if not file:
            continue
        place = folder / directory / (Path(file).name if spec.strippath else file)
        if not place.is_file():
            raise BadInput(f"the model of {name} uses {file!r}, but there is no file {place}.")
        if place.stat().st_size > MAX_MODEL_BYTES:
            raise BadInput(f"{place} is larger than {MAX_MODEL_BYTES // 2**20} MiB and is not read.")
        yield file, place


def add_missing_names(spec: mujoco.MjSpec, config: Config) -> None:
    """Names for what parameters and contracts must be able to name; a free base where the config asks for one."""
    free = [j for j in spec.joints if j.type == mujoco.mjtJoint.mjJNT_FREE]
    if config.floating and not free and len(spec.bodies) > 1:
        free = [spec.bodies[1].add_freejoint()]
    if free and not free[0].name and not any(j.name == "root" for j in spec.joints):
        free[0].name = "root"
    for kind, objects in (("joint", spec.joints), ("body", spec.bodies), ("actuator", spec.actuators)):
        taken = {o.name for o in objects}
        for i, o in enumerate(objects):
            if not o.name:
                o.name = next(n for n in (f"{kind}{i}", *(f"{kind}{i}_{k}" for k in range(len(objects) + 1))) if n not in taken)
    if not spec.actuators:
        for joint in spec.joints:
            if int(joint.type) in ONE_AXIS_JOINTS:
                motor = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
                motor.set_to_motor()
    if spec.option.integrator == mujoco.mjtIntegrator.mjINT_RK4:
        # Targets and delays change between physics steps; RK4 would ask for them within one.
        spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST


def read_actuators(model: mujoco.MjModel, name: str) -> tuple[Actuator, ...]:
    if not model.nu:
        raise BadInput(f"the model of {name} has no actuators and no hinge or slide joints: there is nothing to control.")
    if (model.actuator_ctrlnum != 1).any():
        raise BadInput(f"the model of {name} has an actuator with several inputs, which is not supported.")
    return tuple(_read_actuator(model, i) for i in range(model.nu))


def _read_actuator(model: mujoco.MjModel, i: int) -> Actuator:
    gain, bias, gear = model.actuator_gainprm[i], model.actuator_biasprm[i], float(model.actuator_gear[i, 0])
    fixed = model.actuator_gaintype[i] == mujoco.mjtGain.mjGAIN_FIXED
    plain = model.actuator_biastype[i] == mujoco.mjtBias.mjBIAS_NONE
    affine = model.actuator_biastype[i] == mujoco.mjtBias.mjBIAS_AFFINE
    kind = "motor" if fixed and plain else "position" if fixed and affine and gain[0] > 0 and bias[1] < 0 else "other"
    j = int(model.actuator_trnid[i, 0])
    on_joint = model.actuator_trntype[i] in _JOINT_TRANSMISSIONS and int(model.jnt_type[j]) in ONE_AXIS_JOINTS
    limits = [np.inf]
    ctrl = (-np.inf, np.inf)
    if model.actuator_ctrllimited[i]:
        ctrl = (float(model.actuator_ctrlrange[i, 0]), float(model.actuator_ctrlrange[i, 1]))
        if kind == "motor":
            limits.append(abs(gear * gain[0]) * max(abs(ctrl[0]), abs(ctrl[1])))
    if model.actuator_forcelimited[i]:
        limits.append(abs(gear) * np.abs(model.actuator_forcerange[i]).max())
    if on_joint and model.jnt_actfrclimited[j]:
        limits.append(np.abs(model.jnt_actfrcrange[j]).max())
    return Actuator(
        name=model.actuator(i).name,
        joint=model.joint(j).name if on_joint else "",
        kind=kind,
        torque_per_ctrl=float(gear * gain[0]),
        ctrl_range=ctrl,
        kp=float(-bias[1] * gear**2) if kind == "position" else 0.0,
        kd=float(-bias[2] * gear**2) if kind == "position" else 0.0,
        torque_limit=float(min(limits)),
    )


def convert_to_torque_motors(spec: mujoco.MjSpec, actuators: tuple[Actuator, ...], on_joints: bool) -> None:
    """Turn actuators into plain motors whose ctrl is the torque itself; their limits become ours."""
    for a in actuators:
        motor = spec.actuator(a.name)
        motor.ctrllimited = motor.forcelimited = _UNLIMITED
        motor.inheritrange = 0.0
        if on_joints:
            motor.set_to_motor()
            motor.gear = [1.0, 0, 0, 0, 0, 0]
            spec.joint(a.joint).actfrclimited = _UNLIMITED


def add_floor(spec: mujoco.MjSpec, model: mujoco.MjModel, free: bool) -> str:
    """A floor whose surface rules its contacts; return its name, or nothing where there is none."""
    flat = (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_HFIELD)
    floors = [g for g in spec.worldbody.geoms if g.type in flat and (g.contype or g.conaffinity)]
    if not floors and not free:
        return ""
    if floors:
        floor = floors[0]
    else:
        floor = spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[20.0, 20.0, 0.1], **DEFAULT_FLOOR)
        floor.contype = int(np.bitwise_or.reduce(model.geom_conaffinity)) or 1
        floor.conaffinity = int(np.bitwise_or.reduce(model.geom_contype)) or 1
        floor.rgba = [0.42, 0.47, 0.52, 1.0]
    if not floor.name:
        floor.name = "floor" if spec.geom("floor") is None else "isthmus_floor"
    # With equal priorities MuJoCo takes the larger friction of the two surfaces, and less could not be set.
    floor.priority = max((int(g.priority) for g in spec.geoms if g.name != floor.name), default=0) + 1
    return floor.name


def add_foot_sensors(spec: mujoco.MjSpec, feet: tuple[str, ...], where: str) -> None:
    """A site and a contact sensor at each foot, as tasks expect them."""
    for foot in feet:
        geom = spec.geom(foot)
        if geom is None:
            raise unknown_name("geom", foot, [g.name for g in spec.geoms if g.name], f"'feet' of {where}")
        if spec.site(foot) is None:
            geom.parent.add_site(name=foot, pos=geom.pos, size=[0.01, 0.01, 0.01])
        sensor = foot.removesuffix("_foot") + "_contact"
        if spec.sensor(sensor) is None:
            spec.add_sensor(
                name=sensor, type=mujoco.mjtSensor.mjSENS_CONTACT, objtype=mujoco.mjtObj.mjOBJ_GEOM, objname=foot,
                intprm=[3, 3, 1],  # found and force, net over all contacts, in one slot
            )  # fmt: skip


def final_xml(spec: mujoco.MjSpec, varied_body: str, files_hash: str, name: str) -> str:
    """The edited model as text. `varied` is the body whose centre of mass may move, `files` the hash of its files."""
    if varied_body:
        # MuJoCo has a shortcut for bodies whose centre of mass is their origin; this one's will move.
        spec.body(varied_body).simple = 0
    spec.add_text(name="isthmus_files", data=files_hash)
    compile_spec(spec, name)
    return spec.to_xml()
