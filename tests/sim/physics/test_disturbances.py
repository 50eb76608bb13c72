"""Pushes, gusts and wind do to a body what they promise."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from isthmus.robots import ROBOTS
from isthmus.sim.physics.disturbances import Disturbance, DisturbanceProcess
from isthmus.sim.simulation import Simulation

TICK = 0.02


def disturber(config: Disturbance, n: int = 400, mass: float = 2.0, seed: int = 0) -> DisturbanceProcess:
    d = DisturbanceProcess(n, mass, TICK, np.random.default_rng(seed))
    d.config = config
    d.reset(np.arange(n))
    return d


def forces(d: DisturbanceProcess, ticks: int, velocity: np.ndarray | None = None) -> np.ndarray:
    v = np.zeros((d.n, 3)) if velocity is None else velocity
    return np.array([d.advance(v).copy() for _ in range(ticks)])


@pytest.mark.parametrize("push_time", [0.02, 0.05, 0.1, 0.123])
def test_a_push_has_the_impulse_of_its_speed(push_time):
    d = disturber(Disturbance(push_time=push_time), n=3)
    speed = np.array([[0.5, 0.0, 0.0], [0.0, -0.3, 0.1], [0.0, 0.0, 0.0]])
    d.start_push(np.arange(3), speed)
    f = forces(d, 20)
    assert f.sum(0) * TICK == pytest.approx(d.mass * speed, abs=1e-12)
    assert np.abs(f[int(np.ceil(push_time / TICK - 1e-9)) :]).max() < 1e-9
    assert np.abs(f).max() <= d.mass * 0.5 / push_time + 1e-9


@pytest.mark.parametrize("name", sorted(name for name, make in ROBOTS.items() if make().morphology.base))
def test_a_push_changes_the_speed_of_a_free_body_by_what_it_promises(name):
    robot = ROBOTS[name]()
    engine = Simulation(robot, 2)
    e = robot.space.nominal.copy()
    if "drag" in robot.space.names:
        e[robot.space.index("drag")] = robot.space["drag"].low
    engine.apply(np.tile(e, (2, 1)), engine.all_ids)
    up = np.array(robot.home)
    up[2] += 3.0
    engine.reset(engine.all_ids, np.tile(up, (2, 1)))
    model, base = engine.model, engine.model.body(robot.morphology.base).id
    d = DisturbanceProcess(2, float(model.body_subtreemass[base]), engine.tick, np.random.default_rng(0))
    d.start_push(np.array([1]), np.array([[0.4, -0.2, 0.0]]))
    for _ in range(12):
        engine.xfrc_applied[:, base, :3] = d.advance(engine.qvel[:, :3])
        engine.step(np.tile(robot.default, (2, 1)))
    speed = []
    for i in range(2):
        world, data = engine.engine.get_model(i), engine.engine.get_data(i)
        mujoco.mj_forward(world, data)
        mujoco.mj_subtreeVel(world, data)
        speed.append(data.subtree_linvel[base].copy())
    assert speed[1] - speed[0] == pytest.approx([0.4, -0.2, 0.0], abs=4e-3)


def test_pushes_come_within_their_interval_and_up_to_their_speed():
    d = disturber(Disturbance(push_speed=0.8, push_every=(1.0, 2.0), push_time=TICK), n=300)
    f = forces(d, 400)
    speeds = np.linalg.norm(f, axis=2) * TICK / d.mass
    assert speeds.max() <= 0.8 + 1e-9
    assert speeds.max() > 0.75
    assert (f[..., 2] == 0).all()
    for world in range(20):
        when = np.nonzero(speeds[:, world] > 0)[0] * TICK
        assert when[0] <= 2.0 + TICK
        assert (np.diff(when) >= 1.0 - TICK).all()
        assert (np.diff(when) <= 2.0 + 2 * TICK).all()


def test_pushes_have_no_favourite_direction():
    d = disturber(Disturbance(push_speed=1.0, push_every=(0.5, 1.0), push_time=TICK), n=500)
    f = forces(d, 200).reshape(-1, 3)
    f = f[np.abs(f).sum(1) > 0] / d.mass * TICK
    assert np.abs(f.mean(0)).max() < 4 * f.std() / len(f) ** 0.5
    assert f[:, 0].std() == pytest.approx(f[:, 1].std(), rel=0.05)


def test_gusts_have_their_standard_deviation_and_correlation_time():
    d = disturber(Disturbance(gust_force=3.0, gust_time=0.5), n=1000)
    f = forces(d, 300)[100:]
    assert f[..., :2].std() == pytest.approx(3.0, rel=0.03)
    assert (f[..., 2] == 0).all()
    assert abs(f[..., :2].mean()) < 0.1
    for lag in (5, 25, 50):
        got = (f[lag:, :, :2] * f[:-lag, :, :2]).mean() / (f[..., :2] ** 2).mean()
        assert got == pytest.approx(np.exp(-lag * TICK / 0.5), abs=0.04)
    assert abs((f[..., 0] * f[..., 1]).mean()) < 0.03 * 9


def test_gusts_do_not_depend_on_the_tick():
    for tick in (0.005, 0.05):
        d = DisturbanceProcess(2000, 1.0, tick, np.random.default_rng(1))
        d.config = Disturbance(gust_force=2.0, gust_time=0.3)
        d.reset(np.arange(2000))
        f = forces(d, round(1.5 / tick))[-1]
        assert f[:, :2].std() == pytest.approx(2.0, rel=0.05)


def test_a_steady_force_holds_for_the_episode_and_stays_below_its_size():
    d = disturber(Disturbance(steady_force=5.0))
    f = forces(d, 10)
    size = np.linalg.norm(f[0], axis=1)
    assert (f == f[0]).all()
    assert size.max() <= 5
    assert size.max() > 4.8
    assert size.min() < 0.2
    d.reset(np.array([0]))
    again = forces(d, 1)[0]
    assert (again[0] != f[0, 0]).any()
    assert (again[1:] == f[0, 1:]).all()


def test_a_drifting_body_takes_on_the_speed_of_the_wind():
    d = disturber(Disturbance(wind_speed=4.0, drag=1.5), n=20)
    velocity = np.zeros((20, 3))
    for _ in range(round(12 * d.mass / 1.5 / TICK)):
        velocity = velocity + TICK * d.advance(velocity) / d.mass
    assert velocity == pytest.approx(d.wind, abs=1e-3)
    assert np.abs(d.wind).max() > 1
    assert forces(d, 1, d.wind)[0] == pytest.approx(np.zeros((20, 3)))


def test_wind_without_drag_does_nothing():
    assert (forces(disturber(Disturbance(wind_speed=9.0, wind_gust=3.0)), 20) == 0).all()


def test_calm_is_calm():
    assert (forces(disturber(Disturbance()), 50) == 0).all()
    full = Disturbance(push_speed=1, steady_force=2, gust_force=3, wind_speed=4, wind_gust=5, drag=0.0)
    assert (forces(disturber(full.scaled(0.0)), 400) == 0).all()


def test_scaled_scales_strengths_and_nothing_else():
    full = Disturbance(1.0, (2.0, 5.0), 0.2, 2.0, 3.0, 0.7, 4.0, 5.0, 0.3)
    half = full.scaled(0.5)
    assert half == Disturbance(0.5, (2.0, 5.0), 0.2, 1.0, 1.5, 0.7, 2.0, 2.5, 0.3)
    assert full.scaled(1.0) == full


def test_restoring_continues_the_same_weather():
    config = Disturbance(1.0, (0.1, 0.3), steady_force=1.0, gust_force=1.0, wind_speed=2.0, wind_gust=1.0, drag=0.4)
    d = disturber(config, n=10)
    forces(d, 30)
    saved, generator = d.state(), d.rng.bit_generator.state
    straight = forces(d, 30)
    other = DisturbanceProcess(10, 2.0, TICK, np.random.default_rng(99))
    other.config = config
    other.restore(saved)
    other.rng.bit_generator.state = generator
    assert np.array_equal(forces(other, 30), straight)
