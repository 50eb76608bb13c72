"""Legs, arms and rotors that are read from a model."""

from __future__ import annotations

import pytest

from isthmus.core.errors import BadInput
from isthmus.robots import get_robot
from support.menagerie import ROOT, needs_menagerie

BIPED = """<mujoco><option timestep="0.004"/><worldbody><body name="hip" pos="0 0 0.63"><freejoint/>
  <geom type="box" size="0.1 0.1 0.05" mass="3"/>{legs}</body></worldbody>
  <actuator>{motors}</actuator></mujoco>"""
BIPED_LEG = """<body name="{s}_thigh" pos="0 {y} 0"><joint name="{s}_hip" axis="0 1 0" range="-1 1" armature="0.01"/>
  <geom type="capsule" size="0.03" fromto="0 0 0 0 0 -0.3" mass="0.5"/>
  <body name="{s}_shank" pos="0 0 -0.3"><joint name="{s}_knee" axis="0 1 0" range="-1.5 0.1" armature="0.01"/>
  <geom type="capsule" size="0.025" fromto="0 0 0 0 0 -0.26" mass="0.3"/>
  <geom name="{s}_foot" type="box" size="0.08 0.04 0.02" pos="0.02 0 -0.28" mass="0.1"/></body></body>"""


def biped_xml() -> str:
    legs = "".join(BIPED_LEG.format(s=s, y=y) for s, y in (("left", 0.1), ("right", -0.1)))
    joints = [f"{s}_{j}" for s in ("left", "right") for j in ("hip", "knee")]
    return BIPED.format(legs=legs, motors="".join(f'<position name="{j}" joint="{j}" kp="60" kv="2"/>' for j in joints))


def test_a_biped_stands_on_what_is_lowest(tmp_path):
    (tmp_path / "biped.xml").write_text(biped_xml())
    body = get_robot(str(tmp_path / "biped.xml")).morphology
    assert body.legged
    assert [(leg.name, leg.side, leg.joints) for leg in body.legs] == [
        ("left", "left", ("left_hip", "left_knee")),
        ("right", "right", ("right_hip", "right_knee")),
    ]
    assert body.foot_geoms == ("left_foot", "right_foot")


def test_feet_without_names_are_not_guessed(tmp_path):
    (tmp_path / "biped.xml").write_text(biped_xml().replace('name="left_foot" ', ""))
    body = get_robot(str(tmp_path / "biped.xml")).morphology
    assert body.floats
    assert not body.legs


def test_an_arm_ends_in_its_outermost_site(tmp_path):
    (tmp_path / "arm.xml").write_text(ARM)
    robot = get_robot(str(tmp_path / "arm.xml"))
    (arm,) = robot.morphology.arms
    assert (arm.joints, arm.end_effector, arm.gripper) == (("shoulder", "elbow"), "tip", ("finger",))
    assert not robot.morphology.floats
    assert robot.morphology.root.body == "upper"


def test_an_end_effector_that_does_not_exist_names_those_that_do(tmp_path):
    (tmp_path / "arm.xml").write_text(ARM)
    (tmp_path / "arm.toml").write_text('model = "arm.xml"\nend_effector = "tup"\n')
    with pytest.raises(BadInput, match="did you mean 'tip'"):
        get_robot(str(tmp_path / "arm.toml"))


ARM = """<mujoco><option timestep="0.004"/><worldbody><body name="upper" pos="0 0 0.5">
  <joint name="shoulder" axis="0 1 0" range="-2 2" armature="0.02"/>
  <geom type="capsule" size="0.02" fromto="0 0 0 0.3 0 0" mass="0.5"/>
  <body name="fore" pos="0.3 0 0"><joint name="elbow" axis="0 1 0" range="-2.5 2.5" armature="0.02"/>
  <geom type="capsule" size="0.02" fromto="0 0 0 0.25 0 0" mass="0.3"/>
  <site name="tip" pos="0.25 0 0"/><site name="middle" pos="0.1 0 0"/>
  <body name="jaw" pos="0.25 0 0"><joint name="finger" type="slide" axis="0 0 1" range="0 0.02"/>
  <geom type="box" size="0.01 0.01 0.01" mass="0.01"/></body></body></body></worldbody>
  <actuator><position name="a" joint="shoulder" kp="40" kv="4"/><position name="b" joint="elbow" kp="30" kv="3"/>
  <position name="c" joint="finger" kp="30" kv="3"/></actuator></mujoco>"""


@needs_menagerie
def test_robots_of_menagerie(monkeypatch):
    monkeypatch.setenv("MENAGERIE_ROOT", str(ROOT))
    found = {name: get_robot(f"menagerie:{name}").morphology for name in ("unitree_go2", "skydio_x2", "robotstudio_so101")}
    assert [leg.name for leg in found["unitree_go2"].legs] == ["FL", "FR", "RL", "RR"]
    assert found["skydio_x2"].flies
    assert [rotor.spin for rotor in found["skydio_x2"].rotors] == [-1, 1, -1, 1]
    assert found["robotstudio_so101"].arms[0].end_effector == "gripperframe"
    assert found["robotstudio_so101"].arms[0].gripper == ("gripper",)
