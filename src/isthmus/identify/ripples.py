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

from isthmus.gap.residual import Residual
from isthmus.identify.descend import ONE_WAY, Normal, Point, costs, stepped
from isthmus.identify.prior import Prior
from isthmus.world import Space, Target

RIPPLE = 2.0
"""Log-likelihood by which worlds along the valley differ for no reason of the robot's. In three recordings of go1's legs the
floor went up and down by 2 to 4 from place to place, with no trend."""
DERIVATIVES, LITTLE = 8, 0.02
"""Taken after an exchange at most, to find the lowest point; it is found when a step gains less log-likelihood than this.
With half as many, and ten times as much, two of 20 valleys seemed to end that did not."""
UNLIKELY = 4.5
"""Log density of what was believed before, below that at the minimum, where nobody needs to look."""
CARRIED = (0.0, 0.3, 1.0)
"""Shares of the move of the starts that the slope at the minimum asks for, from which an exchange begins."""
EDGE = 1e-4
"""In unit coordinates, the closest to a hard bound that the valley is followed."""
FINE = 1000
"""Places at which the valley is weighed."""


def delays(space: Space) -> tuple[int, int] | None:
    """Where the delays of targets and of signals are in a Space, if it has both."""
    found: dict[str, int] = {}
    for i, p in enumerate(space.params):
        found |= {t.field: i for t in map(Target.parse, p.targets) if t.kind == "link"}
    return (found["action_delay"], found["sensor_delay"]) if len(found) == 2 else None


def smoothed(
    residual: Residual, prior: Prior, at: Point, found: Normal, told: np.ndarray, e: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What the data say about z without what ripples pretend to say, (d, d), and the covariance of z, (d, d).

    `told`, (d, d), is what they say by the curvature at the minimum. A robot on its feet has ripples of other kinds, which
    `information` allows for: there nothing is exchanged.
    """
    pair = delays(residual.space)
    if pair is None or residual.followed:
        return told, np.linalg.inv(told + prior.precision)
    exchange = Exchange(residual, prior, at, found, e, pair)
    return combined(told, prior, exchange, exchange.rises())


def combined(told: np.ndarray, prior: Prior, exchange: Exchange, rises: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same, from what the cost rises by when a step is exchanged to either side, (2,)."""
    covariance = np.linalg.inv(told + prior.precision)
    both = np.ix_(exchange.pair, exchange.pair)
    # Intervals of delays only ever get wider, and those of other numbers stay: without what ripples seemed to say, some would
    # be narrower than they should be.
    values, vectors = np.linalg.eigh(exchange.valley(rises)[both] - covariance[both])
    covariance[both] += (vectors * np.maximum(values, 0.0)) @ vectors.T
    return less(told, exchange.along, exchange.count, 2.0 * float(np.mean(rises))), covariance


def less(told: np.ndarray, along: np.ndarray, count: np.ndarray, most: float) -> np.ndarray:
    """Information, (d, d), with no more than `most` about how many times a move was made, and as before about all else.

    `along`, (d,), is the move, and `count`, (d,), counts it: count · along = 1. What does not count keeps its information.
    """
    if along @ told @ along <= most:
        return told
    rest = np.eye(len(told)) - np.outer(along, count)
    return rest.T @ told @ rest + most * np.outer(count, count)


class Exchange:
    """Of a physics step between the two delays of a robot, about the minimum of a fit."""

    def __init__(self, residual: Residual, prior: Prior, at: Point, found: Normal, e: np.ndarray, pair: tuple[int, int]):
        self.residual, self.prior, self.at, self.found, self.e, self.pair = residual, prior, at, found, e, pair
        self.u = np.clip(_unit(at.z), EDGE, 1.0 - EDGE)
        space = residual.space
        self.step = np.zeros(len(self.u))
        """(d,) one exchange, in unit coordinates; `along` is the same in those of z, at the minimum."""
        for i, sign in zip(pair, (1.0, -1.0), strict=True):
            self.step[i] = sign * residual.robot.model.opt.timestep / (space.high[i] - space.low[i])
        self.along = self.step / (self.u * (1.0 - self.u))
        self.count = np.divide(0.5, self.along, out=np.zeros_like(self.along), where=self.along != 0)
        """(d,) of z: half of the difference of the delays, in physics steps. It counts exchanges, and no change of the sum."""

    def ends(self) -> tuple[float, float]:
        """How many exchanges there may be to either side before a delay is at a hard bound."""
        i = list(self.pair)
        ends = np.sort([(bound - self.u[i]) / self.step[i] for bound in (EDGE, 1.0 - EDGE)], axis=0)
        return min(float(ends[0].max()), 0.0), max(float(ends[1].min()), 0.0)

    def rises(self) -> np.ndarray:
        """Of the cost of the data after one exchange to either side, (2,), beyond a ripple.

        A side to which there is no exchange is taken to be like the other. If there is none to either, both delays are shorter
        than a physics step or so, and the simulator cannot tell them apart.
        """
        low, high = self.ends()
        both = [self._rise(sign) if room >= 1.0 else None for sign, room in ((-1.0, -low), (1.0, high))]
        known = [rise for rise in both if rise is not None]
        other = known[0] if known else 0.0
        return np.array([other if rise is None else rise for rise in both])

    def valley(self, rises: np.ndarray) -> np.ndarray:
        """Its mean square distance from the minimum, (d, d), where the cost rises by so much, (2,), with the first exchange."""
        t = np.linspace(*self.ends(), FINE)
        u = np.clip(self.u + t[:, None] * self.step, np.minimum(EDGE, self.u), np.maximum(1.0 - EDGE, self.u))
        z = _logit(u)
        # What lies across the valley is as wide everywhere in values: so its density is one over values.
        log = -np.where(t < 0, *rises) * t**2 - self.prior.cost(z) - np.log(u * (1.0 - u)).sum(1)
        density = np.exp(log - log.max())
        off = z - self.at.z
        return np.einsum("k,ki,kj->ij", density / density.sum(), off, off)

    def _rise(self, sign: float) -> float | None:
        """To one side; None where what was believed before leaves no room."""
        z, believed = _logit(self.u + sign * self.step), float(self.prior.cost(self.at.z))
        if float(self.prior.cost(z)) > believed + UNLIKELY:
            return None
        level = self.at.cost - believed + RIPPLE
        return max(self._lowest(z, self._starts(z, sign), level) - level, 0.0)

    def _starts(self, z: np.ndarray, sign: float) -> np.ndarray:
        """Starts to begin from, (S, 2 nv), of each segment the best of those tried."""
        tried = np.stack([self.at.xi + share * self.found.carried(sign * self.along) for share in CARRIED])
        each = costs(self.residual, np.tile(z, (len(tried), 1)), tried, self.e)
        return tried[each.argmin(0), np.arange(len(self.at.xi))]

    def _lowest(self, z: np.ndarray, xi: np.ndarray, level: float) -> float:
        """Cost of the data at the lowest point near z with the first delay held, or at one that is below the level."""
        i = self.pair[0]
        rest = np.delete(np.arange(len(z)), i)
        held, e = self.residual.holding(self.residual.space.names[i]), self.residual.world(z, self.e)
        prior = self.prior.given(i, z[i])
        hz, hx = (ONE_WAY * h for h in self.found.scales(self.prior))
        at = Point(z[rest], xi, float(costs(held, z[rest][None], xi[None], e).sum() + prior.cost(z[rest])))
        found, left, gain = None, DERIVATIVES, np.inf
        data = lambda: at.cost - float(prior.cost(at.z))  # noqa: E731
        while gain > LITTLE and data() > level and (found is not None or left):
            if found is None:
                found, left = Normal(held.linear(at.z, e, at.xi, hz[rest], hx, both_ways=False), held.hold), left - 1
            new, found = stepped(held, prior, at, e, found)
            at, gain = new, at.cost - new.cost
        return data()


def _unit(z: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-z))


def _logit(u: np.ndarray) -> np.ndarray:
    return np.log(u / (1.0 - u))
