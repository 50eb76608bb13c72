"""Laws of Param and Space: coordinates, bounds and names; and files of them and of beliefs, for anything that JSON can hold."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.errors import BadInput
from isthmus.world import Belief, Fixed, LogUniform, Normal, Param, Particles, Space, Uniform
from isthmus.world.factors import FACTOR_KINDS
from support.beliefs import BELIEFS, NORMAL, SPACE, A, B, C, D


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

FIELDS = [f.name for kind in (Param, *FACTOR_KINDS.values()) for f in dataclasses.fields(kind)]
TEXTS = ["a", "b", "linear", "log", "set", "geom:a/size", "geom:a{99999999999}/size", "\ud800"]
WORDS = ["kind", "space", "belief", "params", "factors", *FACTOR_KINDS, *dict.fromkeys(FIELDS), *TEXTS]
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
