"""A global search for where to begin, when the middle of the belief leads into the wrong valley.

CMA-ES over z, in coordinates in which what was believed before is a unit sphere. A generation is simulated side by side,
and every candidate gets starts that suit it: two steps of the starts alone, with one dr/dξ per generation, taken at the
best of the generation before. It need not end at a minimum: it ends when all candidates are in one valley, and
Gauss-Newton takes over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from isthmus.gap.residual import Residual
from isthmus.gap.segments import Segments
from isthmus.identify.descend import FIRST
from isthmus.identify.prior import prior
from isthmus.identify.starts import suited
from isthmus.sim.robot import Robot
from isthmus.world import Belief

CANDIDATES = 3
"""Times as many in a generation as CMA-ES takes by itself: the batch makes them cheap, and more see more valleys."""
GENERATIONS = 60
STEPS = 2
"""Of the starts of each candidate."""
ONE_VALLEY = 1.0
"""Done when a generation differs by less log-likelihood than this per parameter."""


@dataclass(frozen=True)
class Found:
    e: np.ndarray
    """(all,) the best world that was seen."""
    cost: float
    """-log posterior density there, up to the same constant as a fit's."""
    worlds: int
    """That were tried."""


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
    import cma

    residual = Residual(robot, segments, noise, names, threads)
    starts_alone = Residual(robot, segments, noise, (), threads)
    before, rest, d = prior(belief, residual.space), belief.median(), len(residual.space)
    root = np.linalg.cholesky(np.linalg.inv(before.precision))
    size = CANDIDATES * (4 + int(3 * math.log(d)))
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
    strategy = cma.CMAEvolutionStrategy(np.zeros(d), 1.0, options)
    xi = np.zeros((len(segments), len(residual.spread)))
    best = Found(residual.world(before.mean, rest), math.inf, 0)
    h = np.full(xi.shape, FIRST)
    while not strategy.stop():
        slopes = starts_alone.linear(np.zeros(0), best.e, xi, np.zeros(0), h).dx.reshape(len(xi), -1, xi.shape[1])
        asked = strategy.ask()
        z = before.mean + np.array(asked) @ root.T
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
