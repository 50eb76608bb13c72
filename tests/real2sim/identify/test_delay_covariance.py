"""Laws of delays that only show together: each is as wide as its valley, their sum is tight, and one alone is found."""

from __future__ import annotations

import numpy as np
import pytest

from isthmus.real2sim.identify.delay_covariance import delay_indices, limit_information
from isthmus.real2sim.identify.fit import fit
from isthmus.real2sim.identify.identification import prepare_segments
from isthmus.real2sim.residual.prior import GaussianPrior
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.robots import get_robot
from isthmus.sim.simulate_recording import random_multisine, record_targets

RNG = np.random.default_rng
BOTH = ("action_delay", "sensor_delay")
OTHERS = ("kd", "joint_friction", "armature")
PLANTED, EXCHANGED = (0.012, 0.003), (0.007, 0.008)
"""s; in the second, the delays have exchanged a physics step."""


@pytest.fixture(scope="module")
def legs():
    return get_robot("held:go1")


@pytest.fixture(scope="module")
def world(legs):
    e = legs.prior.median()
    e[[legs.space.index(name) for name in BOTH]] = PLANTED
    return e


@pytest.fixture(scope="module")
def moved(legs, world):
    """Segments of those legs, and σ."""
    parts = prepare_segments(
        legs,
        [record_targets(legs, world, random_multisine(legs, 1.2, 2, size=0.15), 5)],
        legs.prior,
        horizon_seconds=0.1,
        threads=1,
    )
    return parts.train.take(np.arange(0, len(parts.train), 2)), parts.noise_floor


def fitted(legs, moved, names, start):
    return fit(legs, moved[0], legs.prior, moved[1], names, start, rounds=1, threads=1)


def test_exchanged_delays_are_both_believed_and_their_sum_is_found(legs, moved):
    found = fitted(legs, moved, BOTH, legs.prior.median())
    for name, planted, exchanged in zip(BOTH, PLANTED, EXCHANGED, strict=True):
        low, high = found.interval(name, 0.9)
        assert low < min(planted, exchanged) < max(planted, exchanged) < high, name
    assert sum(found.value(name) for name in BOTH) == pytest.approx(sum(PLANTED), abs=0.001)
    assert [d.text for d in found.undetermined_directions()] == ["only the sum of sensor_delay and action_delay is determined."]


@pytest.mark.slow
def test_one_delay_is_found_where_the_other_is_known(legs, world, moved):
    low, high = fitted(legs, moved, BOTH[:1], world).interval(BOTH[0], 0.9)
    assert PLANTED[0] - 0.0015 < low < high < PLANTED[0] + 0.0015


def test_information_about_one_move_is_taken_out_and_none_about_the_rest():
    rng = RNG(0)
    root, along, count = rng.standard_normal((5, 5)), *rng.standard_normal((2, 5))
    told, count = root @ root.T, count / (count @ along)
    rest = np.linalg.svd(count[None])[2][1:]
    left = limit_information(told, along, count, 0.1)
    assert along @ left @ along == pytest.approx(0.1)
    assert rest @ left @ rest.T == pytest.approx(rest @ told @ rest.T)
    assert np.linalg.eigvalsh(left).min() > 0
    assert limit_information(told, along, count, 2.0 * along @ told @ along) is told


def test_a_belief_given_one_number_is_the_whole_belief_at_that_number(legs):
    rng, names = RNG(1), OTHERS
    root = rng.standard_normal((3, 3))
    whole = GaussianPrior(legs.space.subset(names), rng.standard_normal(3), root @ root.T)
    z = rng.standard_normal((2, 3))
    z[:, 1] = 0.7
    rest = whole.conditional(1, 0.7)
    assert rest.space.names == (names[0], names[2])
    assert np.diff(rest.cost(z[:, [0, 2]])) == pytest.approx(np.diff(whole.cost(z)))


def test_a_residual_that_holds_a_number_is_the_same_residual(legs, moved):
    segments, noise = moved
    whole = ParameterResidual(legs, segments, noise, (*BOTH, *OTHERS), threads=1)
    held, at = whole.with_fixed("sensor_delay"), whole.space.index("sensor_delay")
    z = RNG(2).standard_normal(5)
    e, rest = whole.parameter_values(z, legs.prior.median()), np.delete(z, at)
    assert held.parameter_values(rest, e) == pytest.approx(e)
    xi = np.zeros((1, len(segments), len(whole.start_scale)))
    assert held(held.parameter_values(rest[None], e), xi) == pytest.approx(whole(e[None], xi))
    assert delay_indices(whole.space) == tuple(map(whole.space.index, BOTH))
    assert delay_indices(held.space) is None
