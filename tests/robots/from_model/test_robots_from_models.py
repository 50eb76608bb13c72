"""Robots from outside: Menagerie by name, MJCF and URDF by path, with and without a config."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from mujoco.batch import MODEL_FIELDS

from isthmus.core.errors import BadInput
from isthmus.robots import get_robot
from isthmus.robots.from_model.edit_model import read_actuators
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation
from support.menagerie import ROOT, menagerie, needs_menagerie

NAMES = ("unitree_go2", "unitree_g1", "bitcraze_crazyflie_2", "robotstudio_so101", "skydio_x2")

URDF = """<robot name="arm">
  <link name="base"><inertial><mass value="1"/><inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><box size=".2 .2 .1"/></geometry></collision></link>
  <link name="upper"><inertial><origin xyz="0 0 -.2"/><mass value="0.8"/>
    <inertia ixx=".01" iyy=".01" izz=".001" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="lower"><inertial><origin xyz="0 0 -.1"/><mass value="0.4"/>
    <inertia ixx=".004" iyy=".004" izz=".0004" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="shoulder-1" type="revolute"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/>
    <limit lower="-2" upper="2" effort="8" velocity="6"/></joint>
  <joint name="elbow" type="revolute"><parent link="upper"/><child link="lower"/><origin xyz="0 0 -.4"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="2" effort="4" velocity="6"/></joint>
</robot>"""


@pytest.fixture(autouse=True)
def _root(monkeypatch):
    monkeypatch.setenv("MENAGERIE_ROOT", str(ROOT))


@pytest.fixture(params=[*(pytest.param(n, marks=needs_menagerie) for n in NAMES), "urdf"])
def robot(request, tmp_path) -> Robot:
    if request.param != "urdf":
        return menagerie(request.param)
    (tmp_path / "arm.urdf").write_text(URDF)
    return get_robot(str(tmp_path / "arm.urdf"))


def wander(robot: Robot, ticks: int) -> np.ndarray:
    """Targets that leave the default by up to 40 % of the range, (ticks, m)."""
    rng = np.random.default_rng(3)
    low, high = np.array(robot.contract.target.low), np.array(robot.contract.target.high)
    default = np.array(robot.default)
    return default + rng.uniform(0, 0.4, (ticks, len(default))) * np.where(
        rng.uniform(size=(ticks, len(default))) < 0.5, low - default, high - default
    )


def test_rests_at_home_and_keeps_its_names(robot):
    engine = Simulation(robot, 2, threads=1)
    for _ in range(50):
        engine.step(np.tile(robot.default, (2, 1)))
        assert not engine.diverged.any()
    assert np.isfinite(engine.qpos).all()
    target, m = robot.contract.target, robot.model
    assert target.size == m.nu
    assert robot.contract.rate == pytest.approx(50.0)
    assert all(low <= x <= high for low, x, high in zip(target.low, robot.default, target.high, strict=True))
    if "joint_pos" in robot.sources:
        hinges = [m.joint(j).name for j in range(m.njnt) if m.joint(j).type[0] in (2, 3)]
        assert list(robot.contract["joint_pos"].labels) == hinges


def test_every_parameter_changes_the_signals(robot):
    """World 1 + i differs from nominal in parameter i alone; worlds without any difference stay equal bit for bit."""
    space, prior = robot.space, robot.prior
    quiet = space.vector({n: 0.0 for n in space.names if n.endswith("_noise")})
    e = np.tile(quiet, (len(space) + 2, 1))
    for i, name in enumerate(space.names):
        low, high = prior.interval(name, 0.999)
        e[2 + i, i] = low if abs(low - quiet[i]) > abs(high - quiet[i]) else high
    space.check(e)
    engine = Simulation(robot, len(e), threads=2)
    engine.apply(e, engine.all_ids)
    engine.reset(engine.all_ids)
    rng, moved = np.random.default_rng(0), np.zeros(len(e))
    for target in wander(robot, 15):
        engine.step(np.tile(target, (len(e), 1)))
        seen = engine.signals(rng)
        moved = np.maximum(moved, np.abs(seen - seen[0]).max(axis=1))
    assert moved[1] == 0.0
    without = [n for n, m in zip(space.names, moved[2:], strict=True) if not m > 1e-7]
    assert not without


def test_nominal_restores_the_model_bit_for_bit(robot):
    engine = Simulation(robot, 2, threads=1)
    before = engine.engine.get_model(1)
    e = robot.prior.sample(np.random.default_rng(1), 2)
    engine.apply(e, engine.all_ids)
    changed = engine.engine.get_model(1)
    assert any(not np.array_equal(getattr(before, f), getattr(changed, f)) for f in _fields(before))
    engine.apply(np.tile(robot.space.nominal, (2, 1)), engine.all_ids)
    after = engine.engine.get_model(1)
    for f in _fields(before):
        assert np.array_equal(getattr(after, f), getattr(before, f)), f


def _fields(model: mujoco.MjModel) -> list[str]:
    return [f for f in MODEL_FIELDS if isinstance(getattr(model, f, None), np.ndarray)]


def test_a_world_in_the_batch_equals_the_same_world_alone(robot):
    n = 2
    engine = Simulation(robot, n, threads=2)
    engine.apply(robot.prior.sample(np.random.default_rng(2), n), engine.all_ids)
    engine.reset(engine.all_ids)
    alone = [(engine.engine.get_model(i), engine.engine.get_data(i)) for i in range(n)]
    for target in wander(robot, 5):
        engine.step(np.tile(target, (n, 1)))
        for i, (model, data) in enumerate(alone):
            view = engine.layout.views(data.userdata[None])
            view["targets"][0, 1:] = view["targets"][0, :-1].copy()
            view["targets"][0, 0] = np.clip(target, robot.contract.target.low, robot.contract.target.high)
            view["tick"][:] = data.time
            for _ in range(robot.substeps):
                mujoco.mj_step(model, data)
            assert np.array_equal(data.qpos, engine.qpos[i])
            assert np.array_equal(data.qvel, engine.qvel[i])


@needs_menagerie
def test_the_ground_has_the_friction_that_was_set():
    robot = menagerie("unitree_go2")
    engine = Simulation(robot, 1, threads=1)
    engine.apply(robot.space.vector({"ground_friction": 0.31})[None], engine.all_ids)
    engine.reset(engine.all_ids)
    for _ in range(10):
        engine.step(np.array(robot.default)[None])
    model, data = engine.engine.get_model(0), engine.engine.get_data(0)
    mujoco.mj_forward(model, data)
    floor = model.geom("floor").id
    ground = [c.friction[0] for c in data.contact if floor in c.geom]
    assert ground
    assert np.allclose(ground, 0.31)


@needs_menagerie
def test_a_config_gives_gains_pose_and_feet(tmp_path):
    path = tmp_path / "go2.toml"
    path.write_text("""
model = "menagerie:unitree_go2"
name = "my_go2"
rate = 100
kp = { ".*_calf_joint" = 40.0, ".*" = 30.0 }
kd = 0.8
feet = ["FL", "FR", "RL", "RR"]
exclude = ["encoder_offset_.*", "com_z"]
payload_at = [0.0, 0.0, 0.1]
[pose]
FL_hip_joint = 0.1
[params.payload]
prior = [0.0, 3.0]
high = 12.0
[params.gravity]
unit = "m/s²"
nominal = -9.81
low = -10.0
high = -9.0
targets = "opt:/gravity[2]"
prior = [-9.9, -9.7]
""")
    robot = get_robot(str(path))
    assert robot.name == "my_go2"
    assert robot.contract.rate == pytest.approx(100.0)
    assert robot.motors.drive == "position"
    gain = dict(zip(robot.contract.target.labels, robot.motors.kp, strict=True))
    assert gain["FL_calf_joint"] == 40.0
    assert gain["FL_hip_joint"] == 30.0
    assert robot.default[robot.contract.target.labels.index("FL_hip_joint")] == 0.1
    assert robot.space["payload"].high == 12.0
    assert robot.prior.interval("payload", 1.0) == (0.0, 3.0)
    assert not [n for n in robot.space.names if n.startswith("encoder_offset") or n == "com_z"]

    engine = Simulation(robot, 2, threads=1)
    engine.apply(np.stack([robot.space.nominal, robot.space.vector({"gravity": -9.0})]), engine.all_ids)
    assert engine.engine.get_model(1).opt.gravity[2] == -9.0
    engine.reset(engine.all_ids)
    for _ in range(150):
        engine.step(np.tile(robot.default, (2, 1)))
    assert engine.qpos[0, 2] > 0.22, "it stands"
    weight = robot.model.body_subtreemass[1] * 9.81
    feet = [robot.model.sensor(f"{f}_contact").adr[0] for f in robot.morphology.foot_geoms]
    carried = sum(np.linalg.norm(engine.sensordata[0, a + 1 : a + 4]) for a in feet)
    assert carried == pytest.approx(weight, rel=0.05), "the feet carry it"


@needs_menagerie
@pytest.mark.parametrize("name", ["unitree_g1", "robotstudio_so101"])
def test_a_servo_taken_over_gives_the_same_torque(name):
    """kp, kd and limit read from the model's own servos give, at any state, the torque that MuJoCo gives."""
    model = menagerie(name).model
    found = read_actuators(model, name)
    data, rng = mujoco.MjData(model), np.random.default_rng(5)
    for _ in range(20):
        data.qpos[:], data.qvel[:] = model.qpos0, rng.uniform(-2, 2, model.nv)
        at, dof = ([getattr(model.joint(a.joint), f)[0] for a in found] for f in ("qposadr", "dofadr"))
        data.qpos[at] = rng.uniform(model.jnt_range[:, 0], model.jnt_range[:, 1])[[model.joint(a.joint).id for a in found]]
        u = rng.uniform(*model.actuator_ctrlrange.T)
        data.ctrl[:] = u
        mujoco.mj_forward(model, data)
        kp, kd, limit = (np.array([getattr(a, f) for a in found]) for f in ("kp", "kd", "torque_limit"))
        tau = np.clip(kp * (u - data.qpos[at]) - kd * data.qvel[dof], -limit, limit)
        np.testing.assert_allclose(tau, data.qfrc_actuator[dof], rtol=1e-9, atol=1e-9)


def test_an_urdf_hangs_stands_or_floats(tmp_path):
    (tmp_path / "arm.urdf").write_text(URDF)
    robot = get_robot(str(tmp_path / "arm.urdf"))
    assert robot.motors.drive == "effort"
    assert robot.motors.torque_limit == (8.0, 4.0)
    assert robot.contract.target.high == (8.0, 4.0)
    assert robot.morphology.base == ""
    assert "ground_friction" not in robot.space.names
    engine = Simulation(robot, 1, threads=1)
    model, data = engine.engine.get_model(0), engine.engine.get_data(0)
    data.qpos[:] = engine.qpos[0] = [0.5, 0.4]
    mujoco.mj_forward(model, data)
    hold = data.qfrc_bias.copy()
    engine.apply(robot.space.vector({"action_delay": 0.0})[None], engine.all_ids)
    engine.reset(engine.all_ids, qpos=np.array([[0.5, 0.4]]))
    engine.step(hold[None])
    assert np.abs(engine.qvel).max() < 1e-3, "a target in N·m that balances gravity keeps the arm still"

    (tmp_path / "robot.toml").write_text('model = "arm.urdf"\nfloating = true\nkp = 20\nkd = 0.5\n')
    robot = get_robot(str(tmp_path / "robot.toml"))
    assert robot.morphology.base == "base"
    assert robot.motors.drive == "position"
    assert "ground_friction" in robot.space.names
    data = mujoco.MjData(robot.model)
    data.qpos[:] = robot.home
    mujoco.mj_forward(robot.model, data)
    assert all(c.dist > -1e-9 for c in data.contact), "home is not inside the ground"


CLUTTER = """<mujoco><worldbody><geom type="plane" size="1 1 1"/>
  <body name="ball" pos="2 0 .2"><freejoint/><geom size=".1"/></body>
  <body name="arm/base" pos="0 0 1"><joint name="arm/j.1" axis="0 1 0"/><geom size=".05" fromto="0 0 0 .3 0 0" type="capsule"/>
    <body pos=".3 0 0"><joint type="slide" axis="1 0 0" range="-.1 .1" limited="true"/><geom size=".04"/>
      <body name="tip" pos=".1 0 0"><joint type="ball"/><geom size=".03"/></body></body></body></worldbody>
  <actuator><motor joint="arm/j.1" gear="-30" ctrlrange="-1 .5" ctrllimited="true"/></actuator></mujoco>"""


def test_an_arm_among_other_things(tmp_path):
    """Odd names, a ball joint, a reversed gear, and a ball that lies about and is no part of the robot."""
    (tmp_path / "clutter.xml").write_text(CLUTTER)
    robot = get_robot(str(tmp_path / "clutter.xml"))
    assert robot.contract.target.labels == ("arm/j.1",)
    assert robot.contract.target.low == (-15.0,)
    assert robot.contract.target.high == (30.0,)
    assert "ground_friction" not in robot.space.names
    assert {"com_x", "com_y", "com_z", "encoder_offset_arm_j_1"} <= set(robot.space.names)
    masses = robot.space["link_mass"].targets[0]
    assert "tip" in masses
    assert "ball" not in masses
    engine = Simulation(robot, 2, threads=1)
    engine.apply(robot.prior.sample(np.random.default_rng(0), 2), engine.all_ids)
    engine.reset(engine.all_ids)
    engine.step(np.full((2, 1), 5.0))
    at = robot.model.joint("arm/j.1").dofadr[0]
    assert (engine.qvel[:, at] > 0).all(), "a positive torque turns the joint forwards, whatever the gear"


def test_the_hash_follows_the_files(tmp_path):
    (tmp_path / "arm.urdf").write_text(URDF)
    first = get_robot(str(tmp_path / "arm.urdf"))
    assert get_robot(str(tmp_path / "arm.urdf")).model_hash == first.model_hash
    (tmp_path / "arm.urdf").write_text(URDF.replace("0.8", "0.9"))
    assert get_robot(str(tmp_path / "arm.urdf")).model_hash != first.model_hash


MESH = """<mujoco><asset><mesh file="gone.stl"/></asset>
  <worldbody><body><joint/><geom type="mesh" mesh="gone"/></body></worldbody></mujoco>"""
FREE_BALL = '<mujoco><worldbody><body><freejoint/><geom size=".1"/></body></worldbody></mujoco>'


@pytest.mark.parametrize(
    ("files", "ask", "message"),
    [
        ({}, "absent.xml", r"cannot read .*absent.xml: there is no such file"),
        ({}, "absent.toml", r"cannot read .*absent.toml: there is no such file"),
        ({"a.xml": "<mujoco><worldbody>"}, "a.xml", r"model of a does not parse"),
        ({"a.xml": "<mujoco><worldbody><body><joint/></body></worldbody></mujoco>"}, "a.xml", r"does not compile: .*mass"),
        ({"a.xml": MESH}, "a.xml", r"uses 'gone.stl', but there is no file"),
        ({"a.xml": FREE_BALL}, "a.xml", r"nothing to control"),
        ({"a.toml": "model = "}, "a.toml", r"not valid TOML"),
        ({"a.toml": "rate = 50"}, "a.toml", r"does not name a model"),
        ({"a.toml": 'model = "arm.urdf"\nrat = 5'}, "a.toml", r"unknown key 'rat' in .*did you mean 'rate'"),
        ({"a.toml": 'model = "arm.urdf"\nrate = -5'}, "a.toml", r"'rate' in .* must be above zero"),
        ({"a.toml": 'model = "arm.urdf"\nkp = "big"'}, "a.toml", r"'kp' in .* must be a number"),
        ({"a.toml": 'model = "arm.urdf"\nrate = 1e-9'}, "a.toml", r"rate 1e-09 is not in 0.5 … 500 Hz"),
        ({"a.toml": 'model = "arm.urdf"\nrate = 2000'}, "a.toml", r"rate 2000 is not in"),
        ({"a.toml": 'model = "arm.urdf"\nheight = nan'}, "a.toml", r"'height' in .* must be a number"),
        ({"a.toml": 'model = "arm.urdf"\nname = "../arm"'}, "a.toml", r"'name' in .* may have letters"),
        ({"a.toml": 'model = "."'}, "a.toml", r"is not a file"),
        ({"a.toml": 'model = "arm.urdf"\nkp = { elbo = 3 }'}, "a.toml", r"unknown joint 'elbo' in 'kp' .*'elbow'"),
        ({"a.toml": 'model = "arm.urdf"\nkp = { elbow = 3 }'}, "a.toml", r"needs a kp above zero for joint 'shoulder-1'"),
        ({"a.toml": 'model = "arm.urdf"\ndrive = "positon"'}, "a.toml", r"unknown drive 'positon' .*'position'"),
        ({"a.toml": 'model = "arm.urdf"\ndrive = "native"\nkp = 3'}, "a.toml", r"do nothing with drive 'native'"),
        ({"a.toml": 'model = "arm.urdf"\nfeet = ["toe"]'}, "a.toml", r"unknown geom 'toe' in 'feet'"),
        ({"a.toml": 'model = "arm.urdf"\nbase = "uper"'}, "a.toml", r"unknown body 'uper' .*'upper'"),
        ({"a.toml": 'model = "arm.urdf"\nsense = ["joint_poss"]'}, "a.toml", r"unknown signal 'joint_poss' .*'joint_pos'"),
        ({"a.toml": 'model = "arm.urdf"\nexclude = ["payloat"]'}, "a.toml", r"unknown parameter 'payloat' .*'payload'"),
        ({"a.toml": 'model = "arm.urdf"\n[pose]\nelbwo = 1'}, "a.toml", r"unknown joint 'elbwo' in 'pose'"),
        ({"a.toml": 'model = "arm.urdf"\n[params.payload]\nprio = [0, 1]'}, "a.toml", r"unknown field 'prio' .*'prior'"),
        ({"a.toml": 'model = "arm.urdf"\n[params.new]\nunit = "1"'}, "a.toml", r"'new' .* is new and needs 'nominal'"),
        ({"a.toml": 'model = "arm.urdf"\n[params.payload]\nprior = [0, 1e9]'}, "a.toml", r"payload"),
        ({"a.toml": 'model = "arm.urdf"\n[params.armature]\ntargets = "joint:nee/armature"'}, "a.toml", r"unknown joint 'nee'"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, files, ask, message):
    (tmp_path / "arm.urdf").write_text(URDF)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=message) as caught:
        get_robot(str(tmp_path / ask))
    assert "\n" not in str(caught.value)


@needs_menagerie
def test_an_unknown_menagerie_robot_names_near_ones():
    with pytest.raises(BadInput, match=r"unknown Menagerie robot 'unitree_goo2' .*'unitree_go2'"):
        get_robot("menagerie:unitree_goo2")


def test_menagerie_out_of_reach_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.delenv("MENAGERIE_ROOT")
    monkeypatch.setenv("MENAGERIE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MENAGERIE_BASE_URL", (tmp_path / "nowhere").as_uri())
    with pytest.raises(BadInput, match=r"cannot fetch menagerie:unitree_go2: .*set MENAGERIE_ROOT"):
        get_robot("menagerie:unitree_go2")
    monkeypatch.setenv("MENAGERIE_ROOT", str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match=r"MENAGERIE_ROOT is .*nowhere, which is not a folder"):
        get_robot("menagerie:unitree_go2")
