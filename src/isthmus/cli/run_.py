"""Run a controller on a robot: preflight, ramp, run under a guard, sit down, and a recording of all of it.

example: isthmus run a.controller --link zenoh --record walk.mcap --seconds 20 --command forward=0.5 10:yaw=0.4
"""

from __future__ import annotations

import math
import signal
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from isthmus.cli import render
from isthmus.core.errors import BadInput, Interrupted, unknown_name
from isthmus.deploy.links import LINKS

if TYPE_CHECKING:
    from isthmus.sim.reality import Reality


@dataclass(frozen=True)
class Args:
    controller: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="CONTROLLER")]
    """File of the controller."""
    link: str = "zenoh"
    """Link to the robot, as in `isthmus list`."""
    record: Path | None = None
    """File of the recording (MCAP)."""
    seconds: float = 0.0
    """How long the policy runs; 0 until interrupted."""
    command: tuple[str, ...] = ()
    """What the policy is asked to do: NAME=VALUE, or SECONDS:NAME=VALUE from that second on."""
    speed: float = 1.0
    """Times real time, for a virtual robot that was started with the same --speed."""
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
    from isthmus.deploy.command_schedule import CommandSchedule
    from isthmus.deploy.controller import Controller
    from isthmus.deploy.preflight import Check, preflight
    from isthmus.deploy.runtime import ControlLoop

    if args.record and args.record.exists() and not args.force:
        raise BadInput(f"{args.record} exists; choose another name for the recording, or --force.")
    controller = Controller.load(args.controller)
    operator = CommandSchedule(controller.manifest.operator, args.command)
    link = connect(args.link, args.speed, controller)
    report: dict[str, Any] = {"controller": str(args.controller), "controller_hash": controller.hash, "link": args.link}

    def line(check: Check) -> None:
        if not args.json:
            text = render.printable(f"{'ok  ' if check.ok else 'FAIL'} {check.name:<9} {check.text}")
            wrapped = textwrap.fill(text, render.out.width, subsequent_indent=" " * 15)
            render.out.print(wrapped, highlight=False, markup=False)

    try:
        with interruptible() as stopping:
            if args.realtime:
                realtime_priority()
            checks, flight = preflight(controller, link, operator.values_at(0.0), line)
            report |= {"checks": [asdict(c) for c in checks]}
            if stopping():
                raise Interrupted("interrupted before the first command was sent.")
            if flight is None:
                report |= {"ended": "preflight", "why": "; ".join(f"{c.name}: {c.text}" for c in checks if not c.ok)}
                _print_refused(report, args.json)
                return 1
            recorder = recorder_for(args.record, controller, flight) if args.record else None
            loop = ControlLoop(controller, link, flight, operator, recorder)
            stopping.on_second_interrupt = lambda: setattr(loop, "damp_now", True)
            with _live_display(loop, args):
                outcome = loop.run(args.seconds or math.inf, stopping)
    finally:
        link.close()
    report |= result_record(outcome) | {"recording": str(args.record or "")}
    _print_result(report, outcome, args)
    return {"done": 0, "guard": 1, "interrupted": 3}[outcome.status]


def connect(link: str, speed: float, controller, adjust_reality: Callable[[Reality], Reality] = lambda reality: reality):
    """The link that an option names; a virtual robot in this process `differs` from its reality as it says."""
    kind, _, rest = link.partition(":")
    if kind == "zenoh":
        from isthmus.deploy.links.zenoh import DEFAULT_ENDPOINT, ZenohLink

        return ZenohLink(rest or DEFAULT_ENDPOINT, speed)
    if kind != "sim":
        raise unknown_name("link", link, LINKS)
    from isthmus.deploy.links.in_process import InProcessLink
    from isthmus.robots import get_robot
    from isthmus.sim.reality import VirtualRobot
    from isthmus.sim.reality.hidden import parse_reality

    reality = parse_reality(rest, get_robot(controller.manifest.robot.robot))
    return InProcessLink(VirtualRobot(get_robot(reality.robot), adjust_reality(reality)))


def recorder_for(path: Path, controller, prepared):
    """Writes the run of a controller into a file."""
    from isthmus.data.mcap.writer import EpisodeWriter
    from isthmus.deploy.recorder import Recorder
    from isthmus.deploy.runtime import STATUS_COLUMNS

    manifest = controller.manifest
    origin = {
        "source": prepared.identity.source,
        "unit": prepared.identity.unit,
        "task": manifest.task,
        "controller_hash": controller.hash,
        "model_hash": prepared.identity.model_hash,
        "parents": [controller.hash],
        "started": time.time(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    return Recorder(EpisodeWriter(path, prepared.identity.contract, manifest.operator, STATUS_COLUMNS, origin))


def realtime_priority() -> None:
    """Real-time priority for this thread, and for none that it starts."""
    import os

    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(50))
    except (PermissionError, AttributeError, OSError) as error:
        raise BadInput(f"--realtime is not allowed here: {error}; on Linux, `ulimit -r` must be 50 or more.") from None


class Stopping:
    """Ctrl-C and a polite kill end the run in order, and the robot lies down first; a second one ends it at once."""

    def __init__(self) -> None:
        self.count = 0
        self.on_second_interrupt: Callable[[], None] = lambda: None

    def __call__(self) -> str:
        return "interrupted" if self.count else ""

    def on_signal(self, *_: object) -> None:
        self.count += 1
        if self.count > 1:
            self.on_second_interrupt()


@contextmanager
def interruptible():
    stopping = Stopping()
    before = {s: signal.signal(s, stopping.on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


@contextmanager
def _live_display(loop, args: Args):
    """A line about the run, from a thread of its own: a terminal that hangs must not stop a robot."""
    over = threading.Event()

    def work() -> None:
        with render.progress_bar("running") as bar:
            while not over.wait(0.5):
                p = loop.progress
                fraction = min(1.0, p.seconds / args.seconds) if args.seconds else 0.0
                bar.update(fraction, f"[{p.state}] {p.seconds:.0f} s, {p.missed} deadlines missed")

    thread = threading.Thread(target=work, daemon=True)
    if not args.json:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if not args.json:
            thread.join(2.0)


WAKE_LATENCY_EDGES = (20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3)
"""s: edges of the histogram of how late the loop woke."""


def result_record(outcome) -> dict[str, Any]:
    counts = np.histogram(outcome.late, [-np.inf, *WAKE_LATENCY_EDGES, np.inf])[0]
    quantiles = lambda x: dict(zip(("p50", "p99", "p999", "max"), np.quantile(x, (0.5, 0.99, 0.999, 1)), strict=True))  # noqa: E731
    return {
        "ended": outcome.ended,
        "why": outcome.why,
        "seconds": outcome.seconds,
        "ticks": outcome.ticks,
        "missed": vars(outcome.missed),
        "interventions": vars(outcome.interventions),
        "rules": outcome.rules,
        "late": quantiles(outcome.late) | {"edges": list(WAKE_LATENCY_EDGES), "counts": counts.tolist()},
        "compute": quantiles(outcome.compute),
        "recorded": outcome.recorded,
        "lost": outcome.lost,
        "problem": outcome.problem,
    }


def _print_refused(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        render.emit(report)
    else:
        failed = [c["name"] for c in report["checks"] if not c["ok"]]
        render.out.print(f"\nnot started: {', '.join(failed)}. No command was sent.")


def _print_result(report: dict[str, Any], outcome, args: Args) -> None:
    if args.json:
        render.emit(report)
        return
    how = {"done": "finished", "guard": "ended by the guard", "interrupted": "interrupted"}[outcome.ended]
    render.out.print(
        f"\n{how} after {outcome.seconds:.1f} s" + (f": {outcome.why}" if outcome.why else ""), highlight=False, markup=False
    )
    render.out.print(f"interventions     {outcome.interventions}", highlight=False, markup=False)
    render.out.print(f"deadlines missed  {outcome.missed}", highlight=False, markup=False)
    late, compute = report["late"], report["compute"]
    for name, x in (("woke late", late), ("computing", compute)) if late["max"] > 1e-6 else ():
        render.out.print(
            f"{name:<17} median {x['p50'] * 1e6:.0f} µs, 99.9 % {x['p999'] * 1e6:.0f} µs, worst {x['max'] * 1e6:.0f} µs",
            highlight=False,
            markup=False,
        )
    if outcome.rules:
        render.out.print(render.table("", ["rule", "times"], [[r, str(n)] for r, n in outcome.rules.items()], right=(1,)))
    if outcome.lost or outcome.problem:
        render.out.print(f"the recording is not complete: {outcome.lost} ticks lost ({outcome.problem})", markup=False)
    elif args.record:
        render.out.print(f"recorded {outcome.recorded} ticks in {args.record}", markup=False)
