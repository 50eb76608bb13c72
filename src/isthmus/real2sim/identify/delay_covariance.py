"""Two delays of which hardly more than the sum shows: how far each may be from where a fit ends.

A target that arrives later and signals that are read earlier look alike. So the cost has a valley along which one delay
grows as the other shrinks, but its floor is not even: within a physics step the simulator interpolates targets and signals,
each in its own way. Worlds half a step apart differ by some units of log-likelihood for no reason of the robot's, a descent
ends in any of these ripples, and the curvature there looks like information.

Worlds in which the two delays have exchanged a whole physics step dt are at the same place of their ripples. So that is how far
the valley is measured,

    c = min over all other numbers and the starts of the cost at   action_delay ± dt,  sensor_delay ∓ dt,

and what c rises by, beyond the height of a ripple, is what the data say about the difference of the delays. The valley is a
line in values, but a curve in unconstrained coordinates. So its part of the covariance is its mean square distance from the
minimum, weighted by what the data say and by what was believed before.
"""

from __future__ import annotations

import numpy as np

from isthmus.real2sim.residual.gauss_newton import segment_costs, take_step
from isthmus.real2sim.residual.normal_equations import NormalEquations, Point
from isthmus.real2sim.residual.prior import GaussianPrior
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.world import Space, Target

RIPPLE_NATS = 2.0
"""Log-likelihood by which worlds along the valley differ for no reason of the robot's. In three recordings of go1's legs the
floor went up and down by 2 to 4 from place to place, with no trend."""
MAX_DERIVATIVES, MIN_GAIN_NATS = 8, 0.02
"""Taken after an exchange at most, to find the lowest point; it is found when a step gains less log-likelihood than this.
With half as many, and ten times as much, two of 20 valleys seemed to end that did not."""
MAX_PRIOR_COST_RISE = 4.5
"""Log density of what was believed before, below that at the minimum, where nobody needs to look."""
START_RESPONSE_SHARES = (0.0, 0.3, 1.0)
"""Shares of the move of the starts that the slope at the minimum asks for, from which an exchange begins."""
MIN_BOUND_DISTANCE = 1e-4
"""In unit coordinates, the closest to a hard bound that the valley is followed."""
VALLEY_POINTS = 1000
"""Places at which the valley is weighed."""


def delay_indices(space: Space) -> tuple[int, int] | None:
    """Where the delays of targets and of signals are in a Space, if it has both."""
    found: dict[str, int] = {}
    for i, p in enumerate(space.params):
        found |= {t.field: i for t in map(Target.parse, p.targets) if t.kind == "link"}
    return (found["action_delay"], found["sensor_delay"]) if len(found) == 2 else None


def delay_covariance(
    residual: ParameterResidual,
    prior: GaussianPrior,
    point: Point,
    normal: NormalEquations,
    information: np.ndarray,
    e: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """What the data say about z without what ripples pretend to say, (d, d), and the covariance of z, (d, d).

    `told`, (d, d), is what they say by the curvature at the minimum. A robot on its feet has ripples of other kinds, which
    `information` allows for: there nothing is exchanged.
    """
    pair = delay_indices(residual.space)
    if pair is None or not residual.estimator.smooth:
        return information, np.linalg.inv(information + prior.precision)
    exchange = DelayExchange(residual, prior, point, normal, e, pair)
    return combine_with_valley(information, prior, exchange, exchange.cost_rises())


def combine_with_valley(
    information: np.ndarray, prior: GaussianPrior, exchange: DelayExchange, cost_rises: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same, from what the cost rises by when a step is exchanged to either side, (2,)."""
    covariance = np.linalg.inv(information + prior.precision)
    both = np.ix_(exchange.pair, exchange.pair)
    # Intervals of delays only ever get wider, and those of other numbers stay: without what ripples seemed to say, some would
    # be narrower than they should be.
    values, vectors = np.linalg.eigh(exchange.valley_covariance(cost_rises)[both] - covariance[both])
    covariance[both] += (vectors * np.maximum(values, 0.0)) @ vectors.T
    return limit_information(
        information, exchange.direction, exchange.exchange_count, 2.0 * float(np.mean(cost_rises))
    ), covariance


def limit_information(information: np.ndarray, direction: np.ndarray, count: np.ndarray, max_information: float) -> np.ndarray:
    """Information, (d, d), with no more than `most` about how many times a move was made, and as before about all else.

    `along`, (d,), is the move, and `count`, (d,), counts it: count · along = 1. What does not count keeps its information.
    """
    if direction @ information @ direction <= max_information:
        return information
    rest = np.eye(len(information)) - np.outer(direction, count)
    return rest.T @ information @ rest + max_information * np.outer(count, count)


class DelayExchange:
    """Of a physics step between the two delays of a robot, about the minimum of a fit."""

    def __init__(
        self,
        residual: ParameterResidual,
        prior: GaussianPrior,
        point: Point,
        normal: NormalEquations,
        e: np.ndarray,
        pair: tuple[int, int],
    ):
        self.residual, self.prior, self.point, self.normal, self.e, self.pair = residual, prior, point, normal, e, pair
        self.u = np.clip(_sigmoid(point.z), MIN_BOUND_DISTANCE, 1.0 - MIN_BOUND_DISTANCE)
        space = residual.space
        self.step = np.zeros(len(self.u))
        """(d,) one exchange, in unit coordinates; `along` is the same in those of z, at the minimum."""
        for i, sign in zip(pair, (1.0, -1.0), strict=True):
            self.step[i] = sign * residual.robot.model.opt.timestep / (space.high[i] - space.low[i])
        self.direction = self.step / (self.u * (1.0 - self.u))
        self.exchange_count = np.divide(0.5, self.direction, out=np.zeros_like(self.direction), where=self.direction != 0)
        """(d,) of z: half of the difference of the delays, in physics steps. It counts exchanges, and no change of the sum."""

    def exchange_range(self) -> tuple[float, float]:
        """How many exchanges there may be to either side before a delay is at a hard bound."""
        i = list(self.pair)
        ends = np.sort([(bound - self.u[i]) / self.step[i] for bound in (MIN_BOUND_DISTANCE, 1.0 - MIN_BOUND_DISTANCE)], axis=0)
        return min(float(ends[0].max()), 0.0), max(float(ends[1].min()), 0.0)

    def cost_rises(self) -> np.ndarray:
        """Of the cost of the data after one exchange to either side, (2,), beyond a ripple.

        A side to which there is no exchange is taken to be like the other. If there is none to either, both delays are shorter
        than a physics step or so, and the simulator cannot tell them apart.
        """
        low, high = self.exchange_range()
        both = [self._cost_rise(sign) if room >= 1.0 else None for sign, room in ((-1.0, -low), (1.0, high))]
        known = [rise for rise in both if rise is not None]
        other = known[0] if known else 0.0
        return np.array([other if rise is None else rise for rise in both])

    def valley_covariance(self, cost_rises: np.ndarray) -> np.ndarray:
        """Its mean square distance from the minimum, (d, d), where the cost rises by so much, (2,), with the first exchange."""
        t = np.linspace(*self.exchange_range(), VALLEY_POINTS)
        u = np.clip(
            self.u + t[:, None] * self.step,
            np.minimum(MIN_BOUND_DISTANCE, self.u),
            np.maximum(1.0 - MIN_BOUND_DISTANCE, self.u),
        )
        z = _logit(u)
        # What lies across the valley is as wide everywhere in values: so its density is one over values.
        log = -np.where(t < 0, *cost_rises) * t**2 - self.prior.cost(z) - np.log(u * (1.0 - u)).sum(1)
        density = np.exp(log - log.max())
        off = z - self.point.z
        return np.einsum("k,ki,kj->ij", density / density.sum(), off, off)

    def _cost_rise(self, sign: float) -> float | None:
        """To one side; None where what was believed before leaves no room."""
        z, believed = _logit(self.u + sign * self.step), float(self.prior.cost(self.point.z))
        if float(self.prior.cost(z)) > believed + MAX_PRIOR_COST_RISE:
            return None
        level = self.point.cost - believed + RIPPLE_NATS
        return max(self._lowest_cost(z, self._best_starts(z, sign), level) - level, 0.0)

    def _best_starts(self, z: np.ndarray, sign: float) -> np.ndarray:
        """Starts to begin from, (S, 2 nv), of each segment the best of those tried."""
        tried = np.stack(
            [self.point.xi + share * self.normal.start_response(sign * self.direction) for share in START_RESPONSE_SHARES]
        )
        each = segment_costs(self.residual, np.tile(z, (len(tried), 1)), tried, self.e)
        return tried[each.argmin(0), np.arange(len(self.point.xi))]

    def _lowest_cost(self, z: np.ndarray, xi: np.ndarray, stop_level: float) -> float:
        """Cost of the data at the lowest point near z with the first delay held, or at one that is below the level."""
        i = self.pair[0]
        rest = np.delete(np.arange(len(z)), i)
        held, e = self.residual.with_fixed(self.residual.space.names[i]), self.residual.parameter_values(z, self.e)
        prior = self.prior.conditional(i, z[i])
        hz, hx = (self.residual.estimator.steps.one_sided_share * h for h in self.normal.derivative_steps(self.prior))
        at = Point(z[rest], xi, float(segment_costs(held, z[rest][None], xi[None], e).sum() + prior.cost(z[rest])))
        found, left, gain = None, MAX_DERIVATIVES, np.inf
        data = lambda: at.cost - float(prior.cost(at.z))  # noqa: E731
        while gain > MIN_GAIN_NATS and data() > stop_level and (found is not None or left):
            if found is None:
                found, left = (
                    NormalEquations(held.linearize(at.z, e, at.xi, hz[rest], hx, central=False), held.start_weight),
                    left - 1,
                )
            new, found = take_step(held, prior, at, e, found)
            at, gain = new, at.cost - new.cost
        return data()


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-z))


def _logit(u: np.ndarray) -> np.ndarray:
    return np.log(u / (1.0 - u))
