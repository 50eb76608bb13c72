"""Mass, centre of mass and rotational inertia of a body, changed together so that they stay one rigid body.

A body's ten inertial numbers are not independent. We never change one of them alone: `vary` scales the density
(mass and inertia together), shifts the distribution (the centre moves, the inertia about it stays) and adds a
payload (a small solid sphere, through the parallel-axis theorem). Any such body could be built.
"""

from __future__ import annotations

import numpy as np

from isthmus.core.geometry import from_matrix, to_matrix

PAYLOAD_RADIUS = 0.05
"""m; a payload is a solid sphere, of this radius unless said otherwise, so that it has an inertia of its own."""


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
    axes = to_matrix(quat)
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
    return total, centre, from_matrix(vectors), principal


def pseudo_inertia(mass: np.ndarray, com: np.ndarray, quat: np.ndarray, inertia: np.ndarray) -> np.ndarray:
    """The 4 x 4 matrix of mass moments, (..., 4, 4); positive definite exactly when the body can exist."""
    axes = to_matrix(quat)
    second = 0.5 * inertia.sum(-1)[..., None] - inertia
    out = np.zeros((*np.shape(mass), 4, 4))
    moment = axes @ (second[..., :, None] * np.swapaxes(axes, -1, -2))
    out[..., :3, :3] = moment + mass[..., None, None] * com[..., :, None] * com[..., None, :]
    out[..., :3, 3] = out[..., 3, :3] = mass[..., None] * com
    out[..., 3, 3] = mass
    return out
