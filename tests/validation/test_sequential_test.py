"""The gates: error rates, bounds at stopping, and what a simulator can and cannot do to them."""

from __future__ import annotations

import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.core.statistics import Rate
from isthmus.validation import sequential_test as gates
from isthmus.validation.assisted_test import (
    WEIGHT_WITHOUT_SIMULATOR,
    AssistedTest,
    SimulatedRate,
    control_variate_estimate,
    joint_probabilities,
)
from isthmus.validation.sequential_test import (
    RateGoal,
    SequentialTest,
    fixed_size_test,
    lower_bound,
    operating_characteristic,
    trials_needed,
)

GOAL = RateGoal(0.8, 0.95)


def campaigns(goal: RateGoal, p: float, count: int, seed: int = 0) -> list[SequentialTest]:
    rng, found = np.random.default_rng(seed), []
    most = trials_needed(goal)
    for _ in range(count):
        gate = SequentialTest(goal, most)
        while gate.decision == "open":
            gate.add(rng.uniform() < p)
        found.append(gate)
    return found


def assisted(goal: RateGoal, p: float, mu: float, correlation: float, count: int, seed: int = 0) -> list[AssistedTest]:
    rng, law, found = np.random.default_rng(seed), joint_probabilities(p, mu, correlation), []
    sim = [SimulatedRate(int(rng.binomial(10_000, mu)), 10_000) for _ in range(4)]
    most = trials_needed(goal)
    for k in range(count):
        gate = AssistedTest(goal, sim[k % len(sim)], most)
        while gate.decision == "open":
            cell = rng.choice(4, p=law)
            gate.add(cell < 2, float(cell in (0, 2)))
        found.append(gate)
    return found


def share(gates_, decision: str) -> Rate:
    return Rate.from_counts(sum(g.decision == decision for g in gates_), len(gates_), 0.998)


@pytest.mark.parametrize("goal", [GOAL, RateGoal(0.6, 0.8, 0.1, 0.05)])
def test_error_rates_are_within_the_stated_level(goal):
    """The interval of the measured rate may touch the level, but not lie above it."""
    assert share(campaigns(goal, goal.required, 400), "pass").low <= goal.false_pass
    assert share(campaigns(goal, goal.expected, 400), "fail").low <= goal.false_fail


def test_exact_error_rates_are_within_the_stated_level_for_many_goals():
    for required, expected in ((0.5, 0.7), (0.7, 0.9), (0.8, 0.95), (0.9, 0.97), (0.3, 0.9)):
        for level in (0.01, 0.05, 0.2):
            goal = RateGoal(required, expected, level, level)
            most = trials_needed(goal)
            for worse in (required, required - 0.1):
                assert operating_characteristic(goal, worse, most).passed <= level
            for better in (expected, (1 + expected) / 2):
                assert operating_characteristic(goal, better, most).failed <= level
            assert operating_characteristic(goal, expected, most).passed >= 1 - level


def test_exact_numbers_agree_with_campaigns():
    for p in (0.8, 0.9, 0.95):
        got, exact = campaigns(GOAL, p, 400, seed=5), operating_characteristic(GOAL, p, trials_needed(GOAL))
        assert share(got, "pass").low <= exact.passed <= share(got, "pass").high
        n = np.array([g.n for g in got])
        assert abs(n.mean() - exact.trials) < 4 * n.std() / 20


def test_bounds_cover_at_stopping():
    for p in (0.7, 0.8, 0.88, 0.95, 0.99):
        got = campaigns(GOAL, p, 300, seed=int(100 * p))
        assert Rate.from_counts(sum(g.low > p for g in got), 300, 0.998).low <= GOAL.false_pass
        assert Rate.from_counts(sum(g.high < p for g in got), 300, 0.998).low <= GOAL.false_fail


def test_the_bound_is_where_the_likelihood_ratio_reaches_the_level():
    """The closed form against the definition, E(m) = Π q/m or (1 - q)/(1 - m) with logit q = logit m + δ."""
    shift, hits, n, level = GOAL.log_odds_shift, 45, 50, 0.05
    m = lower_bound(hits, n, shift, level)
    q = m * np.exp(shift) / (1 - m + m * np.exp(shift))
    assert hits * np.log(q / m) + (n - hits) * np.log((1 - q) / (1 - m)) == pytest.approx(np.log(1 / level))


def test_a_sequential_gate_needs_fewer_trials_than_a_fixed_one_of_the_same_power():
    for goal in (GOAL, RateGoal(0.9, 0.97), RateGoal(0.7, 0.9)):
        for p in (goal.required, goal.expected):
            assert operating_characteristic(goal, p, trials_needed(goal)).trials < 0.7 * fixed_size_test(goal)[0]


def test_the_fixed_size_is_the_smallest_that_does():
    n, needed = fixed_size_test(GOAL)
    assert Rate.from_counts(needed, n, 0.9).low > 0.8 >= Rate.from_counts(needed - 1, n, 0.9).low


def test_a_decided_gate_takes_no_more_trials():
    gate = SequentialTest(GOAL)
    while gate.decision == "open":
        gate.add(True)
    assert (gate.decision, gate.low >= 0.8) == ("pass", True)
    with pytest.raises(ValueError, match="decided"):
        gate.add(True)


def test_too_few_trials_are_no_pass():
    gate = SequentialTest(GOAL, max_trials=5)
    assert [gate.add(True) for _ in range(5)][-1] == "undecided"


@pytest.mark.parametrize("bad", [(0.9, 0.8), (0.8, 1.0), (0.0, 0.5), (0.8, 0.9, 0.0), (0.8, 0.9, 0.05, 0.7)])
def test_goals_that_make_no_sense(bad):
    with pytest.raises(BadInput):
        RateGoal(*bad)


def test_goals_too_close_to_tell():
    with pytest.raises(BadInput, match="further apart"):
        trials_needed(RateGoal(0.9, 0.901))


# With a simulator -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mu", "correlation"), [(0.8, 0.0), (0.8, 0.7), (0.95, 0.3), (0.4, 0.2), (0.95, -0.2)])
def test_no_simulator_makes_a_bad_robot_pass(mu, correlation):
    """At the boundary, whatever the simulator says: right, optimistic, pessimistic, or wrong way round."""
    assert share(assisted(GOAL, 0.8, mu, correlation, 200), "pass").low <= GOAL.false_pass


@pytest.mark.parametrize(("mu", "correlation"), [(0.95, 0.7), (0.8, 0.3), (0.5, 0.0)])
def test_no_simulator_makes_a_good_robot_fail(mu, correlation):
    assert share(assisted(GOAL, 0.95, mu, correlation, 200), "fail").low <= GOAL.false_fail


def test_bounds_with_a_simulator_cover_at_stopping():
    got = assisted(GOAL, 0.88, 0.93, 0.5, 200)
    assert Rate.from_counts(sum(g.low > 0.88 for g in got), 200, 0.998).low <= GOAL.false_pass
    assert Rate.from_counts(sum(g.high < 0.88 for g in got), 200, 0.998).low <= GOAL.false_fail


def test_a_good_simulator_saves_trials():
    alone = operating_characteristic(GOAL, 0.95, trials_needed(GOAL)).trials
    n = np.array([g.n for g in assisted(GOAL, 0.95, 0.95, 0.9, 200)])
    assert n.mean() + 2 * n.std() / np.sqrt(200) < 0.92 * alone


def test_a_useless_simulator_costs_little():
    """E ≥ ALONE · SPENT-corrected real trials, so it decides no later than the plain gate at a level that much smaller."""
    rng = np.random.default_rng(3)
    sim = SimulatedRate(9_000, 10_000)
    strict = RateGoal(0.8, 0.95, 0.9 * 0.95 * WEIGHT_WITHOUT_SIMULATOR * 0.05, 0.05)
    for _ in range(20):
        own, plain = AssistedTest(GOAL, sim, 400), SequentialTest(strict, 400)
        plain_passed = None
        while own.decision == "open":
            x = bool(rng.uniform() < 0.95)
            own.add(x, float(rng.uniform() < 0.9))
            if plain_passed is None and plain.decision == "open":
                # Both with the bet for `expected` against `required`.
                plain.add(x)
                plain_passed = plain.n if plain.decision == "pass" else None
        if plain_passed is not None and own.decision == "pass":
            assert own.n <= plain_passed


def test_the_estimate_is_unbiased_for_a_wrong_simulator():
    """Over a fixed number of trials; and its spread is smaller where the simulator is worth something."""
    rng = np.random.default_rng(0)
    for p, mu, correlation in ((0.8, 0.5, 0.4), (0.9, 0.97, 0.3), (0.7, 0.7, -0.3), (0.8, 0.8, 0.9)):
        cells = rng.choice(4, size=(2000, 40), p=joint_probabilities(p, mu, correlation))
        x, y = (cells < 2).astype(float), np.isin(cells, (0, 2)).astype(float)
        found = np.array([control_variate_estimate(a, b, mu) for a, b in zip(x, y, strict=True)])
        assert abs(found.mean() - p) < 4 * found.std() / np.sqrt(2000)
        assert found.std() < (0.85 if correlation > 0.8 else 1.05) * x.mean(1).std()


def test_two_coins_have_the_correlation_asked_for():
    law = joint_probabilities(0.8, 0.7, 0.5)
    assert law.sum() == pytest.approx(1)
    assert (law[0] + law[1], law[0] + law[2]) == pytest.approx((0.8, 0.7))
    assert (law[0] - 0.56) / np.sqrt(0.8 * 0.2 * 0.7 * 0.3) == pytest.approx(0.5)
    assert (joint_probabilities(0.9, 0.1, 1.0) >= 0).all()


def test_no_bet_can_lose_everything():
    """Every factor of the wealth is positive for every outcome and prediction, also where sim and bounds are extreme."""
    for hits in (0, 5_000, 10_000):
        for side in AssistedTest(GOAL, SimulatedRate(hits, 10_000))._sides:
            own = side.table
            for a, c in own.bets:
                for x in (0.0, 1.0):
                    for y in (0.0, 0.5, 1.0):
                        assert (1 + side.side * a * ((x - own.rates) - c * (y - own.mean_bound)) > 0).all()


def test_longest_gate_is_a_sentence():
    assert fixed_size_test(RateGoal(0.9, 0.93))[0] <= gates.MAX_TRIALS
