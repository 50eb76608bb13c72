"""A watch over a unit: quiet without a change, and what is planted is found, named, and dated."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from isthmus.cli.main import main
from isthmus.data.mcap.writer import write_episode
from isthmus.real2sim.drift.change_detection import alarm_threshold, change_evidence, change_size
from isthmus.real2sim.drift.drift import drift
from isthmus.real2sim.drift.score_statistics import drift_inputs
from isthmus.real2sim.identify.fit import noise_by_signal, posterior_belief
from isthmus.real2sim.identify.identification import fit_recordings
from isthmus.real2sim.prepare.prepare import prepare
from isthmus.robots import get_robot
from isthmus.robots.twin import Twin
from isthmus.sim.physics.unit_physics import UnitPhysics
from isthmus.sim.simulate_recording import random_multisine, record_targets
from isthmus.world import Belief
from isthmus.world.factors import Fixed, Normal

RNG = np.random.default_rng
NAMES = ("payload", "strength", "joint_damping", "joint_friction")
TRUE = {"payload": 0.05, "joint_friction": 0.08}


# The test by itself --------------------------------------------------------------------------------------------


def _series(rng, n=40, shared=0.3):
    """Numbers as a unit without change gives them, and their covariance."""
    return np.sqrt(shared) * rng.normal() + rng.normal(size=n), np.eye(n) + shared


def test_false_alarms_are_no_more_than_stated():
    rng, alarms, recordings = RNG(0), 0, 0
    for _ in range(200):
        at = change_evidence(*_series(rng)).first_alarm(alarm_threshold(20.0, 1))
        alarms, recordings = alarms + (at is not None), recordings + (40 if at is None else at + 1)
    assert alarms <= 20.0 * recordings / 1000.0


def test_noise_that_is_larger_than_thought_does_not_count_as_change():
    rng, alarms = RNG(1), 0
    for _ in range(100):
        y, covariance = _series(rng)
        alarms += change_evidence(3.0 * y, covariance, unchanged=10).first_alarm(alarm_threshold(1.0, 1)) is not None
    # Of 30 recordings that may be changed each, at one in a thousand.
    assert alarms <= 4


def test_without_a_change_the_evidence_grows_by_one_per_recording():
    """Its expectation; heavy tails make a mean of draws smaller, never larger by much."""
    last = [np.exp(change_evidence(*_series(RNG(i), 10)).log_evidence[-1]) for i in range(400)]
    assert 3.0 < np.mean(last) < 20.0


@pytest.mark.parametrize(("shape", "by"), [("jump", 4.0), ("drift", 0.5)])
def test_time_shape_and_size_come_out(shape, by):
    y, covariance = _series(RNG(3))
    course = np.where(np.arange(40) >= 20, by * (1.0 if shape == "jump" else np.arange(40) - 19.0), 0.0)
    found = change_evidence(y + course, covariance)
    assert found.shape == shape
    assert 20 <= found.first_alarm(alarm_threshold(1.0, 10)) < 35
    at, low, high = found.change_start
    assert low <= 20 <= high + 2
    assert abs(at - 20) <= 3
    now = change_size(y + course, covariance, shape, at)
    assert now.interval(0.99)[0] < course[-1] < now.interval(0.99)[1]


def test_an_alarm_needs_only_what_came_before_it():
    y, covariance = _series(RNG(4))
    whole, part = change_evidence(y, covariance), change_evidence(y[:15], covariance[:15, :15])
    assert whole.log_evidence[:15] == pytest.approx(part.log_evidence)


# A unit --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pendulum():
    return get_robot("pendulum")


@pytest.fixture(scope="module")
def belief(pendulum):
    """A twin that is a little off: within what it believes."""
    space = pendulum.space.subset(NAMES)
    spread = np.array([0.06, 0.03, 0.06, 0.06])
    z = space.unconstrained(space.vector(TRUE)) + spread * RNG(5).normal(size=len(NAMES))
    factor = Normal(space.names, tuple(z.tolist()), tuple(map(tuple, np.diag(spread**2).tolist())))
    noises = [Fixed(n, float(pendulum.space[n].nominal)) for n in ("joint_pos_noise", "joint_vel_noise")]
    return Belief(pendulum.space, (factor, *noises))


def _lived(robot, courses, n, still=False):
    """Recordings of a unit whose numbers follow courses: name -> (n,)."""
    out = []
    for i in range(n):
        e = robot.space.vector(TRUE | {name: float(values[i]) for name, values in courses.items()})
        targets = np.zeros((100, 1)) if still else random_multisine(robot, 2.0, seed=i)
        out.append(record_targets(robot, e, targets, seed=i))
    return out


@pytest.fixture(scope="module")
def quiet(pendulum):
    return _lived(pendulum, {}, 10)


def _watched(robot, belief, episodes, **options):
    return drift(drift_inputs(prepare(robot, episodes), belief, robot.prior, threads=1), **options)


@pytest.mark.slow
def test_no_alarm_without_a_change(pendulum, belief, quiet):
    found = _watched(pendulum, belief, quiet)
    assert not found.changes
    assert found.unexplained_change is None
    # With a margin: not even at a hundred times the rate.
    assert all(e.first_alarm(found.alarm_threshold / 100.0) is None for e in found.evidence.values())


def test_what_a_fit_left_is_no_change(pendulum, belief, quiet):
    """Sensors of a twin that lacks something are less noisy than what it leaves, and a watch goes by the latter."""
    left = {"joint_pos": 0.02, "joint_vel": 0.3}
    assert drift_inputs(
        prepare(pendulum, quiet), belief, pendulum.prior, threads=1, unexplained_noise=left
    ).noise == pytest.approx([0.02, 0.3])
    fixed = belief.with_factors(Fixed("joint_pos_noise", 0.003))
    assert drift_inputs(prepare(pendulum, quiet), fixed, pendulum.prior, threads=1).noise[0] == pytest.approx(0.003)


@pytest.mark.slow
def test_a_twin_that_lacks_play_is_watched_without_alarms(pendulum):
    real = replace(pendulum, unit=UnitPhysics(motors={"backlash": (0.03,)}))
    drawn = [record_targets(real, real.space.vector(TRUE), random_multisine(real, 4.0, seed=i), seed=i) for i in range(14)]
    found = fit_recordings(pendulum, drawn[:2], pendulum.prior, threads=1).fit
    after, left = posterior_belief(pendulum, found, pendulum.prior), noise_by_signal(pendulum, found.noise)
    sensors = [after.median()[pendulum.space.index(f"{name}_noise")] for name in left]
    assert all(s < 0.7 * x for s, x in zip(sensors, left.values(), strict=True))
    unit = drift_inputs(prepare(pendulum, drawn[2:]), after, pendulum.prior, threads=1, unexplained_noise=left)
    assert not drift(unit).changes
    assert not drift(unit, unchanged=5).changes


@pytest.mark.slow
def test_a_payload_is_found_at_once_and_named(pendulum, belief, quiet):
    after = _lived(pendulum, {"payload": np.where(np.arange(10) >= 5, 0.12, 0.05)}, 10)
    found = _watched(pendulum, belief, [*quiet[:5], *after[5:8]])
    change = found.changes[0]
    assert change.name == "payload"
    assert change.change_start[0] == 5
    assert change.alarm_recording in (5, 6, 7)
    assert change.size.final_value > 0
    assert len(found.changes) == 1
    assert found.unexplained_change is None
    space = pendulum.space.subset(["payload"])
    mean = found.inputs.twin_prior.mean[found.inputs.twin_prior.space.index("payload")]
    low, high = (float(space.from_unconstrained(np.array([mean + x]))[0]) for x in change.size.interval(0.99))
    assert low < 0.12 < high


@pytest.mark.slow
def test_friction_that_creeps_up_is_found(pendulum, belief, quiet):
    creeping = _lived(pendulum, {"joint_friction": 0.08 + 0.01 * np.maximum(np.arange(10) - 2.0, 0.0)}, 10)
    found = _watched(pendulum, belief, creeping)
    change = found.changes[0]
    assert change.name == "joint_friction"
    assert change.size.final_value > 0
    assert change.shape != "jump"
    assert found.unexplained_change is None


def test_a_robot_at_rest_says_nothing_of_its_friction(pendulum, belief):
    worn = _lived(pendulum, {"joint_friction": np.where(np.arange(6) >= 3, 0.5, 0.08)}, 6, still=True)
    found = _watched(pendulum, belief, worn, false_alarms_per_1000=100.0)
    assert "joint_friction" not in found.evidence
    assert not found.changes
    assert any("joint_friction" in d.text for d in found.undetermined_directions)


def test_errors_that_no_number_explains_are_said_to_be_beyond_the_numbers(pendulum, belief, quiet):
    shaken = []
    for episode in quiet[4:8]:
        wobble = 0.01 * np.sin(2 * np.pi * 11.0 * episode.time)[:, None]
        shaken.append(replace(episode, signals={**episode.signals, "joint_pos": episode.signals["joint_pos"] + wobble}))
    found = _watched(pendulum, belief, [*quiet[:4], *shaken])
    assert found.unexplained_change is not None
    assert found.unexplained_change.change_start[0] == 4


# The command ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(pendulum, belief, quiet, tmp_path_factory):
    """A twin and recordings of it, three days and then two with a load."""
    path = tmp_path_factory.mktemp("watch")
    Twin("pendulum", pendulum.model_hash, belief).with_fit(belief, {"recordings": []}).save(path / "unit.twin")
    loaded = _lived(pendulum, {"payload": np.full(6, 0.2)}, 6)
    for i, episode in enumerate([*quiet[:4], *loaded[4:6]]):
        write_episode(path / f"{i}.mcap", replace(episode, origin={"started": 1000.0 * i}))
    return path


def test_the_command_says_what_has_changed_and_what_to_do(folder, pendulum, capsys):
    files = [str(folder / f"{i}.mcap") for i in range(6)]
    pendulum.prior.save(folder / "trained.json")
    options = ["--belief", str(folder / "trained.json"), "-o", str(folder / "out.png"), "--json"]
    assert main(["drift", str(folder / "unit.twin"), *files, *options]) == 1
    said = json.loads(capsys.readouterr().out)
    change = said["changes"][0]
    assert change["name"] == "payload"
    assert change["since"]["file"] == files[4]
    assert change["low"] < 0.2 < change["high"]
    assert change["cause"] == "a load put on"
    # Beyond the 0 to 0.08 kg that it was trained with.
    assert said["needed"] == "retraining"
    assert (folder / "out.png").read_bytes()[:4] == b"\x89PNG"


def test_no_change_is_exit_code_0(folder, capsys):
    assert main(["drift", str(folder / "unit.twin"), *(str(folder / f"{i}.mcap") for i in range(3))]) == 0
    assert "no change" in capsys.readouterr().out


def test_bad_input_is_one_sentence(folder, tmp_path, quiet, capsys):
    cartpole = get_robot("cartpole")
    write_episode(tmp_path / "other.mcap", record_targets(cartpole, cartpole.space.nominal, np.zeros((100, 1)), seed=0))
    (tmp_path / "torn.mcap").write_bytes(b"nothing of the sort")
    write_episode(tmp_path / "empty.mcap", quiet[0].time_slice(9.0, 9.0))
    write_episode(tmp_path / "short.mcap", quiet[0].time_slice(0.0, 0.06))
    twin, one, two = str(folder / "unit.twin"), str(folder / "0.mcap"), str(folder / "1.mcap")
    for given, said in (
        ([twin, str(tmp_path / "other.mcap")], "other.mcap"),
        ([twin, one, str(tmp_path / "torn.mcap")], "torn.mcap"),
        ([twin, one, str(tmp_path / "empty.mcap")], "is empty"),
        ([twin, one, str(tmp_path / "short.mcap")], "short.mcap"),
        ([twin, two, one], "in the order of time"),
        ([twin, one, one], "the same recording"),
        ([one, two], "is not a twin"),
        ([twin, one, "--baseline", "1"], "--baseline"),
        ([twin, one, "--alarms", "0"], "--alarms"),
        ([twin, one, "--only", "mass"], "mass"),
        ([twin, one, "-o", "out.txt"], "out.txt"),
    ):
        assert main(["drift", *given]) == 2, given
        error = capsys.readouterr().err.strip()
        assert said in error
        assert error.count("\n") == 0
