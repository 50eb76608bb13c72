"""A virtual robot in its own process: it speaks the same link as hardware and shows nothing but what hardware shows.

example: isthmus robot go1 --reality real.toml --link zenoh
"""

from __future__ import annotations

import json
import math
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from isthmus.cli import render
from isthmus.core.errors import BadInput, unknown_name


@dataclass(frozen=True)
class Args:
    robot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ROBOT")]
    """Robot, as in `isthmus list`."""
    reality: Path | None = None
    """File that says how it differs from its model; without it, not at all."""
    hidden: int | None = None
    """Seed of a reality that is drawn and not told."""
    family: str = ""
    """With --hidden: draw from this family only."""
    reveal: bool = False
    """With --hidden: print the reality that the seed stands for, and do not start."""
    link: str = "zenoh"
    """zenoh, or zenoh:tcp/HOST:PORT to listen elsewhere than on this machine."""
    speed: float = 1.0
    """Times real time."""
    seconds: float = 0.0
    """How long the robot lives; 0 until interrupted."""
    timeout: float = 0.1
    """Seconds without commands after which it damps its joints."""
    truth: Path | None = None
    """File for a log of the true state, one JSON object per line. Not for whoever has to find it out."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    if not 0 < args.speed < math.inf or not 0 <= args.seconds < math.inf:
        raise BadInput("--speed must be positive, --seconds not negative.")
    if args.hidden is None and (args.reveal or args.family):
        raise BadInput("--reveal and --family go with --hidden SEED.")
    if args.hidden is not None and args.reality is not None:
        raise BadInput("a robot has one reality: give --reality or --hidden, not both.")
    from isthmus.robots import get_robot
    from isthmus.sim.reality import Reality, VirtualRobot
    from isthmus.sim.reality.hidden import hidden

    robot = get_robot(args.robot)
    family = ""
    if args.hidden is not None:
        family, reality = hidden(robot, args.hidden, args.family or None)
    else:
        reality = Reality.load(args.reality) if args.reality else Reality(robot.name)
    if args.reveal:
        return _print_reality(args, family, reality)
    kind, _, endpoint = args.link.partition(":")
    if kind != "zenoh":
        raise unknown_name("link", args.link, ["zenoh"], "a robot's process")
    from isthmus.deploy.links.zenoh import DEFAULT_ENDPOINT, ZenohRobot

    body = VirtualRobot(robot, reality, args.timeout)
    truth = _TruthLog(body, args.truth) if args.truth else body
    end = ZenohRobot(truth, endpoint or DEFAULT_ENDPOINT, args.speed)
    stopped: list[int] = []
    for s in (signal.SIGINT, signal.SIGTERM):
        signal.signal(s, lambda *_: stopped.append(1))
    if not args.json:
        render.out.print(f"{robot.name}, unit {body.identity.unit}, listens at {endpoint or DEFAULT_ENDPOINT}; Ctrl-C ends it")
    over = time.monotonic() + args.seconds if args.seconds else math.inf
    try:
        end.serve(lambda: not stopped and time.monotonic() < over)
    finally:
        end.close()
        if isinstance(truth, _TruthLog):
            truth.close()
    if args.json:
        late = {"seconds": body.time, "overruns": end.overruns}
        render.emit({"robot": robot.name, "unit": body.identity.unit, "model_hash": robot.model_hash, **late})
    elif end.overruns:
        render.out.print(f"{end.overruns} times this machine was too slow for real time")
    return 0


def _print_reality(args: Args, family: str, reality) -> int:
    about = {"robot": args.robot, "seed": args.hidden, "family": family, "reality_hash": reality.hash}
    if args.json:
        render.emit(about | {"reality": reality.to_dict()})
    else:
        print(f"# seed {args.hidden}, family {family}")
        print(reality.to_toml())
    return 0


class _TruthLog:
    """The same robot, with a log of what is really so, fifty lines per second."""

    LOG_EVERY = 10

    def __init__(self, body, path: Path):
        self.body, self.period = body, body.period
        self._file, self._count = path.open("w"), 0

    @property
    def identity(self):
        return self.body.identity

    def command(self, command) -> None:
        self.body.command(command)

    def advance(self):
        packets = self.body.advance()
        if self._count % self.LOG_EVERY == 0:
            self._file.write(json.dumps(render.to_plain(self.body.truth())) + "\n")
        self._count += 1
        return packets

    def skip(self, seconds: float) -> None:
        self.body.skip(seconds)

    def close(self) -> None:
        self._file.close()
