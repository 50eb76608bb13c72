"""What the contract of a foreign robot says for its guard: units, limits of some joints, safety from model and config."""

from __future__ import annotations

import json
from dataclasses import replace

import mujoco
import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.data.contract import NO_LIMIT, Contract, Signal
from isthmus.deploy.guard.guard import Guard
from isthmus.deploy.guard.limits import SafetyLimits
from isthmus.deploy.guard.rules import Thresholds
from isthmus.robots import get_robot
from isthmus.robots.from_model.config import Config, SafetyConfig
from isthmus.robots.from_model.read_model import max_speeds_of, signals_of
from isthmus.sim.simulation import Simulation
from support.menagerie import ROOT, needs_menagerie

MIXED = """<mujoco><compiler angle="radian"/><option timestep="0.002"/><worldbody>
  <body pos="0 0 1"><joint name="rail" type="slide" axis="1 0 0" range="-1 1" limited="true"/>
    <geom type="box" size=".1 .1 .1"/>
    <body><joint name="spin" axis="0 0 1"/><geom type="capsule" size=".03" fromto="0 0 0 .3 0 0"/>
      <body pos=".3 0 0"><joint name="bend" axis="0 1 0" range="-2 2" limited="true" actuatorfrcrange="-4 4"/>
        <geom type="capsule" size=".03" fromto="0 0 0 .3 0 0"/>
        <body pos=".3 0 0"><joint name="loose" axis="0 1 0"/><geom size=".05"/></body></body></body></body>
  </worldbody><actuator><motor joint="rail" ctrlrange="-50 50" ctrllimited="true"/><motor joint="spin"/><motor joint="bend"/>
  </actuator></mujoco>"""
GAINS = "kp = { rail = 900, '.*' = 30 }\nkd = { rail = 60, '.*' = 1 }\n"


@pytest.fixture(autouse=True)
def _root(monkeypatch):
    monkeypatch.setenv("MENAGERIE_ROOT", str(ROOT))


@pytest.fixture
def mixed(tmp_path):
    """A robot on a rail with one motor without limits and one joint without motor, with more config if wanted."""

    def made(config: str = GAINS):
        (tmp_path / "mixed.xml").write_text(MIXED)
        (tmp_path / "mixed.toml").write_text(f'model = "mixed.xml"\n{config}')
        return get_robot(str(tmp_path / "mixed.toml"))

    return made


# Units ---------------------------------------------------------------------------------------------------------------


def test_one_unit_is_for_all_and_a_list_has_one_for_each():
    assert Signal("q", "rad", ("a", "b")).units == ("rad", "rad")
    assert Signal("q", "m, rad", ("a", "b")).units == ("m", "rad")
    assert Signal("q", "m,rad ,  rad", ("a", "b", "c")).units == ("m", "rad", "rad")
    for unit, labels in (("m, rad", ("a", "b", "c")), ("m, rad", ("a",)), ("rad,", ("a", "b", "c"))):
        with pytest.raises(BadInput, match=rf"'q' has {len(labels)} labels but 2 units"):
            Signal("q", unit, labels)


def test_a_joint_without_motor_does_not_cost_the_others_their_pose(mixed):
    contract = mixed().contract
    assert contract["joint_pos"].unit == "m, rad, rad, rad"
    assert contract.target.unit == "m, rad, rad"
    assert contract.has_joint_targets
    limits = SafetyLimits(contract, Thresholds.for_contract(contract))
    assert limits.pose(np.arange(float(contract.width))).tolist() == [0.0, 1.0, 2.0]


def test_units_are_compared_by_label():
    q = Signal("joint_pos", "rad, m", ("bend", "rail"))
    swapped = Signal("joint_target", "m, rad", ("rail", "bend"))
    assert Contract("r", 50.0, (q,), swapped).has_joint_targets
    assert not Contract("r", 50.0, (q,), replace(swapped, unit="rad, m")).has_joint_targets
    assert not Contract("r", 50.0, (q,), replace(swapped, labels=("rail", "wrist"))).has_joint_targets
    assert not Contract("r", 50.0, (Signal("joint_vel", "rad", ("bend",)),), Signal("u", "rad", ("bend",))).has_joint_targets


def test_gains_for_joints_that_are_measured_otherwise_are_refused():
    q, u = Signal("joint_pos", "rad", ("a", "b")), Signal("joint_target", "rad", ("a", "b"))
    kp = {"kp": (1.0, 1.0)}
    Contract("r", 50.0, (q,), u, kp)
    with pytest.raises(BadInput, match=r"gain kp for 'b' in 'm', but in joint_pos that joint is measured in 'rad'"):
        Contract("r", 50.0, (q,), replace(u, unit="rad, m"), kp)
    with pytest.raises(BadInput, match=r"gain kp for 'b' in 'rad', but in joint_pos that joint is not measured"):
        Contract("r", 50.0, (replace(q, labels=("a", "c")),), u, kp)
    Contract("r", 50.0, (Signal("quat", "1", tuple("wxyz")),), u, kp)  # hobby servos: no encoders at all


# Limits --------------------------------------------------------------------------------------------------------------


def test_a_joint_without_limits_leaves_the_others_theirs(mixed):
    contract = mixed().contract
    q = contract["joint_pos"]
    assert q.low == (-1.0, -NO_LIMIT, -2.0, -NO_LIMIT)
    assert q.high == (1.0, NO_LIMIT, 2.0, NO_LIMIT)
    assert contract.target.high == (1.0, NO_LIMIT, 2.0)
    assert contract.safety.effort == (50.0, NO_LIMIT, 4.0)
    assert contract["joint_vel"].high == (), "nobody knows"


def test_limits_of_some_joints_are_guarded_and_no_limit_is_none(mixed):
    contract = mixed().contract
    limits, still = SafetyLimits(contract, Thresholds.for_contract(contract)), np.zeros(contract.width)
    assert limits.violated_rules(still) == {}
    far = still.copy()
    far[1] = 300.0
    assert limits.violated_rules(far) == {}, "spin may turn as it likes"
    far[2] = 2.5
    assert "bend" in limits.violated_rules(far)["position"]
    out, said = limits.nearest_safe_target(np.array([9.0, 300.0, 9.0]), np.zeros(3), still)
    assert out.tolist() == pytest.approx([50 / 900, 300.0, 4 / 30])
    assert set(said) == {"limit", "torque"}


def test_a_contract_without_limits_survives_json_and_keeps_its_hash(mixed):
    robot = mixed(GAINS + "[safety]\nspeed = 3\nrest = { bend = 0.5 }\n")
    text = json.dumps(robot.contract.to_dict(), allow_nan=False)
    back = Contract.from_dict(json.loads(text))
    assert back == robot.contract
    assert back.hash == robot.contract.hash == mixed(GAINS + "[safety]\nspeed = 3\nrest = { bend = 0.5 }\n").contract.hash
    assert back.hash != mixed().contract.hash


def test_speed_is_the_configs_else_the_motors():
    given = Config("m", safety=SafetyConfig(speed={"b": 2.0}))
    assert max_speeds_of(("a", "b", "c"), given, {"a": 7.0, "b": 7.0}) == (7.0, 2.0, NO_LIMIT)


def test_a_motors_no_load_speed_limits_the_measured_one(mixed):
    robot = mixed()
    signals, _ = signals_of(robot.model, ("rail", "spin", "bend", "loose"), "", Config("m"), {"spin": 6.0})
    vel = next(s for s in signals if s.name == "joint_vel")
    assert vel.high == (NO_LIMIT, 6.0, NO_LIMIT, NO_LIMIT)
    assert vel.low == tuple(-x for x in vel.high)


# The table 'safety' --------------------------------------------------------------------------------------------------


def test_figures_of_the_config_come_first_and_the_rest_is_estimated(mixed):
    plain = mixed().contract.safety
    robot = mixed(
        f"{GAINS}[safety]\nrest = {{ bend = 0.5 }}\ndamping = {{ spin = 7, 'ra.*' = 8 }}\n"
        "effort = { spin = 5 }\nspeed = { '.*' = 3, rail = 1 }\n"
    )
    safety, vel = robot.contract.safety, robot.contract["joint_vel"]
    assert safety.rest == (0.0, 0.0, 0.5)
    assert safety.damping == (8.0, 7.0, plain.damping[2])
    assert safety.effort == (50.0, 5.0, 4.0)
    assert (vel.low, vel.high) == ((-1.0, -3.0, -3.0, -3.0), (1.0, 3.0, 3.0, 3.0))
    guard = Guard(robot.contract, np.array(robot.default))
    fast = np.zeros(robot.contract.width)
    fast[robot.contract.slices()["joint_vel"].start + 3] = 4.5
    assert "loose" in guard.limits.violated_rules(fast)["speed"]
    out, said = guard.limits.nearest_safe_target(np.array([0.0, 1.0, 0.0]), np.zeros(3), np.zeros(robot.contract.width))
    assert out[1] == pytest.approx(3.0 / robot.contract.rate)
    assert "jump" in said


def test_estimated_damping_is_calm_for_motors_and_servos(mixed):
    """Every joint has some, and under it the explicit steps of a loop on board, 2 ms each, shrink any joint speed."""
    for config in (GAINS, ""):
        robot = mixed(config)
        damping = np.array(robot.contract.safety.damping)
        assert (damping > 0).all()
        engine = Simulation(robot, 1, threads=1)
        v = [robot.model.joint(label).dofadr[0] for label in robot.contract.target.labels]
        model, data = engine.engine.get_model(0), engine.engine.get_data(0)
        for pose in np.random.default_rng(0).uniform(-1, 1, (20, robot.model.nq)):
            data.qpos[:] = pose
            mujoco.mj_forward(model, data)
            mass = np.zeros((model.nv, model.nv))
            mujoco.mj_fullM(model, data, mass)
            rates = np.linalg.eigvals(np.linalg.inv(mass)[np.ix_(v, v)] @ np.diag(damping)).real
            assert 0 < rates.min() <= rates.max() < 2 / 0.002


@needs_menagerie
def test_what_stands_has_a_tilt_limit_and_what_flies_has_none(tmp_path):
    (tmp_path / "go2.toml").write_text('model = "menagerie:unitree_go2"\n[safety]\ntilt = 0.6\n')
    assert get_robot("menagerie:unitree_go2").contract.safety.tilt == 1.0
    assert get_robot("menagerie:unitree_g1").contract.safety.tilt == 1.0
    assert get_robot("menagerie:skydio_x2").contract.safety.tilt == 0.0
    assert get_robot("menagerie:robotstudio_so101").contract.safety.tilt == 0.0
    assert get_robot(str(tmp_path / "go2.toml")).contract.safety.tilt == 0.6
    (tmp_path / "go2.toml").write_text('model = "menagerie:unitree_go2"\n[safety]\ntilt = 0\n')
    assert get_robot(str(tmp_path / "go2.toml")).contract.safety.tilt == 0.0
    (tmp_path / "x2.toml").write_text('model = "menagerie:skydio_x2"\n[safety]\ntilt = 0.7\n')
    assert get_robot(str(tmp_path / "x2.toml")).contract.safety.tilt == 0.7


def test_a_base_whose_z_axis_does_not_point_up_gets_no_limit(tmp_path):
    body = '<body pos="0 0 .2" quat="{}"><freejoint/><geom type="box" size=".1 .1 .1"/>{{}}</body>'
    body = body.replace("{{}}", '<body><joint name="j"/><geom size=".05"/></body>')
    for quat, tilt in (("1 0 0 0", 1.0), ("1 0 1 0", 0.0)):
        text = f'<mujoco><worldbody>{body.format(quat)}</worldbody><actuator><motor joint="j"/></actuator></mujoco>'
        (tmp_path / "box.xml").write_text(text)
        assert get_robot(str(tmp_path / "box.xml")).contract.safety.tilt == tilt


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("safety = 3", r"'safety' in .* must be a table"),
        ("[safety]\ntillt = 1", r"unknown key 'tillt' in 'safety' .*'tilt'"),
        ("[safety]\ntilt = 4", r"'tilt' of 'safety' .* angle from 0 to π"),
        ("[safety]\ntilt = 0.5", r"'tilt' of 'safety' cannot be guarded without the signal 'quat'"),
        ("[safety]\nspeed = 0", r"'speed' of 'safety' .* above zero"),
        ("[safety]\neffort = { bend = -1 }", r"'bend' of 'effort' of 'safety' .* above zero"),
        ("[safety]\ndamping = -1", r"'damping' of 'safety' .* must not be negative"),
        ("[safety]\ndamping = { ben = 1 }", r"unknown joint 'ben' in 'damping' .*'bend'"),
        ("[safety]\nrest = { loose = 1 }", r"unknown joint 'loose' in 'rest'"),
        ("[safety]\nrest = { bend = 2.5 }", r"'rest' of 'bend' is 2.5, outside the limits -2 … 2"),
        ("sense = ['joint_pos']\n[safety]\nspeed = 1", r"'speed' of 'safety' cannot be guarded without the signal 'joint_vel'"),
    ],
)
def test_a_bad_table_is_one_sentence(mixed, table, message):
    with pytest.raises(BadInput, match=message) as caught:
        mixed(GAINS + table)
    assert "\n" not in str(caught.value)


@needs_menagerie
def test_damping_of_rotors_is_refused(tmp_path):
    (tmp_path / "x2.toml").write_text('model = "menagerie:skydio_x2"\n[safety]\ndamping = 1\n')
    with pytest.raises(BadInput, match="'damping' does nothing"):
        get_robot(str(tmp_path / "x2.toml"))
