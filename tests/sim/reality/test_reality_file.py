"""Laws of the reality file: it survives a round trip, and what makes no sense is refused in a sentence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.errors import BadInput
from isthmus.robots import ROBOTS
from isthmus.sim.reality import Reality

EXAMPLE = b"""
robot = "go1"
seed = 7
[params]
foot_friction = 0.42
payload = 2.5
action_delay = 0.018
[unmodelled]
backlash = 0.015
stribeck = { static = 1.2, coulomb = 0.7, velocity = 0.3 }
battery_sag = 0.2
ground_softness = 0.02
drag = 3.0
heating = 0.3
flex = 900.0
cable = { force = 5, slack = 0.5 }
[faults]
swap = [["FL_hip", "FR_hip"]]
flip = ["RR_thigh"]
quaternion = "xyzw"
units = { joint_pos = "deg" }
frames = { gyro = "world" }
drop = 0.05
duplicate = 0.01
reorder = 0.02
delay = { extra = 0.01, jitter = 0.004 }
clock_jump = { at = 3.0, by = -1.5 }
mode = "busy"
model = "other"
[sensors]
gyro_bias = [0.02, 0.0, -0.01]
accel_drift = 0.1
quat_noise = 0.01
gyro_scale = { z = 1.1 }
encoder_offset = { FL_calf = 0.05 }
imu_tilt = [0.05, -0.02]
"""
FLYING = b"""
robot = "crazyflie"
[unmodelled]
drag = 0.02
rotor_drag = 0.03
ground_effect = 0.1
thrust_asymmetry = { m1 = 0.9, m3 = 1.05 }
battery_sag = { loss = 0.3, seconds = 60 }
[faults]
frames = { velocity = "body" }
"""


@pytest.fixture(scope="module")
def catalogue():
    return {name: make() for name, make in ROBOTS.items()}


@pytest.mark.parametrize("text", [EXAMPLE, FLYING, b'robot = "go1"'])
def test_a_reality_survives_the_round_trip_to_its_file(text, tmp_path, catalogue):
    reality = Reality.from_toml(text)
    reality.check(catalogue[reality.robot])
    reality.save(tmp_path / "real.toml")
    again = Reality.load(tmp_path / "real.toml")
    assert again == reality
    assert again.hash == reality.hash
    assert Reality.from_dict(reality.to_dict()) == reality


def test_the_hash_is_of_what_differs(catalogue):
    plain = Reality("go1")
    assert Reality("go1", params={}).hash == plain.hash
    assert Reality.from_dict({"robot": "go1", "faults": {"drop": 0.0}}).hash == plain.hash
    assert Reality("go1", seed=1).hash != plain.hash
    assert Reality("go1", params={"payload": 1.0}).hash != plain.hash


def test_params_reach_e_and_nothing_else(catalogue):
    robot = catalogue["go1"]
    e = Reality.from_toml(EXAMPLE).e(robot)
    want = {"ground_friction": 0.42, "payload": 2.5, "action_delay": 0.018}
    changed = {robot.space.names[i] for i in np.flatnonzero(e != robot.space.nominal)}
    assert changed == set(want)
    assert [e[robot.space.index(name)] for name in want] == list(want.values())


BAD = {
    "params": [
        ({"paylod": 1.0}, "payload"),
        ({"payload": 99.0}, "hard bounds"),
        ({"payload": "heavy"}, "number"),
        ({"payload": float("nan")}, "finite"),
        ({"ground_friction": 0.4, "foot_friction": 0.4}, "twice"),
    ],
    "unmodelled": [
        ({"backlush": 0.1}, "backlash"),
        ({"backlash": -0.1}, "backlash must be"),
        ({"rotor_drag": 0.1}, "rotor_drag makes no sense for go1"),
        ({"ground_effect": 0.1}, "ground_effect makes no sense for go1"),
        ({"thrust_asymmetry": {"m1": 0.9}}, "thrust_asymmetry makes no sense for go1"),
        ({"stribeck": {"static": 0.5, "coulomb": 1.0, "velocity": 0.1}}, "static friction"),
        ({"stribeck": {"static": 0.5}}, "lacks"),
        ({"flex": 1e5}, "too stiff"),
        ({"battery_sag": 2.0}, "battery_sag"),
        ({"battery_sag": {"loss": 0.2, "second": 3}}, "seconds"),
        ({"cable": 5.0}, "table"),
    ],
    "faults": [
        ({"swap": [["FL_hip", "FR_hop"]]}, "FR_hip"),
        ({"swap": [["FL_hip", "FL_hip"]]}, "twice"),
        ({"swap": [["FL_hip", "FR_hip"], ["FR_hip", "RR_hip"]]}, "twice"),
        ({"flip": ["RR_tigh"]}, "RR_thigh"),
        ({"flip": ["x"]}, "unknown joint"),
        ({"quaternion": "wzyx"}, "quaternion"),
        ({"units": {"joint_poss": "deg"}}, "joint_pos"),
        ({"units": {"joint_pos": "kg"}}, "kg"),
        ({"frames": {"joint_pos": "world"}}, "not a vector"),
        ({"frames": {"gyro": "moon"}}, "moon"),
        ({"drop": 1.5}, "drop"),
        ({"delay": -1.0}, "delay"),
        ({"mode": "lazy"}, "busy"),
    ],
    "sensors": [
        ({"giro_bias": 0.1}, "gyro"),
        ({"gyro_bias": [0.1, 0.2]}, "3 numbers"),
        ({"gyro_bias": {"w": 0.1}}, "component"),
        ({"gyro_drift": -0.1}, "gyro_drift"),
        ({"bias": {"gyro": 0.1}}, "gyro_bias"),
        ({"encoder_offset": {"FL_calv": 0.1}}, "FL_calf"),
        ({"imu_tilt": [0.1]}, "2 entries"),
        ({"imu_tlt": [0.1, 0.1]}, "imu_tilt"),
    ],
}


@pytest.mark.parametrize(("table", "data", "word"), [(t, d, w) for t, rows in BAD.items() for d, w in rows])
def test_what_is_wrong_is_named(table, data, word, catalogue):
    with pytest.raises(BadInput, match=word) as error:
        Reality.from_dict({"robot": "go1", table: data}).check(catalogue["go1"])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("robot", "table", "data", "word"),
    [
        ("crazyflie", "unmodelled", {"ground_softness": 0.01}, "no feet"),
        ("crazyflie", "unmodelled", {"backlash": 0.01}, "do not drive joints"),
        ("crazyflie", "unmodelled", {"thrust_asymmetry": {"m5": 0.9}}, "unknown motor"),
        ("crazyflie", "faults", {"flip": ["m1"]}, "cannot push"),
        ("pendulum", "unmodelled", {"drag": 1.0}, "no base"),
        ("pendulum", "sensors", {"imu_tilt": [0.1, 0.0]}, "none of"),
        ("pendulum", "faults", {"quaternion": "xyzw"}, "sends none"),
        ("cartpole", "unmodelled", {"flex": 50.0}, "armature"),
        ("cartpole", "faults", {"swap": [["slider", "hinge"]]}, "cannot be swapped"),
    ],
)
def test_what_makes_no_sense_for_a_robot_is_refused(robot, table, data, word, catalogue):
    with pytest.raises(BadInput, match=word):
        Reality.from_dict({"robot": robot, table: data}).check(catalogue[robot])


def test_physics_that_stands_in_for_a_parameter_excludes_it(catalogue):
    friction = {"stribeck": {"static": 1.0, "coulomb": 0.5, "velocity": 0.1}}
    for param, value, law in (("joint_friction", 0.3, friction), ("contact_time", 0.02, {"ground_softness": 0.01})):
        both = Reality.from_dict({"robot": "go1", "params": {param: value}, "unmodelled": law})
        with pytest.raises(BadInput, match=param):
            both.check(catalogue["go1"])


def test_a_reality_is_one_of_its_robot_only(catalogue, tmp_path):
    with pytest.raises(BadInput, match="pendulum"):
        Reality("pendulum").check(catalogue["go1"])
    with pytest.raises(BadInput, match="robot"):
        Reality.from_dict({})
    with pytest.raises(BadInput, match="seed"):
        Reality("go1", seed=-1)
    with pytest.raises(BadInput, match="cannot read"):
        Reality.load(tmp_path / "none.toml")
    with pytest.raises(BadInput, match="TOML"):
        Reality.from_toml(b"robot = ")
    with pytest.raises(BadInput, match="TOML"):
        Reality.from_toml(b"\xff\xfe")


WORDS = """params unmodelled faults sensors payload backlash flex stribeck cable drop swap flip units frames delay quaternion
gyro_bias encoder_offset imu_tilt battery_sag static coulomb velocity loss FL_hip gyro joint_pos clock_jump at by"""
NAMES = st.sampled_from(WORDS.split()) | st.text(max_size=4)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["deg", "world"])
TREES = st.recursive(LEAVES, lambda x: st.lists(x, max_size=3) | st.dictionaries(NAMES, x, max_size=3), max_leaves=8)


@given(st.dictionaries(NAMES, TREES, max_size=4))
def test_any_table_is_a_reality_or_bad_input(catalogue, data):
    try:
        reality = Reality.from_dict({"robot": "go1"} | data)
        reality.check(catalogue["go1"])
    except BadInput:
        return
    assert Reality.from_toml(reality.to_toml().encode()) == reality


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_text_is_a_reality_or_bad_input(text):
    try:
        Reality.from_toml(b'robot = "go1"\n' + text)
    except BadInput:
        return
