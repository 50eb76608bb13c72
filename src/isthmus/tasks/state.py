"""The true state of all worlds at one tick, as reward terms see it. Tensors are float32, one row per world.

Quantities are computed when first asked for. The policy never sees this: it sees what the sensors measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.geometry import gravity_direction, rotate_inverse
from isthmus.data.contract import Signal
from isthmus.sim.indexing import driven_joint_columns
from isthmus.sim.robot import Robot


def signal_limits(signal: Signal) -> tuple[Tensor, Tensor]:
    """The lowest and the highest value of each component, (m,); infinite where there is no limit."""
    ends = (signal.low or (-float("inf"),) * signal.size, signal.high or (float("inf"),) * signal.size)
    low, high = (torch.tensor(end, dtype=torch.float32) for end in ends)
    return low, high


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

    def select(self, ids: Tensor) -> State:
        """The state of some worlds only."""
        return replace(self, **{name: getattr(self, name)[ids] for name in _PER_WORLD_FIELDS})

    def with_rows(self, ids: Tensor, other: State) -> State:
        """This state with worlds `ids` replaced by the rows of `other`; overwrites this one's tensors."""
        for name in _PER_WORLD_FIELDS:
            getattr(self, name)[ids] = getattr(other, name)
        return replace(self)

    @cached_property
    def quat(self) -> Tensor:
        return self.qpos[:, 3:7]

    @cached_property
    def lin_vel(self) -> Tensor:
        """Velocity of the base in its own frame, m/s."""
        return rotate_inverse(self.quat, self.qvel[:, :3])

    @property
    def ang_vel(self) -> Tensor:
        return self.qvel[:, 3:6]

    @cached_property
    def projected_gravity(self) -> Tensor:
        return gravity_direction(self.quat)

    @cached_property
    def height(self) -> Tensor:
        return self.qpos[:, 2] - self.ground

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
    } | more
    return State(**{f.name: known.get(f.name) for f in fields(State)})  # type: ignore[arg-type]


_PER_WORLD_FIELDS = [f.name for f in fields(State) if f.name not in ("default", "limits", "tick")]
