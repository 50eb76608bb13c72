"""Learned forces: one law in C and in NumPy, silent where nothing was seen, bounded everywhere."""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.robots import get_robot
from isthmus.sim.engines.batch import control_callback
from isthmus.sim.engines.batch.engine import BatchEngines
from isthmus.sim.physics.force_features import body_force_features, motor_force_features
from isthmus.sim.physics.learned_force import TRUST_FADE_RATIO, LearnedForce
from isthmus.sim.physics.unit_physics import UnitPhysics
from isthmus.sim.simulation import Simulation
from support.learned_forces import driven, ensemble, whole


@pytest.mark.skipif(control_callback.install_control_callback() is None, reason="no C compiler")
@pytest.mark.parametrize("make", [whole, driven])
@pytest.mark.parametrize("name", ["pendulum", "cartpole", "go1", "crazyflie"])
def test_a_learned_force_in_c_equals_numpy(name, make, targets):
    robot = make(name)
    if make is driven and name == "crazyflie":
        with pytest.raises(BadInput, match="do not drive joints"):
            Simulation(robot, 3)
        return
    bare = dataclasses.replace(robot, unit=UnitPhysics())
    fast, slow, without = (
        Simulation(robot, 3),
        Simulation(robot, 3, engine=BatchEngines(native_motor_law=False)),
        Simulation(bare, 3),
    )
    e = robot.prior.sample(np.random.default_rng(0), 3)
    for x in (fast, slow, without):
        x.apply(e, x.all_ids)
        x.reset(x.all_ids)
    rng = np.random.default_rng(1)
    push = 0.05 * rng.standard_normal((3, robot.model.nv))
    for tick in range(12):
        u = targets(robot, rng, 3, size=0.3)
        for x in (fast, slow, without):
            x.apply_force(push if tick > 5 else 0 * push, x.all_ids)
            x.step(u)
        assert np.allclose(fast.qpos, slow.qpos, rtol=1e-9, atol=1e-9)
        assert np.allclose(fast.qvel, slow.qvel, rtol=1e-7, atol=1e-8)
    assert np.abs(fast.qvel - without.qvel).max() > 1e-4


def test_a_force_is_gone_outside_its_region_and_never_above_its_unit():
    net = ensemble(7, 2, unit=3.0)
    rng = np.random.default_rng(0)
    x = net.mean + net.scale * rng.standard_normal((4000, 7)) * rng.uniform(0, 20, (4000, 1))
    force, distance = net(x), net.region_distance(x)
    assert (np.abs(force) <= 3.0).all()
    assert (force[distance > TRUST_FADE_RATIO] == 0).all()
    assert (np.abs(force[distance < 1]).max(1) > 0).all()
    near = net.mean + 1e-9
    assert np.allclose(net(near[None]), net(net.mean[None]), atol=1e-6)


def test_members_that_disagree_are_not_believed():
    net = ensemble(4, 1)
    apart = dataclasses.replace(net, biases=(*net.biases[:-1], np.array([[50.0], [-50.0], [0.3]])))
    at = net.mean[None]
    assert np.abs(apart(at)).max() < 1e-3 * apart.unit.max()
    one = {part: tuple(np.repeat(a[:1], 3, 0) for a in getattr(net, part)) for part in ("weights", "biases")}
    agreed = dataclasses.replace(net, **one)
    assert agreed.trust_weight(at, agreed.member_outputs(at)) == pytest.approx(1.0)


def test_a_robot_does_not_feel_where_it_is_or_which_way_it_heads():
    """Features of a free body, and the force that they give, turn with it."""
    robot = whole("go1", unit=5.0)
    reader = body_force_features(robot, robot.model, robot.unit.learned_forces[0].names)
    rng = np.random.default_rng(0)
    qpos, qvel, ctrl = np.array(robot.home)[None].copy(), rng.standard_normal((1, 18)), rng.standard_normal((1, 12))
    quat = rng.standard_normal(4)
    qpos[:, 3:7] = quat / np.linalg.norm(quat)
    turn = np.array([np.cos(0.7), 0, 0, np.sin(0.7)])
    other, moved = qpos.copy(), qvel.copy()
    other[:, :2] += 5.0
    other[0, 3:7] = _times(turn, qpos[0, 3:7])
    c, s = np.cos(1.4), np.sin(1.4)
    rotation = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    moved[0, :3] = rotation @ qvel[0, :3]
    assert np.allclose(reader.read(qpos, qvel, ctrl), reader.read(other, moved, ctrl))
    force = rng.standard_normal((1, 18))
    here, there = np.zeros((1, 18)), np.zeros((1, 18))
    reader.to_generalized_force(force, qpos, here)
    reader.to_generalized_force(force, other, there)
    assert np.allclose(there[0, :3], rotation @ here[0, :3])
    assert np.allclose(there[0, 3:], here[0, 3:])
    assert np.allclose(reader.from_generalized_force(here, qpos), force)


def _times(a, b):
    out = np.empty(4)
    mujoco.mju_mulQuat(out, a, b)
    return out


def test_a_motor_remembers_its_errors_and_speeds():
    robot = driven("pendulum", unit=1e-9)
    engine = Simulation(robot, 1, engine=BatchEngines(native_motor_law=False))
    reader = motor_force_features(robot, robot.unit.learned_forces[0], engine.dt)
    engine.reset(engine.all_ids)
    seen = []
    for tick in range(4):
        engine.userdata["tick"][:] = engine.time
        for s in range(robot.substeps):
            engine.userdata["targets"][:, 0] = 0.1 * tick
            seen.append((engine.userdata["targets"][0, 0, 0], engine.qpos[0, 0], engine.qvel[0, 0]))
            engine.step_once(s)
    now = np.rint(engine.time / engine.dt).astype(int) - 1
    x = reader.read(engine.userdata["memory"], now)[0, 0]
    speeds = [seen[-1 - b][2] for b in reader.lag_steps]
    assert np.allclose(x[3:], speeds)


def test_a_learned_force_survives_its_file_and_strangers_are_refused():
    learned = driven("go1").unit.learned_forces[0]
    again = LearnedForce.from_arrays(learned.to_dict(), learned.arrays(), "here")
    x = np.random.default_rng(0).standard_normal((5, 6))
    assert np.array_equal(again.net(x), learned.net(x))
    assert (again.kind, again.names, again.lags, again.stride) == (learned.kind, learned.names, learned.lags, learned.stride)
    for broken in (
        {"mean": np.full(6, np.nan)},
        {"scale": np.zeros(6)},
        {"weights1": np.zeros((3, 5, 5))},
        {"reach": np.array(-1.0)},
    ):
        with pytest.raises(BadInput):
            LearnedForce.from_arrays(learned.to_dict(), learned.arrays() | broken, "here")
    with pytest.raises(BadInput, match="looks back"):
        LearnedForce.from_arrays(learned.to_dict() | {"lags": 10**6}, learned.arrays(), "here")
    robot = get_robot("go1")
    with pytest.raises(BadInput, match="FL_knee"):
        Simulation(
            dataclasses.replace(robot, unit=UnitPhysics(learned_forces=(dataclasses.replace(learned, names=("FL_knee",)),))), 1
        )
