"""Ranges that widen by themselves: as far as the policy copes, on each side by itself, and never too far."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from isthmus.core.errors import BadInput
from isthmus.learn import checkpoint, runs
from isthmus.learn.evaluate import evaluate
from isthmus.tasks.catalogue import TASKS, get_task
from isthmus.tasks.env import Env
from isthmus.tasks.samplers.adr import ADR, ADRConfig
from isthmus.tasks.task import ParameterShift
from isthmus.world import Belief, LogUniform, Param, Space, Uniform
from support.command_line import call

SPACE = Space((
    Param("mass", "kg", 2.0, 0.5, 10.0, ("body:.*/mass",), scale="log"),
    Param("offset", "m", 0.1, -0.5, 0.5, ("body:.*/x",)),
    Param("payload", "kg", 0.0, 0.0, 4.0, ("body:.*/mass",), how="add"),
    Param("gain", "1", 1.0, 0.2, 5.0, ("joint:.*/gain",), scale="log"),
))  # fmt: skip
BELIEF = Belief.from_ranges(SPACE, {"mass": (1.5, 3.0), "offset": (0.0, 0.2), "payload": (0.0, 1.0)}).fix({"gain": 1.3})
FREE = ("mass", "offset", "payload")
WORLDS, STEPS = 64, ADRConfig().steps_to_bound
ALL = np.arange(WORLDS)


def away(e: np.ndarray) -> np.ndarray:
    """How far e lies on the way from nominal to the low and high hard bounds, (k, parameter, side), in steps."""
    u, middle = SPACE.unit(e)[:, :3], SPACE.unit(SPACE.nominal)[:3]
    ways = np.stack([middle, 1 - middle], axis=1)
    return STEPS * np.stack([middle - u, u - middle], axis=2) / np.where(ways == 0, 1.0, ways)


def finished(good: np.ndarray, e: np.ndarray) -> dict[str, np.ndarray]:
    return {"score": np.where(good, 0.9, 0.1), "failed": ~good, "e": e}


def ends(sampler: ADR) -> tuple[np.ndarray, np.ndarray]:
    """The present ranges of all parameters."""
    low, high = SPACE.vector({"gain": 1.3}), SPACE.vector({"gain": 1.3})
    for i, name in enumerate(FREE):
        low[i], high[i] = limits(sampler.as_belief(), name)
    return low, high


def limits(belief: Belief, name: str) -> tuple[float, float]:
    """The exact range of a parameter."""
    factor = belief[name]
    assert isinstance(factor, Uniform | LogUniform)
    return factor.low, factor.high


def play(sampler: ADR, rng: np.random.Generator, copes, rounds: int) -> np.ndarray:
    """Rounds of one episode in each world; how far the sides reached after each, (rounds, parameter, side)."""
    e, seen = sampler.draw(rng, ALL, BELIEF), []
    for _ in range(rounds):
        sampler.record(ALL, finished(copes(e), e))
        low, high = ends(sampler)
        e = sampler.draw(rng, ALL, BELIEF)
        assert ((e >= low) & (e <= high)).all()
        SPACE.check(e)
        seen.append(sampler.range_steps.copy())
    return np.array(seen)


def limited(limits: np.ndarray):
    """A policy that copes with every world in which no parameter is further away than `limits`, (parameter, side)."""
    return lambda e: (away(e) <= limits + 1e-9).all(axis=(1, 2))


LIMITS = np.array([[3.0, 15.0], [18.0, 6.0], [STEPS, 10.0]])


def test_each_side_finds_how_far_the_policy_copes():
    seen = play(ADR(BELIEF, WORLDS, 0.5), np.random.default_rng(0), limited(LIMITS), 80)
    assert (seen >= 0).all()
    assert (seen <= STEPS).all()
    assert (seen[:, 2, 0] == 0).all()
    found = seen[40:].mean(0)
    room = np.array([[1, 1], [1, 1], [0, 1]], dtype=bool)
    assert (np.abs(found - LIMITS)[room] <= 2.0).all()
    assert (seen[40:].max(0) - LIMITS)[room].max() <= ADRConfig().max_move


def test_sides_come_in_again_when_the_policy_gets_worse():
    sampler, rng = ADR(BELIEF, WORLDS, 0.5), np.random.default_rng(1)
    assert play(sampler, rng, limited(LIMITS), 40)[-1].sum() > 40
    worse = play(sampler, rng, limited(LIMITS / 3), 40)
    assert (worse[20:].mean(0) <= LIMITS / 3 + 1.5).all()


def test_whoever_copes_with_everything_gets_everything_that_is_possible():
    sampler = ADR(BELIEF, WORLDS, 0.5)
    play(sampler, np.random.default_rng(2), lambda e: np.ones(len(e), dtype=bool), 20)
    for name in FREE:
        assert limits(sampler.as_belief(), name) == (SPACE[name].low, SPACE[name].high)
    assert sampler.metrics() == {"adr/width": 1.0, "adr/success": 1.0}


def test_whoever_fails_stays_at_nominal_and_never_beyond():
    sampler = ADR(BELIEF, WORLDS, 0.5)
    play(sampler, np.random.default_rng(3), lambda e: np.zeros(len(e), dtype=bool), 20)
    for name in FREE:
        assert limits(sampler.as_belief(), name) == (SPACE[name].nominal,) * 2
    assert sampler.metrics() == {"adr/width": 0.0, "adr/success": 0.0}


def test_an_episode_succeeds_by_the_tasks_own_mark():
    sampler, rng = ADR(BELIEF, WORLDS, 0.95), np.random.default_rng(4)
    play(sampler, rng, lambda e: np.ones(len(e), dtype=bool), 8)  # A score of 0.9 is not enough.
    assert (sampler.range_steps == 0).all()


def test_a_log_parameter_moves_by_factors_and_a_linear_one_by_differences():
    sampler = ADR(BELIEF, WORLDS, 0.5)
    sampler.restore(sampler.state() | {"range_steps": np.array([[4, 8], [4, 8], [0, 5]])})
    low, high = limits(sampler.as_belief(), "mass")
    assert low == pytest.approx(2.0 * (0.5 / 2.0) ** (4 / STEPS))
    assert high == pytest.approx(2.0 * (10.0 / 2.0) ** (8 / STEPS))
    assert sampler.as_belief().interval("offset", 1.0) == pytest.approx((0.1 - 0.6 * 4 / STEPS, 0.1 + 0.4 * 8 / STEPS))
    assert sampler.as_belief().interval("payload", 1.0) == pytest.approx((0.0, 4.0 * 5 / STEPS))


def test_tests_lie_exactly_at_the_ends_and_are_at_most_half_of_the_worlds():
    sampler, rng, shares = ADR(BELIEF, WORLDS, 0.5), np.random.default_rng(5), []
    play(sampler, rng, limited(LIMITS), 6)
    for _ in range(30):
        sampler.record(ALL, finished(rng.uniform(size=WORLDS) < 0.7, np.zeros((WORLDS, 4))))
        e = sampler.draw(rng, ALL, BELIEF)
        low, high = ends(sampler)
        tested = sampler.tests[:, 0] >= 0
        param, side = np.divmod(sampler.tests[tested, 0], 2)
        assert (e[tested, param] == np.where(side == 0, low[param], high[param])).all()
        assert (sampler.tests_started <= ADRConfig().tests_per_decision).all()
        assert (
            np.bincount(sampler.tests[tested, 0], minlength=6).tolist()
            == (sampler.tests_started - sampler.tests_finished).ravel().tolist()
        )
        shares.append(tested.mean())
    assert 0.1 < np.mean(shares) <= 0.55
    assert (e[:, 3] == 1.3).all()


def test_a_test_of_many_parameters_holds_several_at_once():
    space = Space(tuple(Param(f"p{i}", "1", 0.0, -1.0, 1.0, ("body:.*/x",)) for i in range(25)))
    belief = Belief.from_ranges(space, {p.name: (-0.1, 0.1) for p in space.params})
    sampler, rng = ADR(belief, WORLDS, 0.5), np.random.default_rng(6)
    sampler.record(ALL, finished(np.ones(WORLDS, dtype=bool), np.zeros((WORLDS, 25))))
    e = sampler.draw(rng, ALL, belief)
    held = np.isin(e, limits(sampler.as_belief(), "p0")).sum(1)
    assert set(held.tolist()) == {0, 3}
    assert ((sampler.tests >= 0).sum(1) == held).all()


def test_failures_that_come_back_first_do_not_count_more():
    """Nine of ten episodes succeed everywhere, but those that fail are over twenty times sooner."""
    sampler, rng = ADR(BELIEF, WORLDS, 0.5), np.random.default_rng(7)
    e, left = sampler.draw(rng, ALL, BELIEF), rng.integers(1, 20, WORLDS)
    good, inward = np.ones(WORLDS, dtype=bool), 0
    for _ in range(600):
        left -= 1
        done = np.nonzero(left == 0)[0]
        if len(done):
            before = sampler.range_steps.sum()
            sampler.record(done, finished(good[done], e[done]))
            inward += sampler.range_steps.sum() < before
            e[done] = sampler.draw(rng, done, BELIEF)
            good[done] = rng.uniform(size=len(done)) < 0.9
            left[done] = np.where(good[done], 20, 1)
    assert inward == 0
    assert sampler.range_steps.sum() > 0.8 * 5 * STEPS


def test_tests_that_never_end_are_called_off():
    sampler, rng = ADR(BELIEF, WORLDS, 0.5), np.random.default_rng(8)
    play(sampler, rng, limited(LIMITS), 3)
    assert sampler.tests_started.sum() > 0
    sampler.draw(rng, ALL, BELIEF)  # Begin anew, out of turn.
    assert (sampler.tests == -1).all()
    assert (sampler.tests_started == sampler.tests_finished).all()
    play(sampler, rng, limited(LIMITS), 20)
    assert (np.abs(sampler.range_steps - LIMITS)[:, 1] <= 4).all()


def test_a_world_keeps_its_test_when_its_numbers_change():
    task = replace(get_task("pendulum/swingup"), parameter_shift=ParameterShift(("payload", "strength"), interval=(0.02, 0.04)))
    belief = task.robot.prior.nominal().replace(*(task.robot.prior[n] for n in ("payload", "strength")))
    sampler = ADR(belief, 16, task.success_threshold)
    env = Env(task, 16, belief=belief, sampler=sampler)
    sampler.record(np.arange(16), {k: v.repeat(16) for k, v in (("failed", np.array([False])), ("score", np.ones(1)))})
    env.reset()
    column = task.robot.space.index("payload")
    held = np.nonzero(sampler.tests[:, 0] == 2 * belief.free().index("payload") + 1)[0]
    high, before = sampler.as_belief().interval("payload", 1.0)[1], env.sim.e.copy()
    for _ in range(6):
        env.step(torch.zeros(16, 1))
    changed = env.sim.e != before
    assert len(held)
    assert (env.sim.e[held, column] == high).all()
    free = np.nonzero((sampler.tests < 0).all(axis=1))[0]
    assert len(free)
    assert changed[free, column].all()
    assert not np.delete(changed, [column, task.robot.space.index("strength")], axis=1).any()


def test_a_saved_state_goes_on_identically(tmp_path):
    a, rng = ADR(BELIEF, WORLDS, 0.5), np.random.default_rng(9)
    play(a, rng, limited(LIMITS), 7)
    checkpoint.write(tmp_path / "a.safetensors", a.state(), {})
    b, same = ADR(BELIEF, WORLDS, 0.5), np.random.default_rng()
    b.restore(checkpoint.read(tmp_path / "a.safetensors")[0])
    same.bit_generator.state = rng.bit_generator.state
    one, two = play(a, rng, limited(LIMITS), 9), play(b, same, limited(LIMITS), 9)
    assert (one == two).all()
    for name, value in a.state().items():
        assert np.array_equal(value, b.state()[name]), name
    assert a.metrics() == b.metrics()
    with pytest.raises(BadInput, match="shape"):
        ADR(BELIEF, WORLDS + 1, 0.5).restore(a.state())


def test_the_ranges_are_a_belief_that_a_file_gives_back(tmp_path):
    sampler = ADR(BELIEF, WORLDS, 0.5)
    play(sampler, np.random.default_rng(10), limited(LIMITS), 20)
    belief = sampler.as_belief()
    belief.save(tmp_path / "adr.json")
    back = Belief.load(tmp_path / "adr.json")
    assert back == belief
    assert back.free().names == FREE
    assert back["gain"] == BELIEF["gain"]
    for row in sampler.reached_ranges():
        assert limits(back, row.name) == (row.low, row.high)
    widths = [row.width for row in sampler.reached_ranges()]
    assert widths == sorted(widths, reverse=True)
    assert np.mean(widths) == pytest.approx(sampler.metrics()["adr/width"])


@pytest.fixture
def quick(monkeypatch):
    """Episodes of 20 ticks, and evaluations of four worlds."""
    whole, task = evaluate.run_episodes, get_task("pendulum/swingup")
    monkeypatch.setitem(TASKS, "pendulum/swingup", lambda: replace(task, episode=0.4))
    monkeypatch.setattr(
        evaluate, "run_episodes", lambda task, actor, worlds, *rest, **more: whole(task, actor, 4, *rest, **more)
    )


@pytest.mark.slow
def test_a_run_stopped_and_resumed_equals_one_that_never_was(tmp_path, capsys, quick):
    options = ("train", "pendulum/swingup", "--adr", "--worlds", 16)
    assert call(capsys, *options, "-o", tmp_path / "whole", "--steps", 4_000)[0] == 0
    assert call(capsys, *options, "-o", tmp_path / "parts", "--steps", 1_500)[0] == 0
    code, out, err = call(capsys, "train", "-o", tmp_path / "parts", "--resume", "--steps", 4_000, "--json")
    assert code == 0, err
    (one, _), (two, _) = (checkpoint.read(checkpoint.newest(tmp_path / name)) for name in ("whole", "parts"))
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[name], two[name], equal_nan=True) for name in one)
    assert one["env.sampler.back"].sum() > 0
    written = Belief.load(tmp_path / "parts" / "adr.json")
    assert written == Belief.load(tmp_path / "whole" / "adr.json")
    table = {row["name"]: row for row in json.loads(out)["adr"]}
    assert set(table) == set(written.free().names)
    assert all(limits(written, n) == (row["low"], row["high"]) for n, row in table.items())
    row = json.loads((tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()[-1])
    assert 0 <= row["adr/width"] <= 1
    assert runs.load(tmp_path / "parts").belief == get_task("pendulum/swingup").robot.prior


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--revisit", "0.3"], "one of them"),
        (["--method", "rma"], "ppo or teacher"),
        (["--belief", "BELIEF"], "nothing to widen"),
    ],
)
def test_what_does_not_go_with_adr_is_one_sentence(tmp_path, capsys, options, hint):
    get_task("pendulum/swingup").robot.prior.nominal().save(tmp_path / "fixed.json")
    options = [str(tmp_path / "fixed.json") if o == "BELIEF" else o for o in options]
    code, _, err = call(capsys, "train", "pendulum/swingup", "--adr", "-o", tmp_path / "x", *options)
    assert code == 2
    assert hint in err
    assert err.count("\n") == 1
    assert not (tmp_path / "x").exists()
