"""Laws of the virtual robot: its packets, its watchdog, what is true of it, and that nothing kills it."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.deploy.links.link import Command
from isthmus.robots import ROBOTS
from isthmus.sim.reality import Reality, VirtualRobot
from isthmus.sim.reality.simulation import PACKET_PERIOD
from support.virtual_robots import CRAZYFLIE, GO1, PENDULUM, advance, virtual

QUIET = {p.name: 0.0 for p in GO1.space.params if p.name.endswith(("_noise", "_delay"))}


# Packets -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ROBOTS))
def test_packets_come_every_period_with_all_signals(name):
    robot = virtual(ROBOTS[name]())
    packets = advance(robot, 0.2)
    assert [p.sequence for p in packets] == list(range(1, 101))
    assert [p.time for p in packets] == pytest.approx(np.arange(1, 101) * PACKET_PERIOD)
    assert {p.mode for p in packets} == {"idle"}
    values = np.array([p.values for p in packets])
    assert values.shape == (100, robot.robot.contract.width)
    assert values.dtype == np.float64
    assert np.isfinite(values).all()
    assert (values.std(axis=0) > 0).all(), "every signal has its noise"


def test_who_it_is():
    robot = virtual()
    assert robot.identity.source == "virtual"
    assert robot.identity.contract == GO1.contract
    assert robot.identity.model_hash == GO1.model_hash
    assert robot.identity.unit == virtual().identity.unit
    other = virtual(params={"payload": 1.0}, faults={"model": "other"})
    assert other.identity.unit != robot.identity.unit
    assert other.identity.model_hash not in ("", GO1.model_hash)
    assert (robot.identity.mode, robot.identity.timeout) == ("idle", 0.1)


@pytest.mark.parametrize("name", ["go1", "crazyflie"])
def test_two_of_one_reality_are_bit_equal(name):
    tables = {
        "seed": 3,
        "unmodelled": {"drag": 0.1, "battery_sag": 0.2, "heating": 1.0},
        "faults": {"drop": 0.1, "reorder": 0.1, "delay": {"extra": 0.004, "jitter": 0.004}},
        "sensors": {"gyro_drift": 0.1, "gyro_noise": 0.1},
    }
    runs = {}
    for key, seed in (("a", 3), ("b", 3), ("c", 4)):
        packets = advance(virtual(ROBOTS[name](), **tables | {"seed": seed}), 0.3, "track")
        runs[key] = [(p.sequence, p.time, p.mode, p.values.tobytes()) for p in packets]
    assert runs["a"] == runs["b"]
    assert runs["a"] != runs["c"]


def test_a_clock_jumps_when_it_should():
    robot = virtual(PENDULUM, faults={"clock_jump": {"at": 0.05, "by": -0.02}})
    times = np.array([p.time for p in advance(robot, 0.1)])
    steps = np.diff(times)
    assert np.flatnonzero(np.abs(steps - PACKET_PERIOD) > 1e-9).tolist() == [23]
    assert steps[23] == pytest.approx(PACKET_PERIOD - 0.02)


def test_skipped_time_passes_on_the_clock_alone():
    robot, other = virtual(PENDULUM, seed=1), virtual(PENDULUM, seed=1)
    before, same = advance(robot, 0.1, "track", [0.5]), advance(other, 0.1, "track", [0.5])
    robot.skip(0.25)
    after, went_on = advance(robot, 0.1, "track", [0.5]), advance(other, 0.1, "track", [0.5])
    assert [p.time for p in before] == [p.time for p in same]
    assert [p.time - 0.25 for p in after] == pytest.approx([p.time for p in went_on])
    assert all(np.array_equal(a.values, b.values) for a, b in zip(after, went_on, strict=True))
    assert np.diff([p.sequence for p in before + after]).tolist() == [1] * 99
    assert (robot.time, robot.clock) == (pytest.approx(0.2), pytest.approx(0.45))
    for bad in (-0.1, np.nan, np.inf):
        with pytest.raises(BadInput, match="skip"):
            robot.skip(bad)


def test_a_unit_cannot_be_told_by_trying_realities():
    """Another process that knows the reality gives it another name; a name that is given is kept."""
    reality = Reality.from_dict({"robot": "pendulum"})
    code = (
        "from isthmus.robots import get_robot; from isthmus.sim.reality import Reality, VirtualRobot;"
        "print(VirtualRobot(get_robot('pendulum'), Reality('pendulum')).identity.unit)"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    here = VirtualRobot(PENDULUM, reality).identity.unit
    assert re.fullmatch(r"virtual-[0-9a-f]{8}", there)
    assert len({here, there, f"virtual-{reality.hash[:8]}"}) == 3
    assert VirtualRobot(PENDULUM, reality, unit="left arm").identity.unit == "left arm"


def test_commands_are_lost_and_late_as_packets_are():
    robot = virtual(PENDULUM, faults={"delay": 0.02})
    robot.command(Command(0, 0.0, "track", np.zeros(1)))
    modes = [robot.advance()[:1] and robot.mode for _ in range(11)]
    assert robot.mode == "track"
    assert modes.count("track") == 1, "20 ms are ten periods"
    deaf = virtual(PENDULUM, faults={"drop": 1.0})
    assert advance(deaf, 0.1, "track") == []
    assert deaf.mode == "idle"


# Watchdog ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0.02, 0.1])
@pytest.mark.parametrize("name", sorted(ROBOTS))
def test_silence_ends_in_damping_within_the_timeout_and_one_period(name, timeout):
    robot = virtual(ROBOTS[name](), timeout)
    advance(robot, 0.05, "track")
    heard = robot.time - PACKET_PERIOD
    while robot.mode == "track":
        robot.advance()
    waited = robot.time - PACKET_PERIOD - heard
    assert timeout < waited + 1e-9
    assert waited <= timeout + PACKET_PERIOD + 1e-9
    advance(robot, PACKET_PERIOD, "track")
    assert robot.mode == "track", "and it goes on when commands return"
    advance(robot, 0.2, "idle")
    advance(robot, 1.0)
    assert robot.mode == "idle", "a robot that does not track needs no commands"


def test_a_broken_target_is_no_command():
    robot = virtual(PENDULUM)
    advance(robot, 0.05, "track", [0.5])
    for target in (np.array([np.nan]), np.array([np.inf]), np.zeros(3), np.zeros((1, 1))):
        robot.command(Command(10**6, 0.0, "track", target))
        robot.advance()
        assert robot._target.tolist() == [0.5]
    for _ in range(60):
        robot.command(Command(10**6, 0.0, "track", np.array([np.nan])))
        robot.advance()
    assert robot.mode == "damp"


def test_an_overtaken_command_is_not_obeyed():
    robot = virtual(PENDULUM)
    robot.command(Command(8, 0.0, "track", np.array([0.8])))
    robot.command(Command(7, 0.0, "track", np.array([0.7])))
    robot.advance()
    assert robot._target.tolist() == [0.8]
    advance(robot, 0.2)
    robot.command(Command(0, 0.0, "track", np.array([0.1])))
    robot.advance()
    assert robot._target.tolist() == [0.1], "after silence a new controller may count anew"


# Truth, faults, failure ----------------------------------------------------------------------------------------------


def test_swapped_motors_swap_what_moves_and_what_is_seen():
    robot, right = virtual(params=QUIET, faults={"swap": [["FL_calf", "RR_hip"]]}), virtual(params=QUIET)
    calf, hip = (GO1.contract.target.component_index(label) for label in ("FL_calf", "RR_hip"))
    target, meant = np.array(GO1.default), np.array(GO1.default)
    target[calf], target[hip] = 0.2, -1.4
    meant[calf], meant[hip] = -1.4, 0.2
    seen = advance(robot, 0.3, "track", target)[-1].values
    sent = advance(right, 0.3, "track", meant)[-1].values
    assert np.array_equal(robot.truth()["qpos"], right.truth()["qpos"])
    assert seen[calf] == sent[hip] == pytest.approx(robot.truth()["qpos"][7 + hip], abs=1e-6)
    assert seen[hip] == sent[calf] != sent[hip]


def test_joint_signals_show_the_rotor_and_the_truth_shows_both():
    robot = virtual(params=QUIET, unmodelled={"backlash": 0.05})
    packets = advance(robot, 1.0)
    truth = robot.truth()
    gap = truth["rotor"] - truth["qpos"][7:]
    assert np.abs(gap).max() > 0.02
    assert np.abs(gap).max() < 0.027
    assert packets[-1].values[:12] == pytest.approx(truth["rotor"], abs=1e-6)
    assert truth["qpos"].shape == (19,)


def test_the_battery_rests_in_idle_and_heat_outlasts_being_put_back():
    robot = virtual(CRAZYFLIE, unmodelled={"battery_sag": 0.2, "heating": 1.0})
    advance(robot, 0.2)
    assert robot.truth()["battery"] == 0.0
    advance(robot, 0.2, "track")
    before = robot.truth()
    assert before["battery"] == pytest.approx(0.2)
    assert before["heat"].min() > 0
    advance(robot, 0.1, "idle")
    after = robot.truth()
    assert after["battery"] == before["battery"]
    assert np.array_equal(after["heat"], before["heat"])


@pytest.mark.parametrize("name", sorted(ROBOTS))
@pytest.mark.parametrize("bad", [np.nan, 1e9])
def test_physics_that_fails_does_not_kill_the_robot(name, bad):
    robot = virtual(ROBOTS[name]())
    advance(robot, 0.05, "track")
    robot.sim.qvel[0, -1] = bad
    packets = advance(robot, PACKET_PERIOD, "track")
    assert robot.mode == "damp"
    assert np.isfinite(packets[-1].values).all()
    assert len(robot.truth()["events"]) == 1
    assert np.array_equal(robot.truth()["qpos"], robot.robot.home)
    advance(robot, 0.05, "track")
    assert robot.mode == "track"
    assert np.isfinite(robot.truth()["qpos"]).all()


def test_a_robot_that_failed_is_as_new():
    robot = virtual(unmodelled={"heating": 3.0, "flex": 500.0, "stribeck": {"static": 1.0, "coulomb": 0.5, "velocity": 0.2}})
    advance(robot, 0.05, "track")
    robot.sim.qvel[0, 8] = np.nan
    advance(robot, 0.1, "track")
    truth = robot.truth()
    assert len(truth["events"]) == 1
    for name in ("qpos", "qvel", "rotor", "torque", "heat"):
        assert np.isfinite(truth[name]).all(), name
    assert truth["heat"].max() < 0.01


def test_a_fallen_robot_is_fallen():
    upside_down = np.array(GO1.home)
    upside_down[3:7] = [0.0, 1.0, 0.0, 0.0]
    robot = virtual(start=upside_down)
    assert robot.truth()["fallen"]
    assert not virtual().truth()["fallen"]


def test_bad_arguments_are_refused():
    with pytest.raises(BadInput, match="time-out"):
        virtual(timeout=0.0)
    with pytest.raises(BadInput, match="start"):
        virtual(start=np.zeros(3))
    with pytest.raises(BadInput, match="pendulum"):
        VirtualRobot(GO1, Reality("pendulum"))
