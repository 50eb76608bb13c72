"""Every rule of the guard: what it does, from when on, and that there is no way around it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from robots_for_tests import contracts, put, still, tilted

from isthmus.deploy.guard import STATES, Guard
from isthmus.deploy.limits import AHEAD
from isthmus.deploy.link import Mode, Packet
from isthmus.deploy.rules import BIT, CLIPPED, DAMPED, HELD, NOTED, RULES, Log

CONTRACTS = contracts()
EVERY = tuple(CONTRACTS)
JOINTS = ("go1", "arm")
JUST = 1e-3


class Drive:
    """A guard, and a robot that obeys it: its joints are where the last target says."""

    def __init__(self, name: str, pose: np.ndarray | None = None, moves: bool = True):
        self.contract, self.default = CONTRACTS[name]
        self.guard = Guard(self.contract, self.default)
        self.limits, self.thresholds = self.guard.limits, self.guard.thresholds
        self.tick, self.moves = 1.0 / self.contract.rate, moves
        self.pose = np.array(self.default if pose is None else pose, float)
        self.k = self.sequence = 0
        self.shift = 0.0
        """Of the robot's clock."""
        self.mode: Mode = "idle"
        self.events, self.sent = [], []
        self.guard.see([self.packet()], self.now)
        self.guard.begin(self.now, self.tick)

    @property
    def now(self) -> float:
        return self.k * self.tick

    @property
    def state(self) -> str:
        return self.guard.state

    @property
    def counts(self) -> dict[str, int]:
        return {rule: n for rule, n in self.guard.log.counts.items() if n}

    def packet(self, change: Callable[[np.ndarray], np.ndarray] = lambda y: y) -> Packet:
        """The next one, of a robot at rest."""
        self.sequence += 1
        values = change(still(self.contract, self.pose))
        return Packet(self.sequence, self.now + self.shift, self.mode, values)

    def step(self, packets: list[Packet] | None = None, wanted: np.ndarray | None = None, missed: bool = False, **signals):
        """One tick as the loop does it; the policy wants its default unless told otherwise."""
        if packets is None:
            change = lambda y: [put(self.contract, y, name, **parts) for name, parts in signals.items()][-1] if signals else y
            packets = [self.packet(change)]
        sound = self.guard.see(packets, self.now)
        self.guard.deadline(missed)
        asked = (self.default if wanted is None else wanted) if sound and self.state == "run" else None
        mode, target = self.guard.decide(asked, self.now)
        self.sent.append((mode, target))
        self.mode = mode
        if self.moves and mode == "track":
            self.pose = np.array(target, float)
        self.events += self.guard.log.take()
        return mode, target

    def next(self, packets: Callable[[], list[Packet]] | None = None, **kwargs):
        """The same, a tick later."""
        self.k += 1
        return self.step(packets() if packets else None, **kwargs)

    def until(self, state: str, limit: float = 10.0, **kwargs) -> int:
        """Ticks until that state is reached."""
        for n in range(round(limit / self.tick)):
            if self.state == state:
                return n
            self.next(**kwargs)
        raise AssertionError(f"{self.state} is never left for {state}")

    def named(self, name: str) -> list[str]:
        return [e.text for e in self.events if e.name == name]


def running(name: str) -> Drive:
    drive = Drive(name)
    drive.step()
    drive.until("run")
    for _ in range(3):
        drive.next()
    assert drive.counts == {}
    assert drive.guard.interventions == 0
    return drive


# How each rule is provoked: `enough` says whether just enough is done, or just too little -----------------------------


def duplicate(drive: Drive, enough: bool) -> None:
    first = drive.packet()
    again = replace(first, values=first.values + 0.01, sequence=first.sequence + (not enough))
    drive.next(lambda: [first, again])
    drive.sequence = again.sequence
    assert drive.guard.intake.packet is (first if enough else again)


def order(drive: Drive, enough: bool) -> None:
    drive.k += 1
    first, second = drive.packet(), drive.packet()
    drive.step([second, first] if enough else [first, second])


def dropped(drive: Drive, enough: bool) -> None:
    drive.sequence += 3 * enough
    drive.k += 3 * enough
    drive.next()


def nonfinite(drive: Drive, enough: bool) -> None:
    drive.next(lambda: [drive.packet(lambda y: np.where(np.arange(len(y)) == 0, np.nan if enough else y, y))])


def limit(drive: Drive, enough: bool) -> None:
    high = np.array(drive.contract.target.high)
    for _ in range(1000):
        gap = high - drive.guard.target
        if gap[0] <= 1e-4:
            break
        drive.next(wanted=drive.guard.target + np.minimum(gap, 0.3 * steps(drive)) * (np.arange(len(gap)) == 0))
    wanted = drive.guard.target.copy()
    wanted[0] = np.nextafter(high[0], np.inf) if enough else high[0]
    drive.next(wanted=wanted)
    assert drive.guard.target[0] == high[0]
    assert (drive.guard.target[1:] == wanted[1:]).all()


def steps(drive: Drive) -> np.ndarray:
    """How far a target may go in a tick."""
    contract = drive.contract
    if not contract.joints:
        return np.full(contract.target.size, np.inf)
    speed = contract["joint_vel"]
    return np.array([speed.high[speed.component(x)] for x in contract.target.labels]) / contract.rate


def jump(drive: Drive, enough: bool) -> None:
    for sign in (1, -1):
        furthest = drive.guard.target + sign * steps(drive)
        drive.next(wanted=furthest + sign * JUST * enough)
        assert (drive.guard.target == furthest).all()
        for share in (0.5, 0.0):
            drive.next(wanted=drive.default + share * (furthest - drive.default))


def torque(drive: Drive, enough: bool) -> None:
    contract = drive.contract
    reach = np.array(contract.safety.effort) / np.array(contract.gains["kp"])
    drive.moves = False
    i = 1  # A joint that has so much room.
    drive.pose[i] += reach[i] * (1 + JUST if enough else 1 - JUST)
    label = contract.target.labels[i]
    last = drive.guard.target.copy()
    drive.next(joint_pos={label: drive.pose[i]})
    nearest = drive.pose[i] - reach[i] if enough else last[i]
    assert drive.guard.target[i] == pytest.approx(nearest, abs=1e-12)
    assert (np.delete(drive.guard.target, i) == np.delete(last, i)).all()
    # A joint that moves has its damping taken into account.
    speed = 0.9 * contract["joint_vel"].high[contract["joint_vel"].component(label)]
    lead = contract.gains["kd"][i] / contract.gains["kp"][i]
    if enough:
        drive.next(joint_vel={label: speed})
        assert drive.guard.target[i] == pytest.approx(drive.pose[i] + lead * speed - reach[i], abs=1e-12)
    drive.pose = np.array(drive.default)
    drive.moves = True


def silent(drive: Drive, seconds: float, enough: bool) -> None:
    """Say nothing until the signals are that old, or almost."""
    n = math.floor(seconds / drive.tick + 1e-9)
    for _ in range(n + 1 if enough else n - 1):
        drive.sequence += 1
        drive.next(lambda: [])


def stale(drive: Drive, enough: bool) -> None:
    silent(drive, drive.thresholds.stale, enough)


def lost(drive: Drive, enough: bool) -> None:
    silent(drive, drive.thresholds.lost, enough)


def clock(drive: Drive, enough: bool) -> None:
    t = drive.thresholds
    for by in (t.clock, -min(t.clock, t.stale / 2)):
        drive.until("run", 0.5)
        before = drive.counts.get("clock", 0)
        drive.shift += by + math.copysign(JUST, by if enough else -by)
        drive.next()
        assert drive.counts.get("clock", 0) - before == enough


OUT = {
    "range": {"go1": ("gyro", "y", 34.9 * 1.3), "cartpole": ("cart_pos", "slider", 2.4 * 1.3), "arm": ("battery", "v", 14.0)},
    "speed": {
        "go1": ("joint_vel", "RL_calf", 20.06 * 1.3),
        "pendulum": ("joint_vel", "hinge", 38.2 * 1.3),
        "arm": ("joint_vel", "wrist", -7.8),
    },
    "position": {"go1": ("joint_pos", "FL_calf", -0.888 + 0.15), "arm": ("joint_pos", "wrist", -1.15)},
}  # fmt: skip
"""Signal, component and limit per rule and robot."""


def out(rule: str) -> Callable[[Drive, bool], None]:
    def provoke(drive: Drive, enough: bool) -> None:
        signal, label, edge = OUT[rule][drive.contract.robot]
        middle = still(drive.contract)[drive.contract.slices()[signal]][drive.contract[signal].component(label)]
        away = math.copysign(1.0, edge - middle)
        inside, outside = {signal: {label: edge - away * JUST}}, {signal: {label: edge + away * JUST}}
        for _ in range(10):
            drive.next(**inside)
        for _ in range(drive.thresholds.patience - 1):
            drive.next(**outside)
        drive.next(**(outside if enough else inside))
        # A packet that comes again is no new sample.
        if not enough:
            again = drive.packet(lambda y: put(drive.contract, y, signal, **{label: edge + away * JUST}))
            for _ in range(drive.thresholds.patience):
                drive.next(lambda: [again])

    return provoke


def tilt(drive: Drive, enough: bool) -> None:
    angle = drive.contract.safety.tilt
    lean = lambda by: lambda: [drive.packet(lambda y: tilted(drive.contract, y, by))]
    for _ in range(10):
        drive.next(lean(angle - JUST))
    for _ in range(drive.thresholds.patience - 1):
        drive.next(lean(angle + JUST))
    drive.next(lean(angle + JUST if enough else angle - JUST))


def policy(drive: Drive, enough: bool) -> None:
    for bad in (np.nan, np.inf, -np.inf) if enough else (1e9, -1e9):
        wanted = np.array(drive.default)
        wanted[-1] = bad
        before = drive.guard.target.copy()
        drive.next(wanted=wanted)
        assert drive.state == ("hold" if enough else "run")
        if enough and bad != -np.inf:
            assert (drive.guard.target == before).all()
            drive.until("run", 0.5)
            for _ in range(10):
                drive.next()


def deadline(drive: Drive, enough: bool) -> None:
    n = drive.thresholds.deadlines
    for missed in (*[True] * (n - 1), False, *[True] * (n - 1), enough):
        drive.next(missed=missed)


def held(drive: Drive, enough: bool) -> None:
    for _ in range(drive.thresholds.deadlines):
        drive.next(missed=True)
    start = drive.now
    assert drive.state == "hold"
    last = drive.thresholds.hold - (drive.thresholds.recover + 1) * drive.tick
    while drive.state == "hold" and (enough or drive.now - start < last):
        drive.next(missed=True)
    assert not enough or drive.now - start <= drive.thresholds.hold + 1.5 * drive.tick
    while drive.state == "hold":
        drive.next()


def mode(drive: Drive, enough: bool) -> None:
    n = round(drive.thresholds.obey / drive.tick)
    for _ in range(n + 1 if enough else n - 1):
        drive.mode = "idle"
        drive.next()


def follow(drive: Drive, enough: bool) -> None:
    """This one is about the end of the ramp."""
    away = drive.thresholds.follow + (JUST if enough else -JUST)
    drive.__init__(drive.contract.robot, drive.default + away * (np.arange(len(drive.default)) == 1), moves=False)
    drive.step()
    while drive.state == "ramp":
        drive.next()


PROVOKE: dict[str, tuple[Callable[[Drive, bool], None], tuple[str, ...]]] = {
    "duplicate": (duplicate, EVERY),
    "order": (order, EVERY),
    "dropped": (dropped, EVERY),
    "nonfinite": (nonfinite, EVERY),
    "limit": (limit, EVERY),
    "jump": (jump, JOINTS),
    "torque": (torque, JOINTS),
    "stale": (stale, EVERY),
    "clock": (clock, EVERY),
    "range": (out("range"), tuple(OUT["range"])),
    "policy": (policy, EVERY),
    "deadline": (deadline, EVERY),
    "lost": (lost, EVERY),
    "tilt": (tilt, ("go1", "crazyflie", "arm")),
    "position": (out("position"), tuple(OUT["position"])),
    "speed": (out("speed"), tuple(OUT["speed"])),
    "follow": (follow, JOINTS),
    "mode": (mode, EVERY),
    "held": (held, EVERY),
}
CASES = [(rule, name) for rule, (_, names) in PROVOKE.items() for name in names]
BESIDE = {
    "policy": {"limit", "jump", "torque"},
    "stale": {"dropped"},
    "lost": {"stale", "dropped"},
    "held": {"deadline"},
    "order": {"dropped"},
    "nonfinite": {"dropped"},
} | {rule: {"duplicate"} for rule in OUT}
"""Rules that may speak where this one is provoked: a packet that comes late was missing before, for example."""


def test_every_rule_is_provoked_on_two_robots_at_least():
    assert set(PROVOKE) == set(RULES)
    assert all(len(names) >= 2 for _, names in PROVOKE.values())
    assert set(RULES) == {*NOTED, *CLIPPED, *HELD, *DAMPED}
    assert len(set(RULES)) == len(RULES)


@pytest.mark.parametrize(("rule", "name"), CASES)
def test_just_short_of_its_threshold_a_rule_does_nothing(rule, name):
    drive = running(name)
    PROVOKE[rule][0](drive, False)
    assert rule not in drive.counts
    assert set(drive.counts) <= BESIDE.get(rule, set())
    drive.until("run")
    assert drive.guard.why == ""
    assert not drive.named(rule)


@pytest.mark.parametrize(("rule", "name"), [c for c in CASES if c[0] in NOTED])
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
    intake = drive.guard.intake
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
        before = drive.guard.intake.values
        drive.next(lambda i=i, bad=bad: [drive.packet(lambda y: np.where(np.arange(len(y)) == i, bad, y))])
        assert drive.guard.intake.values is before
        assert drive.named("nonfinite") == [f"{labels[i][0].upper()}{labels[i][1:]} is not a number."]
    assert drive.counts["nonfinite"] == drive.contract.width


@pytest.mark.parametrize("name", EVERY)
def test_packets_without_a_time_do_not_keep_a_robot_alive(name):
    drive = running(name)
    for _ in range(round(drive.thresholds.lost / drive.tick) + 2):
        drive.next(lambda: [replace(drive.packet(), time=math.nan)])
    assert drive.state == "damp"
    assert drive.guard.why.startswith("lost")


@pytest.mark.parametrize(("rule", "name"), [c for c in CASES if c[0] in CLIPPED])
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
        drive.next(wanted=drive.guard.target)
    assert drive.guard.interventions == before


@pytest.mark.parametrize(("rule", "name"), [c for c in CASES if c[0] in HELD])
def test_what_is_missing_is_waited_for_with_the_last_safe_target(rule, name):
    drive = running(name)
    safe = drive.guard.target.copy()
    PROVOKE[rule][0](drive, True)
    assert drive.state == "hold"
    expected = "track" if drive.contract.joints else "damp"
    assert drive.sent[-1][0] == expected
    assert (drive.guard.target == safe).all()
    # It goes on after exactly as many sound ticks as it takes.
    for sound in range(1, drive.thresholds.recover + 1):
        mode, target = drive.next(wanted=drive.default + 1e-3)
        assert drive.state == ("hold" if sound < drive.thresholds.recover else "run")
        assert (target == safe).all()
        assert mode == expected
    mode, target = drive.next(wanted=drive.default + 1e-3)
    assert (mode, drive.state) == ("track", "run")
    assert (target == drive.default + 1e-3).all()
    assert not drive.guard.why
    assert len(drive.named("hold")) == len(drive.named("run")) - 1
    assert rule in drive.named("hold")[-1]


@pytest.mark.parametrize(("rule", "name"), [c for c in CASES if c[0] in HELD])
def test_one_more_fault_starts_the_waiting_again(rule, name):
    drive = running(name)
    PROVOKE[rule][0](drive, True)
    for _ in range(drive.thresholds.recover - 1):
        drive.next()
    drive.shift += 2 * drive.thresholds.clock
    drive.next()
    for _ in range(drive.thresholds.recover - 1):
        drive.next()
        assert drive.state == "hold"
    drive.next()
    assert drive.state == "run"


@pytest.mark.parametrize(("rule", "name"), [c for c in CASES if c[0] in DAMPED])
def test_from_damp_there_is_no_way_back(rule, name):
    drive = running(name)
    PROVOKE[rule][0](drive, True)
    assert drive.state == "damp"
    assert drive.guard.why.startswith(f"{rule}: ")
    assert drive.counts[rule] == 1
    assert drive.sent[-1][0] == "damp"
    assert [e.level for e in drive.events if e.name in (rule, "damp")] == ["error", "error"]
    start, said = drive.now, len(drive.sent)
    while not drive.guard.finished:
        drive.next()
        drive.guard.stop(drive.now, "the time is over")
        assert drive.state == ("stop" if drive.guard.finished else "damp")
    assert drive.now - start == pytest.approx(drive.thresholds.damp, abs=1.5 * drive.tick)
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
    assert drive.guard.why.startswith("held")
    assert drive.now - start <= drive.thresholds.hold + (drive.thresholds.recover + 2) * drive.tick


@pytest.mark.parametrize("name", EVERY)
def test_holds_that_are_far_apart_are_not_added_up(name):
    drive = running(name)
    for _ in range(20):
        drive.next(wanted=np.full(len(drive.default), np.nan))
        drive.until("run", 0.5)
        for _ in range(drive.thresholds.recover + 2):
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
        guard.see([Packet(1, 0.0, "idle", still(contract, pose))], 0.0)
        guard.begin(0.0, 0.005)
        for k in range(1, 20):
            guard.see([Packet(1 + k, k * 0.005, "track", still(contract, pose))], k * 0.005)
            _, target = guard.decide(None, k * 0.005)
            assert (target <= contract.target.high).all()


# How it is told ------------------------------------------------------------------------------------------------------


def test_a_spell_is_two_events_and_its_count_is_exact():
    log = Log()
    log.begin(100.0)
    for k in range(10):
        log.tick(100.0 + 0.5 * k)
        log.speak("limit", "it goes too far", times=2)
        assert log.active == BIT["limit"]
    log.tick(100.0 + 0.5 * 9 + 1.0)
    assert log.active == 0
    assert [(e.time, e.level, e.text) for e in log.take()] == [(0.0, "info", "It goes too far.")]
    log.tick(105.6)
    assert [(e.name, e.level, e.text) for e in log.take()] == [("limit", "info", "20 times, the last at 4.50 s.")]
    log.tick(200.0)
    assert log.take() == []
    log.speak("limit", "again")
    assert [e.text for e in log.take()] == ["Again."]
    log.tick(202.0)
    assert log.take() == []
    assert log.counts["limit"] == 21


def test_spells_of_two_rules_do_not_mix():
    log = Log()
    log.begin(0.0)
    log.tick(0.0)
    log.speak("stale", "old")
    log.speak("lost", "gone")
    assert [(e.name, e.level) for e in log.take()] == [("stale", "warning"), ("lost", "error")]
    assert log.active == BIT["stale"] | BIT["lost"]
    assert log.reason() == "stale, lost"
    log.tick(0.9)
    log.speak("stale", "old")
    log.tick(1.5)
    assert log.take() == []
    log.tick(1.95)
    assert [e.name for e in log.take()] == ["stale"]


@pytest.mark.parametrize("name", EVERY)
def test_what_was_said_before_the_run_is_not_told_again(name):
    contract, default = CONTRACTS[name]
    guard = Guard(contract, default)
    y = still(contract, default)
    for k in (1, 5, 9):
        guard.see([Packet(k, k * 0.02, "idle", y), Packet(k, k * 0.02, "idle", y)], 1000.0 + k * 0.02)
    assert guard.log.counts["dropped"] == 6
    guard.begin(1001.0, 0.02)
    assert not any(guard.log.counts.values())
    assert [e.name for e in guard.log.take()] == [guard.state]
    guard.see([], 1003.0)
    assert all(0 <= e.time < 10 for e in guard.log.take())


# Ramp and rest -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", JOINTS)
@pytest.mark.parametrize("seed", range(4))
def test_a_ramp_starts_where_the_robot_is_and_ends_at_the_default(name, seed):
    contract, default = CONTRACTS[name]
    low, high = np.array(contract.target.low), np.array(contract.target.high)
    pose = np.clip(default + np.random.default_rng(seed).uniform(-0.8, 0.8, len(default)), low, high)
    drive = Drive(name, pose)
    kp, effort = np.array(contract.gains["kp"]), np.array(contract.safety.effort)
    targets = [drive.step()[1]]
    assert (np.abs(kp * (targets[0] - pose)) <= AHEAD * effort * (1 + 1e-9)).all()
    # In the direction of the default and not beyond.
    assert ((targets[0] - pose) * (default - targets[0]) >= -1e-12).all()
    start = drive.now
    while drive.state == "ramp":
        mode, target = drive.next()
        assert mode == "track"
        targets.append(target)
    assert drive.state == "run"
    np.testing.assert_allclose(targets[-1], default, atol=1e-12)
    gap, took = np.abs(targets[0] - default).max(), drive.now - start
    assert took == pytest.approx(max(drive.thresholds.ramp, gap / drive.thresholds.speed), abs=1.5 * drive.tick)
    # Never back, never in a jump.
    moved = np.diff(targets, axis=0)
    assert (moved * np.sign(default - targets[0]) >= -1e-12).all()
    assert np.abs(moved).max() <= 0.5 * math.pi * gap / took * drive.tick * 1.1 + 1e-12
    assert drive.counts == {}


@pytest.mark.parametrize("name", JOINTS)
def test_a_hold_during_the_ramp_goes_on_with_the_ramp_and_counts_for_no_policy(name):
    drive = Drive(name, CONTRACTS[name][1] + 0.3)
    drive.step()
    for _ in range(5):
        drive.next()
    drive.shift += 1.0
    drive.next()
    assert drive.state == "hold"
    held_at = drive.guard.target.copy()
    drive.until("ramp")
    mode, target = drive.next()
    assert mode == "track"
    assert np.abs(target - held_at).max() < 0.05
    drive.until("run")
    assert (drive.guard.ticks, drive.guard.interventions) == (0, 0)
    np.testing.assert_allclose(drive.guard.target, drive.default, atol=1e-12)


@pytest.mark.parametrize("name", JOINTS)
def test_a_stop_stands_still_then_lies_down_then_lets_go(name):
    drive = running(name)
    for _ in range(20):
        drive.next(wanted=drive.default + 0.2)
    start = drive.now
    drive.guard.stop(drive.now, "the time is over")
    assert drive.state == "stop"
    rest, path = np.array(drive.contract.safety.rest), []
    while not drive.guard.finished:
        mode, target = drive.next()
        path.append(target)
        assert mode == ("damp" if drive.guard.finished else "track")
    nearest = min(range(len(path)), key=lambda i: np.abs(path[i] - drive.default).max())
    np.testing.assert_allclose(path[nearest], drive.default, atol=5e-3)
    np.testing.assert_allclose(path[-1], rest, atol=5e-3)
    assert nearest < len(path) - 1
    assert np.abs(np.diff(path, axis=0)).max() < 2 * drive.thresholds.speed * drive.tick
    assert drive.now - start <= 2 * drive.thresholds.sit + 3 * drive.tick
    assert drive.guard.why == ""
    assert {mode for mode, _ in (drive.next() for _ in range(10))} == {"damp"}


@pytest.mark.parametrize("name", sorted(set(EVERY) - set(JOINTS)))
def test_a_robot_without_a_pose_is_given_to_its_own_damping(name):
    drive = running(name)
    drive.guard.stop(drive.now, "the time is over")
    assert drive.next()[0] == "damp"
    assert drive.guard.finished


@pytest.mark.parametrize("name", JOINTS)
@pytest.mark.parametrize("what", ["tilted", "silent"])
def test_lying_down_ends_at_once_if_the_robot_falls_or_is_gone(name, what):
    drive = running(name)
    drive.guard.stop(drive.now, "the time is over")
    for _ in range(3):
        assert drive.next()[0] == "track"
    if what == "tilted":
        mode, _ = drive.next(lambda: [drive.packet(lambda y: tilted(drive.contract, y, 1.5))])
    else:
        n = 0
        while not drive.guard.finished:
            mode, _ = drive.next(lambda: [])
            n += 1
        assert n * drive.tick <= drive.thresholds.lost + 2 * drive.tick
    assert drive.guard.finished
    assert mode == "damp"


# Whatever happens ----------------------------------------------------------------------------------------------------

ALLOWED = {
    "ready": {"ramp", "run"},
    "ramp": {"run", "hold", "damp", "stop"},
    "run": {"hold", "damp", "stop"},
    "hold": {"ramp", "run", "damp", "stop"},
    "damp": {"stop"},
    "stop": set(),
}
FAULTS = (
    "nothing", "twice", "older", "gap", "nan", "short", "timeless", "jump", "tilt", "fast", "far", "off", "disobey", "late",
    "restart", "burst",
)  # fmt: skip
WANTS = ("default", "near", "wild", "nan", "huge", "same")


def faulty(drive: Drive, fault: str, rng: np.random.Generator) -> list[Packet]:
    c = drive.contract
    if fault == "nothing":
        return []
    if fault == "jump":
        drive.shift += rng.uniform(-2, 2)
    if fault == "gap":
        drive.sequence += int(rng.integers(1, 5))
    if fault == "restart":
        drive.sequence = 0
    if fault == "disobey":
        drive.mode = "idle"
    change = {
        "tilt": lambda y: tilted(c, y, 2.0),
        "fast": lambda y: y + 200.0 * rng.normal(size=len(y)),
        "far": lambda y: still(c, drive.pose + rng.normal(size=len(drive.pose))),
        "off": lambda y: y + 0.3 * rng.normal(size=len(y)),
        "nan": lambda y: np.where(rng.random(len(y)) < 0.2, np.nan, y),
        "short": lambda y: y[:-1],
    }.get(fault, lambda y: y)
    packet = drive.packet(change)
    if fault == "timeless":
        packet = replace(packet, time=math.nan)
    if fault == "older":
        return [packet, replace(packet, sequence=packet.sequence - 1)]
    return [packet] * {"twice": 2}.get(fault, 1) + ([drive.packet() for _ in range(3)] if fault == "burst" else [])


def wants(drive: Drive, kind: str, rng: np.random.Generator) -> np.ndarray:
    m, default = len(drive.default), drive.default
    made = {
        "default": default,
        "near": default + 0.1 * rng.normal(size=m),
        "wild": default + 5.0 * rng.normal(size=m),
        "nan": np.where(rng.random(m) < 0.5, np.nan, default),
        "huge": 1e30 * rng.normal(size=m),
        "same": drive.guard.target,
    }
    return made[kind]


@pytest.mark.parametrize("name", ["go1", "arm", "pendulum", "crazyflie"])
@given(
    st.lists(st.tuples(st.sampled_from(("good",) * 6 + FAULTS), st.sampled_from(WANTS), st.integers(1, 30)), max_size=14),
    st.integers(0, 2**32 - 1),
    st.sampled_from([10, 40]),
    st.integers(0, 400),
)
@settings(max_examples=60)
def test_whatever_happens_the_guard_keeps_its_promises(name, script, seed, warm, stop_at):
    rng = np.random.default_rng(seed)
    drive = Drive(name)
    drive.step()
    contract, guard = drive.contract, drive.guard
    low, high = np.array(contract.target.low), np.array(contract.target.high)
    torque_of = None
    if contract.joints:
        kp, kd, effort = np.array(contract.gains["kp"]), np.array(contract.gains["kd"]), np.array(contract.safety.effort)
        q = slice_of(contract, "joint_pos")
        qd = slice_of(contract, "joint_vel")
        torque_of = lambda u, y: kp * (u - y[q]) - kd * y[qd]
    path, entered, origin = ["ready", drive.events[-1].name], 0.0, ""
    ticks, interventions, damped = guard.ticks, guard.interventions, False
    script = [("good", "near", warm), *script, ("good", "wild", 10)]
    plan = [(fault, want) for fault, want, n in script for _ in range(n * round(contract.rate / 50))]
    for fault, want in plan:
        drive.k += 1
        if len(drive.sent) == stop_at:
            guard.stop(drive.now, "the time is over")
        before, was_finished, last = guard.state, guard.finished, guard.target.copy()
        packets = faulty(drive, fault, rng)
        wanted = wants(drive, want, rng)
        sound = guard.see(packets, drive.now)
        guard.deadline(fault == "late")
        asked = wanted if sound and guard.state == "run" else None
        mode, target = guard.decide(asked, drive.now)
        drive.sent.append((mode, target))
        drive.mode = mode
        drive.pose = np.array(target) if mode == "track" and contract.joints else drive.pose

        # Steps from state to state are those of the picture, and no others.
        for event in guard.log.take():
            if event.name in STATES:
                old, new = event.text.lower().split(":")[0].rstrip(".").split(" to ")
                assert old == path[-1]
                assert new in ALLOWED[old], event.text
                origin = old if new == "hold" else origin
                entered = drive.now if new == "hold" else entered
                path.append(new)
        assert guard.state == path[-1]

        assert np.isfinite(target).all()
        assert ((low <= target) & (target <= high)).all()
        assert mode in ("track", "damp")
        damped |= guard.state == "damp"
        assert not (mode == "track" and (damped or was_finished))
        assert guard.finished >= was_finished
        assert not guard.finished or (guard.state == "stop" and mode == "damp")
        assert guard.state != "hold" or drive.now - entered <= guard.thresholds.hold + drive.tick
        assert mode == "damp" or contract.joints or guard.state == "run"

        moved = guard.state in ("ramp", "stop") or (guard.state == "run" and (asked is not None or before == "ramp"))
        if torque_of is not None and mode == "track" and moved:
            y = guard.intake.values
            tau = torque_of(target, y)
            at_limit = (target == low) | (target == high)
            assert ((np.abs(tau) <= effort * (1 + 1e-9) + 1e-9) | at_limit).all()
            far = np.abs(target - last) > steps(drive) * (1 + 1e-9) + 1e-12
            assert (~far | (np.abs(tau) >= effort * (1 - 1e-9)) | at_limit).all()

        if (guard.state == "run" and before != "ramp") or (guard.state == "hold" and origin == "run"):
            ticks += 1
            interventions += asked is None or mode != "track" or not np.array_equal(target, asked)
    assert (guard.ticks, guard.interventions) == (ticks, interventions)


def slice_of(contract, name: str) -> np.ndarray:
    start = contract.slices()[name].start
    return np.array([start + contract[name].component(x) for x in contract.target.labels])
