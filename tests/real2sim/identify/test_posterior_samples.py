"""Draws from known densities have the right moments; from a fit they are what the fit and the belief before it imply."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from isthmus.cli.main import main
from isthmus.data.mcap.reader import read_episode
from isthmus.data.mcap.writer import write_episode
from isthmus.real2sim.identify.fit import Fit
from isthmus.real2sim.identify.global_restart import (
    RESTART_NOISE_RATIO,
    fit_with_restart,
    global_search,
    unexplained_noise_ratio,
)
from isthmus.real2sim.identify.identification import fit_recordings
from isthmus.real2sim.identify.mcmc import ensemble_mcmc, integrated_autocorrelation_time, split_rhat
from isthmus.real2sim.identify.posterior_samples import draw_samples, sample_posterior
from isthmus.real2sim.identify.surrogate import SurrogateData, SurrogateHMC, quadratic_features
from isthmus.real2sim.prepare.segments import cut
from isthmus.real2sim.prepare.tracks import to_tracks
from isthmus.real2sim.residual.estimators import FreeStarts
from isthmus.real2sim.residual.normal_equations import Linearization
from isthmus.real2sim.residual.prior import BoundedPrior, GaussianPrior, bounded_prior, free_parameters, gaussian_prior
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.real2sim.residual.segment_starts import solve_starts
from isthmus.robots import get_robot
from isthmus.robots.twin import Twin
from isthmus.sim.simulate_recording import random_multisine, record_targets
from isthmus.world import Param, Space
from isthmus.world.factors import Particles, Uniform

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
    found = ensemble_mcmc(lambda z: 0.5 * (off(z) ** 2).sum(1), mean + RNG(1).standard_normal((24, 4)) @ root.T, RNG(2))
    assert found.ess >= 400
    assert 0.15 < found.acceptance < 0.45
    close(found.z.reshape(-1, 4), found.ess, mean, covariance)


def test_walkers_follow_a_banana():
    """y = x² / 2 + noise, with x standard normal: E y = 1/2 and var y = 1/2 + noise²."""
    cost = lambda z: 0.5 * z[:, 0] ** 2 + 0.5 * ((z[:, 1] - 0.5 * z[:, 0] ** 2) / 0.3) ** 2
    found = ensemble_mcmc(cost, RNG(1).standard_normal((24, 2)), RNG(2), min_ess=600)
    # A variance's own error grows with the fourth moment: y has a kurtosis of 3 + 3 / 0.59² = 11.6, not 3.
    close(found.z.reshape(-1, 2), found.ess / 5.3, np.array([0.0, 0.5]), np.diag([1.0, 0.5 + 0.09]))


def test_the_same_seed_gives_the_same_draws():
    runs = [
        ensemble_mcmc(lambda z: 0.5 * (z**2).sum(1), RNG(1).standard_normal((24, 2)), RNG(5), max_sweeps=100).z
        for _ in range(2)
    ]
    assert np.array_equal(runs[0], runs[1])


def test_slow_walkers_and_walkers_that_disagree_are_noticed():
    noise, rho = RNG(0).standard_normal((4000, 20, 1)), 0.8
    z = noise.copy()
    for i in range(1, len(z)):
        z[i] = rho * z[i - 1] + noise[i]
    assert integrated_autocorrelation_time(z) == pytest.approx((1 + rho) / (1 - rho), rel=0.1)
    assert split_rhat(z) == pytest.approx(1.0, abs=0.01)
    assert split_rhat(noise + 3.0 * np.sign(np.arange(20) - 9.5)[:, None]) > 2.0
    assert split_rhat(noise + np.linspace(0, 3, 4000)[:, None, None]) > 1.1


# What was believed before --------------------------------------------------------------------------------------


def test_what_was_believed_is_standard_normal_in_its_coordinates():
    robot = get_robot("pendulum")
    p = gaussian_prior(robot.prior, robot.space.subset(free_parameters(robot, robot.prior)))
    before = bounded_prior(robot.prior, p)
    y = RNG(0).standard_normal((5000, len(p.mean)))
    z = before.to_z(y)
    assert before.from_z(z) == pytest.approx(y, abs=1e-6)
    e = p.space.from_unconstrained(z)
    for name, column in zip(p.space.names, e.T, strict=True):
        low, high = robot.prior.interval(name, 0.9)
        inside = ((column > low) & (column < high)).mean()
        assert inside == pytest.approx(0.9, abs=0.02), name


def test_derivatives_by_those_coordinates_are_right():
    before = BoundedPrior(np.zeros(3), np.tril(RNG(0).standard_normal((3, 3))), np.array([True, True, False]), *_ends(3))
    before = BoundedPrior(before.mean, np.diag([1.0, 1.0, 0.7]), before.is_range, before.low, before.high)
    y, h = np.array([[-3.1, 0.4, 0.8], [1.0, 3.2, -2.0]]), 1e-6
    g = RNG(1).standard_normal(3)
    for i in range(3):
        step = h * np.eye(3)[i]
        slope = (before.to_unit(y + step) - before.to_unit(y - step)) @ g / (2 * h)
        assert before.gradient_by_y(y, before.to_unit(y), np.tile(g, (2, 1)))[:, i] == pytest.approx(slope, rel=1e-4, abs=1e-8)


def _ends(d: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full(d, 0.3), np.full(d, 0.6)


# A residual that is linear -------------------------------------------------------------------------------------


class Straight:
    """r = A u + X ξ - b, by segment: a residual whose answer is known."""

    def __init__(self, A: np.ndarray, X: np.ndarray, b: np.ndarray, curve: float = 0.0):
        self.A, self.X, self.b, self.curve = A, X, b, curve
        self.start_weight, self.start_scale = np.full(X.shape[-1], 1e-6), np.ones(X.shape[-1])

    def parameter_values(self, z: np.ndarray, e: np.ndarray) -> np.ndarray:
        return 1.0 / (1.0 + np.exp(-z))

    def __call__(self, e: np.ndarray, xi: np.ndarray) -> np.ndarray:
        bent = e + self.curve * e[:, ::-1] ** 2
        return (np.einsum("snd,kd->ksn", self.A, bent) + np.einsum("snx,ksx->ksn", self.X, xi) - self.b)[:, :, None]

    def linearize(self, z: np.ndarray, e: np.ndarray, xi: np.ndarray, hz: np.ndarray, hx: np.ndarray) -> Linearization:
        r = lambda z: self(self.parameter_values(z[None], e), xi[None])[0]
        dz = np.stack([(r(z + h * i) - r(z - h * i)) / (2 * h) for h, i in zip(hz, np.eye(len(z)), strict=True)], axis=-1)
        return Linearization(r(z), dz, self.X[:, None], FreeStarts.steps)


def straight(A: np.ndarray, u: np.ndarray, seed: int = 0, curve: float = 0.0) -> Straight:
    """Three segments with two starts each, whose truth is u; errors so small that the loss is a square."""
    rng = RNG(seed)
    X, xi = rng.standard_normal((3, A.shape[1], 2)), rng.standard_normal((3, 2))
    bent = u + curve * u[::-1] ** 2
    return Straight(A, X, A @ bent + (X @ xi[..., None])[..., 0] + 0.01 * rng.standard_normal(A.shape[:2]), curve)


def fitted(residual: Straight, u: np.ndarray, p: GaussianPrior, covariance: np.ndarray) -> Fit:
    starts = np.stack(
        [np.linalg.lstsq(X, b - A @ u, rcond=None)[0] for A, X, b in zip(residual.A, residual.X, residual.b, strict=True)]
    )
    given: Any = {"z": np.log(u / (1 - u)), "e": u, "starts": starts, "prior": p, "covariance": covariance}
    return cast(Fit, SimpleNamespace(**given))


def test_starts_of_a_straight_residual_are_found_in_one_step():
    u = np.array([[0.4, 0.6], [0.2, 0.3]])
    residual = straight(RNG(0).standard_normal((3, 8, 2)), u[0])
    found = solve_starts(cast(ParameterResidual, residual), u, np.zeros((2, 3, 2)), residual.X, 1)
    again = solve_starts(cast(ParameterResidual, residual), u, found.xi, residual.X, 5)
    assert found.cost == pytest.approx(again.cost, abs=1e-3)  # but for the weights of the robust loss
    assert (again.cost <= found.cost).all()


def test_draws_from_a_straight_residual_are_those_of_the_curvature():
    """Normal before, linear residual, small spread: the posterior is the normal that the fit has."""
    d, u = 3, np.array([0.4, 0.5, 0.6])
    residual = straight(200.0 * RNG(0).standard_normal((3, 8, d)), u)
    slope = residual.A * (u * (1 - u))
    beyond = slope - residual.X @ np.linalg.pinv(residual.X) @ slope
    p = GaussianPrior(_space(d), np.zeros(d), np.eye(d))
    covariance = np.linalg.inv(np.einsum("sni,snj->ij", beyond, beyond) + p.precision)
    before = BoundedPrior(p.mean, np.eye(d), np.zeros(d, bool), *_ends(d))
    found = draw_samples(cast(ParameterResidual, residual), fitted(residual, u, p, covariance), before)
    assert found.acceptance > 0.8
    assert found.rhat < 1.1
    close(found.z, min(found.ess, len(found.z)), np.log(u / (1 - u)), covariance)


@pytest.mark.parametrize("curve", [0.0, 0.3])
def test_draws_follow_a_valley_to_both_of_its_ends(curve):
    """Only s = u1 + u2 + curve (u1² + u2²) shows: u1 goes as far as both ranges allow, with density 1 / |ds/du2|."""
    u = np.array([0.45, 0.45])
    A = np.ones((3, 8, 2)) * 60.0 * RNG(3).standard_normal((3, 8, 1))
    residual = straight(A, u, curve=curve)
    p = GaussianPrior(_space(2), np.zeros(2), np.eye(2))
    before = BoundedPrior(p.mean, np.eye(2), np.ones(2, bool), *_ends(2))
    found = draw_samples(
        cast(ParameterResidual, residual), fitted(residual, u, p, np.array([[0.2, -0.199], [-0.199, 0.2]])), before, min_ess=250
    )
    u2 = np.linspace(0.3, 0.6, 10001)
    rest = (u + curve * u**2).sum() - u2 - curve * u2**2
    u1 = rest if not curve else (np.sqrt(1 + 4 * curve * rest) - 1) / (2 * curve)
    inside = (u1 > 0.3) & (u1 < 0.6)
    share = np.where(inside, 1 / (1 + 2 * curve * u1), 0.0)
    wanted = np.interp([0.05, 0.25, 0.75, 0.95], np.cumsum(share) / share.sum(), u2)
    drawn_u2 = 1 / (1 + np.exp(-found.z[:, 1]))
    assert np.quantile(drawn_u2, [0.05, 0.25, 0.75, 0.95]) == pytest.approx(wanted, abs=0.02)


def _space(d: int) -> Space:
    return Space(tuple(Param(f"p{i}", "1", 0.5, 0.0, 1.0, (f"body:b{i}/mass",)) for i in range(d)))


def test_a_stand_in_learns_a_curved_residual_and_its_slope():
    d, rng = 3, RNG(0)
    before = BoundedPrior(np.zeros(d), np.eye(d), np.ones(d, bool), *_ends(d))
    B = 0.2 * rng.standard_normal((quadratic_features(np.zeros((1, d))).shape[1], 20))
    nothing = np.zeros((1, 2)), np.zeros((1, 2, d))
    lessons = SurrogateData(before, np.full(d, 0.45), 0.1 * np.eye(d), np.zeros(20), np.zeros((20, d)), *nothing)
    worlds = lambda y: quadratic_features((before.to_unit(y) - 0.45) / 0.1) @ B
    for _ in range(4):
        y = rng.standard_normal((25, d))
        lessons.add(y, worlds(y), np.zeros((25, 1, 2)))
    model, y, h = lessons.fit_surrogate(), rng.standard_normal((5, d)), 1e-5
    truth = 0.5 * (worlds(y) ** 2).sum(1) + 0.5 * (y**2).sum(1)
    assert model.cost(y) == pytest.approx(truth, rel=0.02)
    slope = np.stack([(model.cost(y + h * i) - model.cost(y - h * i)) / (2 * h) for i in np.eye(d)], axis=1)
    assert model.gradient(y) == pytest.approx(slope, rel=1e-3, abs=1e-4)


def test_leaps_keep_to_the_stand_in():
    """Nothing is learnt from an empty lesson: the density is what was believed before, and leaps must leave it so."""
    d = 3
    before = BoundedPrior(np.zeros(d), np.eye(d), np.ones(d, bool), *_ends(d))
    none = np.zeros(4), np.zeros((4, d)), np.zeros((1, 2)), np.zeros((1, 2, d))
    leaps, y, seen = (
        SurrogateHMC(SurrogateData(before, np.full(d, 0.5), np.eye(d), *none).fit_surrogate(), np.eye(d), 6),
        np.zeros((200, d)),
        [],
    )
    for _ in range(12):
        old, (y, change) = y, leaps(y, RNG(len(seen)))
        assert change == pytest.approx(0.5 * (y**2 - old**2).sum(1))
        seen.append(y)
    close(np.concatenate(seen[4:]), 800, np.zeros(d), np.eye(d))


# Robots --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swing(tmp_path_factory):
    """A recording of a pendulum in the middle of its prior."""
    robot = get_robot("pendulum")
    path = tmp_path_factory.mktemp("swing") / "swing.mcap"
    write_episode(path, record_targets(robot, robot.prior.median(), random_multisine(robot, 2.0), seed=4))
    return path


def _identify(swing, *options: str) -> list[str]:
    return ["identify", "pendulum", str(swing), "--only", "joint_damping", "encoder_offset", "--horizon", "0.2", *options]


@pytest.mark.slow
def test_a_search_finds_the_delay_that_the_nearest_valley_hides():
    """A delay of a fast wave is told but for whole periods: from the middle of the belief the fit ends a period off."""
    robot = get_robot("pendulum")
    belief, at = robot.prior.replace(Uniform("action_delay", 0.0, 0.06)), robot.space.index("action_delay")
    e, noise = belief.median(), np.array([3e-4, 0.01])
    e[at] = 0.002
    e[[robot.space.index(n) for n in ("joint_pos_noise", "joint_vel_noise")]] = noise
    t = np.arange(100) / robot.contract.rate
    u = robot.contract.target.high[0] * (0.85 * np.sin(2 * np.pi * 20 * t) + 0.15 * np.sin(2 * np.pi * 3 * t))
    episode = record_targets(robot, e, u[:, None], seed=3)
    segments = cut(to_tracks([episode], robot.contract, 1 / robot.contract.rate), robot, 15)
    given: Any = (robot, segments, belief, noise, ["action_delay", "strength"])
    near, looked = fit_with_restart(*given, policy="never", threads=1)
    assert looked is None
    assert abs(near.e[at] - e[at]) > 0.01
    assert unexplained_noise_ratio(near, noise) > RESTART_NOISE_RATIO
    found, looked = fit_with_restart(*given, threads=1)
    assert looked is not None
    assert looked.kept
    assert looked.gain > 100
    low, high = found.interval("action_delay", 0.999)
    assert low < e[at] < high
    assert unexplained_noise_ratio(found, noise) == pytest.approx(1.0, abs=0.15)
    again = global_search(*given, seed=0, generations=2, threads=1)
    assert np.array_equal(again.e, global_search(*given, seed=0, generations=2, threads=1).e)


@pytest.mark.slow
def test_a_sampled_twin_agrees_with_a_normal_one_and_can_be_used_like_it(swing, tmp_path, capsys):
    found = {}
    for kind in ("gauss", "sample"):
        assert main(_identify(swing, "--posterior", kind, "-o", str(tmp_path / f"{kind}.twin"), "--json")) == 0
        found[kind] = json.loads(capsys.readouterr().out)
    assert found["gauss"]["posterior"]["kind"] == "gauss"
    assert found["sample"]["posterior"]["rhat"] < 1.1
    for name, normal in found["gauss"]["parameters"].items():
        sampled, wide = found["sample"]["parameters"][name], normal["high"] - normal["low"]
        assert [sampled["low"], sampled["high"]] == pytest.approx([normal["low"], normal["high"]], abs=0.15 * wide), name
        assert sampled["low"] < sampled["value"] < sampled["high"]
    robot = get_robot("pendulum")
    twin = Twin.load(tmp_path / "sample.twin")
    factor = twin.belief["joint_damping"]
    assert isinstance(factor, Particles)
    assert set(factor.names) == {"joint_damping", "encoder_offset"}
    worlds = twin.apply_to(robot, "sample.twin").prior.sample(RNG(0), 50)
    pairs = worlds[:, [robot.space.index(n) for n in factor.names]]
    assert {tuple(row) for row in pairs.tolist()} <= set(factor.values)
    p = gaussian_prior(twin.belief, robot.space.subset(factor.names))
    assert p.mean == pytest.approx(p.space.unconstrained(np.array(factor.values)).mean(0))
    assert (
        main(["identify", str(tmp_path / "sample.twin"), str(swing), "--only", "joint_damping", "--horizon", "0.2", "--json"])
        == 0
    )


@pytest.mark.slow
def test_the_same_seed_gives_the_same_particles(swing):
    robot = get_robot("pendulum")
    found = fit_recordings(robot, [read_episode(swing)], robot.prior, ["joint_damping"], 0.2, threads=1, search="never")
    again = [
        sample_posterior(robot, found.train, found.fit, robot.prior, seed, max_sweeps=12, threads=1).factor()
        for seed in (3, 3, 4)
    ]
    assert again[0] == again[1] != again[2]


@pytest.mark.parametrize(
    "options", [("--seed", "-1"), ("--search", "sometimes"), ("--posterior", "normal"), ("--search", "never", "--seed", "x")]
)
def test_options_that_mean_nothing_are_refused(swing, options):
    try:
        code = main(_identify(swing, *options))
    except SystemExit as end:
        code = end.code
    assert code == 2
