"""Run a controller on a robot: preflight, ramp, run under a guard, stop, and a recording of all of it.

example: isthmus run a.controller --link zenoh --record walk.mcap --seconds 20 --command forward=0.5 10:yaw=0.4
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from isthmus.cli import render
from isthmus.core.errors import BadInput
from isthmus.core.progress import silent

if TYPE_CHECKING:
    from isthmus.deploy.preflight import Check
    from isthmus.deploy.run_result import RunResult

EXIT_CODES = {"completed": 0, "guard": 1, "refused": 1, "interrupted": 3}
STATUS_WORDS = {"completed": "completed", "guard": "ended by the guard", "interrupted": "interrupted"}


@dataclass(frozen=True)
class Args:
    controller: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="CONTROLLER")]
    """File of the controller."""
    link: str = "zenoh"
    """Link to the robot, as in `isthmus list`."""
    record: Path | None = None
    """File of the recording (MCAP)."""
    seconds: float = 0.0
    """How long the policy runs, s; 0 until interrupted."""
    command: tuple[str, ...] = ()
    """Command to the policy: NAME=VALUE, or SECONDS:NAME=VALUE from that second on."""
    speed: float = 1.0
    """Speed of the virtual robot's process in multiples of real time; as its own --speed."""
    force: bool = False
    """Write over an existing recording."""
    realtime: bool = False
    """Ask the system for real-time priority."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    for name in ("seconds", "speed"):
        value = getattr(args, name)
        if not 0 <= value < math.inf or (name == "speed" and value == 0):
            raise BadInput(f"--{name} must be a finite number, not negative.")
    from isthmus.deploy import run as deployment

    with deployment.stop_on_signals() as stopping, render.deferred_progress_bar("running") as progress:
        result = deployment.run(
            args.controller,
            args.link,
            seconds=args.seconds or math.inf,
            command=args.command,
            record=args.record,
            overwrite=args.force,
            realtime=args.realtime,
            speed=args.speed,
            stopping=stopping,
            on_check=(lambda check: None) if args.json else _print_check,
            progress=silent if args.json else progress,
        )
    if args.json:
        render.emit(result.to_dict())
    else:
        _print_result(result)
    return EXIT_CODES[result.status]


def _print_check(check: Check) -> None:
    text = render.printable(f"{'ok  ' if check.ok else 'FAIL'} {check.name:<9} {check.text}")
    wrapped = textwrap.fill(text, render.out.width, subsequent_indent=" " * 15)
    render.out.print(wrapped, highlight=False, markup=False)


def _print_result(result: RunResult) -> None:
    say = lambda text: render.out.print(text, highlight=False, markup=False)  # noqa: E731
    if result.status == "refused":
        say(f"\nnot started: {', '.join(c.name for c in result.checks if not c.ok)}. No command was sent.")
        return
    say(f"\n{STATUS_WORDS[result.status]} after {result.seconds:.1f} s" + (f": {result.reason}" if result.reason else ""))
    say(f"interventions     {result.interventions}")
    say(f"deadlines missed  {result.missed}")
    wake, compute = result.wake_latency, result.compute_time
    for name, x in (("wake latency", wake), ("compute time", compute)) if wake.max > 1e-6 else ():
        say(f"{name:<17} median {x.p50 * 1e6:.0f} µs, 99.9 % {x.p999 * 1e6:.0f} µs, maximum {x.max * 1e6:.0f} µs")
    if result.rules:
        render.out.print(render.table("", ["rule", "times"], [[r, str(n)] for r, n in result.rules.items()], right=(1,)))
    if result.lost_ticks or result.recording_problem:
        say(f"the recording is not complete: {result.lost_ticks} ticks lost ({result.recording_problem})")
    elif result.recording:
        say(f"recorded {result.recorded_ticks} ticks in {result.recording}")
