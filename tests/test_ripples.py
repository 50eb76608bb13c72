"""Laws of delays that only show together: each is as wide as its valley, their sum is tight, and one alone is found."""

from __future__ import annotations

import numpy as np
import pytest

from isthmus.gap.residual import Residual
from isthmus.identify.fit import fit
from isthmus.identify.plant import record, waves
from isthmus.identify.prior import Prior
from isthmus.identify.ripples import delays, less
from isthmus.identify.study import prepare
from isthmus.robots import get_robot
from isthmus.world import Belief

RNG = np.random.default_rng
BOTH = ("action_delay", "sensor_delay")
OTHERS = ("kd", "joint_friction", "armature")


@pytest.fixture(scope="module")
def legs():
    return get_robot("held:go1")


@pytest.fixture(scope="module")
def moved(legs):
    """Segments of nominal legs with delays of 12 and 3 ms, and σ."""
    e = legs.prior.median()
    e[[legs.space.index(name) for name in BOTH]] = 0.012, 0.003
    parts = prepare(legs, [record(legs, e, waves(legs, 1.5, seed=2, size=0.15), seed=3)], legs.prior, threads=1)
    return parts.train, parts.floor


def test_exchanged_delays_are_both_believed_and_their_sum_is_found(legs, moved):
    found = fit(legs, *_swapped(moved, legs), (*BOTH, *OTHERS), threads=1)
    for name, planted, exchanged in zip(BOTH, (0.012, 0.003), (0.007, 0.008), strict=True):
        low, high = found.interval(name, 0.9)
        assert low < planted < high, name
        assert low < exchanged < high, name
    assert sum(found.value(name) for name in BOTH) == pytest.approx(0.015, abs=0.0015)
    assert "sum of" in " ".join(d.text for d in found.undetermined() if {n for n, _ in d.parts} == set(BOTH))


def test_one_delay_alone_is_tight(legs, moved):
    e = legs.prior.median()
    e[legs.space.index("sensor_delay")] = 0.003
    found = fit(legs, *_swapped(moved, legs), ("action_delay", *OTHERS), start=e, threads=1)
    low, high = found.interval("action_delay", 0.9)
    assert high - low < 0.002


def _swapped(moved, robot):
    return moved[0], robot.prior, moved[1]


def test_information_along_a_direction_is_taken_out_and_none_across_it():
    rng = RNG(0)
    root, along = rng.standard_normal((5, 5)), rng.standard_normal(5)
    told = root @ root.T
    across = np.linalg.svd((told @ along)[None])[2][1:]
    left = less(told, along, 0.1)
    assert along @ left @ along == pytest.approx(0.1)
    assert across @ left @ across.T == pytest.approx(across @ told @ across.T)
    assert np.linalg.eigvalsh(left).min() > 0
    assert less(told, along, 2.0 * along @ told @ along) is told


def test_a_belief_given_one_number_is_the_whole_belief_at_that_number(legs):
    rng, names = RNG(1), OTHERS
    root = rng.standard_normal((3, 3))
    whole = Prior(legs.space.subset(names), rng.standard_normal(3), root @ root.T)
    z = rng.standard_normal((2, 3))
    z[:, 1] = 0.7
    rest = whole.given(1, 0.7)
    assert rest.space.names == (names[0], names[2])
    assert np.diff(rest.cost(z[:, [0, 2]])) == pytest.approx(np.diff(whole.cost(z)))


def test_a_residual_that_holds_a_number_is_the_same_residual(legs, moved):
    whole = Residual(legs, *moved, (*BOTH, *OTHERS), threads=1)
    held = whole.holding("sensor_delay")
    e, z = legs.prior.median(), RNG(2).standard_normal(5)
    world = whole.world(z, e)
    assert held.world(np.delete(z, 1), world) == pytest.approx(world)
    assert delays(whole.space) == (0, 1)
    assert delays(held.space) is None
    assert Belief(held.space).space.names == ("action_delay", *OTHERS)
