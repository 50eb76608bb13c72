"""A short off-screen film of poses, as an animated GIF. Rendered in a process of its own: graphics drivers may crash.

python -m isthmus.studio.film FOLDER      reads model.mjb and poses.npz there, writes film.gif
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import mujoco
import numpy as np

if TYPE_CHECKING:
    from isthmus.tasks.task import Task

GL_BACKENDS = ("osmesa", "egl")
FRAME_SIZE = (240, 180)
"""Pixels across and down."""
BACKGROUND_RGB = [0.93, 0.93, 0.93]
"""Colour behind everything."""
MAX_FILM_SECONDS = 10.0
"""s of a film; of a longer motion the last ones."""
RENDER_TIMEOUT = 120.0
"""s that rendering may take."""


@dataclass(frozen=True)
class Film:
    gif: bytes = field(default=b"", repr=False)
    problem: str = ""
    """Why there is none, as a sentence; empty if there is one or none was wanted."""


NO_FILM = Film()


def render_film(task: Task, poses: np.ndarray, frame_interval: float) -> Film:
    """The film of poses, (frames, nq), `frame_interval` s apart."""
    from isthmus.sim.robot import compile_spec

    spec = task.robot.spec()
    if task.terrain is not None:
        task.terrain.edit(spec)
    sky = mujoco.mjtTexture.mjTEXTURE_SKYBOX
    if not any(texture.type == sky for texture in spec.textures):
        flat = mujoco.mjtBuiltin.mjBUILTIN_FLAT
        spec.add_texture(name="film_sky", type=sky, builtin=flat, rgb1=BACKGROUND_RGB, rgb2=BACKGROUND_RGB, width=8, height=48)
    model = compile_spec(spec, task.robot.name)
    poses = poses[-round(MAX_FILM_SECONDS / frame_interval) :]
    problem = ""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        mujoco.mj_saveModel(model, str(folder / "model.mjb"))
        base = model.body(task.robot.morphology.base).id if task.robot.morphology.base else -1
        np.savez(folder / "poses.npz", poses=poses, between=frame_interval, base=base)
        for backend in dict.fromkeys((os.environ.get("MUJOCO_GL") or GL_BACKENDS[0], *GL_BACKENDS)):
            command = [sys.executable, "-m", "isthmus.studio.film", scratch]
            try:
                done = subprocess.run(
                    command,
                    env=os.environ | {"MUJOCO_GL": backend},
                    capture_output=True,
                    text=True,
                    timeout=RENDER_TIMEOUT,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                problem = f"drawing took longer than {RENDER_TIMEOUT:g} s"
                continue
            film = folder / "film.gif"
            if done.returncode == 0 and film.exists():
                return Film(film.read_bytes())
            problem = (done.stderr.strip().splitlines() or ["nothing was drawn"])[-1][:200]
    return Film(problem=f"no film, because this machine cannot draw: {problem}")


def _render_in_process(folder: Path) -> None:
    from PIL import Image

    model = mujoco.MjModel.from_binary_path(str(folder / "model.mjb"))
    data = mujoco.MjData(model)
    with np.load(folder / "poses.npz", allow_pickle=False) as saved:
        poses, between, base = saved["poses"], float(saved["between"]), int(saved["base"])
    camera = mujoco.MjvCamera()
    data.qpos[:] = poses[0]
    mujoco.mj_forward(model, data)
    # The ground is large; how far the camera stands depends on the robot.
    own = model.geom_bodyid > 0
    away = np.linalg.norm(data.geom_xpos[own] - _robot_position(data, base), axis=1) + model.geom_rbound[own]
    camera.distance = max(0.5, 2.8 * float(away.max(initial=0.2)))
    camera.azimuth, camera.elevation = 120.0, -15.0
    frames = []
    with mujoco.Renderer(model, FRAME_SIZE[1], FRAME_SIZE[0]) as renderer:
        for pose in poses:
            data.qpos[:] = pose
            mujoco.mj_forward(model, data)
            camera.lookat[:] = _robot_position(data, base)
            renderer.update_scene(data, camera)
            frames.append(Image.fromarray(renderer.render()).quantize(48))
    frames[0].save(
        folder / "film.gif", save_all=True, append_images=frames[1:], duration=round(1000 * between), loop=0, optimize=True
    )


def _robot_position(data: mujoco.MjData, base: int) -> np.ndarray:
    """Where the robot is, m: its base, or the first thing that moves."""
    return data.xpos[base if base >= 0 else 1]


if __name__ == "__main__":
    _render_in_process(Path(sys.argv[1]))
