"""Causes that are planted are named, one that is not there is not, and probabilities add up."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from isthmus.cli.main import main
from isthmus.data.contract import Law
from isthmus.data.episode import Episode
from isthmus.data.recording import write
from isthmus.deploy.rules import BIT
from isthmus.diagnose.base import base
from isthmus.diagnose.blocks import MOST
from isthmus.diagnose.evidence import Clue, Evidence, gather
from isthmus.diagnose.judge import CAUSES, EXPLAINED, TOLD, WEIGHTS, Verdict, as_believed, judge, probabilities
from isthmus.diagnose.link import packets
from isthmus.diagnose.numbers import fitted, nearer
from isthmus.diagnose.outcome import Outcome, Spread
from isthmus.diagnose.rest import units
from isthmus.diagnose.whole import diagnose
from isthmus.diagnose.wiring import mistakes, wiring
from isthmus.diagnose.words import gain, headline
from isthmus.gap.parrot import Parrot, parrot
from isthmus.gap.tracks import Track, tracks
from isthmus.gap.whole import measure
from isthmus.identify.plant import lived, record, waves
from isthmus.robots import get_robot
from isthmus.sim.reality import Reality
from isthmus.sim.reality.engine import RealEngine
from isthmus.sim.robot import Robot
from isthmus.sim.sources import unrotate
from isthmus.tasks import get_task
from support.recordings import following

PENDULUM = get_robot("pendulum")
TICK = 1.0 / PENDULUM.contract.rate
LAW = Law((0.0,), {"joint_pos": ((0.0,),), "joint_vel": ((0.0,),)})


@pytest.fixture(scope="module")
def player(tmp_path_factory):
    return following(PENDULUM, waves(PENDULUM, 8.0, 3, 0.4), LAW, tmp_path_factory.mktemp("player") / "p.controller")


LIVES: dict[tuple[str, str], Episode] = {}


def real(controller, **tables) -> Episode:
    """8 s of a pendulum that differs from its model as the tables say, lived once."""
    key = (controller.manifest.graph_hash, json.dumps(tables))
    if key not in LIVES:
        LIVES[key] = _real(controller, tables)
    return LIVES[key]


def _real(controller, tables: dict) -> Episode:
    engine = RealEngine(PENDULUM, Reality.from_dict({"robot": "pendulum", **tables}), 1, tick=TICK)
    slices = PENDULUM.contract.slices()
    controller.reset()

    def drive(tick: int, y: np.ndarray) -> np.ndarray:
        return controller.tick({name: y[0, slices[name]] for name in controller.manifest.inputs})[None].astype(float)

    return lived(engine, drive, round(8.0 / TICK), np.random.default_rng(1))


KNOWN: dict[str, Evidence] = {}


def verdict(controller, **tables) -> tuple[Verdict, Evidence]:
    """Of a pendulum that differs as the tables say, looked at once."""
    key = json.dumps(tables)
    if key not in KNOWN:
        KNOWN[key] = gather(PENDULUM, controller, [real(controller, **tables)], PENDULUM.prior)
    return judge(KNOWN[key]), KNOWN[key]


def test_a_robot_like_its_model_has_nothing_wrong(player):
    said, found = verdict(player)
    assert said.cause == "nothing"
    assert max(c.evidence for c in found.clues) < 3.0
    assert found.parrot.share == 0.0
    assert 0.8 < found.left < 1.2


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
    assert said.cause == cause, [(h.cause, h.p) for h in said.hypotheses]
    assert sum(h.p for h in said.hypotheses) == pytest.approx(1.0)
    clue = said.hypotheses[0].clue
    assert clue is not None
    assert name in clue.name


def test_a_number_outside_is_found_with_its_value(player):
    _, found = verdict(player, params={"joint_friction": 0.35})
    clue = next(c for c in found.clues if c.name == "joint_friction")
    assert clue.value == pytest.approx(0.35, abs=0.06)


@pytest.mark.slow
def test_a_search_from_short_pieces_is_never_worse(player):
    found = tracks([real(player, unmodelled={"backlash": 0.03})], PENDULUM.contract, TICK)
    at = fitted(PENDULUM, found, PENDULUM.prior)
    again = nearer(at, found, PENDULUM.prior)
    assert again.point.cost <= at.point.cost
    assert again.residual is at.residual, "judged by the same pieces"


def test_nothing_is_beyond_what_is_possible(player):
    """A payload below zero is none, however small it would have to be."""
    at = base(PENDULUM, tracks([real(player)], PENDULUM.contract, TICK), PENDULUM.prior)
    block = next(b for b in at.quadratic.blocks if b.name == "payload")
    assert at.quadratic.told(block).c[0] >= 0.0
    assert block.most == pytest.approx(MOST * at.fitted.prior.spread[at.fitted.names.index("payload")])


def test_evidence_survives_a_file(player):
    _, found = verdict(player)
    again = Evidence.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again == found


# Wiring ---------------------------------------------------------------------------------------------------------


def test_a_wrong_unit_is_undone(player):
    episode = real(player)
    wrong = replace(episode, signals={**episode.signals, "joint_vel": np.rad2deg(episode.signals["joint_vel"])})
    found = wiring(PENDULUM, tracks([wrong], PENDULUM.contract, TICK), PENDULUM.prior.median())
    assert found[0].mistake.text == "joint_vel is in deg/s instead of rad/s"
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
    (of_accel,) = (m for m in mistakes(robot) if m.text == "accel is in g instead of m/s²")
    compared = []
    monkeypatch.setattr("isthmus.diagnose.wiring._pieces", lambda robot, found: compared.append(found[0].measured))
    monkeypatch.setattr("isthmus.diagnose.wiring._scores", lambda robot, pieces, *rest: np.zeros(len(pieces)))
    for felt, asked in ((9.8, False), (1.0, True)):
        measured[:, robot.contract.slices()["accel"]] = [0.0, 0.0, felt]
        track = Track(0, 0.0, np.zeros((40, robot.contract.target.size)), measured.copy())
        compared.clear()
        wiring(robot, [track], robot.prior.median())
        assert any(np.array_equal(x, of_accel.undo(track).measured) for x in compared) is asked
        assert len(compared) == len(list(mistakes(robot))) + 1 - (not asked)


def test_every_mistake_that_is_its_own_opposite_undone_twice_is_nothing(anything):
    robot, track = anything
    for mistake in mistakes(robot):
        if mistake.kind in ("swapped", "flipped", "sign"):
            once = mistake.undo(track)
            assert not (np.array_equal(once.measured, track.measured) and np.array_equal(once.target, track.target))
            twice = mistake.undo(once)
            np.testing.assert_allclose(twice.measured, track.measured)
            np.testing.assert_allclose(twice.target, track.target)


def test_mistakes_that_were_made_are_undone(anything):
    robot, track = anything
    at, found = robot.contract.slices(), {m.text: m for m in mistakes(robot)}
    quat = track.measured[:, at["quat"]]

    def made(signal: str, wrong: np.ndarray) -> Track:
        measured = track.measured.copy()
        measured[:, at[signal]] = wrong
        return replace(track, measured=measured)

    gyro = track.measured[:, at["gyro"]]
    in_world = unrotate(quat * [1.0, -1.0, -1.0, -1.0], gyro)
    for text, wrong in (
        ("quat is in the order x, y, z, w", made("quat", quat[:, [1, 2, 3, 0]])),
        ("gyro is in deg/s instead of rad/s", made("gyro", np.rad2deg(gyro))),
        ("gyro is in the frame of the world instead of the body", made("gyro", in_world)),
    ):
        np.testing.assert_allclose(found[text].undo(wrong).measured, track.measured, atol=1e-12)


# Link and controller --------------------------------------------------------------------------------------------


def test_packets_are_counted_by_tick():
    episode = record(PENDULUM, PENDULUM.space.nominal, waves(PENDULUM, 2.0))
    rules = np.zeros(len(episode))
    rules[::4] = BIT["dropped"]
    bad = replace(episode, status={"rules": rules, "age": np.zeros(len(episode))})
    found = packets([bad])
    assert found.shares["dropped"] == pytest.approx(0.25, abs=0.01)
    assert found.evidence > 4.0
    assert "missing in 25 %" in found.text
    assert packets([episode]).evidence < -4.0


def test_a_plainly_bad_network_is_the_verdict_whatever_else_there_is(player):
    episode = real(player, unmodelled={"backlash": 0.03})
    rules = np.zeros(len(episode.time))
    rules[::4] = BIT["dropped"]
    found = gather(PENDULUM, player, [replace(episode, status={**episode.status, "rules": rules})], PENDULUM.prior)
    assert found.packets.plain
    assert not found.clues
    said = judge(found)
    assert said.cause == "link"
    assert "nothing else is certain" in headline(said, found, PENDULUM.prior)


def test_a_controller_repeats_itself_and_another_does_not(player, tmp_path):
    episode = real(player)
    assert parrot(player, [episode]) == Parrot(len(episode), 0.0, pytest.approx(0.0, abs=1e-6))
    other = following(PENDULUM, waves(PENDULUM, 8.0, 4, 0.4), LAW, tmp_path / "q.controller")
    assert parrot(other, [episode]).differs


def test_a_controller_that_was_asked_anew_begins_anew(player):
    episode = real(player)
    held = episode.wanted.copy()
    held[100:150] = np.nan
    assert not np.allclose(episode.wanted[150:200], episode.wanted[:50])
    again = held.copy()
    again[150:] = episode.wanted[: len(held) - 150]
    assert parrot(player, [replace(episode, wanted=again)]).share == 0.0
    assert parrot(player, [replace(episode, wanted=held)]).differs


# Judging --------------------------------------------------------------------------------------------------------


def made(*clues: Clue, left: float = 1.0) -> Evidence:
    return Evidence(clues, 0.0, left, left, packets([]), Parrot(100, 0.0, 0.0), {})


def test_more_evidence_for_a_cause_makes_it_more_probable():
    weak, strong = (judge(made(Clue("sensor", "gyro bias", e))) for e in (5.0, 50.0))
    assert strong.p("sensor") > weak.p("sensor") > judge(made()).p("sensor")
    assert {h.cause for h in weak.hypotheses} == set(CAUSES)


def test_two_causes_alike_are_not_decided():
    clues = [Clue("sensor", "gyro bias", 20.0), Clue("outside", "payload", 20.0), Clue("physics", "drag", 20.0)]
    assert judge(made(*clues)).cause is None


def test_no_cause_is_forgotten_because_another_has_many_explanations():
    numbers = [Clue("outside", f"n{i}", 40.0) for i in range(20)]
    with_sensor = judge(made(*numbers, Clue("sensor", "gyro bias", 38.5)))
    assert with_sensor.p("sensor") > 0.2


def test_what_an_explanation_lacks_decides_where_all_of_them_are_far_better_than_none():
    close, far = (judge(made(Clue("wiring", "swapped", 5e6), Clue("outside", "mass", 5e6 - less))) for less in (10.0, 5e3))
    assert close.p("outside") > 0.2
    assert far.p("outside") < 0.05


@pytest.mark.parametrize("cause", TOLD[1:5])
def test_no_cause_is_more_probable_than_it_was_right(cause):
    row = WEIGHTS.mistaken[TOLD.index(cause)]
    assert sum(row) == pytest.approx(1.0)
    p = judge(made(Clue(cause, "anything", 1e6))).p(cause)
    assert max(row) - 0.01 < p <= max(row) + 1e-6


def test_probabilities_add_up_whatever_was_seen():
    rng = np.random.default_rng(0)
    for size in (1.0, 1e3, 1e6):
        clues = [Clue(c, "", float(e)) for c, e in zip(EXPLAINED, size * rng.standard_normal(4), strict=True)]
        p = probabilities(made(*clues, left=1.3))
        assert p.sum() == pytest.approx(1.0)
        assert (p >= 0).all()


def test_evidence_keeps_the_best_of_every_cause(player):
    _, found = verdict(player, params={"joint_friction": 0.35})
    assert {"outside", "sensor", "physics"} <= {c.cause for c in found.clues}


def test_a_signal_that_was_never_measured_is_no_cause(player):
    episode = real(player)
    blind = replace(episode, signals={**episode.signals, "joint_vel": np.full_like(episode.signals["joint_vel"], np.nan)})
    found = gather(PENDULUM, player, [blind], PENDULUM.prior)
    assert np.isfinite([c.evidence for c in found.clues]).all()
    assert judge(found).cause == "nothing"


# A robot that is as believed, and fails -------------------------------------------------------------------------

WELL, BADLY = Spread(0.8, 0.7, 0.9), Spread(0.2, 0.1, 0.3)


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [
        (Outcome(False, 1.0, 0.9, 0.9, 0.8, WELL, WELL, 0.5), "nothing"),
        (Outcome(False, 0.0, 0.1, 0.0, 0.2, BADLY, BADLY, 0.5), "policy"),
        (Outcome(False, 0.0, 0.9, 0.1, 0.2, WELL, BADLY, 0.5), "inside"),
        (Outcome(True, 0.0, 0.9, 0.9, 0.2, WELL, WELL, 0.01), "states"),
        (Outcome(False, 0.0, 0.9, 0.9, 0.2, WELL, WELL, 0.5), "nothing"),
        (Outcome(True, 0.0, 0.0, 0.0, 0.2, BADLY, BADLY, 0.5, whole=False), "nothing"),
    ],
)
def test_who_is_to_blame_follows_from_where_the_policy_fails(outcome, cause):
    log_odds = as_believed(outcome)
    assert max(log_odds, key=lambda c: log_odds[c]) == cause
    assert sum(np.exp(list(log_odds.values()))) == pytest.approx(1.0)
    assert judge(replace(made(), outcome=outcome)).hypotheses[0].cause == cause


def test_a_repair_without_training_brings_what_this_policy_does_without_the_fault():
    outcome = Outcome(False, 0.0, 0.9, 1.0, 0.2, WELL, Spread(0.6, 0.5, 0.7), 0.5)
    assert "0.80 (0.70 to 0.90)" in gain("wiring", outcome)
    assert "this one has 0.60" in gain("outside", outcome)
    assert not gain("nothing", outcome)


def test_a_policy_that_never_swings_up_is_to_blame_itself(tmp_path):
    task = get_task("pendulum/swingup")
    lazy = following(PENDULUM, waves(PENDULUM, 8.0, 3, 0.1), LAW, tmp_path / "p.controller", task.name)
    episodes = [real(lazy)]
    far = measure(PENDULUM, task, lazy, episodes, PENDULUM.prior, worlds=8)
    said = diagnose(PENDULUM, lazy, episodes, PENDULUM.prior, far, task)
    assert said.verdict is not None
    assert said.verdict.cause == "policy"
    assert not said.fault


# Frames ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("signal", "times", "unit"), [("gyro", 180 / np.pi, "deg/s"), ("accel", 1 / 9.81, "g")])
def test_a_robot_at_rest_tells_the_unit_of_its_sensors(signal, times, unit):
    robot = get_robot("go1")
    rest = record(robot, robot.space.nominal, np.tile(robot.default, (75, 1)), 1)
    assert not list(units(robot, [rest], robot.prior))
    wrong = replace(rest, signals={**rest.signals, signal: times * rest.signals[signal]})
    ((text, evidence),) = units(robot, [wrong], robot.prior)
    assert f"{signal} is in {unit}" in text
    assert evidence > 10.0


# The command ----------------------------------------------------------------------------------------------------


def test_gap_says_why(player, tmp_path, capsys):
    episode = real(player, sensors={"joint_vel_scale": 1.2})
    write(tmp_path / "swing.mcap", episode)
    player_file = tmp_path / "p.controller"
    following(PENDULUM, waves(PENDULUM, 8.0, 3, 0.4), LAW, player_file)
    words = ["gap", str(player_file), str(tmp_path / "swing.mcap"), "--worlds", "8", "--robot", "pendulum"]
    assert main([*words, "-o", str(tmp_path / "gap.html"), "--json"]) == 0
    why = json.loads(capsys.readouterr().out)["why"]
    assert why["cause"] == "sensor"
    assert sum(h["p"] for h in why["hypotheses"]) == pytest.approx(1.0)
    assert "joint_vel gain" in (tmp_path / "gap.html").read_text()


def test_numbers_inside_the_belief_explain_a_world_of_the_belief():
    e = PENDULUM.prior.sample(np.random.default_rng(5), 1)[0]
    found = tracks([record(PENDULUM, e, waves(PENDULUM, 8.0, 1, 0.4), 2)], PENDULUM.contract, TICK)
    at = base(PENDULUM, found, PENDULUM.prior)
    nothing = at.quadratic.told().evidence
    assert max(at.quadratic.told(b).evidence - nothing for b in at.quadratic.blocks) < 4.0
    assert at.quadratic.told(soft=True).evidence - nothing < 4.0
