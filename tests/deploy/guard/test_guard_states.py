"""The guard's states: ramp, rest, and what it keeps to whatever happens."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.deploy.guard.guard import GUARD_STATES
from isthmus.deploy.guard.limits import START_TORQUE_FRACTION
from isthmus.deploy.links.link import Packet
from support.contracts import still, tilted
from support.guard_provocations import (
    CONTRACTS,
    EVERY,
    JOINTS,
    Drive,
    running,
    steps,
)

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
    assert (np.abs(kp * (targets[0] - pose)) <= START_TORQUE_FRACTION * effort * (1 + 1e-9)).all()
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
    assert took == pytest.approx(
        max(drive.thresholds.min_ramp_seconds, gap / drive.thresholds.ramp_speed), abs=1.5 * drive.tick
    )
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
    held_at = drive.guard.last_target.copy()
    drive.until("ramp")
    mode, target = drive.next()
    assert mode == "track"
    assert np.abs(target - held_at).max() < 0.05
    drive.until("run")
    assert (drive.guard.ticks, drive.guard.interventions) == (0, 0)
    np.testing.assert_allclose(drive.guard.last_target, drive.default, atol=1e-12)


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
    assert np.abs(np.diff(path, axis=0)).max() < 2 * drive.thresholds.ramp_speed * drive.tick
    assert drive.now - start <= 2 * drive.thresholds.max_sit_seconds + 3 * drive.tick
    assert drive.guard.end_reason == ""
    assert {mode for mode, _ in (drive.next() for _ in range(10))} == {"damp"}


@pytest.mark.parametrize("name", sorted(set(EVERY) - set(JOINTS)))
def test_a_robot_without_a_pose_is_given_to_its_own_damping(name):
    drive = running(name)
    drive.guard.stop(drive.now, "the time is over")
    assert drive.next()[0] == "damp"
    assert drive.guard.finished


@pytest.mark.parametrize("name", JOINTS)
@pytest.mark.parametrize("what", ["tilted", "racing", "silent"])
def test_lying_down_ends_if_the_robot_falls_or_races_or_is_gone(name, what):
    drive = running(name)
    drive.guard.stop(drive.now, "the time is over")
    for _ in range(3):
        assert drive.next()[0] == "track"
    if what == "tilted":
        for _ in range(drive.thresholds.violation_ticks):
            mode, _ = drive.next(lambda: [drive.packet(lambda y: tilted(drive.contract, y, 1.5))])
        assert drive.guard.end_reason.startswith("tilt")
    elif what == "racing":
        joint = drive.contract.target.labels[0]
        for _ in range(drive.thresholds.violation_ticks):
            mode, _ = drive.next(joint_vel={joint: 200.0})
        assert drive.guard.end_reason.startswith("speed")
    else:
        n = 0
        while not drive.guard.finished:
            mode, _ = drive.next(lambda: [])
            n += 1
        assert n * drive.tick <= drive.thresholds.lost_after + 2 * drive.tick
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
        "same": drive.guard.last_target,
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
    if contract.has_joint_targets:
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
        before, was_finished, last = guard.state, guard.finished, guard.last_target.copy()
        packets = faulty(drive, fault, rng)
        wanted = wants(drive, want, rng)
        sound = guard.receive(packets, drive.now)
        guard.note_deadline(fault == "late")
        asked = wanted if sound and guard.state == "run" else None
        mode, target = guard.decide(asked, drive.now)
        drive.sent.append((mode, target))
        drive.mode = mode
        drive.pose = np.array(target) if mode == "track" and contract.has_joint_targets else drive.pose

        # Steps from state to state are those of the picture, and no others.
        for event in guard.log.take_events():
            if event.name in GUARD_STATES:
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
        assert guard.state != "hold" or drive.now - entered <= guard.thresholds.max_hold + drive.tick
        assert mode == "damp" or contract.has_joint_targets or guard.state == "run"

        moved = guard.state in ("ramp", "stop") or (guard.state == "run" and (asked is not None or before == "ramp"))
        if torque_of is not None and mode == "track" and moved:
            y = guard.packet_filter.values
            tau = torque_of(target, y)
            at_limit = (target == low) | (target == high)
            assert ((np.abs(tau) <= effort * (1 + 1e-9) + 1e-9) | at_limit).all()
            far = np.abs(target - last) > steps(drive) * (1 + 1e-9) + 1e-12
            assert (~far | (np.abs(tau) >= effort * (1 - 1e-9)) | at_limit).all()

        if (guard.state == "run" and before != "ramp") or (guard.state == "hold" and origin == "run"):
            ticks += 1
            held = guard.state == "hold"  # an intervention even where what is held is what was asked for
            interventions += held or asked is None or mode != "track" or not np.array_equal(target, asked)
    assert (guard.ticks, guard.interventions) == (ticks, interventions)


def slice_of(contract, name: str) -> np.ndarray:
    start = contract.slices()[name].start
    return np.array([start + contract[name].component_index(x) for x in contract.target.labels])
