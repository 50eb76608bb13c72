"""A guard with a robot that obeys it, and how each of its rules is provoked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from isthmus.deploy.guard.guard import Guard
from isthmus.deploy.links.link import Mode, Packet
from support.contracts import contracts, put, still, tilted

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
        self.guard.receive([self.packet()], self.now)
        self.guard.start(self.now, self.tick)

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
        sound = self.guard.receive(packets, self.now)
        self.guard.note_deadline(missed)
        asked = (self.default if wanted is None else wanted) if sound and self.state == "run" else None
        mode, target = self.guard.decide(asked, self.now)
        self.sent.append((mode, target))
        self.mode = mode
        if self.moves and mode == "track":
            self.pose = np.array(target, float)
        self.events += self.guard.log.take_events()
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
    assert drive.guard.packet_filter.packet is (first if enough else again)


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
        gap = high - drive.guard.last_target
        if gap[0] <= 1e-4:
            break
        drive.next(wanted=drive.guard.last_target + np.minimum(gap, 0.3 * steps(drive)) * (np.arange(len(gap)) == 0))
    wanted = drive.guard.last_target.copy()
    wanted[0] = np.nextafter(high[0], np.inf) if enough else high[0]
    drive.next(wanted=wanted)
    assert drive.guard.last_target[0] == high[0]
    assert (drive.guard.last_target[1:] == wanted[1:]).all()


def steps(drive: Drive) -> np.ndarray:
    """How far a target may go in a tick."""
    contract = drive.contract
    if not contract.has_joint_targets:
        return np.full(contract.target.size, np.inf)
    speed = contract["joint_vel"]
    return np.array([speed.high[speed.component_index(x)] for x in contract.target.labels]) / contract.rate


def jump(drive: Drive, enough: bool) -> None:
    for sign in (1, -1):
        furthest = drive.guard.last_target + sign * steps(drive)
        drive.next(wanted=furthest + sign * JUST * enough)
        assert (drive.guard.last_target == furthest).all()
        for share in (0.5, 0.0):
            drive.next(wanted=drive.default + share * (furthest - drive.default))


def torque(drive: Drive, enough: bool) -> None:
    contract = drive.contract
    reach = np.array(contract.safety.effort) / np.array(contract.gains["kp"])
    drive.moves = False
    i = 1  # A joint that has so much room.
    drive.pose[i] += reach[i] * (1 + JUST if enough else 1 - JUST)
    label = contract.target.labels[i]
    last = drive.guard.last_target.copy()
    drive.next(joint_pos={label: drive.pose[i]})
    nearest = drive.pose[i] - reach[i] if enough else last[i]
    assert drive.guard.last_target[i] == pytest.approx(nearest, abs=1e-12)
    assert (np.delete(drive.guard.last_target, i) == np.delete(last, i)).all()
    # A joint that moves has its damping taken into account.
    speed = 0.9 * contract["joint_vel"].high[contract["joint_vel"].component_index(label)]
    lead = contract.gains["kd"][i] / contract.gains["kp"][i]
    if enough:
        drive.next(joint_vel={label: speed})
        assert drive.guard.last_target[i] == pytest.approx(drive.pose[i] + lead * speed - reach[i], abs=1e-12)
    drive.pose = np.array(drive.default)
    drive.moves = True


def silent(drive: Drive, seconds: float, enough: bool) -> None:
    """Say nothing until the signals are that old, or almost."""
    n = math.floor(seconds / drive.tick + 1e-9)
    for _ in range(n + 1 if enough else n - 1):
        drive.sequence += 1
        drive.next(lambda: [])


def stale(drive: Drive, enough: bool) -> None:
    silent(drive, drive.thresholds.stale_after, enough)


def lost(drive: Drive, enough: bool) -> None:
    silent(drive, drive.thresholds.lost_after, enough)


def clock(drive: Drive, enough: bool) -> None:
    t = drive.thresholds
    for by in (t.max_clock_jump, -min(t.max_clock_jump, t.stale_after / 2)):
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
        middle = still(drive.contract)[drive.contract.slices()[signal]][drive.contract[signal].component_index(label)]
        away = math.copysign(1.0, edge - middle)
        inside, outside = {signal: {label: edge - away * JUST}}, {signal: {label: edge + away * JUST}}
        for _ in range(10):
            drive.next(**inside)
        for _ in range(drive.thresholds.violation_ticks - 1):
            drive.next(**outside)
        drive.next(**(outside if enough else inside))
        # A packet that comes again is no new sample.
        if not enough:
            again = drive.packet(lambda y: put(drive.contract, y, signal, **{label: edge + away * JUST}))
            for _ in range(drive.thresholds.violation_ticks):
                drive.next(lambda: [again])

    return provoke


def tilt(drive: Drive, enough: bool) -> None:
    angle = drive.contract.safety.tilt
    lean = lambda by: lambda: [drive.packet(lambda y: tilted(drive.contract, y, by))]
    for _ in range(10):
        drive.next(lean(angle - JUST))
    for _ in range(drive.thresholds.violation_ticks - 1):
        drive.next(lean(angle + JUST))
    drive.next(lean(angle + JUST if enough else angle - JUST))


def policy(drive: Drive, enough: bool) -> None:
    for bad in (np.nan, np.inf, -np.inf) if enough else (1e9, -1e9):
        wanted = np.array(drive.default)
        wanted[-1] = bad
        before = drive.guard.last_target.copy()
        drive.next(wanted=wanted)
        assert drive.state == ("hold" if enough else "run")
        if enough and bad != -np.inf:
            assert (drive.guard.last_target == before).all()
            drive.until("run", 0.5)
            for _ in range(10):
                drive.next()


def deadline(drive: Drive, enough: bool) -> None:
    n = drive.thresholds.max_missed_deadlines
    for missed in (*[True] * (n - 1), False, *[True] * (n - 1), enough):
        drive.next(missed=missed)


def held(drive: Drive, enough: bool) -> None:
    for _ in range(drive.thresholds.max_missed_deadlines):
        drive.next(missed=True)
    start = drive.now
    assert drive.state == "hold"
    last = drive.thresholds.max_hold - (drive.thresholds.recovery_ticks + 1) * drive.tick
    while drive.state == "hold" and (enough or drive.now - start < last):
        drive.next(missed=True)
    assert not enough or drive.now - start <= drive.thresholds.max_hold + 1.5 * drive.tick
    while drive.state == "hold":
        drive.next()


def mode(drive: Drive, enough: bool) -> None:
    n = round(drive.thresholds.max_mode_mismatch / drive.tick)
    for _ in range(n + 1 if enough else n - 1):
        drive.mode = "idle"
        drive.next()


def follow(drive: Drive, enough: bool) -> None:
    """This one is about the end of the ramp."""
    away = drive.thresholds.max_ramp_error + (JUST if enough else -JUST)
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
