"""The page: where it listens, a world under the user's hands, replay files, and a real browser that moves a slider."""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.robots import get_robot
from isthmus.sim.physics.blow_up import BlowUpRecorder
from isthmus.sim.simulation import Simulation
from isthmus.studio.live import policy_viewer
from isthmus.studio.live.blowup_replay import ReplaySession, farthest_parameters, load_dump
from isthmus.studio.live.parameter_sliders import from_slider
from isthmus.studio.live.server import close_server, free_port
from isthmus.tasks.catalogue import get_task
from support.browser import Browser, chromium

GO1 = get_robot("go1").space


# Where the page listens -----------------------------------------------------------------------------------------


def test_only_this_machine_and_the_next_free_port():
    with pytest.raises(BadInput, match="only listens on this machine"):
        free_port(8080, "0.0.0.0")
    with pytest.raises(BadInput, match="not between"):
        free_port(70000)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port < free_port(port) < port + 20


def test_serve_and_replay_end_by_themselves_and_tell_only_their_address(dump, capsys):
    told = []
    policy_viewer.serve(get_task("go1/walk"), None, port=0, seconds=0.1, on_ready=told.append)
    policy_viewer.replay(dump, port=0, seconds=0.1, on_ready=told.append)
    assert len(told) == 2
    for address in told:
        host, port = address.removeprefix("http://").split(":")
        assert host == "127.0.0.1"
        with socket.socket() as s:
            assert s.connect_ex((host, int(port))) != 0
    assert capsys.readouterr().out == ""


# A world under the user's hands ---------------------------------------------------------------------------------


@pytest.fixture
def session():
    s = policy_viewer.ViewerSession(get_task("go1/walk"), None, None, 0, "127.0.0.1", seed=3)
    yield s
    close_server(s.server)


def walk(session, ticks):
    for _ in range(ticks):
        session.poll()
        session.tick()


def test_a_slider_changes_the_world_under_a_robot_that_keeps_standing(session):
    engine, i = session.env.sim, GO1.index("ground_friction")
    walk(session, 20)
    before = engine.qpos.copy(), engine.qvel.copy()
    session.world.sliders["ground_friction"].slider.value = 25.0
    session.poll()
    assert engine.e[0, i] == from_slider(GO1["ground_friction"], 25.0)
    assert engine.engine.field("geom_friction")[0, engine.model.geom("floor").id, 0] == pytest.approx(engine.e[0, i])
    others = np.arange(len(GO1)) != i
    np.testing.assert_array_equal(engine.e[0, others], GO1.nominal[others])
    for now, was in zip((engine.qpos, engine.qvel), before, strict=True):
        np.testing.assert_array_equal(now, was)
    walk(session, round(12 / engine.tick))
    assert session.readout.falls == 0
    assert session.readout.time_since_start > get_task("go1/walk").episode


def test_buttons(session):
    engine = session.env.sim
    session.buttons.press("sample prior")
    session.poll()
    drawn = engine.e[0].copy()
    assert (drawn != GO1.nominal).sum() > 30
    for name in ("kp", "gyro_bias_x"):
        low, high = session.prior.interval(name, 1.0)
        assert low <= drawn[GO1.index(name)] <= high
    session.buttons.press("reset")
    session.poll()
    np.testing.assert_array_equal(engine.e[0], drawn)
    assert session.readout.time_since_start == 0
    assert session.readout.falls == 0
    session.buttons.press("nominal")
    session.poll()
    np.testing.assert_array_equal(engine.e[0], GO1.nominal)
    session.buttons.press("set payload = 3")
    session.poll()
    assert engine.e[0, GO1.index("payload")] == 3.0
    session.buttons.press("set payload = much")
    session.poll()
    assert engine.e[0, GO1.index("payload")] == 3.0
    assert "a number" in session._error_text.content


def test_a_push_gives_the_speed_that_its_slider_says(session):
    session.push_speed.slider.value = 0.5
    session.buttons.press("push")
    session.poll()
    impulse = np.zeros(3)
    for _ in range(20):
        session.tick()
        impulse += session.env.disturbances.force[0] * session.env.sim.tick
    assert np.linalg.norm(impulse) == pytest.approx(0.5 * session.env.disturbances.mass)


def test_the_command_reaches_the_policy_and_the_readout(session):
    session.command.sliders[0].slider.value = 0.6
    session.poll()
    assert session.env.signals()["command"][0].tolist() == pytest.approx([0.6, 0.0, 0.0])
    walk(session, 60)
    session.update_readout()
    forward = next(line for line in session._readout_text.content.splitlines() if line.startswith("| forward"))
    assert re.fullmatch(r"\| forward \| \+0\.60 \| [+-]?0\.\d\d \| m/s \|", forward)
    session.buttons.press("stop")
    session.poll()
    assert session.env.command[0].tolist() == [0.0, 0.0, 0.0]


# Replay ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def dump(tmp_path) -> Path:
    """A real blow-up: a robot thrown at an absurd speed."""
    robot = get_robot("go1")
    engine = Simulation(robot, 2)
    e = GO1.vector({"payload": 5.0})
    engine.apply(np.tile(e, (2, 1)), engine.all_ids)
    recorder = BlowUpRecorder(engine, tmp_path)
    target = np.tile(np.array(robot.default), (2, 1))
    for k in range(10):
        if k == 9:
            engine.qvel[1, 6:] = 1e4
        recorder.note(target)
        engine.step(target)
        if recorder.rescue().any():
            break
    assert len(recorder.dumps) == 1
    return recorder.dumps[0]


def test_a_blow_up_is_read_back_and_says_what_was_unusual(dump):
    d = load_dump(dump)
    assert (d.robot.name, len(d.qpos), d.tick) == ("go1", 10, pytest.approx(0.02))
    assert np.abs(d.qvel[-1]).max() >= 1e4
    assert np.abs(d.qvel[-2]).max() < 100
    assert farthest_parameters(d) == [("payload", "5 kg", "0 kg")]


def test_replay_shows_the_recorded_poses_in_a_loop_and_obeys_the_timeline(dump):
    page = ReplaySession(dump, 0, "127.0.0.1", None, None)
    try:
        page.speed.value = "1×"
        seen = []
        show = page.draw

        def spy(frame, jump=False):
            show(frame, jump)
            seen.append(frame)
            np.testing.assert_allclose(page.data.xpos[1], page.dump.qpos[frame, :3], atol=1e-6)
            if len(seen) == 15:
                page.timeline.value = 4
            if len(seen) == 16:
                page.stop()

        page.draw = spy
        page.run(seconds=60)
        assert seen == [*range(1, 10), *range(6), 4]
        assert not page.playing.value
    finally:
        close_server(page.server)


def test_what_is_not_a_dump_is_one_sentence(dump, tmp_path):
    whole = dict(np.load(dump))
    bad = tmp_path / "bad.npz"

    def refuse(match, **changes):
        np.savez(bad, **{k: v for k, v in (whole | changes).items() if v is not None})
        with pytest.raises(BadInput, match=match):
            load_dump(bad)

    refuse("'e' is missing", e=None)
    refuse("unknown robot 'go11': did you mean 'go1'", robot=np.array("go11"))
    refuse("another model", model_hash=np.array("0" * 64))
    refuse("other parameters", names=whole["names"][1:])
    refuse("'qvel' has shape", qvel=whole["qvel"][:, 1:])
    refuse("'target' has shape", target=whole["target"][1:])
    refuse("no moment", **{k: whole[k][:0] for k in ("qpos", "qvel", "target")})
    refuse("not a blow-up dump", e=np.array([object()]))
    refuse("is not possible", tick=np.array(np.nan))
    bad.write_bytes(dump.read_bytes()[:3000])
    with pytest.raises(BadInput, match="not a blow-up dump"):
        load_dump(bad)
    with pytest.raises(BadInput, match="no such file"):
        load_dump(tmp_path / "none.npz")


def test_poses_that_are_no_numbers_are_left_out(dump):
    whole = dict(np.load(dump))
    whole["qpos"][7:] = np.nan
    np.savez(dump, **whole)
    assert len(load_dump(dump).qpos) == 7


# In a browser ---------------------------------------------------------------------------------------------------

SLIDER = """(() => {{
  const label = [...document.querySelectorAll('label')].find(x => x.textContent.startsWith('{0}'));
  return label && document.getElementById(label.htmlFor).querySelector('[role=slider]');
}})()"""


def view(browser):
    """The part of the page that shows the world only, (h, w, 3)."""
    return browser.picture()[180:, :480]


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason="chromium is not installed (apt-get install chromium)")
def test_in_chromium_the_robot_is_drawn_and_a_slider_moves_the_world(tmp_path):
    session = policy_viewer.ViewerSession(get_task("go1/walk"), None, None, 0, "127.0.0.1", seed=0)
    thread = threading.Thread(target=session.run)
    thread.start()
    browser = None
    try:
        i, p = GO1.index("ground_friction"), GO1["ground_friction"]
        browser = Browser(tmp_path / "profile", (820, 560))
        browser.open(session.url)
        browser.wait_for(lambda: browser.run(f"!!{SLIDER.format('ground_friction')}"), "the slider")

        # Beside the panel and below the browser's notes, only the feet are orange; ground and robot have many shades.
        def orange():
            r, g, b = view(browser).astype(int).transpose(2, 0, 1)
            return int(((r > 150) & (r - b > 90) & (g - b > 20)).sum())

        browser.wait_for(lambda: orange() > 100, "orange feet")
        assert len(np.unique(view(browser).reshape(-1, 3), axis=0)) > 200
        for frame in session.scene._frames.values():
            frame.visible = False
        browser.wait_for(lambda: orange() == 0, "the robot to vanish")

        # From the page to the physics.
        browser.run(f"{SLIDER.format('ground_friction')}.focus()")
        for _ in range(3):
            browser.press("ArrowRight", 39)
        browser.wait_for(lambda: session.env.sim.e[0, i] > p.nominal * 1.01, "friction to rise")
        moved = session.world.sliders["ground_friction"].value
        assert session.env.sim.e[0, i] == pytest.approx(from_slider(p, moved))

        # From the server to the page.
        session.world.sliders["ground_friction"].slider.value = 0.0
        browser.wait_for(lambda: session.env.sim.e[0, i] == p.low, "the lowest friction")
        shown = f"{SLIDER.format('ground_friction')}.getAttribute('aria-valuenow')"
        browser.wait_for(lambda: float(browser.run(shown)) == 0.0, "the slider to follow")

        # A button.
        browser.run("[...document.querySelectorAll('button')].find(x => x.textContent == 'nominal').click()")
        browser.wait_for(lambda: session.env.sim.e[0, i] == p.nominal, "nominal friction")
    finally:
        if browser is not None:
            browser.close()
        session.stop()
        thread.join(30)
        close_server(session.server)
    assert not thread.is_alive()
