"""Laws of wiring faults, of the network and of sensor errors."""

from __future__ import annotations

import numpy as np
import pytest

from isthmus.core.geometry import from_rotation_vector
from isthmus.robots import ROBOTS
from isthmus.sim.reality import Reality, real_simulation
from isthmus.sim.reality.network import Channel
from isthmus.sim.reality.sensor_errors import SensorErrors
from isthmus.sim.reality.tables import Faults
from isthmus.sim.reality.wiring_faults import AttachedWiring, WiringFaults

GO1, CRAZYFLIE, CARTPOLE = ROBOTS["go1"](), ROBOTS["crazyflie"](), ROBOTS["cartpole"]()
RNG = np.random.default_rng(0)


def wires(robot=GO1, **faults) -> WiringFaults:
    return WiringFaults(Reality.from_dict({"robot": robot.name, "faults": faults}).faults, robot.contract)


def signals(robot=GO1, n: int = 5) -> np.ndarray:
    rows = np.random.default_rng(1).standard_normal((n, robot.contract.width))
    quat = rows[:, robot.contract.slices()["quat"]]
    quat /= np.linalg.norm(quat, axis=1, keepdims=True)
    return rows


def at(robot, name: str, label: str) -> int:
    return robot.contract.slices()[name].start + robot.contract[name].component_index(label)


# Wiring --------------------------------------------------------------------------------------------------------------


def test_without_faults_nothing_changes():
    x, u = signals(), RNG.standard_normal((5, 12))
    assert np.array_equal(wires().signals(x), x)
    assert np.array_equal(wires().target(u), u)


@pytest.mark.parametrize("faults", [{"swap": [["FL_hip", "FR_hip"]]}, {"flip": ["RR_thigh"]},
    {"swap": [["FL_hip", "RR_calf"], ["RL_calf", "FR_hip"]], "flip": ["FL_hip", "RR_calf"]}])  # fmt: skip
def test_swaps_and_flips_undo_themselves_and_act_on_signals_and_targets_alike(faults):
    w, x, u = wires(**faults), signals(), RNG.standard_normal((5, 12))
    assert not np.array_equal(w.signals(x), x)
    assert not np.array_equal(w.target(u), u)
    assert np.array_equal(w.signals(w.signals(x)), x)
    assert np.array_equal(w.target(w.target(u)), u)
    where = GO1.contract.slices()
    x[:, where["joint_pos"]] = u
    assert np.array_equal(w.signals(x)[:, where["joint_pos"]], w.target(u)), "a robot told a pose reports that pose"
    others = ("gyro", "quat", "accel")
    for name in others:
        assert np.array_equal(w.signals(x)[:, where[name]], x[:, where[name]])


def test_a_swapped_joint_answers_for_the_other():
    x = signals()
    seen = wires(swap=[["FL_hip", "FR_hip"]]).signals(x)
    for name in ("joint_pos", "joint_vel"):
        assert np.array_equal(seen[:, at(GO1, name, "FL_hip")], x[:, at(GO1, name, "FR_hip")])
    u = np.zeros((1, 12))
    u[0, GO1.contract.target.component_index("FL_hip")] = 0.3
    told = wires(swap=[["FL_hip", "FR_hip"]]).target(u)
    assert told[0, GO1.contract.target.component_index("FR_hip")] == 0.3
    assert np.abs(told).sum() == 0.3


def test_an_encoder_without_a_motor_can_be_flipped_too():
    x = np.arange(1.0, 5.0)[None]
    w = wires(CARTPOLE, flip=["hinge"])
    assert w.signals(x).tolist() == [[1.0, 2.0, -3.0, -4.0]]
    assert w.target(np.ones((1, 1))).tolist() == [[1.0]]
    assert wires(CARTPOLE, flip=["slider"]).signals(x).tolist() == [[-1.0, -2.0, 3.0, 4.0]]


def test_the_quaternion_comes_in_another_order():
    x, where = signals(), GO1.contract.slices()["quat"]
    w = wires(quaternion="xyzw")
    seen = w.signals(x)
    assert np.array_equal(seen[:, where], x[:, where][:, [1, 2, 3, 0]])
    for _ in range(3):
        seen = w.signals(seen)
    assert np.array_equal(seen, x), "four times is once around"


def test_units_scale_what_is_sent_and_what_is_understood():
    x = signals()
    seen = wires(units={"joint_pos": "deg"}).signals(x)
    where = GO1.contract.slices()["joint_pos"]
    assert seen[:, where] == pytest.approx(np.degrees(x[:, where]), rel=1e-12)
    u = RNG.standard_normal((1, 12))
    assert wires(units={"joint_target": "deg"}).target(u) == pytest.approx(np.radians(u), rel=1e-12), (
        "1 rad is read as 1 degree"
    )


def test_frames_turn_with_the_body_and_back():
    where = CRAZYFLIE.contract.slices()
    x = signals(CRAZYFLIE)
    seen = wires(CRAZYFLIE, frames={"velocity": "body", "gyro": "world"}).signals(x)
    for name in ("velocity", "gyro"):
        assert not np.allclose(seen[:, where[name]], x[:, where[name]])
        assert np.linalg.norm(seen[:, where[name]], axis=1) == pytest.approx(np.linalg.norm(x[:, where[name]], axis=1))
    turned = x.copy()
    turned[0, where["quat"]] = [np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)]
    turned[0, where["velocity"]] = [1.0, 0.0, 0.0]
    turned[0, where["gyro"]] = [1.0, 0.0, 0.0]
    seen = wires(CRAZYFLIE, frames={"velocity": "body", "gyro": "world"}).signals(turned)[0]
    assert seen[where["velocity"]] == pytest.approx([0.0, -1.0, 0.0], abs=1e-12), "facing left, forward motion is to the right"
    assert seen[where["gyro"]] == pytest.approx([0.0, 1.0, 0.0], abs=1e-12)
    same = wires(CRAZYFLIE, frames={"velocity": "world", "gyro": "body"})
    assert np.array_equal(same.signals(x), x), "the frames of the contract are no fault"


# Network -------------------------------------------------------------------------------------------------------------


def through(n: int = 4000, **faults) -> list[tuple[float, int]]:
    """Send 0 … n - 1, one per 2 ms; when each came out."""
    channel: Channel[int] = Channel(Reality.from_dict({"robot": "go1", "faults": faults}).faults, np.random.default_rng(3))
    out = []
    for i in range(n + 50):
        if i < n:
            channel.send(i, i * 0.002)
        out += [(i * 0.002, item) for item in channel.arrivals(i * 0.002)]
    return out


def test_a_perfect_network_passes_everything_at_once():
    assert through(100) == [(i * 0.002, i) for i in range(100)]


@pytest.mark.parametrize("p", [0.05, 0.4])
def test_drops_come_with_their_probability_and_independently(p):
    got = [i for _, i in through(drop=p)]
    lost = np.ones(4000, dtype=bool)
    lost[got] = False
    assert got == sorted(set(got))
    spread = 4 * np.sqrt(p * (1 - p) / 4000)
    assert lost.mean() == pytest.approx(p, abs=spread)
    assert (lost[1:] & lost[:-1]).mean() == pytest.approx(p * p, abs=4 * p / np.sqrt(4000))
    assert not through(100, drop=1.0)


def test_duplicates_come_twice_in_a_row():
    got = np.array([i for _, i in through(duplicate=0.2)])
    values, counts = np.unique(got, return_counts=True)
    assert len(values) == 4000
    assert set(counts) == {1, 2}
    assert (counts == 2).mean() == pytest.approx(0.2, abs=0.03)
    assert (np.diff(got) >= 0).all()


def test_reordered_packets_are_overtaken_by_exactly_one():
    got = np.array([i for _, i in through(reorder=0.2)])
    late = np.diff(got) < 0
    assert late.mean() == pytest.approx(0.2 / 1.2, abs=0.03)
    assert (np.abs(got[:3900] - np.arange(3900)) <= 1).all()
    assert len(set(got.tolist())) >= 3999


def test_a_delay_is_kept_and_nothing_overtakes():
    got = through(delay={"extra": 0.011, "jitter": 0.008})
    wait = np.array([t - i * 0.002 for t, i in got])
    assert [i for _, i in got] == list(range(4000))
    assert wait.min() >= 0.011 - 1e-9
    assert wait.max() <= 0.019 + 0.002
    assert np.ptp(wait) > 0.004
    assert {round(t - i * 0.002, 6) for t, i in through(delay=0.01)} == {0.01}


def test_faults_of_the_network_keep_their_defaults():
    assert Channel(Faults(), np.random.default_rng(0)).perfect
    assert not Channel(Faults(delay=0.001), np.random.default_rng(0)).perfect


# Sensors -------------------------------------------------------------------------------------------------------------


def errors(robot=GO1, n: int = 1, **table) -> SensorErrors:
    return SensorErrors(Reality.from_dict({"robot": robot.name, "sensors": table}).sensors, robot, n)


def test_bias_scale_and_offset_act_where_they_should():
    x = signals()
    seen = errors(gyro_bias=[0.1, 0.0, -0.2], gyro_scale={"z": 2.0}, encoder_offset={"FL_calf": 0.05}, accel_bias=1.0).add(
        x, 0.002, RNG
    )
    want = x.copy()
    want[:, at(GO1, "gyro", "z")] *= 2.0
    want[:, at(GO1, "gyro", "x")] += 0.1
    want[:, at(GO1, "gyro", "z")] -= 0.2
    want[:, at(GO1, "joint_pos", "FL_calf")] += 0.05
    want[:, GO1.contract.slices()["accel"]] += 1.0
    assert seen == pytest.approx(want)


def test_noise_has_its_spread_and_is_fresh():
    e, x = errors(n=3000, gyro_noise={"y": 0.3}), np.zeros((3000, GO1.contract.width))
    first, second = (e.add(x, 0.002, RNG)[:, at(GO1, "gyro", "y")] for _ in range(2))
    assert first.std() == pytest.approx(0.3, rel=0.06)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.08
    assert not e.add(x, 0.002, RNG)[:, at(GO1, "gyro", "x")].any()


def test_drift_grows_with_the_root_of_time_whatever_the_step():
    for elapsed, steps in ((0.002, 1000), (0.02, 100)):
        e, x = errors(n=2000, gyro_drift=0.1), np.zeros((2000, GO1.contract.width))
        half = None
        for k in range(steps):
            seen = e.add(x, elapsed, RNG)[:, at(GO1, "gyro", "x")]
            half = seen if k == steps // 4 - 1 else half
        assert seen.std() == pytest.approx(0.1 * np.sqrt(2.0), rel=0.08)
        assert half.std() == pytest.approx(0.1 * np.sqrt(0.5), rel=0.08)
    e.reset(np.arange(2000))
    assert not e.bias_walk.any()


def test_a_tilted_sensor_sees_the_same_world_from_another_side():
    from isthmus.core.geometry import rotate

    tilt = (0.3, -0.2)
    x, where = signals(), GO1.contract.slices()
    seen = errors(imu_tilt=list(tilt)).add(x, 0.002, RNG)
    for name in ("gyro", "accel"):
        inside = rotate(seen[:, where["quat"]], seen[:, where[name]])
        assert inside == pytest.approx(rotate(x[:, where["quat"]], x[:, where[name]])), "a vector of the world stays one"
    level = np.zeros((1, GO1.contract.width))
    level[0, where["quat"]] = [1, 0, 0, 0]
    assert errors(imu_tilt=list(tilt)).add(level, 0.002, RNG)[0, where["quat"]] == pytest.approx(
        from_rotation_vector(np.array([*tilt, 0.0]))
    )
    assert 2 * np.arccos(from_rotation_vector(np.array([*tilt, 0.0]))[0]) == pytest.approx(np.hypot(*tilt))
    assert from_rotation_vector(np.zeros(3)) == pytest.approx([1, 0, 0, 0])


def test_the_engine_passes_targets_and_signals_through_the_wires():
    quiet = {p.name: 0.0 for p in GO1.space.params if p.name.endswith("_noise")}
    plain = real_simulation(GO1, Reality.from_dict({"robot": "go1", "params": quiet}), threads=1)
    swapped = real_simulation(
        GO1, Reality.from_dict({"robot": "go1", "params": quiet, "faults": {"swap": [["FL_hip", "FR_hip"]]}}), threads=1
    )
    u = np.array([GO1.default])
    u[0, GO1.contract.target.component_index("FL_hip")] = 0.2
    told = swapped.part(AttachedWiring).faults.target(u)
    for _ in range(30):
        plain.step(told)
        swapped.step(u)
    assert np.array_equal(plain.qpos, swapped.qpos)
    assert np.array_equal(swapped.signals(RNG), swapped.part(AttachedWiring).faults.signals(plain.signals(RNG)))
