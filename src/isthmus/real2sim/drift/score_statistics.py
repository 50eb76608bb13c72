"""What single recordings say about small changes of a unit's numbers, without a fit.

    s = -d cost / dz, F = information about z       at the numbers of the twin, each segment from the start that suits it best
    s ≈ F δ + noise of covariance F                 if the numbers are off by δ

One linearisation per recording. Where it is taken, z, may be moved to a change that has been found: then s says what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.noise import MIN_RELATIVE_NOISE
from isthmus.real2sim.prepare.prepare import Prepared
from isthmus.real2sim.prepare.segments import Segments, cut
from isthmus.real2sim.residual.estimators import settle_ticks
from isthmus.real2sim.residual.gauss_newton import gauss_newton
from isthmus.real2sim.residual.horizon import choose_horizon
from isthmus.real2sim.residual.information import fisher_information
from isthmus.real2sim.residual.noise_fit import ROBUST_VARIANCE_SHARE
from isthmus.real2sim.residual.normal_equations import Linearization, NormalEquations, pseudo_huber_loss, robust_weights
from isthmus.real2sim.residual.prior import GaussianPrior, free_parameters, gaussian_prior, noise_parameters
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.sim.robot import Robot
from isthmus.world import Belief
from isthmus.world.factors import Fixed

BATCH_RECORDINGS = 16
"""Recordings that are simulated side by side."""
SAMPLED_RECORDINGS = 8
"""Recordings by which it is judged what recordings tell."""
MIN_SEGMENTS = 3
"""Segments of the shortest recording, at least."""
FIRST_DERIVATIVE_STEP = 0.03
"""Of the derivative by a number, in unconstrained coordinates, for the first recordings; then as far as it takes to show."""


@dataclass(frozen=True)
class DriftInputs:
    """A unit as its twin has it, and how its recordings are looked at."""

    robot: Robot
    """At the rate of the recordings."""
    e: np.ndarray
    """(all,) values of the robot's Space."""
    twin_prior: GaussianPrior
    """What the twin believes of the numbers that are watched."""
    population_prior: GaussianPrior
    """What is believed of any unit of this robot."""
    noise: np.ndarray
    """(components,) σ"""
    segments: tuple[Segments, ...]
    """By recording."""
    horizon_seconds: float
    """s that are predicted."""
    threads: int = 0


@dataclass(frozen=True)
class ScoreStatistics:
    """Of n recordings."""

    z: np.ndarray
    """(n, d) where they were taken."""
    s: np.ndarray
    """(n, d)"""
    F: np.ndarray
    """(n, d, d)"""
    cost: np.ndarray
    """(n,) -log likelihood there, up to a constant of the recording."""
    log_unexplained: np.ndarray
    """(n,) logarithm of the squared error per comparison that no number explains, in units of the noise."""
    degrees_of_freedom: np.ndarray
    """(n,) comparisons that it is an average of."""

    def with_recordings(self, which: np.ndarray, other: ScoreStatistics) -> ScoreStatistics:
        """With the recordings `which` taken from another score."""
        fields = {name: getattr(self, name).copy() for name in ScoreStatistics.__dataclass_fields__}
        for name, values in fields.items():
            values[which] = getattr(other, name)
        return ScoreStatistics(**fields)


def drift_inputs(
    prepared: Prepared,
    belief: Belief,
    population_belief: Belief,
    names: Sequence[str] = (),
    horizon_seconds: float = 0.0,
    threads: int = 0,
    unexplained_noise: Mapping[str, float] | None = None,
) -> DriftInputs:
    """Cut recordings into segments of one length; `usual` is what is believed of any unit, `ahead` of 0 chooses the horizon.

    Noise is what the fit of the twin has `left` of each signal, which is more than that of its sensors where the model lacks
    something; where that is not known it is the twin's, or that of the signals by themselves in the first recordings.
    """
    robot = prepared.robot
    names = tuple(names) or free_parameters(robot, belief)
    found = [[t for t in prepared.tracks if t.recording == i] for i in range(len(prepared.raw))]
    noise = _twin_noise(robot, belief, unexplained_noise or {}, prepared.subset(range(BATCH_RECORDINGS)).noise)
    if not np.isfinite(noise).any():
        raise BadInput("the recordings hold no signal of the robot that could be compared.")
    e, skip, rate = belief.median(), settle_ticks(robot), robot.contract.rate
    if horizon_seconds:
        ticks = skip + max(1, round(horizon_seconds * rate))
    else:
        shortest = min(max(map(len, ts), default=0) for ts in found)
        ticks = choose_horizon([t for ts in found[:SAMPLED_RECORDINGS] for t in ts], robot, noise, e, threads)
        ticks = max(min(ticks, skip + (shortest - skip) // MIN_SEGMENTS), skip + 2)
    pieces = []
    for i, track in enumerate(found):
        try:
            pieces.append(cut(track, robot, ticks, ticks - skip))
        except BadInput:
            longest = max(map(len, track), default=0) / rate
            text = f"no stretch of it has {ticks / rate:.2g} s without a hole; the longest has {longest:.2g} s"
            raise BadInput(f"{prepared.names[i]} is too short: {text}.") from None
    space = robot.space.subset(names)
    now, wide = gaussian_prior(belief, space), gaussian_prior(population_belief, space)
    return DriftInputs(robot, e, now, wide, noise, tuple(pieces), (ticks - skip) / rate, threads)


def _twin_noise(robot: Robot, belief: Belief, unexplained_noise: Mapping[str, float], noise_floor: np.ndarray) -> np.ndarray:
    """σ of each component, (components,)."""
    known: dict[str, float] = {}
    for name, signal in noise_parameters(robot.space).items():
        factor = next((f for f in belief.factors if name in f.names), None)
        if isinstance(factor, Fixed) and factor.value > 0:
            known[signal] = factor.value
    known |= unexplained_noise
    of_twin = np.array(
        [max(known[c.signal], MIN_RELATIVE_NOISE) if c.signal in known else np.nan for c in Components(robot.contract).entries]
    )
    return np.where(np.isfinite(noise_floor) & np.isfinite(of_twin), of_twin, noise_floor)


def with_single_parameter(inputs: DriftInputs, name: str, z: np.ndarray) -> DriftInputs:
    """The unit at z, (d,), with one number to watch: cheaper to score."""
    space = inputs.twin_prior.space
    j, one = space.index(name), space.subset([name])
    e = inputs.e.copy()
    e[[inputs.robot.space.index(n) for n in space.names]] = space.from_unconstrained(z)
    now, wide = (
        GaussianPrior(one, z[[j]], np.array([[1.0 / p.std[j] ** 2]])) for p in (inputs.twin_prior, inputs.population_prior)
    )
    return replace(inputs, e=e, twin_prior=now, population_prior=wide)


def score_recordings(
    inputs: DriftInputs,
    which: Sequence[int] | None = None,
    z: np.ndarray | None = None,
    report: Callable[[float], None] = lambda share: None,
) -> ScoreStatistics:
    """Of the recordings `which`, by default all, at z, (d,), by default the twin's own."""
    every = list(range(len(inputs.segments))) if which is None else list(which)
    z = inputs.twin_prior.mean if z is None else z
    parts, step = [], np.full(len(z), FIRST_DERIVATIVE_STEP)
    for first in range(0, len(every), BATCH_RECORDINGS):
        part, step = _score_batch(inputs, every[first : first + BATCH_RECORDINGS], z, step)
        parts.append(part)
        report(min(first + BATCH_RECORDINGS, len(every)) / len(every))
    return ScoreStatistics(*(np.concatenate([getattr(p, f) for p in parts]) for f in ScoreStatistics.__dataclass_fields__))


def recording_information(inputs: DriftInputs) -> np.ndarray:
    """Information of one recording about z, (d, d), with what the noise of the starts pretends to say taken out.

    An average over a few recordings from all along.
    """
    which = np.unique(np.linspace(0, len(inputs.segments) - 1, SAMPLED_RECORDINGS).astype(int))
    here, z = _RecordingBatch(inputs, which.tolist(), inputs.twin_prior.mean), inputs.twin_prior.mean
    whole = NormalEquations(here.linearize(np.full(len(z), FIRST_DERIVATIVE_STEP)), here.residual.start_weight)
    return fisher_information(here.residual, inputs.population_prior, replace(here.point, z=z), whole, here.e, draws=2) / len(
        which
    )


class _RecordingBatch:
    """A few recordings side by side, at z: each segment from the start that suits it best."""

    def __init__(self, inputs: DriftInputs, which: Sequence[int], z: np.ndarray):
        parts = [inputs.segments[i] for i in which]
        self.z, self.recording_index = z, np.repeat(np.arange(len(which)), [len(s) for s in parts])
        joined = Segments(*(np.concatenate([getattr(s, f) for s in parts]) for f in Segments.__dataclass_fields__))
        still = ParameterResidual(inputs.robot, joined, inputs.noise, (), inputs.threads)
        nothing = gaussian_prior(Belief(inputs.robot.space), still.space)
        self.residual = ParameterResidual(inputs.robot, joined, inputs.noise, inputs.twin_prior.space.names, inputs.threads)
        self.e = self.residual.parameter_values(z, inputs.e)
        self.point, found = gauss_newton(still, nothing, np.zeros(0), self.e)
        self.start_steps = found.derivative_steps(nothing)[1]

    def linearize(self, step: np.ndarray) -> Linearization:
        return self.residual.linearize(self.z, self.e, self.point.xi, step, self.start_steps)


def _score_batch(
    inputs: DriftInputs, which: Sequence[int], z: np.ndarray, step: np.ndarray
) -> tuple[ScoreStatistics, np.ndarray]:
    """Scores of a few recordings, and the steps for the derivatives of the next."""
    here = _RecordingBatch(inputs, which, z)
    linear, residual, xi = here.linearize(step), here.residual, here.point.xi
    rows = []
    for i in range(len(which)):
        mine = here.recording_index == i
        one = NormalEquations(linear.take(mine), residual.start_weight)
        s = -one.gradient(xi[mine])
        soft = np.linalg.inv(one.matrix + inputs.population_prior.precision)
        energy = float((robust_weights(one.r) * one.r**2).sum()) / ROBUST_VARIANCE_SHARE - float(s @ soft @ s)
        freedom = max(float(residual.seen[mine].sum() - xi[mine].size - np.trace(one.matrix @ soft)), 1.0)
        cost = float(pseudo_huber_loss(one.r).sum() + 0.5 * (residual.start_weight * xi[mine] ** 2).sum())
        rows.append((z, s, one.matrix, cost, np.log(max(energy / freedom, 1e-12)), freedom))
    # As far as it takes to show in one recording.
    alone = np.mean([np.diag(row[2]) for row in rows], axis=0) + np.diag(inputs.population_prior.precision)
    return ScoreStatistics(*(np.array(column) for column in zip(*rows, strict=True))), np.clip(1.0 / np.sqrt(alone), 1e-3, 0.3)
