"""Faults of the network between a virtual robot and its controller: packets that come late, twice, out of order, or never."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import numpy as np

from isthmus.sim.reality.tables import Faults, NetworkDelay

T = TypeVar("T")


class Channel(Generic[T]):
    """One direction of a network: items go in, and come out later, twice, in another order, or never."""

    def __init__(self, faults: Faults, rng: np.random.Generator):
        self.faults, self.delay, self.rng = faults, faults.network_delay, rng
        self._queue: deque[tuple[float, T]] = deque()
        self._overtaken: list[tuple[float, T]] = []
        self.perfect = not (faults.drop or faults.duplicate or faults.reorder or self.delay != NetworkDelay(0.0))

    def send(self, item: T, now: float) -> None:
        if self.perfect:
            self._queue.append((now, item))
            return
        lost, twice, behind, wait = self.rng.uniform(size=4)
        if lost < self.faults.drop:
            return
        due = now + self.delay.extra + self.delay.jitter * wait
        copies = [(due, item)] * (2 if twice < self.faults.duplicate else 1)
        if behind < self.faults.reorder and not self._overtaken:
            self._overtaken = copies
            return
        self._queue.extend(copies + self._overtaken)
        self._overtaken = []

    def arrivals(self, now: float) -> list[T]:
        """What has come out by now. Nothing overtakes but what `reorder` says."""
        found = []
        while self._queue and self._queue[0][0] <= now + 1e-9:
            found.append(self._queue.popleft()[1])
        return found
