"""Positions of a model and the directions in which they can move: a quaternion has four numbers but three directions."""

from __future__ import annotations

import numpy as np

import mujoco
from isthmus.core.geometry import rotate_by_vector

_FREE, _BALL = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_BALL)
_SCALAR = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))


def dof_of(model: mujoco.MjModel, column: int) -> int:
    """The direction of motion that belongs to a column of qpos; -1 for the first number of a quaternion."""
    for j in range(model.njnt):
        q, v, kind = int(model.jnt_qposadr[j]), int(model.jnt_dofadr[j]), int(model.jnt_type[j])
        if kind in _SCALAR and q == column:
            return v
        if kind == _FREE and q <= column < q + 7 and column != q + 3:
            return v + column - q - (column > q + 3)
        if kind == _BALL and q < column < q + 4:
            return v + column - q - 1
    return -1


def integrate(model: mujoco.MjModel, qpos: np.ndarray, step: np.ndarray) -> np.ndarray:
    """qpos ⊕ step, (n, nq) and (n, nv): quaternions turn, all else adds."""
    out = qpos.copy()
    for j in range(model.njnt):
        q, v, kind = int(model.jnt_qposadr[j]), int(model.jnt_dofadr[j]), int(model.jnt_type[j])
        if kind in _SCALAR:
            out[:, q] += step[:, v]
            continue
        if kind == _FREE:
            out[:, q : q + 3] += step[:, v : v + 3]
            q, v = q + 3, v + 3
        out[:, q : q + 4] = rotate_by_vector(out[:, q : q + 4], step[:, v : v + 3])
    return out


def rate_is_velocity(model: mujoco.MjModel, column: int) -> bool:
    """Whether the rate of change of a column of qpos is a velocity: not so for the numbers of a quaternion."""
    for j in range(model.njnt):
        q, kind = int(model.jnt_qposadr[j]), int(model.jnt_type[j])
        if (kind in _SCALAR and q == column) or (kind == _FREE and q <= column < q + 3):
            return True
    return False
