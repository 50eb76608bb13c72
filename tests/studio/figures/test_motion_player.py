"""Motions in a page: solids are those of the model, pictures hold what moves, and a page needs nothing else."""

from __future__ import annotations

import json
import re
from functools import cache

import mujoco
import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.robots import get_robot
from isthmus.studio.figures.motion_player import PLAYER_SCRIPT, QUATERNION_SCALE, player_html
from isthmus.studio.figures.poses import ASPECT, Motion, fit_view, largest_distance, motion_from_states
from isthmus.studio.figures.solids import MAX_FACE_LENGTH, SolidScene, solid_scene
from isthmus.studio.live.geoms import bounding_box, visible_geoms
from isthmus.studio.reports.page import Section, html_page
from support.browser import Browser, chromium

ROBOTS = ("pendulum", "cartpole", "crazyflie", "go1")
TIME = np.arange(51) / 25.0
BLOCKS = """<mujoco><asset><mesh name="two" vertex="{}" face="{}"/></asset>
<worldbody><body><freejoint/><geom type="mesh" mesh="two" density="1000"/></body></worldbody></mujoco>"""


@cache
def drawing(name: str) -> SolidScene:
    robot = get_robot(name)
    return solid_scene(robot.model, robot.morphology.base)


def moving(name: str, speed: float = 0.0, sway: float = 0.2) -> Motion:
    robot = get_robot(name)
    q = np.tile(robot.home, (len(TIME), 1))
    m = robot.model
    for j in range(m.njnt):
        at = int(m.jnt_qposadr[j])
        q[:, at] += speed * TIME if m.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE else sway * np.sin(3 * TIME + j)
    return motion_from_states(name, drawing(name), m, TIME, q)


def data(html: str) -> dict:
    return json.loads(re.findall(r'<script type="application/json">(.*?)</script>', html)[0])


@pytest.mark.parametrize("name", ROBOTS)
def test_solids_are_closed_convex_and_of_small_faces(name):
    drawn = solid_scene(get_robot(name).model)
    for solid in drawn.solids:
        middle = solid.corners.mean(axis=0)
        area = np.zeros(3)
        for face, normal in zip(solid.faces, solid.normals, strict=True):
            corners = solid.corners[list(face)]
            assert (corners.mean(axis=0) - middle) @ normal > 0  # it looks outward
            assert ((solid.corners - corners[0]) @ normal).max() < 1e-3 * drawn.radius  # all else is behind it
            assert np.linalg.norm(np.ptp(corners, axis=0)) < 3 * MAX_FACE_LENGTH * drawn.radius
            area += np.cross(corners, np.roll(corners, -1, axis=0)).sum(axis=0) / 2
        assert np.abs(area).max() < 1e-3 * np.ptp(solid.corners, axis=0).max() ** 2  # no face is missing


@pytest.mark.parametrize("name", ROBOTS)
def test_solids_lie_inside_the_box_that_the_engine_has_around_all_geoms(name):
    robot = get_robot(name)
    model, data = robot.model, mujoco.MjData(robot.model)
    data.qpos[:] = robot.home
    mujoco.mj_kinematics(model, data)
    still = motion_from_states(name, solid_scene(model), model, TIME[:2], np.tile(robot.home, (2, 1)))
    corners = np.concatenate([still.corners(s, 0) for s in still.scene.solids])
    low, high = bounding_box(model, data, visible_geoms(model))
    assert (corners >= low - 1e-5).all()
    assert (corners <= high + 1e-5).all()
    assert (np.ptp(corners, axis=0) > 0.9 * (high - low)).all()  # and it is as large, but for rounded sides


def test_a_box_keeps_its_size_and_a_mesh_of_two_parts_is_two_solids():
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
    both = np.concatenate([corners, corners + np.array([3.0, 0, 0])])
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = [(a + k, b + k, c + k) for k in (0, 8) for q in quads for a, b, c in ((q[0], q[1], q[2]), (q[0], q[2], q[3]))]
    text = lambda rows: " ".join(f"{v:g}" for row in rows for v in row)
    model = mujoco.MjModel.from_xml_string(BLOCKS.format(text(both), text(faces)))
    solids = solid_scene(model).solids
    assert len(solids) == 2
    for solid in solids:
        assert np.allclose(np.sort(np.ptp(solid.corners, axis=0)), 1.0, atol=1e-4)
        assert len(np.unique(solid.normals.round(3), axis=0)) == 6


@pytest.mark.parametrize("name", ROBOTS)
def test_a_view_holds_all_that_moves(name):
    motions = [moving(name), moving(name, 0.1, 0.4)]
    seen = fit_view(motions)
    for m, centre in zip(motions, seen.centres, strict=True):
        for s in (s for s in m.scene.solids if s.moves):
            x, y, _ = np.moveaxis((m.corners(s, np.arange(len(TIME))) - centre[:, None]) @ seen.axes.T, -1, 0)
            assert np.abs(x).max() <= ASPECT * seen.half_height
            assert np.abs(y).max() <= seen.half_height


def test_a_robot_that_goes_far_is_followed_and_seen_large():
    m = moving("go1", 10.0)
    seen = fit_view([m])
    off = np.linalg.norm(m.xpos[:, m.scene.base] - seen.centres[0], axis=1)
    assert off[10:-10].max() < 0.1
    assert seen.half_height < 4 * m.scene.radius


def test_apart_is_the_distance_of_the_engine():
    a, b = moving("crazyflie"), moving("crazyflie", 0.5)
    assert largest_distance(a, a, 1.0) == 0.0
    assert largest_distance(a, b, 1.0) == pytest.approx(0.5, abs=1e-6)


def test_poses_survive_the_way_into_the_page():
    a = moving("go1", 0.5)
    d = data(player_html([a], "walk"))
    pose = np.array(d["motions"][0]["pose"]).reshape(len(TIME), -1, 7)
    bodies = a.scene.bodies
    assert np.abs(pose[..., :3] * d["unit"] - a.xpos[:, bodies]).max() < 1e-3
    assert np.abs(pose[..., 3:] / QUATERNION_SCALE - a.xquat[:, bodies]).max() < 1e-4
    assert d["motions"][0]["time"] == TIME.tolist()


@pytest.mark.parametrize("name", ROBOTS)
def test_a_page_is_small_and_needs_nothing_from_outside(name):
    a, b = moving(name), moving(name, 0.3, 0.3)
    html = html_page(
        "motions",
        [Section("one", player_html([a, Motion("<b>", a.scene, b.time, b.xpos, b.xquat)], "a < b"))],
        {},
        PLAYER_SCRIPT,
    )
    assert len(html) < 1_000_000
    assert not re.findall(r"https?:|//\w|@import|url\(|<link|<img|<iframe|\ssrc=", html.replace(PLAYER_SCRIPT, ""))
    assert not re.findall(r"https?:|@import|fetch\(|import\(|XMLHttp", PLAYER_SCRIPT)
    assert "<b>" not in html.replace(PLAYER_SCRIPT, "").split("<script")[0]  # a name is text
    assert "a &lt; b" in html


def test_different_robots_stand_side_by_side():
    d = data(player_html([moving(name) for name in ROBOTS], "four"))
    assert len(d["scenes"]) == len(d["motions"]) == 4
    assert [m["scene"] for m in d["motions"]] == [0, 1, 2, 3]


def test_one_moment_is_no_motion():
    a = moving("pendulum")
    with pytest.raises(BadInput, match="two moments"):
        player_html([Motion("one", a.scene, a.time[:1], a.xpos[:1], a.xquat[:1])], "")


@pytest.mark.skipif(chromium() is None, reason="needs Chromium")
def test_the_script_draws_what_the_poses_say(tmp_path):
    a, b = moving("go1"), moving("go1", 0.3, 0.5)
    b = Motion("other", a.scene, b.time, b.xpos, b.xquat)
    (tmp_path / "a.html").write_text(html_page("motions", [Section("one", player_html([a, b], ""))], {}, PLAYER_SCRIPT))
    browser = Browser(tmp_path / "profile", (800, 600))
    try:
        browser.open((tmp_path / "a.html").as_uri())
        browser.wait_for(lambda: browser.run("!!document.querySelector('.player.on canvas')"), "the player")
        for share in (0.0, 0.5, 1.0):
            browser.run(f"(r => {{r.value = {1000 * share}; r.oninput()}})(document.querySelector('.bar input[type=range]'))")
            told = browser.run("document.querySelectorAll('.label span')[1].textContent")
            assert told == f"{largest_distance(a, b, share * TIME[-1]):.2f} m apart"
            assert browser.run("document.querySelector('.bar output').textContent") == f"{share * TIME[-1]:.2f} s"
        # Both robots are there, in their colours.
        pixels = "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
        for i, bluer in enumerate((True, False)):
            drawn = np.array(browser.run(f"({pixels})(document.querySelectorAll('canvas')[{i}])")).reshape(-1, 4)
            solid = drawn[drawn[:, 3] > 250, :3].astype(float)
            assert len(solid) > 500
            assert (np.median(solid[:, 2] - solid[:, 0]) > 0) == bluer
        # The strip is for paper alone.
        assert browser.run("getComputedStyle(document.querySelector('.strip')).display") == "none"
        browser.call("Emulation.setEmulatedMedia", media="print")
        assert browser.run("getComputedStyle(document.querySelector('.strip')).display") == "block"
        assert browser.run("getComputedStyle(document.querySelector('.player .screen')).display") == "none"
    finally:
        browser.close()
