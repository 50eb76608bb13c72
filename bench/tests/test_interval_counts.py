"""Intervals of many fits are counted, and a truth is ranked within its belief."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from bench import coverage
from isthmus.core.errors import BadInput
from isthmus.real2sim.identify.fit import Fit
from isthmus.real2sim.identify.mcmc import Samples
from isthmus.real2sim.residual.prior import GaussianPrior
from isthmus.world import Param, Space

RNG = np.random.default_rng


def _space(d: int) -> Space:
    return Space(tuple(Param(f"p{i}", "1", 0.5, 0.0, 1.0, (f"body:b{i}/mass",)) for i in range(d)))


def test_intervals_are_counted_and_interrupted_runs_go_on(tmp_path):
    inside = {"low": 0.0, "high": 1.0, "truth": 0.5}
    rows = [{"seed": i, "parameters": {"a": inside, "b": {**inside, "truth": 2.0 * (i % 2)}}} for i in range(10)]
    found = coverage.counted([*rows, {"seed": 10, "error": "no"}], "parameters")
    assert found["parameters"]["a"]["rate"] == 1.0
    assert found["parameters"]["b"]["rate"] == 0.5
    assert (found["total"]["rate"], found["draws"]) == (0.75, 10)
    path, settings = tmp_path / "a.jsonl", coverage.Settings("pendulum", 3.0)
    assert coverage.lines(path, settings) == []
    with path.open("a") as file:
        file.write(json.dumps(rows[0]) + "\n" + json.dumps(rows[1])[:20])
    assert coverage.lines(path, settings) == rows[:1]
    with pytest.raises(BadInput, match="other settings"):
        coverage.lines(path, coverage.Settings("pendulum", 4.0))


def test_a_rank_is_where_the_truth_lies_in_the_belief():
    z, p = np.array([0.3, -0.2]), GaussianPrior(_space(2), np.zeros(2), np.eye(2))
    covariance = np.diag([0.04, 0.09])
    noise, starts = np.ones(1), np.zeros((1, 2))
    found = Fit(p.space, p.space.from_unconstrained(z), z, covariance, np.eye(2), p, noise, noise, starts, 0.0, 1)
    truth = p.space.from_unconstrained(z + 0.2 * np.array([1.0, -1.0]))
    ranks = [judged["rank"] for judged in coverage.judged(found, truth).values()]
    assert ranks == pytest.approx([norm.cdf(1.0), norm.cdf(-2 / 3)])
    draws = Samples(z + RNG(0).standard_normal((4000, 2)) * [0.2, 0.3], 4000, 1.0, 1.0, 1)
    sampled = coverage.judged(replace(found, samples=draws), truth)
    assert [judged["rank"] for judged in sampled.values()] == pytest.approx(ranks, abs=0.03)
