"""The worst seconds: from one start, the same in the right simulator, and where the robot was not what was simulated."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from isthmus.real2sim.measure.worst_prediction import SHOWN_SECONDS, worst_segment
from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.noise import noise_floor
from isthmus.real2sim.prepare.tracks import Track, to_tracks
from isthmus.robots import get_robot
from isthmus.sim.robot import Robot
from isthmus.sim.simulate_recording import random_multisine, record_targets

PENDULUM = get_robot("pendulum")


def planted(robot: Robot, seconds: float = 10.0, size: float = 0.3, **other: float) -> tuple[list[Track], np.ndarray]:
    e = robot.space.nominal.copy()
    for name, value in other.items():
        e[robot.space.index(name)] = value
    found = to_tracks(
        [record_targets(robot, e, random_multisine(robot, seconds, 3, size), 3)], robot.contract, 1.0 / robot.contract.rate
    )
    return found, noise_floor(found, Components(robot.contract))


def test_the_right_simulator_moves_as_the_robot_did():
    found, noise = planted(PENDULUM)
    w = worst_segment(PENDULUM, found, noise, PENDULUM.space.nominal, 1)
    assert w is not None
    assert w.error < 2.0
    assert np.abs(w.recorded - w.simulated).max() < 0.02
    assert w.time[-1] == pytest.approx(SHOWN_SECONDS)


def test_a_wrong_one_leaves_it_from_the_same_start():
    found, noise = planted(PENDULUM, payload=0.3)
    w = worst_segment(PENDULUM, found, noise, PENDULUM.space.nominal, 1)
    assert w is not None
    off = np.abs(w.recorded - w.simulated)[:, 0]
    assert off[0] < 0.02
    assert off.max() > 10 * off[0]
    first = round((w.start - found[0].start) * PENDULUM.contract.rate)
    there = found[0].measured[first : first + len(w.time), 0]
    assert np.abs(w.recorded[:, 0] - there).max() < 0.02  # what was recorded there, and nothing else


def test_it_finds_the_seconds_in_which_something_else_happened():
    found, noise = planted(PENDULUM, seconds=12.0)
    odd = found[0].measured.copy()
    odd[400:500, 0] += 0.5 * np.sin(np.arange(100) * 0.2)
    w = worst_segment(PENDULUM, [replace(found[0], measured=odd)], noise, PENDULUM.space.nominal, 1)
    assert w is not None
    begin, end = w.start, w.start + w.time[-1]
    assert begin < 10.0
    assert end > 8.0


def test_what_is_not_measured_is_drawn_as_simulated():
    cartpole = get_robot("cartpole")
    found, noise = planted(cartpole, seconds=5.0, size=0.1)
    blind = found[0].measured.copy()
    blind[:, :2] = np.nan
    w = worst_segment(cartpole, [replace(found[0], measured=blind)], noise, cartpole.space.nominal, 1)
    assert w is not None
    assert w.unmeasured_joints == ("slider",)
    assert not w.position_from_feet
    assert (w.recorded[:, 0] == w.simulated[:, 0]).all()
    assert (w.recorded[:, 1] != w.simulated[:, 1]).any()


def test_a_short_recording_has_none():
    found, noise = planted(PENDULUM, seconds=2.0)
    short = [replace(t, target=t.target[:30], measured=t.measured[:30]) for t in found]
    assert worst_segment(PENDULUM, short, noise, PENDULUM.space.nominal, 1) is None


def test_a_walking_robot_keeps_its_feet_on_the_ground():
    go1 = get_robot("go1")
    found, noise = planted(go1, seconds=6.0, size=0.04)
    w = worst_segment(go1, found, noise, go1.space.nominal, 1)
    assert w is not None
    assert w.position_from_feet
    assert np.allclose(w.recorded[0, :2], w.simulated[0, :2])
    d = mujoco.MjData(go1.model)
    feet = [go1.model.geom(name).id for name in go1.morphology.foot_geoms]
    for q in w.recorded[::20]:
        d.qpos[:] = q
        mujoco.mj_kinematics(go1.model, d)
        low = d.geom_xpos[feet, 2] - go1.model.geom_size[feet, 0]
        assert low.min() == pytest.approx(0.0, abs=1e-9)
