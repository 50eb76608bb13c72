"""What the operator asks for, and when it reaches the policy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.data.contract import Signal
from isthmus.data.mcap.writer import read_episode
from isthmus.deploy.command_schedule import CommandSchedule
from isthmus.deploy.runtime import COMMAND_FADE_SECONDS, SETTLE_SECONDS
from support.controllers import COMMAND
from support.lockstep import CONTRACTS, GAIN, counter, fly, stand_in

# What the operator asks for ------------------------------------------------------------------------------------------

WIDE = Signal("speed", "m/s", ("forward",), low=(0.5,), high=(2.0,))


def test_commands_follow_their_schedule():
    operator = CommandSchedule((COMMAND,), ("2:forward=0.5", "yaw=0.1", "1:command.forward=-1", "2:yaw=-0.5"))
    seen = [operator.values_at(t)["command"].tolist() for t in (math.nan, 0.0, 0.999, 1.0, 1.999, 2.0, 100.0)]
    assert seen == [[0, 0], [0, 0.1], [0, 0.1], [-1, 0.1], [-1, 0.1], [0.5, -0.5], [0.5, -0.5]]
    assert operator.row_at(100.0).tolist() == [0.5, -0.5]


def test_without_a_command_the_nearest_to_nothing_is_asked_for():
    assert CommandSchedule((COMMAND, WIDE)).values_at(0.0)["speed"].tolist() == [0.5]
    assert CommandSchedule((COMMAND, WIDE)).row_at(0.0).tolist() == [0.0, 0.0, 0.5]
    assert CommandSchedule(()).row_at(0.0).shape == (0,)


def test_a_release_fades_to_nothing_once():
    operator = CommandSchedule((COMMAND,), ("forward=1", "9:forward=-1"))
    assert operator.values_at(5.0)["command"][0] == 1.0
    operator.release(6.0, 2.0)
    operator.release(7.0, 100.0)
    assert [operator.values_at(t)["command"][0] for t in (5.0, 6.0, 6.5, 7.0, 8.0, 10.0)] == [1.0, 1.0, 0.75, 0.5, 0.0, 0.0]
    wide = CommandSchedule((WIDE,), ("forward=2",))
    wide.release(0.0, 1.0)
    assert [wide.values_at(t)["speed"][0] for t in (0.0, 0.5, 1.0, 2.0)] == [2.0, 1.25, 0.5, 0.5]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("forwrad=0.5", "did you mean 'forward'"),
        ("forward=1.01", "outside -1 … 1"),
        ("3:yaw=-0.6", "outside -0.5 … 0.5"),
        ("forward", "NAME=VALUE"),
        ("forward=", "NAME=VALUE"),
        ("forward=fast", "NAME=VALUE"),
        ("forward=nan", "NAME=VALUE"),
        ("forward=inf", "NAME=VALUE"),
        ("-1:forward=0.1", "NAME=VALUE"),
        ("inf:forward=0.1", "NAME=VALUE"),
        ("soon:forward=0.1", "NAME=VALUE"),
        (":forward=0.1", "NAME=VALUE"),
        ("", "NAME=VALUE"),
        ("=1", "forward"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(entry, words):
    with pytest.raises(BadInput, match=words):
        CommandSchedule((COMMAND,), ("forward=1", entry))


def test_a_command_at_the_edge_of_its_range_is_taken():
    assert CommandSchedule((COMMAND,), ("forward=1", "yaw=-0.5")).values_at(0.0)["command"].tolist() == [1.0, -0.5]


def test_a_controller_that_takes_no_commands_says_so():
    with pytest.raises(BadInput, match="takes no command 'forward'"):
        CommandSchedule((), ("forward=1",))


def test_commands_reach_the_policy_when_they_are_due_and_fade_before_the_end(tmp_path):
    fly(counter(signal="gyro"), stand_in(), 2.0, tmp_path / "a.mcap", ("forward=0.5", "1:forward=-1"))
    episode = read_episode(tmp_path / "a.mcap")
    asked = np.isfinite(episode.wanted[:, 0])
    time = episode.time[asked] - episode.time[asked][0]
    forward = episode.signals["command"][asked, 0]
    edge = 1e-6
    fading = np.clip((time - 2.0) / COMMAND_FADE_SECONDS, 0, 1)
    expected = np.where(time < 1.0 - edge, 0.5, -1.0) * (1 - fading)
    np.testing.assert_allclose(forward, expected, atol=0.02 / COMMAND_FADE_SECONDS + 1e-9)
    assert set(forward[time < 2.0 - 0.021]) == {0.5, -1.0}
    assert forward[-1] == 0.0
    assert time[-1] == pytest.approx(2.0 + SETTLE_SECONDS, abs=0.03)
    # What is recorded is what the policy saw.
    count = np.arange(1, asked.sum() + 1)
    want = (CONTRACTS["go1"][1][0] + GAIN * (count + forward)).astype(np.float32)
    np.testing.assert_allclose(episode.wanted[asked, 0], want, atol=1e-6)
