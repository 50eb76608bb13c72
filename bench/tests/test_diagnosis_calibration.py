"""The confusion matrix of the diagnosis is learned from cases."""

from __future__ import annotations

import numpy as np

from bench.diagnosis import mistaken


def test_mistakes_that_a_judge_makes_are_learned_from_cases():
    rng, n, k = np.random.default_rng(0), 4000, 6
    table = 0.8 * np.eye(k) + 0.2 * rng.dirichlet(np.ones(k), k)
    said = rng.integers(k, size=n)
    true = np.array([rng.choice(k, p=table[i]) for i in said])
    assert np.abs(mistaken(np.eye(k)[said], np.eye(k)[true]) - table).max() < 0.05
