"""Run a controller on a robot: preflight, ramp, run under the guard, stop, and a recording of all of it.

result = run("a.controller", "zenoh", seconds=20.0, command=("forward=0.5",), record=Path("walk.mcap"))
"""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from isthmus.core.errors import BadInput, Interrupted
from isthmus.core.progress import Progress, silent
from isthmus.deploy.command_schedule import CommandSchedule
from isthmus.deploy.controller import Controller
from isthmus.deploy.links.link import Link
from isthmus.deploy.links.registry import connect
from isthmus.deploy.onnx_controller import OnnxController
from isthmus.deploy.preflight import Check, preflight
from isthmus.deploy.recorder import recorder_for
from isthmus.deploy.run_result import RunResult
from isthmus.deploy.runtime import ControlLoop

REALTIME_PRIORITY = 50
"""Of SCHED_FIFO, 1 to 99."""
PROGRESS_INTERVAL = 0.5
"""s between two reports."""


class Stopping:
    """Whether a run shall end: the first interrupt stops it in order, a second one damps the joints at once."""

    def __init__(self) -> None:
        self.count = 0
        self.on_second_interrupt: Callable[[], None] = lambda: None

    def __call__(self) -> str:
        """Why the run shall stop; empty while it may go on."""
        return "interrupted" if self.count else ""

    def interrupt(self, *_: object) -> None:
        self.count += 1
        if self.count > 1:
            self.on_second_interrupt()


def never() -> str:
    return ""


@contextmanager
def stop_on_signals() -> Iterator[Stopping]:
    """A `Stopping` that SIGINT (Ctrl-C) and SIGTERM interrupt. For the main thread."""
    stopping = Stopping()
    before = {s: signal.signal(s, stopping.interrupt) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def run(
    controller: Controller | Path | str,
    link: Link | str,
    *,
    seconds: float = math.inf,
    command: tuple[str, ...] = (),
    record: Path | str | None = None,
    overwrite: bool = False,
    realtime: bool = False,
    speed: float = 1.0,
    stopping: Callable[[], str] = never,
    on_check: Callable[[Check], None] = lambda check: None,
    progress: Progress = silent,
) -> RunResult:
    """Run a policy for `seconds` s, or until the guard or `stopping()` ends it. A link that is named is opened and closed here.

    `command` is what the policy is asked to do: NAME=VALUE, or SECONDS:NAME=VALUE from that second on. `speed` is that of a
    virtual robot in a process of its own, in multiples of real time. `on_check` sees each preflight check as it is made;
    `progress` is called from a thread of its own.
    """
    if not seconds > 0:
        raise BadInput(f"a run lasts longer than 0 s, not {seconds:g} s.")
    record = Path(record) if record else None
    if record and record.exists() and not overwrite:
        raise BadInput(f"{record} exists; choose another name for the recording, or overwrite it (--force).")
    name = "" if not isinstance(controller, Path | str) else str(controller)
    policy = OnnxController.load(controller) if isinstance(controller, Path | str) else controller
    operator = CommandSchedule(policy.manifest.operator, command)
    opened = connect(link, speed=speed, contract=policy.manifest.robot)
    about: dict[str, Any] = {"controller": name, "controller_hash": policy.hash, "link": link if isinstance(link, str) else ""}
    try:
        if realtime:
            realtime_priority()
        checks, prepared = preflight(policy, opened, operator.values_at(0.0), on_check)
        about |= {"checks": tuple(checks)}
        if stopping():
            raise Interrupted("interrupted before the first command was sent.")
        if prepared is None:
            return RunResult("refused", "; ".join(f"{c.name}: {c.text}" for c in checks if not c.ok), **about)
        about |= {"unit": prepared.identity.unit, "source": prepared.identity.source}
        recorder = recorder_for(record, policy, prepared) if record else None
        loop = ControlLoop(policy, opened, prepared, operator, recorder)
        if isinstance(stopping, Stopping):
            stopping.on_second_interrupt = lambda: setattr(loop, "damp_now", True)
        with nullcontext() if progress is silent else _reporting(loop, seconds, progress):
            result = loop.run(seconds, stopping)
    finally:
        if opened is not link:
            opened.close()
    return replace(result, recording=str(record or ""), recording_hash=_episode_hash(record) if record else "", **about)


def realtime_priority() -> None:
    """Give real-time priority to this thread, and to none that it starts."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(REALTIME_PRIORITY))
    except (PermissionError, AttributeError, OSError) as error:
        raise BadInput(
            f"real-time priority (--realtime) is not allowed here: {error}; on Linux, `ulimit -r` must be {REALTIME_PRIORITY} "
            "or more."
        ) from None


def _episode_hash(path: Path) -> str:
    from isthmus.data.mcap.reader import read_episode

    try:
        return read_episode(path).hash
    except BadInput:
        return ""


@contextmanager
def _reporting(loop: ControlLoop, seconds: float, progress: Progress) -> Iterator[None]:
    """Report from a thread of its own: a terminal that hangs must not stop a robot."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(PROGRESS_INTERVAL):
            p = loop.progress
            progress(min(1.0, p.seconds / seconds), f"[{p.state}] {p.seconds:.0f} s, {p.missed} deadlines missed")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(2.0)
