"""Sliders to numbers and back: nothing is lost, the ends are the bounds, and every parameter has one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.data.contract import Signal
from isthmus.robots import ROBOTS, get_robot
from isthmus.studio.live.parameter_sliders import (
    command_limits,
    from_slider,
    params_by_folder,
    parse_assignments,
    slider_for,
    to_slider,
)

SPACES = {name: get_robot(name).space for name in ROBOTS}
GO1 = SPACES["go1"]


@pytest.mark.parametrize("name", SPACES)
def test_a_value_survives_the_slider_and_the_ends_are_the_bounds(name):
    rng = np.random.default_rng(0)
    space = SPACES[name]
    for p, e in zip(space.params, space.from_unit(rng.uniform(size=(50, len(space)))).T, strict=True):
        s = slider_for(p)
        at = [to_slider(p, v) for v in e]
        assert all(s.low <= x <= s.high for x in at)
        np.testing.assert_allclose([from_slider(p, x) for x in at], e, rtol=1e-9, atol=1e-12)
        assert (from_slider(p, s.low), from_slider(p, s.high)) == (p.low, p.high)
        values = [from_slider(p, x) for x in np.linspace(s.low, s.high, 20)]
        assert all(a < b for a, b in pairwise(values))
        assert 100 <= (s.high - s.low) / s.step <= 2000


def test_a_log_slider_moves_by_equal_factors():
    p = GO1["ground_friction"]
    assert p.scale == "log"
    values = np.array([from_slider(p, s) for s in np.linspace(0, 100, 11)])
    np.testing.assert_allclose(values[1:] / values[:-1], (p.high / p.low) ** 0.1)


@pytest.mark.parametrize("name", SPACES)
def test_every_parameter_is_in_exactly_one_folder(name):
    names = [p.name for params in params_by_folder(SPACES[name]).values() for p in params]
    assert sorted(names) == sorted(SPACES[name].names)


def test_folders_of_go1():
    folders = {name: {p.name for p in params} for name, params in params_by_folder(GO1).items()}
    assert list(folders) == ["ground", "body", "motors", "link", "sensors"]
    places = {"ground_friction": "ground", "payload": "body", "kp": "motors", "armature": "motors", "action_delay": "link"}
    for name, folder in (places | {"gyro_bias_x": "sensors"}).items():
        assert name in folders[folder]


def test_exact_values_are_typed_and_wrong_ones_change_nothing():
    e = parse_assignments("ground_friction = 0.42; payload=2,", GO1, GO1.nominal)
    changed = {n: v for n, v, nominal in zip(GO1.names, e, GO1.nominal, strict=True) if v != nominal}
    assert changed == {"ground_friction": 0.42, "payload": 2.0}
    np.testing.assert_array_equal(parse_assignments(" ", GO1, e), e)
    with pytest.raises(BadInput, match="ground_friction"):
        parse_assignments("ground_fricton = 1", GO1, e)
    with pytest.raises(BadInput, match="outside its hard bounds"):
        parse_assignments("payload = 900", GO1, e)
    with pytest.raises(BadInput, match="a number"):
        parse_assignments("payload", GO1, e)


def test_command_limits_and_units():
    signal = Signal("c", "m/s, rad/s", ("forward", "yaw"), low=(-2.0, -1.0), high=(2.0, 1.0))
    assert command_limits(signal) == ((-2.0, 2.0), (-1.0, 1.0))
    assert signal.units == ("m/s", "rad/s")
    assert command_limits(replace(signal, low=(), high=())) == ((-1.0, 1.0), (-1.0, 1.0))
    assert replace(signal, unit="m").units == ("m", "m")
