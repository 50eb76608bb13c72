"""Record a run without ever holding it up: the control loop hands over rows, a thread writes them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from isthmus.data.episode import Event
from isthmus.data.mcap.writer import EpisodeWriter
from isthmus.deploy.controller import Controller
from isthmus.deploy.preflight import PreparedRobot

STATUS_COLUMNS = ("late", "compute", "missed", "age", "state", "rules", "mode", "sequence", "robot_time")
"""Per tick: s after the deadline that the loop woke, s until the target was sent, deadlines missed with this tick and since
the one before, age of the signals in s, state of the guard, its rules as bits, mode, count and clock of the robot."""
POLL_INTERVAL = 0.1
"""s between two looks at the queue."""
MAX_QUEUED_ROWS = 60_000
"""Rows that may wait for a slow disk; further ones are lost, and counted."""


class Recorder:
    def __init__(self, writer: EpisodeWriter):
        self.writer = writer
        self.rows = self.lost = 0
        """Rows that are in the file, and rows that are not; both are known when it is closed."""
        self.problem = ""
        """Why rows were lost."""
        self._received_rows = 0
        self._queue: deque[np.ndarray | Event] = deque()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write_loop, name="recorder", daemon=True)
        self._thread.start()

    def put(self, row: np.ndarray, events: Iterable[Event] = ()) -> None:
        """Take a row of the writer's layout, which the caller no longer changes. Never waits, never fails."""
        self._received_rows += 1
        if len(self._queue) > MAX_QUEUED_ROWS:
            self.problem = "the disk is too slow"
            return
        self._queue.append(row)
        self._queue.extend(events)

    def put_events(self, events: Iterable[Event]) -> None:
        """Take events that belong to no row."""
        self._queue.extend(events)

    def close(self) -> None:
        """Write what is waiting and finish the file."""
        self._stop.set()
        self._thread.join()
        try:
            self.writer.close()
        except OSError as error:
            self.problem = self.problem or error.strerror or str(error)
        self.rows = self.writer.written_ticks
        self.lost = self._received_rows - self.rows

    def _write_loop(self) -> None:
        while True:
            last = self._stop.wait(POLL_INTERVAL)
            rows: list[np.ndarray] = []
            while self._queue:
                item = self._queue.popleft()
                if isinstance(item, Event):
                    self._write(rows, item)
                    rows = []
                else:
                    rows.append(item)
            self._write(rows)
            if last and not self._queue:
                return

    def _write(self, rows: list[np.ndarray], event: Event | None = None) -> None:
        try:
            if rows:
                self.writer.write_rows(np.stack(rows))
            if event:
                self.writer.write_event(event)
        except (OSError, ValueError) as error:
            self.problem = self.problem or getattr(error, "strerror", None) or str(error)


def recorder_for(path: Path, controller: Controller, prepared: PreparedRobot) -> Recorder:
    """Writes the run of a controller on this robot into a file, which is written over if it exists."""
    manifest, identity = controller.manifest, prepared.identity
    origin = {
        "source": identity.source,
        "unit": identity.unit,
        "task": manifest.task,
        "controller_hash": controller.hash,
        "model_hash": identity.model_hash,
        "parents": [controller.hash],
        "started": time.time(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    return Recorder(EpisodeWriter(path, identity.contract, manifest.operator, STATUS_COLUMNS, origin))
