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

from isthmus.errors import BadInput
from isthmus.studio.report.motion import Motion, View, view
from isthmus.studio.report.page import embedded
from isthmus.studio.report.solids import Scene
from isthmus.studio.report.strip import BRIGHT, CELLS, COLOURS, DARK, GHOST, LIGHT, cell, strip

SCRIPT = files("isthmus.studio.report").joinpath("player.js").read_text(encoding="utf-8")
FINE = 2000
"""Lengths are whole numbers of the radius over this."""
TURN = 10_000
"""Numbers of a quaternion, times this."""
FRAMES, RATE = 600, 50.0
"""At most: of a motion, and per second. The script fills in between."""


def player(motions: Sequence[Motion], caption: str, clock: float = 0.0) -> str:
    """Motions that begin together; the first one also stands behind the others of its scene. `clock`, s, is what is shown for
    their time 0."""
    if not motions or any(len(m.time) < 2 for m in motions):
        raise BadInput("a player needs motions of two moments or more.")
    seen = view(motions)
    title = ", ".join(m.name for m in motions)
    if any(m.scene.ground is not None for m in motions):
        caption += f" Squares on the ground are {cell(seen.half):g} m wide."
    text = embedded(_data(motions, seen, clock))
    return (
        f'<figure class="player"><div class="strip">{strip(motions, seen, title, clock)}</div>'
        f'<figcaption>{escape(caption)}</figcaption><script type="application/json">{text}</script></figure>'
    )


def _data(motions: Sequence[Motion], seen: View, clock: float) -> dict[str, Any]:
    scenes: list[Scene] = []
    for m in motions:
        if not any(m.scene is s for s in scenes):
            scenes.append(m.scene)
    unit = min(s.radius for s in scenes) / FINE
    which = lambda m: next(i for i, s in enumerate(scenes) if s is m.scene)  # noqa: E731
    return {
        "unit": float(f"{unit:.6g}"),
        "turn": TURN,
        "clock": clock,
        "light": LIGHT.round(4).tolist(),
        "dark": DARK,
        "bright": BRIGHT,
        "ghost": GHOST,
        "view": {"azimuth": seen.azimuth, "elevation": seen.elevation, "half": seen.half},
        "ground": {"cell": cell(seen.half), "cells": CELLS},
        "scenes": [_scene(s, unit) for s in scenes],
        "motions": [_motion(m, c, which(m), i, unit) for i, (m, c) in enumerate(zip(motions, seen.centres, strict=True))],
    }


def _scene(s: Scene, unit: float) -> dict[str, Any]:
    bodies, own = s.bodies, s.own
    solids = [
        {
            "body": bodies.index(solid.body),
            "own": any(solid is other for other in own),
            "light": round(solid.light, 2),
            "corners": (solid.corners / unit).round().astype(int).ravel().tolist(),
            "faces": solid.faces,
        }
        for solid in s.solids
    ]
    base = bodies.index(s.base) if s.base in bodies else None
    return {"ground": s.ground, "base": base if s.base else None, "solids": solids}


def _motion(m: Motion, centres: np.ndarray, scene: int, i: int, unit: float) -> dict[str, Any]:
    length = float(m.time[-1] - m.time[0])
    frames = min(len(m.time), FRAMES, round(length * RATE) + 1)
    some = np.unique(np.linspace(0, len(m.time) - 1, max(frames, 2)).round().astype(int))
    bodies = m.scene.bodies
    place = (m.xpos[some][:, bodies] / unit).round()
    pose = np.concatenate([place, (m.xquat[some][:, bodies] * TURN).round()], axis=2)
    return {
        "name": m.name,
        "scene": scene,
        "colour": COLOURS[i % len(COLOURS)],
        "time": m.time[some].round(4).tolist(),
        "pose": pose.reshape(len(some), -1).astype(int).tolist(),
        "centre": (centres[some] / unit).round().astype(int).tolist(),
    }
