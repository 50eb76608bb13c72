"""What recordings say of sensors, frames and drives without a fit: by kinematics, by gravity, and by springs that are tried."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from isthmus.core.geometry import rotate_inverse
from isthmus.real2sim.diagnose.accelerometer import accelerometer_bias
from isthmus.real2sim.diagnose.baseline import evidence_baseline
from isthmus.real2sim.diagnose.frames import MIN_LOG_EVIDENCE, frame_errors
from isthmus.real2sim.diagnose.joint_flexibility import candidate_stiffnesses, fit_joint_flexibility
from isthmus.real2sim.diagnose.rest_evidence import posture_mistakes
from isthmus.real2sim.diagnose.sensor_evidence import gain_evidence, sensor_errors, velocity_gain
from isthmus.real2sim.prepare.tracks import Track, to_tracks
from isthmus.robots import get_robot
from isthmus.sim.physics.unit_physics import UnitPhysics
from isthmus.sim.reality import Reality, real_simulation
from isthmus.sim.simulate_recording import random_multisine, record_engine, record_targets

PENDULUM, CRAZYFLIE, GO1 = (get_robot(name) for name in ("pendulum", "crazyflie", "go1"))
TICK = 1.0 / PENDULUM.contract.rate
CONJUGATE = np.array([1.0, -1.0, -1.0, -1.0])


def tumbling(robot, n: int = 600, size: float = 1.0) -> tuple[np.ndarray, dict[str, slice]]:
    """Signals of a body that turns here and there: attitude, gyroscope and, if it has one, accelerometer, with some noise."""
    at, rng, tick = robot.contract.slices(), np.random.default_rng(0), 1.0 / robot.contract.rate
    measured, q = np.zeros((n, robot.contract.width)), np.array([1.0, 0.0, 0.0, 0.0])
    rate = size * np.stack([np.sin(np.arange(n) * tick * w) for w in (3.0, 4.0, 1.0)], axis=1) * [2.0, 2.0, 1.5]
    for t in range(n):
        measured[t, at["quat"]], measured[t, at["gyro"]] = q, rate[t]
        mujoco.mju_quatIntegrate(q, rate[t], tick)
    if "accel" in at:
        swings = np.sin(np.arange(n) * tick * 9.0)[:, None] * [1.0, 0.5, 2.0]
        measured[:, at["accel"]] = rotate_inverse(measured[:, at["quat"]], swings + np.array([0.0, 0.0, 9.81]))
    return measured + 0.01 * rng.standard_normal(measured.shape), at


def track(robot, measured: np.ndarray) -> Track:
    return Track(0, 0.0, np.zeros((len(measured), robot.contract.target.size)), measured)


# Frames -------------------------------------------------------------------------------------------------------------


def test_an_angular_velocity_in_the_wrong_frame_shows_without_a_simulator():
    measured, at = tumbling(CRAZYFLIE)
    assert not frame_errors(CRAZYFLIE, [track(CRAZYFLIE, measured)])
    measured[:, at["gyro"]] = rotate_inverse(measured[:, at["quat"]] * CONJUGATE, measured[:, at["gyro"]])
    found = frame_errors(CRAZYFLIE, [track(CRAZYFLIE, measured)])
    assert found[0].remapping.text == "gyro is in the frame of the world instead of the body"


def test_an_acceleration_in_the_wrong_frame_shows_by_gravity():
    measured, at = tumbling(GO1, size=0.3)
    assert not frame_errors(GO1, [track(GO1, measured)])
    measured[:, at["accel"]] = rotate_inverse(measured[:, at["quat"]] * CONJUGATE, measured[:, at["accel"]])
    found = frame_errors(GO1, [track(GO1, measured)])
    assert found[0].remapping.text == "accel is in the frame of the world instead of the body"


# Sensors ------------------------------------------------------------------------------------------------------------


def test_a_velocity_that_wanders_does_not_agree_with_its_position():
    at, rng, n = PENDULUM.contract.slices(), np.random.default_rng(0), 500
    time = TICK * np.arange(n)
    measured = np.empty((n, 2))
    measured[:, at["joint_pos"]] = np.sin(3.0 * time)[:, None] + 0.003 * rng.standard_normal((n, 1))
    measured[:, at["joint_vel"]] = 3.0 * np.cos(3.0 * time)[:, None] + 0.05 * rng.standard_normal((n, 1))

    def evidence(signal: str, error: np.ndarray) -> float:
        wrong = measured.copy()
        wrong[:, at[signal]] += error[:, None]
        return max(d.evidence for d in sensor_errors(PENDULUM, [track(PENDULUM, wrong)]) if "does not agree" in d.text)

    walk = np.cumsum(rng.standard_normal(n)) * np.sqrt(TICK)
    assert evidence("joint_vel", 0.0 * time) <= 0.0
    assert evidence("joint_pos", 0.2 + 0.0 * time) <= 0.0, "motion is the same in another place"
    assert evidence("joint_vel", 0.01 + 0.0 * time) <= 0.0, "too small to matter"
    assert evidence("joint_vel", 0.3 + 0.0 * time) > 10.0
    assert evidence("joint_vel", 0.15 * walk) > 10.0
    assert evidence("joint_pos", 0.08 * walk) > 5.0


@pytest.mark.parametrize("robot", [CRAZYFLIE, GO1], ids=["crazyflie", "go1"])
@pytest.mark.parametrize("times", [0.8, 1.0, 1.2])
def test_a_gyroscope_with_another_scale_is_so_many_times_how_the_attitude_changes(robot, times):
    measured, at = tumbling(robot)
    measured[:, at["gyro"]] *= times
    found, sigma = velocity_gain(robot, [track(robot, measured)], "quat", "gyro")
    assert found == pytest.approx(times, abs=0.02 + 2 * sigma)
    assert (gain_evidence(found, sigma) > 3.0) == (times != 1.0)


def test_another_unit_is_no_scale():
    measured, at = tumbling(CRAZYFLIE)
    measured[:, at["gyro"]] *= 180.0 / np.pi
    assert gain_evidence(*velocity_gain(CRAZYFLIE, [track(CRAZYFLIE, measured)], "quat", "gyro")) == 0.0


def test_a_body_at_rest_tells_no_gain():
    measured, _ = tumbling(GO1, size=0.0)
    assert velocity_gain(GO1, [track(GO1, measured)], "quat", "gyro") == (1.0, 0.0)


def test_what_is_felt_in_the_long_run_is_gravity():
    measured, at = tumbling(GO1, size=0.3)
    walk = np.cumsum(np.random.default_rng(1).standard_normal(len(measured))) * np.sqrt(1.0 / GO1.contract.rate)

    def evidence(error: np.ndarray | float) -> float:
        wrong = measured.copy()
        wrong[:, at["accel"].start + 1] += error
        return accelerometer_bias(GO1, [track(GO1, wrong)]).log_evidence

    assert evidence(0.0) <= 0.0
    assert evidence(0.03) <= 0.0, "too small to matter"
    assert evidence(0.8) > 5.0
    assert evidence(0.3 * walk) > 5.0
    faster = np.zeros(len(measured))
    faster[100:125] = 2.0
    assert evidence(faster) <= 0.0, "for half a second it did get faster"


# At rest ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pose", "said"), [
    ({}, []),
    ({"RR_thigh": -0.7}, ["RR_thigh turns the other way"]),
    ({"FR_calf": 1.5}, ["FR_calf turns the other way"]),
    ({"FL_thigh": 0.0, "RR_hip": 0.7}, ["FL_thigh and RR_hip are swapped"]),
    ({"FL_thigh": 0.3, "FR_thigh": 1.2}, []),
])  # fmt: skip
def test_a_joint_that_stands_where_it_cannot_is_flipped_or_swapped(pose, said):
    episode = record_targets(GO1, GO1.space.nominal, np.tile(GO1.default, (20, 1)), 1)
    seen = episode.signals["joint_pos"].copy()
    for label, angle in pose.items():
        seen[:, GO1.contract["joint_pos"].component_index(label)] = angle
    stood = replace(episode, signals={**episode.signals, "joint_pos": seen})
    assert [text for text, _ in posture_mistakes(GO1, [stood])] == said


# Robots with nothing wrong ----------------------------------------------------------------------------------------


def healthy(turns: float = 0.0, speeds_up: float = 0.0, accel: float = 0.2, quat: float = 0.005, seed: int = 0) -> Track:
    """12 s of a level go1 with noisy sensors that turns at so many rad/s, at 1 m/s, or first gets faster by so many m/s²."""
    n, at, rng = 600, GO1.contract.slices(), np.random.default_rng(seed)
    angle = turns / GO1.contract.rate * np.arange(n)
    measured = np.zeros((n, GO1.contract.width))
    measured[:, at["quat"]] = np.stack([np.cos(angle / 2), 0 * angle, 0 * angle, np.sin(angle / 2)], axis=1)
    measured[:, at["gyro"]] = [0.0, 0.0, turns]
    measured[:, at["accel"]] = [0.0, turns * 1.0, 9.81]
    measured[: n // 6, at["accel"].start] += speeds_up
    measured[:, at["accel"]] += accel * rng.standard_normal((n, 3))
    measured[:, at["quat"]] += quat * rng.standard_normal((n, 4))
    measured[:, at["gyro"]] += 0.05 * rng.standard_normal((n, 3))
    return track(GO1, measured)


@pytest.mark.parametrize(
    "how",
    [{}, {"accel": 0.05}, {"accel": 0.05, "quat": 0.015}, {"quat": 0.015}, {"turns": 1.0}, {"turns": 0.5}, {"speeds_up": 0.5}],
    ids=str,
)
def test_a_robot_that_stands_circles_or_speeds_up_is_not_accused(how):
    for seed in range(5):
        found = [healthy(**how, seed=seed)]
        assert not frame_errors(GO1, found)
        assert not [d for d in sensor_errors(GO1, found) if d.evidence > MIN_LOG_EVIDENCE]


def test_a_velocity_that_comes_a_tick_late_has_no_other_gain():
    time = TICK * np.arange(500)
    measured = np.stack([0.1 * np.sin(31.4 * time), 3.14 * np.cos(31.4 * (time - TICK))], axis=1)
    measured += [0.003, 0.05] * np.random.default_rng(0).standard_normal(measured.shape)
    times, sigma = velocity_gain(PENDULUM, [track(PENDULUM, measured)], "joint_pos", "joint_vel")
    assert gain_evidence(times, sigma) <= 0.0


# Drives -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("law", "evidence"), [
    ({}, (-np.inf, 0.0)),
    pytest.param({"flex": 30.0}, (100.0, np.inf), marks=pytest.mark.slow),
    pytest.param({"backlash": 0.03}, (-np.inf, 60.0), marks=pytest.mark.slow),
])  # fmt: skip
def test_a_drive_that_bends_is_told_from_others(law, evidence):
    engine = real_simulation(PENDULUM, Reality.from_dict({"robot": "pendulum", "unmodelled": law}), 1, tick=TICK)
    targets = random_multisine(PENDULUM, 8.0, 3, 0.8)
    episode = record_engine(engine, lambda tick, y: targets[tick : tick + 1], len(targets), np.random.default_rng(1))
    found = to_tracks([episode], PENDULUM.contract, TICK)
    bent = fit_joint_flexibility(evidence_baseline(PENDULUM, found, PENDULUM.prior), found, PENDULUM.prior)
    assert evidence[0] < (bent.evidence if bent else -1e9) < evidence[1]
    if "flex" in law:
        assert bent is not None
        assert 0.5 < bent.stiffness / law["flex"] < 2.0


def test_no_spring_is_tried_where_there_is_none_to_have():
    assert not len(candidate_stiffnesses(CRAZYFLIE)), "rotors turn, no joint does"
    bends = replace(PENDULUM, unit=UnitPhysics({"spring": (30.0,)}))
    assert not len(candidate_stiffnesses(bends)), "it has one already"
    limp = replace(GO1, motors=replace(GO1.motors, kp=(0.0, *GO1.motors.kp[1:])))
    assert not len(candidate_stiffnesses(limp)), "a motor without a gain"
    assert len(candidate_stiffnesses(PENDULUM)) == len(candidate_stiffnesses(GO1)) > 0
