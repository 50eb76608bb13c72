"""A few moments of motions as one picture: what the player shows, for paper."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from isthmus.studio.report.motion import ASPECT, Motion, View, apart
from isthmus.studio.report.svg import frame

MOMENTS = 5
WIDTH, LEFT, TOP, LINE = 640, 4, 18, 18
"""Of the picture; above it, and above each row."""
COLOURS = ((66, 105, 208), (201, 138, 0), (47, 158, 134), (142, 68, 214), (216, 67, 46), (44, 138, 61))
"""Of motions, one after the other: those of the lines of charts."""
LIGHT = np.array([-0.42, 0.72, 0.55])
"""Direction to the light: right, up, towards the eye."""
GHOST = 0.28
"""How much a motion that stands behind another one covers."""
DARK, BRIGHT = 0.42, 0.42
"""Part of the colour that is left in the shade, and of white that is added in full light."""


def cell(half: float) -> float:
    """Size of the ground's squares, m: a round number that fits the view."""
    power = 10.0 ** np.floor(np.log10(half))
    return float(max(c * power for c in (0.1, 0.25, 0.5, 1.0) if c * power <= 0.5 * half))


def strip(motions: Sequence[Motion], view: View, title: str, clock: float = 0.0) -> str:
    """A row per motion, moments from first to last; the first motion also stands behind the others, paler."""
    width = (WIDTH - LEFT) / MOMENTS
    height = width / ASPECT
    seconds = np.linspace(motions[0].time[0], max(m.time[-1] for m in motions), MOMENTS)
    parts = []
    for k, second in enumerate(seconds):
        parts.append(f'<text class="axis" x="{LEFT + (k + 0.5) * width:.0f}" y="12" text-anchor="middle">{clock + second:.2f} s</text>')
    for i, m in enumerate(motions):
        top = TOP + i * (height + LINE)
        parts.append(f'<text x="{LEFT}" y="{top + 13:.0f}">{escape(m.name)}</text>')
        for k, second in enumerate(seconds):
            x, y = LEFT + k * width, top + LINE
            parts.append(f'<svg x="{x:.1f}" y="{y:.1f}" width="{width - 4:.1f}" height="{height - 3:.1f}" viewBox="-400 -300 800 600">')
            parts.append(_picture(motions, i, second, view) + "</svg>")
            if i and m.scene is motions[0].scene:
                text = f"{apart(motions[0], m, second):.2g} m apart"
                parts.append(f'<text class="axis" x="{x + width - 6:.0f}" y="{top + 13:.0f}" text-anchor="end">{text}</text>')
    return frame("".join(parts), WIDTH, round(TOP + len(motions) * (height + LINE)), title)


def _picture(motions: Sequence[Motion], i: int, second: float, view: View) -> str:
    m = motions[i]
    now = m.at(second)
    scale, R, centre = 300 / view.half, view.axes, view.centres[i][now]
    flat = lambda p: (p - centre) @ R.T * [scale, -scale, scale]  # noqa: E731
    parts = ['<rect class="sky" x="-400" y="-300" width="800" height="600"/>']
    if m.scene.ground is not None:
        parts.append(_ground(m.scene.ground, centre, view.half, flat))
        parts.append(f'<path class="shade" d="{_shade(m, now, flat)}"/>')
    if i and m.scene is motions[0].scene:
        other = motions[0]
        seen = [f for f, *_ in _faces(other, other.at(second), flat)]
        parts.append(f'<path fill="{_hex(np.array(COLOURS[0]))}" opacity="{GHOST}" d="{"".join(map(_path, seen))}"/>')
    parts.append('<g fill="currentColor" stroke="currentColor" stroke-width="1.5" stroke-linejoin="round">')
    colour = np.array(COLOURS[i % len(COLOURS)], float)
    for f, normal, light in sorted(_faces(m, now, flat), key=lambda face: face[0][:, 2].mean()):
        parts.append(f'<path color="{_hex(_shaded(colour, normal, light))}" d="{_path(f)}"/>')
    return "".join(parts) + "</g>"


def _faces(m: Motion, now: int, flat) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """Faces that look towards the eye: corners in the picture, (v, 3), the direction in which it looks, the part's lightness."""
    found = []
    for s in m.scene.solids:
        corners = flat(m.corners(s, now))
        for face in s.faces:
            f = corners[list(face)]
            normal = _normal(f)
            if normal[2] > 0:
                found.append((f, normal, s.light))
    return found


def _normal(f: np.ndarray) -> np.ndarray:
    """Of a face in the picture, where y goes down: right, up, towards the eye."""
    g = f * [1.0, -1.0, 1.0]
    n = np.cross(g, np.roll(g, -1, axis=0)).sum(axis=0)
    return n / max(float(np.linalg.norm(n)), 1e-12)


def _shaded(colour: np.ndarray, normal: np.ndarray, light: float) -> np.ndarray:
    t = 0.5 + 0.5 * float(normal @ LIGHT) / float(np.linalg.norm(LIGHT))
    own = colour * (0.7 + 0.3 * light)
    return own * DARK + t * (own + BRIGHT * (255 - own) * t - own * DARK)


def _shade(m: Motion, now: int, flat) -> str:
    """The shadow right below, of all faces that look up."""
    out = ""
    for s in m.scene.moving:
        corners = m.corners(s, now)
        below = flat(corners * [1.0, 1.0, 0.0] + [0.0, 0.0, m.scene.ground])
        for face in s.faces:
            f = corners[list(face)]
            if np.cross(f, np.roll(f, -1, axis=0)).sum(axis=0)[2] > 0:
                out += _path(below[list(face)])
    return out


def _ground(height: float, centre: np.ndarray, half: float, flat) -> str:
    step, n = cell(half), 8
    middle = np.round(centre[:2] / step) * step
    out = ""
    for k in range(-n, n + 1):
        for way in (np.array([1.0, 0.0]), np.array([0.0, 1.0])):
            ends = [middle + step * (k * way[::-1] + side * n * way) for side in (-1, 1)]
            (a, b, _), (c, d, _) = (flat(np.append(e, height)) for e in ends)
            out += f"M{a:.0f} {b:.0f}L{c:.0f} {d:.0f}"
    return f'<path class="cells" d="{out}"/>'


def _path(f: np.ndarray) -> str:
    return "M" + " ".join(f"{x:.0f} {y:.0f}" for x, y in f[:, :2]) + "z"


def _hex(colour: np.ndarray) -> str:
    return "#" + "".join(f"{round(float(np.clip(c, 0, 255))):02x}" for c in colour)
