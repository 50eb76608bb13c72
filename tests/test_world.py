"""Laws of Param, Space and Belief."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from isthmus.errors import BadInput
from isthmus.robots import ROBOTS
from isthmus.world import Belief, Fixed, LogUniform, Normal, Param, Particles, Space, Uniform, adopt
from isthmus.world.factors import KINDS

A = Param("a", "m", 0.3, -1.0, 2.0, ("geom:floor/friction[0]",), doc="plain")
B = Param("b", "kg", 2.0, 0.1, 7.3, ("body:.*/mass",), scale="log", how="scale")
C = Param("c", "1", 0.0, -0.7, 0.7, ("link:/action_delay", "link:/sensor_delay"), how="add")
D = Param("d", "s", 0.02, 0.001, 0.9, ("opt:/timestep",), scale="log")
SPACE = Space((A, B, C, D))
NORMAL = Normal(("a", "d"), (0.4, -1.1), ((0.5, 0.2), (0.2, 0.3)))
PARTICLES = Particles(("b", "c"), ((0.5, 0.1), (2.0, -0.3), (7.3, 0.7)), (0.2, 0.5, 0.3))
BELIEFS = {
    "fixed": Belief(SPACE, (Fixed("a", 1.9),)),
    "uniform": Belief(SPACE, (Uniform("a", -0.5, 0.1 + 0.2),)),
    "log_uniform": Belief(SPACE, (LogUniform("b", 0.1, 1 / 3),)),
    "normal": Belief(SPACE, (NORMAL,)),
    "particles": Belief(SPACE, (PARTICLES,)),
    "all": Belief(SPACE, (Uniform("a", 0.0, 1.0), PARTICLES, LogUniform("d", 0.01, 0.1))),
}


@pytest.fixture(params=sorted(BELIEFS))
def belief(request) -> Belief:
    return BELIEFS[request.param]


def inside(space: Space, n: int = 200) -> np.ndarray:
    u = np.random.default_rng(0).uniform(size=(n, len(space)))
    return space.from_unit(u)


# Coordinates ------------------------------------------------------------------------------------------------------


def test_unit_cube_there_and_back():
    e = inside(SPACE)
    assert np.allclose(SPACE.from_unit(SPACE.unit(e)), e, rtol=1e-13, atol=1e-15)


def test_unconstrained_there_and_back():
    e = inside(SPACE)
    assert np.allclose(SPACE.from_unconstrained(SPACE.unconstrained(e)), e, rtol=1e-10, atol=1e-12)


def test_bounds_are_the_ends_of_the_cube_exactly(robot):
    for space in (SPACE, robot.space):
        assert (space.from_unit(np.zeros(len(space))) == space.low).all()
        assert (space.from_unit(np.ones(len(space))) == space.high).all()
        assert (space.unit(space.low) == 0).all()
        assert (space.unit(space.high) == 1).all()


def test_far_away_on_the_real_line_stays_inside_the_bounds():
    for z in (-900.0, 900.0, -np.inf, np.inf):
        SPACE.check(SPACE.from_unconstrained(np.full(4, z)))


def test_unconstrained_bounds_are_finite():
    assert np.isfinite(SPACE.unconstrained(np.stack([SPACE.low, SPACE.high]))).all()


def test_middle_of_a_log_scale_is_the_geometric_mean():
    middle = SPACE.from_unit(np.full(4, 0.5))
    assert np.allclose(middle[[0, 2]], (SPACE.low + SPACE.high)[[0, 2]] / 2)
    assert np.allclose(middle[[1, 3]], np.sqrt(SPACE.low[[1, 3]] * SPACE.high[[1, 3]]))


def test_unit_is_monotonic_in_each_parameter():
    e = np.linspace(SPACE.low, SPACE.high, 50)
    assert (np.diff(SPACE.unit(e), axis=0) > 0).all()


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_every_point_of_the_cube_is_inside_the_hard_bounds(u):
    SPACE.check(SPACE.from_unit(np.array(u)))


# Names and bounds -------------------------------------------------------------------------------------------------


def test_a_misspelt_parameter_names_the_nearest():
    space = Space((dataclasses.replace(A, name="foot_friction"), dataclasses.replace(A, name="payload")))
    for call in (space.index, space.__getitem__, lambda n: space.vector({n: 0.3}), lambda n: space.subset([n])):
        with pytest.raises(BadInput, match="foot_friction"):
            call("foot_frction")
    with pytest.raises(BadInput, match="payload"):
        Belief(space, (Fixed("paylod", 0.0),))
    with pytest.raises(BadInput, match="payload"):
        Belief(space)["paylod"]


@pytest.mark.parametrize("factor", [
    Fixed("a", 2.1), Uniform("a", -1.1, 0.0), Uniform("a", 0.0, 2.1), LogUniform("b", 0.05, 1.0), LogUniform("b", 0.1, 8.0),
    Uniform("a", 1.0, 0.0), LogUniform("a", -0.5, 1.0), Fixed("a", float("nan")), Uniform("a", 0.0, float("inf")),
    Particles(("b", "c"), ((0.5, 0.9),)), Particles(("b", "c"), ((0.5,),)), Particles(("b",), ((1.0,),), (-1.0,)),
    Particles(("b",), ((1.0,), (2.0,)), (0.0, 0.0)), Particles(("b",), ()),
    Normal(("a",), (0.0,), ((-1.0,),)), Normal(("a", "b"), (0.0, 0.0), ((1.0, 0.9), (0.1, 1.0))),
    Normal(("a",), (0.0, 1.0), ((1.0,),)), Normal(("a",), (float("nan"),), ((1.0,),)),
])  # fmt: skip
def test_a_belief_that_does_not_fit_the_space_is_refused(factor):
    with pytest.raises(BadInput):
        Belief(SPACE, (factor,))


def test_a_parameter_is_described_once():
    with pytest.raises(BadInput, match="twice"):
        Belief(SPACE, (Uniform("a", 0, 1), NORMAL))
    with pytest.raises(BadInput, match="twice"):
        Space((A, A))


@pytest.mark.parametrize("change", [
    {"name": "no good"}, {"nominal": 3.0}, {"low": 2.0}, {"high": float("inf")}, {"nominal": float("nan")}, {"scale": "log"},
    {"scale": "cubic"}, {"how": "maybe"}, {"targets": ()}, {"targets": ("geom",)}, {"targets": ("geom:[/friction",)},
    {"low": -1e308, "high": 1e308},
])  # fmt: skip
def test_a_parameter_that_makes_no_sense_is_refused(change):
    with pytest.raises(BadInput):
        dataclasses.replace(A, **change)


def test_a_value_of_the_wrong_size_or_outside_is_refused():
    for e in (np.zeros(3), np.zeros(()), SPACE.high + 1, np.full(4, np.nan)):
        with pytest.raises(BadInput):
            SPACE.check(e)
    SPACE.check(np.stack([SPACE.low, SPACE.nominal, SPACE.high]))


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


def test_the_whole_interval_is_the_range(belief):
    for name in SPACE.names:
        low, high = belief.interval(name, 1.0)
        assert SPACE[name].low <= low <= high <= SPACE[name].high


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
    b = Belief.over(SPACE, {"a": (0.0, 1.0), "b": (0.5, 1.0)})
    assert b.factors == (Uniform("a", 0.0, 1.0), LogUniform("b", 0.5, 1.0))
    assert b.free().names == ("a", "b")


def test_adopt_takes_a_belief_into_a_larger_space_and_no_other():
    small = Belief(Space((A, B)), (Uniform("a", 0.0, 1.0),))
    big = adopt(small, SPACE)
    assert big.space == SPACE
    assert big.factors == small.factors
    with pytest.raises(BadInput, match=r"'c'|'d'"):
        adopt(BELIEFS["all"], Space((A, B)))
    with pytest.raises(BadInput, match="'a'"):
        adopt(small, Space((dataclasses.replace(A, unit="mm"), B)))


# Files ------------------------------------------------------------------------------------------------------------


def test_a_space_survives_the_round_trip(tmp_path, robot):
    for space in (SPACE, robot.space):
        space.save(tmp_path / "s.json")
        read = Space.load(tmp_path / "s.json")
        assert read == space
        assert read.hash == space.hash
        assert json.loads((tmp_path / "s.json").read_text())["hash"] == space.hash


def test_a_belief_survives_the_round_trip(tmp_path, robot):
    for b in (*BELIEFS.values(), robot.prior, robot.prior.scaled(0.3)):
        b.save(tmp_path / "b.json")
        read = Belief.load(tmp_path / "b.json")
        assert read == b
        assert read.hash == b.hash
        assert (read.sample(np.random.default_rng(0), 5) == b.sample(np.random.default_rng(0), 5)).all()


def test_a_whole_number_is_the_same_as_a_float():
    whole = Space((dataclasses.replace(A, nominal=1, low=-1, high=2),))
    real = Space((dataclasses.replace(A, nominal=1.0, low=-1.0, high=2.0),))
    assert whole.hash == real.hash == Space.from_dict(whole.to_dict()).hash
    for one, other in (
        (Fixed("a", 1), Fixed("a", 1.0)),
        (Uniform("a", 0, 1), Uniform("a", 0.0, 1.0)),
        (LogUniform("a", 1, 2), LogUniform("a", np.float32(1.0), 2.0)),
        (Normal(("a",), (0,), ((1,),)), Normal(("a",), (0.0,), ((1.0,),))),
        (Particles(("a",), ((1,),), (1,)), Particles(("a",), ((1.0,),), (1.0,))),
    ):
        assert Belief(real, (one,)).hash == Belief(real, (other,)).hash


def test_the_hash_changes_with_anything():
    changes = [
        {"name": "z"}, {"unit": "cm"}, {"nominal": 0.3 + 1e-15}, {"low": -1.1}, {"high": 2.1}, {"targets": ("geom:x/size[0]",)},
        {"how": "add"}, {"doc": "other"}, {"scale": "log", "low": 0.1},
    ]  # fmt: skip
    spaces = [SPACE, Space((B, A, C, D)), Space((A, B, C))]
    spaces += [Space((dataclasses.replace(A, **c), B, C, D)) for c in changes]
    assert len({s.hash for s in spaces}) == len(spaces)
    beliefs = [*BELIEFS.values(), Belief(SPACE, (Uniform("a", -0.5, 0.3),)), Belief(SPACE), Belief(Space((A, B, C)))]
    assert len({b.hash for b in beliefs}) == len(beliefs)


def test_the_hash_is_of_the_content_not_the_object():
    again = Space(tuple(dataclasses.replace(p) for p in SPACE.params))
    assert again.hash == SPACE.hash
    assert Belief(again, tuple(dataclasses.replace(f) for f in BELIEFS["all"].factors)).hash == BELIEFS["all"].hash


# Anything that JSON can hold ---------------------------------------------------------------------------------------

FIELDS = [f.name for kind in (Param, *KINDS.values()) for f in dataclasses.fields(kind)]
TEXTS = ["a", "b", "linear", "log", "set", "geom:a/size", "geom:a{99999999999}/size", "\ud800"]
WORDS = ["kind", "space", "belief", "params", "factors", *KINDS, *dict.fromkeys(FIELDS), *TEXTS]
NUMBERS = st.integers() | st.just(10**400) | st.floats()
SCALARS = st.none() | st.booleans() | NUMBERS | st.sampled_from(WORDS) | st.text(max_size=3)
KEYS = st.sampled_from(WORDS) | st.text(max_size=2)
JSON = st.recursive(SCALARS, lambda x: st.lists(x, max_size=3) | st.dictionaries(KEYS, x, max_size=4), max_leaves=8)
NUMBER = st.floats(0.1, 2.0) | JSON
PARAM = st.fixed_dictionaries(
    {
        "name": st.sampled_from("ab") | JSON,
        "unit": st.just("m") | JSON,
        "nominal": NUMBER,
        "low": st.just(0.05) | NUMBER,
        "high": st.just(3.0) | NUMBER,
        "targets": st.just(["geom:a/size"]) | JSON,
    },
    optional={"scale": st.sampled_from(["log", "linear"]) | JSON, "how": JSON, "doc": JSON, "extra": JSON},
)
NAMES = st.sampled_from(["a", "b", ["a"], ["b", "a"]]) | JSON
ROW = st.lists(NUMBER, max_size=2)
VALUES = NUMBER | ROW | st.lists(ROW, max_size=2)
FACTOR = st.fixed_dictionaries(
    {"kind": st.sampled_from(["fixed", "uniform", "log_uniform", "normal", "particles"]) | JSON},
    optional={"name": NAMES, "names": NAMES}
    | dict.fromkeys(("value", "low", "high", "mean", "covariance", "values", "weights"), VALUES),
)
ANY = st.dictionaries(st.sampled_from(WORDS), JSON)
GOOD_SPACE = Space((dataclasses.replace(A, low=0.05, high=3.0), B)).to_dict()


def read_or_refuse(read, data):
    try:
        got = read(data)
    except BadInput:
        return
    assert read(json.loads(json.dumps(got.to_dict()))).hash == got.hash
    if isinstance(got, Belief):
        got.space.check(got.sample(np.random.default_rng(0), 3))


@settings(max_examples=100)
@given(ANY | st.fixed_dictionaries({"kind": st.just("space"), "params": st.lists(PARAM, max_size=2)}))
def test_any_json_is_a_space_or_bad_input(data):
    read_or_refuse(Space.from_dict, data)


@settings(max_examples=200)
@given(st.just(GOOD_SPACE) | JSON, st.lists(FACTOR, max_size=2), ANY)
def test_any_json_is_a_belief_or_bad_input(space, factors, other):
    read_or_refuse(Belief.from_dict, {"kind": "belief", "space": space, "factors": factors})
    read_or_refuse(Belief.from_dict, other)


FACTORS = [f.to_dict() for b in BELIEFS.values() for f in b.factors]


@settings(max_examples=200)
@given(st.sampled_from(FACTORS), st.data())
def test_one_broken_field_of_a_factor_is_bad_input(row, data):
    key = data.draw(st.sampled_from(sorted(row)))
    read_or_refuse(Belief.from_dict, {"kind": "belief", "space": SPACE.to_dict(), "factors": [row | {key: data.draw(JSON)}]})


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
