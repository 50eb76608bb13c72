"""Failure-driven training: failures come back until they are mastered, and nothing else is forgotten."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from isthmus.cli.main import main
from isthmus.core.errors import BadInput
from isthmus.data.episode import Episode
from isthmus.data.mcap.writer import write_episode
from isthmus.learn import checkpoint, runs
from isthmus.learn.evaluate import evaluate
from isthmus.robots import get_robot
from isthmus.robots.twin import Twin
from isthmus.tasks.catalogue import TASKS, get_task
from isthmus.tasks.samplers.failures import (
    MAX_KNOWN,
    MAX_STORED,
    REVISIT_JITTER,
    SAMPLES_PER_BELIEF,
    FailureSampler,
    collect_failures,
    failing_worlds,
    particle_values,
)
from isthmus.world import Belief, Normal, Particles
from support.command_line import call

ROBOT = get_robot("pendulum")
SPACE = ROBOT.space
BELIEF = ROBOT.prior.fix({"strength": 0.91})
HELD = SPACE.index("strength")
WORLDS = 400
ALL = np.arange(WORLDS)


def finished(good: np.ndarray, e: np.ndarray) -> dict[str, np.ndarray]:
    return {"score": np.where(good, 0.9, 0.1), "failed": ~good, "e": e}


def under_way(revisit: float = 0.3, known: np.ndarray | None = None) -> tuple[FailureSampler, np.random.Generator]:
    """A sampler whose worlds had a first episode, which all succeeded."""
    sampler, rng = FailureSampler(BELIEF, WORLDS, 0.5, revisit, known), np.random.default_rng(0)
    e = sampler.draw(rng, ALL, BELIEF)
    sampler.record(ALL, finished(np.ones(WORLDS, dtype=bool), e))
    return sampler, rng


def some(k: int, seed: int = 1) -> np.ndarray:
    return BELIEF.sample(np.random.default_rng(seed), k)


def test_the_share_of_revisits_is_what_was_asked_for_and_the_rest_is_the_belief():
    sampler, rng = under_way(0.3, some(20))
    same, revisits = np.random.default_rng(), 0
    for _ in range(20):
        same.bit_generator.state = rng.bit_generator.state
        e = sampler.draw(rng, ALL, BELIEF)
        back = sampler.visited_serial >= 0
        assert (e[~back] == BELIEF.sample(same, WORLDS)[~back]).all()
        revisits += back.sum()
        sampler.episode_ended[:] = True
    assert revisits / (20 * WORLDS) == pytest.approx(0.3, abs=4 * (0.3 * 0.7 / (20 * WORLDS)) ** 0.5)


def test_revisits_are_near_what_failed_and_inside_the_bounds():
    at_ends = np.where(np.random.default_rng(2).uniform(size=(50, len(SPACE))) < 0.5, SPACE.low, SPACE.high)
    at_ends[:, HELD] = 0.91
    sampler, rng = under_way(0.5, at_ends)
    e = sampler.draw(rng, ALL, BELIEF)
    back = sampler.visited_serial >= 0
    SPACE.check(e)
    away = np.abs(SPACE.unit(e[back]) - SPACE.unit(at_ends[sampler.visited_serial[back]]))
    assert away.max() < 6 * REVISIT_JITTER
    assert np.median(away[:, :HELD]) > 0
    assert (e[:, HELD] == 0.91).all()


def test_a_revisited_world_does_not_change_on_the_way():
    """Else it would count as mastered although its hard numbers were gone."""
    sampler, rng = under_way(0.5, some(20))
    e = sampler.draw(rng, ALL, BELIEF)
    visited = sampler.visited_serial >= 0
    again = sampler.redraw(rng, ALL[::2], BELIEF)
    assert (again[visited[::2]] == e[::2][visited[::2]]).all()
    others = again[~visited[::2]] != e[::2][~visited[::2]]
    assert others.any(axis=1).all()


def test_mastered_worlds_leave_and_others_stay_once():
    worlds = some(10)
    sampler, rng = under_way(0.9, worlds)
    e = sampler.draw(rng, ALL, BELIEF)
    mastered = np.isin(sampler.visited_serial, [0, 1, 2, 3])
    good = mastered | (sampler.visited_serial < 0)
    sampler.record(ALL, finished(good, e))
    assert (sampler.stored_e == worlds[4:]).all()
    assert (sampler.visited_serial == -1).all()


def test_new_failures_are_stored_as_they_were():
    sampler, rng = under_way()
    e = sampler.draw(rng, ALL, BELIEF)
    good = rng.uniform(size=WORLDS) < 0.9
    sampler.record(ALL, finished(good, e))
    assert (sampler.stored_e == e[~good]).all()
    assert sampler.metrics() == {"failures/stored": float((~good).sum())}


def test_a_low_score_is_a_failure_too():
    sampler, rng = under_way()
    e = sampler.draw(rng, ALL, BELIEF)
    score = np.full(WORLDS, 0.6)
    score[7] = 0.4
    sampler.record(ALL, {"score": score, "failed": np.zeros(WORLDS, dtype=bool), "e": e})
    assert (sampler.stored_e == e[7]).all()


def test_a_world_mastered_here_and_failed_there_counts_as_failed():
    sampler, rng = under_way(0.9, some(1))
    e = sampler.draw(rng, ALL, BELIEF)
    back = np.nonzero(sampler.visited_serial == 0)[0]
    good = np.ones(WORLDS, dtype=bool)
    good[back[-1]] = False
    sampler.record(ALL, finished(good, e))
    assert (sampler.stored_e == e[back[-1]]).all()


def test_the_store_is_bounded_and_keeps_what_was_known():
    known = some(MAX_KNOWN)
    sampler, rng = under_way(0.0, known)
    for _ in range(5):
        e = sampler.draw(rng, ALL, BELIEF)
        sampler.record(ALL, finished(np.zeros(WORLDS, dtype=bool), e))
    assert len(sampler.stored_e) == MAX_STORED
    assert (sampler.stored_e[:MAX_KNOWN] == known).all()
    assert (sampler.stored_e[MAX_KNOWN:] == e[MAX_KNOWN - MAX_STORED :]).all()


def test_short_first_episodes_and_narrowed_beliefs_do_not_count():
    known, rng = some(5), np.random.default_rng(3)
    sampler = FailureSampler(BELIEF, WORLDS, 0.5, 0.5, known)
    for belief in (BELIEF, BELIEF.scaled(0.5), BELIEF.scaled(0.5)):
        e = sampler.draw(rng, ALL, belief)
        assert (sampler.visited_serial == -1).all()
        sampler.record(ALL, finished(rng.uniform(size=WORLDS) < 0.5, e))
        assert (sampler.stored_e == known).all()
    sampler.draw(rng, ALL, BELIEF)
    assert (sampler.visited_serial >= 0).any()
    sampler.draw(rng, ALL, BELIEF)  # Begun out of turn.
    assert (sampler.visited_serial == -1).all()


def test_a_saved_state_goes_on_identically(tmp_path):
    copes = lambda e: e[:, SPACE.index("payload")] < 0.05
    a, rng = under_way(0.4, some(30))

    def play(sampler: FailureSampler, rng: np.random.Generator, e: np.ndarray, rounds: int) -> np.ndarray:
        for _ in range(rounds):
            sampler.record(ALL, finished(copes(e), e))
            e = sampler.draw(rng, ALL, BELIEF)
        return e

    e = play(a, rng, a.draw(rng, ALL, BELIEF), 5)
    checkpoint.write(tmp_path / "a.safetensors", a.state(), {})
    b, same = FailureSampler(BELIEF, WORLDS, 0.5, 0.4, some(30)), np.random.default_rng()
    b.restore(checkpoint.read(tmp_path / "a.safetensors")[0])
    same.bit_generator.state = rng.bit_generator.state
    assert (play(a, rng, e, 5) == play(b, same, e, 5)).all()
    for name, value in a.state().items():
        assert np.array_equal(value, b.state()[name]), name
    with pytest.raises(BadInput, match="another number"):
        FailureSampler(BELIEF, WORLDS + 1, 0.5).restore(a.state())


# Files ----------------------------------------------------------------------------------------------------------


def test_the_failures_of_an_evaluation_are_listed_as_they_were(tmp_path):
    e, good = some(30), np.random.default_rng(4).uniform(size=30) < 0.5
    belief = failing_worlds(finished(good, e), 0.5, BELIEF)
    assert belief is not None
    assert belief.free().names == BELIEF.free().names
    belief.save(tmp_path / "hard.json")
    assert (particle_values(Belief.load(tmp_path / "hard.json")) == e[~good]).all()
    assert (particle_values(collect_failures([tmp_path / "hard.json"], ROBOT)) == e[~good]).all()
    assert failing_worlds(finished(np.ones(30, dtype=bool), e), 0.5, BELIEF) is None


def test_a_twin_of_a_robot_that_failed_is_a_list_of_failures_too(tmp_path):
    Twin(ROBOT.name, ROBOT.model_hash, ROBOT.prior.fix({"payload": 0.1})).save(tmp_path / "unit.twin")
    options = ["--failures", str(tmp_path / "unit.twin"), "--steps", "100", "--worlds", "8", "-o", str(tmp_path / "r")]
    assert main(["train", "pendulum/swingup", *options]) == 0
    known = particle_values(Belief.load(tmp_path / "r" / "failures.json"))
    assert known is not None
    assert (known[:, SPACE.index("payload")] == 0.1).all()


def test_a_belief_that_is_no_list_stands_for_some_of_its_worlds(tmp_path):
    belief = BELIEF.replace(Normal(("payload", "armature"), (0.5, 0.0), ((0.1, 0.05), (0.05, 0.1))))
    belief.save(tmp_path / "posterior.json")
    rows = particle_values(collect_failures([tmp_path / "posterior.json"], ROBOT))
    assert rows is not None
    assert rows.shape == (SAMPLES_PER_BELIEF, len(SPACE))
    assert (rows[:, HELD] == 0.91).all()
    assert len(np.unique(rows[:, SPACE.index("payload")])) == SAMPLES_PER_BELIEF


def test_of_too_many_failures_some_come_from_every_file(tmp_path):
    for i, k in enumerate((1000, 1000)):
        rows = tuple((float(v),) for v in np.linspace(i, i + 0.4, k) / 4)
        Belief(SPACE, (Particles(("payload",), rows),)).save(tmp_path / f"{i}.json")
    payload = particle_values(collect_failures([tmp_path / "0.json", tmp_path / "1.json"], ROBOT))[:, SPACE.index("payload")]  # type: ignore[index]
    assert len(payload) == MAX_KNOWN
    assert (payload < 0.2).sum() == MAX_KNOWN // 2


def recording(path, robot=ROBOT, **origin):
    contract = robot.contract
    signals = {s.name: np.zeros((3, s.size)) for s in contract.signals}
    target = np.zeros((3, contract.target.size))
    write_episode(path, Episode(contract, np.arange(3.0), signals, target, target, origin={"source": "sim", **origin}))
    return path


def test_a_recording_that_knows_its_world_is_a_failure(tmp_path):
    path = recording(tmp_path / "fell.mcap", e={"payload": 0.3, "joint_friction": 0.5})
    expected = SPACE.vector({"payload": 0.3, "joint_friction": 0.5})
    assert (particle_values(collect_failures([path], ROBOT)) == expected).all()


@pytest.mark.parametrize(
    ("origin", "hint"),
    [
        ({}, "`isthmus identify` it first"),
        ({"e": [1, 2]}, "`isthmus identify` it first"),
        ({"e": {"paylod": 0.3}}, "payload"),
        ({"e": {"payload": 30.0}}, "hard bounds"),
        ({"e": {"payload": "much"}}, "numbers"),
        ({"e": {"payload": 10**400}}, "fell.mcap"),
    ],
)
def test_a_recording_that_does_not_is_one_sentence(tmp_path, origin, hint):
    path = recording(tmp_path / "fell.mcap", **origin)
    with pytest.raises(BadInput, match=r"fell\.mcap") as error:
        collect_failures([path], ROBOT)
    assert hint in str(error.value)


def test_a_recording_of_another_robot_is_refused(tmp_path):
    with pytest.raises(BadInput, match="of cartpole, not of pendulum"):
        collect_failures([recording(tmp_path / "other.mcap", get_robot("cartpole"), e={})], ROBOT)


# Commands -------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    """Episodes of 20 ticks, and evaluations of four worlds at the end of training."""
    whole, task = evaluate.run_episodes, get_task("pendulum/swingup")
    few = lambda task, actor, worlds, *rest, **more: whole(task, actor, min(worlds, 8), *rest, **more)
    monkeypatch.setitem(TASKS, "pendulum/swingup", lambda: replace(task, episode=0.4))
    monkeypatch.setattr(evaluate, "run_episodes", few)


def test_from_an_evaluation_to_training_and_back(tmp_path, capsys, quick):
    first, hard, again = tmp_path / "first", tmp_path / "hard.json", tmp_path / "again"
    train = ("train", "pendulum/swingup", "--worlds", 16)
    assert call(capsys, *train, "--steps", 500, "-o", first)[0] == 0
    code, out, err = call(capsys, "evaluate", first, "--worlds", 8, "--failures", hard, "--json")
    assert code == 0, err
    told = json.loads(out)["failures"]
    assert told["worlds"] == len(particle_values(Belief.load(hard))) == round(8 * (1 - json.loads(out)["success"]["rate"])) > 0  # type: ignore[arg-type]
    assert told["hash"] == Belief.load(hard).hash

    code, _, err = call(capsys, *train, "--steps", 1000, "--failures", hard, "-o", again)
    assert code == 0, err
    plan = runs.load(again).config
    assert plan.revisit_fraction == 0.3
    assert plan.failures == Belief.load(again / "failures.json").hash
    whole = tmp_path / "whole"
    assert call(capsys, *train, "--steps", 2000, "--failures", hard, "-o", whole)[0] == 0
    assert call(capsys, "train", "--resume", "--steps", 2000, "-o", again)[0] == 0
    (one, _), (two, _) = (checkpoint.read(checkpoint.newest(run)) for run in (whole, again))
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[name], two[name], equal_nan=True) for name in one)
    assert (one["env.sampler.stored_e"][: told["worlds"]] == particle_values(Belief.load(hard))).all()
    assert (one["env.sampler.visited_serial"] >= 0).any()

    BELIEF.save(again / "failures.json")
    code, _, err = call(capsys, "train", "--resume", "--steps", 3000, "-o", again)
    assert code == 2
    assert "started with" in err


def test_no_failure_is_one_sentence_and_no_file(tmp_path, capsys, quick, monkeypatch):
    task = get_task("pendulum/swingup")
    monkeypatch.setitem(TASKS, "pendulum/swingup", lambda: replace(task, success_threshold=0.0))
    assert call(capsys, "train", "pendulum/swingup", "--worlds", 4, "--steps", 100, "-o", tmp_path / "a")[0] == 0
    code, out, err = call(capsys, "evaluate", tmp_path / "a", "--worlds", 4, "--failures", tmp_path / "no.json", "--json")
    assert code == 0
    assert json.loads(out)["failures"] is None
    assert "every world succeeded" in err
    assert not (tmp_path / "no.json").exists()
    code, _, err = call(capsys, "evaluate", tmp_path / "a", "--nominal", "--failures", tmp_path / "no.json")
    assert code == 2
    assert "only one world" in err


@pytest.mark.parametrize("share", ["1", "-0.1", "nan", "inf"])
def test_a_share_that_is_none_is_one_sentence(tmp_path, capsys, share):
    code, _, err = call(capsys, "train", "pendulum/swingup", "-o", tmp_path / "x", "--revisit", share)
    assert code == 2
    assert "--revisit" in err
    assert not (tmp_path / "x").exists()
