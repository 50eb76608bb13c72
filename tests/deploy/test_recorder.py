"""A recorder never holds a run up, and counts what it loses."""

from __future__ import annotations

import errno
import io
import math
import threading

import numpy as np
import pytest

from isthmus.data.episode import Event
from isthmus.data.mcap.writer import EpisodeWriter, read_episode
from isthmus.deploy import recorder as recorder_module
from isthmus.deploy.command_schedule import CommandSchedule
from isthmus.deploy.links.in_process import InProcessLink
from isthmus.deploy.recorder import STATUS_COLUMNS, Recorder
from isthmus.deploy.run_result import RunResult
from isthmus.deploy.runtime import ControlLoop
from support.contracts import reordered, still
from support.controllers import COMMAND
from support.fake_bodies import StandIn
from support.lockstep import CONTRACTS, GO1, counter, fly, ready, stand_in

# Recording -----------------------------------------------------------------------------------------------------------


class Disk(io.BytesIO):
    """Full after so many bytes."""

    def __init__(self, room: float = math.inf):
        super().__init__()
        self.room = room

    def write(self, data) -> int:
        if self.tell() + len(data) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def size_of_header() -> int:
    disk = Disk()
    EpisodeWriter(disk, GO1, (COMMAND,), STATUS_COLUMNS, {})
    return disk.tell()


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("more", [0, 1, 30_000, 120_000])
def test_a_full_disk_costs_the_recording_and_not_the_run(more, tmp_path):
    plain, _ = fly(counter(), stand_in(), 1.0)
    disk, body = Disk(size_of_header() + more), stand_in()
    outcome, _ = fly(counter(), body, 1.0, disk)
    assert (outcome.status, outcome.ticks) == ("completed", plain.ticks)
    assert body.commands[-1].mode == "damp"
    assert "No space left" in outcome.recording_problem
    (tmp_path / "a.mcap").write_bytes(disk.getvalue())
    episode = read_episode(tmp_path / "a.mcap")
    assert not episode.complete
    assert len(episode) == outcome.recorded_ticks
    assert outcome.recorded_ticks + outcome.lost_ticks == outcome.ticks
    assert outcome.lost_ticks > 0
    assert (outcome.recorded_ticks > 0) == (more > 1000)
    for sent, recorded in zip(body.commands, episode.target, strict=False):
        assert (sent.target == recorded).all()


class Stuck(Disk):
    """Takes nothing until it is told to."""

    def __init__(self):
        super().__init__()
        self.free = threading.Event()
        self.free.set()
        self.gave_up = False

    def write(self, data) -> int:
        self.gave_up |= not self.free.wait(20.0)
        return super().write(data)


@pytest.fixture
def stuck(monkeypatch) -> Stuck:
    monkeypatch.setattr(recorder_module, "POLL_INTERVAL", 0.001)
    return Stuck()


def run_on(disk: Stuck, ticks: int) -> tuple[RunResult, StandIn]:
    """A run whose disk hangs from the beginning on and is free again at that tick."""
    controller, body = counter(), stand_in()
    link = InProcessLink(body)
    flight, _ = ready(controller, link)
    recorder = Recorder(EpisodeWriter(disk, GO1, (COMMAND,), STATUS_COLUMNS, {}))
    disk.free.clear()

    def stopping() -> str:
        if len(body.commands) == ticks:
            disk.free.set()
        return ""

    return ControlLoop(controller, link, flight, CommandSchedule((COMMAND,)), recorder).run(1.0, stopping), body


def test_a_disk_that_hangs_does_not_hold_the_loop_up(stuck, tmp_path):
    """The disk is free again only because the loop went on for all these ticks."""
    outcome, body = run_on(stuck, 150)
    assert not stuck.gave_up
    assert (outcome.status, outcome.lost_ticks, outcome.recording_problem) == ("completed", 0, "")
    assert outcome.recorded_ticks == outcome.ticks > 150
    (tmp_path / "a.mcap").write_bytes(stuck.getvalue())
    episode = read_episode(tmp_path / "a.mcap")
    assert episode.complete
    np.testing.assert_array_equal(episode.target, [c.target for c in body.commands])


def test_a_disk_that_hangs_for_too_long_costs_rows_that_are_counted(stuck, monkeypatch):
    monkeypatch.setattr(recorder_module, "MAX_QUEUED_ROWS", 50)
    outcome, _ = run_on(stuck, 150)
    assert not stuck.gave_up
    assert outcome.status == "completed"
    assert outcome.lost_ticks > 0
    assert outcome.recorded_ticks + outcome.lost_ticks == outcome.ticks
    assert outcome.recording_problem == "the disk is too slow"


def test_a_row_that_cannot_be_written_is_reported_and_the_recorder_goes_on():
    writer = EpisodeWriter(Disk(), GO1, (COMMAND,), STATUS_COLUMNS, {})
    recorder = Recorder(writer)
    width = writer.layout.width
    recorder.put(np.full(width, 0.0))
    recorder.put(np.full(width, 0.0), [Event(0.0, "info", "x", "X.")])
    recorder.put(np.full(width, 1.0))
    recorder.close()
    assert "increase" in recorder.problem
    assert recorder.rows + recorder.lost == 3
    assert recorder.lost > 0


def test_still_signals_are_as_the_names_say():
    """The helper that all of this stands on."""
    contract = reordered(CONTRACTS["arm"][0], 3)
    values, at = still(contract, np.array([0.3, -0.4])), contract.slices()
    assert values[at["quat"]][contract["quat"].component_index("w")] == 1.0
    assert values[at["joint_pos"]][contract["joint_pos"].component_index(contract.target.labels[0])] == 0.3
