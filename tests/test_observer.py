"""A robot on its feet is followed tick by tick, and its numbers come out of what each tick brings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isthmus.gap.predict import Predictor
from isthmus.gap.residual import Residual
from isthmus.identify.fit import fit
from isthmus.identify.plant import record, waves
from isthmus.identify.study import Parts, prepare
from isthmus.robots import get_robot
from isthmus.sim.robot import Robot

TRUE = {"payload": 0.8, "strength_FL": 1.05, "kp": 1.12}


@pytest.fixture(scope="module")
def go1() -> Robot:
    return get_robot("go1")


def world(robot: Robot, values: dict[str, float]) -> np.ndarray:
    e = robot.prior.median().copy()
    for name, value in values.items():
        e[robot.space.index(name)] = value
    return e


@pytest.fixture(scope="module")
def swaying(go1: Robot) -> Parts:
    """go1 stands and sways for 8 s, with a load, a strong leg and stiff gains."""
    episode = record(go1, world(go1, TRUE), waves(go1, 8.0, 0, size=0.04), 1)
    return prepare(go1, [episode], go1.prior, threads=1)


def squares(go1: Robot, parts: Parts, values: dict[str, float], followed: int | None = None) -> float:
    residual = Residual(go1, parts.train, parts.floor, (), threads=1, followed=followed)
    r = residual(world(go1, values)[None], np.zeros((1, len(parts.train), 0)))
    return float((r**2).sum() / residual.seen.sum())


def test_in_the_right_world_each_tick_is_predicted_to_little_more_than_its_noise(go1: Robot, swaying: Parts):
    assert squares(go1, swaying, TRUE) < 2.0


@pytest.mark.parametrize(("name", "value"), [("payload", 0.0), ("strength_FL", 0.9), ("kp", 0.95), ("action_delay", 0.04)])
def test_every_wrong_number_makes_it_worse(go1: Robot, swaying: Parts, name: str, value: float):
    assert squares(go1, swaying, TRUE | {name: value}) > 1.02 * squares(go1, swaying, TRUE)


def test_an_observer_forgives_a_wrong_number_in_part(go1: Robot, swaying: Parts):
    wrong = TRUE | {"payload": 0.0}
    assert squares(go1, swaying, wrong) < squares(go1, swaying, wrong, followed=0)


def test_numbers_of_a_robot_on_its_feet_are_found(go1: Robot, swaying: Parts):
    found = fit(go1, swaying.train, go1.prior, swaying.floor, ("payload", "kp"), world(go1, {"strength_FL": 1.05}), 2, 1)
    assert found.value("payload") == pytest.approx(TRUE["payload"], abs=0.3)
    assert found.value("kp") == pytest.approx(TRUE["kp"], rel=0.03)
    for name in found.space.names:
        before, after = (np.ptp(b.interval(name, 0.9)) for b in (go1.prior, found.belief))
        assert after < 0.7 * before


def test_standing_still_says_nothing(go1: Robot):
    episode = record(go1, world(go1, {}), np.tile(np.array(go1.default), (450, 1)), 3)
    settled = replace(
        episode,
        time=episode.time[150:],
        signals={name: values[150:] for name, values in episode.signals.items()},
        target=episode.target[150:],
        wanted=episode.wanted[150:],
    )
    parts = prepare(go1, [settled], go1.prior, ahead=0.5, threads=1, trust=True)
    found = fit(go1, parts.train, go1.prior, parts.floor, ("ground_friction", "armature"), rounds=1, threads=1)
    for name in found.space.names:
        low, high = found.interval(name, 0.9)
        before = go1.prior.interval(name, 0.9)
        assert high - low > 0.9 * (before[1] - before[0])


def test_predictions_ahead_are_told_from_those_of_a_wrong_world(go1: Robot, swaying: Parts):
    predict = Predictor(go1, swaying.train, swaying.floor, threads=1)
    right, wrong = (predict(world(go1, values)).relative for values in (TRUE, TRUE | {"payload": 0.0, "kp": 0.9}))
    assert np.nanmean(wrong**2) > 1.2 * np.nanmean(right**2)
