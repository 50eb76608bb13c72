"""What a model says of its robot: how it is driven, within which limits, where it rests and what it senses."""

from __future__ import annotations

import mujoco
import numpy as np

from isthmus.data.contract import NO_LIMIT, Signal, xyz
from isthmus.errors import BadInput, unknown
from isthmus.robots.external.anatomy import moving_bodies, roots
from isthmus.robots.external.config import Config, per_joint
from isthmus.robots.external.model import Actuator
from isthmus.sim.robot import Drive, Motors

MAX_SUBSTEPS = 1000


def on_joints(found: tuple[Actuator, ...]) -> bool:
    """Every actuator drives a joint of its own."""
    return all(a.joint for a in found) and len({a.joint for a in found}) == len(found)


def free_joint(model: mujoco.MjModel, found: tuple[Actuator, ...]) -> str:
    """The free joint that carries the actuators, or the first one."""
    free = [j for j in range(model.njnt) if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE]
    driven = {int(model.body_rootid[model.joint(a.joint).bodyid[0]]) for a in found if a.joint}
    carrying = [j for j in free if int(model.body_rootid[model.jnt_bodyid[j]]) in driven]
    if driven and not carrying:
        return ""
    return model.joint((carrying or free)[0]).name if free else ""


def drive_of(found: tuple[Actuator, ...], config: Config, name: str) -> Drive:
    plain = all(a.kind == "motor" for a in found)
    drive = config.drive or ("position" if config.kp is not None else "effort" if plain else "native")
    if drive == "position" and not on_joints(found):
        raise BadInput(f"{name} cannot have drive 'position': not every actuator drives a hinge or slide joint of its own.")
    if drive == "effort" and not plain and not on_joints(found):
        raise BadInput(f"{name} cannot have drive 'effort': some actuators are neither motors nor drive a joint of their own.")
    if drive == "native" and (config.kp, config.kd, config.torque_limit) != (None, None, None):
        raise BadInput(f"{config.where}: kp, kd and torque_limit do nothing with drive 'native', which uses the model's own.")
    if drive == "effort" and (config.kp, config.kd) != (None, None):
        raise BadInput(f"{config.where}: kp and kd do nothing with drive 'effort'.")
    return drive  # type: ignore[return-value]


def motors_of(found: tuple[Actuator, ...], drive: Drive, config: Config) -> Motors:
    if drive == "native":
        return Motors("native")
    names = [a.joint or a.name for a in found]
    own = per_joint(config.torque_limit, names, "torque_limit", config.where) if config.torque_limit is not None else {}
    given = [a.limit if on_joints(found) else max(abs(a.ctrl[0]), abs(a.ctrl[1])) for a in found]
    limit = tuple(own.get(n, g) for n, g in zip(names, given, strict=True))
    if drive == "effort":
        return Motors("effort", torque_limit=limit, encoder=config.encoder)  # type: ignore[arg-type]
    gains: dict[str, tuple[float, ...]] = {}
    for what, value in (("kp", config.kp), ("kd", config.kd)):
        table = per_joint(value, names, what, config.where) if value is not None else {}
        gains[what] = tuple(table[a.joint] if a.joint in table else float(getattr(a, what)) for a in found)
    for joint, kp in zip(names, gains["kp"], strict=True):
        if kp <= 0:
            raise BadInput(f"{config.where}: drive 'position' needs a kp above zero for joint {joint!r}.")
    return Motors("position", **gains, torque_limit=limit, encoder=config.encoder)  # type: ignore[arg-type]


def limits_of(
    found: tuple[Actuator, ...], motors: Motors, model: mujoco.MjModel
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Lowest and highest target, in its own unit."""
    pairs = []
    for i, a in enumerate(found):
        if motors.drive == "position":
            joint = model.joint(a.joint)
            pair = tuple(joint.range) if model.jnt_limited[joint.id] else (-np.inf, np.inf)
        elif motors.drive == "native":
            pair = a.ctrl
        else:
            ends = sorted((a.ctrl[0] * a.gain, a.ctrl[1] * a.gain)) if on_joints(found) and a.kind == "motor" else a.ctrl
            free = on_joints(found) and a.kind != "motor"
            limit = motors.torque_limit[i]
            pair = (-limit, limit) if free else (max(ends[0], -limit), min(ends[1], limit))
        pairs.append((max(float(pair[0]), -NO_LIMIT), min(float(pair[1]), NO_LIMIT)))
    return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)


def home_of(model: mujoco.MjModel, config: Config, free: str, joints: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray | None]:
    """qpos at home, and ctrl there if a keyframe gives it."""
    names = [model.key(i).name for i in range(model.nkey)]
    key = model.key(names.index("home") if "home" in names else 0) if names else None
    home = np.array(key.qpos if key is not None else model.qpos0)
    for joint, value in config.pose.items():
        if joint not in joints:
            raise unknown("joint", joint, joints, f"'pose' of {config.where}")
        home[model.joint(joint).qposadr[0]] = value
    if config.height is not None:
        if not free:
            raise BadInput(f"{config.where}: 'height' is for a robot with a free base.")
        home[model.joint(free).qposadr[0] + 2] = config.height
    return home, np.array(key.ctrl) if key is not None and np.any(key.ctrl) else None


def default_of(
    found: tuple[Actuator, ...], drive: Drive, model: mujoco.MjModel, home: np.ndarray, ctrl: np.ndarray | None, config: Config
) -> np.ndarray:
    """Target at home: the keyframe's, the joint's own angle for servos, zero torque for motors."""
    at = np.array([home[model.joint(a.joint).qposadr[0]] if a.joint else 0.0 for a in found])
    if drive == "position":
        return at
    if ctrl is not None and drive == "effort" and on_joints(found):
        # Some keyframes hold joint angles where their motors take torques.
        angles = not all(a.kind == "motor" for a in found) or np.allclose(ctrl, at)
        return np.zeros(len(found)) if angles else ctrl * [a.gain for a in found]
    servo = [a.kind == "position" and (ctrl is None or a.joint in config.pose) for a in found]
    return np.where(servo, at, np.zeros(len(found)) if ctrl is None else ctrl)


def unit_of(found: tuple[Actuator, ...], drive: Drive, model: mujoco.MjModel) -> str:
    units = []
    for a in found:
        slides = a.joint and model.joint(a.joint).type[0] == mujoco.mjtJoint.mjJNT_SLIDE
        if drive == "position" or (drive == "native" and a.kind == "position" and a.joint):
            units.append("m" if slides else "rad")
        else:
            units.append(("N" if slides else "N·m") if a.joint and drive == "effort" else "1")
    return units[0] if len(set(units)) == 1 else ", ".join(units)


def base_of(model: mujoco.MjModel, found: tuple[Actuator, ...], config: Config, free: str) -> str:
    bodies = [model.body(b).name for b in range(1, model.nbody)]
    if config.base:
        if config.base not in bodies:
            raise unknown("body", config.base, bodies, f"'base' of {config.where}")
        return config.base
    if free:
        return model.body(model.joint(free).bodyid[0]).name
    depth = np.zeros(model.nbody, dtype=int)
    for b in range(1, model.nbody):
        depth[b] = depth[model.body_parentid[b]] + 1
    moving = moving_bodies(model, roots(model, found, free))
    return model.body(max(moving, key=lambda b: (depth[b], -b))).name if moving else ""


def substeps_of(model: mujoco.MjModel, config: Config) -> int:
    """Physics steps per control tick, the nearest to the rate."""
    steps = 1.0 / (config.rate * float(model.opt.timestep))
    if not 0.5 <= steps <= MAX_SUBSTEPS:
        lowest, highest = 1.0 / (MAX_SUBSTEPS * model.opt.timestep), 1.0 / model.opt.timestep
        raise BadInput(
            f"{config.where}: rate {config.rate:g} is not in {lowest:g} … {highest:g} Hz, which the model's timestep allows."
        )
    return max(1, round(steps))


def lifted(model: mujoco.MjModel, home: np.ndarray, floor: str, free: str) -> np.ndarray:
    """Home raised until nothing is in the ground."""
    data = mujoco.MjData(model)
    data.qpos[:] = home
    mujoco.mj_forward(model, data)
    ground = model.geom(floor).id
    depth = min((float(c.dist) for c in data.contact if ground in c.geom), default=0.0)
    out = home.copy()
    out[model.joint(free).qposadr[0] + 2] -= min(depth, 0.0)
    return out


def touches(model: mujoco.MjModel, floor: str, home: np.ndarray, ctrl: np.ndarray, own: set[int]) -> bool:
    """Whether the robot, left alone at home under constant ctrl, touches the ground within half a second.

    `own` are the root bodies of the robot.
    """
    data, ground = mujoco.MjData(model), model.geom(floor).id
    data.qpos[:], data.ctrl[:] = home, ctrl
    for _ in range(round(0.5 / model.opt.timestep)):
        mujoco.mj_step(model, data)
        met = {int(g) for c in data.contact if ground in c.geom for g in c.geom} - {ground}
        if any(int(model.body_rootid[model.geom_bodyid[g]]) in own for g in met):
            return True
    return False


def signals_of(
    model: mujoco.MjModel, joints: tuple[str, ...], free: str, config: Config, no_load: dict[str, float]
) -> tuple[tuple[Signal, ...], dict[str, str]]:
    """What the robot senses and where it comes from. A body without joints is flown with motion capture.

    `no_load` is the largest speed of joints whose motors tell it.
    """
    offered: dict[str, tuple[Signal, str]] = {}
    if joints:
        ranges = [model.joint(j).range if model.jnt_limited[model.joint(j).id] else (-NO_LIMIT, NO_LIMIT) for j in joints]
        low, high = (known(tuple(float(pair[i]) for pair in ranges)) for i in (0, 1))
        fastest = known(speeds_of(joints, config, no_load))
        slowest = tuple(-x for x in fastest)
        units = ["m" if model.joint(j).type[0] == mujoco.mjtJoint.mjJNT_SLIDE else "rad" for j in joints]
        unit = units[0] if len(set(units)) == 1 else ", ".join(units)
        speed = f"{units[0]}/s" if len(set(units)) == 1 else ", ".join(f"{u}/s" for u in units)
        offered["joint_pos"] = Signal("joint_pos", unit, joints, "", low, high), "qpos"
        offered["joint_vel"] = Signal("joint_vel", speed, joints, "", slowest, fastest), "qvel"
    if free:
        offered["gyro"] = xyz("gyro", "rad/s", "body"), f"angvel:{free}"
        offered["quat"] = Signal("quat", "1", ("w", "x", "y", "z"), "world"), f"quat:{free}"
        offered["position"] = xyz("position", "m", "world"), f"pos:{free}"
        offered["velocity"] = xyz("velocity", "m/s", "world"), f"linvel:{free}"
    chosen = [n for n in offered if not (joints and n in ("position", "velocity"))]
    for i in range(model.nsensor):
        name, size = model.sensor(i).name, int(model.sensor_dim[i])
        labels = ("x", "y", "z") if size == 3 else tuple(str(k) for k in range(size))
        if name and name not in offered:
            offered[name] = Signal(name, "1", labels), f"sensor:{name}"
    for name in config.sense:
        if name not in offered:
            raise unknown("signal", name, offered, f"'sense' of {config.where}")
    chosen = list(dict.fromkeys(config.sense)) or chosen
    for key, needed in (("tilt", "quat"), ("speed", "joint_vel")):
        if getattr(config.safety, key) and needed not in chosen:
            raise BadInput(f"{config.where}: {key!r} of 'safety' cannot be guarded without the signal {needed!r}.")
    return tuple(offered[n][0] for n in chosen), {n: offered[n][1] for n in chosen}


def speeds_of(joints: tuple[str, ...], config: Config, no_load: dict[str, float]) -> tuple[float, ...]:
    """Largest speed of each joint: the config's, else the no-load speed of its motor, else none."""
    given = config.safety.speed
    own = per_joint(given, joints, "speed", f"'safety' of {config.where}") if given is not None else {}
    return tuple(min(own.get(j, no_load.get(j, NO_LIMIT)), NO_LIMIT) for j in joints)


def known(limits: tuple[float, ...]) -> tuple[float, ...]:
    """Limits, or none where not one of them is one."""
    return limits if any(abs(x) < NO_LIMIT for x in limits) else ()
