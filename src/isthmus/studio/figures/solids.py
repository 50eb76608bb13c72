"""A robot's model as a few hundred flat faces, small enough to be drawn by a page without help.

Every geom becomes a convex solid: primitives with few corners, meshes the hull of their outermost points. A picture is made by
drawing faces from far to near, which is right only where faces are small against the robot; so long ones are cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import ConvexHull, QhullError

from isthmus.studio.live.geoms import Geom, geom_colour, geom_mesh, geom_type, visible_geoms

TARGET_FACES = 2400
"""Of a scene, about: solids of a robot with many parts have fewer corners."""
MESH_CORNERS_RANGE = (12, 40)
"""Of a mesh's solid, fewest and most."""
MAX_SOLIDS = 160
"""The largest ones of a robot with more."""
MAX_FACE_LENGTH = 0.22
"""Of a face, in units of the robot's radius."""
MAX_CUTS = 12
"""Of a face, in a row: a floor that is a box is large against a robot."""
MAX_MESH_PIECES, MIN_PIECE_SIZE = 16, 0.1
"""Of a mesh: the largest ones, and the least size in units of the whole."""
MAX_UNSIMPLIFIED_CORNERS = 42
"""Corners of a solid that is left as it is: all primitives have fewer."""
CIRCLE_CORNERS = 10
"""Corners of a circle."""
FLAT_TOLERANCE = 1e-3
"""Directions that differ by less are one face."""


@dataclass(frozen=True)
class Solid:
    """A convex part that moves with one body."""

    body: int
    moves: bool
    """Whether that body can."""
    brightness: float
    """0 to 1: dark parts of the model stay darker than others."""
    corners: np.ndarray
    """(v, 3) in the body's frame, m."""
    faces: tuple[tuple[int, ...], ...]
    """Corners of each face, counter-clockwise seen from outside."""
    normals: np.ndarray
    """(f, 3) the directions in which they look."""


@dataclass(frozen=True)
class SolidScene:
    """What is drawn of a model. Poses of all of its bodies make a picture."""

    solids: tuple[Solid, ...]
    radius: float
    """m, of the robot as it is at home."""
    ground: float | None
    """Height of the level ground, m; None where there is none."""
    base: int
    """Body that can go away; 0 if the robot is fixed in place."""

    @property
    def framed_solids(self) -> list[Solid]:
        """Those that a picture must hold: what can move, and what is fixed but no larger than that; not a rail or a wall."""
        return [s for s in self.solids if s.moves or _diagonal(s.corners) < self.radius] or list(self.solids)

    @property
    def bodies(self) -> list[int]:
        """Those with a solid."""
        return sorted({s.body for s in self.solids})


def solid_scene(model: mujoco.MjModel, base: str = "") -> SolidScene:
    """`base` names the free body to look at; by default the first."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    grounds = (Geom.mjGEOM_PLANE, Geom.mjGEOM_HFIELD)
    geoms = [g for g in visible_geoms(model) if geom_type(model, g) not in grounds]
    own = [g for g in geoms if model.body_weldid[model.geom_bodyid[g]]] or geoms
    places = data.geom_xpos[own] if own else np.zeros((1, 3))
    away = np.linalg.norm(places - (places.min(0) + places.max(0)) / 2, axis=1) + (model.geom_rbound[own] if own else 0.1)
    radius = float(away.max())
    parts = [(g, points) for g in geoms for points in _convex_parts(model, g)]
    parts = sorted(parts, key=lambda part: -_diagonal(part[1]))[:MAX_SOLIDS]
    corners = int(np.clip(TARGET_FACES / max(len(parts), 1) / 2, *MESH_CORNERS_RANGE))
    longest = lambda points: max(MAX_FACE_LENGTH * radius, _diagonal(points) / MAX_CUTS)  # noqa: E731
    made = [_hull_solid(model, g, _extreme_points(points, corners), longest(points)) for g, points in parts]
    level = [
        g
        for g in visible_geoms(model)
        if geom_type(model, g) == Geom.mjGEOM_PLANE and data.geom_xmat[g, 8] > 1.0 - FLAT_TOLERANCE
    ]
    free = [int(b) for b, kind in zip(model.jnt_bodyid, model.jnt_type, strict=True) if kind == mujoco.mjtJoint.mjJNT_FREE]
    named = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, base) if base else -1
    return SolidScene(
        solids=tuple(solid for solid in made if solid is not None),
        radius=radius,
        ground=float(data.geom_xpos[level[0], 2]) if level else None,
        base=named if named in free else (free[0] if free else 0),
    )


def _hull_solid(model: mujoco.MjModel, geom: int, points: np.ndarray, longest: float) -> Solid | None:
    """The hull of points, (v, 3), in the geom's frame."""
    try:
        hull = ConvexHull(points)
    except (QhullError, ValueError):
        return None  # flat or empty
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, model.geom_quat[geom])
    placed = points @ turn.reshape(3, 3).T + model.geom_pos[geom]
    pieces = [piece for face in _hull_faces(hull) for piece in _cut_face(placed[face], longest)]
    joined, index = np.unique(np.concatenate(pieces).round(6), axis=0, return_inverse=True)
    ends = np.cumsum([len(p) for p in pieces])
    faces = tuple(tuple(int(i) for i in part) for part in np.split(index.ravel(), ends[:-1]))
    light = float(geom_colour(model, geom)[:3] @ [0.3, 0.6, 0.1])
    body = int(model.geom_bodyid[geom])
    normals = np.array([_normal(joined[list(face)]) for face in faces])
    return Solid(body, bool(model.body_weldid[body]), light, joined, faces, normals)


def _normal(face: np.ndarray) -> np.ndarray:
    n = _cross(face, np.concatenate([face[1:], face[:1]])).sum(axis=0)
    return n / max(float(np.linalg.norm(n)), 1e-15)


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a x b of vectors, (…, 3): NumPy's own takes ten times as long for a few of them."""
    turn, back = np.array([1, 2, 0]), np.array([2, 0, 1])
    return a.take(turn, -1) * b.take(back, -1) - a.take(back, -1) * b.take(turn, -1)


def _convex_parts(model: mujoco.MjModel, geom: int) -> list[np.ndarray]:
    """Points of convex parts that make up a geom, (v, 3) each, in its own frame."""
    kind, size = geom_type(model, geom), model.geom_size[geom]
    turns = np.arange(CIRCLE_CORNERS) * 2 * np.pi / CIRCLE_CORNERS
    ring = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    if kind == Geom.mjGEOM_CYLINDER:
        return [np.concatenate([np.insert(size[0] * ring, 2, z, axis=1) for z in (-size[1], size[1])])]
    if kind in (Geom.mjGEOM_SPHERE, Geom.mjGEOM_ELLIPSOID, Geom.mjGEOM_CAPSULE):
        radii = size if kind == Geom.mjGEOM_ELLIPSOID else np.full(3, size[0])
        half = size[1] if kind == Geom.mjGEOM_CAPSULE else 0.0
        rings = []
        for up in (-1.0, 1.0):
            for angle in (0.0, 0.25 * np.pi):
                part = np.insert(np.cos(angle) * ring, 2, up * np.sin(angle), axis=1)
                rings.append(part * radii + [0.0, 0.0, up * half])
            rings.append(np.array([[0.0, 0.0, up * (radii[2] + half)]]))
        return [np.unique(np.concatenate(rings).round(9), axis=0)]
    points, triangles = geom_mesh(model, geom)
    return _mesh_pieces(points, triangles) if kind == Geom.mjGEOM_MESH else [points]


def _mesh_pieces(points: np.ndarray, triangles: np.ndarray) -> list[np.ndarray]:
    """Those of a mesh that hang together, the largest ones: often a mesh is many parts, with nothing between them."""
    # Meshes may hold a corner once for every face.
    points, same = np.unique(points.round(6), axis=0, return_inverse=True)
    triangles, n = same.ravel()[triangles], len(points)
    edges = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]]])
    _, names = connected_components(coo_array((np.ones(len(edges)), edges.T), shape=(n, n)), directed=False)
    order = np.argsort(names, kind="stable")
    pieces = np.split(points[order], np.flatnonzero(np.diff(names[order])) + 1)
    largest = sorted(pieces, key=lambda piece: -_diagonal(piece))[:MAX_MESH_PIECES]
    return [piece for piece in largest if _diagonal(piece) > MIN_PIECE_SIZE * _diagonal(points)]


def _diagonal(points: np.ndarray) -> float:
    """Diagonal of the box around them."""
    return float(np.linalg.norm(np.ptp(points, axis=0))) if len(points) else 0.0


def _extreme_points(points: np.ndarray, corners: int) -> np.ndarray:
    """At most so many of the points, in directions spread evenly over the sphere."""
    if len(points) <= max(corners, MAX_UNSIMPLIFIED_CORNERS):
        return points
    i = np.arange(corners) + 0.5
    polar, around = np.arccos(1 - 2 * i / corners), np.pi * (1 + 5**0.5) * i
    ways = np.stack([np.cos(around) * np.sin(polar), np.sin(around) * np.sin(polar), np.cos(polar)], axis=1)
    return points[np.unique((points @ ways.T).argmax(axis=0))]


def _hull_faces(hull: ConvexHull) -> list[np.ndarray]:
    """Corners of every flat face, counter-clockwise seen from outside."""
    normals, points = hull.equations[:, :3], hull.points
    keys = np.concatenate(
        [normals / FLAT_TOLERANCE, hull.equations[:, 3:] / (FLAT_TOLERANCE * np.ptp(points, axis=0).max())], axis=1
    )
    groups: dict[int, set[int]] = {}
    for i, triangle in enumerate(hull.simplices.tolist()):
        firsts = list(groups)
        near = np.flatnonzero(np.abs(keys[firsts] - keys[i]).max(axis=1) < 1.0)
        groups.setdefault(firsts[near[0]] if len(near) else i, set()).update(triangle)
    out = []
    for i, members in groups.items():
        face = np.array(sorted(members))
        normal = keys[i, :3] / np.linalg.norm(keys[i, :3])
        across = _cross(normal, np.array([1.0, 0, 0] if abs(normal[0]) < 0.9 else [0, 1.0, 0]))
        about = points[face] - points[face].mean(axis=0)
        out.append(face[np.argsort(np.arctan2(about @ _cross(normal, across), about @ across))])
    return out


def _cut_face(face: np.ndarray, longest: float) -> list[np.ndarray]:
    """Convex pieces of a convex face, (v, 3), none longer than that."""
    about = face - face.mean(axis=0)
    direction = np.linalg.svd(about, full_matrices=False)[2][0]
    along = about @ direction
    if np.ptp(along) <= longest:
        return [face]
    along = along - (along.min() + along.max()) / 2
    sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for a, b, p, q in zip(along, np.roll(along, -1), face, np.roll(face, -1, axis=0), strict=True):
        if a <= 0:
            sides[0].append(p)
        if a >= 0:
            sides[1].append(p)
        if a * b < 0:
            middle = p + a / (a - b) * (q - p)
            sides[0].append(middle)
            sides[1].append(middle)
    return [piece for side in sides for piece in _cut_face(np.array(side), longest)]
