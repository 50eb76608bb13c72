"""Laws of Belief: draws follow it, intervals hold their share, and new ones come from old."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats

from isthmus.core.errors import BadInput
from isthmus.robots import ROBOTS
from isthmus.world import Belief, Fixed, LogUniform, Normal, Param, Particles, Space, Uniform, belief_on_space
from support.beliefs import BELIEFS, PARTICLES, SPACE, A, B


@pytest.fixture(params=sorted(BELIEFS))
def belief(request) -> Belief:
    return BELIEFS[request.param]


# Sampling ---------------------------------------------------------------------------------------------------------


def ks(values: np.ndarray, law) -> float:
    return stats.kstest(values, law.cdf).pvalue


def test_draws_follow_each_kind_of_factor():
    rng = np.random.default_rng(3)
    draw = lambda name: BELIEFS[name].sample(rng, 2000)
    assert ks(draw("uniform")[:, 0], stats.uniform(-0.5, 0.8)) > 1e-3
    assert ks(draw("log_uniform")[:, 1], stats.loguniform(0.1, 1 / 3)) > 1e-3
    z = SPACE.unconstrained(draw("normal"))
    assert ks(z[:, 0], stats.norm(0.4, 0.5**0.5)) > 1e-3
    assert ks(z[:, 3], stats.norm(-1.1, 0.3**0.5)) > 1e-3
    assert np.cov(z[:, 0], z[:, 3])[0, 1] == pytest.approx(0.2, abs=0.04)
    seen = draw("particles")[:, 1:3]
    for row, weight in zip(PARTICLES.values, PARTICLES.weights, strict=True):
        assert (seen == row).all(1).mean() == pytest.approx(weight, abs=0.05)
    assert (draw("fixed") == SPACE.vector({"a": 1.9})).all()


def test_every_draw_is_inside_the_hard_bounds(belief):
    SPACE.check(belief.sample(np.random.default_rng(1), 500))


def test_what_no_factor_names_stays_nominal(belief):
    free = {n for f in belief.factors for n in f.names}
    e = belief.sample(np.random.default_rng(1), 20)
    for i, name in enumerate(SPACE.names):
        assert name in free or (e[:, i] == SPACE.nominal[i]).all()


def test_the_same_seed_gives_the_same_worlds(belief):
    assert (belief.sample(np.random.default_rng(5), 9) == belief.sample(np.random.default_rng(5), 9)).all()


def test_free_is_the_space_of_what_varies():
    assert BELIEFS["fixed"].free().names == ()
    assert BELIEFS["normal"].free().names == ("a", "d")
    assert BELIEFS["all"].free() == SPACE
    assert BELIEFS["all"].fix({"a": 0.5}).free().names == ("b", "c", "d")


def test_the_interval_holds_its_share_of_the_draws(belief):
    e = belief.sample(np.random.default_rng(2), 4000)
    for i, name in enumerate(SPACE.names):
        low, high = belief.interval(name, 0.8)
        share = ((e[:, i] >= low) & (e[:, i] <= high)).mean()
        assert low <= belief.median()[i] <= high
        if isinstance(belief[name], Fixed):
            assert low == high == e[0, i]
        elif isinstance(belief[name], Particles):
            assert share >= 0.79
        else:
            assert share == pytest.approx(0.8, abs=0.025)


def test_the_whole_interval_holds_every_draw_and_keeps_to_the_bounds(belief):
    e = belief.sample(np.random.default_rng(3), 4000)
    for i, name in enumerate(SPACE.names):
        low, high = belief.interval(name, 1.0)
        assert SPACE[name].low <= low <= high <= SPACE[name].high
        assert low <= e[:, i].min()
        assert e[:, i].max() <= high


# New beliefs ------------------------------------------------------------------------------------------------------


def test_width_one_is_the_belief_itself(belief):
    assert belief.scaled(1.0).hash == belief.hash


def test_width_zero_is_one_point():
    for name in ("uniform", "log_uniform", "fixed", "normal", "particles", "all"):
        e = BELIEFS[name].scaled(0.0).sample(np.random.default_rng(0), 50)
        assert np.ptp(e, axis=0).max() < 1e-12


def test_width_zero_of_the_prior_is_nominal_where_the_prior_holds_it(robot):
    e = robot.prior.scaled(0.0).sample(np.random.default_rng(0), 1)[0]
    for p, value in zip(robot.space.params, e, strict=True):
        low, high = robot.prior.interval(p.name, 1.0)
        assert value == np.clip(p.nominal, low, high)


@pytest.mark.parametrize("width", [1e-9, 0.1, 1 / 3, 0.7, 1 - 2**-53])
def test_a_narrower_belief_lies_inside_the_wider_one(width):
    for b in (*BELIEFS.values(), *(make().prior for make in ROBOTS.values())):
        for name in b.space.names:
            level = 0.9 if isinstance(b[name], Normal) else 1.0
            wide, narrow = b.interval(name, level), b.scaled(width).interval(name, level)
            slack = 1e-12 * max(map(abs, wide))
            assert wide[0] - slack <= narrow[0] <= narrow[1] <= wide[1] + slack
            assert narrow[1] - narrow[0] <= (wide[1] - wide[0]) + slack


@pytest.mark.parametrize("width", [1.3, 2.0, 100.0])
def test_a_wider_belief_holds_the_narrower_one_and_ends_at_the_hard_bounds(robot, width):
    wider = robot.prior.scaled(width)
    for p in robot.space.params:
        (low, high), (lower, higher) = robot.prior.interval(p.name, 1.0), wider.interval(p.name, 1.0)
        assert p.low <= lower <= low
        assert high <= higher <= p.high
        if width == 100.0 and p.low < low < p.nominal < high < p.high:
            assert (lower, higher) == (p.low, p.high)


def test_replace_gives_way_whole_factors():
    new = BELIEFS["all"].replace(Uniform("b", 1.0, 2.0))
    assert isinstance(new["b"], Uniform)
    assert new["c"] == Fixed("c", 0.0)
    assert new["a"] == BELIEFS["all"]["a"]
    assert BELIEFS["all"].replace(*BELIEFS["all"].factors).hash == BELIEFS["all"].hash
    with pytest.raises(BadInput):
        BELIEFS["all"].replace(Fixed("zz", 1.0))


def test_over_is_uniform_in_each_parameters_own_scale():
    b = Belief.from_ranges(SPACE, {"a": (0.0, 1.0), "b": (0.5, 1.0)})
    assert b.factors == (Uniform("a", 0.0, 1.0), LogUniform("b", 0.5, 1.0))
    assert b.free().names == ("a", "b")


def test_adopt_takes_a_belief_into_a_larger_space_and_no_other():
    small = Belief(Space((A, B)), (Uniform("a", 0.0, 1.0),))
    big = belief_on_space(small, SPACE)
    assert big.space == SPACE
    assert big.factors == small.factors
    with pytest.raises(BadInput, match=r"'c'|'d'"):
        belief_on_space(BELIEFS["all"], Space((A, B)))
    with pytest.raises(BadInput, match="'a'"):
        belief_on_space(small, Space((dataclasses.replace(A, unit="mm"), B)))


def test_fixing_one_parameter_leaves_those_that_vary_with_it_alone():
    space = Space(tuple(Param(n, "1", 0.5, 0.0, 1.0, (f"geom:{n}/friction[0]",)) for n in "abc"))
    normal = Normal(("a", "b"), (-2.0, 2.0), ((0.01, 0.005), (0.005, 0.01)))
    cloud = Particles(("a", "b"), ((0.1, 0.9), (0.2, 0.8)), (1.0, 3.0))
    for joint in (normal, cloud):
        before = Belief(space, (joint,))
        after = before.fix({"a": 0.3})
        assert after["a"] == Fixed("a", 0.3)
        assert after.interval("b") == pytest.approx(before.interval("b"))
        assert set(after.free().names) == {"b"}
        assert set(before.fix({"a": 0.3, "b": 0.4}).free().names) == set()
