"""The table of widths after each experiment."""

from __future__ import annotations

import numpy as np
import pytest

from bench.excitation import KINDS, summary
from isthmus.real2sim.residual.prior import free_parameters, gaussian_prior
from isthmus.robots import get_robot


def test_a_quarter_of_the_information_is_twice_the_width():
    pendulum = get_robot("pendulum")
    before = gaussian_prior(pendulum.prior, pendulum.space.subset(free_parameters(pendulum, pendulum.prior)))
    much = 1e8 * np.eye(len(before.space))
    draws = [np.stack([much, *[much / 4.0] * (len(KINDS) - 1)]) * size for size in (1.0, 2.0)]
    found = summary(before, draws)
    for measure in ("directions", "told", "all"):
        for kind in KINDS[1:]:
            assert list(found[measure][kind].values()) == pytest.approx([2.0] * 3, rel=1e-3)
    assert all(row[kind] == pytest.approx(2.0, rel=1e-3) for row in found["parameters"].values() for kind in KINDS[1:])
