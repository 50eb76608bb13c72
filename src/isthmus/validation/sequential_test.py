"""A gate that opens on a lower confidence bound, looked at after every trial.

    goal     pass only if the success rate p is above `required`; a good one has at least `expected`
    pass     low ≥ required      wrong with probability ≤ false_pass, if p ≤ required
    fail     high ≤ expected     wrong with probability ≤ false_fail, if p ≥ expected

After n trials with s successes, for any rate m and with δ the difference in log odds between `expected` and `required`,

    E(m) = exp(s δ - n log(1 + m (exp δ - 1)))          the likelihood ratio of the rate q with logit q = logit m + δ

has mean at most 1 under every rate up to m, and so has its value at any time at which one may choose to stop: it reaches
1 / false_pass with probability at most false_pass (Ville, 1939). The rates that it excludes end at `low`, in closed form:

    low = (exp((s δ - log(1 / false_pass)) / n) - 1) / (exp δ - 1)

At m = `required` this is Wald's sequential probability ratio test (1945). `high` is the same for failures. Both bounds hold
at all times together, so also at the one at which the gate was decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import Literal

import numpy as np
from scipy import stats

from isthmus.core.errors import BadInput

Decision = Literal["open", "pass", "fail", "undecided"]
MAX_TRIALS = 5_000
"""Trials beyond which no gate is made."""


@dataclass(frozen=True)
class RateGoal:
    required: float
    """Success rate that must be exceeded."""
    expected: float
    """Rate of a controller that ought to pass."""
    false_pass: float = 0.05
    """Largest probability to pass at a rate of `required` or less."""
    false_fail: float = 0.05
    """Largest probability to fail at a rate of `expected` or more."""

    def __post_init__(self) -> None:
        if not 0 < self.required < self.expected < 1:
            raise BadInput(
                f"a goal needs 0 < required < expected < 1, not required = {self.required:g} and expected = {self.expected:g}."
            )
        for name in ("false_pass", "false_fail"):
            if not 0 < getattr(self, name) <= 0.5:
                raise BadInput(f"{name} must be above 0 and at most 0.5, not {getattr(self, name):g}.")

    @property
    def log_odds_shift(self) -> float:
        """δ: how much larger the log odds of `expected` are than those of `required`."""
        return log(self.expected / (1 - self.expected)) - log(self.required / (1 - self.required))


def lower_bound(hits: float, n: int, log_odds_shift: float, error: float) -> float:
    """The largest rate that E excludes after `hits` of n; with probability 1 - error never above the true one."""
    if n == 0:
        return 0.0
    return min(max((exp((hits * log_odds_shift + log(error)) / n) - 1) / (exp(log_odds_shift) - 1), 0.0), 1.0)


class SequentialTest:
    """Trials one by one, until they decide."""

    def __init__(self, goal: RateGoal, max_trials: int = 0):
        """At most `most` trials; 0 for as many as a controller at `expected` needs to pass with 1 - false_fail."""
        self.goal, self.max_trials = goal, max_trials or trials_needed(goal)
        self.n = self.hits = 0
        self.low, self.high = 0.0, 1.0
        """The tightest bounds so far: p ≥ low with 1 - false_pass, p ≤ high with 1 - false_fail."""
        self.decision: Decision = "open"

    @property
    def rate(self) -> float:
        return self.hits / self.n if self.n else float("nan")

    def add(self, success: bool) -> Decision:
        """Take in the next trial; a gate that is decided takes none."""
        if self.decision != "open":
            raise ValueError("the gate is decided.")
        goal = self.goal
        self.n, self.hits = self.n + 1, self.hits + bool(success)
        self.low = max(self.low, lower_bound(self.hits, self.n, goal.log_odds_shift, goal.false_pass))
        self.high = min(self.high, 1.0 - lower_bound(self.n - self.hits, self.n, goal.log_odds_shift, goal.false_fail))
        self.decision = decide(goal, self.low, self.high, self.n, self.max_trials)
        return self.decision


def decide(goal: RateGoal, low: float, high: float, n: int, max_trials: int) -> Decision:
    if low >= goal.required:
        return "pass"
    if high <= goal.expected:
        return "fail"
    return "undecided" if n >= max_trials else "open"


# Exact numbers, without simulation ------------------------------------------------------------------------------


@dataclass(frozen=True)
class OperatingCharacteristic:
    """What the gate does at one true rate."""

    passed: float
    failed: float
    undecided: float
    trials: float
    """Expected number."""


def operating_characteristic(goal: RateGoal, p: float, max_trials: int) -> OperatingCharacteristic:
    """Exact probabilities at rate p, by going through all numbers of successes after each trial."""
    alive, passed, failed, trials = np.array([1.0]), 0.0, 0.0, 0.0
    top, bottom = _decision_thresholds(goal, max_trials)
    for n in range(1, max_trials + 1):
        trials += alive.sum()
        alive = np.append(alive * (1 - p), 0.0) + np.append(0.0, alive * p)
        hits = np.arange(n + 1)
        good = hits >= top[n - 1]
        bad = ~good & (n - hits >= bottom[n - 1])
        passed, failed = passed + alive[good].sum(), failed + alive[bad].sum()
        alive = np.where(good | bad, 0.0, alive)
    return OperatingCharacteristic(float(passed), float(failed), float(alive.sum()), float(trials))


def _decision_thresholds(goal: RateGoal, max_trials: int) -> tuple[np.ndarray, np.ndarray]:
    """Successes that pass and failures that fail after 1 … most trials."""
    n, delta = np.arange(1, max_trials + 1), goal.log_odds_shift
    top = (log(1 / goal.false_pass) + n * log(1 + goal.required * (exp(delta) - 1))) / delta
    bottom = (log(1 / goal.false_fail) + n * log(1 + (1 - goal.expected) * (exp(delta) - 1))) / delta
    return top - 1e-9, bottom - 1e-9


def trials_needed(goal: RateGoal) -> int:
    """The smallest `most` with which a controller at `expected` passes with probability 1 - false_fail."""
    low, high = 1, fixed_size_test(goal)[0]
    enough = lambda most: operating_characteristic(goal, goal.expected, most).passed >= 1 - goal.false_fail  # noqa: E731
    while not enough(high):
        low, high = high, 2 * high
        if high > MAX_TRIALS:
            raise BadInput(
                f"telling {goal.expected:g} from {goal.required:g} takes more than {MAX_TRIALS} trials; set them further apart."
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def fixed_size_test(goal: RateGoal) -> tuple[int, int]:
    """The smallest n, and successes needed, of a test that looks once, with the exact (Clopper-Pearson) bound."""
    n = np.arange(1, MAX_TRIALS + 1)
    needed = stats.binom.isf(goal.false_pass, n, goal.required).astype(int) + 1
    enough = stats.binom.sf(needed - 1, n, goal.expected) >= 1 - goal.false_fail
    if enough.any():
        first = int(np.argmax(enough))
        return int(n[first]), int(needed[first])
    raise BadInput(
        f"telling {goal.expected:g} from {goal.required:g} takes more than {MAX_TRIALS} trials; set them further apart."
    )
