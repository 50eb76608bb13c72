"""Any MuJoCo model in a browser: one frame per moving body, its geoms fixed inside.

    scene = Scene(server, model)
    scene.update(xpos, xquat)            world poses of all bodies, (nbody, 3) and (nbody, 4)

The camera follows a robot by moving the world under it: the viewer's own mouse control is never disturbed, and light
and shadow stay where the robot is.
"""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np
import viser

from isthmus.core.constants import MODEL_GRAVITY
from isthmus.studio.live.geoms import Geom, add_geom, bounding_box, geom_colour, geom_type, visible_geoms

GROUND_CELL = 1.0
"""m between lines of the ground; the ground moves in whole cells, so that it never ends."""
CAMERA_DIRECTION = np.array([1.0, -1.25, 0.62])
"""Direction from the robot to the camera."""
CAMERA_DISTANCE = 1.8
"""Distance of the camera, in units of the robot's radius and the length of VIEW."""
NARROW_ASPECT = 0.8
"""Width over height below which the page puts the controls at the bottom."""
FOLLOW_RATE = np.array([0.15, 0.15, 0.04])
"""Part of the way to the robot that the view catches up per update: slowly in height, so that steps do not shake it."""
SKY_COLOUR = (236, 240, 244)
FLOOR_COLOUR = np.array([0.80, 0.82, 0.85])
ARROW_COLOUR = (214, 74, 52)


class LiveScene:
    def __init__(
        self,
        server: viser.ViserServer,
        model: mujoco.MjModel,
        base: str = "",
        home: Sequence[float] | None = None,
        reach: float = 0.0,
    ):
        """`base` is the body to follow, if it can move away.

        The first view shows the robot at qpos `home`, and as far around it as `reach`, m.
        """
        self.server, self.model = server, model
        self.follow = True
        self.base = _free_body(model, base)
        self.geoms = visible_geoms(model)
        data = mujoco.MjData(model)
        if home is not None:
            data.qpos[:] = home
        mujoco.mj_kinematics(model, data)
        low, high = bounding_box(model, data, self.geoms)
        self._radius = max(float(np.linalg.norm(high - low)) / 2, reach, 1e-3)
        self._weight = float(model.body_subtreemass[max(self.base, 1)]) * MODEL_GRAVITY if model.nbody > 1 else 1.0
        self._height = float(data.xpos[self.base, 2])
        self._centre = np.zeros(3)
        self._goal_marker: viser.IcosphereHandle | None = None
        with server.atomic():
            self._add_lights()
            self._root = server.scene.add_frame("/world", show_axes=False)
            moving = sorted({int(model.geom_bodyid[g]) for g in self.geoms})
            self._frames = {b: server.scene.add_frame(f"/world/{b}", show_axes=False) for b in moving if model.body_weldid[b]}
            self._grounds: list[tuple[viser.GridHandle, np.ndarray, bool]] = []
            for g in self.geoms:
                self._add_geom(g, data)
            if not any(geom_type(model, g) in (Geom.mjGEOM_PLANE, Geom.mjGEOM_HFIELD) for g in self.geoms):
                self._add_ground(
                    "/ground", FLOOR_COLOUR, np.array([0.0, 0.0, low[2] - 0.4 * self._radius]), np.array([1.0, 0, 0, 0])
                )
            r = self._radius
            self._arrow = server.scene.add_arrows(
                "/world/force", np.zeros((1, 2, 3)), ARROW_COLOUR, shaft_radius=0.03 * r,
                head_radius=0.08 * r, head_length=0.15 * r,
                visible=False,
            )  # fmt: skip
        self._aim_camera((low + high) / 2 - data.xpos[self.base] * [1.0, 1.0, 0.0])
        self.update(data.xpos, data.xquat, jump=True)

    def _add_lights(self) -> None:
        scene = self.server.scene
        scene.set_up_direction("+z")
        # Image-based lighting would veil the page while it loads, for many seconds without a graphics card.
        scene.configure_environment_map(None)
        scene.configure_default_lights(enabled=False)
        scene.add_light_hemisphere("/sky", sky_color=(255, 255, 255), ground_color=(170, 175, 180), intensity=1.6)
        scene.add_light_directional("/sun", intensity=2.0, cast_shadow=True, position=(1.0, -1.2, 2.5))
        scene.set_background_image(np.full((2, 2, 3), SKY_COLOUR, dtype=np.uint8))

    def _add_geom(self, geom: int, data: mujoco.MjData) -> None:
        model = self.model
        body = int(model.geom_bodyid[geom])
        if geom_type(model, geom) == Geom.mjGEOM_PLANE:
            quat = np.zeros(4)
            mujoco.mju_mat2Quat(quat, data.geom_xmat[geom])
            self._add_ground(f"/ground_{geom}", geom_colour(model, geom)[:3], data.geom_xpos[geom].copy(), quat)
        elif body in self._frames:
            add_geom(self.server.scene, f"/world/{body}/{geom}", model, geom)
        else:
            frame = f"/world/fixed_{body}"
            self.server.scene.add_frame(frame, show_axes=False, position=data.xpos[body], wxyz=data.xquat[body])
            add_geom(self.server.scene, f"{frame}/{geom}", model, geom)

    def _add_ground(self, name: str, rgb: np.ndarray, place: np.ndarray, quat: np.ndarray) -> None:
        """A plane is drawn as a wide field of cells around the robot; a tilted one stays where it is."""
        grid = self.server.scene.add_grid(
            name,
            width=60.0,
            height=60.0,
            cell_size=GROUND_CELL / 4,
            section_size=GROUND_CELL,
            cell_color=0.93 * rgb,
            section_color=0.8 * rgb,
            plane_color=rgb,
            plane_opacity=1.0,
            shadow_opacity=0.3,
            fade_distance=30.0,
            wxyz=quat,
            position=place,
        )
        level = bool(np.hypot(quat[1], quat[2]) < 1e-3)
        self._grounds.append((grid, place, level))

    def _aim_camera(self, centre: np.ndarray) -> None:
        """Place the first view so that the robot fills it."""
        far = CAMERA_DISTANCE * self._radius * CAMERA_DIRECTION
        camera = self.server.initial_camera
        camera.look_at, camera.position = centre, centre + far
        camera.up = np.array([0.0, 0.0, 1.0])
        camera.near = 0.02 * self._radius

        @self.server.on_client_connect
        def _(client: viser.ClientHandle) -> None:
            # On a narrow window the controls cover the lower half: show the robot above them.
            if client.camera.aspect < NARROW_ASPECT:
                below = centre - [0.0, 0.0, 2.0 * self._radius]
                with client.atomic():
                    client.camera.position, client.camera.look_at = below + 1.8 * far, below

    def update(self, xpos: np.ndarray, xquat: np.ndarray, force: np.ndarray | None = None, jump: bool = False) -> None:
        """Show world poses, (nbody, 3), m, and (nbody, 4), w x y z; `force`, (3,), N, is drawn as an arrow at the base.

        `jump` puts the view at the robot at once, for a start; otherwise it glides after it.
        """
        with self.server.atomic():
            if self.follow and self.base > 0:
                goal = xpos[self.base] - [0.0, 0.0, self._height]
                away = goal - self._centre
                self._centre = goal if jump or np.linalg.norm(away) > 1.0 else self._centre + FOLLOW_RATE * away
                self._move_world()
            for body, frame in self._frames.items():
                frame.position = xpos[body]
                frame.wxyz = xquat[body]
            size = 0.0 if force is None else float(np.linalg.norm(force)) / self._weight
            self._arrow.visible = size > 0.02
            if force is not None and size > 0.02:
                start = xpos[max(self.base, 1)] + [0.0, 0.0, 0.2 * self._radius]
                tip = start + 1.5 * self._radius * force / self._weight
                self._arrow.points = np.array([[start, tip]], dtype=np.float32)

    def show_goal(self, place: np.ndarray) -> None:
        """Show where the robot is asked to go, (3,), m."""
        if self._goal_marker is None:
            self._goal_marker = self.server.scene.add_icosphere(
                "/world/goal", radius=0.04 * self._radius, color=ARROW_COLOUR, opacity=0.6, cast_shadow=False
            )
        self._goal_marker.position = place

    def _move_world(self) -> None:
        self._root.position = -self._centre
        for grid, home, level in self._grounds:
            shift = np.mod(self._centre, GROUND_CELL) * [1, 1, 0] + self._centre * [0, 0, 1] if level else self._centre
            grid.position = home - shift


def _free_body(model: mujoco.MjModel, name: str) -> int:
    """The body with a free joint to follow: the named one or the first; 0 if the robot is fixed in place."""
    free = [int(b) for b, kind in zip(model.jnt_bodyid, model.jnt_type, strict=True) if int(kind) == mujoco.mjtJoint.mjJNT_FREE]
    named = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, name) if name else -1
    return named if named in free else (free[0] if free else 0)
