"""Where each signal of a contract is found in the simulator's state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

import mujoco
import numpy as np

from isthmus.core.errors import BadInput, unknown_name
from isthmus.sim.robot import Robot

SignalSources = list[tuple[str, list[int]]]
"""For each signal the array that it is in, and its columns there."""
DrivenJoints = tuple[list[int], list[int]] | None
"""Columns of qpos and qvel of the joints behind targets; None where targets are no joints."""
_FREE_JOINT_SOURCES = {
    "pos": ("qpos", 0, 3),
    "quat": ("qpos", 3, 4),
    "linvel": ("qvel", 0, 3),
    "angvel": ("qvel", 3, 3),
    "accel": ("qacc", 0, 3),
}
"""Parts of a free joint. MuJoCo keeps its linear velocity in the world frame and its angular velocity in the body's. `accel`
is what an accelerometer at the joint says: acceleration without gravity, in the body's frame."""


@dataclass(frozen=True)
class RootColumns:
    """Columns of one free joint: position and quaternion in qpos, (7), linear and angular velocity in qvel, (6)."""

    qpos: slice
    qvel: slice


@dataclass(frozen=True)
class Indexing:
    """Columns of a model's state by name, resolved once."""

    roots: Mapping[str, RootColumns]
    """Bodies that move freely, the robot's own root first."""
    qpos: Mapping[str, int]
    """Column of qpos of each hinge and slide joint."""
    qvel: Mapping[str, int]
    """Column of qvel of each hinge and slide joint."""

    @staticmethod
    def of(robot: Robot, model: mujoco.MjModel | None = None) -> Indexing:
        """Of a model with the robot in it; by default of the robot's own."""
        m = robot.model if model is None else model
        roots, qpos, qvel = {}, {}, {}
        for j in range(m.njnt):
            q, v = int(m.jnt_qposadr[j]), int(m.jnt_dofadr[j])
            if m.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE:
                roots[m.body(int(m.jnt_bodyid[j])).name] = RootColumns(slice(q, q + 7), slice(v, v + 6))
            elif m.jnt_type[j] != mujoco.mjtJoint.mjJNT_BALL:
                qpos[m.joint(j).name], qvel[m.joint(j).name] = q, v
        first = [robot.morphology.base] if robot.morphology.base in roots else []
        return Indexing({name: roots[name] for name in dict.fromkeys([*first, *roots])}, qpos, qvel)

    @property
    def root(self) -> RootColumns:
        """The robot's own free root."""
        if not self.roots:
            raise BadInput("no body of this robot moves freely: it has joints only.")
        return next(iter(self.roots.values()))

    def joints(self, names: Iterable[str]) -> tuple[list[int], list[int]]:
        """Columns of qpos and qvel of hinge and slide joints, in the order of the names."""
        names = tuple(names)
        for name in names:
            if name not in self.qpos:
                raise unknown_name("joint", name, self.qpos)
        return [self.qpos[name] for name in names], [self.qvel[name] for name in names]


def signal_sources(robot: Robot, model: mujoco.MjModel) -> SignalSources:
    """For each signal, in the contract's order: the array (qpos, qvel, qacc or sensordata) and its columns there."""
    found = []
    for signal in robot.contract.signals:
        source = robot.sources.get(signal.name)
        if source is None:
            raise BadInput(f"robot {robot.name} has no source for its signal {signal.name!r}.")
        array, columns = _source_columns(source, signal.labels, model, f"signal {signal.name!r} of {robot.name}")
        if len(columns) != signal.size:
            raise BadInput(f"signal {signal.name!r} of {robot.name} has {signal.size} labels but {len(columns)} values.")
        found.append((array, columns))
    return found


def sources_at_rotors(sources: SignalSources, joints: tuple[list[int], list[int]]) -> SignalSources:
    """The same, with driven joints seen on the motor's side of their gears; `joints` as of `target_joints`."""
    driven = {("qpos", c): ("rotor", i) for i, c in enumerate(joints[0])}
    driven |= {("qvel", c): ("rotor_speed", i) for i, c in enumerate(joints[1])}
    seen = [[driven.get((array, c), (array, c)) for c in columns] for array, columns in sources]
    return [(array, [c for _, c in run]) for row in seen for array, run in groupby(row, key=lambda at: at[0])]


def as_slice(columns: list[int]) -> slice | np.ndarray:
    """A slice where the columns are consecutive: NumPy then needs no copy."""
    if columns == list(range(columns[0], columns[0] + len(columns))):
        return slice(columns[0], columns[0] + len(columns))
    return np.array(columns)


def driven_joint_columns(robot: Robot, model: mujoco.MjModel) -> DrivenJoints:
    """Columns of qpos and qvel of the joints behind the targets, or None where targets are not joints."""
    joints = [mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, name) for name in robot.contract.target.labels]
    if min(joints) < 0:
        return None
    return [int(model.jnt_qposadr[j]) for j in joints], [int(model.jnt_dofadr[j]) for j in joints]


def driven_link_columns(robot: Robot) -> tuple[slice | np.ndarray, slice | np.ndarray]:
    """The same of the robot's own model, whatever rotors an engine adds to it; empty where targets are not joints."""
    found = driven_joint_columns(robot, robot.model)
    return (slice(0), slice(0)) if found is None else (as_slice(found[0]), as_slice(found[1]))


def drives_joints(robot: Robot) -> bool:
    """Whether a motor of ours drives each joint behind the targets."""
    return robot.motors.drive != "native" and driven_joint_columns(robot, robot.model) is not None


def _source_columns(source: str, labels: tuple[str, ...], model: mujoco.MjModel, where: str) -> tuple[str, list[int]]:
    kind, _, name = source.partition(":")
    if kind in ("qpos", "qvel"):
        address = model.jnt_qposadr if kind == "qpos" else model.jnt_dofadr
        return kind, [int(address[_joint_id(model, label, where)]) for label in labels]
    if kind in _FREE_JOINT_SOURCES:
        array, start, size = _FREE_JOINT_SOURCES[kind]
        joint = _joint_id(model, name, where)
        if model.jnt_type[joint] != mujoco.mjtJoint.mjJNT_FREE:
            raise BadInput(f"{where}: joint {name!r} is not a free joint.")
        first = int((model.jnt_qposadr if array == "qpos" else model.jnt_dofadr)[joint]) + start
        return array, list(range(first, first + size))
    if kind == "sensor":
        i = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, name)
        if i < 0:
            names = [model.sensor(k).name for k in range(model.nsensor)]
            raise unknown_name("sensor", name, names, where)
        first = int(model.sensor_adr[i])
        return "sensordata", list(range(first, first + int(model.sensor_dim[i])))
    raise unknown_name("source", kind, ["qpos", "qvel", *_FREE_JOINT_SOURCES, "sensor"], where)


def _joint_id(model: mujoco.MjModel, name: str, where: str) -> int:
    i = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, name)
    if i < 0:
        raise unknown_name("joint", name, [model.joint(k).name for k in range(model.njnt)], where)
    return i
