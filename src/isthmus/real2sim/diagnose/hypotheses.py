"""What may be wrong, as blocks of doubts: numbers beyond the belief, sensors, missing physics.

outside   one number may be far beyond what is believed, within its hard bounds
sensor    bias of a signal, its drift, its gain, how an inertial sensor is mounted
physics   a force by a law, motors whose strength changes with time
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from isthmus.real2sim.diagnose.extended_parameters import ExtendedParameters
from isthmus.real2sim.diagnose.laplace_evidence import Hypothesis
from isthmus.real2sim.prepare.segments import Segments
from isthmus.real2sim.residual.prior import MAX_ABS_Z, GaussianPrior
from isthmus.world import Target

OUTSIDE_STDS, MAX_OUTSIDE_STDS = 3.0, 9.0
"""How far outside a number may well be, and is at most, in spreads of the belief."""
DRIFT_MODES = 3
"""Slow waves that a drift is made of."""
BIAS_SUFFIX, DRIFT_SUFFIX = " bias", " drift"
"""Ends of names."""
STRENGTH_CHANGE_STD = 0.5
"""How much a motor's strength may well change, in unconstrained coordinates."""


def all_hypotheses(
    extended: ExtendedParameters, prior: GaussianPrior, belief_bounds: np.ndarray, segments: Segments
) -> list[Hypothesis]:
    """All of them; `ends`, (d, 2), are those of the belief."""
    found = (
        *outside_hypotheses(extended, prior, belief_bounds, segments),
        *sensor_hypotheses(extended, segments),
        *physics_hypotheses(extended, segments),
    )
    # A signal that never moves and whose unit says nothing has no size by which its errors could be told.
    return [b for b in found if (b.spread > 0).all()]


def sensor_parameters(extended: ExtendedParameters) -> frozenset[str]:
    """Numbers that are errors of sensors."""
    space = extended.robot.space
    return frozenset(n for n in extended.names if any(Target.parse(t).kind == "signal" for t in space[n].targets))


def outside_hypotheses(
    extended: ExtendedParameters, prior: GaussianPrior, belief_bounds: np.ndarray, segments: Segments
) -> Iterator[Hypothesis]:
    signals = sensor_parameters(extended)
    for i, name in enumerate(extended.names):
        if name not in signals:
            along = np.zeros((1, len(segments), len(extended)))
            along[0, :, i] = 1.0
            # Where the belief ends with what is possible, there is nothing beyond it.
            far = MAX_OUTSIDE_STDS * prior.std[i]
            least = 0.0 if belief_bounds[i, 0] <= -MAX_ABS_Z else -far
            most = 0.0 if belief_bounds[i, 1] >= MAX_ABS_Z else far
            if most > least:  # a twin's normal belief excludes nothing, so nothing is outside of it
                yield Hypothesis("outside", name, along, np.array([OUTSIDE_STDS * prior.std[i]]), least, most)


def sensor_hypotheses(extended: ExtendedParameters, segments: Segments) -> Iterator[Hypothesis]:
    _, bias, gain, tilt, _ = extended.slices
    contract, waves = extended.robot.contract, slow_modes(segments)
    for signal, where in contract.slices().items():
        columns = np.arange(bias.start + where.start, bias.start + where.stop)
        yield _hypothesis(extended, segments, signal + BIAS_SUFFIX, [(c, np.ones(len(segments))) for c in columns])
        if waves.any():
            yield _hypothesis(
                extended, segments, signal + DRIFT_SUFFIX, [(c, w) for c in columns for w in (waves[0] * 0 + 1, *waves)]
            )
    for name, column in zip(extended.gain_signals, range(gain.start, gain.stop), strict=True):
        yield _hypothesis(extended, segments, f"{name} gain", [(column, np.ones(len(segments)))])
    if extended.tilt_signals:
        yield _hypothesis(extended, segments, "imu tilt", [(c, np.ones(len(segments))) for c in range(tilt.start, tilt.stop)])


def is_drift_of(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether one is the drift of a signal, and the other its bias."""
    return one.name.endswith(DRIFT_SUFFIX) and other.name == one.name.removesuffix(DRIFT_SUFFIX) + BIAS_SUFFIX


def physics_hypotheses(extended: ExtendedParameters, segments: Segments) -> Iterator[Hypothesis]:
    force = extended.slices[4]
    groups: dict[str, list[int]] = {}
    for i, law in enumerate(extended.force_laws):
        groups.setdefault(law.name.split(" along ")[0], []).append(force.start + i)
    for name, columns in groups.items():
        block = _hypothesis(extended, segments, name, [(c, np.ones(len(segments))) for c in columns], "physics")
        yield replace(block, low=-np.inf if name == "pull" else 0.0)
    space = extended.robot.space
    strong = [
        i for i, n in enumerate(extended.names)
        if any((t := Target.parse(text)).kind == "motor" and t.field == "strength" for text in space[n].targets)
    ]  # fmt: skip
    time = elapsed_share(segments)
    if strong and np.ptp(time) > 0:
        along = np.zeros((1, len(segments), len(extended)))
        along[0][:, strong] = -time[:, None]
        yield Hypothesis("physics", "fading strength", along, np.array([STRENGTH_CHANGE_STD]), low=0.0)


def _hypothesis(
    extended: ExtendedParameters, segments: Segments, name: str, terms: list[tuple[int, np.ndarray]], cause: str = "sensor"
) -> Hypothesis:
    along = np.zeros((len(terms), len(segments), len(extended)))
    for i, (column, course) in enumerate(terms):
        along[i, :, column] = course
    return Hypothesis(cause, name, along, np.array([extended.std[c] for c, _ in terms]))


def elapsed_share(segments: Segments) -> np.ndarray:
    """(S,) from 0 at the first piece of each recording to 1 at the end of the longest."""
    first = np.array([segments.start[segments.recording == r].min() for r in segments.recording])
    time = segments.start - first
    return time / max(float(time.max()), 1e-9)


def slow_modes(segments: Segments) -> np.ndarray:
    """(MODES, S) waves of half a period, one, and so on, over a recording; 0 where there are too few pieces to see any."""
    time = elapsed_share(segments)
    if len(segments) < 2 * DRIFT_MODES or np.ptp(time) == 0:
        return np.zeros((DRIFT_MODES, len(segments)))
    return np.stack([np.cos(np.pi * (k + 1) * time) for k in range(DRIFT_MODES)])
