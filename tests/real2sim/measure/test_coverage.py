"""Coverage: as many false alarms as stated, and a shifted world is found."""

from __future__ import annotations

import numpy as np
import pytest

from isthmus.data.contract import AffineFeedback
from isthmus.real2sim.identify.force_features import with_learned_force, zero_force
from isthmus.real2sim.measure.behaviour import compare_behaviour
from isthmus.real2sim.measure.closed_loop import Rollouts, controlled_stretches, resimulate
from isthmus.real2sim.measure.coverage import conformal_threshold, distance_to_other_episodes, energy_test, window_coverage
from isthmus.real2sim.measure.force_region import force_region_use
from isthmus.real2sim.measure.windows import cut_windows, feature_labels, principal_axes
from isthmus.real2sim.prepare.tracks import to_tracks
from isthmus.robots import get_robot
from isthmus.sim.simulate_recording import random_multisine
from support.recordings import following, recorded

PENDULUM = get_robot("pendulum")
RNG = np.random.default_rng
WORLDS, TICKS = 40, 200


@pytest.fixture(scope="module")
def controller(tmp_path_factory):
    law = AffineFeedback((0.0,), {"joint_vel": ((-0.05,),)})
    return following(PENDULUM, random_multisine(PENDULUM, 5.0, 3, 0.5), law, tmp_path_factory.mktemp("c") / "a.controller")


def part(controller, e: np.ndarray, seed: int):
    episode = recorded(PENDULUM, controller, e, TICKS, seed)
    found = to_tracks([episode], PENDULUM.contract, 1.0 / PENDULUM.contract.rate)
    (stretch,) = controlled_stretches(PENDULUM, controller, [episode], found)
    return stretch


@pytest.fixture(scope="module")
def lived(controller):
    """Worlds of the prior that live through what the nominal robot did."""
    stretch = part(controller, PENDULUM.space.nominal, 1)
    return stretch, resimulate(PENDULUM, controller, stretch, PENDULUM.prior.sample(RNG(0), WORLDS), threads=1)


def test_the_same_world_lives_the_same_life(controller):
    quiet = PENDULUM.space.nominal.copy()
    for name in ("joint_pos_noise", "joint_vel_noise"):
        quiet[PENDULUM.space.index(name)] = 0.0
    stretch = part(controller, quiet, 1)
    same = resimulate(PENDULUM, controller, stretch, np.stack([quiet, quiet]), threads=1)
    assert np.abs(same.measured - stretch.measured).max() < 0.02
    assert np.abs(same.target - stretch.target).max() < 0.01
    assert np.array_equal(same.measured[0], same.measured[1])


def test_a_world_of_the_belief_raises_the_stated_share_of_alarms(lived):
    stretch, worlds = lived
    shares, alike_ = [], []
    for i in range(WORLDS):
        others = np.delete(np.arange(WORLDS), i)
        as_real = replace_signals(stretch, worlds, i)
        found = window_coverage(
            PENDULUM, [(as_real, Rollouts(worlds.measured[others], worlds.target[others]))], false_alarm_rate=0.05
        )
        shares.append(found.uncovered.rate)
        alike_.append(found.p_same_distribution)
    assert 0.02 < np.mean(shares) < 0.08
    assert np.mean(np.array(alike_) <= 0.1) <= 0.2  # p-values are those of chance
    assert 0.3 < np.mean(alike_) < 0.7


def replace_signals(stretch, worlds: Rollouts, i: int):
    from dataclasses import replace

    return replace(stretch, measured=worlds.measured[i], target=worlds.target[i])


def test_a_shifted_world_is_found(controller, lived):
    _, worlds = lived
    e = PENDULUM.space.nominal.copy()
    e[PENDULUM.space.index("strength")] = 1.5
    e[PENDULUM.space.index("joint_damping")] = 0.0
    shifted = part(controller, e, 2)
    found = window_coverage(PENDULUM, [(shifted, worlds)])
    assert found.uncovered.low > found.false_alarm_rate
    assert found.p_uncovered < 0.05
    assert found.p_same_distribution < 0.05
    assert found.uncovered_windows[0].distance == max(u.distance for u in found.uncovered_windows) > 1.0
    assert all(shifted.start <= u.second < shifted.start + TICKS / 50 for u in found.uncovered_windows)
    did = compare_behaviour(PENDULUM, None, [(shifted, worlds)])
    assert did.p_value < 0.05
    spread = next(m for m in did.metrics if m.name == "joint_pos spread")
    assert spread.outside
    assert spread.recorded > spread.interval_90[1]


@pytest.mark.slow
def test_thresholds_keep_their_rate():
    rng, rates = RNG(0), []
    for _ in range(200):
        train, new = rng.standard_normal((2, 100))
        rates.append(np.mean(np.abs(new) > conformal_threshold(np.abs(train), 0.1)))
    assert 0.08 < np.mean(rates) <= 0.105


def test_the_energy_distance_tells_clouds_apart():
    rng = RNG(1)
    worlds = [rng.standard_normal((30, 3)) for _ in range(39)]
    same, p_same = energy_test([rng.standard_normal((30, 3))], [worlds])
    other, p_other = energy_test([rng.standard_normal((30, 3)) + 1.0], [worlds])
    assert p_other == 1 / 40 < 0.1 < p_same
    assert other > same
    _, p_two = energy_test([rng.standard_normal((30, 3)) + 1.0] * 2, [worlds, worlds])
    assert p_two < 0.01


def test_an_episode_is_not_its_own_neighbour():
    cloud = np.array([[0.0], [0.1], [5.0], [5.1]])
    assert distance_to_other_episodes(cloud, np.array([0, 0, 1, 1])) == pytest.approx([5.0, 4.9, 4.9, 5.0])


def test_what_lies_beside_the_axes_is_seen():
    rng = RNG(2)
    flat = np.concatenate([rng.standard_normal((200, 2)), 1e-3 * rng.standard_normal((200, 1))], axis=1)
    axes = principal_axes(flat)
    assert axes(np.array([[0.0, 0.0, 1.0]]))[0].max() > 10 * np.median(axes(flat)[:, -1])


def test_where_a_robot_is_and_heads_makes_no_window():
    robot = get_robot("crazyflie")
    T, width = 40, robot.contract.width
    y = RNG(3).normal(size=(1, T, width))
    slices = robot.contract.slices()
    y[..., slices["quat"]] = [1.0, 0.0, 0.0, 0.0]
    moved = y.copy()
    moved[..., slices["position"]] += [3.0, -2.0, 1.0]
    moved[..., slices["quat"]] = [np.cos(0.7), 0.0, 0.0, np.sin(0.7)]
    u = np.zeros((1, T, 4))
    a, b = cut_windows(robot, y, u), cut_windows(robot, moved, u)
    assert np.allclose(a.features, b.features)
    assert a.features.shape[1] % len(feature_labels(robot)) == 0


def test_a_learned_force_knows_where_it_was_not_taught(controller):
    from dataclasses import replace

    episode = recorded(PENDULUM, controller, PENDULUM.space.nominal, TICKS, 1)
    found = to_tracks([episode], PENDULUM.contract, 1.0 / PENDULUM.contract.rate)
    for kind in ("body", "motor"):
        force = zero_force(PENDULUM, kind, ("hinge",))
        inside, outside = (replace(force, net=replace(force.net, reach=reach)) for reach in (100.0, 1e-3))
        (region,) = force_region_use(with_learned_force(PENDULUM, inside), found)
        assert region.outside.rate == 0.0
        (region,) = force_region_use(with_learned_force(PENDULUM, outside), found)
        assert region.silent.rate == 1.0
        assert region.furthest[0][2] > 1.0
