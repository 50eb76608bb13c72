"""Wrong units, signs, frames and joints: each is refused by its name. Recordings of real robots pass, until they are spoilt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.core.geometry import rotate_inverse
from isthmus.data.mapping import ColumnMap, SignalColumns, TimeColumn, import_file
from isthmus.real2sim.prepare.checks.matching import match_columns, swapped_columns
from isthmus.real2sim.prepare.checks.recording_checks import check, raise_if_refused
from support.corruptions import DEG, RNG, found, healthy, label, robot_of, swapped, wired, with_signals
from support.paths import REAL_DATA as REAL

# Units, signs, orders ---------------------------------------------------------------------------------------------------

WRONG = {
    # Go1: told positions, with encoders and an inertial sensor.
    "go1 pos deg": ("go1", lambda e: wired(e, units={"joint_pos": "deg"}), ("unit", "joint_pos", "")),
    "go1 vel deg/s": ("go1", lambda e: wired(e, units={"joint_vel": "deg/s"}), ("unit", "joint_vel", "")),
    "go1 one vel rpm": (
        "go1",
        lambda e: with_signals(e, joint_vel=label("go1", lambda v: v * 30 / np.pi, "joint_vel", "FL_thigh")),
        ("unit", "joint_vel", "FL_thigh"),
    ),
    "go1 target deg": ("go1", lambda e: replace(e, target=e.target * DEG), ("unit", "joint_target", "")),
    "go1 gyro deg/s": ("go1", lambda e: wired(e, units={"gyro": "deg/s"}), ("unit", "gyro", "")),
    "go1 accel g": ("go1", lambda e: wired(e, units={"accel": "g"}), ("unit", "accel", "")),
    "go1 accel down": ("go1", lambda e: with_signals(e, accel=np.negative), ("sign", "accel", "")),
    "go1 accel axes": ("go1", lambda e: with_signals(e, accel=swapped(0, 2)), ("frame", "accel", "")),
    "go1 quat xyzw": ("go1", lambda e: wired(e, quaternion="xyzw"), ("order", "quat", "")),
    "go1 quat inverse": ("go1", lambda e: with_signals(e, quat=lambda v: v * [1, -1, -1, -1]), ("order", "quat", "")),
    "go1 gyro axes": ("go1", lambda e: with_signals(e, gyro=swapped(0, 1)), ("swapped", "gyro", "x, y")),
    "go1 gyro sign": (
        "go1",
        lambda e: with_signals(e, gyro=label("go1", np.negative, "gyro", "z")),
        ("sign", "gyro", "z"),
    ),
    "go1 vel swapped": (
        "go1",
        lambda e: with_signals(e, joint_vel=swapped(1, 5)),
        ("swapped", "joint_vel", "FR_thigh, FL_calf"),
    ),
    "go1 pos swapped": (
        "go1",
        lambda e: with_signals(e, joint_pos=swapped(1, 4)),
        ("swapped", "joint_pos", "FR_thigh, FL_thigh"),
    ),
    "go1 target swapped": (
        "go1",
        lambda e: replace(e, target=swapped(1, 4)(e.target)),
        ("swapped", "joint_target", "FR_thigh, FL_thigh"),
    ),
    "go1 encoders swapped": (
        "go1",
        lambda e: wired(e, swap=(("FL_hip", "FR_hip"),)),
        ("swapped", "joint_target", "FR_hip, FL_hip"),
    ),
    "go1 vel flipped": (
        "go1",
        lambda e: with_signals(e, joint_vel=label("go1", np.negative, "joint_vel", "FR_calf")),
        ("sign", "joint_vel", "FR_calf"),
    ),
    "go1 pos flipped": (
        "go1",
        lambda e: with_signals(e, joint_pos=label("go1", np.negative, "joint_pos", "RL_hip")),
        ("sign", "joint_pos", "RL_hip"),
    ),
    "go1 calf flipped with its target": (
        "go1",
        lambda e: replace(wired(e, flip=("RR_calf",)), target=e.target * np.where(np.arange(12) == 8, -1.0, 1.0)),
        ("range", "joint_pos", "RR_calf"),
    ),
    "go1 time ms": ("go1", lambda e: replace(e, time=e.time * 1000), ("unit", "time", "")),
    # Pendulum: told torques.
    "pendulum vel deg/s": ("pendulum", lambda e: wired(e, units={"joint_vel": "deg/s"}), ("unit", "joint_vel", "hinge")),
    "pendulum pos deg": ("pendulum", lambda e: wired(e, units={"joint_pos": "deg"}), ("unit", "joint_pos", "hinge")),
    "pendulum both deg": (
        "pendulum",
        lambda e: wired(e, units={"joint_pos": "deg", "joint_vel": "deg/s"}),
        ("unit", "joint_pos", ""),
    ),
    "pendulum vel flipped": ("pendulum", lambda e: with_signals(e, joint_vel=np.negative), ("sign", "joint_vel", "hinge")),
    "pendulum torque flipped": ("pendulum", lambda e: replace(e, target=-e.target), ("sign", "joint_torque", "hinge")),
    "pendulum torque mN·m": ("pendulum", lambda e: replace(e, target=1e3 * e.target), ("unit", "joint_torque", "hinge")),
    "pendulum torque small": ("pendulum", lambda e: replace(e, target=1e-3 * e.target), ("unit", "joint_torque", "hinge")),
    "pendulum upside down": (
        "pendulum",
        lambda e: with_signals(e, joint_pos=lambda v: v + np.pi),
        ("range", "joint_pos", "hinge"),
    ),
    # Crazyflie: told thrusts, and seen from outside.
    "crazyflie pos cm": ("crazyflie", lambda e: wired(e, units={"position": "cm"}), ("unit", "position", "")),
    "crazyflie vel mm/s": ("crazyflie", lambda e: wired(e, units={"velocity": "mm/s"}), ("unit", "velocity", "")),
    "crazyflie vel axes": ("crazyflie", lambda e: with_signals(e, velocity=swapped(0, 1)), ("swapped", "velocity", "x, y")),
    "crazyflie rotors": ("crazyflie", lambda e: replace(e, target=swapped(0, 2)(e.target)), ("swapped", "thrust", "m1, m3")),
    "crazyflie thrust gf": ("crazyflie", lambda e: replace(e, target=e.target / 9.80665e-3), ("unit", "thrust", "")),
}


@pytest.mark.parametrize("what", WRONG)
def test_exactly_what_is_wrong_is_refused(what):
    name, plant, expected = WRONG[what]
    said = found(name, plant(healthy(name, 1)))
    assert [f for f in said if f[3]] == [(*expected, True)]
    # A target that is the wrong way round may also be beyond its limits.
    assert {f[0] for f in said if not f[3]} <= {"limit"}


def test_vectors_in_another_frame():
    """A crazyflie that has turned by a quarter: a frame tells only where the body is turned."""
    quarter = np.array([np.cos(np.pi / 4), 0.0, 0.0, np.sin(np.pi / 4)])

    def turn(v):
        w, x, y, z = v.T
        a, _, _, d = quarter
        return np.stack([a * w - d * z, a * x - d * y, a * y + d * x, a * z + d * w], axis=1)

    world = lambda v: rotate_inverse(np.tile(quarter * [1, -1, -1, -1], (len(v), 1)), v)
    whole = with_signals(healthy("crazyflie", 1), quat=turn, position=world, velocity=world)
    assert found("crazyflie", whole) == []
    assert found("crazyflie", wired(whole, frames={"velocity": "body"})) == [("frame", "velocity", "", True)]
    assert found("crazyflie", wired(whole, frames={"gyro": "world"})) == [("frame", "gyro", "", True)]


def test_the_sentence_names_unit_and_joint():
    episode = with_signals(healthy("go1", 1), joint_vel=label("go1", lambda v: v * DEG, "joint_vel", "FL_calf"))
    (f,) = check(robot_of("go1"), [episode])
    assert f.text.startswith("joint_vel of FL_calf looks like deg/s: the integral of joint_vel is 5")


def test_all_that_is_refused_is_one_error():
    bad = with_signals(healthy("go1", 1), joint_vel=lambda v: v * np.where(np.arange(12) % 2, -1.0, 1.0))
    findings = check(robot_of("go1"), [healthy("go1", 1), bad], ["a.mcap", "b.mcap"])
    assert [f.recording for f in findings] == [1] * 6
    with pytest.raises(BadInput, match=r"b\.mcap: .*FR_thigh.* And 2 more\."):
        raise_if_refused(findings)


def test_columns_that_went_around_are_found_around():
    rng = RNG(5)
    x = np.cumsum(rng.standard_normal((600, 5)), axis=0)
    x = x - np.cumsum(x, axis=0) / np.arange(1, 601)[:, None]
    noisy = x + 0.1 * rng.standard_normal(x.shape)
    m = match_columns([(x, noisy[:, [0, 2, 3, 1, 4]])], 0.02)
    assert [sorted(c) for c in swapped_columns(m, exact=True)] == [[1, 2, 3]]
    assert swapped_columns(match_columns([(x, noisy)], 0.02), exact=True) == []


# Recordings of real robots ----------------------------------------------------------------------------------------------


def real(name: str) -> Path:
    if not (REAL / name).exists():
        pytest.skip(f"the recordings of {name} are not here")
    return REAL / name


def test_a_real_pendulum_passes_but_not_in_degrees():
    contract = robot_of("pendulum").contract
    parts = {"joint_pos": SignalColumns("q_rad", "rad"), "joint_vel": SignalColumns("qd_rad_s", "rad/s")}
    mapping = ColumnMap(TimeColumn("t_s"), parts, SignalColumns("tau_meas_Nm", "N·m"))
    files = sorted(real("dfki_simple_pendulum").glob("*.csv"))
    assert len(files) > 3
    for file in files:
        episode, _ = import_file(file, mapping, contract)
        assert not [f for f in check(robot_of("pendulum"), [episode]) if f.refused], file.name
        wrong = check(robot_of("pendulum"), [with_signals(episode, joint_vel=lambda v: v * DEG)])
        assert [(f.kind, f.signal) for f in wrong if f.refused] == [("unit", "joint_vel")], file.name
        assert "looks like deg/s" in str(next(f for f in wrong if f.refused))


def test_real_legs_in_the_air_pass_but_not_with_joints_exchanged():
    """A Go2's drives, read as a Go1's: legs in a gait, alike but for their phase."""
    contract = robot_of("go1").contract
    parts = {"joint_pos": SignalColumns("q_{label}", "rad"), "joint_vel": SignalColumns("qd_{label}", "rad/s")}
    mapping = ColumnMap(TimeColumn("t_s"), parts, SignalColumns("qcmd_{label}", "rad"), absent=("gyro", "quat", "accel"))
    episode, _ = import_file(real("go2_motor_response") / "go2_air_public.csv", mapping, contract)
    episode = episode.time_slice(0.0, 20.0)
    refused = lambda e: [(f.kind, f.signal, f.label) for f in check(robot_of("go1"), [e]) if f.refused]
    assert refused(episode) == []
    pair = "FR_thigh, FL_thigh"
    assert refused(replace(episode, target=swapped(1, 4)(episode.target))) == [("swapped", "joint_target", pair)]
    assert refused(with_signals(episode, joint_pos=swapped(1, 4))) == [("swapped", "joint_pos", pair)]
    assert refused(with_signals(episode, joint_vel=swapped(1, 4))) == [("swapped", "joint_vel", pair)]
