"""A few moments of motions as one picture: what the player shows, for paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from isthmus.studio.figures.axes import svg_figure
from isthmus.studio.figures.poses import ASPECT, Motion, View, largest_distance

Projection = Callable[[np.ndarray], np.ndarray]
"""From the world, (…, 3), m, to a picture: to the right, down, towards the eye."""
FRAMES_SHOWN = 5
WIDTH, LEFT, TOP, ROW_HEADER_HEIGHT = 640, 4, 18, 18
"""Of the picture; above it, and above each row."""
FRAME_HALF_WIDTH = 240
"""Units from the middle of a moment to its right edge."""
GROUND_CELLS = 14
"""Squares of the ground to each side."""
MOTION_COLOURS = ((66, 105, 208), (201, 138, 0), (47, 158, 134), (142, 68, 214), (216, 67, 46), (44, 138, 61))
"""Of motions, one after the other: those of the lines of charts."""
LIGHT_DIRECTION = np.array([-0.42, 0.72, 0.55]) / np.linalg.norm([-0.42, 0.72, 0.55])
"""Direction to the light: right, up, towards the eye."""
GHOST_OPACITY = 0.28
"""How much a motion that stands behind another one covers."""
SHADE_FACTOR, HIGHLIGHT_FACTOR = 0.42, 0.42
"""Part of the colour that is left in the shade, and of white that is added in full light."""


def ground_cell_size(half: float) -> float:
    """Size of the ground's squares, m: a round number that fits the view."""
    power = 10.0 ** np.floor(np.log10(half))
    return float(max(c * power for c in (0.1, 0.25, 0.5, 1.0, 2.5) if c * power <= 0.5 * half))


def strip_svg(motions: Sequence[Motion], view: View, title: str, start_time: float = 0.0) -> str:
    """A row per motion, moments from first to last; the first motion also stands behind the others, paler."""
    width = (WIDTH - LEFT) / FRAMES_SHOWN
    height = width / ASPECT
    seconds = np.linspace(motions[0].time[0], max(m.time[-1] for m in motions), FRAMES_SHOWN)
    box = f"{-FRAME_HALF_WIDTH} {-FRAME_HALF_WIDTH / ASPECT:.0f} {2 * FRAME_HALF_WIDTH} {2 * FRAME_HALF_WIDTH / ASPECT:.0f}"
    parts = []
    for k, second in enumerate(seconds):
        parts.append(
            f'<text class="axis" x="{LEFT + (k + 0.5) * width:.0f}" y="12" '
            f'text-anchor="middle">{start_time + second:.2f} s</text>'
        )
    for i, m in enumerate(motions):
        top = TOP + i * (height + ROW_HEADER_HEIGHT)
        parts.append(f'<text x="{LEFT}" y="{top + 13:.0f}">{escape(m.name)}</text>')
        for k, second in enumerate(seconds):
            x, y = LEFT + k * width, top + ROW_HEADER_HEIGHT
            size = f'x="{x:.1f}" y="{y:.1f}" width="{width - 4:.1f}" height="{height - 3:.1f}"'
            parts.append(f'<svg {size} viewBox="{box}">{_frame_svg(motions, i, second, view)}</svg>')
            if i and k and m.scene is motions[0].scene:
                text = f"{largest_distance(motions[0], m, second):.2g} m apart"
                parts.append(f'<text class="axis" x="{x + width - 6:.0f}" y="{top + 13:.0f}" text-anchor="end">{text}</text>')
    return svg_figure("".join(parts), WIDTH, round(TOP + len(motions) * (height + ROW_HEADER_HEIGHT)), title)


def _frame_svg(motions: Sequence[Motion], i: int, second: float, view: View) -> str:
    m, now = motions[i], motions[i].nearest_frame(second)
    scale, centre = FRAME_HALF_WIDTH / ASPECT / view.half_height, view.centres[i][now]
    flat = lambda p: (p - centre) @ view.axes.T * [scale, -scale, scale]  # noqa: E731
    size = (
        f'x="{-FRAME_HALF_WIDTH}" y="{-FRAME_HALF_WIDTH / ASPECT:.0f}" width="{2 * FRAME_HALF_WIDTH}" '
        f'height="{2 * FRAME_HALF_WIDTH / ASPECT:.0f}"'
    )
    parts = [f'<rect class="sky" {size}/>']
    if m.scene.ground is not None:
        parts.append(f'<path class="cells" d="{_ground_grid_path(m.scene.ground, centre, view.half_height, flat)}"/>')
        parts.append(f'<path class="shade" d="{_shadow_path(m, now, flat)}"/>')
    if m.scene.base:
        parts.append(f'<path class="trail" stroke="{_hex_colour(_motion_colour(i))}" d="{_trail_path(m, now, flat)}"/>')
    if i and m.scene is motions[0].scene:
        other = motions[0]
        shapes = [flat(other.corners(s, other.nearest_frame(second))) for s in other.scene.solids]
        parts.append(f'<path fill="{_hex_colour(_motion_colour(0))}" opacity="{GHOST_OPACITY}" d="{_outline_paths(shapes)}"/>')
    parts.append('<g fill="currentColor" stroke="currentColor" stroke-linejoin="round">')
    for f, normal, light in sorted(_visible_faces(m, now, view.axes, flat), key=lambda face: face[0][:, 2].mean()):
        parts.append(f'<path color="{_hex_colour(_shade_colour(_motion_colour(i), normal, light))}" d="{_polygon_path(f)}"/>')
    return "".join(parts) + "</g>"


def _visible_faces(m: Motion, now: int, axes: np.ndarray, flat: Projection) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """Faces that look towards the eye: corners in the picture, (v, 3), where they look, (3,), and how light the part is."""
    for s in m.scene.solids:
        corners, normals = flat(m.corners(s, now)), m.normals(s, now) @ axes.T
        for face, normal in zip(s.faces, normals, strict=True):
            if normal[2] > 0:
                yield corners[list(face)], normal, s.brightness


def _motion_colour(i: int) -> np.ndarray:
    return np.array(MOTION_COLOURS[i % len(MOTION_COLOURS)], float)


def _shade_colour(colour: np.ndarray, normal: np.ndarray, light: float) -> np.ndarray:
    t = 0.5 + 0.5 * float(normal @ LIGHT_DIRECTION)
    own = colour * (0.7 + 0.3 * light)
    return own * SHADE_FACTOR + t * (own + HIGHLIGHT_FACTOR * (255 - own) * t - own * SHADE_FACTOR)


def _shadow_path(m: Motion, now: int, flat: Projection) -> str:
    """The shadow right below."""
    assert m.scene.ground is not None
    height = np.array([0.0, 0.0, m.scene.ground])
    return _outline_paths([flat(m.corners(s, now) * [1.0, 1.0, 0.0] + height) for s in m.scene.framed_solids])


def _outline_paths(shapes: Sequence[np.ndarray]) -> str:
    """Of convex solids in the picture, (v, 3) each. All go round the same way, so that together they cover just once."""
    out = ""
    for points in shapes:
        try:
            out += _polygon_path(points[ConvexHull(points[:, :2]).vertices])
        except QhullError:
            continue  # seen from its edge
    return out


def _trail_path(m: Motion, now: int, flat: Projection) -> str:
    """Where the base has been."""
    some = np.unique(np.linspace(0, now, 30).astype(int))
    return "M" + " ".join(f"{x:.0f} {y:.0f}" for x, y in flat(m.xpos[some, m.scene.base])[:, :2])


def _ground_grid_path(height: float, centre: np.ndarray, half: float, flat: Projection) -> str:
    step = ground_cell_size(half)
    middle = np.round(centre[:2] / step) * step
    out = ""
    for k in range(-GROUND_CELLS, GROUND_CELLS + 1):
        for way in (np.array([1.0, 0.0]), np.array([0.0, 1.0])):
            ends = [middle + step * (k * way[::-1] + side * GROUND_CELLS * way) for side in (-1, 1)]
            (a, b, _), (c, d, _) = (flat(np.append(e, height)) for e in ends)
            out += f"M{a:.0f} {b:.0f}L{c:.0f} {d:.0f}"
    return out


def _polygon_path(f: np.ndarray) -> str:
    return "M" + " ".join(f"{x:.0f} {y:.0f}" for x, y in f[:, :2].tolist()) + "z"


def _hex_colour(colour: np.ndarray) -> str:
    return "#" + "".join(f"{min(round(c), 255):02x}" for c in colour.tolist())
