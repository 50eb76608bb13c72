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

from isthmus.gap.residual import Residual
from isthmus.gap.segments import Segments
from isthmus.gap.starts import suited
from isthmus.identify.descend import FIRST
from isthmus.identify.fit import Fit, fit, free
from isthmus.identify.prior import prior
from isthmus.sim.robot import Robot
from isthmus.world import Belief

CANDIDATES = 3
"""Times as many in a generation as CMA-ES takes by itself: the batch makes them cheap, and more see more valleys."""
GENERATIONS = 60
STEPS = 2
"""Of the starts of each candidate."""
SEGMENTS = 16
"""Spread over the recordings, that candidates are judged by: to tell one valley from another takes no more."""
ONE_VALLEY = 1.0
"""Done when a generation differs by less log-likelihood than this per parameter."""

SUSPICIOUS = 1.5
"""What a fit leaves, in units of the signals' own noise, above which a better valley is looked for."""

When = Literal["auto", "always", "never"]


@dataclass(frozen=True)
class Found:
    e: np.ndarray
    """(all,) the best world that was seen."""
    cost: float
    """-log posterior density there, with the noise that was given."""
    worlds: int
    """That were tried."""


@dataclass(frozen=True)
class Looked:
    """What a search brought."""

    worlds: int
    """That were tried."""
    kept: bool
    """Whether the fit from there is the better one."""
    gain: float
    """Log posterior density of the fit from there over that from the middle."""
    left: tuple[float, float]
    """What the fit from the middle and that from there leave, in units of the signals' own noise."""


def best_fit(
    robot: Robot,
    segments: Segments,
    belief: Belief,
    noise: np.ndarray,
    names: Iterable[str] | None = None,
    when: When = "auto",
    seed: int = 0,
    threads: int = 0,
    report: Callable[[int, float], None] = lambda step, cost: None,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> tuple[Fit, Looked | None]:
    """The fit from the middle of the belief or, where that leaves too much, from where a search ends, if that is better."""
    names = free(robot, belief) if names is None else tuple(names)
    sure = lambda share: progress("how sure", share)  # noqa: E731
    first = fit(robot, segments, belief, noise, names, threads=threads, report=report, sure=sure)
    over = left(first, noise)
    if when == "never" or (when == "auto" and not over > SUSPICIOUS):
        return first, None
    told = lambda share: progress("searching", share)  # noqa: E731
    found = search(robot, segments, belief, noise, names, seed, threads=threads, report=told)
    second = fit(robot, segments, belief, noise, names, found.e, threads=threads, report=report, sure=sure)
    kept = second.cost < first.cost
    return second if kept else first, Looked(found.worlds, kept, first.cost - second.cost, (over, left(second, noise)))


def left(found: Fit, noise: np.ndarray) -> float:
    """Root mean square over the components of what a fit leaves, in units of `noise`."""
    return float(np.sqrt(np.nanmean((found.noise / noise) ** 2)))


def search(
    robot: Robot,
    segments: Segments,
    belief: Belief,
    noise: np.ndarray,
    names: Iterable[str],
    seed: int = 0,
    generations: int = GENERATIONS,
    threads: int = 0,
    report: Callable[[float], None] = lambda share: None,
) -> Found:
    """Look for a world that explains the segments, all over the belief; `noise`, (components,), is σ."""
    import cma  # takes as long to import as a small fit takes

    segments = segments.take(np.unique(np.linspace(0, len(segments) - 1, min(SEGMENTS, len(segments))).astype(int)))
    residual = Residual(robot, segments, noise, names, threads)
    starts_alone = Residual(robot, segments, noise, (), threads)
    before, rest, d = prior(belief, residual.space), belief.median(), len(residual.space)
    root = np.linalg.cholesky(np.linalg.inv(before.precision))
    wide = max(d, 2)  # CMA-ES has no meaning along a line: a second coordinate is there for show
    size = CANDIDATES * (4 + int(3 * math.log(wide)))
    rng = np.random.default_rng(seed)
    options = {
        "popsize": size,
        "maxiter": generations,
        "tolfun": ONE_VALLEY * d,
        "tolfunhist": 0,
        # Its own generator would be NumPy's global one.
        "seed": math.nan,
        "randn": lambda *shape: rng.standard_normal(shape),
        "verbose": -9,
    }
    strategy = cma.CMAEvolutionStrategy(np.zeros(wide), 1.0, options)
    xi = np.zeros((len(segments), len(residual.spread)))
    best = Found(residual.world(before.mean, rest), math.inf, 0)
    h = np.full(xi.shape, FIRST)
    while not strategy.stop():
        slopes = starts_alone.by_starts(best.e, xi, h)
        asked = strategy.ask()
        z = before.mean + np.array(asked)[:, :d] @ root.T
        e = residual.world(z, rest)
        tried = suited(residual, e, np.broadcast_to(xi, (size, *xi.shape)), slopes, STEPS)
        costs = tried.cost.sum(1) + before.cost(z)
        strategy.tell(asked, costs.tolist())
        i = int(np.argmin(costs))
        worlds = best.worlds + size
        best = Found(e[i], float(costs[i]), worlds) if costs[i] < best.cost else Found(best.e, best.cost, worlds)
        xi = tried.xi[i] if costs[i] <= best.cost else xi
        report(strategy.countiter / generations)
    return best
