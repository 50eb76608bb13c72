"""A virtual robot in its own process: on the same link as hardware, with the same signals and no others.

example: isthmus robot go1 --reality real.toml --link zenoh
"""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from isthmus.cli import render
from isthmus.core.errors import BadInput


@dataclass(frozen=True)
class Args:
    robot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ROBOT")]
    """Robot, as in `isthmus list`."""
    reality: Path | None = None
    """File of the differences from its model (TOML); without it there are none."""
    hidden: int | None = None
    """Seed of a reality that is drawn and not printed."""
    family: str = ""
    """With --hidden: draw from this family only."""
    reveal: bool = False
    """With --hidden: print the reality that the seed stands for, and do not start."""
    link: str = "zenoh"
    """zenoh, or zenoh:tcp/HOST:PORT to listen elsewhere than on this machine."""
    speed: float = 1.0
    """Multiple of real time."""
    seconds: float = 0.0
    """How long the robot runs, s; 0 until interrupted."""
    timeout: float = 0.1
    """Seconds without commands after which it damps its joints."""
    truth: Path | None = None
    """File for a log of the true state, one JSON object per line. For checks only: a real robot has no such thing."""
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
    from isthmus.sim.reality.serve import serve

    robot = get_robot(args.robot)
    family = ""
    if args.hidden is not None:
        family, reality = hidden(robot, args.hidden, args.family or None)
    else:
        reality = Reality.load(args.reality) if args.reality else Reality(robot.name)
    if args.reveal:
        return _print_reality(args, family, reality)
    body = VirtualRobot(robot, reality, args.timeout)
    stopped: list[int] = []
    for s in (signal.SIGINT, signal.SIGTERM):
        signal.signal(s, lambda *_: stopped.append(1))
    started = f"{robot.name}, unit {body.identity.unit}, listens at"
    result = serve(
        body,
        args.link,
        speed=args.speed,
        seconds=args.seconds or math.inf,
        truth=args.truth,
        stopping=lambda: bool(stopped),
        on_listening=lambda endpoint: None if args.json else render.out.print(f"{started} {endpoint}; Ctrl-C ends it"),
    )
    if args.json:
        render.emit(result.to_dict())
    elif result.overruns:
        render.out.print(f"{result.overruns} times this machine was too slow for real time")
    return 0


def _print_reality(args: Args, family: str, reality) -> int:
    about = {"robot": args.robot, "seed": args.hidden, "family": family, "reality_hash": reality.hash}
    if args.json:
        render.emit(about | {"reality": reality.to_dict()})
    else:
        print(f"# seed {args.hidden}, family {family}")
        print(reality.to_toml())
    return 0
