"""Laws of the intervals of a comparison: they cover the truth, and doubt what few worlds or seeds leave in doubt."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from isthmus.learn.evaluate.statistics import Z_QUANTILE, estimate, gap_closed, rate_difference


def test_the_interval_of_a_paired_difference_of_rates_ends_where_the_score_test_says_so():
    """Against the likelihood, maximised numerically."""
    n, more, less = 60, 9, 3
    a, b = np.zeros((2, n), dtype=bool)
    a[:more] = b[more : more + less] = True
    a[20:40] = b[20:40] = True
    found = rate_difference(a, b)
    assert found.mean == pytest.approx((more - less) / n)
    for end in (found.low, found.high):
        lowest = max(0.0, -end)
        minus = lambda q, d=end: -(more * np.log(q + d) + less * np.log(q) + (n - more - less) * np.log(1 - 2 * q - d))
        q = minimize_scalar(minus, bounds=(lowest + 1e-9, (1 - end) / 2 - 1e-9), method="bounded", options={"xatol": 1e-10}).x
        assert abs(more - less - n * end) / np.sqrt(n * (2 * q + end * (1 - end))) == pytest.approx(Z_QUANTILE, abs=1e-3)
    swapped = rate_difference(b, a)
    assert (swapped.low, swapped.high) == pytest.approx((-found.high, -found.low))


def test_equal_outcomes_still_leave_a_doubt_about_rates():
    same = np.ones(50, dtype=bool)
    found = rate_difference(same, same)
    assert found.mean == 0
    assert found.high == pytest.approx(-found.low)
    assert 0.03 < found.high < 0.1
    never = rate_difference(same, ~same)
    assert never.mean == never.high == 1


def planted(rng, runs: int, worlds: np.ndarray, mean: float, seeds: float = 0.3) -> np.ndarray:
    """(runs, worlds): a common difficulty per world, a level per run, and noise."""
    return mean + worlds + seeds * rng.standard_normal((runs, 1)) + 0.3 * rng.standard_normal((runs, len(worlds)))


def test_intervals_over_worlds_and_seeds_cover_the_truth():
    rng, hits, shares = np.random.default_rng(0), 0, 0
    for _ in range(300):
        worlds = rng.standard_normal(40)
        start, goal, reached = (planted(rng, 4, worlds, m) for m in (0.0, 2.0, 1.2))
        found = estimate((1.0, goal), (-1.0, start))
        hits += found.low <= 2.0 <= found.high
        got = gap_closed(start, goal, reached)
        assert got.uncertainty_over == "worlds and seeds"
        shares += got.fraction.low <= 0.6 <= got.fraction.high
    assert 0.92 < hits / 300 <= 1.0
    assert 0.92 < shares / 300 <= 1.0


def test_three_seeds_of_the_goal_leave_as_much_doubt_about_a_share_as_three_seeds_do():
    """Student's t with two degrees of freedom is 4.3; with those of the other methods, one interval in six misses."""
    rng, hits = np.random.default_rng(7), []
    for _ in range(300):
        worlds = rng.standard_normal(30)
        many = [planted(rng, 8, worlds, mean, seeds=0.1) for mean in (0.0, 27.0)]
        got = gap_closed(many[0], planted(rng, 3, worlds, 30.0, seeds=1.0), many[1])
        if got.significant:
            hits.append(got.fraction.low <= 0.9 <= got.fraction.high)
    assert len(hits) > 250
    assert np.mean(hits) > 0.91


def test_the_share_of_a_gap_is_exact_without_noise_and_undefined_without_a_gap():
    rng = np.random.default_rng(1)
    start = rng.standard_normal((1, 50))
    assert gap_closed(start, start + 2, start + 1.5).fraction.mean == pytest.approx(0.75)
    whole = gap_closed(start, start + rng.uniform(1, 3, (1, 50)), start)
    assert (whole.fraction.mean, whole.fraction.low, whole.fraction.high) == pytest.approx((0, 0, 0), abs=1e-9)
    none = gap_closed(start, start + rng.standard_normal((1, 50)) * 0.1, start + 1)
    assert not none.significant
    assert np.isnan([none.fraction.mean, none.fraction.low, none.fraction.high]).all()
    worse = gap_closed(start, start - 1, start + 1)
    assert not worse.significant
