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

from isthmus.core.progress import Progress, silent
from isthmus.real2sim.residual.prior import GaussianPrior
from isthmus.real2sim.residual.residual import Linearization, ParameterResidual
from isthmus.real2sim.residual.robust_loss import pseudo_huber_loss, robust_weights

DAMPING_FACTORS = np.array([0.0, 1e-1, 1.0, 1e1])
"""Tried side by side in every step, times the present damping."""
MIN_GAIN_RATIO = 0.5
"""A plain step that gains at least this share of what it promises is taken; only otherwise are others tried."""
START_DAMPINGS = (0.0, 0.03, 1.0, 30.0)
"""Dampings of the step of a start, tried side by side."""
FIRST_DERIVATIVE_STEP = 0.03
"""Step of the first derivative, in unconstrained coordinates and in units of the spread of the starts."""
DERIVATIVE_STEP_RANGE = (1e-4, 0.3)
"""Shortest and longest of the later ones."""
ONE_SIDED_STEP_SHARE = 0.1
"""Share of these steps in a derivative to one side, which sees curvature, too."""
OBSERVER_DERIVATIVE_STEP_RANGE = (0.1, 0.3)
"""The same where an observer follows a robot on its feet: shorter ones see the edges at which a foot touches."""
CURVATURE_PROBE_SHARE = 0.1
"""Share of a step at which its curvature is probed."""
MAX_ACCELERATION_RATIO = 0.75
"""Bent steps whose bend is larger than this share of the step are not taken."""
MAX_Z_STEP = 3.0
"""Step of any coordinate of z."""
MIN_GAIN_PER_PARAMETER, SECANT_GAIN_SHARE = 1e-2, 0.3
"""Done when a step gains less than this much log-likelihood per parameter. Steps by mended derivatives cost next to nothing:
they go on until they gain less than this share of that, and then the derivatives are taken anew."""
INFORMATION_DRAWS = 4
"""Of the starts' errors, or of an observer's signals, each with its opposite."""
REDUNDANCY_SECONDS = 0.4
"""s over which errors of an observer hang together."""
TYPICAL_TICK_REDUNDANCY = 5.0
"""How many times ticks of a walking robot usually say the same, for experiments that nobody has done yet."""
CONTACT_EDGE_INFLATION = 5.0
"""Variance of what is found over what smooth errors would give: feet that touch earlier or later make many small valleys, and a
descent ends in one of them. From fits to ten recordings of a walking go1 whose numbers were known."""
EDGE_DERIVATIVE_RATIO = 2.0
"""A derivative that is so many times as long beside the fitted start as at it belongs to an edge, such as a joint that sticks
or slips: a few pieces with derivatives a thousand times too long would drown what all others say."""
MAX_DAMPING = 1e6
"""Damping at which no step is worth trying."""


@dataclass(frozen=True)
class Point:
    z: np.ndarray
    """(d,) unconstrained coordinates."""
    xi: np.ndarray
    """(S, 2 nv) moves of the starts, in units of their spread."""
    cost: float


class NormalEquations:
    """The normal equations at a point."""

    def __init__(self, linearization: Linearization, start_weight: np.ndarray):
        S = len(linearization.r)
        self.linearization, self.uses_observer = linearization, linearization.uses_observer
        self.r, w = linearization.r.reshape(S, -1), robust_weights(linearization.r).reshape(S, -1)
        self._w = w
        self.dr_dz, self.dr_dxi = (J.reshape(S, self.r.shape[1], -1) for J in (linearization.dr_dz, linearization.dr_dxi))
        self.weighted_dr_dz, self._weighted_dr_dxi = w[..., None] * self.dr_dz, w[..., None] * self.dr_dxi
        """(S, n, d) and (S, n, 2 nv): derivatives times the weights of the residuals."""
        self._zz = np.einsum("sni,snj->ij", self.weighted_dr_dz, self.dr_dz, optimize=True)
        self._xz = self._weighted_dr_dxi.transpose(0, 2, 1) @ self.dr_dz
        self._xx = self.dr_dxi.transpose(0, 2, 1) @ self._weighted_dr_dxi + np.diag(start_weight)
        self._start_weight = start_weight
        self.matrix, self._xi_by_z = self._eliminate_starts(self._xx)
        """(d, d) information about z from the data alone."""

    def _eliminate_starts(self, xx: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        through = np.linalg.solve(xx, self._xz)
        matrix = self._zz - np.einsum("sij,sik->jk", self._xz, through, optimize=True)
        return 0.5 * (matrix + matrix.T), through

    def derivative_steps(self, prior: GaussianPrior) -> tuple[np.ndarray, np.ndarray]:
        """How far each number and each start, by itself, may go before it shows, (d,) and (S, 2 nv)."""
        alone = np.diag(self._zz) + np.diag(prior.precision), np.einsum("sii->si", self._xx)
        z, xi = (
            np.clip(1.0 / np.sqrt(a), *(OBSERVER_DERIVATIVE_STEP_RANGE if self.uses_observer else DERIVATIVE_STEP_RANGE))
            for a in alone
        )
        return z, xi

    def step(self, r: np.ndarray, xi: np.ndarray, prior: GaussianPrior, prior_gradient: np.ndarray, damping: float) -> tuple:
        """The step of z and ξ against residuals r, (S, n), and starts ξ, with the slope of the prior, (d,)."""
        xx = self._xx + damping * _diagonals(self._xx)
        matrix, through = self._eliminate_starts(xx) if damping else (self.matrix, self._xi_by_z)
        gx, gz = self._gradients(r, xi, through)
        gz = gz + prior_gradient
        A = matrix + prior.precision
        dz = -np.linalg.solve(A + damping * np.diag(np.diag(A)), gz)
        dz = dz * min(1.0, MAX_Z_STEP / max(float(np.abs(dz).max(initial=0.0)), 1e-12))
        return dz, -np.linalg.solve(xx, gx[..., None])[..., 0] - through @ dz

    def _gradients(self, r: np.ndarray, xi: np.ndarray, xi_by_z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gx = (self._weighted_dr_dxi * r[..., None]).sum(1) + self._start_weight * xi
        return gx, (self.weighted_dr_dz * r[..., None]).sum((0, 1)) - np.einsum("sij,si->j", xi_by_z, gx, optimize=True)

    def gradient(self, xi: np.ndarray) -> np.ndarray:
        """Of the cost by z, (d,), the starts going along."""
        return self._gradients(self.r, xi, self._xi_by_z)[1]

    def start_steps(self, xi: np.ndarray, dz: np.ndarray) -> np.ndarray:
        """Steps of ξ that go with a step of z, one for each degree of caution, (cautions, S, 2 nv)."""
        gx = (self._weighted_dr_dxi * self.r[..., None]).sum(1) + self._start_weight * xi
        wanted = gx + self._xz @ dz
        diagonal = _diagonals(self._xx)
        cautions = START_DAMPINGS[:1] if self.uses_observer else START_DAMPINGS
        return np.stack([-np.linalg.solve(self._xx + c * diagonal, wanted[..., None])[..., 0] for c in cautions])

    def draw_start_error(self, rng: np.random.Generator) -> np.ndarray:
        """A draw of the error that noise leaves in the starts, (S, 2 nv)."""
        root = np.linalg.cholesky(np.linalg.inv(self._xx))
        return (root @ rng.standard_normal((*root.shape[:2], 1)))[..., 0]

    def information_product(self, a: Linearization, b: Linearization) -> np.ndarray:
        """Information about z, (d, d), as the product of derivatives that were taken at two points near this one."""
        left, right = (
            self._without_start_part(x.dr_dz.reshape(self.dr_dz.shape), x.dr_dxi.reshape(self.dr_dxi.shape)) for x in (a, b)
        )
        if not self.uses_observer:
            plain = self._away_from_edges(left) & self._away_from_edges(right)
            left, right = left * plain, right * plain
        both = np.einsum("sn,sni,snj->ij", self._w, left, right, optimize=True)
        return 0.5 * (both + both.T)

    def _away_from_edges(self, derivatives: np.ndarray) -> np.ndarray:
        """(S, 1, d), where derivatives near this point, (S, n, d), are at most AT_EDGE times as long as those at it."""
        size = lambda x: np.sqrt(np.einsum("sn,sni->si", self._w, x**2, optimize=True))  # noqa: E731
        return (size(derivatives) <= EDGE_DERIVATIVE_RATIO * size(self._without_start_part(self.dr_dz, self.dr_dxi)))[:, None]

    def _without_start_part(self, dz: np.ndarray, dx: np.ndarray) -> np.ndarray:
        """What z does to r that the starts cannot undo, (S, n, d)."""
        return dz - dx @ np.linalg.solve(self._xx, (self._weighted_dr_dxi.transpose(0, 2, 1) @ dz))

    def secant_update(self, r: np.ndarray, dz: np.ndarray, dx: np.ndarray) -> NormalEquations:
        """At the end of a step, where the residuals are r, (S, n): derivatives that agree with it, and else change least."""
        d, step = len(dz), np.concatenate([np.broadcast_to(dz, (len(dx), len(dz))), dx], axis=1)
        slopes = np.concatenate([self.dr_dz, self.dr_dxi], axis=2)
        along = step * (slopes**2).sum(1)
        along /= np.maximum((along * step).sum(1, keepdims=True), 1e-300)
        slopes += (r - self.r - self.predicted_change(dz, dx))[..., None] * along[:, None]
        old = self.linearization
        by = slopes.reshape(*old.r.shape, -1)
        return NormalEquations(
            replace(old, r=r.reshape(old.r.shape), dr_dz=by[..., :d], dr_dxi=by[..., d:]), self._start_weight
        )

    def start_response(self, dz: np.ndarray) -> np.ndarray:
        """How the starts go along with a step of z, (S, 2 nv)."""
        return -self._xi_by_z @ dz

    def predicted_change(self, dz: np.ndarray, dx: np.ndarray) -> np.ndarray:
        """Change of r that a step promises, (S, n)."""
        return self.dr_dz @ dz + (self.dr_dxi @ dx[..., None])[..., 0]

    def predicted_gain(self, xi: np.ndarray, dz: np.ndarray, dx: np.ndarray) -> float:
        """Gain of log-likelihood that a step promises, the prior's part left out."""
        change = self.predicted_change(dz, dx)
        return -float((self._w * change * (self.r + 0.5 * change)).sum() + (self._start_weight * dx * (xi + 0.5 * dx)).sum())

    def leverage(self, prior_precision: np.ndarray) -> np.ndarray:
        """Share of each residual, (S, n), that the fit could have bent to its noise."""
        inside = np.einsum(
            "sni,sin->sn", self._weighted_dr_dxi, np.linalg.solve(self._xx, self.dr_dxi.transpose(0, 2, 1)), optimize=True
        )
        left = self.dr_dz - self.dr_dxi @ self._xi_by_z
        weighted = self.weighted_dr_dz - self._weighted_dr_dxi @ self._xi_by_z
        return inside + np.einsum("sni,ij,snj->sn", weighted, np.linalg.inv(self.matrix + prior_precision), left, optimize=True)


def _diagonals(blocks: np.ndarray) -> np.ndarray:
    return blocks * np.eye(blocks.shape[-1])


def segment_costs(residual: ParameterResidual, z: np.ndarray, xi: np.ndarray, e: np.ndarray) -> np.ndarray:
    """Of k points side by side, z (k, d) and ξ (k, S, 2 nv), by segment and without the prior, (k, S)."""
    return _segment_costs_of(residual, residual(residual.parameter_values(z, e), xi), xi)


def _segment_costs_of(residual: ParameterResidual, r: np.ndarray, xi: np.ndarray) -> np.ndarray:
    return pseudo_huber_loss(r).sum((2, 3)) + 0.5 * (residual.start_weight * xi**2).sum(2)


def gauss_newton(
    residual: ParameterResidual,
    prior: GaussianPrior,
    z: np.ndarray,
    e: np.ndarray,
    xi: np.ndarray | None = None,
    steps: int = 40,
    report: Callable[[int, float], None] = lambda step, cost: None,
    min_gain: float = MIN_GAIN_PER_PARAMETER,
) -> tuple[Point, NormalEquations]:
    """The nearest minimum from z, (d,), and the normal equations there; `e` gives the parameters that do not vary.

    Done when a step gains less than `close` per parameter.
    """
    xi = np.zeros((len(residual.segments), len(residual.start_scale))) if xi is None else xi
    at = Point(z, xi, float(segment_costs(residual, z[None], xi[None], e).sum() + prior.cost(z)))
    first = OBSERVER_DERIVATIVE_STEP_RANGE[0] if residual.uses_observer else FIRST_DERIVATIVE_STEP
    scales = np.full(len(z), first), np.full(xi.shape, first)

    def derived(both_ways: bool) -> NormalEquations:
        hz, hx = (h if both_ways or residual.uses_observer else ONE_SIDED_STEP_SHARE * h for h in scales)
        return NormalEquations(residual.linearize(at.z, e, at.xi, hz, hx, central=both_ways), residual.start_weight)

    found, damping = derived(False), 1e-2
    fresh, exact = True, False
    for step in range(steps if at.z.size or at.xi.size else 0):
        new, which, mended = at, 0, None
        if (plain := _undamped_step(residual, prior, at, e, found)) is not None:
            new, mended = plain
        elif fresh:
            new, which = _best_step(
                residual, prior, at, e, found, *_candidate_steps(residual, prior, found, at, e, damping * DAMPING_FACTORS)
            )
        gain = at.cost - new.cost
        if gain <= 0 and fresh:
            if damping > MAX_DAMPING:
                break
            damping = max(100.0 * damping, 1e-3)
            continue
        if gain > 0:
            damping *= (0.1, 0.1, 1.0, 10.0)[which % len(DAMPING_FACTORS)]
            at = new
            report(step, at.cost)
        little = gain < (1.0 if fresh else SECANT_GAIN_SHARE) * min_gain * max(len(z), 1)
        done = little and exact
        scales = found.derivative_steps(prior)
        if mended is not None and not little:
            found, fresh, exact = mended, False, False
        else:
            # A mended step fails close to the minimum, where the derivative to both sides is needed anyway.
            found, fresh, exact = derived(little), True, little
        if done:
            break
    return at, found if exact else derived(True)


def _undamped_step(
    residual: ParameterResidual,
    prior: GaussianPrior,
    point: Point,
    e: np.ndarray,
    normal: NormalEquations,
    min_gain_ratio: float = MIN_GAIN_RATIO,
) -> tuple[Point, NormalEquations] | None:
    """The undamped step, if it keeps so much of what it promises, and what it says of the normal equations at its end."""
    dz, dx = normal.step(normal.r, point.xi, prior, prior.gradient(point.z), 0.0)
    z, xi = point.z + dz, point.xi + dx
    promised = normal.predicted_gain(point.xi, dz, dx) + float(prior.cost(point.z) - prior.cost(z))
    r = residual(residual.parameter_values(z[None], e), xi[None])
    cost = float(_segment_costs_of(residual, r, xi[None]).sum() + prior.cost(z))
    if not (promised > 0 and point.cost - cost > min_gain_ratio * promised):
        return None
    return Point(z, xi, cost), normal.secant_update(r.reshape(normal.r.shape), dz, dx)


def take_step(
    residual: ParameterResidual, prior: GaussianPrior, point: Point, e: np.ndarray, normal: NormalEquations
) -> tuple[Point, NormalEquations | None]:
    """One step, and the derivatives at its end where they could be mended: a plain one, or else the best of cautious ones."""
    if (plain := _undamped_step(residual, prior, point, e, normal, min_gain_ratio=0.0)) is not None:
        return plain
    moves = np.stack([normal.step(normal.r, point.xi, prior, prior.gradient(point.z), lam)[0] for lam in DAMPING_FACTORS])
    new, _ = _best_step(residual, prior, point, e, normal, moves, np.zeros((len(moves), *point.xi.shape)))
    return new if new.cost < point.cost else point, None


def _best_step(
    residual: ParameterResidual,
    prior: GaussianPrior,
    point: Point,
    e: np.ndarray,
    normal: NormalEquations,
    z_steps: np.ndarray,
    start_accelerations: np.ndarray,
) -> tuple[Point, int]:
    """Of the steps tried, k of them, the best one, each segment with the start that suits it best."""
    xi = point.xi + np.stack(
        [normal.start_steps(point.xi, dz) + bend for dz, bend in zip(z_steps, start_accelerations, strict=True)]
    )
    k, cautions = xi.shape[:2]
    z = np.repeat(point.z + z_steps, cautions, axis=0)
    each = segment_costs(residual, z, xi.reshape(k * cautions, *point.xi.shape), e).reshape(k, cautions, -1)
    total = each.min(axis=1).sum(axis=1) + prior.cost(point.z + z_steps)
    which = int(np.argmin(total))
    chosen = xi[which, each[which].argmin(axis=0), np.arange(len(point.xi))]
    return replace(point, z=point.z + z_steps[which], xi=chosen, cost=float(total[which])), which


def _candidate_steps(
    residual: ParameterResidual,
    prior: GaussianPrior,
    normal: NormalEquations,
    point: Point,
    e: np.ndarray,
    dampings: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Steps of z for each damping: the straight ones, and those bent along the valley where that is trustworthy.

    Numbers that only show together make a valley that is curved: the second derivative along a step bends it
    (Transtrum and Sethna's geodesic acceleration). Returns the steps and by how much the starts bend with them.
    """
    straight = [normal.step(normal.r, point.xi, prior, prior.gradient(point.z), lam) for lam in dampings]
    moves, starts = (np.stack(parts) for parts in zip(*straight, strict=True))
    probe = residual(
        residual.parameter_values(point.z + CURVATURE_PROBE_SHARE * moves, e), point.xi + CURVATURE_PROBE_SHARE * starts
    ).reshape(len(moves), *normal.r.shape)
    bent, bends = moves.copy(), np.zeros_like(starts)
    for i, lam in enumerate(dampings):
        curvature = (
            2.0
            / CURVATURE_PROBE_SHARE
            * ((probe[i] - normal.r) / CURVATURE_PROBE_SHARE - normal.predicted_change(moves[i], starts[i]))
        )
        dz, dx = normal.step(curvature, np.zeros_like(point.xi), prior, np.zeros_like(point.z), lam)
        if 2.0 * np.linalg.norm(dz) <= MAX_ACCELERATION_RATIO * np.linalg.norm(moves[i]):
            bent[i] += 0.5 * dz
            # What bends with z itself is already in the steps of the starts.
            bends[i] = 0.5 * (dx - normal.start_response(dz))
    return np.concatenate([moves, bent]), np.concatenate([np.zeros_like(bends), bends])


def tick_redundancy(residual: ParameterResidual, normal: NormalEquations, prior: GaussianPrior) -> float:
    """How many times ticks that follow each other say the same, at least once.

    An error that an observer has not yet corrected shows in many ticks, and a foot that touches early in many signals. So the
    sum of what the ticks of a stretch say about z, Σ dr/dz · w r, varies more than if each spoke for itself; on average over
    directions, that many times more.
    """
    S, ticks = residual.seen.shape[:2]
    stretch = min(max(1, round(REDUNDANCY_SECONDS * residual.robot.contract.rate)), ticks - residual.settle_ticks)
    first = residual.settle_ticks + (ticks - residual.settle_ticks) % stretch
    said = (normal.weighted_dr_dz * normal.r[..., None]).reshape(S, ticks, -1, normal.weighted_dr_dz.shape[-1]).sum(2)
    sums = said[:, first:].reshape(-1, stretch, said.shape[-1]).sum(1)
    A = normal.matrix + prior.precision
    varies, alone = (np.trace(np.linalg.solve(A, B)) for B in (sums.T @ sums, normal.matrix))
    return max(1.0, float(varies / alone)) if alone > 0 else 1.0


def fisher_information(
    residual: ParameterResidual,
    prior: GaussianPrior,
    point: Point,
    normal: NormalEquations,
    e: np.ndarray,
    draws: int = INFORMATION_DRAWS,
    report: Progress = silent,
) -> np.ndarray:
    """What the data say about z, (d, d), with what the noise of the starts pretends to say taken out.

    A robot at rest says nothing about its friction. But noise makes every fitted start move a little, and a start that moves
    has a derivative by friction. That part of a derivative is as random as the error of its start: the product of
    derivatives at starts shaken once by +δ and once by -δ, with δ as large as that error, is free of it on average. Where an
    observer follows the robot, its signals are shaken: that also takes out what feet that touch earlier or later add to a
    derivative's square, and what is left is divided by how often ticks repeat each other.
    """
    rng, total = np.random.default_rng(0), np.zeros_like(normal.matrix)
    steps = normal.derivative_steps(prior)
    for draw in range(draws):
        if residual.uses_observer:
            noise = rng.standard_normal(residual.seen.shape)
            a, b = (residual.linearize(point.z, e, point.xi, *steps, noise_draw=sign * noise) for sign in (1.0, -1.0))
        else:
            shake = normal.draw_start_error(rng)
            a, b = (residual.linearize(point.z, e, point.xi + sign * shake, *steps) for sign in (1.0, -1.0))
        total += normal.information_product(a, b) / draws
        report((draw + 1) / draws)
    if residual.uses_observer:
        total /= CONTACT_EDGE_INFLATION * tick_redundancy(residual, normal, prior)
    values, vectors = np.linalg.eigh(total)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T
