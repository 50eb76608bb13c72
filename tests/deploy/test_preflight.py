"""Preflight: each check fails where it should, alone, and then no command is sent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from isthmus.core.errors import BadInput
from isthmus.data.contract import Contract, Safety, Signal
from isthmus.data.mcap.writer import read_episode
from isthmus.deploy.command_schedule import CommandSchedule
from isthmus.deploy.links.in_process import InProcessLink
from isthmus.deploy.links.link import Identity, Packet
from isthmus.deploy.onnx_controller import OnnxController
from isthmus.deploy.preflight import preflight
from isthmus.deploy.signal_map import SignalMap, contract_differences
from support.contracts import put, tilted
from support.controllers import COMMAND, constant, floats, manifest, model
from support.fake_bodies import StandIn
from support.lockstep import CONTRACTS, GO1, counter, fly, stand_in

# Preflight -----------------------------------------------------------------------------------------------------------


class Silent(InProcessLink):
    def identity(self, timeout: float) -> Identity:
        raise BadInput("no robot answers.")


def changed(**signals: dict[str, float]) -> Callable[[Packet], list[Packet]]:
    contract = CONTRACTS["go1"][0]

    def say(packet: Packet) -> list[Packet]:
        values = packet.values.copy()
        for name, parts in signals.items():
            put(contract, values, name, **parts)
        return [replace(packet, values=values)]

    return say


def lean(packet: Packet) -> list[Packet]:
    return [replace(packet, values=tilted(CONTRACTS["go1"][0], packet.values, 1.05))]


def nan_controller() -> OnnxController:
    """Fine for zeros, but not for the signals of a robot that stands."""
    contract, default = CONTRACTS["go1"]
    nodes = [
        helper.make_node("ReduceSum", ["accel", "axis"], ["sum"], keepdims=1),
        helper.make_node("Neg", ["sum"], ["minus"]),
        helper.make_node("Sqrt", ["minus"], ["root"]),
        helper.make_node("Add", ["root", "default"], ["joint_target"]),
    ]
    constants = [constant("axis", np.array([1])), constant("default", default[None].astype(np.float32))]
    made = model(nodes, [floats("accel", 1, 3)], [floats("joint_target", 1, 12)], constants).SerializeToString()
    return OnnxController(replace(manifest(contract, default, made), operator=(), memory={}), made)


def only(kept: Callable[[Packet], bool]) -> Callable[[Packet], list[Packet]]:
    return lambda packet: [packet] if kept(packet) else []


HIP = CONTRACTS["go1"][1] + 0.85 * (np.arange(12) == 0)
FAILING: dict[str, dict] = {
    "robot": {"link": Silent},
    "model": {"model_hash": "x" * 64},
    "mode": {"mode": "busy"},
    "mode, another master": {"mode": "track"},
    "time-out, between two ticks": {"timeout": 0.03},
    "time-out, never": {"timeout": 60.0},
    "signals": {"say": lambda packet: []},
    "signals, none of them numbers": {"say": changed(gyro={"x": math.nan})},
    "signals, too few numbers": {"say": lambda packet: [replace(packet, values=packet.values[:-1])]},
    "signals, no time": {"say": lambda packet: [replace(packet, time=math.nan)]},
    "fresh": {"say": only(lambda packet: packet.time < 0.4)},
    "rate": {"every": 20},
    "order, twice": {"say": lambda packet: [packet, packet]},
    "order, missing": {"every": 2, "say": only(lambda packet: packet.sequence % 5 in (0, 1) or packet.sequence == 1)},
    "clock": {"every": 5, "say": lambda packet: [replace(packet, time=1.5 * packet.time)]},
    "range": {"say": changed(joint_vel={"FR_hip": 30.1 * 1.3 + 0.1})},
    "upright": {"say": lean},
    "upright, no quaternion": {"say": changed(quat={"w": 1.2})},
    "gravity": {"say": changed(accel={"z": -9.81})},
    "gravity, none": {"say": changed(accel={"z": 5.0})},
    "still": {"say": changed(gyro={"z": 1.1})},
    "pose": {"pose": HIP},
    "guard, no tilt": {"contract": replace(GO1, safety=replace(GO1.safety, tilt=0.0))},
    "guard, nothing": {"contract": replace(GO1, safety=Safety())},
    "policy": {"controller": nan_controller},
}
IN_ORDER = "robot model contract time-out signals mode fresh rate order clock range upright gravity still pose guard policy"
NAMES = IN_ORDER.split()


def look(options: dict) -> tuple[StandIn, list, object]:
    options = dict(options)
    link, make = options.pop("link", InProcessLink), options.pop("controller", counter)
    body = stand_in(**options)
    controller = make()
    checks, flight = preflight(controller, link(body), CommandSchedule(controller.manifest.operator).values_at(0.0))
    return body, checks, flight


def test_a_robot_that_is_ready_passes_every_check_without_a_command():
    body, checks, flight = look({"model_hash": "m" * 64})
    assert [c.name for c in checks] == NAMES
    assert all(c.ok for c in checks)
    assert flight is not None
    assert flight.packet_period == pytest.approx(0.02)
    assert body.commands == []


@pytest.mark.parametrize("case", FAILING)
def test_each_check_fails_alone_and_then_no_command_is_sent(case):
    body, checks, flight = look(FAILING[case])
    assert [c.name for c in checks if not c.ok] == [case.split(",")[0]]
    assert flight is None
    assert body.commands == []


def test_each_check_has_such_a_case():
    assert {case.split(",")[0] for case in FAILING} == set(NAMES) - {"contract"}


def test_checks_are_told_as_they_come():
    told: list = []
    checks, _ = preflight(counter(), InProcessLink(stand_in()), CommandSchedule((COMMAND,)).values_at(0.0), told.append)
    assert told == checks


def test_preflight_is_not_part_of_the_recording(tmp_path):
    """What it heard has been told; a run starts at zero."""
    body = stand_in(every=5, say=lambda packet: [packet] * (1 + (packet.time < 0.5 and packet.sequence % 4 == 0)))
    outcome, _ = fly(counter(), body, 1.0, tmp_path / "a.mcap")
    episode = read_episode(tmp_path / "a.mcap")
    assert outcome.rules == {}
    assert episode.time[0] == 0.0
    assert [e.name for e in episode.events] == ["ramp", "run", "stop"]
    assert all(0.0 <= e.time <= episode.time[-1] for e in episode.events)


def with_signal(contract: Contract, name: str, **fields) -> Contract:
    return replace(contract, signals=tuple(replace(s, **fields) if s.name == name else s for s in contract.signals))


def row(values: tuple[float, ...], i: int, x: float) -> tuple[float, ...]:
    return (*values[:i], x, *values[i + 1 :])


SAFE = replace(GO1.safety, effort=(), rest=(), damping=())
ONE_KP, ALL_KD, KI = {"kp": row(GO1.gains["kp"], 4, 36.0)}, {"kd": (1.0,) * 12}, {"ki": (1.0,) * 12}
LOWER, UPPER = row(GO1.target.low, 2, -2.7), row(GO1.target.high, 0, 0.8)
DIFFERENT: dict[str, tuple[Contract, tuple[str, ...]]] = {
    "unit of a signal": (with_signal(GO1, "accel", unit="g"), ("accel", "unit", "'m/s²'", "'g'")),
    "frame of a signal": (with_signal(GO1, "accel", frame="world"), ("accel", "frame", "'body'", "'world'")),
    "unit of the target": (
        replace(
            GO1,
            signals=tuple(replace(s, unit="deg") if s.name == "joint_pos" else s for s in GO1.signals),
            target=replace(GO1.target, unit="deg"),
        ),
        ("joint_target", "unit", "'deg'"),
    ),
    "a gain of one joint": (replace(GO1, gains=GO1.gains | ONE_KP), ("gain kp of FL_thigh is 35", "36")),
    "gains of all joints": (replace(GO1, gains=GO1.gains | ALL_KD), ("gain kd of FR_hip and 11 more is 0.5", "1")),
    "a gain that is missing": (replace(GO1, gains={"kp": GO1.gains["kp"]}), ("gain kd", "unknown")),
    "a gain more": (replace(GO1, gains=GO1.gains | KI), ("gain ki", "unknown")),
    "rate": (replace(GO1, rate=100.0), ("50 Hz", "100 Hz")),
    "a lower limit": (replace(GO1, target=replace(GO1.target, low=LOWER)), ("lower limit of FR_calf", "-2.7")),
    "an upper limit": (replace(GO1, target=replace(GO1.target, high=UPPER)), ("upper limit of FR_hip", "0.8")),
    "no limits": (replace(GO1, target=replace(GO1.target, high=())), ("upper limit of FR_hip and 11 more", "unknown")),
    "a signal that is missing": (replace(GO1, signals=GO1.signals[:-1]), ("no signal 'accel'",)),
    "a component that is missing": (with_signal(GO1, "accel", labels=("x", "y", "up")), ("accel of the robot lacks z",)),
    "another robot": (replace(GO1, robot="go2"), ("made for go1, this is go2",)),
}  # fmt: skip


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_robot_that_differs_from_the_contract_is_refused_in_one_sentence(what):
    contract, words = DIFFERENT[what]
    controller = counter(signal="accel")
    assert contract_differences(controller.manifest, GO1) == []
    found = contract_differences(controller.manifest, contract)
    assert len(found) == 1
    body = StandIn(contract, np.array(CONTRACTS["go1"][1]))
    checks, flight = preflight(controller, InProcessLink(body), CommandSchedule((COMMAND,)).values_at(0.0))
    assert flight is None
    failed = {c.name: c.text for c in checks if not c.ok}
    assert set(failed) == ({"robot", "contract"} if what == "another robot" else {"contract"})
    assert all(word in failed["contract"] for word in words)
    assert body.commands == []
    with pytest.raises(BadInput, match="does not fit"):
        SignalMap.from_contracts(controller.manifest, contract)


def test_a_robot_with_one_motor_more_is_refused():
    more = tuple(Signal(s.name, s.unit, (*s.labels, "tail")) for s in (GO1["joint_pos"], GO1.target))
    contract = replace(GO1, signals=(more[0], *GO1.signals[1:]), target=more[1], gains={}, safety=SAFE)
    assert "it sets no target for tail" in contract_differences(counter(signal="accel").manifest, contract)
