"""Which packet of a robot counts: the newest one that is in order, whole, and not old."""

from __future__ import annotations

import math

import numpy as np

from isthmus.data.contract import Contract
from isthmus.deploy.limits import finite
from isthmus.deploy.link import Packet
from isthmus.deploy.rules import Log, Thresholds

RESTART = 10_000
"""Packets further back in the sequence than this come from a robot that was restarted, not from a slow network."""
WINDOW = 0.5
"""s: how long the quickest packet counts, and once more as long."""


class Intake:
    def __init__(self, contract: Contract, thresholds: Thresholds, log: Log):
        self.contract, self.thresholds, self.log = contract, thresholds, log
        self.values = np.zeros(contract.width)
        """The newest sound signals, side by side in the contract's order."""
        self.packet: Packet | None = None
        self.taken = 0
        """Packets that counted."""
        self.period = 0.0
        """s between packets, once it is known; with it the robot's clock is checked against its count."""
        self.age = math.inf
        """s since the newest signals were measured."""
        self._measured = -math.inf
        """When that was, by our clock."""
        self._offsets = (math.inf, math.inf)
        """Our clock minus the robot's, of the quickest packet in this window and in the last: a later one was held up."""
        self._window = -math.inf

    def take(self, packets: list[Packet], now: float) -> None:
        for packet in packets:
            if self._whole(packet) and self._newer(packet, now):
                self._measured = packet.time + self._offset(now - packet.time, now)
                self.packet, self.values = packet, packet.values
                self.taken += 1
        self.age = now - self._measured

    def _offset(self, lag: float, now: float) -> float:
        """Clocks run apart, so only the latest second tells how far apart they are."""
        if now - self._window > WINDOW:
            self._offsets, self._window = (math.inf, self._offsets[0]), now
        self._offsets = (min(lag, self._offsets[0]), self._offsets[1])
        return min(self._offsets)

    def _whole(self, p: Packet) -> bool:
        if len(p.values) != len(self.values):
            self.log.speak("nonfinite", f"a packet has {len(p.values)} numbers instead of {len(self.values)}")
            return False
        if not math.isfinite(p.time):
            self.log.speak("nonfinite", "the time of a packet is not a number")
            return False
        if not finite(p.values):
            first = int(np.nonzero(~(np.abs(p.values) < 1e150))[0][0])
            self.log.speak("nonfinite", f"{self.contract.names[first]} is not a number")
            return False
        return True

    def _newer(self, p: Packet, now: float) -> bool:
        last = self.packet
        if last is None:
            return True
        step = p.sequence - last.sequence
        if step == 0:
            self.log.speak("duplicate", "a packet came twice")
            return False
        if step < 0:
            if now - self._measured < self.thresholds.lost and step > -RESTART:
                self.log.speak("order", "a packet came after a newer one")
                return False
            self._clock("the robot was restarted")
            return True
        if step > 1:
            self.log.speak("dropped", f"{step - 1} packets are missing", step - 1)
        jump = p.time - last.time - step * self.period
        # A step back makes all later signals look older by as much, so it counts before they look stale.
        if self.period and not -min(self.thresholds.clock, 0.5 * self.thresholds.stale) <= jump <= self.thresholds.clock:
            self._clock(f"the robot's clock jumped by {jump:+.3f} s")
        return True

    def _clock(self, text: str) -> None:
        self.log.speak("clock", text)
        self._offsets = (math.inf, math.inf)
