"""The link between processes, over Zenoh: signals and commands as small samples, the identity as a query.

    isthmus/signals      robot -> controller, every packet
    isthmus/command      controller -> robot
    isthmus/identity     asked for once

The robot listens on one endpoint, on this machine unless told otherwise; nothing is discovered by multicast. Samples are
sent at once and dropped under congestion: an old command is worse than none.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import zenoh
from zenoh.handlers import RingChannel

from isthmus.core.errors import BadInput
from isthmus.data.contract import Contract
from isthmus.deploy.links import wire
from isthmus.deploy.links.arbiter import CommandArbiter
from isthmus.deploy.links.in_process import RobotBody
from isthmus.deploy.links.link import Command, Identity, Packet, WallClock

DEFAULT_ENDPOINT = "tcp/127.0.0.1:7447"
SIGNALS_KEY, COMMAND_KEY, IDENTITY_KEY = "isthmus/signals", "isthmus/command", "isthmus/identity"
QUEUE_LENGTH = 256
"""Samples that wait to be read; older ones are dropped."""


def _open_session(endpoint: str, listen: bool) -> zenoh.Session:
    if not re.fullmatch(r"(tcp|udp|tls|quic)/\S+:\d+(\?\S*|#\S*)?", endpoint):
        raise BadInput(f"the Zenoh endpoint {endpoint!r} does not look like tcp/HOST:PORT.")
    config = zenoh.Config()
    settings = {
        "mode": "peer",
        "listen/endpoints": [endpoint] if listen else [],
        "connect/endpoints": [] if listen else [endpoint],
        # A controller that starts first waits for its robot, and finds it again after it was restarted.
        "connect/timeout_ms": -1,
        "connect/exit_on_failure": False,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
    }
    try:
        for key, value in settings.items():
            config.insert_json5(key, json.dumps(value))
        return zenoh.open(config)
    except zenoh.ZError as error:
        doing = "listen at" if listen else "connect to"
        raise BadInput(f"cannot {doing} {endpoint}: {_error_reason(error)}.") from None


def _error_reason(error: zenoh.ZError) -> str:
    """What the system said, or else what Zenoh said, without the places in its source."""
    told = re.search(r"([^:\[\]]+?) \(os error \d+\)", str(error))
    text = told[1].strip() if told else str(error).split(" at /")[0].rstrip(".")
    return text[:1].lower() + text[1:]


def _publisher(session: zenoh.Session, key: str) -> zenoh.Publisher:
    return session.declare_publisher(
        key, congestion_control=zenoh.CongestionControl.DROP, priority=zenoh.Priority.REAL_TIME, express=True
    )


class ZenohLink:
    """The controller's end."""

    def __init__(self, endpoint: str = DEFAULT_ENDPOINT, speed: float = 1.0):
        self.endpoint, self.clock = endpoint, WallClock(speed)
        self._session = _open_session(endpoint, listen=False)
        self._signals = self._session.declare_subscriber(SIGNALS_KEY, RingChannel(QUEUE_LENGTH))
        self._command = _publisher(self._session, COMMAND_KEY)

    def identity(self, timeout: float) -> Identity:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            for reply in self._session.get(IDENTITY_KEY, timeout=0.5):
                if reply.ok is not None:
                    return wire.unpack_identity(reply.ok.payload.to_bytes())
            time.sleep(0.1)
        raise BadInput(f"no robot answers at {self.endpoint}; is `isthmus robot` or the robot's bridge running?")

    def read(self) -> list[Packet]:
        found = []
        while (sample := self._signals.try_recv()) is not None:
            packet = wire.unpack_packet(sample.payload.to_bytes())
            if packet is not None:
                found.append(packet)
        return found

    def write(self, command: Command) -> None:
        # A link that is down loses the command.
        with suppress(zenoh.ZError):
            self._command.put(wire.pack_command(command))

    def close(self) -> None:
        self._session.close()


def open_link(address: str, *, speed: float, contract: Contract | None) -> ZenohLink:
    """The controller's end at an endpoint such as tcp/HOST:PORT; on this machine if it is empty."""
    return ZenohLink(address or DEFAULT_ENDPOINT, speed)


class ZenohRobot:
    """The robot's end: runs a body in real time, behind an arbiter that damps it when commands stop."""

    def __init__(self, body: RobotBody, endpoint: str = DEFAULT_ENDPOINT, speed: float = 1.0):
        self.body, self.arbiter, self.clock = body, CommandArbiter(body), WallClock(speed)
        self._session = _open_session(endpoint, listen=True)
        self._commands = self._session.declare_subscriber(COMMAND_KEY, RingChannel(QUEUE_LENGTH))
        self._signals = _publisher(self._session, SIGNALS_KEY)
        self._identity = self._session.declare_queryable(IDENTITY_KEY, self._answer_identity)
        self.overruns = 0
        """How often the machine was too slow for real time."""

    def _answer_identity(self, query: zenoh.Query) -> None:
        with query:
            query.reply(IDENTITY_KEY, wire.pack_identity(self.body.identity))

    def serve(self, running: Callable[[], bool]) -> None:
        """Run while `running()`; when it ends or the body fails, the body is left damped."""
        due = self.clock.now()
        try:
            while running():
                self.clock.sleep_until(due)
                self._run_period()
                due += self.body.period
                behind = self.clock.now() - due
                if behind > 10 * self.body.period:
                    # Too far behind to catch up: a robot does not live through the past in a hurry.
                    self.overruns += 1
                    self.body.skip(behind)
                    due += behind
        finally:
            self.arbiter.damp()

    def _run_period(self) -> None:
        now = self.clock.now()
        while (sample := self._commands.try_recv()) is not None:
            command = wire.unpack_command(sample.payload.to_bytes())
            if command is not None:
                self.arbiter.forward(command, now)
        self.arbiter.check_timeout(now)
        for packet in self.body.advance():
            self._signals.put(wire.pack_packet(replace(packet, owner=self.arbiter.owner)))

    def close(self) -> None:
        self._session.close()
