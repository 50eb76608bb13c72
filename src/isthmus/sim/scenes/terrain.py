"""Rough ground from a seed: a field of square tiles, harder from row to row, one kind of obstacle per column.

All worlds share the field; where a robot starts decides what it meets. Row 0 is nearly flat.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import mujoco
import numpy as np
import torch
from torch import Tensor

FLAT_MARGIN = 12.0
"""m of flat ground around the tiles."""
TERRAIN_KINDS = ("bumps", "slope", "steps", "gaps", "stairs")


@dataclass(frozen=True)
class Terrain:
    kinds: tuple[str, ...] = TERRAIN_KINDS
    rows: int = 6
    """Tiles of one kind, from easy to hard."""
    tile: float = 8.0
    """m, side of a tile."""
    cell: float = 0.1
    """m between height samples."""
    seed: int = 1
    height: float = 1.0
    """Scale of all heights. At 1 the hardest row has bumps of some 10 cm, 20° slopes, 12 cm steps, 30 cm gaps and 14 cm
    stairs."""

    @cached_property
    def heights(self) -> np.ndarray:
        """Heights, m, (rows of y, columns of x); x runs with difficulty, y with kind."""
        rng = np.random.default_rng(self.seed)
        k = round(self.tile / self.cell)
        columns = [[self._tile(kind, (r + 0.5) / self.rows, k, rng) for r in range(self.rows)] for kind in self.kinds]
        inner = np.block(columns)
        # Room to walk on: an episode is at most some 12 m long, and beyond the field there is nothing.
        return np.pad(inner, round(FLAT_MARGIN / self.cell))

    def _tile(self, kind: str, level: float, k: int, rng: np.random.Generator) -> np.ndarray:
        """One tile, (k, k), zero along its border and flat in the middle, where robots start."""
        size = level * self.height
        coordinate = (np.arange(k) + 0.5) * self.cell - self.tile / 2
        x, y = np.meshgrid(coordinate, coordinate)
        ring = np.maximum(np.abs(x), np.abs(y))
        if kind == "bumps":
            h = _smooth(rng.uniform(-1, 1, (k, k))) * 0.08 * size * 2
        elif kind == "slope":
            h = -np.tan(np.radians(20 * size)) * (ring - 1.0).clip(0)
            h = h - h.min()
        elif kind == "steps":
            block = max(round(0.6 / self.cell), 1)
            coarse = rng.uniform(-1, 1, (k // block + 1, k // block + 1))
            h = np.kron(coarse, np.ones((block, block)))[:k, :k] * 0.06 * size
        elif kind == "gaps":
            width = 0.30 * size
            h = np.where((ring > 1.0) & ((ring - 1.0) % 1.2 < width), -0.3, 0.0)
        else:
            h = -0.14 * size * np.floor((ring - 1.0).clip(0) / 0.35)
            h = h - h.min()
        edge = self.tile / 2 - ring
        if kind in ("bumps", "steps"):
            h = np.where(ring < 0.7, 0.0, h)
        return np.where(edge < 0.2, 0.0, h)

    def edit(self, spec: mujoco.MjSpec) -> None:
        """Replace the model's flat floor by this field, with the same surface."""
        field = self.heights
        low, high = float(field.min()), float(field.max())
        span = max(high - low, 1e-3)
        ny, nx = field.shape
        half = [nx * self.cell / 2, ny * self.cell / 2]
        data = ((field - low) / span).astype(np.float32)
        spec.add_hfield(name="terrain", nrow=ny, ncol=nx, size=[*half, span, 0.5], userdata=data.ravel().tolist())
        floor = spec.geom("floor")
        floor.type = mujoco.mjtGeom.mjGEOM_HFIELD
        floor.hfieldname = "terrain"
        floor.pos = [0.0, 0.0, low]

    @cached_property
    def _height_tensor(self) -> Tensor:
        return torch.from_numpy(self.heights.astype(np.float32))

    def height_at(self, x: Tensor, y: Tensor) -> Tensor:
        """Height of the ground at world points, same shape as x, on the triangles that MuJoCo makes of the samples."""
        ny, nx = self._height_tensor.shape
        # MuJoCo spreads the samples from edge to edge of the field.
        u = ((x / (nx * self.cell) + 0.5) * (nx - 1)).clamp(0, nx - 1.001)
        v = ((y / (ny * self.cell) + 0.5) * (ny - 1)).clamp(0, ny - 1.001)
        i, j = u.long(), v.long()
        a, b = u - i, v - j
        z, near, far = self._height_tensor, torch.minimum(a, b), torch.maximum(a, b)
        corner = torch.where(a > b, z[j, i + 1], z[j + 1, i])
        return (1 - far) * z[j, i] + (far - near) * corner + near * z[j + 1, i + 1]

    def sample_tile_centres(self, rng: np.random.Generator, k: int, roughness: float) -> np.ndarray:
        """Centres of random tiles up to a fraction `roughness` of the difficulty, (k, 2)."""
        rows = np.minimum(rng.integers(0, max(round(roughness * self.rows), 1), k), self.rows - 1)
        kinds = rng.integers(0, len(self.kinds), k)
        x = (rows - (self.rows - 1) / 2) * self.tile
        y = (kinds - (len(self.kinds) - 1) / 2) * self.tile
        return np.stack([x, y], axis=1)


def _smooth(z: np.ndarray, times: int = 2) -> np.ndarray:
    for _ in range(times):
        z = (z + np.roll(z, 1, 0) + np.roll(z, -1, 0) + np.roll(z, 1, 1) + np.roll(z, -1, 1)) / 5
    return z / max(np.abs(z).max(), 1e-9)
