"""Laws of the virtual robot's modes: it stands or is held in idle, follows in track, and in damp it brakes, with any motors."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from isthmus.data.contract import Safety
from isthmus.robots import ROBOTS, get_robot
from isthmus.sim.reality import VirtualRobot
from isthmus.sim.reality.hidden import hidden
from isthmus.sim.reality.simulation import PACKET_PERIOD
from isthmus.sim.reality.virtual_robot import level_target
from support.menagerie import menagerie, needs_menagerie
from support.virtual_robots import CRAZYFLIE, GO1, PENDULUM, advance, virtual


def energy(robot: VirtualRobot, model: mujoco.MjModel) -> float:
    """J, kinetic and potential."""
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = robot.sim.qpos[0], robot.sim.qvel[0]
    mujoco.mj_forward(model, data)
    mujoco.mj_energyPos(model, data)
    mujoco.mj_energyVel(model, data)
    return float(data.energy.sum())


def moving(robot: VirtualRobot, seconds: float = 0.2) -> np.ndarray:
    """On its way from home, under its servos, to a target far away, which is returned."""
    signal = robot.robot.contract.target
    away = np.clip(np.array(robot.robot.default) + 0.6, signal.low, signal.high)
    advance(robot, seconds, "track", away)
    return away


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
    advance(robot, PACKET_PERIOD, "idle")
    assert robot.mode == "idle"
    assert np.array_equal(robot.truth()["qpos"], robot.robot.home)


def test_it_tracks_targets_inside_its_limits():
    thigh, ends = GO1.contract.target.component_index("FL_thigh"), []
    for offset in (0.0, 0.15):
        robot, target = virtual(params={"action_delay": 0.0}), np.array(GO1.default)
        target[thigh] += offset
        advance(robot, 0.5, "track", target)
        ends.append(robot.truth()["qpos"][7 + thigh])
    assert 0.05 < ends[1] - ends[0] < 0.15
    wild = virtual(params={"action_delay": 0.0})
    advance(wild, 0.02, "track", np.full(12, 1e9))
    sent = wild.sim.userdata["targets"][0, 0]
    assert np.array_equal(sent, GO1.contract.target.high)


def test_a_robot_in_damp_lies_down_slowly():
    robot = virtual()
    advance(robot, 0.5)
    heights, speeds = [], []
    for _ in range(1000):
        advance(robot, PACKET_PERIOD, "damp")
        heights.append(robot.sim.qpos[0, 2])
        speeds.append(np.abs(robot.sim.qvel[0]).max())
    truth = robot.truth()
    assert truth["events"] == []
    assert heights[-1] < 0.12
    assert max(speeds) < 10
    assert np.abs(truth["qvel"]).max() < 0.5
    upright = 1 - 2 * (truth["qpos"][4] ** 2 + truth["qpos"][5] ** 2)
    assert upright > 0.9
    advance(robot, 8.0, "idle")
    assert robot.sim.qpos[0, 2] > 0.28, "in idle it stands up again"


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
    model = robot.sim.engine.get_model(0)
    while robot.mode == "track":
        robot.advance()
    at, speeds, energies = robot.sim.qpos[0].copy(), [], [energy(robot, model)]
    for _ in range(300):
        robot.advance()
        speeds.append(np.abs(robot.sim.qvel[0]).max())
        energies.append(energy(robot, model))
    assert robot.mode == "damp"
    assert np.abs(at - robot.robot.default).min() > 0.2, "it was away from home"
    assert max(np.diff(energies)) < 1e-6
    assert max(speeds) <= speeds[0] + 0.05
    assert speeds[-1] < 0.1
    assert np.abs(robot.sim.qpos[0] - at).max() < 0.1
    advance(robot, 1.0, "track", 0.5 * away)
    assert np.abs(robot.sim.qpos[0] - 0.5 * away).max() < 0.02, "servos are back"
    for field in ("actuator_gainprm", "actuator_biasprm"):
        assert np.array_equal(getattr(robot.sim.engine.get_model(0), field), getattr(model, field)), field


@needs_menagerie
def test_a_damped_servo_gives_the_damping_of_the_contract_and_nothing_else():
    robot = virtual(menagerie("robotstudio_so101"))
    moving(robot, 0.1)
    advance(robot, PACKET_PERIOD, "damp")
    model, data = robot.sim.engine.get_model(0), robot.sim.engine.get_data(0)
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
    energies, model = [], robot.sim.engine.get_model(0)
    for _ in range(250):
        advance(robot, PACKET_PERIOD, "damp")
        energies.append(energy(robot, model))
    assert max(np.diff(energies)) < 1e-6
    data = mujoco.MjData(model)
    data.qpos[:] = robot.sim.qpos[0]
    mujoco.mj_forward(model, data)
    weight = np.abs(data.qfrc_bias)
    free = 9.81 * 1.5 / 0.4 * 0.5
    speed = robot.sim.qvel[0]
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
    servo, speed = robot.sim.qvel[0, :2]
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
            advance(robot, PACKET_PERIOD, "damp")
            speeds.append(-robot.sim.qvel[0, 2])
        fastest.append(max(speeds))
        end.append(robot.sim.qpos[0, 2])
        assert robot.truth()["events"] == []
    assert fastest[0] < 0.6 * fastest[1]
    assert fastest[0] < 0.5
    assert end[0] < 0.15, "it does lie down"


@needs_menagerie
def test_rotors_without_a_levelling_law_stop_in_damp():
    robot = virtual(menagerie("skydio_x2"))
    advance(robot, 0.05, "track")
    assert robot.sim.ctrl[0].min() > 1.0
    before = robot.sim.qvel[0, 2]
    advance(robot, 0.1, "damp")
    assert np.array_equal(robot.sim.ctrl[0], np.zeros(4))
    assert robot.sim.qvel[0, 2] - before == pytest.approx(-0.981, rel=0.02)
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
