"""One run as a library call: its result says what happened, and survives JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from isthmus.core.errors import BadInput, Interrupted
from isthmus.data.mcap.reader import read_episode
from isthmus.deploy.links.in_process import InProcessLink
from isthmus.deploy.links.registry import LINKS, connect
from isthmus.deploy.run import Stopping, run
from isthmus.deploy.run_result import Histogram, RunResult, Timing
from isthmus.deploy.runtime import SETTLE_SECONDS
from support.lockstep import counter, stand_in


class Closing(InProcessLink):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_run_that_completes_is_recorded_and_its_result_survives_json(tmp_path):
    link = Closing(stand_in())
    path, checks, shares = tmp_path / "new" / "a.mcap", [], []
    result = run(
        counter(), link, seconds=0.5, record=path, on_check=checks.append, progress=lambda f, note="": shares.append(f)
    )
    assert (result.status, result.reason) == ("completed", "")
    assert result.seconds == pytest.approx(0.5 + SETTLE_SECONDS, abs=0.05)
    assert tuple(checks) == result.checks
    assert all(c.ok for c in checks)
    episode = read_episode(path)
    assert (len(episode), episode.hash, str(path)) == (result.recorded_ticks, result.recording_hash, result.recording)
    assert result.source == link.body.identity.source
    assert RunResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    assert all(0 <= share <= 1 for share in shares)
    assert link.closed == 0  # whoever opened it closes it


def test_a_robot_that_fails_preflight_is_sent_no_command():
    body = stand_in(mode="busy")
    result = run(counter(), InProcessLink(body), seconds=0.5)
    failed = [c for c in result.checks if not c.ok]
    assert result.status == "refused"
    assert result.reason == "; ".join(f"{c.name}: {c.text}" for c in failed) != ""
    assert body.commands == []
    again = RunResult.from_dict(json.loads(json.dumps(result.to_dict())))
    assert math.isnan(again.wake_latency.p50)
    assert again.to_dict() == result.to_dict()


def test_an_interrupt_before_the_first_command_is_no_result():
    body, stopping = stand_in(), Stopping()
    stopping.interrupt()
    with pytest.raises(Interrupted, match="before the first command"):
        run(counter(), InProcessLink(body), stopping=stopping)
    assert body.commands == []


def test_a_second_interrupt_damps_at_once():
    """The first one lets the robot come to rest; the second does not wait for that."""
    stopping = Stopping()
    body = stand_in()
    advance, ticks = body.advance, []

    def advance_and_interrupt():
        ticks.append(1)
        if body.commands and body.commands[-1].mode == "track" and stopping.count < 2:
            stopping.interrupt()
        return advance()

    body.advance = advance_and_interrupt
    result = run(counter(), InProcessLink(body), stopping=stopping)
    assert result.status in ("interrupted", "guard")
    assert body.commands[-1].mode == "damp"
    assert result.seconds == 0.0


def test_a_recording_is_not_written_over_unasked(tmp_path):
    path = tmp_path / "a.mcap"
    path.write_bytes(b"precious")
    with pytest.raises(BadInput, match="exists"):
        run(counter(), InProcessLink(stand_in()), seconds=0.2, record=path)
    assert path.read_bytes() == b"precious"
    assert run(counter(), InProcessLink(stand_in()), seconds=0.2, record=path, overwrite=True).recorded_ticks > 0


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan])
def test_a_run_has_a_duration(seconds):
    with pytest.raises(BadInput, match="longer than 0 s"):
        run(counter(), InProcessLink(stand_in()), seconds=seconds)


def test_links_are_opened_by_name():
    with pytest.raises(BadInput, match="zenoh"):
        connect("zenho")
    with pytest.raises(BadInput, match="speed"):
        connect("zenoh", speed=0.0)
    with pytest.raises(BadInput, match="which robot"):
        connect("sim")
    link = InProcessLink(stand_in())
    assert connect(link) is link
    assert LINKS.keys() == {"zenoh", "sim"}


def test_quantiles_and_histogram_of_nothing_and_of_something():
    assert math.isnan(Timing.from_samples(np.zeros(0)).max)
    samples = np.linspace(0.0, 0.01, 1001)
    timing, histogram = Timing.from_samples(samples), Histogram.from_samples(samples)
    assert (timing.p50, timing.max) == (0.005, 0.01)
    assert sum(histogram.counts) == len(samples)
    assert len(histogram.counts) == len(histogram.edges) + 1
