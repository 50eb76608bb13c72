"""What is drawn: surfaces close round the model's volumes, in its colours, and the ground is the one that the task knows."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
import trimesh

from isthmus.robots import get_robot
from isthmus.sim.scenes.terrain import Terrain
from isthmus.studio.live import geoms

ZOO = """
<mujoco>
  <asset>
    <material name="red" rgba="1 0 0 1"/>
    <mesh name="wedge" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1"/>
    <body>
      <freejoint/>
      <geom name="sphere" type="sphere" size="0.2" material="red"/>
      <geom name="ellipsoid" type="ellipsoid" size="0.1 0.2 0.3" rgba="0 1 0 0.5"/>
      <geom name="capsule" type="capsule" size="0.1 0.3"/>
      <geom name="cylinder" type="cylinder" size="0.1 0.3"/>
      <geom name="box" type="box" size="0.1 0.2 0.3" material="red" rgba="0 0 1 1"/>
      <geom name="mesh" type="mesh" mesh="wedge"/>
      <geom name="collision" type="sphere" size="0.2" group="3"/>
      <geom name="invisible" type="sphere" size="0.2" rgba="0 0 0 0"/>
    </body>
  </worldbody>
</mujoco>"""
VOLUMES = {
    "sphere": 4 / 3 * np.pi * 0.2**3,
    "ellipsoid": 4 / 3 * np.pi * 0.1 * 0.2 * 0.3,
    "capsule": np.pi * 0.1**2 * (0.6 + 4 / 3 * 0.1),
    "cylinder": np.pi * 0.1**2 * 0.6,
    "box": 8 * 0.1 * 0.2 * 0.3,
    "mesh": 1 / 6,
}


@pytest.mark.parametrize("name", VOLUMES)
def test_a_surface_closes_round_the_volume_of_its_geom_with_faces_outward(name):
    model = mujoco.MjModel.from_xml_string(ZOO)
    vertices, faces = geoms.geom_mesh(model, model.geom(name).id)
    mesh = trimesh.Trimesh(vertices, faces)
    assert mesh.is_watertight
    assert mesh.volume == pytest.approx(VOLUMES[name], rel=0.03)
    if name != "mesh":
        np.testing.assert_allclose(mesh.bounds.mean(axis=0), 0, atol=1e-6)


def test_which_geoms_are_shown_and_in_which_colour():
    model = mujoco.MjModel.from_xml_string(ZOO)
    assert {model.geom(g).name for g in geoms.visible_geoms(model)} == {"floor", *VOLUMES}
    colours = {name: geoms.geom_colour(model, model.geom(name).id).tolist() for name in ("sphere", "box", "ellipsoid")}
    assert colours == {"sphere": [1, 0, 0, 1], "box": [0, 0, 1, 1], "ellipsoid": [0, 1, 0, 0.5]}


def test_a_drawn_height_field_is_the_ground_that_the_task_knows():
    terrain = Terrain(kinds=("bumps", "stairs"), rows=2, tile=4.0)
    spec = get_robot("go1").spec()
    terrain.edit(spec)
    model = spec.compile()
    floor = model.geom("floor").id
    vertices, faces = geoms.geom_mesh(model, floor)
    world = torch.from_numpy((vertices + model.geom_pos[floor]).astype(np.float32))
    inside = (world[:, :2].abs() < world[:, :2].abs().amax(0) * 0.99).all(1)
    known = terrain.height_at(world[inside, 0], world[inside, 1])
    np.testing.assert_allclose(world[inside, 2], known, atol=2e-3)
    assert len(faces) == 2 * (model.hfield_nrow[0] - 1) * (model.hfield_ncol[0] - 1)
    assert (trimesh.Trimesh(vertices, faces, process=False).face_normals[:, 2] > 0).all()
