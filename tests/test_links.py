"""Controller and robot as two processes, and everything that can go wrong between them.

All of it runs in slow motion, so that a machine with other things to do is still fast enough. Times are compared by the
robot's own count of periods, never by the clock on the wall.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zenoh
from onnx import TensorProto, helper

from isthmus.data.episode import Episode
from isthmus.data.recording import read
from isthmus.deploy import wire
from isthmus.deploy.controller import Controller, Manifest, save
from isthmus.deploy.guard import STATES
from isthmus.deploy.link import Command, Packet
from isthmus.deploy.links import zenoh_link
from isthmus.deploy.links.zenoh_link import COMMAND, IDENTITY, SIGNALS, ZenohLink
from isthmus.errors import BadInput
from isthmus.files import content_hash
from isthmus.robots import get_robot
from isthmus.sim.reality import Reality, VirtualRobot
from isthmus.sim.robot import Robot

SPEED = 0.5
"""Times real time."""
LONG = 60.0
"""s that anything may take on a busy machine."""
PERIOD = 0.002
"""s of the robot's life from one packet to the next."""


# Controllers, processes, listeners ------------------------------------------------------------------------------------


def constant(robot: Robot, path: Path) -> Path:
    """A controller that always asks for the default target."""
    contract, m = robot.contract, robot.contract.target.size
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["joint_pos", "zero"], ["nothing"]),
            helper.make_node("Add", ["nothing", "default"], [contract.target.name]),
        ],
        "constant",
        [helper.make_tensor_value_info("joint_pos", TensorProto.FLOAT, [1, m])],
        [helper.make_tensor_value_info(contract.target.name, TensorProto.FLOAT, [1, m])],
        [
            helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0]),
            helper.make_tensor("default", TensorProto.FLOAT, [1, m], robot.default),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    data, none = model.SerializeToString(), "0" * 64
    manifest = Manifest(
        "constant", contract, ("joint_pos",), (), {}, robot.default, robot.model_hash, none, none, none, content_hash(data)
    )
    save(path, manifest, data)
    return path


@pytest.fixture(scope="module")
def controllers(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("controllers")
    return {name: constant(get_robot(name), folder / f"{name}.controller") for name in ("pendulum", "go1")}


def free_endpoint() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"tcp/127.0.0.1:{s.getsockname()[1]}"


@contextmanager
def isthmus(*args, **kwargs) -> Iterator[subprocess.Popen]:
    """`isthmus ARGS` as a process, which does not outlive the block."""
    command = [sys.executable, "-m", "isthmus.cli.main", *map(str, args)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, **kwargs)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen) -> tuple[int, dict]:
    """Exit code and report of a process that was started with --json."""
    out, err = process.communicate(timeout=2 * LONG)
    assert out.strip(), err
    return process.returncode, json.loads(out)


class Listener:
    """Another end of the link that never sends anything."""

    def __init__(self, endpoint: str):
        self.link = ZenohLink(endpoint)
        self.last: Packet | None = None

    def until(self, what: str, condition: Callable[[Packet], bool]) -> Packet:
        """The next packet for which the condition holds."""
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            for packet in self.link.read():
                self.last = packet
                if condition(packet):
                    return packet
            time.sleep(0.005)
        raise AssertionError(f"waited {LONG:g} s for {what}; the last packet was {self.last}")

    def mode(self, mode: str) -> Packet:
        return self.until(f"the mode {mode}", lambda p: p.mode == mode)

    def newest(self) -> Packet:
        """A packet that was sent after this call."""
        self.link.read()
        return self.until("a packet", lambda p: True)


@contextmanager
def listener(endpoint: str) -> Iterator[Listener]:
    found = Listener(endpoint)
    try:
        yield found
    finally:
        found.link.close()


@contextmanager
def robot(name: str, endpoint: str, *options) -> Iterator[subprocess.Popen]:
    """`isthmus robot` that answers."""
    with isthmus("robot", name, "--link", f"zenoh:{endpoint}", "--speed", SPEED, *options) as process:
        with listener(endpoint) as ears:
            ears.link.identity(LONG)
        yield process


@contextmanager
def run(file: Path, endpoint: str, *options) -> Iterator[subprocess.Popen]:
    with isthmus("run", file, "--link", f"zenoh:{endpoint}", "--speed", SPEED, "--json", *options) as process:
        yield process


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
    return [e.name for e in episode.events if e.name in (*STATES, *rules)]


def said(episode: Episode, name: str) -> str:
    """What the first event of that name says."""
    return next(e.text for e in episode.events if e.name == name)


# Runs that end well ----------------------------------------------------------------------------------------------------


def stranger(endpoint: str) -> zenoh.Session:
    return zenoh_link._open(endpoint, listen=False)


def garbage(rng: np.random.Generator, target: np.ndarray) -> Iterator[bytes]:
    """Bytes of all lengths, whole samples that were cut, and well-formed ones that make no sense."""
    whole = wire.pack_command(Command(10**15, 0.0, "track", target))
    yield from (rng.bytes(int(n)) for n in rng.integers(0, 200, 50))
    yield from (whole[:n] for n in range(len(whole)))
    yield whole + b"\0"
    yield whole[:4] + rng.bytes(len(whole) - 4)
    for strange in (np.full_like(target, np.nan), np.full_like(target, np.inf), np.zeros(len(target) + 1), np.zeros(0)):
        yield wire.pack_command(Command(10**15, 0.0, "track", strange))
    yield wire.pack_command(Command(10**15, 0.0, "busy", target))
    yield wire.pack_packet(Packet(10**15, 1e9, "damp", np.zeros(2)))


@pytest.mark.slow
def test_a_run_is_whole_whatever_a_stranger_shouts_into_the_link(controllers, pendulum, ears, tmp_path):
    path = tmp_path / "a.mcap"
    with run(controllers["pendulum"], pendulum, "--seconds", 1.5, "--record", path) as process:
        ears.mode("track")
        session = stranger(pendulum)
        for data in garbage(np.random.default_rng(0), np.full(1, 1.5)):
            session.put(COMMAND, data)
        time.sleep(0.2)
        session.close()
        code, report = finish(process)
    assert (code, report["ended"], report["why"], report["lost"]) == (0, "done", "", 0)
    assert all(check["ok"] for check in report["checks"])
    found, contract = read(path), get_robot("pendulum").contract
    assert found.complete
    assert found.contract == contract
    assert found.origin["controller_hash"] == report["controller_hash"] == Controller.load(controllers["pendulum"]).hash
    assert found.origin["source"] == "virtual"
    assert len(found) == report["recorded"] == report["ticks"]
    assert (story(found)[0], story(found)[-1]) == ("run", "stop")
    running = found.status["state"] == STATES.index("run")
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
        assert "someone else is in control" in report["why"]
        first.send_signal(signal.SIGTERM)
        code, report = finish(first)
    assert (code, report["ended"], report["why"]) == (3, "interrupted", "interrupted")
    found = read(path)
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
    assert (code, report["ended"], report["why"]) == (3, "interrupted", "interrupted"), report
    found = read(path)
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
    assert (code, report["ended"]) == (0, "done")
    assert report["lost"] > 0
    assert report["problem"] == os.strerror(errno.EFBIG)
    assert report["interventions"]["rate"] < 0.5
    found = read(path)
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
    found = read(path)
    assert not found.complete
    assert len(found) >= 0.4 * found.contract.rate
    assert np.isfinite(found.signals["joint_pos"]).all()


def lost(code: int, report: dict, path: Path) -> None:
    """The guard ended this run because no signals came, and the recording says so."""
    assert (code, report["ended"]) == (1, "guard")
    assert report["why"].startswith("lost: no signals for")
    found = read(path)
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
    assert story(read(path))[:3] == ["run", "hold", "run"]
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


# Nothing there, and something wrong there ------------------------------------------------------------------------------


def test_without_a_robot_a_run_says_so_soon(controllers):
    endpoint = free_endpoint()
    with isthmus("run", controllers["pendulum"], "--link", f"zenoh:{endpoint}") as process:
        out, err = process.communicate(timeout=LONG)
    assert process.returncode == 1
    assert err == ""
    told = " ".join(out.split())
    assert told.startswith(f"FAIL robot no robot answers at {endpoint}; is `isthmus robot` or the robot's bridge running?")
    assert told.endswith("No command was sent.")


def test_a_port_that_is_taken_is_one_sentence():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        endpoint = f"tcp/127.0.0.1:{s.getsockname()[1]}"
        with isthmus("robot", "pendulum", "--link", f"zenoh:{endpoint}") as process:
            out, err = process.communicate(timeout=LONG)
    assert (process.returncode, out) == (2, "")
    assert err == f"isthmus: cannot listen at {endpoint}: address already in use.\n"


@pytest.mark.parametrize(
    "endpoint", ["", "here", "127.0.0.1:7447", "tcp/", "tcp/127.0.0.1", "tcp/127.0.0.1:99999", "tcp/no.such.host.invalid:1"]
)
def test_an_endpoint_that_is_none_is_bad_input(endpoint):
    with pytest.raises(BadInput, match=r"tcp/HOST:PORT|cannot listen at"):
        zenoh_link._open(endpoint, listen=True)


def test_garbage_is_no_packet_and_what_is_one_comes_through():
    endpoint, rng = free_endpoint(), np.random.default_rng(1)
    body = zenoh_link._open(endpoint, listen=True)
    try:
        with listener(endpoint) as ears:
            marks = []
            end = time.monotonic() + LONG
            while not marks and time.monotonic() < end:
                body.put(SIGNALS, wire.pack_packet(Packet(1, 0.5, "idle", np.arange(3.0))))
                time.sleep(0.02)
                marks = ears.link.read()
            for data in garbage(rng, np.zeros(3)):
                if not data.startswith(b"IsP2"):
                    body.put(SIGNALS, data)
            body.put(SIGNALS, wire.pack_packet(Packet(2, 0.6, "damp", np.arange(4.0))))
            found = ears.until("the last packet", lambda p: p.sequence != 1)
        assert (found.sequence, found.time, found.mode, found.values.tolist()) == (2, 0.6, "damp", [0.0, 1.0, 2.0, 3.0])
    finally:
        body.close()


def test_an_answer_that_is_no_identity_is_bad_input():
    endpoint = free_endpoint()
    body = zenoh_link._open(endpoint, listen=True)
    identity = wire.pack_identity(VirtualRobot(get_robot("pendulum"), Reality("pendulum")).identity)
    answer = [b"not JSON"]

    def reply(query: zenoh.Query) -> None:
        with query:
            query.reply(IDENTITY, answer[0])

    queryable = body.declare_queryable(IDENTITY, reply)
    try:
        with listener(endpoint) as ears:
            for wrong in (b"not JSON", b"[]", b"{}", identity[:-9], identity.replace(b'"rate"', b'"rat"'), b"[" * 99_999):
                answer[0] = wrong
                with pytest.raises(BadInput, match="the robot's answer"):
                    ears.link.identity(LONG)
            answer[0] = identity
            assert ears.link.identity(LONG).contract == get_robot("pendulum").contract
    finally:
        queryable.undeclare()
        body.close()


# A robot that does not tell ---------------------------------------------------------------------------------------------


def test_a_hidden_robot_tells_nothing_until_it_is_revealed(tmp_path):
    endpoint, empty = free_endpoint(), tmp_path / "empty"
    empty.mkdir()
    with isthmus("robot", "go1", "--hidden", 3, "--reveal") as process:
        toml, err = process.communicate(timeout=LONG)
    assert (process.returncode, err) == (0, "")
    revealed = Reality.from_toml(toml.encode())
    family = re.search(r"family (\S+)", toml)[1]
    with isthmus("robot", "go1", "--hidden", 3, "--link", f"zenoh:{endpoint}", cwd=empty) as process:
        with listener(endpoint) as ears:
            identity = ears.link.identity(LONG)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=LONG)
    assert (process.returncode, err.strip()) == (0, "")
    assert list(empty.iterdir()) == [], "nothing is written that was not asked for"
    tables = {k: v for k, v in revealed.to_dict().items() if isinstance(v, dict)}
    telling = [family, *tables, *(entry for table in tables.values() for entry in table), str(revealed.seed)]
    assert len(telling) >= 4
    shown = out + wire.pack_identity(replace(identity, contract=get_robot("go1").contract)).decode()
    assert [word for word in telling if word in out] == []
    assert [word for word in telling if f'"{word}"' in shown] == []
    assert identity.contract == get_robot("go1").contract
    guesses = {revealed.hash[:8], VirtualRobot(get_robot("go1"), revealed).identity.unit.removeprefix("virtual-")}
    assert re.fullmatch(r"virtual-[0-9a-f]{8}", identity.unit)
    assert identity.unit.removeprefix("virtual-") not in guesses, "its name cannot be found by trying all realities"


def test_the_truth_is_written_where_it_was_asked_for(tmp_path):
    endpoint, path = free_endpoint(), tmp_path / "truth.jsonl"
    options = ("--truth", path, "--seconds", 1, "--json")
    with isthmus("robot", "pendulum", "--link", f"zenoh:{endpoint}", *options, cwd=tmp_path) as process:
        code, report = finish(process)
    assert code == 0
    assert [p.name for p in tmp_path.iterdir()] == ["truth.jsonl"]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == pytest.approx(report["seconds"] / (10 * PERIOD), abs=1)
    assert [row["mode"] for row in rows] == ["idle"] * len(rows)
    assert rows[0]["e"] == dict(zip(get_robot("pendulum").space.names, get_robot("pendulum").space.nominal, strict=True))
    assert np.diff([row["time"] for row in rows]) == pytest.approx(10 * PERIOD)
