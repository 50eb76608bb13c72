"""The fixed-rate loop on the robot: signals, policy, guard, targets, at absolute deadlines.

    k-th tick    sleep until start + k · tick; read; guard; policy; guard; write; hand the row to the recorder

A tick that is not done one period after it was due has missed its deadline; the loop then goes on with the next deadline
that is still ahead, and never tries to catch up.
"""

from __future__ import annotations

import gc
import math
import secrets
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from isthmus.data.rate import Rate
from isthmus.deploy.controller import Controller
from isthmus.deploy.guard import STATES
from isthmus.deploy.link import MODES, Command, Link, Mode
from isthmus.deploy.operator import Operator
from isthmus.deploy.preflight import Flight
from isthmus.deploy.recorder import Recorder

STATUS = ("late", "compute", "missed", "age", "state", "rules", "mode", "sequence", "robot_time")
"""Per tick: s after the deadline that the loop woke, s until the target was sent, deadlines missed with this tick and since
the one before, age of the signals in s, state of the guard, its rules as bits, mode, count and clock of the robot."""


SETTLE, FADE = 2.0, 1.2
"""s that a policy has to come to rest at the end, where it takes commands, and s in which they fade."""


@dataclass
class Progress:
    """What a display may look at while the loop runs."""

    seconds: float = 0.0
    """Since the policy took over."""
    state: str = "ready"
    missed: int = 0
    ticks: int = 0
    """Deadlines so far, those without a tick included."""


@dataclass(frozen=True)
class Outcome:
    ended: str
    """`done`, `guard` or `interrupted`."""
    why: str
    seconds: float
    """That the policy ran."""
    ticks: int
    missed: Rate
    """Share of deadlines at which no target was sent in time."""
    interventions: Rate
    """Share of ticks in which the robot got something else than the policy wanted."""
    rules: dict[str, int]
    """How often each rule spoke."""
    late: np.ndarray = field(repr=False)
    """s after each deadline that the loop woke, (ticks,)."""
    compute: np.ndarray = field(repr=False)
    """s from waking until the target was sent, (ticks,)."""
    recorded: int = 0
    lost: int = 0
    """Ticks that are not in the recording."""
    problem: str = ""
    """Why they are not."""


class Loop:
    """One run of a policy on a robot that passed preflight."""

    def __init__(
        self, controller: Controller, link: Link, flight: Flight, operator: Operator, recorder: Recorder | None = None
    ):
        self.controller, self.link, self.operator, self.recorder = controller, link, operator, recorder
        self.guard, self.fit, self.period = flight.guard, flight.fit, flight.period
        self.guard.owner = secrets.randbits(63) | 1
        self.tick = 1.0 / self.guard.contract.rate
        self.damp_now = False
        """Set it to end the run at once, joints damped."""
        self._sent = 0
        self.progress = Progress()
        self._nothing = np.full(self.guard.contract.target.size, np.nan)
        self._signals = dict.fromkeys(self.fit.signals, self._nothing)
        self._start, self._began = 0.0, math.nan
        """When the loop started, and when the policy took over, by the link's clock."""
        self._asked = self._missed = False
        self._skipped = 0
        """Deadlines that passed since the tick before without a tick of their own."""
        self._late, self._compute = array("d"), array("d")

    def run(self, seconds: float = math.inf, stopping: Callable[[], str] = lambda: "") -> Outcome:
        """Until `seconds` are over, the guard ends it, or `stopping()` says why."""
        try:
            with _undisturbed():
                stopped = self._run(seconds, stopping)
        finally:
            if not self.guard.finished:
                # Something broke. The robot must not go on with the last target, whatever its time-out is.
                self._send("damp", self.guard.target, self.link.clock.now())
            self.guard.log.finish()
            if self.recorder is not None:
                self.recorder.note(self.guard.log.take())
                self.recorder.close()
        return self._outcome(stopped)

    def _run(self, seconds: float, stopping: Callable[[], str]) -> str:
        """Why it was stopped from outside, or nothing."""
        stopped, end = "", seconds
        settle = SETTLE if self.operator.signals else 0.0
        self._start = self.link.clock.now()
        self.guard.see(self.link.read(), self._start)
        self.guard.begin(self._start, self.period)
        k = 0
        while not self.guard.finished:
            done = self._tick(self._start + k * self.tick)
            ahead = max(k + 1, math.ceil((done - self._start) / self.tick)) if self._missed else k + 1
            self._skipped, k = ahead - k - 1, ahead
            now = self.progress.seconds
            if self.damp_now:
                stopped = stopped or "interrupted"
                self.guard.damp(done, "the operator wants it over at once")
            if not stopped and (stopped := stopping()):
                end = min(end, now)
            if now >= end - 0.5 * self.tick:
                self.operator.release(now, FADE)
            # A robot that moves is brought to rest by its policy before it lies down.
            if now >= end + settle - 0.5 * self.tick or (stopped and self.guard.state != "run"):
                self.guard.stop(done, stopped or "the time is over")
        return stopped

    def _tick(self, due: float) -> float:
        """One tick; the moment at which its target was sent."""
        guard, clock = self.guard, self.link.clock
        clock.sleep_until(due)
        woke = clock.now()
        sound = guard.see(self.link.read(), woke)
        guard.deadline(self._missed)
        wanted = self._ask(woke) if sound and guard.state == "run" else None
        self._asked = wanted is not None
        mode, target = guard.decide(wanted, woke)
        self._send(mode, target, woke)
        done = clock.now()
        self._missed = done > due + self.tick
        missed = self._missed + self._skipped
        self.progress.missed, self.progress.ticks = self.progress.missed + missed, self.progress.ticks + 1 + self._skipped
        self._late.append(woke - due)
        self._compute.append(done - woke)
        self._record(woke, target, self._nothing if wanted is None else wanted, missed)
        progress = self.progress
        progress.seconds = 0.0 if math.isnan(self._began) else woke - self._began
        progress.state = guard.state
        return done

    def _send(self, mode: Mode, target: np.ndarray, now: float) -> None:
        self.link.write(Command(self._sent, now, mode, target, self.guard.owner))
        self._sent += 1

    def _ask(self, now: float) -> np.ndarray:
        """The policy's target, in the robot's order; a policy that breaks down wants nothing, which the guard sees."""
        if not self._asked:
            self.controller.reset()
            self._began = now if math.isnan(self._began) else self._began
        for name, columns in self.fit.signals.items():
            self._signals[name] = self.guard.intake.values[columns]
        try:
            return self.controller.tick(self._signals | self.operator.at(now - self._began))[self.fit.target]
        except Exception:
            return self._nothing

    def _record(self, now: float, target: np.ndarray, wanted: np.ndarray, missed: int) -> None:
        guard, packet = self.guard, self.guard.intake.packet
        if self.recorder is None or packet is None:
            guard.log.take()
            return
        status = (self._late[-1], self._compute[-1], missed, guard.intake.age, STATES.index(guard.state))
        robot = (guard.log.active, MODES.index(packet.mode), packet.sequence, packet.time)
        asked = self.operator.row(now - self._began)
        row = np.concatenate(([now - self._start], guard.intake.values, asked, target, wanted, status, robot))
        self.recorder.put(row, guard.log.take())

    def _outcome(self, stopped: str) -> Outcome:
        guard, recorder = self.guard, self.recorder
        return Outcome(
            ended="guard" if guard.why else "interrupted" if stopped else "done",
            why=guard.why or stopped,
            seconds=guard.ticks * self.tick,
            ticks=len(self._late),
            missed=Rate.of(self.progress.missed, self.progress.ticks),
            interventions=Rate.of(guard.interventions, guard.ticks),
            rules={rule: n for rule, n in guard.log.counts.items() if n},
            late=np.array(self._late),
            compute=np.array(self._compute),
            recorded=recorder.rows if recorder else 0,
            lost=recorder.lost if recorder else 0,
            problem=recorder.problem if recorder else "",
        )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No garbage collection in between, and other threads give way quickly."""
    interval = sys.getswitchinterval()
    gc.collect()
    gc.disable()
    sys.setswitchinterval(2e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.enable()
