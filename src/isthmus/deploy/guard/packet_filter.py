"""Which packet of a robot counts: the newest one that is in order, whole, and not old."""

from __future__ import annotations

import math

import numpy as np

from isthmus.data.contract import Contract
from isthmus.deploy.guard.limits import all_finite
from isthmus.deploy.guard.rules import GuardLog, Thresholds
from isthmus.deploy.links.link import Packet

RESTART_SEQUENCE_GAP = 10_000
"""Packets further back in the sequence than this come from a robot that was restarted, not from a slow network."""
OFFSET_WINDOW_SECONDS = 0.5
"""s: how long the quickest packet counts, and once more as long."""


class PacketFilter:
    def __init__(self, contract: Contract, thresholds: Thresholds, log: GuardLog):
        self.contract, self.thresholds, self.log = contract, thresholds, log
        self.values = np.zeros(contract.width)
        """The newest sound signals, side by side in the contract's order."""
        self.packet: Packet | None = None
        self.accepted = 0
        """Packets that counted."""
        self.period = 0.0
        """s between packets, once it is known; with it the robot's clock is checked against its count."""
        self.age = math.inf
        """s since the newest signals were measured."""
        self._measured_at = -math.inf
        """When that was, by our clock."""
        self._clock_offsets = (math.inf, math.inf)
        """Our clock minus the robot's, of the quickest packet in this window and in the last: a later one was held up."""
        self._window_start = -math.inf

    def accept(self, packets: list[Packet], now: float) -> None:
        for packet in packets:
            if self._is_valid(packet) and self._is_newer(packet, now):
                self._measured_at = packet.time + self._update_offset(now - packet.time, now)
                self.packet, self.values = packet, packet.values
                self.accepted += 1
        self.age = now - self._measured_at

    def _update_offset(self, lag: float, now: float) -> float:
        """Clocks run apart, so only the latest second tells how far apart they are."""
        if now - self._window_start > OFFSET_WINDOW_SECONDS:
            self._clock_offsets, self._window_start = (math.inf, self._clock_offsets[0]), now
        self._clock_offsets = (min(lag, self._clock_offsets[0]), self._clock_offsets[1])
        return min(self._clock_offsets)

    def _is_valid(self, p: Packet) -> bool:
        if len(p.values) != len(self.values):
            self.log.report("nonfinite", f"a packet has {len(p.values)} numbers instead of {len(self.values)}")
            return False
        if not math.isfinite(p.time):
            self.log.report("nonfinite", "the time of a packet is not a number")
            return False
        if not all_finite(p.values):
            first = int(np.nonzero(~(np.abs(p.values) < 1e150))[0][0])
            self.log.report("nonfinite", f"{self.contract.component_names[first]} is not a number")
            return False
        return True

    def _is_newer(self, p: Packet, now: float) -> bool:
        last = self.packet
        if last is None:
            return True
        step = p.sequence - last.sequence
        if step == 0:
            self.log.report("duplicate", "a packet came twice")
            return False
        if step < 0:
            if now - self._measured_at < self.thresholds.lost_after and step > -RESTART_SEQUENCE_GAP:
                self.log.report("order", "a packet came after a newer one")
                return False
            self._report_clock_jump("the robot was restarted")
            return True
        if step > 1:
            self.log.report("dropped", f"{step - 1} packets are missing", step - 1)
        jump = p.time - last.time - step * self.period
        # A step back makes all later signals look older by as much, so it counts before they look stale.
        if (
            self.period
            and not -min(self.thresholds.max_clock_jump, 0.5 * self.thresholds.stale_after)
            <= jump
            <= self.thresholds.max_clock_jump
        ):
            self._report_clock_jump(f"the robot's clock jumped by {jump:+.3f} s")
        return True

    def _report_clock_jump(self, text: str) -> None:
        self.log.report("clock", text)
        self._clock_offsets = (math.inf, math.inf)
