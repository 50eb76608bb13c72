"""Laws of a change on the way: when a policy is back is told from the curves, and worlds that fail do not flatter it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isthmus.learn.evaluate import recovery
from isthmus.learn.evaluate.statistics import estimate
from support.short_tasks import brief


def test_a_change_shows_from_its_tick_on_and_not_before(entries):
    task, actor = brief(seconds=0.8), entries[0].actor
    event = recovery.WorldChange.for_task(task, {"strength": task.robot.space["strength"].low}, {}, 0.4)
    assert event.before == {"strength": task.robot.space["strength"].nominal}
    e = np.tile(task.robot.space.nominal, (4, 1))
    changed, same = (recovery.record_trace(task, actor, e, 5, event, flag) for flag in (True, False))
    assert changed.score.shape == (round(0.8 * task.robot.contract.rate), 4)
    assert np.array_equal(changed.error[: event.tick], same.error[: event.tick])
    assert not np.array_equal(changed.error[event.tick :], same.error[event.tick :])
    assert changed.standing.all()
    nothing = replace(event, after=event.before)
    again = recovery.record_trace(task, actor, e, 5, nothing, True)
    assert np.array_equal(again.score, same.score)
    still = recovery.summarize_recovery("x", again, same, event.tick, 0.02)
    assert still.recovery_seconds.high == still.final_loss.high == still.worst_loss == 0


def test_the_last_tick_is_seen_before_the_world_begins_again(entries):
    """The sum over the trace is the score that the environment itself counts."""
    task, actor = brief(seconds=0.5), entries[0].actor
    event = recovery.WorldChange.for_task(task, {"strength": 1.0}, {}, None)
    e = task.robot.prior.sample(np.random.default_rng(0), 3)
    from isthmus.learn.evaluate.rollout import run_episodes

    trace = recovery.record_trace(task, actor, e, 5, event, False)
    assert trace.score.mean(axis=0) == pytest.approx(run_episodes(task, actor, 3, 5, e=e)["score"], abs=1e-6)


def trace(score: np.ndarray, standing: np.ndarray | None = None) -> recovery.EpisodeTrace:
    return recovery.EpisodeTrace(score, 1 - score, np.ones(score.shape, bool) if standing is None else standing)


def test_recovery_is_told_from_planted_curves():
    tick, at, n = 0.02, 100, 30
    rng = np.random.default_rng(4)
    same = 0.8 + 0.02 * rng.standard_normal((400, n))
    time = (np.arange(400) - at) * tick
    dip = np.where(time >= 0, 0.4 * np.exp(-np.maximum(time, 0) / 0.5), 0.0)[:, None]
    found = recovery.summarize_recovery("x", trace(same - dip), trace(same), at, tick)
    # The dip passes 5 % of 0.8 after 0.5 s · ln 10; a mean over the last 0.2 s is up to that late.
    passed = 0.5 * np.log(0.4 / 0.04)
    assert passed <= found.recovery_seconds.mean <= passed + 0.22
    assert found.recovery_seconds.low <= found.recovery_seconds.mean <= found.recovery_seconds.high
    assert found.recovered_fraction == 1.0
    assert found.final_loss.mean == pytest.approx(dip[-50:].mean())
    assert found.score_before == pytest.approx(0.8, abs=0.01)
    lasting = recovery.summarize_recovery("x", trace(same - 0.1 * (time >= 0)[:, None]), trace(same), at, tick)
    assert np.isinf(lasting.recovery_seconds.mean)
    assert lasting.recovered_fraction == 0.0
    assert lasting.final_loss.mean == pytest.approx(0.1)


def test_worlds_that_fail_are_counted_and_do_not_make_the_rest_look_recovered():
    tick, at, n = 0.02, 50, 20
    same = np.full((200, n), 0.8)
    score, standing = same.copy(), np.ones((200, n), dtype=bool)
    score[at:, :8] = 0.1
    standing[120:, :8] = False
    standing[:, 19] = np.arange(200) < 30
    found = recovery.summarize_recovery("x", trace(score, standing), trace(same), at, tick)
    assert found.recovery_seconds.mean == 0
    assert (found.failed.rate, found.failed.n) == (8 / 19, 19)
    assert found.failed_without_change.rate == 0
    assert np.allclose(found.curves["score"], 0.8)
    gone = recovery.summarize_recovery("x", trace(score, np.zeros_like(standing)), trace(same), at, tick)
    assert np.isinf(gone.recovery_seconds.mean)
    assert np.isnan(gone.final_loss.mean)


def test_runs_of_one_method_are_resampled_world_by_world():
    rng = np.random.default_rng(5)
    same, lost = np.full((100, 10), 0.8), 0.1 * rng.standard_normal(10)
    changed = same - np.where(np.arange(100) >= 50, 1, 0)[:, None] * lost
    one = recovery.summarize_recovery("x", trace(changed), trace(same), 50, 0.02)
    twice = recovery.summarize_recovery("x", trace(np.tile(changed, 2)), trace(np.tile(same, 2)), 50, 0.02, runs=2)
    assert vars(twice.final_loss) == pytest.approx(vars(one.final_loss))
    assert twice.recovered_fraction == one.recovered_fraction


def test_seeds_of_one_method_that_recover_differently_leave_a_doubt():
    """Worlds that are all alike leave none."""
    tick, at, n = 0.02, 50, 10
    same, ticks = np.full((250, n), 0.8), np.arange(250)[:, None]
    planted = {25: 0.01, 100: 0.03}
    runs = [same - np.where(ticks < at + k, 0.4, lost) * (ticks >= at) for k, lost in planted.items()]
    soon, late = (recovery.summarize_recovery("x", trace(run), trace(same), at, tick) for run in runs)
    assert soon.recovery_seconds.low == soon.recovery_seconds.high < late.recovery_seconds.low == late.recovery_seconds.high
    joined, twice = np.concatenate(runs, axis=1), trace(np.tile(same, 2))
    both = recovery.summarize_recovery("x", trace(joined), twice, at, tick, runs=2)
    assert (both.recovery_seconds.low, both.recovery_seconds.high) == (soon.recovery_seconds.low, late.recovery_seconds.high)
    lost = np.repeat([[0.01], [0.03]], n, axis=1)
    assert vars(both.final_loss) == pytest.approx(vars(estimate((1.0, lost))))
    assert both.final_loss.low < lost.min()
    assert both.final_loss.high > lost.max()
    fell = np.ones(joined.shape, dtype=bool)
    fell[-1, :4] = False
    some = recovery.summarize_recovery("x", trace(joined, fell), twice, at, tick, runs=2)
    assert some.final_loss.mean == pytest.approx(0.02)  # worlds in which one run fell say nothing of the method
    fell[-1, :n] = False
    assert np.isnan(recovery.summarize_recovery("x", trace(joined, fell), twice, at, tick, runs=2).final_loss.mean)
