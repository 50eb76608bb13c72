"""OnnxController and robot as two processes, and everything that can go wrong between them.

All of it runs in slow motion, so that a machine with other things to do is still fast enough. Times are compared by the
robot's own count of periods, never by the clock on the wall.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zenoh

from isthmus.core.errors import BadInput
from isthmus.data.episode import Episode
from isthmus.data.mcap.writer import read_episode
from isthmus.deploy.guard.guard import GUARD_STATES
from isthmus.deploy.links import zenoh as zenoh_link
from isthmus.deploy.links.zenoh import COMMAND_KEY
from isthmus.deploy.onnx_controller import OnnxController
from isthmus.robots import get_robot
from support.link_processes import (
    LONG,
    PERIOD,
    SPEED,
    Listener,
    constant,
    finish,
    free_endpoint,
    garbage,
    isthmus,
    listener,
    robot,
    run,
)


@pytest.fixture(scope="module")
def controllers(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("controllers")
    return {name: constant(get_robot(name), folder / f"{name}.controller") for name in ("pendulum", "go1")}


@pytest.fixture(scope="module")
def pendulum() -> Iterator[str]:
    """Where a pendulum listens that several tests use one after the other."""
    endpoint = free_endpoint()
    with robot("pendulum", endpoint):
        yield endpoint


@pytest.fixture
def ears(pendulum) -> Iterator[Listener]:
    with listener(pendulum) as found:
        assert found.link.identity(LONG).mode in ("idle", "damp")
        yield found


def story(episode: Episode, *rules: str) -> list[str]:
    """States of the guard in the order in which it entered them, and these rules when they spoke."""
    return [e.name for e in episode.events if e.name in (*GUARD_STATES, *rules)]


def said(episode: Episode, name: str) -> str:
    """What the first event of that name says."""
    return next(e.text for e in episode.events if e.name == name)


# Runs that end well ----------------------------------------------------------------------------------------------------


def stranger(endpoint: str) -> zenoh.Session:
    return zenoh_link._open_session(endpoint, listen=False)


@pytest.mark.slow
def test_a_run_is_whole_whatever_a_stranger_shouts_into_the_link(controllers, pendulum, ears, tmp_path):
    path = tmp_path / "a.mcap"
    with run(controllers["pendulum"], pendulum, "--seconds", 1.5, "--record", path) as process:
        ears.mode("track")
        session = stranger(pendulum)
        for data in garbage(np.random.default_rng(0), np.full(1, 1.5)):
            session.put(COMMAND_KEY, data)
        time.sleep(0.2)
        session.close()
        code, report = finish(process)
    assert (code, report["status"], report["reason"], report["lost_ticks"]) == (0, "completed", "", 0)
    assert all(check["ok"] for check in report["checks"])
    found, contract = read_episode(path), get_robot("pendulum").contract
    assert found.complete
    assert found.contract == contract
    assert found.origin["controller_hash"] == report["controller_hash"] == OnnxController.load(controllers["pendulum"]).hash
    assert found.origin["source"] == "virtual"
    assert len(found) == report["recorded_ticks"] == report["ticks"]
    assert (story(found)[0], story(found)[-1]) == ("run", "stop")
    running = found.status["state"] == GUARD_STATES.index("run")
    assert running.sum() >= 1.5 * contract.rate / 2
    assert (found.target[running] == 0).all()
    assert (np.diff(found.status["sequence"]) >= 0).all()


@pytest.mark.slow
def test_a_second_controller_is_refused_and_the_first_sits_down_when_asked_to(controllers, pendulum, ears, tmp_path):
    path = tmp_path / "first.mcap"
    with ExitStack() as both:
        first = both.enter_context(run(controllers["pendulum"], pendulum, "--record", path))
        ears.mode("track")
        second = both.enter_context(run(controllers["pendulum"], pendulum, "--seconds", 1))
        code, report = finish(second)
        assert first.poll() is None
        ears.mode("track")
        assert code == 1
        assert [c["name"] for c in report["checks"] if not c["ok"]] == ["mode"]
        assert "someone else is in control" in report["reason"]
        first.send_signal(signal.SIGTERM)
        code, report = finish(first)
    assert (code, report["status"], report["reason"]) == (3, "interrupted", "interrupted")
    found = read_episode(path)
    assert found.complete
    assert story(found)[-1] == "stop"
    assert said(found, "stop").endswith(" to stop: interrupted.")
    ears.mode("damp")


@pytest.mark.slow
def test_ctrl_c_lays_a_quadruped_down_before_it_lets_go(controllers, tmp_path):
    endpoint, path, go1 = free_endpoint(), tmp_path / "a.mcap", get_robot("go1")
    with robot("go1", endpoint) as body, listener(endpoint) as ears:
        with run(controllers["go1"], endpoint, "--record", path) as process:
            ears.mode("track")
            process.send_signal(signal.SIGINT)
            code, report = finish(process)
        ears.mode("damp")
        body.send_signal(signal.SIGINT)
        assert body.wait(LONG) == 0
    assert (code, report["status"], report["reason"]) == (3, "interrupted", "interrupted"), report
    found = read_episode(path)
    assert found.complete
    assert (story(found)[0], story(found)[-1]) == ("ramp", "stop")
    assert np.allclose(found.target[-1], go1.contract.safety.rest, atol=0.05)
    assert np.abs(found.signals["joint_pos"][-1] - go1.contract.safety.rest).max() < 0.3
    step = np.abs(np.diff(found.target, axis=0)).max()
    assert step < 0.1, "no jump on the way"


@pytest.mark.slow
def test_a_full_disk_costs_the_recording_and_not_the_run(controllers, pendulum, tmp_path):
    path, room = tmp_path / "a.mcap", 20_000
    with run(controllers["pendulum"], pendulum, "--seconds", 1.5, "--record", path) as process:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (room, room))
        code, report = finish(process)
    assert (code, report["status"]) == (0, "completed")
    assert report["lost_ticks"] > 0
    assert report["recording_problem"] == os.strerror(errno.EFBIG)
    assert report["interventions"]["rate"] < 0.5
    found = read_episode(path)
    assert not found.complete
    assert 0 < len(found) < report["ticks"]
    assert path.stat().st_size <= room


# Ends that nobody wished for -------------------------------------------------------------------------------------------


def test_a_robot_damps_its_joints_when_its_controller_is_killed(controllers, tmp_path):
    endpoint, path, timeout = free_endpoint(), tmp_path / "a.mcap", 0.5
    with robot("pendulum", endpoint, "--timeout", timeout), listener(endpoint) as ears:
        with run(controllers["pendulum"], endpoint, "--record", path) as process:
            begun = ears.mode("track")
            ears.until("some time", lambda p: p.sequence > begun.sequence + 0.7 / PERIOD)
            alive = ears.newest()
            process.kill()
            process.wait(LONG)
        dead = ears.newest()
        assert alive.mode == "track"
        damped = ears.mode("damp")
        # A command may have been on its way when its sender died, and one before that may have been late.
        assert (damped.sequence - dead.sequence) * PERIOD <= timeout + PERIOD + 0.1
        assert (damped.sequence - alive.sequence) * PERIOD >= timeout - 0.2
        after = ears.until("a while more", lambda p: p.sequence > damped.sequence + 0.2 / PERIOD)
        assert after.mode == "damp"
    found = read_episode(path)
    assert not found.complete
    assert len(found) >= 0.4 * found.contract.rate
    assert np.isfinite(found.signals["joint_pos"]).all()


def lost(code: int, report: dict, path: Path) -> None:
    """The guard ended this run because no signals came, and the recording says so."""
    assert (code, report["status"]) == (1, "guard")
    assert report["reason"].startswith("lost: no signals for")
    found = read_episode(path)
    assert found.complete
    assert story(found, "lost")[-3:] == ["lost", "damp", "stop"]
    assert said(found, "lost").startswith("No signals for")
    assert found.status["age"][-1] > 0.2


@pytest.mark.slow
def test_a_run_outlives_a_short_silence_and_ends_after_a_long_one(controllers, tmp_path):
    endpoint, path = free_endpoint(), tmp_path / "a.mcap"
    with robot("pendulum", endpoint) as body, listener(endpoint) as ears:
        with run(controllers["pendulum"], endpoint, "--record", path) as process:
            ears.mode("track")
            body.send_signal(signal.SIGSTOP)
            time.sleep(0.12 / SPEED)
            body.send_signal(signal.SIGCONT)
            ears.mode("damp")
            again = ears.mode("track")
            ears.until("some time", lambda p: p.sequence > again.sequence + 0.3 / PERIOD)
            assert process.poll() is None
            body.send_signal(signal.SIGSTOP)
            code, report = finish(process)
        body.send_signal(signal.SIGCONT)
        ears.mode("damp")
        assert ears.link.identity(LONG).mode == "damp"
    lost(code, report, path)
    assert story(read_episode(path))[:3] == ["run", "hold", "run"]
    assert report["rules"]["stale"] > 0


@pytest.mark.slow
def test_a_link_finds_its_robot_before_and_after_it_was_killed(controllers, tmp_path):
    endpoint, path = free_endpoint(), tmp_path / "a.mcap"
    with listener(endpoint) as ears:
        start = time.monotonic()
        with pytest.raises(BadInput, match="no robot answers at"):
            ears.link.identity(0.3)
        assert 0.3 <= time.monotonic() - start < LONG / 3
        with robot("pendulum", endpoint) as body:
            before = ears.link.identity(LONG)
            with run(controllers["pendulum"], endpoint, "--record", path) as process:
                begun = ears.mode("track")
                last = ears.until("some time", lambda p: p.sequence > begun.sequence + 0.3 / PERIOD)
                body.kill()
                body.wait(LONG)
                code, report = finish(process)
        lost(code, report, path)
        with robot("pendulum", endpoint):
            after = ears.link.identity(LONG)
            assert replace(after, unit=before.unit) == replace(before, mode="idle")
            ears.until("packets of the new one, which counts from the start", lambda p: p.sequence < last.sequence)


# Nothing there ----------------------------------------------------------------------------------------------------------


def test_without_a_robot_a_run_says_so_soon(controllers):
    endpoint = free_endpoint()
    with isthmus("run", controllers["pendulum"], "--link", f"zenoh:{endpoint}") as process:
        out, err = process.communicate(timeout=LONG)
    assert process.returncode == 1
    assert err == ""
    told = " ".join(out.split())
    assert told.startswith(f"FAIL robot no robot answers at {endpoint}; is `isthmus robot` or the robot's bridge running?")
    assert told.endswith("No command was sent.")
