"""Mass, centre of mass and rotational inertia of a body, changed together so that they stay one rigid body.

A body's ten inertial numbers are not independent. We never change one of them alone: `vary` scales the density
(mass and inertia together), shifts the distribution (the centre moves, the inertia about it stays) and adds a
payload (a small solid sphere, through the parallel-axis theorem). Any such body could be built.
"""

from __future__ import annotations

import numpy as np

PAYLOAD_RADIUS = 0.05
"""m; a payload is a solid sphere, of this radius unless said otherwise, so that it has an inertia of its own."""


def quat_to_mat(q: np.ndarray) -> np.ndarray:
    """Rotation matrices, (..., 3, 3), of unit quaternions (w, x, y, z), (..., 4)."""
    w, x, y, z = np.moveaxis(q, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def mat_to_quat(mat: np.ndarray) -> np.ndarray:
    """Unit quaternions (w, x, y, z) of rotation matrices, (..., 3, 3), by the largest of the four components."""
    m = mat
    trace = m[..., 0, 0] + m[..., 1, 1] + m[..., 2, 2]
    diagonal = np.stack([m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]], axis=-1)
    squares = np.concatenate([(1 + trace)[..., None], 1 - trace[..., None] + 2 * diagonal], axis=-1)
    a, b, c = m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]
    d, e, f = m[..., 1, 0] + m[..., 0, 1], m[..., 0, 2] + m[..., 2, 0], m[..., 2, 1] + m[..., 1, 2]
    candidates = np.stack(
        [
            np.stack([squares[..., 0], a, b, c], axis=-1),
            np.stack([a, squares[..., 1], d, e], axis=-1),
            np.stack([b, d, squares[..., 2], f], axis=-1),
            np.stack([c, e, f, squares[..., 3]], axis=-1),
        ],
        axis=-2,
    )
    best = np.argmax(squares, axis=-1)
    q = np.take_along_axis(candidates, best[..., None, None], axis=-2)[..., 0, :]
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


def point_inertia(r: np.ndarray) -> np.ndarray:
    """Inertia matrix per unit mass of a point at r, (..., 3) -> (..., 3, 3)."""
    return np.sum(r * r, axis=-1)[..., None, None] * np.eye(3) - r[..., :, None] * r[..., None, :]


def vary_rigid_body(
    mass: np.ndarray,
    com: np.ndarray,
    quat: np.ndarray,
    inertia: np.ndarray,
    density: np.ndarray,
    shift: np.ndarray,
    payload: np.ndarray,
    payload_position: np.ndarray,
    payload_radius: float = PAYLOAD_RADIUS,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return (mass, com, quat, inertia) of nominal bodies after a change.

    Args:
        mass, com, quat, inertia: nominal, shapes (...), (..., 3), (..., 4), (..., 3); inertia is principal.
        density: factor on the nominal mass and inertia, (...).
        shift: move of the nominal centre of mass in the body frame, m, (..., 3).
        payload: added mass, kg, (...).
        payload_at: its place in the body frame, m, (..., 3).
        payload_radius: of the sphere that it is, m.
    """
    axes = quat_to_mat(quat)
    own = axes @ (inertia[..., :, None] * np.swapaxes(axes, -1, -2))
    body_mass, body_com = density * mass, com + shift
    total = body_mass + payload
    centre = (body_mass[..., None] * body_com + payload[..., None] * payload_position) / total[..., None]
    sphere = 0.4 * payload_radius**2 * np.eye(3)
    about_centre = (
        density[..., None, None] * own
        + body_mass[..., None, None] * point_inertia(body_com - centre)
        + payload[..., None, None] * (point_inertia(payload_position - centre) + sphere)
    )
    principal, vectors = np.linalg.eigh(about_centre)
    vectors = vectors * np.sign(np.linalg.det(vectors))[..., None, None]
    return total, centre, mat_to_quat(vectors), principal


def pseudo_inertia(mass: np.ndarray, com: np.ndarray, quat: np.ndarray, inertia: np.ndarray) -> np.ndarray:
    """The 4 x 4 matrix of mass moments, (..., 4, 4); positive definite exactly when the body can exist."""
    axes = quat_to_mat(quat)
    second = 0.5 * inertia.sum(-1)[..., None] - inertia
    out = np.zeros((*np.shape(mass), 4, 4))
    moment = axes @ (second[..., :, None] * np.swapaxes(axes, -1, -2))
    out[..., :3, :3] = moment + mass[..., None, None] * com[..., :, None] * com[..., None, :]
    out[..., :3, 3] = out[..., 3, :3] = mass[..., None] * com
    out[..., 3, 3] = mass
    return out
