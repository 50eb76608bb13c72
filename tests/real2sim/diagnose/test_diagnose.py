"""Causes that are planted are named, one that is not there is not, and probabilities add up."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from isthmus.cli.main import main
from isthmus.core.geometry import rotate_inverse
from isthmus.data.contract import AffineFeedback
from isthmus.data.episode import Episode
from isthmus.data.mcap.writer import write_episode
from isthmus.deploy.guard.rules import RULE_BITS
from isthmus.real2sim.diagnose.baseline import evidence_baseline
from isthmus.real2sim.diagnose.baseline_fit import fit_parameters, restart_from_short_segments
from isthmus.real2sim.diagnose.diagnose import diagnose
from isthmus.real2sim.diagnose.evidence import Evidence, Explanation, gather_evidence
from isthmus.real2sim.diagnose.hypotheses import MAX_OUTSIDE_STDS
from isthmus.real2sim.diagnose.link import link_quality
from isthmus.real2sim.diagnose.outcome import ScoreSpread, TaskOutcome
from isthmus.real2sim.diagnose.rest_evidence import unit_mistakes
from isthmus.real2sim.diagnose.verdict import (
    CAUSES,
    EXPLAINABLE_CAUSES,
    MEASURED_CAUSES,
    WEIGHTS,
    Verdict,
    as_believed_log_odds,
    cause_probabilities,
    rank_causes,
)
from isthmus.real2sim.diagnose.wiring_evidence import remapping_evidence, remappings
from isthmus.real2sim.diagnose.wording import expected_gain, headline
from isthmus.real2sim.measure.controller_replay import ControllerReplay, replay_controller
from isthmus.real2sim.measure.measure import measure
from isthmus.real2sim.prepare.prepare import prepare
from isthmus.real2sim.prepare.tracks import Track, to_tracks
from isthmus.real2sim.residual.prior import free_parameters, gaussian_prior
from isthmus.robots import get_robot
from isthmus.sim.reality import Reality
from isthmus.sim.reality.simulation import real_simulation
from isthmus.sim.robot import Robot
from isthmus.sim.simulate_recording import random_multisine, record_engine, record_targets
from isthmus.tasks.catalogue import get_task
from isthmus.world.factors import Normal
from support.recordings import following

PENDULUM = get_robot("pendulum")
TICK = 1.0 / PENDULUM.contract.rate
LAW = AffineFeedback((0.0,), {"joint_pos": ((0.0,),), "joint_vel": ((0.0,),)})


@pytest.fixture(scope="module")
def player(tmp_path_factory):
    return following(PENDULUM, random_multisine(PENDULUM, 8.0, 3, 0.4), LAW, tmp_path_factory.mktemp("player") / "p.controller")


LIVES: dict[tuple[str, str], Episode] = {}


def real(controller, **tables) -> Episode:
    """8 s of a pendulum that differs from its model as the tables say, lived once."""
    key = (controller.manifest.graph_hash, json.dumps(tables))
    if key not in LIVES:
        LIVES[key] = _real(controller, tables)
    return LIVES[key]


def _real(controller, tables: dict) -> Episode:
    engine = real_simulation(PENDULUM, Reality.from_dict({"robot": "pendulum", **tables}), 1, tick=TICK)
    slices = PENDULUM.contract.slices()
    controller.reset()

    def drive(tick: int, y: np.ndarray) -> np.ndarray:
        return controller.tick({name: y[0, slices[name]] for name in controller.manifest.inputs})[None].astype(float)

    return record_engine(engine, drive, round(8.0 / TICK), np.random.default_rng(1))


KNOWN: dict[str, Evidence] = {}


def verdict(controller, **tables) -> tuple[Verdict, Evidence]:
    """Of a pendulum that differs as the tables say, looked at once."""
    key = json.dumps(tables)
    if key not in KNOWN:
        KNOWN[key] = gather_evidence(prepare(PENDULUM, [real(controller, **tables)], findings=()), controller, PENDULUM.prior)
    return rank_causes(KNOWN[key]), KNOWN[key]


def test_a_robot_like_its_model_has_nothing_wrong(player):
    said, found = verdict(player)
    assert said.cause == "nothing"
    assert max(c.evidence for c in found.explanations) < 3.0
    assert found.replay.share == 0.0
    assert 0.8 < found.baseline_error < 1.2


@pytest.mark.parametrize(
    ("tables", "cause", "name"),
    [
        ({"params": {"joint_friction": 0.35}}, "outside", "joint_friction"),
        pytest.param({"params": {"strength": 0.6}}, "outside", "strength", marks=pytest.mark.slow),
        pytest.param({"sensors": {"joint_vel_scale": 1.2}}, "sensor", "joint_vel gain", marks=pytest.mark.slow),
        pytest.param(
            {"unmodelled": {"stribeck": {"static": 0.4, "coulomb": 0.05, "velocity": 0.5}}},
            "physics",
            "stick",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_was_planted_is_named(player, tables, cause, name):
    said, _ = verdict(player, **tables)
    assert said.cause == cause, [(h.cause, h.probability) for h in said.ranked_causes]
    assert sum(h.probability for h in said.ranked_causes) == pytest.approx(1.0)
    clue = said.ranked_causes[0].explanation
    assert clue is not None
    assert name in clue.name


def test_a_number_outside_is_found_with_its_value(player):
    _, found = verdict(player, params={"joint_friction": 0.35})
    clue = next(c for c in found.explanations if c.name == "joint_friction")
    assert clue.value == pytest.approx(0.35, abs=0.06)


@pytest.mark.slow
def test_a_search_from_short_pieces_is_never_worse(player):
    found = to_tracks([real(player, unmodelled={"backlash": 0.03})], PENDULUM.contract, TICK)
    at = fit_parameters(PENDULUM, found, PENDULUM.prior)
    again = restart_from_short_segments(at, found, PENDULUM.prior)
    assert again.point.cost <= at.point.cost
    assert again.residual is at.residual, "judged by the same pieces"


def test_nothing_is_beyond_what_is_possible(player):
    """A payload below zero is none, however small it would have to be."""
    at = evidence_baseline(PENDULUM, to_tracks([real(player)], PENDULUM.contract, TICK), PENDULUM.prior)
    block = next(b for b in at.laplace.hypotheses if b.name == "payload")
    assert at.laplace.explain(block).amounts[0] >= 0.0
    assert block.high == pytest.approx(MAX_OUTSIDE_STDS * at.fit.prior.std[at.fit.names.index("payload")])


def test_evidence_survives_a_file(player):
    _, found = verdict(player)
    again = Evidence.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again == found


# Wiring ---------------------------------------------------------------------------------------------------------


def test_a_wrong_unit_is_undone(player):
    episode = real(player)
    wrong = replace(episode, signals={**episode.signals, "joint_vel": np.rad2deg(episode.signals["joint_vel"])})
    found = remapping_evidence(PENDULUM, to_tracks([wrong], PENDULUM.contract, TICK), PENDULUM.prior.median())
    assert found[0].remapping.text == "joint_vel is in deg/s instead of rad/s"
    assert found[0].evidence > 3 * max((u.evidence for u in found[1:]), default=1.0)


@pytest.fixture(params=["go1", "crazyflie"])
def anything(request) -> tuple[Robot, Track]:
    robot, rng = get_robot(request.param), np.random.default_rng(0)
    measured = rng.standard_normal((5, robot.contract.width))
    quat = robot.contract.slices()["quat"]
    measured[:, quat] /= np.linalg.norm(measured[:, quat], axis=1, keepdims=True)
    return robot, Track(0, 0.0, rng.standard_normal((5, robot.contract.target.size)), measured)


def test_an_accelerometer_that_feels_one_g_is_not_in_another_unit(monkeypatch):
    """However badly a robot that hardly moves agrees with its simulator: 96 m/s² would be worse."""
    robot, rng = get_robot("go1"), np.random.default_rng(0)
    measured = 0.1 * rng.standard_normal((40, robot.contract.width))
    measured[:, robot.contract.slices()["quat"]] = [1.0, 0.0, 0.0, 0.0]
    (of_accel,) = (m for m in remappings(robot) if m.text == "accel is in g instead of m/s²")
    compared = []
    monkeypatch.setattr(
        "isthmus.real2sim.diagnose.wiring_evidence._short_segments", lambda robot, found: compared.append(found[0].measured)
    )
    monkeypatch.setattr(
        "isthmus.real2sim.diagnose.wiring_evidence._negative_log_likelihoods",
        lambda robot, pieces, *rest: np.zeros(len(pieces)),
    )
    for felt, asked in ((9.8, False), (1.0, True)):
        measured[:, robot.contract.slices()["accel"]] = [0.0, 0.0, felt]
        track = Track(0, 0.0, np.zeros((40, robot.contract.target.size)), measured.copy())
        compared.clear()
        remapping_evidence(robot, [track], robot.prior.median())
        assert any(np.array_equal(x, of_accel.correct(track).measured) for x in compared) is asked
        assert len(compared) == len(list(remappings(robot))) + 1 - (not asked)


def test_every_mistake_that_is_its_own_opposite_undone_twice_is_nothing(anything):
    robot, track = anything
    for mistake in remappings(robot):
        if mistake.kind in ("swapped", "flipped", "sign"):
            once = mistake.correct(track)
            assert not (np.array_equal(once.measured, track.measured) and np.array_equal(once.target, track.target))
            twice = mistake.correct(once)
            np.testing.assert_allclose(twice.measured, track.measured)
            np.testing.assert_allclose(twice.target, track.target)


def test_mistakes_that_were_made_are_undone(anything):
    robot, track = anything
    at, found = robot.contract.slices(), {m.text: m for m in remappings(robot)}
    quat = track.measured[:, at["quat"]]

    def made(signal: str, wrong: np.ndarray) -> Track:
        measured = track.measured.copy()
        measured[:, at[signal]] = wrong
        return replace(track, measured=measured)

    gyro = track.measured[:, at["gyro"]]
    in_world = rotate_inverse(quat * [1.0, -1.0, -1.0, -1.0], gyro)
    for text, wrong in (
        ("quat is in the order x, y, z, w", made("quat", quat[:, [1, 2, 3, 0]])),
        ("gyro is in deg/s instead of rad/s", made("gyro", np.rad2deg(gyro))),
        ("gyro is in the frame of the world instead of the body", made("gyro", in_world)),
    ):
        np.testing.assert_allclose(found[text].correct(wrong).measured, track.measured, atol=1e-12)


# Link and controller --------------------------------------------------------------------------------------------


def test_packets_are_counted_by_tick():
    episode = record_targets(PENDULUM, PENDULUM.space.nominal, random_multisine(PENDULUM, 2.0))
    rules = np.zeros(len(episode))
    rules[::4] = RULE_BITS["dropped"]
    bad = replace(episode, status={"rules": rules, "age": np.zeros(len(episode))})
    found = link_quality([bad])
    assert found.shares["dropped"] == pytest.approx(0.25, abs=0.01)
    assert found.evidence > 4.0
    assert "missing in 25 %" in found.text
    assert link_quality([episode]).evidence < -4.0


def test_a_plainly_bad_network_is_the_verdict_whatever_else_there_is(player):
    episode = real(player, unmodelled={"backlash": 0.03})
    rules = np.zeros(len(episode.time))
    rules[::4] = RULE_BITS["dropped"]
    found = gather_evidence(
        prepare(PENDULUM, [replace(episode, status={**episode.status, "rules": rules})], findings=()), player, PENDULUM.prior
    )
    assert found.link.is_clearly_bad
    assert not found.explanations
    said = rank_causes(found)
    assert said.cause == "link"
    assert "nothing else is certain" in headline(said, found, PENDULUM.prior)


def test_a_controller_repeats_itself_and_another_does_not(player, tmp_path):
    episode = real(player)
    assert replay_controller(player, [episode]) == ControllerReplay(len(episode), 0.0, pytest.approx(0.0, abs=1e-6))
    other = following(PENDULUM, random_multisine(PENDULUM, 8.0, 4, 0.4), LAW, tmp_path / "q.controller")
    assert replay_controller(other, [episode]).differs


def test_a_controller_that_was_asked_anew_begins_anew(player):
    episode = real(player)
    held = episode.wanted.copy()
    held[100:150] = np.nan
    assert not np.allclose(episode.wanted[150:200], episode.wanted[:50])
    again = held.copy()
    again[150:] = episode.wanted[: len(held) - 150]
    assert replay_controller(player, [replace(episode, wanted=again)]).share == 0.0
    assert replay_controller(player, [replace(episode, wanted=held)]).differs


# Judging --------------------------------------------------------------------------------------------------------


def made(*clues: Explanation, left: float = 1.0) -> Evidence:
    return Evidence(clues, 0.0, left, left, link_quality([]), ControllerReplay(100, 0.0, 0.0), {})


def test_more_evidence_for_a_cause_makes_it_more_probable():
    weak, strong = (rank_causes(made(Explanation("sensor", "gyro bias", e))) for e in (5.0, 50.0))
    assert strong.probability("sensor") > weak.probability("sensor") > rank_causes(made()).probability("sensor")
    assert {h.cause for h in weak.ranked_causes} == set(CAUSES)


def test_two_causes_alike_are_not_decided():
    clues = [
        Explanation("sensor", "gyro bias", 20.0),
        Explanation("outside", "payload", 20.0),
        Explanation("physics", "drag", 20.0),
    ]
    assert rank_causes(made(*clues)).cause is None


def test_no_cause_is_forgotten_because_another_has_many_explanations():
    numbers = [Explanation("outside", f"n{i}", 40.0) for i in range(20)]
    with_sensor = rank_causes(made(*numbers, Explanation("sensor", "gyro bias", 38.5)))
    assert with_sensor.probability("sensor") > 0.2


def test_what_an_explanation_lacks_decides_where_all_of_them_are_far_better_than_none():
    close, far = (
        rank_causes(made(Explanation("wiring", "swapped", 5e6), Explanation("outside", "mass", 5e6 - less)))
        for less in (10.0, 5e3)
    )
    assert close.probability("outside") > 0.2
    assert far.probability("outside") < 0.05


@pytest.mark.parametrize("cause", MEASURED_CAUSES[1:5])
def test_no_cause_is_more_probable_than_it_was_right(cause):
    row = WEIGHTS.confusion[MEASURED_CAUSES.index(cause)]
    assert sum(row) == pytest.approx(1.0)
    p = rank_causes(made(Explanation(cause, "anything", 1e6))).probability(cause)
    assert max(row) - 0.01 < p <= max(row) + 1e-6


def test_probabilities_add_up_whatever_was_seen():
    rng = np.random.default_rng(0)
    for size in (1.0, 1e3, 1e6):
        clues = [Explanation(c, "", float(e)) for c, e in zip(EXPLAINABLE_CAUSES, size * rng.standard_normal(4), strict=True)]
        p = cause_probabilities(made(*clues, left=1.3))
        assert p.sum() == pytest.approx(1.0)
        assert (p >= 0).all()


def test_evidence_keeps_the_best_of_every_cause(player):
    _, found = verdict(player, params={"joint_friction": 0.35})
    assert {"outside", "sensor", "physics"} <= {c.cause for c in found.explanations}


def test_a_signal_that_was_never_measured_is_no_cause(player):
    episode = real(player)
    blind = replace(episode, signals={**episode.signals, "joint_vel": np.full_like(episode.signals["joint_vel"], np.nan)})
    found = gather_evidence(prepare(PENDULUM, [blind], findings=()), player, PENDULUM.prior)
    assert np.isfinite([c.evidence for c in found.explanations]).all()
    assert rank_causes(found).cause == "nothing"


# A robot that is as believed, and fails -------------------------------------------------------------------------

WELL, BADLY = ScoreSpread(0.8, 0.7, 0.9), ScoreSpread(0.2, 0.1, 0.3)


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [
        (TaskOutcome(False, 1.0, 0.9, 0.9, 0.8, WELL, WELL, 0.5), "nothing"),
        (TaskOutcome(False, 0.0, 0.1, 0.0, 0.2, BADLY, BADLY, 0.5), "policy"),
        (TaskOutcome(False, 0.0, 0.9, 0.1, 0.2, WELL, BADLY, 0.5), "inside"),
        (TaskOutcome(True, 0.0, 0.9, 0.9, 0.2, WELL, WELL, 0.01), "states"),
        (TaskOutcome(False, 0.0, 0.9, 0.9, 0.2, WELL, WELL, 0.5), "nothing"),
        (TaskOutcome(True, 0.0, 0.0, 0.0, 0.2, BADLY, BADLY, 0.5, whole=False), "nothing"),
    ],
)
def test_who_is_to_blame_follows_from_where_the_policy_fails(outcome, cause):
    log_odds = as_believed_log_odds(outcome)
    assert max(log_odds, key=lambda c: log_odds[c]) == cause
    assert sum(np.exp(list(log_odds.values()))) == pytest.approx(1.0)
    assert rank_causes(replace(made(), outcome=outcome)).ranked_causes[0].cause == cause


def test_a_repair_without_training_brings_what_this_policy_does_without_the_fault():
    outcome = TaskOutcome(False, 0.0, 0.9, 1.0, 0.2, WELL, ScoreSpread(0.6, 0.5, 0.7), 0.5)
    assert "0.80 (0.70 to 0.90)" in expected_gain("wiring", outcome)
    assert "this one has 0.60" in expected_gain("outside", outcome)
    assert not expected_gain("nothing", outcome)


def test_a_policy_that_never_swings_up_is_to_blame_itself(tmp_path):
    task = get_task("pendulum/swingup")
    lazy = following(PENDULUM, random_multisine(PENDULUM, 8.0, 3, 0.1), LAW, tmp_path / "p.controller", task.name)
    episodes = [real(lazy)]
    far = measure(PENDULUM, task, lazy, episodes, PENDULUM.prior, worlds=8)
    said = diagnose(PENDULUM, lazy, episodes, PENDULUM.prior, far, task)
    assert said.verdict is not None
    assert said.verdict.cause == "policy"
    assert not said.names_fault


# Frames ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("signal", "times", "unit"), [("gyro", 180 / np.pi, "deg/s"), ("accel", 1 / 9.81, "g")])
def test_a_robot_at_rest_tells_the_unit_of_its_sensors(signal, times, unit):
    robot = get_robot("go1")
    rest = record_targets(robot, robot.space.nominal, np.tile(robot.default, (75, 1)), 1)
    assert not list(unit_mistakes(robot, [rest], robot.prior))
    wrong = replace(rest, signals={**rest.signals, signal: times * rest.signals[signal]})
    ((text, evidence),) = unit_mistakes(robot, [wrong], robot.prior)
    assert f"{signal} is in {unit}" in text
    assert evidence > 10.0


# The command ----------------------------------------------------------------------------------------------------


def test_gap_says_why(player, tmp_path, capsys):
    episode = real(player, sensors={"joint_vel_scale": 1.2})
    write_episode(tmp_path / "swing.mcap", episode)
    player_file = tmp_path / "p.controller"
    following(PENDULUM, random_multisine(PENDULUM, 8.0, 3, 0.4), LAW, player_file)
    words = ["diagnose", str(player_file), str(tmp_path / "swing.mcap"), "--worlds", "8", "--robot", "pendulum"]
    assert main([*words, "-o", str(tmp_path / "gap.html"), "--json"]) == 0
    why = json.loads(capsys.readouterr().out)["why"]
    assert why["cause"] == "sensor"
    assert sum(h["p"] for h in why["hypotheses"]) == pytest.approx(1.0)
    assert "joint_vel gain" in (tmp_path / "gap.html").read_text()


def test_numbers_inside_the_belief_explain_a_world_of_the_belief():
    e = PENDULUM.prior.sample(np.random.default_rng(5), 1)[0]
    found = to_tracks([record_targets(PENDULUM, e, random_multisine(PENDULUM, 8.0, 1, 0.4), 2)], PENDULUM.contract, TICK)
    at = evidence_baseline(PENDULUM, found, PENDULUM.prior)
    nothing = at.laplace.explain().evidence
    assert max(at.laplace.explain(b).evidence - nothing for b in at.laplace.hypotheses) < 4.0
    assert at.laplace.explain(allow_outside=True).evidence - nothing < 4.0


def test_a_twins_normal_belief_has_causes_too(player):
    """A normal belief has no ends: nothing is outside of it, and everything else can still be the cause."""
    prior = gaussian_prior(PENDULUM.prior, PENDULUM.space.subset(free_parameters(PENDULUM, PENDULUM.prior)))
    normal = Normal(prior.space.names, tuple(prior.mean), tuple(map(tuple, np.diag(prior.std**2))))
    prepared = prepare(PENDULUM, [real(player, sensors={"joint_vel_scale": 1.2})], findings=())
    found = gather_evidence(prepared, player, PENDULUM.prior.replace(normal))
    assert rank_causes(found).cause == "sensor"
    assert not [x for x in found.explanations if x.cause == "outside"]
