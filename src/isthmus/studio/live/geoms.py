"""The look of one MuJoCo geom: its colour and its surface in the geom's own frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mujoco
import numpy as np
import trimesh

if TYPE_CHECKING:
    import viser

Geom = mujoco.mjtGeom
FIRST_HIDDEN_GROUP = 3
"""MuJoCo shows groups 0 to 2 unless asked; models keep collision shapes in 3 and above."""
_DEFAULT_RGBA = (0.5, 0.5, 0.5, 1.0)


def geom_colour(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """RGBA in 0 to 1 as MuJoCo's own viewer chooses it: the material's, unless the geom names one of its own."""
    own, material = model.geom_rgba[geom], int(model.geom_matid[geom])
    if material >= 0 and np.allclose(own, _DEFAULT_RGBA):
        return model.mat_rgba[material].copy()
    return own.copy()


def geom_type(model: mujoco.MjModel, geom: int) -> Geom:
    return Geom(int(model.geom_type[geom]))


def visible_geoms(model: mujoco.MjModel) -> list[int]:
    """Geoms to draw: visible ones outside the collision groups, or everything if that leaves no body with a shape."""
    visible = [g for g in range(model.ngeom) if geom_colour(model, g)[3] > 0]
    chosen = [g for g in visible if model.geom_group[g] < FIRST_HIDDEN_GROUP]
    return chosen if any(model.geom_bodyid[g] > 0 for g in chosen) else visible


def geom_mesh(model: mujoco.MjModel, geom: int) -> tuple[np.ndarray, np.ndarray]:
    """Vertices, (v, 3), m, and triangles, (f, 3), of a geom in its own frame; a plane has none."""
    kind, size = geom_type(model, geom), model.geom_size[geom]
    if kind == Geom.mjGEOM_SPHERE:
        mesh = trimesh.creation.icosphere(subdivisions=3, radius=size[0])
    elif kind == Geom.mjGEOM_ELLIPSOID:
        mesh = trimesh.creation.icosphere(subdivisions=3, radius=1.0)
        mesh.apply_scale(size)
    elif kind == Geom.mjGEOM_CAPSULE:
        mesh = trimesh.creation.capsule(height=2 * size[1], radius=size[0], count=(24, 24))
        mesh.apply_translation(-mesh.bounds.mean(axis=0))
    elif kind == Geom.mjGEOM_CYLINDER:
        mesh = trimesh.creation.cylinder(radius=size[0], height=2 * size[1], sections=32)
    elif kind == Geom.mjGEOM_BOX:
        mesh = trimesh.creation.box(extents=2 * size)
    elif kind == Geom.mjGEOM_HFIELD:
        return height_field_mesh(model, int(model.geom_dataid[geom]))
    elif kind in (Geom.mjGEOM_MESH, Geom.mjGEOM_SDF):
        i = int(model.geom_dataid[geom])
        v, f = int(model.mesh_vertadr[i]), int(model.mesh_faceadr[i])
        return model.mesh_vert[v : v + model.mesh_vertnum[i]].copy(), model.mesh_face[f : f + model.mesh_facenum[i]].copy()
    else:
        return np.zeros((0, 3)), np.zeros((0, 3), dtype=int)
    return np.asarray(mesh.vertices), np.asarray(mesh.faces)


def height_field_mesh(model: mujoco.MjModel, i: int) -> tuple[np.ndarray, np.ndarray]:
    """The top of height field i: samples from edge to edge, x along its columns, y along its rows."""
    ny, nx = int(model.hfield_nrow[i]), int(model.hfield_ncol[i])
    rx, ry, top, _ = model.hfield_size[i]
    first = int(model.hfield_adr[i])
    z = model.hfield_data[first : first + nx * ny].reshape(ny, nx) * top
    x, y = np.meshgrid(np.linspace(-rx, rx, nx), np.linspace(-ry, ry, ny))
    vertices = np.stack([x, y, z], axis=-1).reshape(-1, 3)
    at = np.arange(nx * ny).reshape(ny, nx)
    a, b, c, d = at[:-1, :-1].ravel(), at[:-1, 1:].ravel(), at[1:, 1:].ravel(), at[1:, :-1].ravel()
    faces = np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
    return vertices, faces


def bounding_box(model: mujoco.MjModel, data: mujoco.MjData, geoms: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest corner, (3,), m, of the box around the geoms that are not ground, in the world."""
    solid = [g for g in geoms if geom_type(model, g) not in (Geom.mjGEOM_PLANE, Geom.mjGEOM_HFIELD)]
    if not solid:
        return np.full(3, -0.5), np.full(3, 0.5)
    turn = data.geom_xmat[solid].reshape(-1, 3, 3)
    middle = data.geom_xpos[solid] + np.einsum("gij,gj->gi", turn, model.geom_aabb[solid, :3])
    half = np.einsum("gij,gj->gi", np.abs(turn), model.geom_aabb[solid, 3:])
    return (middle - half).min(axis=0), (middle + half).max(axis=0)


def add_geom(scene: viser.SceneApi, name: str, model: mujoco.MjModel, geom: int) -> None:
    """Add a geom under the frame of its body."""
    rgba = geom_colour(model, geom)
    vertices, faces = geom_mesh(model, geom)
    if not len(faces):
        return
    kind, position, wxyz = geom_type(model, geom), model.geom_pos[geom], model.geom_quat[geom]
    if kind == Geom.mjGEOM_HFIELD:
        mesh = trimesh.Trimesh(vertices, faces, vertex_colors=ground_colours(vertices, rgba), process=False)
        scene.add_mesh_trimesh(name, mesh, cast_shadow=False, receive_shadow=0.35, position=position, wxyz=wxyz)
        return
    scene.add_mesh_simple(
        name,
        vertices,
        faces,
        color=rgba[:3],
        opacity=float(rgba[3]) if rgba[3] < 1 else None,
        flat_shading=kind not in (Geom.mjGEOM_SPHERE, Geom.mjGEOM_ELLIPSOID, Geom.mjGEOM_CAPSULE),
        position=position,
        wxyz=wxyz,
    )


def ground_colours(vertices: np.ndarray, rgba: np.ndarray) -> np.ndarray:
    """Squares of one metre, lighter the higher, (v, 4), 0 to 255: uneven ground shows its shape and scale."""
    z = vertices[:, 2]
    height = (z - z.min()) / max(float(np.ptp(z)), 1e-9)
    checker = (np.floor(vertices[:, 0]) + np.floor(vertices[:, 1])) % 2
    shade = (0.75 + 0.5 * height) * np.where(checker > 0, 1.0, 0.9)
    rgb = np.clip(rgba[:3] * shade[:, None], 0, 1)
    return (np.concatenate([rgb, np.ones((len(z), 1))], axis=1) * 255).astype(np.uint8)
