"""The one residual: zero where the simulator is right, and with the right derivatives."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.noise import noise_floor
from isthmus.real2sim.prepare.savitzky_golay import SG_HALF_TICKS
from isthmus.real2sim.prepare.segments import StateReader
from isthmus.real2sim.prepare.tracks import replay_rate, to_tracks
from isthmus.real2sim.residual.gauss_newton import gauss_newton
from isthmus.real2sim.residual.horizon import choose_horizon
from isthmus.real2sim.residual.prior import gaussian_prior
from isthmus.robots import get_robot
from isthmus.sim.engines.mujoco.tangent import integrate
from isthmus.sim.simulate_recording import random_multisine, record_targets
from isthmus.sim.simulation import Simulation
from isthmus.world import Belief
from support.recordings import residual_of

RNG = np.random.default_rng


@pytest.fixture(scope="module", params=["pendulum", "cartpole"])
def planted(request):
    robot = get_robot(request.param)
    e = robot.prior.sample(RNG(1), 1)[0]
    return robot, e, record_targets(robot, e, random_multisine(robot, 4.0))


@pytest.mark.parametrize("name", ["pendulum", "go1"])
def test_a_state_does_not_depend_on_which_others_are_read(name):
    robot = get_robot(name)
    y = record_targets(robot, robot.prior.median(), random_multisine(robot, 0.5, size=0.05)).signals
    y = np.concatenate([y[s.name] for s in robot.contract.signals], axis=1)
    y[5:8, :2] = np.nan
    y[9, -1] = np.nan
    reader, ticks = StateReader(robot), np.array([SG_HALF_TICKS, 6, 9, 12, len(y) - SG_HALF_TICKS - 1])
    together, alone = reader.states(y, ticks), [reader.states(y, ticks[[i]]) for i in range(len(ticks))]
    for part in range(2):
        assert np.isfinite(together[part]).all()
        assert np.array_equal(together[part], np.concatenate([row[part] for row in alone]))
    assert reader.states(y, ticks[:0])[0].shape == (0, robot.model.nq)


def test_in_the_true_world_nothing_is_left(planted):
    robot, e, episode = planted
    residual = residual_of(robot, episode)
    at, _ = gauss_newton(residual, gaussian_prior(Belief(robot.space), residual.space), np.zeros(0), e)
    assert np.abs(residual(e[None], at.xi[None])).max() < 1e-2


def test_in_another_world_something_is_left(planted):
    robot, e, episode = planted
    residual = residual_of(robot, episode)
    other = e.copy()
    other[robot.space.index("action_delay")] = robot.space["action_delay"].high
    at, _ = gauss_newton(residual, gaussian_prior(Belief(robot.space), residual.space), np.zeros(0), other)
    assert np.abs(residual(other[None], at.xi[None])).max() > 1.0


def test_the_derivatives_are_those_of_the_residual(planted):
    robot, e, episode = planted
    names = [n for n in robot.prior.free().names if not n.endswith("_noise")]
    residual = residual_of(robot, episode, names, ticks=10, noise=1e-2)
    z, rng = residual.space.unconstrained(e[residual.parameter_columns]), RNG(0)
    xi = np.zeros((len(residual.segments), len(residual.start_scale)))
    fine = residual.linearize(z, e, xi, np.full(len(z), 1e-4), np.full(xi.shape, 1e-4))
    dz, dx = 1e-3 * rng.standard_normal(z.shape), 1e-3 * rng.standard_normal(xi.shape)
    moved = [residual(residual.parameter_values((z + s * dz)[None], e), (xi + s * dx)[None])[0] for s in (1.0, -1.0)]
    promised = fine.dr_dz @ dz + np.einsum("stcx,sx->stc", fine.dr_dxi, dx)
    assert np.abs(0.5 * (moved[0] - moved[1]) - promised).max() < 2e-2 * np.abs(promised).max()


def test_a_start_moves_as_mujoco_moves_it():
    model, rng = get_robot("go1").model, RNG(2)
    qpos = np.tile(get_robot("go1").home, (5, 1))
    qpos[:, 3:7] = rng.standard_normal((5, 4))
    qpos[:, 3:7] /= np.linalg.norm(qpos[:, 3:7], axis=1, keepdims=True)
    step = rng.standard_normal((5, model.nv))
    for row, v in zip(qpos, step, strict=True):
        expected = row.copy()
        mujoco.mj_integratePos(model, expected, v, 1.0)
        assert np.allclose(integrate(model, row[None], v[None])[0], expected, atol=1e-12)


def test_motors_remember_the_targets_before_a_segment():
    """A crazyflie's rotors lag: started in mid-flight with its past targets it flies on as the one that lived through them."""
    robot = get_robot("crazyflie")
    e = robot.space.vector({"motor_lag": 0.07, "action_delay": 0.013})
    targets = random_multisine(robot, 1.0)
    whole, half = Simulation(robot, 1, threads=1), Simulation(robot, 1, threads=1)
    for engine in (whole, half):
        engine.apply(e[None], engine.all_ids)
        engine.reset(engine.all_ids)
    for u in targets[:30]:
        whole.step(u[None])
    sent = np.concatenate([targets[:30][::-1], np.tile(robot.default, (half.layout.target_history, 1))])
    half.reset(half.all_ids, whole.qpos.copy(), whole.qvel.copy(), sent[None])
    for u in targets[30:40]:
        whole.step(u[None])
        half.step(u[None])
    assert np.abs(whole.qpos - half.qpos).max() < 1e-10


def test_time_that_jumps_and_targets_that_are_missing_end_a_track(planted):
    robot, _, episode = planted
    rate = robot.contract.rate
    time = episode.time + np.where(np.arange(len(episode)) >= 60, 0.5, 0.0)
    target = episode.target.copy()
    target[100:103] = np.nan
    found = to_tracks([replace(episode, time=time, target=target)], robot.contract, 1 / rate)
    assert [len(t) for t in found] == [60, 40, len(episode) - 103]
    assert found[1].start == pytest.approx(60 / rate + 0.5)


def test_a_recording_of_another_clock_is_put_on_the_robots_ticks(planted):
    robot, _, episode = planted
    late = replace(episode, time=episode.time * 1.3)
    found = to_tracks([late], robot.contract, 1 / robot.contract.rate)
    assert len(found) == 1
    assert len(found[0]) == int(late.time[-1] * robot.contract.rate + 1e-3) + 1
    assert replay_rate([late], robot.contract) == pytest.approx(robot.contract.rate / 1.3, rel=1e-3)
    assert replay_rate([episode], robot.contract) == robot.contract.rate


def test_the_same_robot_at_another_rate_moves_the_same():
    robot = get_robot("pendulum")
    fast = robot.at_rate(4 * robot.contract.rate)
    slow_engine, fast_engine = Simulation(robot, 1, threads=1), Simulation(fast, 1, threads=1)
    for u in random_multisine(robot, 1.0):
        slow_engine.step(u[None])
        for _ in range(4):
            fast_engine.step(u[None])
    assert fast.contract.rate == 4 * robot.contract.rate
    assert np.abs(slow_engine.qpos - fast_engine.qpos).max() < 1e-9


def test_a_recording_of_another_robot_is_refused(planted):
    episode = planted[2]
    other = get_robot("crazyflie")
    with pytest.raises(BadInput, match=r"the recording is of .*, not of crazyflie"):
        to_tracks([episode], other.contract, 1 / other.contract.rate)


def test_the_floor_is_the_noise_of_the_sensors():
    robot = get_robot("pendulum")
    e = robot.space.vector({"joint_pos_noise": 0.004, "joint_vel_noise": 0.08})
    episode = record_targets(robot, e, 0.3 * random_multisine(robot, 20.0), seed=3)
    found = noise_floor(to_tracks([episode], robot.contract, 1 / robot.contract.rate), Components(robot.contract))
    assert found == pytest.approx([0.004, 0.08], rel=0.15)


def test_an_unstable_robot_is_predicted_less_far_ahead():
    """A cartpole runs away from upright within tenths of a second; a pendulum hangs."""
    ahead = {}
    for name in ("pendulum", "cartpole"):
        robot = get_robot(name)
        episode = record_targets(robot, robot.space.nominal, 0.2 * random_multisine(robot, 20.0), seed=1)
        found = to_tracks([episode], robot.contract, 1 / robot.contract.rate)
        noise = noise_floor(found, Components(robot.contract))
        ahead[name] = choose_horizon(found, robot, noise, robot.space.nominal, threads=1) / robot.contract.rate
    assert ahead["cartpole"] < ahead["pendulum"]
