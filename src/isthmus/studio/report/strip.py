"""A few moments of motions as one picture: what the player shows, for paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from isthmus.studio.report.motion import ASPECT, Motion, View, apart
from isthmus.studio.report.svg import frame

Flat = Callable[[np.ndarray], np.ndarray]
"""From the world, (…, 3), m, to a picture: to the right, down, towards the eye."""
MOMENTS = 5
WIDTH, LEFT, TOP, LINE = 640, 4, 18, 18
"""Of the picture; above it, and above each row."""
SIZE = 240
"""Units from the middle of a moment to its right edge."""
CELLS = 14
"""Squares of the ground to each side."""
COLOURS = ((66, 105, 208), (201, 138, 0), (47, 158, 134), (142, 68, 214), (216, 67, 46), (44, 138, 61))
"""Of motions, one after the other: those of the lines of charts."""
LIGHT = np.array([-0.42, 0.72, 0.55]) / np.linalg.norm([-0.42, 0.72, 0.55])
"""Direction to the light: right, up, towards the eye."""
GHOST = 0.28
"""How much a motion that stands behind another one covers."""
DARK, BRIGHT = 0.42, 0.42
"""Part of the colour that is left in the shade, and of white that is added in full light."""


def cell(half: float) -> float:
    """Size of the ground's squares, m: a round number that fits the view."""
    power = 10.0 ** np.floor(np.log10(half))
    return float(max(c * power for c in (0.1, 0.25, 0.5, 1.0, 2.5) if c * power <= 0.5 * half))


def strip(motions: Sequence[Motion], view: View, title: str, clock: float = 0.0) -> str:
    """A row per motion, moments from first to last; the first motion also stands behind the others, paler."""
    width = (WIDTH - LEFT) / MOMENTS
    height = width / ASPECT
    seconds = np.linspace(motions[0].time[0], max(m.time[-1] for m in motions), MOMENTS)
    box = f"{-SIZE} {-SIZE / ASPECT:.0f} {2 * SIZE} {2 * SIZE / ASPECT:.0f}"
    parts = []
    for k, second in enumerate(seconds):
        parts.append(
            f'<text class="axis" x="{LEFT + (k + 0.5) * width:.0f}" y="12" text-anchor="middle">{clock + second:.2f} s</text>'
        )
    for i, m in enumerate(motions):
        top = TOP + i * (height + LINE)
        parts.append(f'<text x="{LEFT}" y="{top + 13:.0f}">{escape(m.name)}</text>')
        for k, second in enumerate(seconds):
            x, y = LEFT + k * width, top + LINE
            size = f'x="{x:.1f}" y="{y:.1f}" width="{width - 4:.1f}" height="{height - 3:.1f}"'
            parts.append(f'<svg {size} viewBox="{box}">{_picture(motions, i, second, view)}</svg>')
            if i and k and m.scene is motions[0].scene:
                text = f"{apart(motions[0], m, second):.2g} m apart"
                parts.append(f'<text class="axis" x="{x + width - 6:.0f}" y="{top + 13:.0f}" text-anchor="end">{text}</text>')
    return frame("".join(parts), WIDTH, round(TOP + len(motions) * (height + LINE)), title)


def _picture(motions: Sequence[Motion], i: int, second: float, view: View) -> str:
    m, now = motions[i], motions[i].at(second)
    scale, centre = SIZE / ASPECT / view.half, view.centres[i][now]
    flat = lambda p: (p - centre) @ view.axes.T * [scale, -scale, scale]  # noqa: E731
    size = f'x="{-SIZE}" y="{-SIZE / ASPECT:.0f}" width="{2 * SIZE}" height="{2 * SIZE / ASPECT:.0f}"'
    parts = [f'<rect class="sky" {size}/>']
    if m.scene.ground is not None:
        parts.append(f'<path class="cells" d="{_cells(m.scene.ground, centre, view.half, flat)}"/>')
        parts.append(f'<path class="shade" d="{_shade(m, now, flat)}"/>')
    if m.scene.base:
        parts.append(f'<path class="trail" stroke="{_hex(_colour(i))}" d="{_trail(m, now, flat)}"/>')
    if i and m.scene is motions[0].scene:
        other = motions[0]
        shapes = [flat(other.corners(s, other.at(second))) for s in other.scene.solids]
        parts.append(f'<path fill="{_hex(_colour(0))}" opacity="{GHOST}" d="{_outlines(shapes)}"/>')
    parts.append('<g fill="currentColor" stroke="currentColor" stroke-linejoin="round">')
    for f, normal, light in sorted(_faces(m, now, view.axes, flat), key=lambda face: face[0][:, 2].mean()):
        parts.append(f'<path color="{_hex(_shaded(_colour(i), normal, light))}" d="{_path(f)}"/>')
    return "".join(parts) + "</g>"


def _faces(m: Motion, now: int, axes: np.ndarray, flat: Flat) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """Faces that look towards the eye: corners in the picture, (v, 3), where they look, (3,), and how light the part is."""
    for s in m.scene.solids:
        corners, normals = flat(m.corners(s, now)), m.normals(s, now) @ axes.T
        for face, normal in zip(s.faces, normals, strict=True):
            if normal[2] > 0:
                yield corners[list(face)], normal, s.light


def _colour(i: int) -> np.ndarray:
    return np.array(COLOURS[i % len(COLOURS)], float)


def _shaded(colour: np.ndarray, normal: np.ndarray, light: float) -> np.ndarray:
    t = 0.5 + 0.5 * float(normal @ LIGHT)
    own = colour * (0.7 + 0.3 * light)
    return own * DARK + t * (own + BRIGHT * (255 - own) * t - own * DARK)


def _shade(m: Motion, now: int, flat: Flat) -> str:
    """The shadow right below."""
    assert m.scene.ground is not None
    height = np.array([0.0, 0.0, m.scene.ground])
    return _outlines([flat(m.corners(s, now) * [1.0, 1.0, 0.0] + height) for s in m.scene.own])


def _outlines(shapes: Sequence[np.ndarray]) -> str:
    """Of convex solids in the picture, (v, 3) each. All go round the same way, so that together they cover just once."""
    out = ""
    for points in shapes:
        try:
            out += _path(points[ConvexHull(points[:, :2]).vertices])
        except QhullError:
            continue  # seen from its edge
    return out


def _trail(m: Motion, now: int, flat: Flat) -> str:
    """Where the base has been."""
    some = np.unique(np.linspace(0, now, 30).astype(int))
    return "M" + " ".join(f"{x:.0f} {y:.0f}" for x, y in flat(m.xpos[some, m.scene.base])[:, :2])


def _cells(height: float, centre: np.ndarray, half: float, flat: Flat) -> str:
    step = cell(half)
    middle = np.round(centre[:2] / step) * step
    out = ""
    for k in range(-CELLS, CELLS + 1):
        for way in (np.array([1.0, 0.0]), np.array([0.0, 1.0])):
            ends = [middle + step * (k * way[::-1] + side * CELLS * way) for side in (-1, 1)]
            (a, b, _), (c, d, _) = (flat(np.append(e, height)) for e in ends)
            out += f"M{a:.0f} {b:.0f}L{c:.0f} {d:.0f}"
    return out


def _path(f: np.ndarray) -> str:
    return "M" + " ".join(f"{x:.0f} {y:.0f}" for x, y in f[:, :2].tolist()) + "z"


def _hex(colour: np.ndarray) -> str:
    return "#" + "".join(f"{min(round(c), 255):02x}" for c in colour.tolist())
