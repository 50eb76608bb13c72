"""Reward terms: small pure functions of the state, (n,) each. Weights live in the tasks.

Terms named for something good are positive; terms named for something bad are costs and get negative weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from isthmus.tasks.state import State


def track_velocity(s: State, width: float = 0.25) -> Tensor:
    """exp(-|v - command|² / width) for the horizontal velocity; width in (m/s)²."""
    error = (s.command[:, :2] - s.lin_vel[:, :2]).square().sum(1)
    return torch.exp(-error / width)


def track_yaw(s: State, width: float = 0.25) -> Tensor:
    """exp(-(ω - command)² / width) for the turning rate; width in (rad/s)²."""
    return torch.exp(-(s.command[:, 2] - s.ang_vel[:, 2]).square() / width)


def energy(s: State) -> Tensor:
    """Mechanical power that the motors put in or brake away, W."""
    return (s.torque * s.joint_vel).abs().sum(1)


def effort(s: State) -> Tensor:
    """Sum of squared torques, (N·m)²: heat in the windings."""
    return s.torque.square().sum(1)


def tilt(s: State) -> Tensor:
    """Squared sine of the angle between the body's and the world's vertical."""
    return s.projected_gravity[:, :2].square().sum(1)


def bounce(s: State) -> Tensor:
    """Squared vertical velocity of the body, (m/s)²."""
    return s.lin_vel[:, 2].square()


def wobble(s: State) -> Tensor:
    """Squared roll and pitch rates, (rad/s)²."""
    return s.ang_vel[:, :2].square().sum(1)


def height_error(s: State, height: float) -> Tensor:
    """Squared distance of the body from its height above ground, m²."""
    return (s.height - height).square()


def joint_acceleration(s: State) -> Tensor:
    """Sum of squared joint accelerations, (rad/s²)²."""
    return ((s.joint_vel - s.last_joint_vel) / s.tick).square().sum(1)


def action_rate(s: State) -> Tensor:
    """Sum of squared changes of the targets since the last tick."""
    return (s.target - s.last_target).square().sum(1)


def action_jerk(s: State) -> Tensor:
    """Sum of squared second differences of the targets: what a motor turns into noise and heat."""
    return (s.target - 2 * s.last_target + s.older_target).square().sum(1)


def joint_limits(s: State, margin: float = 0.05) -> Tensor:
    """How far joints are inside the last `margin` (a fraction of the range) before their limits, rad."""
    low, high = s.limits
    room = margin * (high - low)
    return ((low + room - s.joint_pos).clamp_min(0) + (s.joint_pos - high + room).clamp_min(0)).sum(1)


def pose(s: State) -> Tensor:
    """Sum of squared distances of the joints from the default pose, rad²."""
    return (s.joint_pos - s.default).square().sum(1)


def pose_at_rest(s: State) -> Tensor:
    """The same, only while the command is to stand still."""
    return pose(s) * (1 - s.commanded_to_move)


def slip(s: State) -> Tensor:
    """Squared horizontal speed of feet that carry load, (m/s)²."""
    held = s.contact & (s.last_feet_force > 1.0)
    return (s.feet_vel[..., :2].square().sum(-1) * held).sum(1)


def impact(s: State, force_threshold: float = 100.0) -> Tensor:
    """Contact force above `gentle`, in units of it: hard landings."""
    return (s.feet_force / force_threshold - 1.0).clamp_min(0).sum(1)


def foot_clearance(s: State, height: float = 0.08) -> Tensor:
    """Squared miss of the swing height, weighted with how fast the foot moves sideways."""
    above = s.feet_pos[..., 2] - s.feet_ground
    speed = s.feet_vel[..., :2].norm(dim=-1)
    return ((above - height).square() * speed * ~s.contact).sum(1)


def air_time(s: State, target_air_time: float = 0.25) -> Tensor:
    """Given at touchdown: how much longer than `enough` the foot was in the air, s; only while asked to move."""
    return ((s.air_time - target_air_time) * s.landed).sum(1) * s.commanded_to_move


def asymmetry(s: State, right: Sequence[int] = (0, 2), left: Sequence[int] = (1, 3)) -> Tensor:
    """Squared difference between the left and right feet's load, in units of the total; `right` and `left` index the feet."""
    right_load, left_load = s.feet_force[:, list(right)].sum(1), s.feet_force[:, list(left)].sum(1)
    return ((left_load - right_load) / (left_load + right_load).clamp_min(1.0)).square()


def alive(s: State) -> Tensor:
    return torch.ones_like(s.time)


# Terminations: True where the episode ends in failure ----------------------------------------------------------


def fell(s: State, min_height: float = 0.16, min_up_cosine: float = 0.5) -> Tensor:
    """The body is closer than `lowest` m to the ground, or its up axis is below `steepest` (cosine)."""
    return (s.height < min_height) | (-s.projected_gravity[:, 2] < min_up_cosine)
