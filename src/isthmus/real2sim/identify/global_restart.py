"""A global search for where to begin, where the middle of the belief leads into the wrong valley.

CMA-ES over z, in coordinates in which what was believed before is a unit sphere. A generation is simulated side by side,
and every candidate gets starts that suit it: two steps of the starts alone, with one dr/dξ per generation, taken at the
best of the generation before. It need not end at a minimum: it ends when all candidates are in one valley, and
Gauss-Newton takes over.

Whether to search is decided by what the fit from the middle leaves: noise of the sensors, or more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from isthmus.real2sim.identify.fit import Fit, fit
from isthmus.real2sim.prepare.segments import Segments
from isthmus.real2sim.residual.gauss_newton import FIRST_DERIVATIVE_STEP
from isthmus.real2sim.residual.prior import free_parameters, gaussian_prior
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.real2sim.residual.segment_starts import solve_starts
from isthmus.sim.robot import Robot
from isthmus.world import Belief

POPULATION_FACTOR = 3
"""Times as many in a generation as CMA-ES takes by itself: the batch makes them cheap, and more see more valleys."""
MAX_GENERATIONS = 60
START_STEPS = 2
"""Of the starts of each candidate."""
MAX_SEGMENTS = 16
"""Spread over the recordings, that candidates are judged by: to tell one valley from another takes no more."""
CONVERGED_NATS_PER_PARAMETER = 1.0
"""Done when a generation differs by less log-likelihood than this per parameter."""

RESTART_NOISE_RATIO = 1.5
"""What a fit leaves, in units of the signals' own noise, above which a better valley is looked for."""

RestartPolicy = Literal["auto", "always", "never"]


@dataclass(frozen=True)
class SearchResult:
    e: np.ndarray
    """(all,) the best world that was seen."""
    cost: float
    """-log posterior density there, with the noise that was given."""
    worlds: int
    """That were tried."""


@dataclass(frozen=True)
class RestartResult:
    """What a search brought."""

    worlds: int
    """That were tried."""
    kept: bool
    """Whether the fit from there is the better one."""
    gain: float
    """Log posterior density of the fit from there over that from the middle."""
    left: tuple[float, float]
    """What the fit from the middle and that from there leave, in units of the signals' own noise."""


def fit_with_restart(
    robot: Robot,
    segments: Segments,
    belief: Belief,
    noise: np.ndarray,
    names: Iterable[str] | None = None,
    policy: RestartPolicy = "auto",
    seed: int = 0,
    threads: int = 0,
    report: Callable[[int, float], None] = lambda step, cost: None,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> tuple[Fit, RestartResult | None]:
    """The fit from the middle of the belief or, where that leaves too much, from where a search ends, if that is better."""
    names = free_parameters(robot, belief) if names is None else tuple(names)
    sure = lambda share, note="", /: progress("covariance", share)  # noqa: E731
    first = fit(robot, segments, belief, noise, names, threads=threads, report=report, covariance_report=sure)
    over = unexplained_noise_ratio(first, noise)
    if policy == "never" or (policy == "auto" and not over > RESTART_NOISE_RATIO):
        return first, None
    told = lambda share, note="", /: progress("global search", share)  # noqa: E731
    found = global_search(robot, segments, belief, noise, names, seed, threads=threads, report=told)
    second = fit(robot, segments, belief, noise, names, found.e, threads=threads, report=report, covariance_report=sure)
    kept = second.cost < first.cost
    return second if kept else first, RestartResult(
        found.worlds, kept, first.cost - second.cost, (over, unexplained_noise_ratio(second, noise))
    )


def unexplained_noise_ratio(fitted: Fit, noise: np.ndarray) -> float:
    """Root mean square over the components of what a fit leaves, in units of `noise`."""
    return float(np.sqrt(np.nanmean((fitted.noise / noise) ** 2)))


def global_search(
    robot: Robot,
    segments: Segments,
    belief: Belief,
    noise: np.ndarray,
    names: Iterable[str],
    seed: int = 0,
    generations: int = MAX_GENERATIONS,
    threads: int = 0,
    report: Callable[[float], None] = lambda share: None,
) -> SearchResult:
    """Look for a world that explains the segments, all over the belief; `noise`, (components,), is σ."""
    import cma  # takes as long to import as a small fit takes

    segments = segments.take(np.unique(np.linspace(0, len(segments) - 1, min(MAX_SEGMENTS, len(segments))).astype(int)))
    residual = ParameterResidual(robot, segments, noise, names, threads)
    starts_alone = ParameterResidual(robot, segments, noise, (), threads)
    before, rest, d = gaussian_prior(belief, residual.space), belief.median(), len(residual.space)
    root = np.linalg.cholesky(np.linalg.inv(before.precision))
    wide = max(d, 2)  # CMA-ES has no meaning along a line: a second coordinate is there for show
    size = POPULATION_FACTOR * (4 + int(3 * math.log(wide)))
    rng = np.random.default_rng(seed)
    options = {
        "popsize": size,
        "maxiter": generations,
        "tolfun": CONVERGED_NATS_PER_PARAMETER * d,
        "tolfunhist": 0,
        # Its own generator would be NumPy's global one.
        "seed": math.nan,
        "randn": lambda *shape: rng.standard_normal(shape),
        "verbose": -9,
    }
    strategy = cma.CMAEvolutionStrategy(np.zeros(wide), 1.0, options)
    xi = np.zeros((len(segments), len(residual.start_scale)))
    best = SearchResult(residual.parameter_values(before.mean, rest), math.inf, 0)
    h = np.full(xi.shape, FIRST_DERIVATIVE_STEP)
    while not strategy.stop():
        slopes = starts_alone.start_jacobian(best.e, xi, h)
        asked = strategy.ask()
        z = before.mean + np.array(asked)[:, :d] @ root.T
        e = residual.parameter_values(z, rest)
        tried = solve_starts(residual, e, np.broadcast_to(xi, (size, *xi.shape)), slopes, START_STEPS)
        costs = tried.cost.sum(1) + before.cost(z)
        strategy.tell(asked, costs.tolist())
        i = int(np.argmin(costs))
        worlds = best.worlds + size
        best = SearchResult(e[i], float(costs[i]), worlds) if costs[i] < best.cost else SearchResult(best.e, best.cost, worlds)
        xi = tried.xi[i] if costs[i] <= best.cost else xi
        report(strategy.countiter / generations)
    return best
