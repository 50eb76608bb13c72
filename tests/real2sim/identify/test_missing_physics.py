"""What a robot's model lacks: learned from motion alone, carried by a twin, trained on."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from isthmus.cli.main import main
from isthmus.core.errors import BadInput
from isthmus.data.mcap.writer import write_episode
from isthmus.real2sim.identify.force_features import SAMPLES_PER_TICK, rollout_features, with_learned_force, zero_force
from isthmus.real2sim.identify.identification import prepare_segments
from isthmus.real2sim.identify.learned_force import learn_force
from isthmus.real2sim.residual.prediction_errors import prediction_errors
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.robots import get_robot
from isthmus.robots.twin import Twin
from isthmus.sim.physics.unit_physics import UnitPhysics
from isthmus.sim.simulate_recording import random_multisine, record_targets
from isthmus.sim.simulation import Simulation
from support.learned_forces import driven, whole

RNG = np.random.default_rng


@pytest.fixture(scope="module")
def pendulum():
    return get_robot("pendulum")


@pytest.fixture(scope="module")
def odd(pendulum):
    """A pendulum with Stribeck friction, which its model lacks, and a recording of it."""
    unit = UnitPhysics(motors={"stribeck": (0.4,), "stribeck_speed": (0.8,)})
    truth = dataclasses.replace(pendulum, unit=unit)
    return truth, record_targets(truth, truth.space.nominal, random_multisine(truth, 6.0), seed=2)


@pytest.fixture(scope="module")
def parts(pendulum, odd):
    return prepare_segments(pendulum, [odd[1]], pendulum.prior, horizon_seconds=0.3, threads=1)


@pytest.fixture
def force():
    return driven("pendulum").unit.learned_forces[0]


@pytest.mark.slow
def test_a_learned_force_takes_most_of_the_error_off_what_it_did_not_see(pendulum, odd, parts):
    e, floor = pendulum.space.nominal, parts.floor
    force = learn_force(pendulum, parts.train, e, floor, "motor", ("hinge",), rounds=2, threads=1)
    robots = {"truth": odd[0], "bare": pendulum, "learned": with_learned_force(pendulum, force)}
    left = {name: prediction_errors(robot, parts.held_out, floor, floor, [e], 1)[0].overall for name, robot in robots.items()}
    assert left["bare"] > 1.5 * left["truth"]
    excess = {name: value**2 - left["truth"] ** 2 for name, value in left.items()}
    assert excess["learned"] < 0.3 * excess["bare"]


@pytest.mark.slow
def test_where_nothing_is_missing_next_to_nothing_is_learned(pendulum):
    episode = record_targets(pendulum, pendulum.space.nominal, random_multisine(pendulum, 12.0), seed=5)
    parts = prepare_segments(pendulum, [episode], pendulum.prior, horizon_seconds=0.3, threads=1)
    e = pendulum.space.nominal
    force = learn_force(pendulum, parts.train, e, parts.noise_floor, "motor", ("hinge",), threads=1)
    before, after = (
        prediction_errors(robot, parts.held_out, parts.noise_floor, parts.noise_floor, [e], 1)[0].overall
        for robot in (pendulum, with_learned_force(pendulum, force))
    )
    assert after < 1.05 * before


def test_features_are_those_that_the_force_reads(pendulum, parts):
    """The first row of a segment is its start, and the last of them the end of its last tick."""
    residual = ParameterResidual(pendulum, parts.train, parts.noise_floor, (), threads=1)
    S = len(parts.train)
    x, qpos = rollout_features(residual, zero_force(pendulum, "body", ("hinge",)), pendulum.space.nominal, np.zeros((S, 2)))
    assert x.shape[:4] == (S, parts.train.ticks, SAMPLES_PER_TICK, 1)
    assert np.allclose(qpos[:, 0, 0], parts.train.qpos)
    assert np.allclose(x[:, 0, 0, 0, 0], np.sin(parts.train.qpos[:, 0]))
    assert np.allclose(x[:, 0, 0, 0, 2], parts.train.qvel[:, 0])


# Twins ---------------------------------------------------------------------------------------------------------------


def test_a_twin_survives_its_file_with_motors_and_forces(pendulum, force, tmp_path):
    unit = UnitPhysics(motors={"stribeck": (0.2,)}, learned_forces=(force,))
    twin = Twin("pendulum", pendulum.model_hash, pendulum.prior, unit).save(tmp_path / "a.twin")
    again = Twin.load(tmp_path / "a.twin")
    assert again.hash == twin.hash
    assert again.unit.hash == unit.hash
    engines = [Simulation(t.apply_to(pendulum, "here"), 2) for t in (twin, again)]
    for engine in engines:
        for u in random_multisine(pendulum, 1.0):
            engine.step(np.tile(u, (2, 1)))
    assert np.array_equal(engines[0].qpos, engines[1].qpos)
    bare = Simulation(pendulum, 2)
    for u in random_multisine(pendulum, 1.0):
        bare.step(np.tile(u, (2, 1)))
    assert np.abs(bare.qpos - engines[0].qpos).max() > 1e-3


def test_a_twin_keeps_what_its_last_fit_left(pendulum, tmp_path):
    twin = Twin("pendulum", pendulum.model_hash, pendulum.prior)
    assert twin.unexplained_noise == {}
    for entry in ({"left": {"joint_pos": 0.1}}, {"left": {"joint_pos": 0.2}}, {"learned": "force"}):
        twin = twin.with_fit(pendulum.prior, entry)
    twin.save(tmp_path / "a.twin")
    assert Twin.load(tmp_path / "a.twin").unexplained_noise == {"joint_pos": 0.2}
    for wrong in ({"joint_pos": 0.0}, {"joint_pos": "much"}, [0.1]):
        twin.with_fit(pendulum.prior, {"left": wrong}).save(tmp_path / "b.twin")
        with pytest.raises(BadInput, match=r"b\.twin: what a fit left"):
            Twin.load(tmp_path / "b.twin")


def test_a_twin_knows_what_was_believed_before_a_recording(pendulum):
    first, second = (pendulum.prior.fix({"payload": value}) for value in (0.1, 0.2))
    twin = Twin("pendulum", pendulum.model_hash, pendulum.prior)
    for recording, belief in (("a", first), ("b", second)):
        twin = twin.with_fit(belief, {"recordings": [recording], "belief": belief.to_dict()})
    expected = {("a",): pendulum.prior, ("b", "a"): pendulum.prior, ("b",): first, ("c",): second}
    assert {asked: twin.belief_before(asked, pendulum.prior).hash for asked in expected} == {
        k: b.hash for k, b in expected.items()
    }


@pytest.mark.parametrize(
    ("unit", "hint"),
    [
        (UnitPhysics(motors={"stribeck": (0.1, 0.1)}), "has 1 motors"),
        (UnitPhysics(learned_forces=whole("cartpole").unit.learned_forces), "joint"),
        (UnitPhysics(motors={"backlash": (0.1,), "spring": (9.0,)}), "not both"),
    ],
)
def test_a_unit_of_another_robot_is_refused(pendulum, unit, hint):
    with pytest.raises(BadInput, match=hint):
        Twin("pendulum", pendulum.model_hash, pendulum.prior, unit).apply_to(pendulum, "here")


@pytest.mark.parametrize("change", [{"stribeck": [-1.0]}, {"stribeck": [float("inf")]}, {"stribek": [1.0]}, {"kp": "many"}])
def test_figures_of_motors_that_make_no_sense_are_refused(change):
    from isthmus.sim.robot import MOTOR_FIELDS

    text = json.dumps({"motors": change, "learned": []}).encode()
    with pytest.raises(BadInput):
        UnitPhysics.from_files({"unit.json": text}, MOTOR_FIELDS, "here")


@pytest.mark.slow
def test_train_evaluate_and_resume_on_a_twin(pendulum, force, tmp_path, capsys):
    from isthmus.learn import runs

    twin = tmp_path / "desk.twin"
    Twin(
        "pendulum", pendulum.model_hash, pendulum.prior, UnitPhysics(motors={"stribeck": (0.3,)}, learned_forces=(force,))
    ).save(twin)
    run = tmp_path / "run"
    assert main(["train", "pendulum/swingup", "--belief", str(twin), "--steps", "8000", "--worlds", "32", "-o", str(run)]) == 0
    found = runs.load(run)
    assert found.task.robot.unit.hash == Twin.load(twin).unit.hash == found.config.unit
    assert main(["train", "--resume", "--steps", "12000", "-o", str(run), "--json"]) == 0
    capsys.readouterr()
    results = {}
    for name, options in {"own": [], "twin": ["--twin", str(twin)]}.items():
        assert main(["evaluate", str(run), "--worlds", "8", "--json", *options]) == 0
        results[name] = json.loads(capsys.readouterr().out)
    assert results["own"]["score"] == results["twin"]["score"]
    assert main(["evaluate", str(run), "--twin", str(twin), "--belief", str(run / "belief.json")]) == 2
    (run / "unit.json").write_text(json.dumps({"motors": {"stribeck": [0.1]}, "learned": []}))
    with pytest.raises(BadInput, match="not the unit"):
        runs.load(run)


# The commands --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_residual_adds_a_force_to_a_twin_only_if_it_helps(pendulum, odd, tmp_path, capsys):
    twin = tmp_path / "desk.twin"
    Twin("pendulum", pendulum.model_hash, pendulum.prior.nominal()).save(twin)
    write_episode(tmp_path / "a.mcap", odd[1])
    assert main(["residual", str(twin), str(tmp_path / "a.mcap"), "--horizon", "0.3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kept"]
    assert told["error"]["after"]["held_out"] < told["error"]["before"]["held_out"]
    assert Twin.load(twin).unit.learned_forces
    assert Twin.load(twin).history[-1]["recordings"] == [odd[1].hash]
    assert main(["residual", str(tmp_path / "a.mcap"), str(tmp_path / "a.mcap")]) == 2
    assert main(["residual", str(twin), str(tmp_path / "a.mcap"), "--joints", "knee"]) == 2
    assert "hinge" in capsys.readouterr().err
