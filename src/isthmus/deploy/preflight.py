"""Look at everything before the first command is sent: one line per check, and no command if one of them fails."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from isthmus.core.constants import MODEL_GRAVITY
from isthmus.core.errors import BadInput
from isthmus.core.geometry import gravity_direction
from isthmus.data.contract import Contract
from isthmus.deploy.controller import Controller
from isthmus.deploy.guard.guard import Guard
from isthmus.deploy.links.link import Identity, Link, Packet
from isthmus.deploy.signal_map import SignalMap, contract_differences

LISTEN_SECONDS = 0.6
"""s: how long the robot is listened to."""
MAX_POSE_ERROR = 0.8
"""rad or m: largest distance from the start pose, or from lying, that a ramp may close; at most half of the joint's range."""
MAX_CLOCK_RATE_ERROR = 0.02
"""Largest difference in speed between the robot's clock and ours."""
MAX_PACKET_DISORDER = 0.5
"""Share of packets that may be missing, doubled or out of order: a policy that is slower than its robot can do with that."""
MAX_ROBOT_TIMEOUT = 2.0
"""s that a robot may go on by itself when its controller is gone; the shortest is two ticks."""
DRY_RUN_TICKS = 50


@dataclass(frozen=True)
class Check:
    name: str
    ok: bool
    text: str


@dataclass(frozen=True)
class PreparedRobot:
    """A robot that was looked at and is ready to be commanded."""

    identity: Identity
    signal_map: SignalMap
    guard: Guard
    packet_period: float
    """s between the robot's packets."""


def preflight(
    controller: Controller, link: Link, operator: dict[str, np.ndarray], report: Callable[[Check], None] = lambda c: None
) -> tuple[list[Check], PreparedRobot | None]:
    """All checks in the order of what they build on; the flight is None if one failed."""
    checks: list[Check] = []

    def check(name: str, ok: bool, text: str) -> bool:
        checks.append(Check(name, ok, text))
        report(checks[-1])
        return ok

    try:
        identity = link.identity(3.0)
    except BadInput as error:
        check("robot", False, str(error))
        return checks, None
    m, robot = controller.manifest, identity.contract
    check("robot", m.robot.robot == robot.robot, f"{robot.robot}, unit {identity.unit}, {identity.source}")
    known = identity.model_hash
    text = "the robot does not say" if not known else f"revision {known[:12]}"
    ok = known in ("", m.model_hash)
    check("model", ok, text if ok else f"{text}, but the controller was trained with {m.model_hash[:12]}")
    problems = contract_differences(m, robot)
    order = "" if robot.target.labels == m.robot.target.labels else "; joints in another order, matched by name"
    text = f"{len(m.inputs)} signals, {robot.target.size} targets, {robot.rate:g} Hz{order}"
    if not check("contract", not problems, "; ".join(problems) or text):
        return checks, None
    alone = f"the robot damps itself after {identity.timeout:g} s without commands"
    check("time-out", 2.0 / robot.rate <= identity.timeout <= MAX_ROBOT_TIMEOUT, alone)

    fit, default = SignalMap.from_contracts(m, robot), np.array(m.default)
    guard = Guard(robot, default[fit.target_order])
    heard = _receive_packets(link, guard)
    packets = heard.packets
    if not check("signals", guard.packet_filter.packet is not None, _signals_text(guard, packets)):
        return checks, None
    modes = {"busy": "busy: switch its built-in controller off", "track": "track: someone else is in control"}
    check("mode", packets[-1].mode in ("idle", "damp"), modes.get(packets[-1].mode, packets[-1].mode))
    check_stream(check, guard, heard)
    check_values(check, guard)
    check_guard_coverage(check, m.robot, guard)
    _check_policy(check, controller, fit, guard, operator)
    period = (packets[-1].time - packets[0].time) / max(1, packets[-1].sequence - packets[0].sequence)
    return checks, PreparedRobot(identity, fit, guard, period) if all(c.ok for c in checks) else None


@dataclass(frozen=True)
class ReceivedPackets:
    """What a robot said while it was listened to."""

    packets: list[Packet]
    """The newest good one of each tick."""
    first_arrival: float
    last_arrival: float
    """When the first and the last of them arrived."""
    accepted: int
    """Good packets after the first of them."""


def _receive_packets(link: Link, guard: Guard) -> ReceivedPackets:
    clock, tick = link.clock, 1.0 / guard.contract.rate
    link.read()
    start = clock.now()
    kept: list[Packet] = []
    first = last = start
    before = 0
    for k in range(1, max(10, round(LISTEN_SECONDS / tick)) + 1):
        clock.sleep_until(start + k * tick)
        guard.receive(link.read(), clock.now())
        if guard.packet_filter.packet is not None and (not kept or guard.packet_filter.packet is not kept[-1]):
            kept.append(guard.packet_filter.packet)
            last = clock.now()
            first, before = (first, before) if len(kept) > 1 else (last, guard.packet_filter.accepted)
    return ReceivedPackets(kept, first, last, guard.packet_filter.accepted - before)


def _signals_text(guard: Guard, packets: list[Packet]) -> str:
    counts = guard.log.counts
    if not packets:
        return "none with numbers in it" if counts["nonfinite"] else "none arrived"
    bad = f", {counts['nonfinite']} packets were not numbers" if counts["nonfinite"] else ""
    return f"{len(guard.contract.signals)} signals, {guard.contract.width} numbers, all finite{bad}"


def check_stream(check: Callable[[str, bool, str], bool], guard: Guard, received: ReceivedPackets) -> None:
    """Is it fresh, in order, often enough, and does the robot's clock go like ours?"""
    counts, contract, packets = guard.log.counts, guard.contract, received.packets
    age = guard.packet_filter.age
    check("fresh", age < guard.thresholds.stale_after, f"newest signals {max(age, 0.0) * 1e3:.0f} ms old")
    robot_time = packets[-1].time - packets[0].time
    sent = packets[-1].sequence - packets[0].sequence
    rate = received.accepted / robot_time if robot_time > 0 else 0.0
    check("rate", rate >= 0.95 * contract.rate, f"{rate:.0f} good packets/s for a policy at {contract.rate:g} Hz")
    # A packet that comes late was missed first.
    late, twice = counts["order"], counts["duplicate"]
    lost = max(0, counts["dropped"] - late) / max(1, sent)
    text = f"{100 * lost:.1f} % dropped, {twice} twice, {late} out of order"
    check("order", lost < MAX_PACKET_DISORDER and late + twice < MAX_PACKET_DISORDER * max(1, sent), text)
    pace = (
        robot_time / (received.last_arrival - received.first_arrival)
        if received.last_arrival > received.first_arrival
        else math.nan
    )
    steady = counts["clock"] == 0
    text = f"the robot's clock goes {pace:.3f} times as fast as ours{'' if steady else ', and jumps'}"
    # Both ends of the comparison are only as sharp as packets are frequent.
    blur = 3.0 / max(1, received.accepted)
    check("clock", abs(pace - 1.0) < MAX_CLOCK_RATE_ERROR + blur and steady, text)


def check_values(check: Callable[[str, bool, str], bool], guard: Guard) -> None:
    """Ranges, uprightness, gravity, and the distance from the start pose."""
    contract, values, at = guard.contract, guard.packet_filter.values, guard.contract.slices()
    part = lambda name, labels: values[at[name]][[contract[name].component_index(x) for x in labels]]  # noqa: E731
    broken = guard.limits.violated_rules(values)
    check("range", not broken.keys() - {"tilt"}, "; ".join(v for k, v in broken.items() if k != "tilt") or "all inside")
    if contract.has("quat"):
        quat = part("quat", "wxyz")
        norm = float(np.linalg.norm(quat))
        down = gravity_direction(quat / max(norm, 1e-9))
        tilt = math.degrees(math.acos(np.clip(-down[2], -1, 1)))
        ok = abs(norm - 1.0) < 0.1 and "tilt" not in broken
        check("upright", ok, f"tilted by {tilt:.0f} degrees" + ("" if abs(norm - 1.0) < 0.1 else f", norm {norm:.2f}"))
        if contract.has("accel"):
            accel = part("accel", "xyz")
            size = float(np.linalg.norm(accel))
            angle = math.degrees(math.acos(np.clip(-down @ accel / max(size, 1e-9), -1, 1)))
            text = f"accelerometer {size:.1f} m/s², {angle:.0f} degrees from where the orientation has it"
            check("gravity", 0.8 * MODEL_GRAVITY < size < 1.2 * MODEL_GRAVITY and angle < 15.0, text)
    if contract.has("gyro"):
        turning = float(np.linalg.norm(values[at["gyro"]]))
        check("still", turning < 1.0, f"turning at {turning:.2f} rad/s")
    pose = guard.limits.pose(values)
    if pose is not None:
        most, rest = guard.limits.joint_tolerance(MAX_POSE_ERROR), np.array(contract.safety.rest or guard.default)
        off, lying = np.abs(pose - guard.default), bool((np.abs(pose - rest) < most).all())
        worst = int((off / most).argmax())
        text = f"{contract.target.labels[worst]} is {off[worst]:.2f} {contract.target.units[worst]} from the start pose"
        near = bool((off < most).all())
        hint = "" if near else ": it lies, and will stand up" if lying else ": bring it closer, by hand or in its idle mode"
        check("pose", near or lying, text + hint)


def check_guard_coverage(check: Callable[[str, bool, str], bool], ours: Contract, guard: Guard) -> None:
    """What the guard has no figures for it cannot watch: say so, and do not accept less than the policy was trained with."""
    has = {"the controller": specified_limits(ours), "the robot": specified_limits(guard.contract)}
    missing = has["the controller"] - has["the robot"]
    watched = ", ".join(sorted(has["the robot"])) or "nothing"
    text = f"watches {watched}"
    if missing:
        text = f"the robot's contract has no figures for {', '.join(sorted(missing))}, which the controller's has"
    check("guard", not missing, text)


def specified_limits(contract: Contract) -> set[str]:
    """Which limits a contract has figures for."""
    safety = contract.safety
    limited = {s.name for s in contract.signals if s.low and s.high}
    found = {f"limits of {name}" for name in limited}
    found |= {name for name in ("effort", "tilt", "rest") if getattr(safety, name)}
    return found | ({"damping"} if safety.damping or safety.level else set())


def _check_policy(
    check: Callable[[str, bool, str], bool],
    controller: Controller,
    signal_map: SignalMap,
    guard: Guard,
    operator: dict[str, np.ndarray],
) -> None:
    """Does it give numbers for these signals, and quickly enough?"""
    signals = {name: guard.packet_filter.values[columns] for name, columns in signal_map.signal_columns.items()} | operator
    controller.reset()
    spent, sound = [], True
    for _ in range(DRY_RUN_TICKS):
        start = time.perf_counter()
        sound &= bool(np.isfinite(controller.tick(signals)).all())
        spent.append(time.perf_counter() - start)
    controller.reset()
    slow, tick = float(np.quantile(spent, 0.9)), 1.0 / guard.contract.rate
    text = f"{slow * 1e6:.0f} µs of {tick * 1e3:g} ms" if sound else "its target is not a number"
    check("policy", sound and slow < 0.5 * tick, text)
