"""Recordings are prepared once: what is refused, what is left out, and which noise goes with which part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.data.episode import Episode
from isthmus.real2sim.prepare.checks.recording_checks import check
from isthmus.real2sim.prepare.prepare import prepare
from isthmus.robots import get_robot
from isthmus.sim.robot import Robot
from isthmus.sim.simulate_recording import random_multisine, record_targets


@pytest.fixture(scope="module")
def pendulum() -> Robot:
    return get_robot("pendulum")


@pytest.fixture(scope="module")
def episode(pendulum: Robot) -> Episode:
    return record_targets(pendulum, pendulum.prior.median(), random_multisine(pendulum, 6.0, 0, 0.2), 1)


def test_the_raw_recording_is_kept_and_the_clean_one_lacks_what_was_found(pendulum: Robot, episode: Episode):
    signals = {name: values.copy() for name, values in episode.signals.items()}
    signals["joint_pos"][40:44] = np.nan
    holed = replace(episode, signals=signals)
    prepared = prepare(pendulum, [holed], ["holed.mcap"])
    assert prepared.names == ("holed.mcap",)
    assert prepared.raw[0] is holed
    assert prepared.findings == check(pendulum, [holed], ["holed.mcap"])
    assert prepared.robot.contract.rate == pendulum.contract.rate
    np.testing.assert_array_equal(prepare(pendulum, [holed], findings=prepared.findings).noise, prepared.noise)


def test_a_finding_that_cannot_be_handled_is_refused_only_where_the_caller_asks(pendulum: Robot, episode: Episode):
    in_degrees = replace(episode, signals={**episode.signals, "joint_pos": np.rad2deg(episode.signals["joint_pos"])})
    assert any(finding.refused for finding in prepare(pendulum, [in_degrees]).findings)
    with pytest.raises(BadInput, match="joint_pos"):
        prepare(pendulum, [in_degrees], refuse=True)


def test_a_subset_has_the_noise_of_its_own_recordings(pendulum: Robot, episode: Episode):
    noise = 0.3 * np.random.default_rng(0).standard_normal(episode.signals["joint_vel"].shape)
    louder = replace(episode, signals={**episode.signals, "joint_vel": episode.signals["joint_vel"] + noise})
    both = prepare(pendulum, [episode, louder], findings=())
    first, second = both.subset([0]), both.subset([1])
    assert {track.recording for track in second.tracks} == {1}
    np.testing.assert_array_equal(first.noise, prepare(pendulum, [episode], findings=()).noise)
    assert first.noise[1] < both.noise[1] < second.noise[1]
    assert 0.3 < second.noise[1] < 0.45  # an upper bound: fast motion counts as noise


def test_a_robot_without_feet_is_always_in_control(pendulum: Robot, episode: Episode):
    prepared = prepare(pendulum, [episode])
    assert prepared.in_control() is prepared


def test_nothing_can_be_compared_without_signals(pendulum: Robot, episode: Episode):
    signals = {name: np.full_like(values, np.nan) for name, values in episode.signals.items()}
    assert not prepare(pendulum, [replace(episode, signals=signals)], findings=()).is_comparable
