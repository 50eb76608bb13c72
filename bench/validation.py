"""Error rates of the gates over thousands of campaigns, and the trials that they save.

    python -m bench.validation [--campaigns 2000] [-o FILE]

Campaigns are drawn from known success rates: coins for the plain gate, pairs of coins with a known correlation for the one
that a simulator helps. For the latter the simulator's own mean is either measured with 10,000 trials, twenty times anew, or
known, as it is where conditions are finitely many.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from bench.__main__ import commit
from isthmus.core.statistics import Rate
from isthmus.validation import assisted_test, sequential_test
from isthmus.validation.assisted_test import AssistedTest, SimulatedRate, joint_probabilities
from isthmus.validation.sequential_test import RateGoal, SequentialTest

GOALS = (RateGoal(0.8, 0.95), RateGoal(0.9, 0.97), RateGoal(0.7, 0.9), RateGoal(0.8, 0.95, 0.01, 0.05))
CORRELATIONS = (0.0, 0.3, 0.5, 0.7, 0.9)
SIMULATED = 10_000
SAMPLES = 20
"""Simulators' means per setting; each is used for an equal share of the campaigns."""


def plain(goal: RateGoal, p: float, campaigns: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Campaigns of the gate as it is used, trial by trial."""
    found = {"decision": [], "n": [], "low": [], "high": []}
    most = sequential_test.trials_needed(goal)
    for row in rng.uniform(size=(campaigns, most)) < p:
        g = SequentialTest(goal, most)
        for x in row:
            if g.add(bool(x)) != "open":
                break
        for name, column in found.items():
            column.append(getattr(g, name))
    return {name: np.array(rows) for name, rows in found.items()}


def helped(
    goal: RateGoal, p: float, mu: float, correlation: float, campaigns: int, rng, known: bool = False
) -> dict[str, np.ndarray]:
    """The same of the gate with a simulator, all of one sample of it at once; the first is checked trial by trial."""
    most, law = sequential_test.trials_needed(goal), joint_probabilities(p, mu, correlation)
    found: dict[str, list] = {"decision": [], "n": []}
    for _ in range(SAMPLES if not known else 1):
        sim = SimulatedRate(int(rng.binomial(SIMULATED, mu)), SIMULATED, mu if known else None)
        cells = rng.choice(4, size=(campaigns // (1 if known else SAMPLES), most), p=law / law.sum())
        x, y = np.array([1.0, 1.0, 0.0, 0.0])[cells], np.array([1.0, 0.0, 1.0, 0.0])[cells]
        low, high = (_bounds(goal, sim, side, x, y) for side in (1, -1))
        good, bad = low >= goal.required, high <= goal.expected
        when = [np.where(hit.any(1), hit.argmax(1), most) for hit in (good, bad)]
        decision = np.where(np.minimum(*when) == most, "undecided", np.where(when[0] <= when[1], "pass", "fail"))
        n = np.minimum(np.minimum(*when) + 1, most)
        one = AssistedTest(goal, sim, most)
        while one.decision == "open":
            one.add(bool(x[0, one.n]), y[0, one.n])
        assert (one.decision, one.n) == (decision[0], n[0])
        found["decision"] += decision.tolist()
        found["n"] += n.tolist()
    return {name: np.array(rows) for name, rows in found.items()}


def _bounds(goal: RateGoal, sim: SimulatedRate, side: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Whether the bound has reached the rate that decides, as that rate, (campaigns, trials)."""
    own = assisted_test.bet_table(goal, sim, side)
    edge = goal.required if side > 0 else goal.expected
    beyond = own.rates <= edge + 1e-12 if side > 0 else own.rates >= edge - 1e-12
    shut = np.ones(x.shape, dtype=bool)
    for j in np.flatnonzero(beyond):
        wealth = [
            np.cumsum(np.log1p(side * a[j] * ((x - own.rates[j]) - c[j] * (y - own.mean_bound))), axis=1) + np.log(w)
            for (a, c), w in zip(own.bets, assisted_test.BET_WEIGHTS, strict=True)
        ]
        shut &= np.logaddexp.reduce(wealth, axis=0) >= own.log_wealth_needed
    return np.where(shut, edge, 0.0 if side > 0 else 1.0)


def rate(hits: np.ndarray) -> str:
    r = Rate.from_counts(int(hits.sum()), len(hits))
    return f"{100 * r.rate:.1f} ({100 * r.low:.1f}–{100 * r.high:.1f})"


def heading(columns: str) -> list[str]:
    names = columns.split("|")
    return [f"| {' | '.join(names)} |", "|:--|" + "--:|" * (len(names) - 1)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.validation", description=__doc__)
    parser.add_argument("--campaigns", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--out", type=Path)
    args = parser.parse_args()
    rng, k = np.random.default_rng(args.seed), args.campaigns
    text = [f"Measured at commit {commit()}, {k} campaigns per line; percentages with exact 95 % intervals.", ""]
    columns = "goal|true rate|passed, %|failed, %|exact, pass / fail|low ≤ p ≤ high, %|mean trials|fixed size|saved"
    text += heading(columns)
    alone: dict[tuple[RateGoal, float], float] = {}
    for goal in GOALS:
        most, fixed = sequential_test.trials_needed(goal), sequential_test.fixed_size_test(goal)[0]
        name = f"{goal.required:g} / {goal.expected:g} at {100 * goal.false_pass:g} / {100 * goal.false_fail:g} %"
        for p in (goal.required - 0.1, goal.required, goal.expected, (1 + goal.expected) / 2):
            got, exact = plain(goal, p, k, rng), sequential_test.operating_characteristic(goal, p, most)
            alone[goal, p] = float(got["n"].mean())
            covered = (got["low"] <= p) & (p <= got["high"])
            text.append(
                f"| {name} | {p:.3g} | {rate(got['decision'] == 'pass')} | {rate(got['decision'] == 'fail')} | "
                f"{100 * exact.passed:.1f} / {100 * exact.failed:.1f} | {100 * covered.mean():.1f} | {alone[goal, p]:.1f} | "
                f"{fixed} | {100 * (1 - alone[goal, p] / fixed):.0f} % |"
            )
            print(text[-1], flush=True)
    columns = (
        "goal|true rate|simulator's|its mean|correlation|passed, %|failed, %|mean trials|real only|saved|against fixed size"
    )
    text += ["", *heading(columns)]
    for goal in GOALS[:2]:
        fixed = sequential_test.fixed_size_test(goal)[0]
        name = f"{goal.required:g} / {goal.expected:g}"
        for p, mu, correlations in (
            (goal.required, goal.required, CORRELATIONS),
            (goal.expected, goal.expected, CORRELATIONS),
            (goal.required, goal.expected, (0.0, 0.3)),
            (goal.expected, goal.required, (0.0, 0.3)),
        ):
            for r, known in [(r, known) for known in (False, True) for r in correlations]:
                got, law = helped(goal, p, mu, r, k, rng, known), joint_probabilities(p, mu, r)
                real = (law[0] - p * mu) / np.sqrt(p * (1 - p) * mu * (1 - mu))
                n, how = float(got["n"].mean()), "known" if known else "measured"
                text.append(
                    f"| {name} | {p:g} | {mu:g} | {how} | {real:.2f} | {rate(got['decision'] == 'pass')} | "
                    f"{rate(got['decision'] == 'fail')} | {n:.1f} | {alone[goal, p]:.1f} | "
                    f"{100 * (1 - n / alone[goal, p]):.0f} % | {100 * (1 - n / fixed):.0f} % |"
                )
                print(text[-1], flush=True)
    if args.out:
        args.out.write_text("\n".join(text) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
