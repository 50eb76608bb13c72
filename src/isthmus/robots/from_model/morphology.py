"""What a robot has, read from its model: feet from the config or from what stands on the ground, rotors, an arm.

Nothing is added to the model for it: what has no name cannot be named, and a config helps (`feet`, `end_effector`).
"""

from __future__ import annotations

import re

import mujoco
import numpy as np

from isthmus.core.errors import unknown_name
from isthmus.robots.from_model.config import Config
from isthmus.robots.from_model.edit_model import ONE_AXIS_JOINTS
from isthmus.sim.morphology import Arm, CameraMount, Foot, Leg, Morphology, PayloadMount, Root, Rotor
from isthmus.sim.robot import Drive

FOOT_HEIGHT_TOLERANCE = 0.02
"""m above the robot's lowest point at home up to which a geom belongs to a foot."""
MIN_LEG_JOINTS = 2
"""A chain of one joint that stands on the ground is a wheel or a skid."""
MIN_ARM_JOINTS = 2
MAX_LEGS = 8
END_EFFECTOR_NAME = re.compile(r"ee|eef|end_?effector|tcp|tool|tip|grip|pinch|attachment|hand", re.IGNORECASE)


def infer_morphology(
    model: mujoco.MjModel,
    config: Config,
    root: Root,
    home: np.ndarray,
    labels: tuple[str, ...],
    drive: Drive,
    default: np.ndarray,
) -> Morphology:
    """Of a compiled model; `labels` and `default` are those of the contract's target."""
    rotors = _rotors(model, labels) if root.joint and drive == "effort" and min(default) > 0 else ()
    at_home = _kinematics(model, home)
    feet = tuple(Foot.of_geom(geom) for geom in config.feet)
    if not feet and root.joint and not rotors:
        feet = _standing_feet(model, at_home, root)
    return Morphology(
        roots=(root,),
        legs=tuple(_leg(model, at_home, foot) for foot in feet),
        arms=() if root.joint or rotors else _arms(model, config, labels),
        rotors=rotors,
        cameras=tuple(_camera(model, i) for i in range(model.ncam)),
        payload=PayloadMount(at=config.payload_at),  # type: ignore[arg-type]
    )


def _kinematics(model: mujoco.MjModel, home: np.ndarray) -> mujoco.MjData:
    data = mujoco.MjData(model)
    data.qpos[:] = home
    mujoco.mj_kinematics(model, data)
    return data


def _rotors(model: mujoco.MjModel, labels: tuple[str, ...]) -> tuple[Rotor, ...]:
    """One for each motor, if all of them push along z of a site."""
    on_sites = (model.actuator_trntype == int(mujoco.mjtTrn.mjTRN_SITE)).all()
    if not on_sites or not (model.actuator_gear[:, 2] == 1).all():
        return ()
    sites = [model.site(int(model.actuator_trnid[i, 0])).name for i in range(model.nu)]
    return tuple(
        Rotor(label, site, int(np.sign(model.actuator_gear[i, 5])))
        for i, (label, site) in enumerate(zip(labels, sites, strict=True))
    )


def chain(model: mujoco.MjModel, body: int) -> tuple[str, ...]:
    """Hinge and slide joints between the world and a body, the outermost last."""
    names: list[str] = []
    while body > 0:
        first, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
        own = [j for j in range(first, first + count) if int(model.jnt_type[j]) in ONE_AXIS_JOINTS]
        names = [model.joint(j).name for j in own] + names
        body = int(model.body_parentid[body])
    return tuple(names)


def _standing_feet(model: mujoco.MjModel, at_home: mujoco.MjData, root: Root) -> tuple[Foot, ...]:
    """Bodies at the ends of different chains whose named geoms are lowest at home; none where that is not clear."""
    own = model.body_rootid == model.body_rootid[model.body(root.body).id]
    collides = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    geoms = [g for g in range(model.ngeom) if own[model.geom_bodyid[g]] and collides[g]]
    if not geoms:
        return ()
    lowest = {g: _lowest_point(model, at_home, g) for g in geoms}
    ground = min(lowest.values())
    feet: dict[int, list[str]] = {}
    for g in geoms:
        if lowest[g] < ground + FOOT_HEIGHT_TOLERANCE:
            names = feet.setdefault(int(model.geom_bodyid[g]), [])
            names += [model.geom(g).name] if model.geom(g).name else []
    chains = [chain(model, body) for body in feet]
    joints = [joint for names in chains for joint in names]
    named = all(feet.values())
    long_enough = all(len(names) >= MIN_LEG_JOINTS for names in chains)
    if not named or not long_enough or len(joints) != len(set(joints)) or not 2 <= len(feet) <= MAX_LEGS:
        return ()
    return tuple(Foot(tuple(names), names[0], names[0].removesuffix("_foot") + "_contact") for names in feet.values())


def _lowest_point(model: mujoco.MjModel, at_home: mujoco.MjData, geom: int) -> float:
    """Lowest z of a geom's bounding box, m."""
    up = at_home.geom_xmat[geom].reshape(3, 3)[2]
    centre, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
    return float(at_home.geom_xpos[geom, 2] + up @ centre - np.abs(up) @ half)


def _leg(model: mujoco.MjModel, at_home: mujoco.MjData, foot: Foot) -> Leg:
    geom = model.geom(foot.geoms[0]).id
    left = float(at_home.geom_xpos[geom, 1])
    side = "left" if left > 1e-3 else "right" if left < -1e-3 else ""
    return Leg(foot.site.removesuffix("_foot"), side, chain(model, int(model.geom_bodyid[geom])), foot)


def _arms(model: mujoco.MjModel, config: Config, labels: tuple[str, ...]) -> tuple[Arm, ...]:
    """The longest chain of driven joints that ends in a site; none without such a site."""
    sites = [model.site(i).name for i in range(model.nsite)]
    if config.end_effector:
        if config.end_effector not in sites:
            raise unknown_name("site", config.end_effector, [s for s in sites if s], f"'end_effector' of {config.where}")
        sites = [config.end_effector]
    chains = {site: chain(model, int(model.site(site).bodyid[0])) for site in sites if site}
    chains = {site: names for site, names in chains.items() if len(names) >= MIN_ARM_JOINTS and set(names) <= set(labels)}
    if not chains:
        return ()
    best = max(chains, key=lambda site: (len(chains[site]), bool(END_EFFECTOR_NAME.search(site))))
    gripper = tuple(label for label in labels if label not in chains[best])
    return (Arm("arm", "", chains[best], best, gripper),)


def _camera(model: mujoco.MjModel, i: int) -> CameraMount:
    return CameraMount(model.camera(i).name, model.body(int(model.cam_bodyid[i])).name)
