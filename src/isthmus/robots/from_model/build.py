"""Robots that are not ours: MuJoCo Menagerie's by name, any MJCF or URDF by its path, alone or with a small config.

    get_robot("menagerie:unitree_go2")
    get_robot("arm/arm.urdf")
    get_robot("arm/arm.toml")                 a config that names its model; see config.py beside this file

What the config does not say is read from the model: joints, actuators and their limits, the home pose from a keyframe.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import mujoco
import numpy as np

from isthmus.core.errors import BadInput, unknown_name
from isthmus.data.contract import Contract, Signal
from isthmus.robots.from_model.config import Config, read_config
from isthmus.robots.from_model.config_params import apply_config
from isthmus.robots.from_model.default_space import default_ranges
from isthmus.robots.from_model.edit_model import (
    ONE_AXIS_JOINTS,
    add_floor,
    add_foot_sensors,
    add_missing_names,
    convert_to_torque_motors,
    final_xml,
    load_model_spec,
    read_actuators,
)
from isthmus.robots.from_model.morphology import infer_morphology
from isthmus.robots.from_model.read_model import (
    all_drive_joints,
    base_of,
    default_of,
    drive_of,
    free_joint,
    home_of,
    limits_of,
    motors_of,
    raise_above_floor,
    signals_of,
    substeps_of,
    touches_floor,
    unit_of,
)
from isthmus.robots.from_model.safety import safety_of
from isthmus.robots.from_model.size import ModelSize, root_bodies
from isthmus.robots.parameters import space_and_prior
from isthmus.sim import parameter_binding
from isthmus.sim.morphology import Root
from isthmus.sim.robot import Robot, compile_spec, read_spec

MENAGERIE_PREFIX = "menagerie:"
MODEL_SUFFIXES = (".toml", ".xml", ".mjcf", ".urdf")


def is_external(name: str) -> bool:
    return name.startswith(MENAGERIE_PREFIX) or Path(name).suffix.lower() in MODEL_SUFFIXES


def external_robot(name: str) -> Robot:
    if Path(name).suffix.lower() != ".toml" or name.startswith(MENAGERIE_PREFIX):
        return build_robot(Config(model=name), Path())
    path = Path(name)
    return build_robot(read_config(path), path.parent)


def menagerie_file(name: str) -> Path:
    """The model file of a Menagerie robot: below MENAGERIE_ROOT if that is set, else fetched once into a cache."""
    try:
        import mujoco_menagerie as menagerie
    except ImportError:
        raise BadInput(f"{MENAGERIE_PREFIX}{name} needs the package mujoco-menagerie.") from None
    root = os.environ.get("MENAGERIE_ROOT")
    if root and not Path(root).is_dir():
        raise BadInput(f"MENAGERIE_ROOT is {root}, which is not a folder.")
    names = [n for n in menagerie.names() if not root or (Path(root) / n).is_dir()]
    if name not in names:
        raise unknown_name("Menagerie robot", name, names, f"MENAGERIE_ROOT={root}" if root else "")
    robot = menagerie.get(name)
    try:
        return robot.xml(robot.default_model)
    except (menagerie.MenagerieError, OSError) as error:
        raise BadInput(
            f"cannot fetch {MENAGERIE_PREFIX}{name}: {error}; set MENAGERIE_ROOT to a local copy of Menagerie."
        ) from None


def build_robot(config: Config, folder: Path) -> Robot:
    path = (
        menagerie_file(config.model.removeprefix(MENAGERIE_PREFIX))
        if config.model.startswith(MENAGERIE_PREFIX)
        else folder / config.model
    )
    name = config.name or (
        config.model if config.model.startswith(MENAGERIE_PREFIX) else re.sub(r"[^\w.-]", "_", Path(config.model).stem)
    )
    spec, files = load_model_spec(path, name)
    add_missing_names(spec, config)
    model = compile_spec(spec, name)
    found = read_actuators(model, name)
    joints = tuple(model.joint(j).name for j in range(model.njnt) if model.jnt_type[j] in ONE_AXIS_JOINTS)
    free = free_joint(model, found)
    drive = drive_of(found, config, name)
    labels = tuple(a.joint for a in found) if all_drive_joints(found) else tuple(a.name for a in found)
    home, key_ctrl = home_of(model, config, free, joints)
    default = default_of(found, drive, model, home, key_ctrl, config)
    motors = motors_of(found, drive, config)
    low, high = limits_of(found, motors, model)
    if drive != "native":
        convert_to_torque_motors(spec, found, all_drive_joints(found))
    floor = add_floor(spec, model, bool(free))
    add_foot_sensors(spec, config.feet, config.where)
    base = base_of(model, found, config, free)
    xml = final_xml(spec, base, files, name)

    final = compile_spec(read_spec(xml, path.parent, name), name)
    if free and config.height is None and not model.nkey:
        home = raise_above_floor(final, home, floor, free)
    substeps = substeps_of(model, config)
    tick = substeps * float(model.opt.timestep)
    no_load = dict(zip(labels, motors.speed_limit, strict=False))
    signals, sources = signals_of(final, joints, free, config, no_load)
    default = np.clip(default, low, high)
    held = np.zeros(model.nu) if drive == "position" else default
    touched = floor if floor and touches_floor(final, floor, home, held, root_bodies(final, found, free)) else ""
    anatomy = ModelSize(final, joints, free, base, touched, found, labels, signals, motors, tick)
    space, prior = space_and_prior(apply_config(default_ranges(anatomy), config))
    safety = safety_of(anatomy, config, home, default, (low, high))
    damps = "" if safety.damping else ", whose damping mode can only switch them off"
    unit = unit_of(found, drive, model)
    floats = bool(free) and model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE
    root = Root(base, free) if floats else Root(final.body(min(root_bodies(final, found, free))).name)
    servo = drive == "position" or (drive == "native" and all(a.kind == "position" for a in found))
    robot = Robot(
        name=name,
        xml=xml,
        folder=path.parent.resolve(),
        contract=Contract(
            robot=name,
            rate=1.0 / tick,
            signals=signals,
            target=Signal("joint_target" if servo else "effort" if drive == "effort" else "ctrl", unit, labels, "", low, high),
            gains={"kp": motors.kp, "kd": motors.kd} if drive == "position" else {},
            safety=safety,
        ),
        sources=sources,
        motors=motors,
        morphology=infer_morphology(final, config, root, home, labels, drive, default),
        space=space,
        prior=prior,
        home=tuple(home.tolist()),
        default=tuple(default.tolist()),
        substeps=substeps,
        doc=f"{len(labels)} motors{damps}, {drive} drive at {1.0 / tick:g} Hz, from {path.name}",
    )
    vars(robot)["model"] = final  # the same text, compiled already
    parameter_binding.resolve_targets(robot)
    return robot
