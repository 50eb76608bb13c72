"""Draws from known densities have the right moments; from a fit they are what the fit and the belief before it imply."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from bench import coverage
from scipy.stats import norm

from isthmus.cli.main import main
from isthmus.data.recording import write
from isthmus.errors import BadInput
from isthmus.gap.residual import Linear, Residual
from isthmus.identify.believed import Believed, believed
from isthmus.identify.ensemble import autocorrelation, split_rhat, wander
from isthmus.identify.fit import Fit, free
from isthmus.identify.plant import record, waves
from isthmus.identify.prior import Prior, prior
from isthmus.identify.sample import drawn
from isthmus.identify.standin import Leaps, Lessons, features
from isthmus.identify.starts import suited
from isthmus.identify.twin import Twin
from isthmus.robots import get_robot
from isthmus.world import Belief, Param, Space

RNG = np.random.default_rng


def close(draws: np.ndarray, ess: float, mean: np.ndarray, covariance: np.ndarray) -> None:
    """Means and variances within Monte Carlo error: five standard errors of so many independent draws."""
    spread = np.sqrt(np.diag(covariance))
    assert np.abs((draws.mean(0) - mean) / spread).max() < 5 / np.sqrt(ess)
    assert np.abs(draws.var(0) / spread**2 - 1).max() < 5 * np.sqrt(2 / ess)


# The walkers ---------------------------------------------------------------------------------------------------


def test_walkers_draw_from_a_long_and_narrow_normal():
    root = RNG(0).standard_normal((4, 4)) * [10.0, 1.0, 0.1, 0.01]
    mean, covariance = np.array([3.0, -2.0, 1.0, 0.0]), root @ root.T
    off = lambda z: np.linalg.solve(root, (z - mean).T).T
    found = wander(lambda z: 0.5 * (off(z) ** 2).sum(1), mean + RNG(1).standard_normal((24, 4)) @ root.T, RNG(2))
    assert found.ess >= 400
    assert 0.15 < found.acceptance < 0.45
    close(found.z.reshape(-1, 4), found.ess, mean, covariance)


def test_walkers_follow_a_banana():
    """y = x² / 2 + noise, with x standard normal: E y = 1/2 and var y = 1/2 + noise²."""
    cost = lambda z: 0.5 * z[:, 0] ** 2 + 0.5 * ((z[:, 1] - 0.5 * z[:, 0] ** 2) / 0.3) ** 2
    found = wander(cost, RNG(1).standard_normal((24, 2)), RNG(2), enough=1000)
    close(found.z.reshape(-1, 2), found.ess / 2, np.array([0.0, 0.5]), np.diag([1.0, 0.5 + 0.09]))


def test_the_same_seed_gives_the_same_draws():
    runs = [wander(lambda z: 0.5 * (z**2).sum(1), RNG(1).standard_normal((24, 2)), RNG(5), most=100).z for _ in range(2)]
    assert np.array_equal(*runs)


def test_slow_walkers_and_walkers_that_disagree_are_noticed():
    noise, rho = RNG(0).standard_normal((4000, 20, 1)), 0.8
    z = noise.copy()
    for i in range(1, len(z)):
        z[i] = rho * z[i - 1] + noise[i]
    assert autocorrelation(z) == pytest.approx((1 + rho) / (1 - rho), rel=0.1)
    assert split_rhat(z) == pytest.approx(1.0, abs=0.01)
    assert split_rhat(noise + 3.0 * np.sign(np.arange(20) - 9.5)[:, None]) > 2.0
    assert split_rhat(noise + np.linspace(0, 3, 4000)[:, None, None]) > 1.1


# What was believed before --------------------------------------------------------------------------------------


def test_what_was_believed_is_standard_normal_in_its_coordinates():
    robot = get_robot("pendulum")
    p = prior(robot.prior, robot.space.subset(free(robot, robot.prior)))
    before = believed(robot.prior, p)
    y = RNG(0).standard_normal((20000, len(p.mean)))
    z = before.values(y)
    assert before.coordinates(z) == pytest.approx(y, abs=1e-6)
    e = p.space.from_unconstrained(z)
    for name, column in zip(p.space.names, e.T, strict=True):
        low, high = robot.prior.interval(name, 0.9)
        inside = ((column > low) & (column < high)).mean()
        assert inside == pytest.approx(0.9, abs=0.02), name


def test_derivatives_by_those_coordinates_are_right():
    before = Believed(np.zeros(3), np.tril(RNG(0).standard_normal((3, 3))), np.array([True, True, False]), *_ends(3))
    before = Believed(before.mean, np.diag([1.0, 1.0, 0.7]), before.flat, before.low, before.high)
    y, h = np.array([[-3.1, 0.4, 0.8], [1.0, 3.2, -2.0]]), 1e-6
    g = RNG(1).standard_normal(3)
    for i in range(3):
        step = h * np.eye(3)[i]
        slope = (before.unit(y + step) - before.unit(y - step)) @ g / (2 * h)
        assert before.back(y, before.unit(y), np.tile(g, (2, 1)))[:, i] == pytest.approx(slope, rel=1e-4, abs=1e-8)


def _ends(d: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full(d, 0.3), np.full(d, 0.6)


# A residual that is linear -------------------------------------------------------------------------------------


class Straight:
    """r = A u + X ξ - b, by segment: a residual whose answer is known."""

    def __init__(self, A: np.ndarray, X: np.ndarray, b: np.ndarray, curve: float = 0.0):
        self.A, self.X, self.b, self.curve = A, X, b, curve
        self.hold, self.spread = np.full(X.shape[-1], 1e-6), np.ones(X.shape[-1])

    def world(self, z: np.ndarray, e: np.ndarray) -> np.ndarray:
        return 1.0 / (1.0 + np.exp(-z))

    def __call__(self, e: np.ndarray, xi: np.ndarray) -> np.ndarray:
        bent = e + self.curve * e[:, ::-1] ** 2
        return (np.einsum("snd,kd->ksn", self.A, bent) + np.einsum("snx,ksx->ksn", self.X, xi) - self.b)[:, :, None]

    def linear(self, z: np.ndarray, e: np.ndarray, xi: np.ndarray, hz: np.ndarray, hx: np.ndarray) -> Linear:
        r = lambda z: self(self.world(z[None], e), xi[None])[0]
        dz = np.stack([(r(z + h * i) - r(z - h * i)) / (2 * h) for h, i in zip(hz, np.eye(len(z)), strict=True)], axis=-1)
        return Linear(r(z), dz, self.X[:, None])


def straight(A: np.ndarray, u: np.ndarray, seed: int = 0, curve: float = 0.0) -> Straight:
    """Three segments with two starts each, whose truth is u; errors so small that the loss is a square."""
    rng = RNG(seed)
    X, xi = rng.standard_normal((3, A.shape[1], 2)), rng.standard_normal((3, 2))
    bent = u + curve * u[::-1] ** 2
    return Straight(A, X, A @ bent + (X @ xi[..., None])[..., 0] + 0.01 * rng.standard_normal(A.shape[:2]), curve)


def fitted(residual: Straight, u: np.ndarray, p: Prior, covariance: np.ndarray) -> Fit:
    starts = np.stack(
        [np.linalg.lstsq(X, b - A @ u, rcond=None)[0] for A, X, b in zip(residual.A, residual.X, residual.b, strict=True)]
    )
    given: Any = {"z": np.log(u / (1 - u)), "e": u, "starts": starts, "prior": p, "covariance": covariance}
    return cast(Fit, SimpleNamespace(**given))


def test_starts_of_a_straight_residual_are_found_in_one_step():
    u = np.array([[0.4, 0.6], [0.2, 0.3]])
    residual = straight(RNG(0).standard_normal((3, 8, 2)), u[0])
    found = suited(cast(Residual, residual), u, np.zeros((2, 3, 2)), residual.X, 1)
    again = suited(cast(Residual, residual), u, found.xi, residual.X, 5)
    assert found.cost == pytest.approx(again.cost, abs=1e-3)  # but for the weights of the robust loss
    assert (again.cost <= found.cost).all()


def test_draws_from_a_straight_residual_are_those_of_the_curvature():
    """Normal before, linear residual, small spread: the posterior is the normal that the fit has."""
    d, u = 3, np.array([0.4, 0.5, 0.6])
    residual = straight(200.0 * RNG(0).standard_normal((3, 8, d)), u)
    slope = residual.A * (u * (1 - u))
    beyond = slope - residual.X @ np.linalg.pinv(residual.X) @ slope
    p = Prior(_space(d), np.zeros(d), np.eye(d))
    covariance = np.linalg.inv(np.einsum("sni,snj->ij", beyond, beyond) + p.precision)
    before = Believed(p.mean, np.eye(d), np.zeros(d, bool), *_ends(d))
    found = drawn(cast(Residual, residual), fitted(residual, u, p, covariance), before)
    assert found.acceptance > 0.8
    assert found.rhat < 1.1
    close(found.z, min(found.ess, len(found.z)), np.log(u / (1 - u)), covariance)


@pytest.mark.parametrize("curve", [0.0, 0.3])
def test_of_two_ranges_whose_sum_is_known_a_range_is_left(curve):
    """Only u1 + u2 (bent or not) shows: given it, u1 is even between the ends that both ranges allow."""
    u = np.array([0.45, 0.45])
    A = np.ones((3, 8, 2)) * 300.0 * RNG(3).standard_normal((3, 8, 1))
    residual = straight(A, u, curve=curve)
    p = Prior(_space(2), np.zeros(2), np.eye(2))
    before = Believed(p.mean, np.eye(2), np.ones(2, bool), *_ends(2))
    found = drawn(cast(Residual, residual), fitted(residual, u, p, np.array([[0.2, -0.199], [-0.199, 0.2]])), before)
    share = np.quantile(1 / (1 + np.exp(-found.z[:, 0])), [0.05, 0.25, 0.75, 0.95])
    assert share == pytest.approx([0.315, 0.375, 0.525, 0.585], abs=0.02)


def _space(d: int) -> Space:
    return Space(tuple(Param(f"p{i}", "1", 0.5, 0.0, 1.0, (f"body:b{i}/mass",)) for i in range(d)))


def test_a_stand_in_learns_a_curved_residual_and_its_slope():
    d, rng = 3, RNG(0)
    before = Believed(np.zeros(d), np.eye(d), np.ones(d, bool), *_ends(d))
    B = rng.standard_normal((features(np.zeros((1, d))).shape[1], 20))
    nothing = np.zeros((1, 2)), np.zeros((1, 2, d))
    lessons = Lessons(before, np.full(d, 0.45), 0.1 * np.eye(d), np.zeros(20), np.zeros((20, d)), *nothing)
    worlds = lambda y: features((before.unit(y) - 0.45) / 0.1) @ B
    for _ in range(4):
        y = rng.standard_normal((25, d))
        lessons.add(y, worlds(y), np.zeros((25, 1, 2)))
    model, y, h = lessons.learnt(), rng.standard_normal((5, d)), 1e-5
    truth = 0.5 * (worlds(y) ** 2).sum(1) + 0.5 * (y**2).sum(1)
    assert model.cost(y) == pytest.approx(truth, rel=0.02)
    slope = np.stack([(model.cost(y + h * i) - model.cost(y - h * i)) / (2 * h) for i in np.eye(d)], axis=1)
    assert model.slope(y) == pytest.approx(slope, rel=1e-3, abs=1e-4)


def test_leaps_keep_to_the_stand_in():
    """Nothing is learnt from an empty lesson: the density is what was believed before, and leaps must leave it so."""
    d = 3
    before = Believed(np.zeros(d), np.eye(d), np.ones(d, bool), *_ends(d))
    none = np.zeros(4), np.zeros((4, d)), np.zeros((1, 2)), np.zeros((1, 2, d))
    leaps, y, seen = Leaps(Lessons(before, np.full(d, 0.5), np.eye(d), *none).learnt(), np.eye(d), 6), np.zeros((200, d)), []
    for _ in range(12):
        y, change = leaps(y, rng := RNG(len(seen)))
        seen.append(y)
    assert change.shape == (200,)
    assert rng is not None
    close(np.concatenate(seen[4:]), 800, np.zeros(d), np.eye(d))
