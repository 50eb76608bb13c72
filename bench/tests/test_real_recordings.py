"""Identification on recordings of real hardware, made by others: what was fitted predicts other recordings."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.realdata import judge, ready
from bench.recordings import episodes, free_swing
from isthmus.real2sim.identify.fit import fit
from isthmus.robots import get_robot

REAL = Path(os.environ.get("ISTHMUS_SHARED", Path(__file__).parents[3] / "shared")) / "realdata"


def test_a_recording_on_another_grid_keeps_its_impulse():
    """Targets at 500 Hz, uneven in time, on ticks of 10 ms: their integral is the same, and a hole makes two episodes."""
    rng = np.random.default_rng(0)
    t = np.cumsum(rng.uniform(0.001, 0.003, 2000))
    t[1000:] += 1.0
    u = np.sin(30 * t) + 0.3 * rng.standard_normal(len(t))
    robot = get_robot("pendulum").at_rate(100.0)
    found = episodes(robot, t, u, joint_pos=t, joint_vel=np.ones_like(t))
    assert len(found) == 2
    for episode, rows in zip(found, (slice(0, 1000), slice(1000, None)), strict=True):
        end = t[rows][0] + len(episode.time) * 0.01
        exact = np.interp(np.append(np.arange(t[rows][0], end, 1e-5), end), t[rows], u[rows]).mean() * len(episode.time) * 0.01
        assert episode.target.sum() * 0.01 == pytest.approx(exact, abs=1e-3)
        assert np.allclose(np.diff(episode.signals["joint_pos"][:, 0]), 0.01)


def test_a_real_pendulum_that_swings_freely():
    """Fitted to some swings, the numbers predict another one several times better, and with the measured period."""
    if not (REAL / "multiarm_pendulum_freeswing").exists():
        pytest.skip("the recordings of multiarm_pendulum_freeswing are not here")
    case = replace(free_swing(REAL), segments=(4, 3), ahead=0.6)
    at = ready(case)
    found = fit(case.robot, at.train, case.robot.prior, at.floor, rounds=1, threads=1)
    before, after = (judge(case.robot, at.test, found.noise, e) for e in (case.robot.space.nominal, found.e))
    for start in ("best start", "measured start"):
        assert after[start]["joint_pos"] < 0.3 * before[start]["joint_pos"]
