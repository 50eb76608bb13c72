"""Motions side by side in a page: played, paused, slowed down and turned with the mouse; a strip of moments on paper.

    robot = scene(model)
    html = player([motion("recorded", robot, model, time, qpos), …], "caption")      a fragment, for any section
    page(title, sections, data, SCRIPT)                                                its script once, for all players

Each motion brings its scene, so that robots may differ. The fragment holds faces and poses; the script draws them.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.studio.figures.motion_strip import (
    GHOST_OPACITY,
    GROUND_CELLS,
    HIGHLIGHT_FACTOR,
    LIGHT_DIRECTION,
    MOTION_COLOURS,
    SHADE_FACTOR,
    ground_cell_size,
    strip_svg,
)
from isthmus.studio.figures.poses import Motion, View, fit_view
from isthmus.studio.figures.solids import SolidScene
from isthmus.studio.reports.page import script_json

PLAYER_SCRIPT = files("isthmus.studio.figures").joinpath("motion_player.js").read_text(encoding="utf-8")
LENGTH_RESOLUTION = 2000
"""Lengths are whole numbers of the radius over this."""
QUATERNION_SCALE = 10_000
"""Numbers of a quaternion, times this."""
MAX_FRAMES, MAX_FRAME_RATE = 600, 50.0
"""At most: of a motion, and per second. The script fills in between."""


def player_html(motions: Sequence[Motion], caption: str, start_time: float = 0.0) -> str:
    """Motions that begin together; the first one also stands behind the others of its scene. `clock`, s, is what is shown for
    their time 0."""
    if not motions or any(len(m.time) < 2 for m in motions):
        raise BadInput("a player needs motions of two moments or more.")
    seen = fit_view(motions)
    title = ", ".join(m.name for m in motions)
    if any(m.scene.ground is not None for m in motions):
        caption += f" Squares on the ground are {ground_cell_size(seen.half_height):g} m wide."
    text = script_json(_player_data(motions, seen, start_time))
    return (
        f'<figure class="player"><div class="strip">{strip_svg(motions, seen, title, start_time)}</div>'
        f'<figcaption>{escape(caption)}</figcaption><script type="application/json">{text}</script></figure>'
    )


def _player_data(motions: Sequence[Motion], seen: View, start_time: float) -> dict[str, Any]:
    scenes: list[SolidScene] = []
    for m in motions:
        if not any(m.scene is s for s in scenes):
            scenes.append(m.scene)
    unit = min(s.radius for s in scenes) / LENGTH_RESOLUTION
    which = lambda m: next(i for i, s in enumerate(scenes) if s is m.scene)  # noqa: E731
    return {
        "unit": float(f"{unit:.6g}"),
        "turn": QUATERNION_SCALE,
        "clock": start_time,
        "light": LIGHT_DIRECTION.round(4).tolist(),
        "dark": SHADE_FACTOR,
        "bright": HIGHLIGHT_FACTOR,
        "ghost": GHOST_OPACITY,
        "view": {"azimuth": seen.azimuth, "elevation": seen.elevation, "half": seen.half_height},
        "ground": {"cell": ground_cell_size(seen.half_height), "cells": GROUND_CELLS},
        "scenes": [_scene_data(s, unit) for s in scenes],
        "motions": [_motion_data(m, c, which(m), i, unit) for i, (m, c) in enumerate(zip(motions, seen.centres, strict=True))],
    }


def _scene_data(s: SolidScene, unit: float) -> dict[str, Any]:
    bodies, own = s.bodies, s.framed_solids
    solids = [
        {
            "body": bodies.index(solid.body),
            "own": any(solid is other for other in own),
            "light": round(solid.brightness, 2),
            "corners": (solid.corners / unit).round().astype(int).ravel().tolist(),
            "faces": solid.faces,
        }
        for solid in s.solids
    ]
    base = bodies.index(s.base) if s.base in bodies else None
    return {"ground": s.ground, "base": base if s.base else None, "solids": solids}


def _motion_data(m: Motion, centres: np.ndarray, scene: int, i: int, unit: float) -> dict[str, Any]:
    length = float(m.time[-1] - m.time[0])
    frames = min(len(m.time), MAX_FRAMES, round(length * MAX_FRAME_RATE) + 1)
    some = np.unique(np.linspace(0, len(m.time) - 1, max(frames, 2)).round().astype(int))
    bodies = m.scene.bodies
    place = (m.xpos[some][:, bodies] / unit).round()
    pose = np.concatenate([place, (m.xquat[some][:, bodies] * QUATERNION_SCALE).round()], axis=2)
    return {
        "name": m.name,
        "scene": scene,
        "colour": MOTION_COLOURS[i % len(MOTION_COLOURS)],
        "time": m.time[some].round(4).tolist(),
        "pose": pose.reshape(len(some), -1).astype(int).tolist(),
        "centre": (centres[some] / unit).round().astype(int).tolist(),
    }
