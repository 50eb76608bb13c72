"""The same gate with a simulator beside it: fewer real trials, and no bias however wrong the simulator is.

Each real trial x (0 or 1) comes with a prediction y (0 to 1) of the simulator under the same conditions, and the simulator
alone was run n' times under conditions drawn in the same way, so that its own mean μ is known to within [μ_low, μ_high].

    e-process for "p ≤ m"      Π (1 + a ((x - m) - c (y - μ_low)))          a, c ≥ 0, no factor negative
    e-process for "p ≥ m"      Π (1 - a ((x - m) - c (y - μ_high)))

Under the hypothesis each factor has mean at most 1 whatever joint law x and y follow, so the products obey the same bound as
in `gate`. c (y - μ) is a control variate: where x and y fail together, it takes out what they share. The bets (a, c) grow
fastest for one assumed correlation (Kelly, 1956); a mixture of two, one of them with no correlation at all, costs little
where the simulator is useless:

    E ≥ ALONE · (real trials alone),      so it is never later than the plain gate run at false_pass · ALONE

The probability that μ lies outside its bounds is part of the stated error: a twentieth of it (SPENT). Where conditions are
finitely many, each with one prediction that stays, μ is their mean, known exactly, and nothing is spent.
Prediction-powered inference: Angelopoulos et al. (2023); betting: Waudby-Smith and Ramdas (2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from isthmus.core.statistics import Rate
from isthmus.validation.sequential_test import Decision, RateGoal, decide, trials_needed

BET_CORRELATIONS, BET_WEIGHTS = (0.0, 0.7), (0.4, 0.6)
"""That the bets are made for, and how much of the stake is on each."""
WEIGHT_WITHOUT_SIMULATOR = BET_WEIGHTS[0]
SIMULATOR_MEAN_ERROR_SHARE = 0.05
"""Part of the error that is spent on not knowing the simulator's mean."""
RATE_GRID_CELLS = 12
"""Rates below, and above, the one that decides at which bounds can lie."""
_JOINT_OUTCOMES, _JOINT_PREDICTIONS = np.array([1.0, 1.0, 0.0, 0.0]), np.array([1.0, 0.0, 1.0, 0.0])
_CONTROL_COEFFICIENTS = np.linspace(0.0, 1.2, 25)
"""Values of c that are tried."""


def joint_probabilities(p: float | np.ndarray, mu: float, correlation: float) -> np.ndarray:
    """Probabilities of (x, y) = 11, 10, 01, 00 for two coins; the correlation is cut to what their means allow, (…, 4)."""
    p = np.asarray(p, dtype=float)
    both = p * mu + correlation * np.sqrt(p * (1 - p) * mu * (1 - mu))
    both = np.clip(both, np.maximum(0.0, p + mu - 1), np.minimum(p, mu))
    return np.stack([both, p - both, mu - both, 1 - p - mu + both], axis=-1)


def kelly_bets(
    m: np.ndarray, q: np.ndarray, mu: float, bound: float, correlation: float, side: int
) -> tuple[np.ndarray, np.ndarray]:
    """a and c of the fastest growth if p is q, for each m, (k,); `side` is 1 against p ≤ m and -1 against p ≥ m."""
    shares = _CONTROL_COEFFICIENTS if correlation > 0 else np.zeros(1)
    weight = joint_probabilities(q, mu, correlation)[:, None]
    gain = side * ((_JOINT_OUTCOMES - m[:, None, None]) - shares[:, None] * (_JOINT_PREDICTIONS - bound))
    low, high = np.zeros(gain.shape[:2]), 0.999 / np.maximum(-gain.min(axis=2), 1e-9)
    for _ in range(30):
        middle = (low + high) / 2
        rising = (weight * gain / (1 + middle[..., None] * gain)).sum(axis=2) > 0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    growth = (weight * np.log1p(low[..., None] * gain)).sum(axis=2)
    best = growth.argmax(axis=1)
    return low[np.arange(len(m)), best], shares[best]


@dataclass(frozen=True)
class SimulatedRate:
    """What the simulator alone says: successes of n independent trials under conditions drawn as the real ones are."""

    hits: int
    n: int
    exact_mean: float | None = None
    """The mean of the predictions, where it is known: conditions are finitely many, and each has one prediction."""

    @property
    def mean(self) -> float:
        return self.hits / self.n if self.exact_mean is None else self.exact_mean

    @property
    def error_spent(self) -> float:
        """Part of the error that not knowing the mean costs."""
        return SIMULATOR_MEAN_ERROR_SHARE if self.exact_mean is None else 0.0

    def bounds(self, error: float) -> tuple[float, float]:
        """Each holds with probability 1 - error."""
        if self.exact_mean is not None:
            return self.exact_mean, self.exact_mean
        found = Rate.from_counts(self.hits, self.n, 1 - 2 * error)
        return found.low, found.high


@dataclass(frozen=True)
class BetTable:
    """How one side of the gate bets."""

    rates: np.ndarray
    """Against which it bets, (k,): where bounds can lie."""
    mean_bound: float
    """Of the simulator's mean."""
    log_wealth_needed: float
    """Logarithm of the wealth that excludes a rate."""
    bets: tuple[tuple[np.ndarray, np.ndarray], ...]
    """a and c, (k,) each, for each of CORRELATIONS."""


@lru_cache(maxsize=64)
def bet_table(goal: RateGoal, sim: SimulatedRate, side: int) -> BetTable:
    """`side` is 1 for the lower bound and -1 for the upper one."""
    error, edge = (goal.false_pass, goal.required) if side > 0 else (goal.false_fail, goal.expected)
    bound = sim.bounds(sim.error_spent * error)[0 if side > 0 else 1]
    below, above = np.linspace(0, edge, RATE_GRID_CELLS + 1)[1:], np.linspace(edge, 1, RATE_GRID_CELLS + 1)[:-1]
    rates = np.union1d(below, above)
    odds = rates / (1 - rates) * np.exp(side * goal.log_odds_shift)
    mu = float(np.clip(sim.mean, 0.5 / sim.n, 1 - 0.5 / sim.n))
    pairs = tuple(kelly_bets(rates, odds / (1 + odds), mu, bound, r, side) for r in BET_CORRELATIONS)
    return BetTable(rates, bound, -float(np.log((1 - sim.error_spent) * error)), pairs)


class _OneSidedTest:
    """Wealth of the bets against each of a row of rates."""

    def __init__(self, goal: RateGoal, sim: SimulatedRate, side: int):
        self.side, self.table = side, bet_table(goal, sim, side)
        self.log_wealth = np.zeros((len(BET_CORRELATIONS), len(self.table.rates)))
        """Logarithms."""

    def add(self, x: float, y: float) -> float:
        """The bound after one more trial."""
        rates, bound = self.table.rates, self.table.mean_bound
        for k, (a, c) in enumerate(self.table.bets):
            self.log_wealth[k] += np.log1p(self.side * a * ((x - rates) - c * (y - bound)))
        total = np.logaddexp.reduce(self.log_wealth + np.log(BET_WEIGHTS)[:, None], axis=0)
        open_ = total < self.table.log_wealth_needed
        # A true rate between two neighbours is excluded with the one on its far side, so bounds end at the near side.
        if self.side > 0:
            first = int(np.argmax(open_)) if open_.any() else len(rates)
            return float(rates[first - 1]) if first else 0.0
        last = len(rates) - 1 - int(np.argmax(open_[::-1])) if open_.any() else -1
        return float(rates[last + 1]) if last + 1 < len(rates) else 1.0


class AssistedTest:
    """As `Gate`, with a prediction for each trial."""

    def __init__(self, goal: RateGoal, sim: SimulatedRate, max_trials: int = 0):
        self.goal, self.sim, self.max_trials = goal, sim, max_trials or trials_needed(goal)
        self.low, self.high = 0.0, 1.0
        self.decision: Decision = "open"
        self._sides = _OneSidedTest(goal, sim, 1), _OneSidedTest(goal, sim, -1)
        self.trials: list[tuple[float, float]] = []
        """Outcome and prediction."""

    @property
    def n(self) -> int:
        return len(self.trials)

    @property
    def hits(self) -> int:
        return int(sum(x for x, _ in self.trials))

    @property
    def rate(self) -> float:
        return self.hits / self.n if self.n else float("nan")

    def add(self, success: bool, predicted: float) -> Decision:
        if self.decision != "open":
            raise ValueError("the gate is decided.")
        if not 0 <= predicted <= 1:
            raise ValueError(f"a prediction is a probability, not {predicted}.")
        self.trials.append((float(success), float(predicted)))
        self.low = max(self.low, self._sides[0].add(*self.trials[-1]))
        self.high = min(self.high, self._sides[1].add(*self.trials[-1]))
        self.decision = decide(self.goal, self.low, self.high, self.n, self.max_trials)
        return self.decision

    @property
    def correlation(self) -> float:
        """Between outcomes and predictions; not a number where one of them never varied."""
        x, y = (np.array([trial[i] for trial in self.trials]) for i in (0, 1))
        if self.n < 2 or not x.std() * y.std() > 0:
            return float("nan")
        return float(np.mean((x - x.mean()) * (y - y.mean())) / (x.std() * y.std()))

    @property
    def estimate(self) -> float:
        return control_variate_estimate(
            np.array([x for x, _ in self.trials]), np.array([y for _, y in self.trials]), self.sim.mean
        )


def control_variate_estimate(x: np.ndarray, y: np.ndarray, mu: float, prior: float = 8.0) -> float:
    """The success rate, mean of x - c (y - mu), with c found from the trials before each one: unbiased for any simulator.

    c is the slope of x on y over the trials so far, shrunk towards none as if `prior` trials had shown none.
    """
    if not len(x):
        return float("nan")
    return float(np.mean(x - control_variate_coefficients(x, y, prior) * (y - mu)))


def control_variate_coefficients(x: np.ndarray, y: np.ndarray, prior: float) -> np.ndarray:
    """c of each trial, 0 to 1, from those before it only."""
    count = np.arange(len(x))
    before = lambda v: np.concatenate([[0.0], np.cumsum(v)[:-1]])  # noqa: E731
    n = np.maximum(count, 1)
    shared = before(x * y) - before(x) * before(y) / n
    spread = before(y * y) - before(y) ** 2 / n
    return np.clip(shared / (spread + 0.1 * prior), 0.0, 1.0)
