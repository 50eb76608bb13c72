"""Wrong endpoints and garbage on a link are refused in words, and a robot tells no more than it was asked to."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from dataclasses import replace

import numpy as np
import pytest
import zenoh

from isthmus.core.errors import BadInput
from isthmus.deploy.links import wire
from isthmus.deploy.links import zenoh as zenoh_link
from isthmus.deploy.links.link import Packet
from isthmus.deploy.links.zenoh import IDENTITY_KEY, SIGNALS_KEY
from isthmus.robots import get_robot
from isthmus.sim.reality import Reality, VirtualRobot
from support.link_processes import LONG, PERIOD, finish, free_endpoint, garbage, isthmus, listener

# Wrong endpoints, and garbage -------------------------------------------------------------------------------------------


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
        zenoh_link._open_session(endpoint, listen=True)


def test_garbage_is_no_packet_and_what_is_one_comes_through():
    endpoint, rng = free_endpoint(), np.random.default_rng(1)
    body = zenoh_link._open_session(endpoint, listen=True)
    try:
        with listener(endpoint) as ears:
            marks = []
            end = time.monotonic() + LONG
            while not marks and time.monotonic() < end:
                body.put(SIGNALS_KEY, wire.pack_packet(Packet(1, 0.5, "idle", np.arange(3.0))))
                time.sleep(0.02)
                marks = ears.link.read()
            for data in garbage(rng, np.zeros(3)):
                if not data.startswith(b"IsP2"):
                    body.put(SIGNALS_KEY, data)
            body.put(SIGNALS_KEY, wire.pack_packet(Packet(2, 0.6, "damp", np.arange(4.0))))
            found = ears.until("the last packet", lambda p: p.sequence != 1)
        assert (found.sequence, found.time, found.mode, found.values.tolist()) == (2, 0.6, "damp", [0.0, 1.0, 2.0, 3.0])
    finally:
        body.close()


def test_an_answer_that_is_no_identity_is_bad_input():
    endpoint = free_endpoint()
    body = zenoh_link._open_session(endpoint, listen=True)
    identity = wire.pack_identity(VirtualRobot(get_robot("pendulum"), Reality("pendulum")).identity)
    answer = [b"not JSON"]

    def reply(query: zenoh.Query) -> None:
        with query:
            query.reply(IDENTITY_KEY, answer[0])

    queryable = body.declare_queryable(IDENTITY_KEY, reply)
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
