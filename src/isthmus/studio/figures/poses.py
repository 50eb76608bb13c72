"""Motions of robots, and the view that shows several of them side by side at one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from isthmus.core.geometry import to_matrix
from isthmus.studio.figures.solids import Solid, SolidScene

ASPECT = 4 / 3
"""Width over height of a picture."""
MARGIN = 1.12
FOLLOW_DISTANCE = 10.0
"""A robot that goes further than so many times its radius is followed, so that it is not drawn too small."""
FOLLOW_HALF_HEIGHT = 3.0
"""Half the height of a picture that follows, in units of the robot's radius."""
FOLLOW_SMOOTHING_SECONDS = 0.4
"""s over which the path of a view that follows is smoothed."""
CAMERA_AZIMUTH_OFFSET, CAMERA_ELEVATION = np.radians(28.0), np.radians(16.0)
"""From where a robot is seen: aside from the direction in which it is thinnest, and from above."""
VIEW_SAMPLES = 40
"""Moments that decide about the view."""


@dataclass(frozen=True)
class Motion:
    """T moments of one robot."""

    name: str
    scene: SolidScene
    time: np.ndarray
    """(T,) s, increasing; motions that are shown together have one clock."""
    xpos: np.ndarray
    """(T, nbody, 3) m, and (T, nbody, 4), w x y z: poses of the bodies in the world."""
    xquat: np.ndarray

    def nearest_frame(self, second: float) -> int:
        """The moment nearest to a second."""
        return int(np.abs(self.time - second).argmin())

    def corners(self, solid: Solid, moments: np.ndarray | int) -> np.ndarray:
        """(…, v, 3) in the world."""
        turn = to_matrix(self.xquat[moments, solid.body])
        return np.einsum("...ij,vj->...vi", turn, solid.corners) + self.xpos[moments, solid.body][..., None, :]

    def normals(self, solid: Solid, moment: int) -> np.ndarray:
        """(f, 3) in the world."""
        return solid.normals @ to_matrix(self.xquat[moment, solid.body]).T


def motion_from_states(name: str, scene: SolidScene, model: mujoco.MjModel, time: np.ndarray, qpos: np.ndarray) -> Motion:
    """Of states, (T, nq)."""
    data = mujoco.MjData(model)
    xpos, xquat = np.empty((len(qpos), model.nbody, 3)), np.empty((len(qpos), model.nbody, 4))
    for t, q in enumerate(qpos):
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        xpos[t], xquat[t] = data.xpos, data.xquat
    return Motion(name, scene, np.asarray(time, float), xpos, xquat)


def largest_distance(a: Motion, b: Motion, second: float) -> float:
    """How far the furthest part of one is from where the other has it, m."""
    middle = lambda m, s: m.corners(s, m.nearest_frame(second)).mean(axis=0)  # noqa: E731
    return max((float(np.linalg.norm(middle(a, s) - middle(b, s))) for s in a.scene.solids), default=0.0)


@dataclass(frozen=True)
class View:
    """Parallel projection, the same for all motions but for where it looks."""

    azimuth: float
    elevation: float
    """rad"""
    half_height: float
    """m from the middle of a picture to its upper edge."""
    centres: tuple[np.ndarray, ...]
    """(T, 3) per motion: what is in the middle."""

    @property
    def axes(self) -> np.ndarray:
        return view_axes(self.azimuth, self.elevation)


def view_axes(azimuth: float, elevation: float) -> np.ndarray:
    """Rows: to the right, up, and towards the eye, which stands at that azimuth and elevation."""
    ca, sa, ce, se = np.cos(azimuth), np.sin(azimuth), np.cos(elevation), np.sin(elevation)
    return np.array([[-sa, ca, 0.0], [-se * ca, -se * sa, ce], [ce * ca, ce * sa, se]])


def fit_view(motions: Sequence[Motion]) -> View:
    """One that holds everything that moves; robots that go far are followed."""
    clouds, bases = [], []
    for m in motions:
        some = np.unique(np.linspace(0, len(m.time) - 1, VIEW_SAMPLES).astype(int))
        clouds.append(np.concatenate([m.corners(s, some) for s in m.scene.framed_solids], axis=1))
        bases.append(m.xpos[some, m.scene.base][:, None])
    own = [c - b if m.scene.base else c for m, c, b in zip(motions, clouds, bases, strict=True)]
    azimuth = _best_azimuth(np.concatenate([c.reshape(-1, 3) for c in own]))
    R = view_axes(azimuth, CAMERA_ELEVATION)
    # Robots of one scene are to be compared, and share a place; others only share the scale.
    boxes = []
    for m in motions:
        alike = [c.reshape(-1, 3) @ R.T for other, c in zip(motions, clouds, strict=True) if other.scene is m.scene]
        boxes.append((np.min([c.min(axis=0) for c in alike], axis=0), np.max([c.max(axis=0) for c in alike], axis=0)))
    half = max(_half_height(low, high) for low, high in boxes)
    radius = max(m.scene.radius for m in motions)
    if half > FOLLOW_DISTANCE * radius and all(m.scene.base for m in motions):
        return View(azimuth, CAMERA_ELEVATION, FOLLOW_HALF_HEIGHT * radius, tuple(_smoothed_base_path(m) for m in motions))
    middles = [(low + high) / 2 @ R for low, high in boxes]
    centres = tuple(np.tile(middle, (len(m.time), 1)) for m, middle in zip(motions, middles, strict=True))
    return View(azimuth, CAMERA_ELEVATION, half, centres)


def _best_azimuth(cloud: np.ndarray) -> float:
    """From which a robot shows most: along the level direction in which it is thinnest, and a little aside."""
    values, vectors = np.linalg.eigh(np.cov(cloud[:, :2].T))
    thin = vectors[:, 0] if values[0] < 0.9 * values[1] else np.array([0.0, -1.0])
    thin = thin if thin @ [0.3, -1.0] > 0 else -thin
    return float(np.arctan2(thin[1], thin[0]) + CAMERA_AZIMUTH_OFFSET)


def _half_height(low: np.ndarray, high: np.ndarray) -> float:
    size = (high - low) / 2
    return float(max(size[1], size[0] / ASPECT, 1e-3) * MARGIN)


def _smoothed_base_path(m: Motion) -> np.ndarray:
    """A smooth path near the base."""
    path = m.xpos[:, m.scene.base]
    width = max(1, round(FOLLOW_SMOOTHING_SECONDS / max(float(np.diff(m.time).mean()), 1e-3))) | 1 if len(m.time) > 1 else 1
    padded = np.pad(path, ((width // 2, width // 2), (0, 0)), mode="edge")
    return np.stack([np.convolve(column, np.full(width, 1 / width), mode="valid") for column in padded.T], axis=1)
