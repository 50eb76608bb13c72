"""What every engine keeps, checked on all engines of the package: alone, and with a robot in it."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.robots import get_robot
from isthmus.sim.engines.engine import STATE_ARRAYS, Engine, engine_names, get_engine
from isthmus.sim.simulation import Simulation

ENGINES = ("batch", "reference")
N = 3


@pytest.fixture(params=ENGINES)
def name(request) -> str:
    return request.param


def make(name: str, robot: str = "cartpole") -> Engine:
    return get_engine(name)(get_robot(robot).model, N, 1)


def roll(engine: Engine, steps: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        engine.array("ctrl")[:] = rng.uniform(-1, 1, engine.array("ctrl").shape)
        assert not engine.step(2).any()
    return np.concatenate([engine.array("qpos"), engine.array("qvel")], axis=1)


def test_engines_are_found_by_name_and_unknown_ones_are_refused():
    assert set(ENGINES) <= set(engine_names())
    with pytest.raises(BadInput, match="batch"):
        get_engine("physx")
    factory = get_engine("reference")
    assert get_engine(factory) is factory


def test_arrays_are_live_and_step_advances_time(name):
    engine = make(name)
    qpos, time = engine.array("qpos"), engine.array("time")
    engine.array("qvel")[:] = 0.5
    assert not engine.step(3).any()
    assert engine.array("qpos") is qpos or np.shares_memory(engine.array("qpos"), qpos)
    assert (qpos != 0).any()
    assert time == pytest.approx(3 * engine.model.opt.timestep)
    assert time.shape == (N,)


def test_worlds_are_those_of_mujoco_stepped_alone(name):
    engine = make(name, "go1")
    sensordata = engine.array("sensordata")
    engine.array("qpos")[:] = get_robot("go1").home
    models = [engine.get_model(i) for i in range(N)]
    data = [engine.get_data(i) for i in range(N)]
    rng = np.random.default_rng(0)
    for _ in range(20):
        u = rng.uniform(-3, 3, engine.array("ctrl").shape)
        engine.array("ctrl")[:] = u
        engine.step(1)
        for i in range(N):
            data[i].ctrl[:] = u[i]
            mujoco.mj_step(models[i], data[i])
    assert np.array_equal(engine.array("qpos"), [d.qpos for d in data])
    assert np.array_equal(sensordata, [d.sensordata for d in data])


def test_both_engines_give_the_same_trajectories():
    one, other = (roll(make(name, "go1"), 30) for name in ENGINES)
    assert np.allclose(one, other, rtol=0, atol=1e-12)


def test_reset_touches_only_its_worlds_and_zeroes_their_state(name):
    engine = make(name)
    before = roll(engine, 10)
    engine.array("xfrc_applied")[:] = 1.0
    engine.reset(np.array([1]))
    after = np.concatenate([engine.array("qpos"), engine.array("qvel")], axis=1)
    assert np.array_equal(after[[0, 2]], before[[0, 2]])
    assert np.array_equal(engine.array("qpos")[1], engine.model.qpos0)
    assert not engine.array("qvel")[1].any()
    assert engine.array("time")[1] == 0
    assert not engine.array("xfrc_applied")[1].any()
    assert engine.array("xfrc_applied")[[0, 2]].all()


def test_forward_computes_outputs_without_moving(name):
    engine = make(name)
    xpos = engine.array("xpos")
    engine.array("qpos")[1, 0] = 0.7
    engine.forward(np.arange(N))
    assert engine.array("qpos")[1, 0] == 0.7
    assert xpos[1, -1, 0] - xpos[0, -1, 0] == pytest.approx(0.7)
    assert not engine.array("time").any()


def test_a_field_has_a_value_per_world_and_set_const_follows_it(name):
    engine = make(name)
    mass, weight = engine.field("body_mass"), engine.field("body_invweight0")
    assert np.array_equal(mass, np.tile(engine.model.body_mass, (N, 1)))
    nominal = weight.copy()
    mass[1] *= 2.0
    engine.field("body_inertia")[1] *= 2.0
    engine.set_const(np.array([1]))
    assert np.array_equal(weight[[0, 2]], nominal[[0, 2]])
    assert weight[1, 1:, 0] == pytest.approx(nominal[1, 1:, 0] / 2)
    assert engine.get_model(1).body_mass == pytest.approx(2 * engine.model.body_mass)
    assert np.array_equal(engine.get_model(0).body_mass, engine.model.body_mass)
    end = roll(engine, 5)
    assert not np.array_equal(end[0], end[1])


def test_an_option_has_a_value_per_world(name):
    engine = make(name, "pendulum")
    engine.field("opt.gravity")[2] = 0.0
    engine.array("qpos")[:] = 1.0
    engine.step(10)
    assert engine.array("qvel")[2, 0] == 0.0
    assert (np.abs(engine.array("qvel")[:2]) > 0).all()


def test_a_world_that_blows_up_leaves_the_others_alone(name):
    engine, calm = make(name), make(name)
    engine.array("qvel")[1] = np.nan
    for _ in range(5):
        engine.step(2)
        calm.step(2)
    for array in ("qpos", "qvel"):
        assert np.array_equal(engine.array(array)[[0, 2]], calm.array(array)[[0, 2]])
    engine.reset(np.array([1]))
    engine.step(1)
    assert np.isfinite(engine.array("qvel")).all()


def test_a_restored_state_continues_bit_for_bit(name):
    engine = make(name, "go1")
    engine.array("qpos")[:] = get_robot("go1").home
    roll(engine, 10)
    saved = {array: engine.array(array).copy() for array in STATE_ARRAYS}
    first = roll(engine, 10, seed=1)
    for array, values in saved.items():
        engine.array(array)[:] = values
    assert np.array_equal(roll(engine, 10, seed=1), first)


# With a robot in it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("robot", ["pendulum", "cartpole", "crazyflie", "go1"])
def test_a_robot_moves_and_senses_alike_in_both_engines(robot):
    robot = get_robot(robot)
    sims = [Simulation(robot, N, 1, engine=name) for name in ENGINES]
    e = robot.prior.sample(np.random.default_rng(0), N)
    rng, low, high = np.random.default_rng(1), np.array(robot.contract.target.low), np.array(robot.contract.target.high)
    for sim in sims:
        sim.apply(e, sim.all_ids)
        sim.reset(sim.all_ids)
    assert not sims[1].runs_motor_law
    for _ in range(15):
        u = np.array(robot.default) + 0.1 * (high - low) * rng.uniform(-1, 1, (N, len(low)))
        seen = [sim.noiseless_signals() for sim in sims]
        assert np.allclose(*seen, rtol=0, atol=1e-9)
        for sim in sims:
            sim.step(u)
    assert np.allclose(sims[0].qpos, sims[1].qpos, rtol=0, atol=1e-9)
    assert np.allclose(sims[0].ctrl, sims[1].ctrl, rtol=0, atol=1e-7)


def test_a_simulation_is_restored_on_either_engine(name):
    robot = get_robot("pendulum")
    sim, other = (Simulation(robot, N, 1, engine=name) for _ in range(2))
    for k in range(10):
        sim.step(np.full((N, 1), 0.1 * k))
    other.restore(sim.state())
    for x in (sim, other):
        x.step(np.ones((N, 1)))
    assert np.array_equal(sim.qpos, other.qpos)
    assert np.array_equal(sim.noiseless_signals(), other.noiseless_signals())


def test_a_simulation_marks_the_world_that_diverges(name):
    sim = Simulation(get_robot("pendulum"), N, 1, engine=name)
    sim.qvel[1] = 1e6
    sim.step(np.zeros((N, 1)))
    assert sim.diverged.tolist() == [False, True, False]
    sim.reset(np.array([1]))
    assert not sim.diverged.any()
