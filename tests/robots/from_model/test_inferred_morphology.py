"""Legs, arms and rotors that are read from a model."""

from __future__ import annotations

import pytest

from isthmus.core.errors import BadInput
from isthmus.robots import get_robot
from support.menagerie import ROOT, needs_menagerie
from support.models import ARM, biped_xml


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


@needs_menagerie
def test_robots_of_menagerie(monkeypatch):
    monkeypatch.setenv("MENAGERIE_ROOT", str(ROOT))
    found = {name: get_robot(f"menagerie:{name}").morphology for name in ("unitree_go2", "skydio_x2", "robotstudio_so101")}
    assert [leg.name for leg in found["unitree_go2"].legs] == ["FL", "FR", "RL", "RR"]
    assert found["skydio_x2"].flies
    assert [rotor.spin for rotor in found["skydio_x2"].rotors] == [-1, 1, -1, 1]
    assert found["robotstudio_so101"].arms[0].end_effector == "gripperframe"
    assert found["robotstudio_so101"].arms[0].gripper == ("gripper",)
