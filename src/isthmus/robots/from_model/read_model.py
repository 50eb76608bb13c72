"""What a model says of its robot: how it is driven, within which limits, where it rests and what it senses."""

from __future__ import annotations

import mujoco
import numpy as np

from isthmus.core.errors import BadInput, unknown_name
from isthmus.data.contract import NO_LIMIT, Signal, vector_signal
from isthmus.robots.from_model.config import Config, per_joint
from isthmus.robots.from_model.edit_model import Actuator
from isthmus.robots.from_model.size import moving_bodies, root_bodies
from isthmus.sim.robot import Drive, MotorParams

MAX_SUBSTEPS = 1000


def all_drive_joints(actuators: tuple[Actuator, ...]) -> bool:
    """Every actuator drives a joint of its own."""
    return all(a.joint for a in actuators) and len({a.joint for a in actuators}) == len(actuators)


def free_joint(model: mujoco.MjModel, actuators: tuple[Actuator, ...]) -> str:
    """The free joint that carries the actuators, or the first one."""
    free = [j for j in range(model.njnt) if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE]
    driven = {int(model.body_rootid[model.joint(a.joint).bodyid[0]]) for a in actuators if a.joint}
    carrying = [j for j in free if int(model.body_rootid[model.jnt_bodyid[j]]) in driven]
    if driven and not carrying:
        return ""
    return model.joint((carrying or free)[0]).name if free else ""


def drive_of(actuators: tuple[Actuator, ...], config: Config, name: str) -> Drive:
    plain = all(a.kind == "motor" for a in actuators)
    drive = config.drive or ("position" if config.kp is not None else "effort" if plain else "native")
    if drive == "position" and not all_drive_joints(actuators):
        raise BadInput(f"{name} cannot have drive 'position': not every actuator drives a hinge or slide joint of its own.")
    if drive == "effort" and not plain and not all_drive_joints(actuators):
        raise BadInput(f"{name} cannot have drive 'effort': some actuators are neither motors nor drive a joint of their own.")
    if drive == "native" and (config.kp, config.kd, config.torque_limit) != (None, None, None):
        raise BadInput(f"{config.where}: kp, kd and torque_limit do nothing with drive 'native', which uses the model's own.")
    if drive == "effort" and (config.kp, config.kd) != (None, None):
        raise BadInput(f"{config.where}: kp and kd do nothing with drive 'effort'.")
    return drive  # type: ignore[return-value]


def motors_of(actuators: tuple[Actuator, ...], drive: Drive, config: Config) -> MotorParams:
    if drive == "native":
        return MotorParams("native")
    names = [a.joint or a.name for a in actuators]
    own = per_joint(config.torque_limit, names, "torque_limit", config.where) if config.torque_limit is not None else {}
    given = [
        a.torque_limit if all_drive_joints(actuators) else max(abs(a.ctrl_range[0]), abs(a.ctrl_range[1])) for a in actuators
    ]
    limit = tuple(own.get(n, g) for n, g in zip(names, given, strict=True))
    if drive == "effort":
        return MotorParams("effort", torque_limit=limit, encoder=config.encoder)  # type: ignore[arg-type]
    gains: dict[str, tuple[float, ...]] = {}
    for what, value in (("kp", config.kp), ("kd", config.kd)):
        table = per_joint(value, names, what, config.where) if value is not None else {}
        gains[what] = tuple(table[a.joint] if a.joint in table else float(getattr(a, what)) for a in actuators)
    for joint, kp in zip(names, gains["kp"], strict=True):
        if kp <= 0:
            raise BadInput(f"{config.where}: drive 'position' needs a kp above zero for joint {joint!r}.")
    return MotorParams("position", **gains, torque_limit=limit, encoder=config.encoder)  # type: ignore[arg-type]


def limits_of(
    actuators: tuple[Actuator, ...], motors: MotorParams, model: mujoco.MjModel
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Lowest and highest target, in its own unit."""
    pairs = []
    for i, a in enumerate(actuators):
        if motors.drive == "position":
            joint = model.joint(a.joint)
            pair = tuple(joint.range) if model.jnt_limited[joint.id] else (-np.inf, np.inf)
        elif motors.drive == "native":
            pair = a.ctrl_range
        else:
            ends = (
                sorted((a.ctrl_range[0] * a.torque_per_ctrl, a.ctrl_range[1] * a.torque_per_ctrl))
                if all_drive_joints(actuators) and a.kind == "motor"
                else a.ctrl_range
            )
            free = all_drive_joints(actuators) and a.kind != "motor"
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
            raise unknown_name("joint", joint, joints, f"'pose' of {config.where}")
        home[model.joint(joint).qposadr[0]] = value
    if config.height is not None:
        if not free:
            raise BadInput(f"{config.where}: 'height' is for a robot with a free base.")
        home[model.joint(free).qposadr[0] + 2] = config.height
    return home, np.array(key.ctrl) if key is not None and np.any(key.ctrl) else None


def default_of(
    actuators: tuple[Actuator, ...],
    drive: Drive,
    model: mujoco.MjModel,
    home: np.ndarray,
    ctrl: np.ndarray | None,
    config: Config,
) -> np.ndarray:
    """Target at home: the keyframe's, the joint's own angle for servos, zero torque for motors."""
    at = np.array([home[model.joint(a.joint).qposadr[0]] if a.joint else 0.0 for a in actuators])
    if drive == "position":
        return at
    if ctrl is not None and drive == "effort" and all_drive_joints(actuators):
        # Some keyframes hold joint angles where their motors take torques.
        angles = not all(a.kind == "motor" for a in actuators) or np.allclose(ctrl, at)
        return np.zeros(len(actuators)) if angles else ctrl * [a.torque_per_ctrl for a in actuators]
    servo = [a.kind == "position" and (ctrl is None or a.joint in config.pose) for a in actuators]
    return np.where(servo, at, np.zeros(len(actuators)) if ctrl is None else ctrl)


def unit_of(actuators: tuple[Actuator, ...], drive: Drive, model: mujoco.MjModel) -> str:
    units = []
    for a in actuators:
        slides = a.joint and model.joint(a.joint).type[0] == mujoco.mjtJoint.mjJNT_SLIDE
        if drive == "position" or (drive == "native" and a.kind == "position" and a.joint):
            units.append("m" if slides else "rad")
        else:
            units.append(("N" if slides else "N·m") if a.joint and drive == "effort" else "1")
    return units[0] if len(set(units)) == 1 else ", ".join(units)


def base_of(model: mujoco.MjModel, actuators: tuple[Actuator, ...], config: Config, free: str) -> str:
    bodies = [model.body(b).name for b in range(1, model.nbody)]
    if config.base:
        if config.base not in bodies:
            raise unknown_name("body", config.base, bodies, f"'base' of {config.where}")
        return config.base
    if free:
        return model.body(model.joint(free).bodyid[0]).name
    depth = np.zeros(model.nbody, dtype=int)
    for b in range(1, model.nbody):
        depth[b] = depth[model.body_parentid[b]] + 1
    moving = moving_bodies(model, root_bodies(model, actuators, free))
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


def raise_above_floor(model: mujoco.MjModel, home: np.ndarray, floor: str, free: str) -> np.ndarray:
    """Home raised until nothing is in the ground."""
    data = mujoco.MjData(model)
    data.qpos[:] = home
    mujoco.mj_forward(model, data)
    ground = model.geom(floor).id
    depth = min((float(c.dist) for c in data.contact if ground in c.geom), default=0.0)
    out = home.copy()
    out[model.joint(free).qposadr[0] + 2] -= min(depth, 0.0)
    return out


def touches_floor(model: mujoco.MjModel, floor: str, home: np.ndarray, ctrl: np.ndarray, root_ids: set[int]) -> bool:
    """Whether the robot, left alone at home under constant ctrl, touches the ground within half a second.

    `own` are the root bodies of the robot.
    """
    data, ground = mujoco.MjData(model), model.geom(floor).id
    data.qpos[:], data.ctrl[:] = home, ctrl
    for _ in range(round(0.5 / model.opt.timestep)):
        mujoco.mj_step(model, data)
        met = {int(g) for c in data.contact if ground in c.geom for g in c.geom} - {ground}
        if any(int(model.body_rootid[model.geom_bodyid[g]]) in root_ids for g in met):
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
        low, high = (finite_limits_or_empty(tuple(float(pair[i]) for pair in ranges)) for i in (0, 1))
        fastest = finite_limits_or_empty(max_speeds_of(joints, config, no_load))
        slowest = tuple(-x for x in fastest)
        units = ["m" if model.joint(j).type[0] == mujoco.mjtJoint.mjJNT_SLIDE else "rad" for j in joints]
        unit = units[0] if len(set(units)) == 1 else ", ".join(units)
        speed = f"{units[0]}/s" if len(set(units)) == 1 else ", ".join(f"{u}/s" for u in units)
        offered["joint_pos"] = Signal("joint_pos", unit, joints, "", low, high), "qpos"
        offered["joint_vel"] = Signal("joint_vel", speed, joints, "", slowest, fastest), "qvel"
    if free:
        offered["gyro"] = vector_signal("gyro", "rad/s", "body"), f"angvel:{free}"
        offered["quat"] = Signal("quat", "1", ("w", "x", "y", "z"), "world"), f"quat:{free}"
        offered["position"] = vector_signal("position", "m", "world"), f"pos:{free}"
        offered["velocity"] = vector_signal("velocity", "m/s", "world"), f"linvel:{free}"
    chosen = [n for n in offered if not (joints and n in ("position", "velocity"))]
    for i in range(model.nsensor):
        name, size = model.sensor(i).name, int(model.sensor_dim[i])
        labels = ("x", "y", "z") if size == 3 else tuple(str(k) for k in range(size))
        if name and name not in offered:
            offered[name] = Signal(name, "1", labels), f"sensor:{name}"
    for name in config.sense:
        if name not in offered:
            raise unknown_name("signal", name, offered, f"'sense' of {config.where}")
    chosen = list(dict.fromkeys(config.sense)) or chosen
    for key, needed in (("tilt", "quat"), ("speed", "joint_vel")):
        if getattr(config.safety, key) and needed not in chosen:
            raise BadInput(f"{config.where}: {key!r} of 'safety' cannot be guarded without the signal {needed!r}.")
    return tuple(offered[n][0] for n in chosen), {n: offered[n][1] for n in chosen}


def max_speeds_of(joints: tuple[str, ...], config: Config, no_load: dict[str, float]) -> tuple[float, ...]:
    """Largest speed of each joint: the config's, else the no-load speed of its motor, else none."""
    given = config.safety.speed
    own = per_joint(given, joints, "speed", f"'safety' of {config.where}") if given is not None else {}
    return tuple(min(own.get(j, no_load.get(j, NO_LIMIT)), NO_LIMIT) for j in joints)


def finite_limits_or_empty(limits: tuple[float, ...]) -> tuple[float, ...]:
    """Limits, or none where not one of them is one."""
    return limits if any(abs(x) < NO_LIMIT for x in limits) else ()
