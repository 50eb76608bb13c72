"""Morphologies name things that their models have, and answer what a robot can do."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from isthmus.robots import ROBOTS, Morphology, Root, fixed_base, get_robot


def test_every_name_is_in_the_model(robot):
    model, body = robot.model, robot.morphology
    for root in body.roots:
        assert model.body(root.body).id > 0
        if root.joint:
            assert model.joint(root.joint).type[0] == mujoco.mjtJoint.mjJNT_FREE
            assert model.joint(root.joint).bodyid[0] == model.body(root.body).id
    for leg in body.legs:
        assert [model.joint(j).name for j in leg.joints] == list(leg.joints)
        foot = {int(model.geom(g).bodyid[0]) for g in leg.foot.geoms} | {int(model.site(leg.foot.site).bodyid[0])}
        assert foot == {int(model.joint(leg.joints[-1]).bodyid[0])}
        assert model.sensor(leg.foot.sensor).dim[0] == 4
    for rotor in body.rotors:
        i = robot.contract.target.component_index(rotor.motor)
        assert model.site(rotor.site).id == model.actuator_trnid[i, 0]
        assert np.sign(model.actuator_gear[i, 5]) == rotor.spin


def test_what_our_robots_can_do():
    can = {name: (m.floats, m.legged, m.flies) for name, m in ((n, make().morphology) for n, make in ROBOTS.items())}
    assert can == {
        "cartpole": (False, False, False),
        "crazyflie": (True, False, True),
        "go1": (True, True, False),
        "pendulum": (False, False, False),
    }


def test_feet_come_in_the_order_right_left_of_unitree():
    body = get_robot("go1").morphology
    assert [leg.side for leg in body.legs] == ["right", "left", "right", "left"]
    assert body.foot_geoms == ("FR_foot", "FL_foot", "RR_foot", "RL_foot")


def test_a_robot_on_a_stand_neither_floats_nor_walks():
    body = fixed_base(get_robot("go1")).morphology
    assert body.root == Root("trunk")
    assert not body.floats
    assert not body.legs
    assert body.mirror is None
    assert body.base == ""


def test_what_is_lacking_is_said_in_words():
    body = Morphology((Root("base"),))
    assert body.lacks("floats", "legs") == "it has no root that moves freely and no legs with feet"
    assert body.lacks("arms") == "it has no arm with an end effector"
    assert get_robot("go1").morphology.lacks("floats", "legs", "mirror") is None
    with pytest.raises(AttributeError):
        body.lacks("wings")
