"""Plant and recover: what is put into a simulated robot comes out of its recordings, with honest intervals."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from isthmus.cli.main import main
from isthmus.core.errors import BadInput
from isthmus.data.mcap.writer import write_episode
from isthmus.real2sim.identify.fit import fit, posterior_belief
from isthmus.real2sim.identify.identification import fit_recordings
from isthmus.real2sim.identify.identify import IdentifyResult, identify, identify_twin
from isthmus.real2sim.identify.predict import PredictionResult, predict
from isthmus.real2sim.residual.gauss_newton import gauss_newton
from isthmus.real2sim.residual.prior import free_parameters, gaussian_prior, noise_parameters
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.robots import get_robot
from isthmus.robots.twin import Twin
from isthmus.sim.simulate_recording import random_multisine, record_targets
from isthmus.world import Belief
from isthmus.world.factors import Normal

RNG = np.random.default_rng


@pytest.fixture(scope="module")
def pendulum():
    return get_robot("pendulum")


@pytest.fixture(scope="module")
def swung(pendulum):
    """A recording of a pendulum with hidden numbers, and those numbers."""
    e = pendulum.prior.sample(RNG(4), 1)[0]
    return record_targets(pendulum, e, random_multisine(pendulum, 10.0), seed=4), e


@pytest.fixture(scope="module")
def found(pendulum, swung):
    return fit_recordings(pendulum, [swung[0]], pendulum.prior, threads=1)


def test_no_world_explains_it_better_and_the_true_one_hardly_worse(pendulum, swung, found):
    """Twice the loss of log-likelihood from the optimum to the truth is distributed as χ² with one degree per number."""
    residual = ParameterResidual(pendulum, found.train, found.fit.noise, (), threads=1)
    nothing = gaussian_prior(Belief(pendulum.space), residual.space)
    left = {}
    for what, e in (("truth", swung[1]), ("optimum", found.fit.e)):
        left[what] = gauss_newton(residual, nothing, np.zeros(0), e)[0].cost
    assert left["optimum"] - 0.5 < left["truth"] < left["optimum"] + 0.5 * chi2.ppf(0.999, len(found.fit.space))


def test_the_noise_is_found_with_it(pendulum, swung, found):
    e = swung[1]
    wanted = [e[pendulum.space.index(n)] for n in ("joint_pos_noise", "joint_vel_noise")]
    assert found.fit.noise == pytest.approx(wanted, rel=0.15)


def test_sensors_are_no_noisier_than_signals_whatever_a_model_lacks(pendulum, found):
    """What no number explains is not their noise."""
    floor, names = found.fit.noise_floor, list(noise_parameters(pendulum.space))
    for factor, wanted in ((10.0, floor), (0.5, 0.5 * floor)):
        after = posterior_belief(pendulum, replace(found.fit, noise=factor * floor), pendulum.prior).median()
        assert [after[pendulum.space.index(n)] for n in names] == pytest.approx(wanted)


def test_what_was_not_fitted_to_is_predicted_down_to_the_noise(found):
    assert found.errors_before[1].overall > 2.0
    assert found.errors_after[1].overall < 1.3


def test_what_only_shows_together_is_said(found):
    said = " ".join(d.text for d in found.fit.undetermined_directions())
    assert "com_x and encoder_offset" in said
    assert "strength" in said
    assert "joint_damping" not in said


def test_standing_still_says_nothing_of_friction(pendulum):
    episode = record_targets(pendulum, pendulum.space.nominal, np.zeros((500, 1)), seed=1)
    found = fit_recordings(pendulum, [episode], pendulum.prior, threads=1)
    for name in ("joint_friction", "joint_damping", "strength", "weight_mass"):
        assert any(name == d.parts[0][0] or name in dict(d.parts) for d in found.fit.undetermined_directions()), name
        before, after = pendulum.prior.interval(name, 0.9), found.fit.interval(name, 0.9)
        assert after[1] - after[0] > 0.8 * (before[1] - before[0])


@pytest.mark.slow
def test_more_recordings_narrow_it_down(pendulum, swung, found):
    again = record_targets(pendulum, swung[1], random_multisine(pendulum, 5.0, seed=9), seed=9)
    both = fit_recordings(pendulum, [swung[0], again], pendulum.prior, horizon_seconds=found.horizon_seconds, threads=1)
    assert np.linalg.slogdet(both.fit.covariance)[1] < np.linalg.slogdet(found.fit.covariance)[1]


def test_a_normal_belief_is_taken_as_it_is(pendulum, found):
    belief = pendulum.prior.replace(found.fit.factor())
    back = gaussian_prior(belief, found.fit.space)
    assert back.mean == pytest.approx(found.fit.z)
    assert np.linalg.inv(back.precision) == pytest.approx(found.fit.covariance, abs=2e-6)


def test_a_range_keeps_its_quantiles(pendulum):
    space = pendulum.space.subset(["strength", "payload"])
    p = gaussian_prior(pendulum.prior, space)
    rows = tuple(map(tuple, np.linalg.inv(p.precision).tolist()))
    belief = Belief(space, (Normal(space.names, tuple(p.mean.tolist()), rows),))
    for name in space.names:
        assert belief.interval(name, 0.9) == pytest.approx(pendulum.prior.interval(name, 0.9), rel=1e-6)


def test_noises_are_not_searched_for(pendulum):
    assert not set(free_parameters(pendulum, pendulum.prior)) & set(noise_parameters(pendulum.space))


def test_what_was_not_fitted_stays_as_it_was_believed(pendulum, swung, found):
    first = posterior_belief(pendulum, found.fit, pendulum.prior)
    assert first.interval("joint_vel_noise") == pytest.approx([found.fit.noise[1]] * 2)
    one = fit(pendulum, found.train, first, found.noise_floor, ["joint_damping"], threads=1)
    second = posterior_belief(pendulum, one, first)
    assert second.interval("strength") == pytest.approx(first.interval("strength"))
    assert second.interval("joint_damping") == pytest.approx(one.interval("joint_damping", 0.95))


def test_only_what_is_asked_for_is_fitted(pendulum, swung, found):
    one = fit(pendulum, found.train, pendulum.prior, found.noise_floor, ["joint_damping"], start=swung[1], threads=1)
    assert one.space.names == ("joint_damping",)
    low, high = one.interval("joint_damping", 0.999)
    assert low < swung[1][pendulum.space.index("joint_damping")] < high


def test_a_twin_comes_back_as_it_was_written(pendulum, tmp_path):
    twin = Twin("pendulum", pendulum.model_hash, pendulum.prior).with_fit(pendulum.prior, {"recordings": ["abc"]})
    written = twin.save(tmp_path / "a.twin")
    read = Twin.load(tmp_path / "a.twin")
    assert read == twin
    assert read.hash == written.hash
    assert read.apply_to(pendulum, "a.twin").prior == pendulum.prior


def test_a_damaged_twin_and_one_of_another_robot_are_refused(pendulum, tmp_path):
    path = tmp_path / "a.twin"
    Twin("pendulum", pendulum.model_hash, pendulum.prior).save(path)
    raw = path.read_bytes()
    (tmp_path / "b.twin").write_bytes(raw[:200] + bytes([raw[200] ^ 1]) + raw[201:])
    with pytest.raises(BadInput, match="damaged"):
        Twin.load(tmp_path / "b.twin")
    with pytest.raises(BadInput, match="another model"):
        Twin.load(path).apply_to(get_robot("cartpole"), "a.twin")


@pytest.fixture(scope="module")
def desk(swung, tmp_path_factory):
    """A twin's file, the episode it was fitted to, and the result."""
    out, episode = tmp_path_factory.mktemp("desk") / "desk.twin", swung[0].time_slice(0.0, 7.0)
    return out, episode, identify("pendulum", [episode], out)


def test_from_a_recording_to_a_twin(pendulum, swung, desk):
    out, episode, result = desk
    assert result.twin_hash == Twin.load(out).hash
    assert result.inputs == (episode.hash,)
    assert result.error.after.held_out < 1.3 < result.error.before.held_out
    found = result.parameters["encoder_offset"]
    assert found.low < swung[1][pendulum.space.index("encoder_offset")] < found.high


def test_a_result_survives_json(desk):
    table = json.loads(json.dumps(desk[2].to_dict()))
    assert IdentifyResult.from_dict(table) == desk[2]
    assert table["kind"] == "identification"


def test_a_twin_in_memory_is_that_of_the_file(pendulum, desk):
    out, episode, _ = desk
    given = {"only": ("joint_damping",), "search": "never", "horizon": 0.2}
    by_file = identify(out, [episode], **given)
    in_memory = identify_twin(Twin.load(out), [episode], threads=1, **given)
    assert in_memory.result.parameters == by_file.parameters
    assert in_memory.twin.history[-1]["error"] == by_file.to_dict()["error"]
    assert in_memory.twin.belief.interval("joint_damping", 0.9) == pytest.approx(
        (by_file.parameters["joint_damping"].low, by_file.parameters["joint_damping"].high)
    )


def test_a_twin_predicts_another_recording_better_than_the_prior_does(pendulum, swung, desk):
    other = record_targets(pendulum, swung[1], random_multisine(pendulum, 5.0, seed=9), seed=9)
    prior = Twin("pendulum", pendulum.model_hash, pendulum.prior)
    after, before = (predict(twin, [other], horizon=1.0, threads=1) for twin in (desk[0], prior))
    assert after.score.value < 1.3 < before.score.value
    assert after.error < 1.3 < before.error
    assert PredictionResult.from_dict(json.loads(json.dumps(after.to_dict()))) == after


def test_the_command_prints_the_result(pendulum, desk, tmp_path, capsys):
    out, episode, _ = desk
    path = tmp_path / "swing.mcap"
    write_episode(path, episode)
    assert main(["identify", str(out), str(path), "--only", "joint_damping", "--search", "never", "--horizon", "0.2"]) == 0
    assert "joint_damping" in capsys.readouterr().out
    assert main(["predict", str(out), str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "prediction"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--only", "strenght"], "strength"),
        (["-o", "x.json"], r"NAME\.twin"),
        (["--horizon", "-1"], "negative"),
        (["--only", "strength", "--fix", "strength"], "no parameter is left"),
    ],
)
def test_bad_options_are_one_sentence(swung, tmp_path, capsys, options, why):
    path = tmp_path / "swing.mcap"
    write_episode(path, swung[0].time_slice(0.0, 4.0))
    assert main(["identify", "pendulum", str(path), *options]) == 2
    assert re.search(why, capsys.readouterr().err)
