"""A robot on its feet is followed tick by tick, and its numbers come out of what each tick brings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isthmus.cli.main import main
from isthmus.data.episode import Episode
from isthmus.data.mcap.writer import write_episode
from isthmus.real2sim.identify.fit import fit
from isthmus.real2sim.identify.force_features import rollout_features, zero_force
from isthmus.real2sim.identify.identification import PreparedSegments, prepare_segments
from isthmus.real2sim.measure.predictor import Predictor
from isthmus.real2sim.residual.estimators import Observer
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.robots import get_robot
from isthmus.sim.robot import Robot
from isthmus.sim.simulate_recording import random_multisine, record_targets

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
def swaying(go1: Robot) -> PreparedSegments:
    """go1 stands and sways for 8 s, with a load, a strong leg and stiff gains."""
    episode = record_targets(go1, world(go1, TRUE), random_multisine(go1, 8.0, 0, size=0.04), 1)
    return prepare_segments(go1, [episode], go1.prior, threads=1)


def squares(go1: Robot, parts: PreparedSegments, values: dict[str, float], followed: int | None = None) -> float:
    residual = ParameterResidual(go1, parts.train, parts.noise_floor, (), threads=1, estimator=Observer(go1, followed))
    r = residual(world(go1, values)[None], np.zeros((1, len(parts.train), 0)))
    return float((r**2).sum() / residual.seen.sum())


def test_in_the_right_world_each_tick_is_predicted_to_little_more_than_its_noise(go1: Robot, swaying: PreparedSegments):
    assert squares(go1, swaying, TRUE) < 2.0


@pytest.mark.parametrize(("name", "value"), [("payload", 0.0), ("strength_FL", 0.9), ("kp", 0.95), ("action_delay", 0.04)])
def test_every_wrong_number_makes_it_worse(go1: Robot, swaying: PreparedSegments, name: str, value: float):
    assert squares(go1, swaying, TRUE | {name: value}) > 1.02 * squares(go1, swaying, TRUE)


def test_an_observer_forgives_a_wrong_number_in_part(go1: Robot, swaying: PreparedSegments):
    wrong = TRUE | {"payload": 0.0}
    assert squares(go1, swaying, wrong) < squares(go1, swaying, wrong, followed=0)


@pytest.mark.slow
def test_numbers_of_a_robot_on_its_feet_are_found(go1: Robot, swaying: PreparedSegments):
    found = fit(go1, swaying.train, go1.prior, swaying.noise_floor, ("payload", "kp"), world(go1, {"strength_FL": 1.05}), 2, 1)
    assert found.value("payload") == pytest.approx(TRUE["payload"], abs=0.3)
    assert found.value("kp") == pytest.approx(TRUE["kp"], rel=0.03)
    for name in found.space.names:
        before, after = (np.ptp(b.interval(name, 0.9)) for b in (go1.prior, found.belief))
        assert after < 0.7 * before


def _later(episode: Episode, ticks: int) -> Episode:
    """Without its first ticks, in which a robot comes to rest."""
    signals = {name: values[ticks:] for name, values in episode.signals.items()}
    rest = {name: getattr(episode, name)[ticks:] for name in ("target", "wanted")}
    return replace(episode, time=episode.time[ticks:] - episode.time[ticks], signals=signals, **rest)


@pytest.mark.slow
def test_standing_still_says_nothing(go1: Robot):
    episode = record_targets(go1, world(go1, {}), np.tile(np.array(go1.default), (450, 1)), 3)
    parts = prepare_segments(go1, [_later(episode, 150)], go1.prior, horizon_seconds=0.5, threads=1, trust=True)
    found = fit(go1, parts.train, go1.prior, parts.noise_floor, ("ground_friction", "armature"), rounds=1, threads=1)
    for name in found.space.names:
        low, high = found.interval(name, 0.9)
        before = go1.prior.interval(name, 0.9)
        assert high - low > 0.9 * (before[1] - before[0])


@pytest.mark.slow
def test_identify_says_that_a_robot_at_rest_says_nothing(go1: Robot, tmp_path, capsys):
    episode = record_targets(go1, world(go1, {}), np.tile(np.array(go1.default), (400, 1)), 3)
    write_episode(tmp_path / "stand.mcap", _later(episode, 150))
    options = ["--only", "ground_friction", "--search", "never", "--trust", "-o", str(tmp_path / "s.twin")]
    assert main(["identify", "go1", str(tmp_path / "stand.mcap"), *options]) == 0
    assert "it says nothing" in capsys.readouterr().out


def test_a_tick_that_was_not_measured_costs_no_more_than_itself(go1: Robot, swaying: PreparedSegments):
    holes = swaying.train.measured.copy()
    holes[:, ::7] = np.nan
    whole, some = (
        ParameterResidual(go1, replace(swaying.train, measured=m), swaying.noise_floor, (), 1)
        for m in (swaying.train.measured, holes)
    )
    assert (some.seen.sum((1, 2)) > 0.8 * whole.seen.sum((1, 2))).all()


def test_what_a_force_would_read_is_where_the_robot_was_followed_to(go1: Robot, swaying: PreparedSegments):
    residual = ParameterResidual(go1, swaying.train, swaying.noise_floor, (), threads=1)
    xi = np.zeros((len(swaying.train), 0))
    e = world(go1, TRUE | {"payload": 0.0})
    _, qpos = rollout_features(residual, zero_force(go1, "motor", ("FL_calf",)), e, xi)
    calf = go1.contract.slices()["joint_pos"].start + go1.contract["joint_pos"].component_index("FL_calf")
    column = int(go1.model.joint("FL_calf").qposadr[0])
    followed = residual.predict(e[None], xi[None])[0][:, :-1, calf]
    assert np.abs(qpos[:, :, 0, column] - followed).max() < 0.1
    assert np.abs(qpos[:, 5:, 0, column] - swaying.train.measured[:, 5:-1, calf]).mean() < 0.02


def test_predictions_ahead_are_told_from_those_of_a_wrong_world(go1: Robot, swaying: PreparedSegments):
    predict = Predictor(go1, swaying.train, swaying.noise_floor, threads=1)
    right, wrong = (predict(world(go1, values)).normalized_error for values in (TRUE, TRUE | {"payload": 0.0, "kp": 0.9}))
    assert np.nanmean(wrong**2) > 1.2 * np.nanmean(right**2)
