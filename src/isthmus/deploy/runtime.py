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
from dataclasses import dataclass

import numpy as np

from isthmus.core.statistics import Rate
from isthmus.deploy.command_schedule import CommandSchedule
from isthmus.deploy.controller import Controller
from isthmus.deploy.guard.guard import GUARD_STATES
from isthmus.deploy.links.link import MODES, Command, Link, Mode
from isthmus.deploy.preflight import PreparedRobot
from isthmus.deploy.recorder import Recorder
from isthmus.deploy.run_result import Histogram, RunResult, Timing

SETTLE_SECONDS = 2.0
"""s that a policy which takes commands has to come to rest at the end."""
COMMAND_FADE_SECONDS = 1.2
"""s in which the operator's commands fade to zero at the end."""


@dataclass
class RunProgress:
    """What a display may look at while the loop runs."""

    seconds: float = 0.0
    """Since the policy took over."""
    state: str = "ready"
    missed: int = 0
    ticks: int = 0
    """Deadlines so far, those without a tick included."""


class ControlLoop:
    """One run of a policy on a robot that passed preflight."""

    def __init__(
        self,
        controller: Controller,
        link: Link,
        prepared: PreparedRobot,
        operator: CommandSchedule,
        recorder: Recorder | None = None,
    ):
        self.controller, self.link, self.operator, self.recorder = controller, link, operator, recorder
        self.guard, self.signal_map, self.packet_period = prepared.guard, prepared.signal_map, prepared.packet_period
        self.guard.owner = secrets.randbits(63) | 1
        self.tick = 1.0 / self.guard.contract.rate
        self.damp_now = False
        """Set it to end the run at once, joints damped."""
        self._commands_sent = 0
        self.progress = RunProgress()
        self._no_target = np.full(self.guard.contract.target.size, np.nan)
        self._signals = dict.fromkeys(self.signal_map.signal_columns, self._no_target)
        self._loop_start, self._policy_start = 0.0, math.nan
        """When the loop started, and when the policy took over, by the link's clock."""
        self._policy_active = self._missed_deadline = False
        self._skipped_deadlines = 0
        """Deadlines that passed since the tick before without a tick of their own."""
        self._wake_latency, self._compute_time = array("d"), array("d")

    def run(self, seconds: float = math.inf, stopping: Callable[[], str] = lambda: "") -> RunResult:
        """Until `seconds` are over, the guard ends it, or `stopping()` says why."""
        try:
            with _low_jitter():
                stopped = self._run_loop(seconds, stopping)
        finally:
            if not self.guard.finished:
                # Something broke. The robot must not go on with the last target, whatever its time-out is.
                self._send_command("damp", self.guard.last_target, self.link.clock.now())
            self.guard.log.finish()
            if self.recorder is not None:
                self.recorder.put_events(self.guard.log.take_events())
                self.recorder.close()
        return self._result(stopped)

    def _run_loop(self, seconds: float, stopping: Callable[[], str]) -> str:
        """Why it was stopped from outside, or nothing."""
        stopped, end = "", seconds
        settle = SETTLE_SECONDS if self.operator.signals else 0.0
        self._loop_start = self.link.clock.now()
        self.guard.receive(self.link.read(), self._loop_start)
        self.guard.start(self._loop_start, self.packet_period)
        k = 0
        while not self.guard.finished:
            done = self._run_tick(self._loop_start + k * self.tick)
            ahead = max(k + 1, math.ceil((done - self._loop_start) / self.tick)) if self._missed_deadline else k + 1
            self._skipped_deadlines, k = ahead - k - 1, ahead
            now = self.progress.seconds
            if self.damp_now:
                stopped = stopped or "interrupted"
                self.guard.damp(done, "the operator wants it over at once")
            if not stopped and (stopped := stopping()):
                end = min(end, now)
            if now >= end - 0.5 * self.tick:
                self.operator.release(now, COMMAND_FADE_SECONDS)
            # A robot that moves is brought to rest by its policy before it lies down.
            if now >= end + settle - 0.5 * self.tick or (stopped and self.guard.state != "run"):
                self.guard.stop(done, stopped or "the time is over")
        return stopped

    def _run_tick(self, due: float) -> float:
        """One tick; the moment at which its target was sent."""
        guard, clock = self.guard, self.link.clock
        clock.sleep_until(due)
        woke = clock.now()
        sound = guard.receive(self.link.read(), woke)
        guard.note_deadline(self._missed_deadline)
        wanted = self._policy_target(woke) if sound and guard.state == "run" else None
        self._policy_active = wanted is not None
        mode, target = guard.decide(wanted, woke)
        self._send_command(mode, target, woke)
        done = clock.now()
        self._missed_deadline = done > due + self.tick
        missed = self._missed_deadline + self._skipped_deadlines
        self.progress.missed, self.progress.ticks = (
            self.progress.missed + missed,
            self.progress.ticks + 1 + self._skipped_deadlines,
        )
        self._wake_latency.append(woke - due)
        self._compute_time.append(done - woke)
        self._record_tick(woke, target, self._no_target if wanted is None else wanted, missed)
        progress = self.progress
        progress.seconds = 0.0 if math.isnan(self._policy_start) else woke - self._policy_start
        progress.state = guard.state
        return done

    def _send_command(self, mode: Mode, target: np.ndarray, now: float) -> None:
        self.link.write(Command(self._commands_sent, now, mode, target, self.guard.owner))
        self._commands_sent += 1

    def _policy_target(self, now: float) -> np.ndarray:
        """The policy's target, in the robot's order; a policy that breaks down wants nothing, which the guard sees."""
        if not self._policy_active:
            self.controller.reset()
            self._policy_start = now if math.isnan(self._policy_start) else self._policy_start
        for name, columns in self.signal_map.signal_columns.items():
            self._signals[name] = self.guard.packet_filter.values[columns]
        try:
            return self.controller.tick(self._signals | self.operator.values_at(now - self._policy_start))[
                self.signal_map.target_order
            ]
        except Exception:
            return self._no_target

    def _record_tick(self, now: float, target: np.ndarray, policy_target: np.ndarray, missed: int) -> None:
        guard, packet = self.guard, self.guard.packet_filter.packet
        if self.recorder is None or packet is None:
            guard.log.take_events()
            return
        status = (
            self._wake_latency[-1],
            self._compute_time[-1],
            missed,
            guard.packet_filter.age,
            GUARD_STATES.index(guard.state),
        )
        robot = (guard.log.active_rules, MODES.index(packet.mode), packet.sequence, packet.time)
        asked = self.operator.row_at(now - self._policy_start)
        row = np.concatenate(
            ([now - self._loop_start], guard.packet_filter.values, asked, target, policy_target, status, robot)
        )
        self.recorder.put(row, guard.log.take_events())

    @property
    def wake_latency(self) -> np.ndarray:
        """s after each deadline that the loop woke, (ticks,)."""
        return np.array(self._wake_latency)

    @property
    def compute_time(self) -> np.ndarray:
        """s from waking until the target was sent, (ticks,)."""
        return np.array(self._compute_time)

    def _result(self, stopped: str) -> RunResult:
        guard, recorder = self.guard, self.recorder
        return RunResult(
            status="guard" if guard.end_reason else "interrupted" if stopped else "completed",
            reason=guard.end_reason or stopped,
            seconds=guard.ticks * self.tick,
            ticks=len(self._wake_latency),
            missed=Rate.from_counts(self.progress.missed, self.progress.ticks),
            interventions=Rate.from_counts(guard.interventions, guard.ticks),
            rules={rule: n for rule, n in guard.log.counts.items() if n},
            wake_latency=Timing.from_samples(self.wake_latency),
            wake_latency_histogram=Histogram.from_samples(self.wake_latency),
            compute_time=Timing.from_samples(self.compute_time),
            recorded_ticks=recorder.rows if recorder else 0,
            lost_ticks=recorder.lost if recorder else 0,
            recording_problem=recorder.problem if recorder else "",
        )


@contextmanager
def _low_jitter() -> Iterator[None]:
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
