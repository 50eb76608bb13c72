"""The ground is what it says it is, and MuJoCo stands on the same one."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch

from isthmus.robots.go1 import go1
from isthmus.sim.scenes.terrain import FLAT_MARGIN, TERRAIN_KINDS, Terrain

SMALL = Terrain(rows=3, tile=4.0, seed=3)


def tile(terrain: Terrain, kind: str, row: int) -> np.ndarray:
    """Heights of one tile, (k, k)."""
    k = round(terrain.tile / terrain.cell)
    edge = round(FLAT_MARGIN / terrain.cell)
    y, x = edge + terrain.kinds.index(kind) * k, edge + row * k
    return terrain.heights[y : y + k, x : x + k]


def level(terrain: Terrain, row: int) -> float:
    return (row + 0.5) / terrain.rows


@pytest.mark.parametrize("terrain", [SMALL, Terrain(kinds=("bumps", "slope"), rows=2, tile=3.0), Terrain()])
def test_height_at_agrees_with_rays_cast_onto_the_compiled_field(terrain):
    spec = go1().spec()
    terrain.edit(spec)
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    floor = model.geom("floor").id
    ny, nx = terrain.heights.shape
    rng = np.random.default_rng(0)
    x, y = ((rng.uniform(-0.49, 0.49, 800) * size * terrain.cell) for size in (nx, ny))
    at = lambda dx, dy: terrain.height_at(torch.tensor(x + dx), torch.tensor(y + dy)).numpy()
    away = np.ptp([at(dx, dy) for dx in (-0.05, 0, 0.05) for dy in (-0.05, 0, 0.05)], axis=0) < 0.1
    assert away.sum() > 500
    for px, py, height in zip(x[away], y[away], at(0, 0)[away], strict=True):
        hit = mujoco.mj_rayHfield(model, data, floor, np.array([px, py, 5.0]), np.array([0, 0, -1.0]), np.zeros(3))
        assert 5.0 - hit == pytest.approx(height, abs=1e-3)


def test_the_field_lies_at_the_same_place_in_every_corner():
    """A single tall tile shows that rows and columns are not swapped or flipped."""
    terrain = Terrain(kinds=("slope", "gaps"), rows=2, tile=3.0)
    for kind, sign in (("slope", -1), ("gaps", 1)):
        for row in range(2):
            x, y = (row - 0.5) * 3.0, (terrain.kinds.index(kind) - 0.5) * 3.0
            assert np.sign(y) == sign
            middle = terrain.height_at(torch.tensor([x]), torch.tensor([y])).item()
            assert middle == pytest.approx(tile(terrain, kind, row)[15, 15], abs=1e-3)
    easy, hard = terrain.height_at(torch.tensor([-1.5, 1.5]), torch.tensor([-1.5, -1.5]))
    assert hard > easy > 0.01


def test_the_seed_decides_everything():
    assert np.array_equal(Terrain(seed=5).heights, Terrain(seed=5).heights)
    assert not np.array_equal(Terrain(seed=5).heights, Terrain(seed=6).heights)


def test_tiles_meet_at_level_ground_and_start_flat():
    for kind in TERRAIN_KINDS:
        for row in range(SMALL.rows):
            t = tile(SMALL, kind, row)
            assert (t[[0, -1]] == 0).all()
            assert (t[:, [0, -1]] == 0).all()
            k = len(t) // 2
            assert np.ptp(t[k - 5 : k + 5, k - 5 : k + 5]) < 1e-12, "half a metre around the start"


def test_rows_get_harder():
    for kind in TERRAIN_KINDS:
        sizes = [np.ptp(tile(Terrain(rows=6), kind, row)) for row in range(6)]
        assert sizes == sorted(sizes)
        assert sizes[-1] > sizes[0]
        assert np.ptp(tile(Terrain(rows=6), kind, 0)) < 0.5


def test_slopes_have_their_angle():
    for row in range(SMALL.rows):
        t = tile(SMALL, "slope", row)
        k = len(t) // 2
        along = t[k, k + 10 : -2]
        rise = -np.diff(along) / SMALL.cell
        assert rise == pytest.approx(np.tan(np.radians(20 * level(SMALL, row))), rel=1e-6)


def test_stairs_have_their_step_height():
    for row in range(SMALL.rows):
        heights = np.unique(tile(SMALL, "stairs", row).round(9))
        assert len(heights) >= 3
        assert np.diff(heights) == pytest.approx(0.14 * level(SMALL, row), rel=1e-6)


def test_steps_differ_by_at_most_their_height():
    for row in range(SMALL.rows):
        t = tile(SMALL, "steps", row)
        inner = t[2:-2, 2:-2]
        assert np.abs(t).max() <= 0.06 * level(SMALL, row)
        jumps = max(np.abs(np.diff(inner, axis=a)).max() for a in (0, 1))
        assert 0.03 * level(SMALL, row) < jumps <= 0.12 * level(SMALL, row)


def test_gaps_are_as_wide_as_promised():
    for terrain, row in ((SMALL, 2), (SMALL, 1), (Terrain(rows=1, tile=4.0, height=2.0), 0)):
        t = tile(terrain, "gaps", row)
        k = len(t) // 2
        along = t[k, k + 5 : -2]
        assert set(np.unique(along)) == {-0.3, 0.0}
        width = (along == -0.3).sum() * terrain.cell / (np.diff((along == -0.3).astype(int)) == 1).sum()
        assert width == pytest.approx(0.30 * level(terrain, row) * terrain.height, abs=terrain.cell)


def test_bumps_are_smooth_and_as_high_as_promised():
    for row in range(SMALL.rows):
        t = tile(SMALL, "bumps", row)
        assert 0.5 * 0.08 * level(SMALL, row) < np.abs(t).max() <= 2 * 0.08 * level(SMALL, row)
        assert abs(t[5:-5, 5:-5].mean()) < 0.02


def test_height_scales_the_ground():
    low, full = Terrain(rows=3, height=0.25), Terrain(rows=3)
    for kind in ("bumps", "steps", "stairs"):
        assert np.allclose(4 * tile(low, kind, 2), tile(full, kind, 2))


def test_starts_are_in_the_middle_of_tiles_no_harder_than_allowed():
    terrain = Terrain()
    rng = np.random.default_rng(0)
    for roughness, rows in ((0.0, 1), (1 / 6, 1), (0.5, 3), (1.0, 6)):
        at = terrain.sample_tile_centres(rng, 500, roughness)
        assert len(np.unique(at[:, 0])) == rows
        assert len(np.unique(at[:, 1])) == 5
        assert at[:, 0].min() == -2.5 * 8
        assert at[:, 0].max() == (-2.5 + rows - 1) * 8
        h = [terrain.height_at(torch.tensor(at[:, 0] + d), torch.tensor(at[:, 1])) for d in (-0.3, 0.0, 0.3)]
        assert torch.allclose(h[0], h[1], atol=1e-5)
        assert torch.allclose(h[1], h[2], atol=1e-5)


def test_outside_the_field_the_ground_goes_on_level():
    assert SMALL.height_at(torch.tensor([99.0, -99.0]), torch.tensor([99.0, 0.0])).tolist() == [0.0, 0.0]
