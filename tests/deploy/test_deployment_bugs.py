"""Deployment bugs of joints, units, frames and the wrong robot, committed on purpose, and the table of all thirty.

docs/guides/deployment-bugs.md is the table, the last test keeps it together with the tests; its other tests are in
test_export_bugs.py, test_timing_bugs.py and test_diagnosed_bugs.py.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from isthmus.data.contract import Signal
from isthmus.deploy.guard.guard import GUARD_STATES
from isthmus.deploy.guard.limits import START_TORQUE_FRACTION
from isthmus.deploy.guard.rules import Thresholds
from isthmus.deploy.links.link import Packet
from isthmus.sim.reality.tables import Faults
from support.deployments import Still, Watched, failed, fly, real, recorded
from support.paths import DOCS, TESTS
from support.virtual_robots import GO1, virtual

pytestmark = pytest.mark.usefixtures("no_hurry")


# 1, 2, 5: joints ----------------------------------------------------------------------------------------------------------


def shuffled(signal: Signal, order: np.ndarray) -> Signal:
    pick = lambda row: tuple(row[i] for i in order) if row else ()
    return replace(signal, labels=pick(signal.labels), low=pick(signal.low), high=pick(signal.high))


def test_joints_in_another_order_are_matched_by_name(walk):
    """Positions, speeds and targets each in an order of their own: every joint is told the same as before."""
    rng, old, at = np.random.default_rng(0), GO1.contract, GO1.contract.slices()
    orders = {name: rng.permutation(12) for name in ("joint_pos", "joint_vel", "joint_target")}
    to = orders["joint_target"]
    pick = lambda row: tuple(row[i] for i in to)
    rows = {name: pick(getattr(old.safety, name)) for name in ("effort", "rest", "damping")}
    contract = replace(
        old,
        signals=tuple(shuffled(s, orders[s.name]) if s.name in orders else s for s in old.signals),
        target=shuffled(old.target, to),
        gains={name: pick(row) for name, row in old.gains.items()},
        safety=replace(old.safety, **rows),
    )
    columns = np.concatenate([np.arange(old.width)[at[s.name]][orders.get(s.name, slice(None))] for s in old.signals])
    plain = real()
    other = Watched(
        virtual(),
        contract,
        say=lambda p: [replace(p, values=p.values[columns])],
        hear=lambda c: replace(c, target=c.target[np.argsort(to)]),
    )
    assert not (columns == np.arange(old.width)).all()
    a, b = fly(walk, plain, 0.5), fly(walk, other, 0.5)
    assert (a.status, b.status) == ("completed", "completed")
    assert len(plain.commands) == len(other.commands) == a.ticks
    for ours, theirs in zip(plain.commands, other.commands, strict=True):
        assert np.array_equal(ours.target[to], theirs.target)


@pytest.mark.parametrize(
    ("pair", "checks"),
    [(["FL_hip", "FL_calf"], {"range", "pose"}), (["FL_thigh", "FR_thigh"], set()), (["FL_hip", "RR_hip"], set())],
)
def test_swapped_motors_show_before_the_start_only_where_their_poses_differ(walk, pair, checks):
    assert failed(walk, real(faults={"swap": [pair]})).keys() == checks


def test_gains_of_another_joint_are_refused(walk):
    kp = dict(zip(GO1.contract.target.labels, GO1.contract.gains["kp"], strict=True))
    contract = replace(GO1.contract, gains={**GO1.contract.gains, "kp": tuple((kp | {"RL_calf": 40.0}).values())})
    found = failed(walk, Watched(virtual(), contract))
    assert found == {"contract": "gain kp of RL_calf is 35 for the controller and 40 there"}
    without = replace(GO1.contract, gains={"kp": GO1.contract.gains["kp"]})
    assert failed(walk, Watched(virtual(), without)).keys() == {"contract"}


def test_motors_that_are_much_weaker_than_they_say_end_the_ramp(walk):
    """Before the robot moves nobody can know; a little too weak stays for `isthmus diagnose`."""
    weak, nearly = real(params={"kp": 0.5}), real(params={"kp": 0.9})
    assert failed(walk, real(params={"kp": 0.5})) == {}
    assert fly(walk, weak, 0.5).reason.startswith("follow: ")
    assert weak.commands[-1].mode == "damp"
    assert fly(walk, nearly, 0.2).status == "completed"


@pytest.mark.parametrize(
    ("tables", "checks"),
    [
        ({"faults": {"flip": ["FL_calf"]}}, {"range", "pose"}),
        ({"faults": {"flip": ["FL_thigh"]}}, {"pose"}),
        ({"faults": {"flip": ["FL_hip"]}}, set()),
        ({"sensors": {"encoder_offset": {"RR_thigh": 0.9}}}, {"pose"}),
        ({"sensors": {"encoder_offset": {"RR_calf": -1.6}}}, {"range", "pose"}),
    ],
)
def test_a_wrong_zero_or_direction_shows_before_the_start_where_it_moves_the_pose(walk, tables, checks):
    """A joint whose zero is in the middle looks the same both ways: that is for `isthmus diagnose`."""
    assert failed(walk, real(**tables)).keys() == checks


def test_zero_action_holds_the_pose(walk, tmp_path):
    outcome, found = recorded(walk, real(), 0.5, tmp_path / "a.mcap")
    running = found.status["state"] == GUARD_STATES.index("run")
    assert outcome.status == "completed"
    assert np.abs(found.signals["joint_pos"][running] - GO1.default).max() < 0.3
    assert np.abs(found.target[running] - GO1.default).max() < 0.05


# 7, 8, 9, 10: units and frames ---------------------------------------------------------------------------------------------


def turned(yaw: float) -> np.ndarray:
    """Where go1 stands when it looks that way."""
    qpos = np.array(GO1.home)
    qpos[3], qpos[6] = np.cos(yaw / 2), np.sin(yaw / 2)
    return qpos


def tilted(angle: float, axis: str = "y") -> tuple[float, ...]:
    return (np.cos(angle / 2), *(np.sin(angle / 2) * (a == axis) for a in "xyz"))


def test_another_unit_in_the_contract_is_refused(walk):
    for name, unit in (("joint_vel", "deg/s"), ("gyro", "deg/s")):
        signals = tuple(replace(s, unit=unit) if s.name == name else s for s in GO1.contract.signals)
        found = failed(walk, Watched(virtual(), replace(GO1.contract, signals=signals)))
        assert found.keys() == {"contract"}
        assert (
            f"{name} has the unit '{GO1.contract[name].unit}' for the controller and '{unit}' for the robot"
            in found["contract"]
        )


@pytest.mark.parametrize(
    ("units", "checks"),
    [
        ({"joint_pos": "deg"}, {"range", "pose"}),
        ({"gyro": "deg/s"}, {"still"}),
        ({"accel": "g"}, {"gravity"}),
        ({"joint_vel": "deg/s"}, set()),
        ({"joint_target": "deg"}, set()),
    ],
)
def test_another_unit_than_the_contract_says_shows_in_what_is_not_zero_at_rest(walk, units, checks):
    assert failed(walk, real(faults={"units": units})).keys() == checks


@pytest.mark.parametrize(("units", "rule"), [({"joint_vel": "deg/s"}, "speed"), ({"joint_target": "deg"}, "follow")])
def test_another_unit_that_shows_only_in_motion_ends_in_damping(walk, units, rule):
    body = real(faults={"units": units})
    outcome = fly(walk, body, 1.0)
    assert (outcome.status, outcome.reason.split(":")[0]) == ("guard", rule)
    assert outcome.seconds == 0, "the policy never had the robot"
    assert body.commands[-1].mode == "damp"


@pytest.mark.parametrize(
    ("yaw", "checks"),
    [(0.0, set()), (0.2, set()), (0.6, {"gravity"}), (1.57, {"upright", "gravity"}), (-2.5, {"upright", "gravity"})],
)
def test_another_order_of_the_quaternion_shows_unless_the_robot_looks_along_x(walk, yaw, checks):
    """Level at heading zero, xyzw read as wxyz is level at heading π."""
    assert failed(walk, real(turned(yaw))).keys() == set()
    assert failed(walk, real(turned(yaw), faults={"quaternion": "xyzw"})).keys() == checks


def test_another_frame_in_the_contract_is_refused(walk):
    signals = tuple(replace(s, frame="world") if s.name == "gyro" else s for s in GO1.contract.signals)
    found = failed(walk, Watched(virtual(), replace(GO1.contract, signals=signals)))
    assert found == {"contract": "gyro has the frame 'body' for the controller and 'world' for the robot"}


@pytest.mark.parametrize(("angle", "checks"), [(0.0, set()), (0.1, set()), (0.4, {"gravity"}), (-0.8, {"gravity"})])
def test_an_accelerometer_in_the_worlds_frame_shows_on_a_slope(walk, angle, checks):
    assert failed(walk, Watched(Still(tilted(angle)))) == {}
    assert failed(walk, Watched(Still(tilted(angle), faults=Faults(frames={"accel": "world"})))).keys() == checks


def test_a_gyroscope_in_another_frame_cannot_be_seen_at_rest(walk):
    for yaw in (0.0, 1.57):
        assert failed(walk, real(turned(yaw), faults={"frames": {"gyro": "world"}})) == {}


@pytest.mark.parametrize(("tilt", "checks"), [(0.05, set()), (0.5, set()), (1.2, {"upright"})])
def test_an_inertial_sensor_on_a_tilted_plate_agrees_with_itself(walk, tilt, checks):
    """Orientation and accelerometer turn together; only the legs know better."""
    assert failed(walk, real(sensors={"imu_tilt": [tilt, 0.0]})).keys() == checks


CONJUGATE = np.array([1.0, -1.0, -1.0, -1.0])


@pytest.mark.parametrize(("angle", "checks"), [(0.0, set()), (0.1, set()), (0.2, {"gravity"}), (-0.5, {"gravity"})])
def test_an_orientation_the_other_way_round_shows_on_a_slope(walk, angle, checks):
    """The inverse rotation has gravity on the wrong side by twice the slope."""
    at = GO1.contract.slices()["quat"]

    def inverse(p: Packet) -> list[Packet]:
        p.values[at] *= CONJUGATE
        return [p]

    assert failed(walk, Watched(Still(tilted(angle, "x")), say=inverse)).keys() == checks


def test_gravity_with_the_wrong_sign_is_refused(walk):
    assert failed(walk, real(sensors={"accel_scale": -1.0})).keys() == {"gravity"}
    assert failed(walk, Watched(Still((0.0, 1.0, 0.0, 0.0)))).keys() == {"upright"}


# 21, 22, 23, 27: the right robot, ready ------------------------------------------------------------------------------------


def test_another_revision_of_the_model_is_refused(walk):
    found = failed(walk, real(faults={"model": "other"}))
    assert found.keys() == {"model"}
    assert f"the controller was trained with {GO1.model_hash[:12]}" in found["model"]


def test_a_built_in_controller_that_is_still_on_is_refused(walk):
    assert failed(walk, real(faults={"mode": "busy"})) == {"mode": "busy: switch its built-in controller off"}


def crouched(depth: float) -> np.ndarray:
    """go1 with its thighs and calves bent further, on its feet."""
    qpos = np.array(GO1.home)
    qpos[8::3] += depth
    qpos[9::3] -= 2 * depth
    legs = lambda a: 0.213 * (np.cos(a[0]) + np.cos(a[0] + a[1]))
    qpos[2] -= legs(qpos[8:10] - [depth, -2 * depth]) - legs(qpos[8:10])
    return qpos


def test_a_pose_far_from_the_start_is_refused(walk):
    assert failed(walk, real(crouched(0.3))) == {}
    stretched = np.array(GO1.home)
    stretched[8::3], stretched[2] = -0.6, 0.5
    assert "pose" in failed(walk, real(stretched))


def test_a_robot_that_lies_stands_up_before_the_policy_takes_over(walk, tmp_path):
    """As it does after every run: the next one starts from where the last one left it."""
    body = real()
    for name in "ab":
        outcome, found = recorded(walk, body, 0.2, tmp_path / f"{name}.mcap")
        assert outcome.status == "completed", outcome.reason
    first = int(np.nonzero(found.status["state"] == GUARD_STATES.index("run"))[0][0])
    assert np.abs(found.signals["joint_pos"][0] - GO1.default).max() > 0.9
    assert np.abs(found.signals["joint_pos"][first] - GO1.default).max() < 0.4
    assert np.abs(np.diff(found.target[:first], axis=0)).max() * GO1.contract.rate < 2 * Thresholds.ramp_speed


def test_the_way_to_the_start_pose_is_a_ramp_within_the_torque_of_the_motors(walk, tmp_path):
    """kp (u - q) - kd q̇, predicted from what the robot said, for every command that was sent."""
    outcome, found = recorded(walk, real(crouched(0.4)), 0.2, tmp_path / "a.mcap")
    assert outcome.status == "completed"
    q, qd = found.signals["joint_pos"], found.signals["joint_vel"]
    kp, kd, effort = GO1.contract.gains["kp"], GO1.contract.gains["kd"], np.array(GO1.contract.safety.effort)
    gap = np.abs(q[0] - GO1.default).max()
    assert gap > 0.4
    share = np.abs(kp * (found.target - q) - kd * qd) / effort
    assert share.max() <= 1.0 + 1e-9
    assert (np.abs(kp * (found.target[0] - q[0])) <= (START_TORQUE_FRACTION + 0.05) * effort).all()
    ramp = found.status["state"] == GUARD_STATES.index("ramp")
    assert ramp.sum() >= 0.5 * GO1.contract.rate
    assert np.abs(np.diff(found.target[ramp], axis=0)).max() < 0.05


@pytest.mark.parametrize(("offset", "checks"), [(0.1, set()), (0.3, set()), (1.0, {"pose"})])
def test_an_encoder_that_is_off_by_a_little_cannot_be_told_from_a_pose(walk, offset, checks):
    assert failed(walk, real(sensors={"encoder_offset": {"FL_thigh": offset}})).keys() == checks


# The table -------------------------------------------------------------------------------------------------------------------

GUIDE = DOCS / "guides" / "deployment-bugs.md"
BESIDE = ("test_export_bugs.py", "test_timing_bugs.py")
"""Whose tests are all of them of the table, as those of this file are."""
VERDICTS = ("impossible", "caught at export", "caught at preflight", "caught by the guard", "diagnosed")


def rows() -> list[tuple[str, str, str]]:
    """Number, bug and verdict, of the table."""
    return re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", GUIDE.read_text(), re.M)


def told() -> dict[str, tuple[str, str, str]]:
    """By number: the headline below the table, why, and what is said of tests."""
    parts = re.findall(r"^### (\d+)\. (.+)\n\n((?:.+\n)+)\nTests:\n\n((?:- .+\n)+)", GUIDE.read_text(), re.M)
    return {number: (bug, why, tests) for number, bug, why, tests in parts}


def named(file: str) -> Path:
    """The file of that name, in whichever folder of the tests."""
    (path,) = TESTS.rglob(file)
    return path


@cache
def functions_of(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_the_table_has_thirty_rows_each_with_a_verdict_and_tests_that_exist():
    table, below = rows(), told()
    assert [row[0] for row in table] == [str(i) for i in range(1, 31)]
    here, cited = Path(__file__), set()
    for number, bug, verdict in table:
        headline, why, tests = below[number]
        assert headline.lower() == bug.lower(), number
        assert verdict in VERDICTS, (number, verdict)
        assert why.lower().startswith(f"*{verdict}.* "), number
        names = re.findall(r"`((?:test_\w+\.py::)?test_\w+)`", tests)
        assert names, f"row {number} names no test"
        for name in names:
            file, _, function = name.rpartition("::")
            path = named(file) if file else here
            assert function in functions_of(path), f"row {number}: {name} does not exist"
            cited.add((path.name, function))
    files = (here.name, *BESIDE)
    own = {(file, name) for file in files for name in functions_of(named(file)) if name.startswith("test_")}
    assert own - cited == {(here.name, "test_the_table_has_thirty_rows_each_with_a_verdict_and_tests_that_exist")}
