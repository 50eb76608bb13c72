"""The true state of all worlds at one tick, as reward terms see it. Tensors are float32, one row per world.

Quantities are computed when first asked for. The policy never sees this: it sees what the sensors measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from isthmus.core.geometry import gravity_direction, rotate_inverse
from isthmus.data.contract import Signal
from isthmus.sim.indexing import Indexing, RootColumns, driven_joint_columns
from isthmus.sim.robot import Robot


def signal_limits(signal: Signal) -> tuple[Tensor, Tensor]:
    """The lowest and the highest value of each component, (m,); infinite where there is no limit."""
    ends = (signal.low or (-float("inf"),) * signal.size, signal.high or (float("inf"),) * signal.size)
    low, high = (torch.tensor(end, dtype=torch.float32) for end in ends)
    return low, high


FREE_ROOT_FIRST = Indexing({"root": RootColumns(slice(0, 7), slice(0, 6))}, {}, {})
"""A free root in the first columns, and no names of joints."""


@dataclass
class RootView:
    """A body that moves freely: pose (n, 7), position m in the world and quaternion wxyz; velocity (n, 6) as MuJoCo has it."""

    pose: Tensor
    velocity: Tensor

    @property
    def position(self) -> Tensor:
        """(n, 3), m, in the world."""
        return self.pose[:, :3]

    @property
    def quat(self) -> Tensor:
        """(n, 4), wxyz."""
        return self.pose[:, 3:]

    @property
    def world_vel(self) -> Tensor:
        """Linear velocity in the world's frame, (n, 3), m/s."""
        return self.velocity[:, :3]

    @property
    def ang_vel(self) -> Tensor:
        """In the body's frame, (n, 3), rad/s."""
        return self.velocity[:, 3:]

    @cached_property
    def lin_vel(self) -> Tensor:
        """Linear velocity in the body's frame, (n, 3), m/s."""
        return rotate_inverse(self.quat, self.world_vel)

    @cached_property
    def projected_gravity(self) -> Tensor:
        """The world's down direction in the body's frame, (n, 3)."""
        return gravity_direction(self.quat)


@dataclass
class State:
    qpos: Tensor
    qvel: Tensor
    joint_pos: Tensor
    joint_vel: Tensor
    torque: Tensor
    target: Tensor
    """Targets in force, (n, m), and those of the two ticks before."""
    last_target: Tensor
    older_target: Tensor
    default: Tensor
    limits: tuple[Tensor, Tensor]
    """Lowest and highest target, (m,)."""
    command: Tensor
    tick: float
    """s per control tick."""
    time: Tensor
    """s since the start of the episode, (n,)."""
    ground: Tensor
    """Height of the ground under the base, (n,)."""
    feet_pos: Tensor
    """World positions, (n, feet, 3), and those of the tick before."""
    last_feet_pos: Tensor
    feet_ground: Tensor
    """Height of the ground under each foot, (n, feet)."""
    feet_force: Tensor
    """Contact force on each foot, N, (n, feet)."""
    last_feet_force: Tensor
    air_time: Tensor
    """Seconds since each foot last touched the ground, before this tick's touchdown cleared it, (n, feet)."""
    last_joint_vel: Tensor
    """Joint velocities of the tick before."""
    end_effector_pos: Tensor | None = None
    """World positions of the arms' end effectors, (n, arms, 3), m; None where the robot has no arm."""
    at: Indexing = FREE_ROOT_FIRST
    """Columns of qpos and qvel by name; by default a free root comes first."""

    def select(self, ids: Tensor) -> State:
        """The state of some worlds only."""
        return replace(self, **{name: getattr(self, name)[ids] for name in self._per_world_fields()})

    def with_rows(self, ids: Tensor, other: State) -> State:
        """This state with worlds `ids` replaced by the rows of `other`; overwrites this one's tensors."""
        for name in self._per_world_fields():
            getattr(self, name)[ids] = getattr(other, name)
        return replace(self)

    def _per_world_fields(self) -> list[str]:
        return [name for name in _PER_WORLD_FIELDS if getattr(self, name) is not None]

    def joint(self, name: str) -> tuple[Tensor, Tensor]:
        """Position and velocity of one hinge or slide joint, driven or not, (n,) each."""
        (q,), (v,) = self.at.joints((name,))
        return self.qpos[:, q], self.qvel[:, v]

    @cached_property
    def root(self) -> RootView:
        """The robot's own free root."""
        return RootView(self.qpos[:, self.at.root.qpos], self.qvel[:, self.at.root.qvel])

    @cached_property
    def roots(self) -> dict[str, RootView]:
        """Every body that moves freely, by name."""
        return {name: RootView(self.qpos[:, c.qpos], self.qvel[:, c.qvel]) for name, c in self.at.roots.items()}

    @property
    def quat(self) -> Tensor:
        """Orientation of the root, (n, 4), wxyz."""
        return self.root.quat

    @cached_property
    def lin_vel(self) -> Tensor:
        """Velocity of the base in its own frame, m/s."""
        return self.root.lin_vel

    @property
    def ang_vel(self) -> Tensor:
        return self.root.ang_vel

    @cached_property
    def projected_gravity(self) -> Tensor:
        return self.root.projected_gravity

    @cached_property
    def height(self) -> Tensor:
        return self.root.position[:, 2] - self.ground

    @cached_property
    def contact(self) -> Tensor:
        return self.feet_force > 1.0

    @cached_property
    def landed(self) -> Tensor:
        """Feet that touch now and did not a tick ago."""
        return self.contact & ~(self.last_feet_force > 1.0)

    @cached_property
    def feet_vel(self) -> Tensor:
        return (self.feet_pos - self.last_feet_pos) / self.tick

    @cached_property
    def commanded_to_move(self) -> Tensor:
        """1 where the command asks for motion, else 0."""
        return (self.command.norm(dim=1) > 0.1).float()


def state_from_recording(
    robot: Robot,
    qpos: np.ndarray,
    qvel: np.ndarray,
    targets: Sequence[np.ndarray],
    command: np.ndarray,
    time: np.ndarray,
    **more: Any,
) -> State:
    """n ticks that signals tell of, each as a world of its own on flat ground.

    qpos, (n, nq), qvel, (n, nv), targets now and at the two ticks before, (n, m) each, command, (n, k), and time, (n,), s. What
    neither they nor `more` say is None.
    """
    q, v, now, last, older, asked, at = (
        torch.from_numpy(np.ascontiguousarray(x)).float() for x in (qpos, qvel, *targets, command, time)
    )
    joints = driven_joint_columns(robot, robot.model) or ([], [])
    known = {
        "qpos": q,
        "qvel": v,
        "joint_pos": q[:, joints[0]],
        "joint_vel": v[:, joints[1]],
        "target": now,
        "last_target": last,
        "older_target": older,
        "default": torch.tensor(robot.default, dtype=torch.float32),
        "limits": signal_limits(robot.contract.target),
        "command": asked,
        "tick": 1.0 / robot.contract.rate,
        "time": at,
        "ground": torch.zeros(len(q)),
        "end_effector_pos": _end_effectors(robot, qpos),
        "at": Indexing.of(robot),
    } | more
    return State(**{f.name: known.get(f.name) for f in fields(State)})  # type: ignore[arg-type]


def _end_effectors(robot: Robot, qpos: np.ndarray) -> Tensor | None:
    """World positions of the arms' end effectors by forward kinematics, (n, arms, 3), m."""
    if not robot.morphology.arms:
        return None
    model, found = robot.model, np.zeros((len(qpos), len(robot.morphology.arms), 3))
    data, sites = mujoco.MjData(model), [model.site(arm.end_effector).id for arm in robot.morphology.arms]
    for i, q in enumerate(qpos):
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        found[i] = data.site_xpos[sites]
    return torch.from_numpy(found).float()


_PER_WORLD_FIELDS = [f.name for f in fields(State) if f.name not in ("default", "limits", "tick", "at")]
