"""Damped Gauss-Newton over the unknown numbers and the unknown starts of all segments together.

    minimise   Σ ρ(r(z, ξ)) + ½ Σ hold · ξ² + prior(z)

Every segment has its own start ξ, so the normal equations have the shape of an arrow: the starts are eliminated segment
by segment, and what is left is a small system in z alone. Its matrix is the Fisher information about z with nothing
assumed about the starts but that the guesses are not absurd.

For any z, segments do not depend on each other: each takes the step of its own start that suits it best.

A derivative is most of the work of a step. So while steps keep what they promise, the last one is mended by what they found
(Broyden's secant), segment by segment, and taken anew only when a step disappoints or the minimum seems to be reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from isthmus.gap.loss import loss, weights
from isthmus.gap.residual import Linear, Residual
from isthmus.identify.prior import Prior
from isthmus.progress import Report, silent

DAMPINGS = np.array([0.0, 1e-1, 1.0, 1e1])
"""Tried side by side in every step, times the present damping."""
KEEPS = 0.5
"""A plain step that gains at least this share of what it promises is taken; only otherwise are others tried."""
CAUTION = (0.0, 0.03, 1.0, 30.0)
"""Dampings of the step of a start, tried side by side."""
FIRST = 0.03
"""Step of the first derivative, in unconstrained coordinates and in units of the spread of the starts."""
STEPS = (1e-4, 0.3)
"""Shortest and longest of the later ones."""
ONE_WAY = 0.1
"""Share of these steps in a derivative to one side, which sees curvature, too."""
FOLLOWED_STEPS = (0.1, 0.3)
"""The same where an observer follows a robot on its feet: shorter ones see the edges at which a foot touches."""
BEND = 0.1
"""Share of a step at which its curvature is probed."""
TRUST = 0.75
"""Bent steps whose bend is larger than this share of the step are not taken."""
LONGEST = 3.0
"""Step of any coordinate of z."""
CLOSE, MENDED = 1e-2, 0.3
"""Done when a step gains less than this much log-likelihood per parameter. Steps by mended derivatives cost next to nothing:
they go on until they gain less than this share of that, and then the derivatives are taken anew."""
DRAWS = 4
"""Of the starts' errors, or of an observer's signals, each with its opposite."""
STRETCH = 0.4
"""s over which errors of an observer hang together."""
USUAL = 5.0
"""How many times ticks of a walking robot usually say the same, for experiments that nobody has done yet."""
EDGES = 5.0
"""Variance of what is found over what smooth errors would give: feet that touch earlier or later make many small valleys, and a
descent ends in one of them. From fits to ten recordings of a walking go1 whose numbers were known."""
AT_EDGE = 2.0
"""A derivative that is so many times as long beside the fitted start as at it belongs to an edge, such as a joint that sticks
or slips: a few pieces with derivatives a thousand times too long would drown what all others say."""
STUCK = 1e6
"""Damping at which no step is worth trying."""


@dataclass(frozen=True)
class Point:
    z: np.ndarray
    """(d,) unconstrained coordinates."""
    xi: np.ndarray
    """(S, 2 nv) moves of the starts, in units of their spread."""
    cost: float


class Normal:
    """The normal equations at a point."""

    def __init__(self, found: Linear, hold: np.ndarray):
        S = len(found.r)
        self.found, self.followed = found, found.followed
        self.r, w = found.r.reshape(S, -1), weights(found.r).reshape(S, -1)
        self._w = w
        self.dz, self.dx = (J.reshape(S, self.r.shape[1], -1) for J in (found.dz, found.dx))
        self.weighted, self._wx = w[..., None] * self.dz, w[..., None] * self.dx
        """(S, n, d) and (S, n, 2 nv): derivatives times the weights of the residuals."""
        self._zz = np.einsum("sni,snj->ij", self.weighted, self.dz, optimize=True)
        self._xz = self._wx.transpose(0, 2, 1) @ self.dz
        self._xx = self.dx.transpose(0, 2, 1) @ self._wx + np.diag(hold)
        self._hold = hold
        self.matrix, self._through = self._eliminated(self._xx)
        """(d, d) information about z from the data alone."""

    def _eliminated(self, xx: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        through = np.linalg.solve(xx, self._xz)
        matrix = self._zz - np.einsum("sij,sik->jk", self._xz, through, optimize=True)
        return 0.5 * (matrix + matrix.T), through

    def scales(self, prior: Prior) -> tuple[np.ndarray, np.ndarray]:
        """How far each number and each start, by itself, may go before it shows, (d,) and (S, 2 nv)."""
        alone = np.diag(self._zz) + np.diag(prior.precision), np.einsum("sii->si", self._xx)
        z, xi = (np.clip(1.0 / np.sqrt(a), *(FOLLOWED_STEPS if self.followed else STEPS)) for a in alone)
        return z, xi

    def step(self, r: np.ndarray, xi: np.ndarray, prior: Prior, slope: np.ndarray, damping: float) -> tuple:
        """The step of z and ξ against residuals r, (S, n), and starts ξ, with the slope of the prior, (d,)."""
        xx = self._xx + damping * _diagonals(self._xx)
        matrix, through = self._eliminated(xx) if damping else (self.matrix, self._through)
        gx, gz = self._slopes(r, xi, through)
        gz = gz + slope
        A = matrix + prior.precision
        dz = -np.linalg.solve(A + damping * np.diag(np.diag(A)), gz)
        dz = dz * min(1.0, LONGEST / max(float(np.abs(dz).max(initial=0.0)), 1e-12))
        return dz, -np.linalg.solve(xx, gx[..., None])[..., 0] - through @ dz

    def _slopes(self, r: np.ndarray, xi: np.ndarray, through: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gx = (self._wx * r[..., None]).sum(1) + self._hold * xi
        return gx, (self.weighted * r[..., None]).sum((0, 1)) - np.einsum("sij,si->j", through, gx, optimize=True)

    def slope(self, xi: np.ndarray) -> np.ndarray:
        """Of the cost by z, (d,), the starts going along."""
        return self._slopes(self.r, xi, self._through)[1]

    def starts(self, xi: np.ndarray, dz: np.ndarray) -> np.ndarray:
        """Steps of ξ that go with a step of z, one for each degree of caution, (cautions, S, 2 nv)."""
        gx = (self._wx * self.r[..., None]).sum(1) + self._hold * xi
        wanted = gx + self._xz @ dz
        diagonal = _diagonals(self._xx)
        cautions = CAUTION[:1] if self.followed else CAUTION
        return np.stack([-np.linalg.solve(self._xx + c * diagonal, wanted[..., None])[..., 0] for c in cautions])

    def shaken(self, rng: np.random.Generator) -> np.ndarray:
        """A draw of the error that noise leaves in the starts, (S, 2 nv)."""
        root = np.linalg.cholesky(np.linalg.inv(self._xx))
        return (root @ rng.standard_normal((*root.shape[:2], 1)))[..., 0]

    def product(self, a: Linear, b: Linear) -> np.ndarray:
        """Information about z, (d, d), as the product of derivatives that were taken at two points near this one."""
        left, right = (self._beyond(x.dz.reshape(self.dz.shape), x.dx.reshape(self.dx.shape)) for x in (a, b))
        if not self.followed:
            plain = self._plain(left) & self._plain(right)
            left, right = left * plain, right * plain
        both = np.einsum("sn,sni,snj->ij", self._w, left, right, optimize=True)
        return 0.5 * (both + both.T)

    def _plain(self, by: np.ndarray) -> np.ndarray:
        """(S, 1, d), where derivatives near this point, (S, n, d), are at most AT_EDGE times as long as those at it."""
        size = lambda x: np.sqrt(np.einsum("sn,sni->si", self._w, x**2, optimize=True))  # noqa: E731
        return (size(by) <= AT_EDGE * size(self._beyond(self.dz, self.dx)))[:, None]

    def _beyond(self, dz: np.ndarray, dx: np.ndarray) -> np.ndarray:
        """What z does to r that the starts cannot undo, (S, n, d)."""
        return dz - dx @ np.linalg.solve(self._xx, (self._wx.transpose(0, 2, 1) @ dz))

    def secant(self, r: np.ndarray, dz: np.ndarray, dx: np.ndarray) -> Normal:
        """At the end of a step, where the residuals are r, (S, n): derivatives that agree with it, and else change least."""
        d, step = len(dz), np.concatenate([np.broadcast_to(dz, (len(dx), len(dz))), dx], axis=1)
        slopes = np.concatenate([self.dz, self.dx], axis=2)
        along = step * (slopes**2).sum(1)
        along /= np.maximum((along * step).sum(1, keepdims=True), 1e-300)
        slopes += (r - self.r - self.ahead(dz, dx))[..., None] * along[:, None]
        old = self.found
        by = slopes.reshape(*old.r.shape, -1)
        return Normal(replace(old, r=r.reshape(old.r.shape), dz=by[..., :d], dx=by[..., d:]), self._hold)

    def carried(self, dz: np.ndarray) -> np.ndarray:
        """How the starts go along with a step of z, (S, 2 nv)."""
        return -self._through @ dz

    def ahead(self, dz: np.ndarray, dx: np.ndarray) -> np.ndarray:
        """Change of r that a step promises, (S, n)."""
        return self.dz @ dz + (self.dx @ dx[..., None])[..., 0]

    def promised(self, xi: np.ndarray, dz: np.ndarray, dx: np.ndarray) -> float:
        """Gain of log-likelihood that a step promises, the prior's part left out."""
        change = self.ahead(dz, dx)
        return -float((self._w * change * (self.r + 0.5 * change)).sum() + (self._hold * dx * (xi + 0.5 * dx)).sum())

    def leverage(self, prior: np.ndarray) -> np.ndarray:
        """Share of each residual, (S, n), that the fit could have bent to its noise."""
        inside = np.einsum("sni,sin->sn", self._wx, np.linalg.solve(self._xx, self.dx.transpose(0, 2, 1)), optimize=True)
        left = self.dz - self.dx @ self._through
        weighted = self.weighted - self._wx @ self._through
        return inside + np.einsum("sni,ij,snj->sn", weighted, np.linalg.inv(self.matrix + prior), left, optimize=True)


def _diagonals(blocks: np.ndarray) -> np.ndarray:
    return blocks * np.eye(blocks.shape[-1])


def costs(residual: Residual, z: np.ndarray, xi: np.ndarray, e: np.ndarray) -> np.ndarray:
    """Of k points side by side, z (k, d) and ξ (k, S, 2 nv), by segment and without the prior, (k, S)."""
    return _costs(residual, residual(residual.world(z, e), xi), xi)


def _costs(residual: Residual, r: np.ndarray, xi: np.ndarray) -> np.ndarray:
    return loss(r).sum((2, 3)) + 0.5 * (residual.hold * xi**2).sum(2)


def descend(
    residual: Residual,
    prior: Prior,
    z: np.ndarray,
    e: np.ndarray,
    xi: np.ndarray | None = None,
    steps: int = 40,
    report: Callable[[int, float], None] = lambda step, cost: None,
    close: float = CLOSE,
) -> tuple[Point, Normal]:
    """The nearest minimum from z, (d,), and the normal equations there; `e` gives the parameters that do not vary.

    Done when a step gains less than `close` per parameter.
    """
    xi = np.zeros((len(residual.segments), len(residual.spread))) if xi is None else xi
    at = Point(z, xi, float(costs(residual, z[None], xi[None], e).sum() + prior.cost(z)))
    first = FOLLOWED_STEPS[0] if residual.followed else FIRST
    scales = np.full(len(z), first), np.full(xi.shape, first)

    def derived(both_ways: bool) -> Normal:
        hz, hx = (h if both_ways or residual.followed else ONE_WAY * h for h in scales)
        return Normal(residual.linear(at.z, e, at.xi, hz, hx, both_ways=both_ways), residual.hold)

    found, damping = derived(False), 1e-2
    fresh, exact = True, False
    for step in range(steps if at.z.size or at.xi.size else 0):
        new, which, mended = at, 0, None
        if (plain := _plain(residual, prior, at, e, found)) is not None:
            new, mended = plain
        elif fresh:
            new, which = _best(residual, prior, at, e, found, *_steps(residual, prior, found, at, e, damping * DAMPINGS))
        gain = at.cost - new.cost
        if gain <= 0 and fresh:
            if damping > STUCK:
                break
            damping = max(100.0 * damping, 1e-3)
            continue
        if gain > 0:
            damping *= (0.1, 0.1, 1.0, 10.0)[which % len(DAMPINGS)]
            at = new
            report(step, at.cost)
        little = gain < (1.0 if fresh else MENDED) * close * max(len(z), 1)
        done = little and exact
        scales = found.scales(prior)
        if mended is not None and not little:
            found, fresh, exact = mended, False, False
        else:
            # A mended step fails close to the minimum, where the derivative to both sides is needed anyway.
            found, fresh, exact = derived(little), True, little
        if done:
            break
    return at, found if exact else derived(True)


def _plain(
    residual: Residual, prior: Prior, at: Point, e: np.ndarray, found: Normal, keeps: float = KEEPS
) -> tuple[Point, Normal] | None:
    """The undamped step, if it keeps so much of what it promises, and what it says of the normal equations at its end."""
    dz, dx = found.step(found.r, at.xi, prior, prior.slope(at.z), 0.0)
    z, xi = at.z + dz, at.xi + dx
    promised = found.promised(at.xi, dz, dx) + float(prior.cost(at.z) - prior.cost(z))
    r = residual(residual.world(z[None], e), xi[None])
    cost = float(_costs(residual, r, xi[None]).sum() + prior.cost(z))
    if not (promised > 0 and at.cost - cost > keeps * promised):
        return None
    return Point(z, xi, cost), found.secant(r.reshape(found.r.shape), dz, dx)


def stepped(residual: Residual, prior: Prior, at: Point, e: np.ndarray, found: Normal) -> tuple[Point, Normal | None]:
    """One step, and the derivatives at its end where they could be mended: a plain one, or else the best of cautious ones."""
    if (plain := _plain(residual, prior, at, e, found, keeps=0.0)) is not None:
        return plain
    moves = np.stack([found.step(found.r, at.xi, prior, prior.slope(at.z), lam)[0] for lam in DAMPINGS])
    new, _ = _best(residual, prior, at, e, found, moves, np.zeros((len(moves), *at.xi.shape)))
    return new if new.cost < at.cost else at, None


def _best(
    residual: Residual, prior: Prior, at: Point, e: np.ndarray, found: Normal, moves: np.ndarray, bends: np.ndarray
) -> tuple[Point, int]:
    """Of the steps tried, k of them, the best one, each segment with the start that suits it best."""
    xi = at.xi + np.stack([found.starts(at.xi, dz) + bend for dz, bend in zip(moves, bends, strict=True)])
    k, cautions = xi.shape[:2]
    z = np.repeat(at.z + moves, cautions, axis=0)
    each = costs(residual, z, xi.reshape(k * cautions, *at.xi.shape), e).reshape(k, cautions, -1)
    total = each.min(axis=1).sum(axis=1) + prior.cost(at.z + moves)
    which = int(np.argmin(total))
    chosen = xi[which, each[which].argmin(axis=0), np.arange(len(at.xi))]
    return replace(at, z=at.z + moves[which], xi=chosen, cost=float(total[which])), which


def _steps(
    residual: Residual, prior: Prior, found: Normal, at: Point, e: np.ndarray, dampings: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Steps of z for each damping: the straight ones, and those bent along the valley where that is trustworthy.

    Numbers that only show together make a valley that is curved: the second derivative along a step bends it
    (Transtrum and Sethna's geodesic acceleration). Returns the steps and by how much the starts bend with them.
    """
    straight = [found.step(found.r, at.xi, prior, prior.slope(at.z), lam) for lam in dampings]
    moves, starts = (np.stack(parts) for parts in zip(*straight, strict=True))
    probe = residual(residual.world(at.z + BEND * moves, e), at.xi + BEND * starts).reshape(len(moves), *found.r.shape)
    bent, bends = moves.copy(), np.zeros_like(starts)
    for i, lam in enumerate(dampings):
        curvature = 2.0 / BEND * ((probe[i] - found.r) / BEND - found.ahead(moves[i], starts[i]))
        dz, dx = found.step(curvature, np.zeros_like(at.xi), prior, np.zeros_like(at.z), lam)
        if 2.0 * np.linalg.norm(dz) <= TRUST * np.linalg.norm(moves[i]):
            bent[i] += 0.5 * dz
            # What bends with z itself is already in the steps of the starts.
            bends[i] = 0.5 * (dx - found.carried(dz))
    return np.concatenate([moves, bent]), np.concatenate([np.zeros_like(bends), bends])


def repeated(residual: Residual, found: Normal, prior: Prior) -> float:
    """How many times ticks that follow each other say the same, at least once.

    An error that an observer has not yet corrected shows in many ticks, and a foot that touches early in many signals. So the
    sum of what the ticks of a stretch say about z, Σ dr/dz · w r, varies more than if each spoke for itself; on average over
    directions, that many times more.
    """
    S, ticks = residual.seen.shape[:2]
    stretch = min(max(1, round(STRETCH * residual.robot.contract.rate)), ticks - residual.skip)
    first = residual.skip + (ticks - residual.skip) % stretch
    said = (found.weighted * found.r[..., None]).reshape(S, ticks, -1, found.weighted.shape[-1]).sum(2)
    sums = said[:, first:].reshape(-1, stretch, said.shape[-1]).sum(1)
    A = found.matrix + prior.precision
    varies, alone = (np.trace(np.linalg.solve(A, B)) for B in (sums.T @ sums, found.matrix))
    return max(1.0, float(varies / alone)) if alone > 0 else 1.0


def information(
    residual: Residual,
    prior: Prior,
    at: Point,
    found: Normal,
    e: np.ndarray,
    draws: int = DRAWS,
    report: Report = silent,
) -> np.ndarray:
    """What the data say about z, (d, d), with what the noise of the starts pretends to say taken out.

    A robot at rest says nothing about its friction. But noise makes every fitted start move a little, and a start that moves
    has a derivative by friction. That part of a derivative is as random as the error of its start: the product of
    derivatives at starts shaken once by +δ and once by -δ, with δ as large as that error, is free of it on average. Where an
    observer follows the robot, its signals are shaken: that also takes out what feet that touch earlier or later add to a
    derivative's square, and what is left is divided by how often ticks repeat each other.
    """
    rng, total = np.random.default_rng(0), np.zeros_like(found.matrix)
    steps = found.scales(prior)
    for draw in range(draws):
        if residual.followed:
            noise = rng.standard_normal(residual.seen.shape)
            a, b = (residual.linear(at.z, e, at.xi, *steps, shake=sign * noise) for sign in (1.0, -1.0))
        else:
            shake = found.shaken(rng)
            a, b = (residual.linear(at.z, e, at.xi + sign * shake, *steps) for sign in (1.0, -1.0))
        total += found.product(a, b) / draws
        report((draw + 1) / draws)
    if residual.followed:
        total /= EDGES * repeated(residual, found, prior)
    values, vectors = np.linalg.eigh(total)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T
