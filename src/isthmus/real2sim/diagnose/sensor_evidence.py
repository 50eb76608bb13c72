"""Sensors by kinematics alone: a velocity is how a position changes, in the long run exactly.

An observer that is corrected by a sensor believes it; this does not need to.

    d        mean of a velocity less the change of what it is the velocity of, in one stretch after the other
    offset   d has a mean, or wanders (`wander`)
    spread   d varies more than the noise of both sensors allows: one of them wanders quickly, or has another scale
    gain     a velocity is always so many times the change
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.real2sim.diagnose.accelerometer import accelerometer_bias
from isthmus.real2sim.diagnose.bias_random_walk import (
    MIN_STRETCHES,
    STRETCH_SECONDS,
    bias_evidence,
    stretch_means,
    stretch_ticks,
)
from isthmus.real2sim.diagnose.extended_parameters import SENSOR_BIAS_STD
from isthmus.real2sim.diagnose.frames import (
    RATE_SPAN_TICKS,
    SIMPSON_WEIGHTS,
    body_position_velocity_signals,
    mean_rates,
    rotation_between,
)
from isthmus.real2sim.diagnose.laplace_evidence import MIN_AMOUNT
from isthmus.real2sim.diagnose.sensor_noise import MAX_NOISE_RATIO, quiet_noise
from isthmus.real2sim.prepare.kinematics import body_signals
from isthmus.real2sim.prepare.tracks import Track
from isthmus.sim.robot import Robot

USUAL_SPREAD_RATIO = 1.5
"""Times what the noise allows: a mean of few samples is not quite that of a velocity."""
GAIN_ERROR_STD, USUAL_GAIN_STD = 0.2, 0.05
"""By how much a sensor's scale may well be wrong, and is where nothing is: a velocity is not the same everywhere in a tick."""
MAX_GAIN_RATIO = 2.0
"""A larger factor is that of a unit."""
MAX_NOISE_POWER_SHARE = 0.1
"""Share of a velocity's power that may be noise, for a gain to be told."""


@dataclass(frozen=True)
class SensorError:
    text: str
    evidence: float
    """Log."""


def sensor_errors(robot: Robot, tracks: Sequence[Track]) -> Iterator[SensorError]:
    """Of all pairs of a position and its velocity, and of an accelerometer with gravity."""
    known = body_signals(robot)
    if "accel" in known and "quat" in known:
        text = f"{known['accel']} does not average to gravity, by the attitude that {known['quat']} tells"
        yield SensorError(text, accelerometer_bias(robot, tracks).log_evidence)
    for place, speed in position_velocity_signals(robot):
        size = SENSOR_BIAS_STD.get(robot.contract[speed].unit)
        parts = [part for track in tracks if len(part := mean_rate_differences(robot, track, place, speed)) >= MIN_STRETCHES]
        if size is not None and parts:
            least = np.full(robot.contract[speed].size, MIN_AMOUNT * size)
            evidence = np.sum([bias_evidence(part, size, least) for part in parts], axis=0)
            if place != known.get("quat"):
                # A turn is made of small ones, whose errors are not those of noise alone.
                evidence += excess_spread_evidence(np.concatenate(parts), expected_spread(robot, tracks, place, speed))
            text = f"{speed} does not agree with how {place} changes"
            yield SensorError(text, float(np.maximum(evidence, 0.0).sum() - np.log(len(evidence))))
        times, sigma = velocity_gain(robot, tracks, place, speed)
        if sigma > 0.0:
            yield SensorError(f"{speed} is {times:.2f} times how {place} changes", gain_evidence(times, sigma))


def position_velocity_signals(robot: Robot) -> Iterator[tuple[str, str]]:
    """Names of signals that are a position and its velocity."""
    sources = robot.sources
    yield from body_position_velocity_signals(robot)
    for a in robot.contract.signals:
        for b in robot.contract.signals:
            if (sources[a.name], sources[b.name]) == ("qpos", "qvel") and a.labels == b.labels:
                yield a.name, b.name


def mean_rate_differences(robot: Robot, track: Track, position: str, velocity: str) -> np.ndarray:
    """d, (n, components); those in which something was not measured are left out."""
    at, rate = robot.contract.slices(), robot.contract.rate
    p, v = track.measured[:, at[position]], track.measured[:, at[velocity]]
    if len(v) <= stretch_ticks(rate):
        return np.zeros((0, v.shape[1]))
    change = np.diff(p, axis=0)
    if position == body_signals(robot).get("quat"):
        over_two = rotation_between(p[:-2], p[1:-1], p[2:]) / 2.0
        change = np.concatenate([over_two[:1], over_two])
    d = stretch_means(0.5 * (v[1:] + v[:-1]) - change * rate, rate)
    return d[np.isfinite(d).all(1)]


def excess_spread_evidence(d: np.ndarray, sigma: float) -> np.ndarray:
    """(components,) evidence that d, (n, components), varies more than it usually does where noise makes σ of it."""
    r = np.clip(d.std(0) / (USUAL_SPREAD_RATIO * max(sigma, 1e-12)), 1.0, MAX_NOISE_RATIO)
    return len(d) * (np.log(r) - 0.5 * (1.0 - r**-2.0))


def expected_spread(robot: Robot, tracks: Sequence[Track], position: str, velocity: str) -> float:
    """σ of d by the noise of both sensors."""
    at = robot.contract.slices()
    p, v = (quiet_noise([track.measured[:, at[name]] for track in tracks]) for name in (position, velocity))
    return float(np.sqrt(2.0 * (p / STRETCH_SECONDS) ** 2 + v**2 / stretch_ticks(robot.contract.rate)))


def velocity_gain(robot: Robot, tracks: Sequence[Track], position: str, velocity: str) -> tuple[float, float]:
    """How many times the change a velocity is, and how uncertain that is; 0 where nothing moves enough.

    One of them may come a tick later than the other.
    """
    at, tick, attitude = robot.contract.slices(), 1.0 / robot.contract.rate, position == body_signals(robot).get("quat")
    # The noise of a velocity makes it larger and tells nothing.
    noise = quiet_noise([track.measured[:, at[velocity]] for track in tracks]) ** 2 * (SIMPSON_WEIGHTS**2).sum()
    tried = [(1.0, 0.0, 0.0)]
    for late in (-1, 0, 1) if tracks else ():
        said, done = [], []
        for track in tracks:
            p, v = track.measured[:, at[position]], track.measured[:, at[velocity]]
            p, v = p[max(-late, 0) : len(p) - max(late, 0)], v[max(late, 0) : len(v) - max(-late, 0)]
            mean, change = mean_rates(p, v, tick, attitude)
            said.append(mean)
            done.append(change)
        tried.append(_gain_estimate(np.concatenate(said), np.concatenate(done), noise))
    times, sigma, _ = max(tried, key=lambda one: one[2])
    return times, sigma


def _gain_estimate(velocity: np.ndarray, change: np.ndarray, noise: float) -> tuple[float, float, float]:
    """The gain, its uncertainty, and how much both go together."""
    seen = np.isfinite(velocity).all(1) & np.isfinite(change).all(1)
    velocity, change = (x[seen] - x[seen].mean(0) if seen.any() else x[:0] for x in (velocity, change))
    power, shared = float((velocity**2).sum()), float((velocity * change).sum())
    if (
        len(velocity) < MIN_STRETCHES * RATE_SPAN_TICKS * RATE_SPAN_TICKS
        or not noise * velocity.size < MAX_NOISE_POWER_SHARE * power
        or shared <= 0.0
    ):
        return 1.0, 0.0, 0.0
    alike = shared / np.sqrt(power * float((change**2).sum()))
    power -= noise * velocity.size
    left = change - velocity * shared / power
    return power / shared, float(np.sqrt(RATE_SPAN_TICKS * (left**2).sum() / (velocity.size * power))) * power / shared, alike


def gain_evidence(gain: float, sigma: float) -> float:
    """Log evidence that a gain, σ, is that of a wrong scale; one of another unit is not."""
    if not 1.0 / MAX_GAIN_RATIO < gain < MAX_GAIN_RATIO:
        return 0.0
    right, wrong = (sigma**2 + s**2 for s in (USUAL_GAIN_STD, GAIN_ERROR_STD))
    return 0.5 * float((gain - 1.0) ** 2 * (1 / right - 1 / wrong) - np.log(wrong / right))
