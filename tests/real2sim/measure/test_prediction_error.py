"""How far: 1 where the simulator is right, more the wronger it is, with intervals that hold what they promise."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from isthmus.cli.main import main
from isthmus.core.errors import BadInput
from isthmus.data.contract import AffineFeedback
from isthmus.data.mcap.writer import read_episode, write_episode
from isthmus.deploy.onnx_controller import OnnxController
from isthmus.real2sim.measure.bootstrap import block_bootstrap_indices, bootstrap_interval
from isthmus.real2sim.measure.measure import check_recorded_with
from isthmus.real2sim.measure.prediction_error import (
    HORIZON_SECONDS,
    _mean_by_signal,
    _root_nan_mean,
    _segment_scores,
    _squared_errors,
    is_motionless,
    measure_prediction_error,
)
from isthmus.real2sim.measure.predictor import Predictor, warm_up_ticks
from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.noise import noise_floor
from isthmus.real2sim.prepare.segments import cut
from isthmus.real2sim.prepare.tracks import in_control, to_tracks
from isthmus.robots import get_robot
from isthmus.sim.simulate_recording import random_multisine, record_targets
from isthmus.world import Belief
from support.recordings import following, recorded

PENDULUM = get_robot("pendulum")
RATE = PENDULUM.contract.rate
TICKS = sorted({1, *(round(h * RATE) for h in HORIZON_SECONDS)})


def planted(payload: float, seed: int, seconds: float = 20.0):
    e = PENDULUM.space.nominal.copy()
    e[PENDULUM.space.index("payload")] = payload
    found = to_tracks(
        [record_targets(PENDULUM, e, random_multisine(PENDULUM, seconds, seed), seed)], PENDULUM.contract, 1.0 / RATE
    )
    return found, noise_floor(found, Components(PENDULUM.contract))


def squares(payload: float, seed: int, seconds: float = 20.0) -> np.ndarray:
    """(S, horizons, signals) in the nominal world."""
    found, noise = planted(payload, seed, seconds)
    segments = cut(found, PENDULUM, warm_up_ticks(PENDULUM) + TICKS[-1], TICKS[-1])
    predicted = Predictor(PENDULUM, segments, noise, threads=1)(PENDULUM.space.nominal)
    return _mean_by_signal(_squared_errors(predicted, TICKS), Components(PENDULUM.contract).entries)


@pytest.fixture(scope="module")
def right() -> np.ndarray:
    """Many recordings of the nominal robot, (recordings, S, horizons, signals)."""
    return np.stack([squares(0.0, seed) for seed in range(8)])


def test_the_right_simulator_has_an_error_of_one_at_every_horizon(right):
    at = np.sqrt(right.mean((0, 1)))
    assert at.shape == (len(TICKS), 2)
    assert np.abs(at - 1.0).max() < 0.15


def test_the_interval_of_the_score_covers_it(right):
    scores = np.stack([_segment_scores(one) for one in right])
    truth = float(np.sqrt(scores.mean()))
    halves = [half for one in scores for half in (one[: one.shape[0] // 2], one[one.shape[0] // 2 :])]
    found = [bootstrap_interval(half, np.zeros(len(half), int), _root_nan_mean) for half in halves]
    assert all(m.low <= m.value <= m.high for m in found)
    assert sum(m.low <= truth <= m.high for m in found) >= 0.75 * len(found)


def test_a_wrong_payload_raises_the_score_and_more_of_it_more():
    found = [float(np.sqrt(_segment_scores(squares(p, 3)).mean())) for p in (0.0, 0.05, 0.1, 0.2, 0.4)]
    assert all(b > a for a, b in pairwise(found))
    assert found[0] < 1.2
    assert found[3] > 2.0


def test_a_wrong_payload_shows_more_further_ahead():
    at = np.sqrt(squares(0.2, 3).mean(0))[:, 0]
    assert at[-1] > 2 * at[0]


def test_a_replay_in_the_right_simulator_holds_and_in_a_wrong_one_does_not():
    found, noise = planted(0.0, 1, 8.0)
    right = measure_prediction_error(PENDULUM, found, noise, Belief(PENDULUM.space), threads=1)
    assert right.replay is not None
    assert right.replay.diverged.rate == 0.0
    assert 0.85 < right.score.value < 1.2
    wrong = Belief.from_ranges(PENDULUM.space, {"strength": (0.4, 0.4)})
    other = measure_prediction_error(PENDULUM, found, noise, wrong, threads=1)
    assert other.replay is not None
    assert other.replay.divergence_time.value < right.replay.divergence_time.value
    assert other.score.low > right.score.high


def test_blocks_stay_within_their_recording():
    groups = np.repeat([0, 1, 2], [7, 1, 19])
    drawn = block_bootstrap_indices(groups, np.random.default_rng(0), 500)
    assert drawn.shape == (500, 27)
    counts = np.bincount(drawn.ravel(), minlength=27) / 500
    assert np.abs(counts - 1.0).max() < 0.35  # every piece is drawn equally often
    length = round(27 ** (1 / 3))
    blocks = drawn[:, : 27 // length * length].reshape(500, -1, length)
    assert (groups[blocks] == groups[blocks][..., :1]).all()


def test_standing_still_says_nothing_and_dead_motors_do():
    target = np.zeros((200, 1))
    hanging = record_targets(PENDULUM, PENDULUM.space.nominal, target, 1)
    found = to_tracks([hanging], PENDULUM.contract, 1.0 / RATE)
    components = Components(PENDULUM.contract)
    assert is_motionless(found, components, noise_floor(found, components))
    moved, noise = planted(0.0, 1, 4.0)
    assert not is_motionless(moved, components, noise)
    dead = [replace(t, target=random_multisine(PENDULUM, 4.0, 0, 0.05)) for t in found]
    assert not is_motionless(dead, components, noise_floor(found, components))


def test_a_policy_that_stands_says_nothing_though_it_answers_noise_and_the_robot_got_up_before():
    rng = np.random.default_rng(0)
    target = 0.01 * rng.standard_normal((400, 1))
    target[:100] = random_multisine(PENDULUM, 2.0, 0, 0.5)
    episode = record_targets(PENDULUM, PENDULUM.space.nominal, target, 1)
    wanted = np.where(np.arange(400)[:, None] < 250, np.nan, target)
    episode = replace(episode, wanted=wanted)
    found, components = to_tracks([episode], PENDULUM.contract, 1.0 / RATE), Components(PENDULUM.contract)
    noise = noise_floor(found, components)
    assert not is_motionless(found, components, noise)
    assert is_motionless(in_control(PENDULUM, [episode], found), components, noise)
    louder = [replace(t, target=100.0 * t.target) for t in in_control(PENDULUM, [episode], found)]
    assert not is_motionless(louder, components, noise), "so much was asked for"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gap")
    controller = following(
        PENDULUM,
        random_multisine(PENDULUM, 8.0, 3, 0.5),
        AffineFeedback((0.0,), {"joint_vel": ((-0.05,),)}),
        folder / "a.controller",
    )
    write_episode(folder / "walk.mcap", recorded(PENDULUM, controller, PENDULUM.space.nominal, 300, 1))
    write_episode(folder / "short.mcap", recorded(PENDULUM, controller, PENDULUM.space.nominal, 12, 1))
    write_episode(folder / "still.mcap", record_targets(PENDULUM, PENDULUM.space.nominal, np.zeros((200, 1)), 1))
    crazyflie = get_robot("crazyflie")
    write_episode(
        folder / "other.mcap", record_targets(crazyflie, crazyflie.space.nominal, random_multisine(crazyflie, 1.0), 1)
    )
    return folder


def run(capsys, *args) -> tuple[int, dict]:
    code = main(["diagnose", *map(str, args), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_recording_that_another_driver_made_is_refused(files, tmp_path, capsys):
    """By what it would have sent, where the recording does not say who was in charge."""
    driven = (
        read_episode(files / "walk.mcap"),
        record_targets(PENDULUM, PENDULUM.space.nominal, random_multisine(PENDULUM, 6.0, 8, 0.4), 1),
    )
    mine, stranger = (replace(x, wanted=np.full_like(x.wanted, np.nan), origin={}) for x in driven)
    write_episode(tmp_path / "stranger.mcap", stranger)
    code, said = run(capsys, files / "a.controller", tmp_path / "stranger.mcap", "--robot", "pendulum")
    assert code == 2
    assert "stranger.mcap does not say what drove the robot" in said["error"]
    controller = OnnxController.load(files / "a.controller")
    check_recorded_with(PENDULUM, controller, mine, "mine")
    with pytest.raises(BadInput, match="sent other targets"):
        check_recorded_with(PENDULUM, controller, stranger, "stranger")


@pytest.mark.slow
def test_the_same_seed_gives_the_same_report(files, capsys):
    pages, records = [], []
    for name in ("one.html", "two.html"):
        code, record_ = run(capsys, files / "a.controller", files / "walk.mcap", "--worlds", 8, "-o", files / name)
        assert code == 0
        pages.append((files / name).read_text())
        records.append({k: v for k, v in record_.items() if k not in ("seconds", "report")})
    assert pages[0] == pages[1]
    assert records[0] == records[1]
    assert records[0]["score"]["low"] <= records[0]["score"]["value"] <= records[0]["score"]["high"]
    assert set(records[0]["coverage"]["uncovered"]) == {"rate", "low", "high", "n"}
    assert all(len(h) == 64 for h in (records[0]["inputs"]["controller"], *records[0]["inputs"]["recordings"]))


def test_the_report_needs_nothing_from_outside(files, capsys):
    run(capsys, files / "a.controller", files / "walk.mcap", "--worlds", 8, "-o", files / "report.html")
    text = (files / "report.html").read_text()
    assert not re.findall(r"https?:|//\w|@import|url\(|<link|<img|<iframe", text)
    assert not re.findall(r"\s(?:src|data)=", text)
    targets = set(re.findall(r'href="#([\w-]+)"', text))
    assert targets
    assert targets <= set(re.findall(r'id="([\w-]+)"', text))  # every point leads to its episode and second
    assert "Verdict" not in text
    assert text.count('<figure class="player">') == 1  # the worst seconds
    assert len(text) < 1_500_000


@pytest.mark.parametrize(
    ("recording", "says"),
    [("short.mcap", "too short"), ("other.mcap", "crazyflie"), ("missing.mcap", "cannot read")],
)
def test_bad_input_is_one_sentence(files, capsys, recording, says):
    code, record_ = run(capsys, files / "a.controller", files / recording)
    assert code == 2
    assert says in record_["error"]


def test_another_controller_is_refused(files, capsys, tmp_path):

    from isthmus.data.mcap.reader import read_episode

    episode = read_episode(files / "walk.mcap")
    write_episode(tmp_path / "b.mcap", replace(episode, origin={"controller_hash": "0" * 64}))
    code, record_ = run(capsys, files / "a.controller", tmp_path / "b.mcap")
    assert code == 2
    assert "another controller" in record_["error"]
    write_episode(tmp_path / "c.mcap", replace(episode, target=np.full_like(episode.target, np.nan)))
    code, record_ = run(capsys, files / "a.controller", tmp_path / "c.mcap")
    assert code == 2
    assert "no targets" in record_["error"]


def test_a_recording_that_says_nothing_says_so(files, capsys):
    code, record_ = run(capsys, files / "a.controller", files / "still.mcap", "-o", files / "still.html")
    assert code == 0
    assert record_["score"] is None
    assert record_["cannot_tell"][0].startswith("Cannot tell how far or why, because nothing moves")
    assert record_["why"]["cause"] is None
    assert "Cannot tell how far or why" in (files / "still.html").read_text()
