"""Every rule of the guard: what it does, from when on, and that there is no way around it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from isthmus.deploy.guard.guard import Guard
from isthmus.deploy.guard.rules import CLIP_RULES, DAMP_RULES, HOLD_RULES, PACKET_RULES, RULE_BITS, RULES, GuardLog
from isthmus.deploy.links.link import Packet
from support.contracts import still
from support.guard_provocations import (
    BESIDE,
    CASES,
    CONTRACTS,
    EVERY,
    PROVOKE,
    running,
)


def test_every_rule_is_provoked_on_two_robots_at_least():
    assert set(PROVOKE) == set(RULES)
    assert all(len(names) >= 2 for _, names in PROVOKE.values())
    assert set(RULES) == {*PACKET_RULES, *CLIP_RULES, *HOLD_RULES, *DAMP_RULES}
    assert len(set(RULES)) == len(RULES)


@pytest.mark.parametrize(("rule", "name"), CASES)
def test_just_short_of_its_threshold_a_rule_does_nothing(rule, name):
    drive = running(name)
    PROVOKE[rule][0](drive, False)
    assert rule not in drive.counts
    assert set(drive.counts) <= BESIDE.get(rule, set())
    drive.until("run")
    assert drive.guard.end_reason == ""
    assert not drive.named(rule)


@pytest.mark.parametrize(("rule", "name"), [c for c in CASES if c[0] in PACKET_RULES])
def test_a_packet_that_is_noted_changes_nothing_else(rule, name):
    drive = running(name)
    PROVOKE[rule][0](drive, True)
    assert drive.counts.pop(rule) == (3 if rule == "dropped" else 1)
    assert set(drive.counts) - {rule} <= BESIDE.get(rule, set())
    assert drive.state == "run"
    assert drive.guard.interventions == 0
    assert len(drive.named(rule)) == 1


@pytest.mark.parametrize("name", EVERY)
def test_the_newest_whole_packet_counts(name):
    drive = running(name)
    intake = drive.guard.packet_filter
    tagged = []
    for i in range(4):
        drive.k += 1
        tagged.append(drive.packet(lambda y, i=i: y + 1e-3 * i))
    broken = replace(drive.packet(), values=np.full(drive.contract.width, np.nan))
    short = replace(drive.packet(), values=np.zeros(drive.contract.width - 1))
    timeless = [replace(drive.packet(), time=t) for t in (np.nan, np.inf, -np.inf)]
    drive.step([tagged[0], tagged[3], tagged[1], tagged[3], tagged[2], broken, short, *timeless])
    assert intake.packet is tagged[3]
    assert (intake.values == tagged[3].values).all()
    assert drive.counts == {"dropped": 2, "order": 2, "duplicate": 1, "nonfinite": 5}
    assert drive.state == "run"


@pytest.mark.parametrize("name", ["go1", "arm", "pendulum"])
def test_every_component_of_every_signal_is_watched_for_what_is_no_number(name):
    drive = running(name)
    labels = [f"{s.name} of {x}" for s in drive.contract.signals for x in s.labels]
    for i, bad in zip(range(drive.contract.width), [np.nan, np.inf, -np.inf] * drive.contract.width, strict=False):
        drive.events.clear()
        for _ in range(round(1.1 / drive.tick)):
            drive.next()
        before = drive.guard.packet_filter.values
        drive.next(lambda i=i, bad=bad: [drive.packet(lambda y: np.where(np.arange(len(y)) == i, bad, y))])
        assert drive.guard.packet_filter.values is before
        assert drive.named("nonfinite") == [f"{labels[i][0].upper()}{labels[i][1:]} is not a number."]
    assert drive.counts["nonfinite"] == drive.contract.width


@pytest.mark.parametrize("name", EVERY)
def test_packets_without_a_time_do_not_keep_a_robot_alive(name):
    drive = running(name)
    for _ in range(round(drive.thresholds.lost_after / drive.tick) + 2):
        drive.next(lambda: [replace(drive.packet(), time=math.nan)])
    assert drive.state == "damp"
    assert drive.guard.end_reason.startswith("lost")


@pytest.mark.parametrize(("rule", "name"), [c for c in CASES if c[0] in CLIP_RULES])
def test_a_target_that_goes_too_far_is_clipped_to_the_nearest_safe_one(rule, name):
    """The exact values are compared where each rule is provoked."""
    drive = running(name)
    before = drive.guard.interventions
    PROVOKE[rule][0](drive, True)
    assert drive.counts == {rule: 1 if rule == "limit" else 2}
    assert drive.guard.interventions - before == drive.counts[rule]
    assert drive.state == "run"
    assert len(drive.named(rule)) == 1
    before = drive.guard.interventions
    for _ in range(5):
        drive.next(wanted=drive.guard.last_target)
    assert drive.guard.interventions == before


@pytest.mark.parametrize(("rule", "name"), [c for c in CASES if c[0] in HOLD_RULES])
def test_what_is_missing_is_waited_for_with_the_last_safe_target(rule, name):
    drive = running(name)
    safe = drive.guard.last_target.copy()
    PROVOKE[rule][0](drive, True)
    assert drive.state == "hold"
    expected = "track" if drive.contract.has_joint_targets else "damp"
    assert drive.sent[-1][0] == expected
    assert (drive.guard.last_target == safe).all()
    # It goes on after exactly as many sound ticks as it takes.
    for sound in range(1, drive.thresholds.recovery_ticks + 1):
        mode, target = drive.next(wanted=drive.default + 1e-3)
        assert drive.state == ("hold" if sound < drive.thresholds.recovery_ticks else "run")
        assert (target == safe).all()
        assert mode == expected
    mode, target = drive.next(wanted=drive.default + 1e-3)
    assert (mode, drive.state) == ("track", "run")
    assert (target == drive.default + 1e-3).all()
    assert not drive.guard.end_reason
    assert len(drive.named("hold")) == len(drive.named("run")) - 1
    assert rule in drive.named("hold")[-1]


@pytest.mark.parametrize(("rule", "name"), [c for c in CASES if c[0] in HOLD_RULES])
def test_one_more_fault_starts_the_waiting_again(rule, name):
    drive = running(name)
    PROVOKE[rule][0](drive, True)
    for _ in range(drive.thresholds.recovery_ticks - 1):
        drive.next()
    drive.shift += 2 * drive.thresholds.max_clock_jump
    drive.next()
    for _ in range(drive.thresholds.recovery_ticks - 1):
        drive.next()
        assert drive.state == "hold"
    drive.next()
    assert drive.state == "run"


@pytest.mark.parametrize(("rule", "name"), [c for c in CASES if c[0] in DAMP_RULES])
def test_from_damp_there_is_no_way_back(rule, name):
    drive = running(name)
    PROVOKE[rule][0](drive, True)
    assert drive.state == "damp"
    assert drive.guard.end_reason.startswith(f"{rule}: ")
    assert drive.counts[rule] == 1
    assert drive.sent[-1][0] == "damp"
    assert [e.level for e in drive.events if e.name in (rule, "damp")] == ["error", "error"]
    start, said = drive.now, len(drive.sent)
    while not drive.guard.finished:
        drive.next()
        drive.guard.stop(drive.now, "the time is over")
        assert drive.state == ("stop" if drive.guard.finished else "damp")
    assert drive.now - start == pytest.approx(drive.thresholds.damp_seconds, abs=1.5 * drive.tick)
    for _ in range(20):
        drive.next()
    assert {mode for mode, _ in drive.sent[said:]} == {"damp"}
    assert drive.state == "stop"
    assert drive.guard.finished


@pytest.mark.parametrize("name", EVERY)
def test_a_policy_that_never_gives_a_number_does_not_hold_forever(name):
    drive = running(name)
    start = drive.now
    drive.until("damp", 2.0, wanted=np.full(len(drive.default), np.nan))
    assert drive.guard.end_reason.startswith("held")
    # It is held for five ticks of six, so it takes a little longer than one long hold.
    assert drive.now - start <= 1.3 * drive.thresholds.max_hold + (drive.thresholds.recovery_ticks + 2) * drive.tick


@pytest.mark.parametrize("name", EVERY)
def test_many_short_holds_are_as_bad_as_a_long_one(name):
    """A third of the time in hold: each of them is short, and it still ends."""
    drive = running(name)
    start, held = drive.now, drive.thresholds.recovery_ticks
    while drive.state != "damp":
        drive.next(wanted=np.full(len(drive.default), np.nan))
        for _ in range(3 * held):
            drive.next()
        assert drive.now - start < 10 * drive.thresholds.max_hold + 100 * drive.tick
    assert drive.guard.end_reason.startswith("held")


@pytest.mark.parametrize("name", EVERY)
def test_holds_that_are_far_apart_are_not_added_up(name):
    drive = running(name)
    for _ in range(20):
        drive.next(wanted=np.full(len(drive.default), np.nan))
        drive.until("run", 0.5)
        for _ in range(round((drive.thresholds.recovery_ticks + 1) / drive.thresholds.hold_forgiveness)):
            drive.next()
    assert drive.state == "run"
    assert drive.counts == {"policy": 20}


def test_a_limit_that_is_not_around_zero_is_widened_to_both_sides():
    drive = running("arm")
    for volts in (20.0, 15.0, 30.0, 38.0):
        for _ in range(5):
            drive.next(battery={"v": volts})
    assert drive.counts == {}
    for volts in (13.9, 39.1):
        for _ in range(5):
            drive.next(battery={"v": volts})
        assert drive.state == "hold"
        drive.until("run", 0.5)


def test_a_joint_that_was_pushed_beyond_its_limit_is_not_told_to_stay_there():
    contract, default = CONTRACTS["arm"]
    for gains in (contract.gains, {}):
        guard = Guard(replace(contract, gains=gains), default)
        pose = np.array([contract.target.high[0] + 0.14, default[1]])
        guard.receive([Packet(1, 0.0, "idle", still(contract, pose))], 0.0)
        guard.start(0.0, 0.005)
        for k in range(1, 20):
            guard.receive([Packet(1 + k, k * 0.005, "track", still(contract, pose))], k * 0.005)
            _, target = guard.decide(None, k * 0.005)
            assert (target <= contract.target.high).all()


# How it is told ------------------------------------------------------------------------------------------------------


def test_a_spell_is_two_events_and_its_count_is_exact():
    log = GuardLog()
    log.reset(100.0)
    for k in range(10):
        log.begin_tick(100.0 + 0.5 * k)
        log.report("limit", "it goes too far", times=2)
        assert log.active_rules == RULE_BITS["limit"]
    log.begin_tick(100.0 + 0.5 * 9 + 1.0)
    assert log.active_rules == 0
    assert [(e.time, e.level, e.text) for e in log.take_events()] == [(0.0, "info", "It goes too far.")]
    log.begin_tick(105.6)
    assert [(e.name, e.level, e.text) for e in log.take_events()] == [("limit", "info", "20 times, the last at 4.50 s.")]
    log.begin_tick(200.0)
    assert log.take_events() == []
    log.report("limit", "again")
    assert [e.text for e in log.take_events()] == ["Again."]
    log.begin_tick(202.0)
    assert log.take_events() == []
    assert log.counts["limit"] == 21


def test_spells_of_two_rules_do_not_mix():
    log = GuardLog()
    log.reset(0.0)
    log.begin_tick(0.0)
    log.report("stale", "old")
    log.report("lost", "gone")
    assert [(e.name, e.level) for e in log.take_events()] == [("stale", "warning"), ("lost", "error")]
    assert log.active_rules == RULE_BITS["stale"] | RULE_BITS["lost"]
    assert log.active_reason() == "stale, lost"
    log.begin_tick(0.9)
    log.report("stale", "old")
    log.begin_tick(1.5)
    assert log.take_events() == []
    log.begin_tick(1.95)
    assert [e.name for e in log.take_events()] == ["stale"]


@pytest.mark.parametrize("name", EVERY)
def test_what_was_said_before_the_run_is_not_told_again(name):
    contract, default = CONTRACTS[name]
    guard = Guard(contract, default)
    y = still(contract, default)
    for k in (1, 5, 9):
        guard.receive([Packet(k, k * 0.02, "idle", y), Packet(k, k * 0.02, "idle", y)], 1000.0 + k * 0.02)
    assert guard.log.counts["dropped"] == 6
    guard.start(1001.0, 0.02)
    assert not any(guard.log.counts.values())
    assert [e.name for e in guard.log.take_events()] == [guard.state]
    guard.receive([], 1003.0)
    assert all(0 <= e.time < 10 for e in guard.log.take_events())
