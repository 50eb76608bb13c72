"""Laws of the virtual robot: its modes, its watchdog, its packets, and that nothing kills it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import mujoco
import numpy as np
import pytest

from isthmus.data.contract import Safety
from isthmus.deploy.link import Command, Packet
from isthmus.errors import BadInput
from isthmus.robots import ROBOTS, get_robot
from isthmus.sim.reality import Reality, VirtualRobot
from isthmus.sim.reality.engine import PERIOD
from isthmus.sim.reality.families import hidden
from isthmus.sim.reality.virtual import level_target

GO1, CRAZYFLIE, PENDULUM = ROBOTS["go1"](), ROBOTS["crazyflie"](), ROBOTS["pendulum"]()
MENAGERIE = Path(os.environ.get("MENAGERIE_ROOT") or Path(__file__).parents[2] / "shared" / "menagerie")
needs_menagerie = pytest.mark.skipif(not MENAGERIE.is_dir(), reason=f"no MuJoCo Menagerie at {MENAGERIE}; set MENAGERIE_ROOT")
QUIET = {p.name: 0.0 for p in GO1.space.params if p.name.endswith(("_noise", "_delay"))}


@cache
def menagerie(name: str):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MENAGERIE_ROOT", str(MENAGERIE))
        return get_robot(f"menagerie:{name}")


def energy(robot: VirtualRobot, model: mujoco.MjModel) -> float:
    """J, kinetic and potential."""
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = robot.engine.qpos[0], robot.engine.qvel[0]
    mujoco.mj_forward(model, data)
    mujoco.mj_energyPos(model, data)
    mujoco.mj_energyVel(model, data)
    return float(data.energy.sum())


def virtual(robot=GO1, timeout: float = 0.1, start=None, **tables) -> VirtualRobot:
    return VirtualRobot(robot, Reality.from_dict({"robot": robot.name} | tables), timeout, start)


def advance(robot: VirtualRobot, seconds: float, mode: str | None = None, target=None) -> list[Packet]:
    """Some time, with a command in every period if a mode is given."""
    packets = []
    for _ in range(round(seconds / PERIOD)):
        if mode is not None:
            u = robot.robot.default if target is None else target
            robot.command(Command(round(robot.time / PERIOD), robot.time, mode, np.array(u, dtype=float)))
        packets += robot.advance()
    return packets


def moving(robot: VirtualRobot, seconds: float = 0.2) -> np.ndarray:
    """On its way from home, under its servos, to a target far away, which is returned."""
    signal = robot.robot.contract.target
    away = np.clip(np.array(robot.robot.default) + 0.6, signal.low, signal.high)
    advance(robot, seconds, "track", away)
    return away


# Packets -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ROBOTS))
def test_packets_come_every_period_with_all_signals(name):
    robot = virtual(ROBOTS[name]())
    packets = advance(robot, 0.2)
    assert [p.sequence for p in packets] == list(range(1, 101))
    assert [p.time for p in packets] == pytest.approx(np.arange(1, 101) * PERIOD)
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
    assert np.flatnonzero(np.abs(steps - PERIOD) > 1e-9).tolist() == [23]
    assert steps[23] == pytest.approx(PERIOD - 0.02)


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


# Modes ---------------------------------------------------------------------------------------------------------------


def test_a_quadruped_stands_in_idle():
    robot = virtual()
    advance(robot, 3.0)
    truth = robot.truth()
    assert not truth["fallen"]
    assert truth["qpos"][2] > 0.28
    assert np.abs(truth["qpos"][7:] - GO1.default).max() < 0.2
    assert sum(truth["feet"].values()) == pytest.approx(GO1.model.body_subtreemass[1] * 9.81, rel=0.02)
    assert np.abs(truth["qvel"]).max() < 0.05


def test_a_quadruped_stands_in_idle_whatever_the_prior_draws():
    for seed in (1, 5):
        robot = VirtualRobot(GO1, hidden(GO1, seed, "parametric-inside")[1])
        advance(robot, 2.0)
        assert not robot.truth()["fallen"]
        assert np.abs(robot.truth()["qvel"]).max() < 0.3


@pytest.mark.parametrize("name", ["crazyflie", "pendulum", "cartpole"])
def test_what_cannot_hold_itself_is_held_until_it_tracks_and_put_back_after(name):
    robot = virtual(ROBOTS[name]())
    advance(robot, 0.2)
    assert np.array_equal(robot.truth()["qpos"], robot.robot.home)
    high = np.array(robot.robot.contract.target.high)
    advance(robot, 0.2, "track", high)
    assert np.abs(robot.truth()["qpos"] - robot.robot.home).max() > 1e-3
    advance(robot, PERIOD, "idle")
    assert robot.mode == "idle"
    assert np.array_equal(robot.truth()["qpos"], robot.robot.home)


def test_it_tracks_targets_inside_its_limits():
    thigh, ends = GO1.contract.target.component("FL_thigh"), []
    for offset in (0.0, 0.15):
        robot, target = virtual(params={"action_delay": 0.0}), np.array(GO1.default)
        target[thigh] += offset
        advance(robot, 0.5, "track", target)
        ends.append(robot.truth()["qpos"][7 + thigh])
    assert 0.05 < ends[1] - ends[0] < 0.15
    wild = virtual(params={"action_delay": 0.0})
    advance(wild, 0.02, "track", np.full(12, 1e9))
    sent = wild.engine.view["targets"][0, 0]
    assert np.array_equal(sent, GO1.contract.target.high)


def test_a_robot_in_damp_lies_down_slowly():
    robot = virtual()
    advance(robot, 0.5)
    heights, speeds = [], []
    for _ in range(1000):
        advance(robot, PERIOD, "damp")
        heights.append(robot.engine.qpos[0, 2])
        speeds.append(np.abs(robot.engine.qvel[0]).max())
    truth = robot.truth()
    assert truth["events"] == []
    assert heights[-1] < 0.12
    assert max(speeds) < 10
    assert np.abs(truth["qvel"]).max() < 0.5
    upright = 1 - 2 * (truth["qpos"][4] ** 2 + truth["qpos"][5] ** 2)
    assert upright > 0.9
    advance(robot, 8.0, "idle")
    assert robot.engine.qpos[0, 2] > 0.28, "in idle it stands up again"


def test_a_quadrotor_in_damp_sinks_upright():
    tilted = np.array(CRAZYFLIE.home)
    tilted[3:] = [np.cos(0.2), np.sin(0.2), 0.0, 0.0]
    for start in (CRAZYFLIE.home, tilted, np.array([*tilted[:3], *-tilted[3:]])):
        robot = virtual(CRAZYFLIE, start=np.array(start))
        advance(robot, 0.01, "track")
        advance(robot, 1.5, "damp")
        truth = robot.truth()
        assert 1 - 2 * (truth["qpos"][4] ** 2 + truth["qpos"][5] ** 2) > 0.99
        assert -1.0 < truth["qvel"][2] < 0.0
        assert np.abs(truth["qvel"][3:]).max() < 1.0


def test_a_pendulum_in_damp_comes_to_rest():
    robot = virtual(PENDULUM, start=np.array([2.0]))
    advance(robot, 6.0, "damp")
    assert np.abs(robot.truth()["qvel"]).max() < 0.3
    assert abs(robot.truth()["qpos"][0]) < 0.3


@needs_menagerie
def test_servos_of_a_model_brake_in_damp_and_never_pull_home():
    """Energy only falls after the time-out, speed dies away, and the arm does not turn back to where its servos would go."""
    robot = virtual(menagerie("robotstudio_so101"), params={"servo_gain": 1.2})
    away = moving(robot)
    model = robot.engine.batch.get_model(0)
    while robot.mode == "track":
        robot.advance()
    at, speeds, energies = robot.engine.qpos[0].copy(), [], [energy(robot, model)]
    for _ in range(300):
        robot.advance()
        speeds.append(np.abs(robot.engine.qvel[0]).max())
        energies.append(energy(robot, model))
    assert robot.mode == "damp"
    assert np.abs(at - robot.robot.default).min() > 0.2, "it was away from home"
    assert max(np.diff(energies)) < 1e-6
    assert max(speeds) <= speeds[0] + 0.05
    assert speeds[-1] < 0.1
    assert np.abs(robot.engine.qpos[0] - at).max() < 0.1
    advance(robot, 1.0, "track", 0.5 * away)
    assert np.abs(robot.engine.qpos[0] - 0.5 * away).max() < 0.02, "servos are back"
    for field in ("actuator_gainprm", "actuator_biasprm"):
        assert np.array_equal(getattr(robot.engine.batch.get_model(0), field), getattr(model, field)), field


@needs_menagerie
def test_a_damped_servo_gives_the_damping_of_the_contract_and_nothing_else():
    robot = virtual(menagerie("robotstudio_so101"))
    moving(robot, 0.1)
    advance(robot, PERIOD, "damp")
    model, data = robot.engine.batch.get_model(0), robot.engine.batch.get_data(0)
    rng, damping = np.random.default_rng(0), np.array(robot.robot.contract.safety.damping)
    for _ in range(10):
        data.qpos[:], data.qvel[:] = rng.uniform(-1, 1, model.nq), rng.uniform(-0.1, 0.1, model.nv)
        data.ctrl[:] = rng.uniform(-1, 1, model.nu)
        mujoco.mj_fwdPosition(model, data)
        mujoco.mj_fwdVelocity(model, data)
        mujoco.mj_fwdActuation(model, data)
        assert data.qfrc_actuator == pytest.approx(-damping * data.qvel)


NATIVE = """<mujoco><option timestep="0.002" integrator="implicitfast"/><worldbody>
  <body pos="0 0 1"><joint name="servo" axis="0 1 0"/><geom type="capsule" size=".03" fromto="0 0 0 .4 0 0"/></body>
  <body pos="0 1 1"><joint name="speed" axis="0 1 0"/><geom type="capsule" size=".03" fromto="0 0 0 .4 0 0"/></body>
  <body pos="0 2 1"><joint name="motor" axis="0 1 0"/><geom type="capsule" size=".03" fromto="0 0 0 .4 0 0"/></body>
  </worldbody><actuator><position joint="servo" kp="40" gear="2"/><velocity joint="speed" kv="3"/>
  <motor joint="motor" gear="-5" ctrlrange="-4 4" ctrllimited="true"/></actuator></mujoco>"""


def test_servos_and_motors_side_by_side_are_damped(tmp_path):
    """Position servo with a gear, velocity servo and reversed motor: each falls slowly, and slower than it would freely."""
    (tmp_path / "three.xml").write_text(NATIVE)
    three = get_robot(str(tmp_path / "three.xml"))
    assert three.motors.drive == "native"
    robot = virtual(three, params={"joint_damping": 0.0, "joint_friction": 0.0})
    advance(robot, 0.1, "track", [-0.5, -2.0, 2.0])
    energies, model = [], robot.engine.batch.get_model(0)
    for _ in range(250):
        advance(robot, PERIOD, "damp")
        energies.append(energy(robot, model))
    assert max(np.diff(energies)) < 1e-6
    data = mujoco.MjData(model)
    data.qpos[:] = robot.engine.qpos[0]
    mujoco.mj_forward(model, data)
    weight = np.abs(data.qfrc_bias)
    free = 9.81 * 1.5 / 0.4 * 0.5
    speed = robot.engine.qvel[0]
    assert (speed > 0).all(), "gravity turns them down"
    assert (speed < 0.25 * free).all()
    damping = np.maximum(three.contract.safety.damping, [0.0, 3.0, 0.0])
    assert speed == pytest.approx(weight / damping, rel=0.1), "the damping of the contract, or the servo's own"


def test_servos_whose_damping_nobody_gives_still_brake(tmp_path):
    (tmp_path / "three.xml").write_text(NATIVE)
    three = get_robot(str(tmp_path / "three.xml"))
    three = replace(three, contract=replace(three.contract, safety=Safety()))
    robot = virtual(three)
    advance(robot, 0.1, "track", [-0.5, -2.0, 2.0])
    advance(robot, 0.5, "damp")
    servo, speed = robot.engine.qvel[0, :2]
    assert 0 < servo < 1.5
    assert 0 < speed < 1.5


@needs_menagerie
def test_torque_motors_of_a_model_lower_it_slowly():
    """go2 with the damping that was estimated for it sinks at half the speed, at most, of one whose motors are off."""
    go2 = menagerie("unitree_go2")
    limp = replace(go2, contract=replace(go2.contract, safety=replace(go2.contract.safety, damping=())))
    fastest, end = [], []
    for made in (go2, limp):
        robot, speeds = virtual(made), []
        for _ in range(600):
            advance(robot, PERIOD, "damp")
            speeds.append(-robot.engine.qvel[0, 2])
        fastest.append(max(speeds))
        end.append(robot.engine.qpos[0, 2])
        assert robot.truth()["events"] == []
    assert fastest[0] < 0.6 * fastest[1]
    assert fastest[0] < 0.5
    assert end[0] < 0.15, "it does lie down"


@needs_menagerie
def test_rotors_without_a_levelling_law_stop_in_damp():
    robot = virtual(menagerie("skydio_x2"))
    advance(robot, 0.05, "track")
    assert robot.engine.ctrl[0].min() > 1.0
    before = robot.engine.qvel[0, 2]
    advance(robot, 0.1, "damp")
    assert np.array_equal(robot.engine.ctrl[0], np.zeros(4))
    assert robot.engine.qvel[0, 2] - before == pytest.approx(-0.981, rel=0.02)
    assert "switch them off" in robot.robot.doc


def test_levelling_knows_that_q_and_minus_q_are_one_attitude():
    law = CRAZYFLIE.contract.safety.level
    q = np.array([0.9, 0.3, -0.2, 0.1])
    signals = {"quat": q, "gyro": np.array([0.1, 0.2, 0.3])}
    assert np.array_equal(level_target(law, signals), level_target(law, signals | {"quat": -q}))


def test_a_busy_robot_never_listens():
    robot, free = virtual(faults={"mode": "busy"}), virtual()
    far = np.array(GO1.default) + 0.3
    packets = advance(robot, 0.5, "track", far) + advance(robot, 0.1, "damp")
    advance(free, 0.6)
    assert {p.mode for p in packets} == {"busy"}
    assert robot.identity.mode == "busy"
    assert np.array_equal(robot.truth()["qpos"], free.truth()["qpos"]), "it stands as if nobody had called"


# Watchdog ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0.02, 0.1])
@pytest.mark.parametrize("name", sorted(ROBOTS))
def test_silence_ends_in_damping_within_the_timeout_and_one_period(name, timeout):
    robot = virtual(ROBOTS[name](), timeout)
    advance(robot, 0.05, "track")
    heard = robot.time - PERIOD
    while robot.mode == "track":
        robot.advance()
    waited = robot.time - PERIOD - heard
    assert timeout < waited + 1e-9
    assert waited <= timeout + PERIOD + 1e-9
    advance(robot, PERIOD, "track")
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
    calf, hip = (GO1.contract.target.component(label) for label in ("FL_calf", "RR_hip"))
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
    robot.engine.qvel[0, -1] = bad
    packets = advance(robot, PERIOD, "track")
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
    robot.engine.qvel[0, 8] = np.nan
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
