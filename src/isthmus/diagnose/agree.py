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

from isthmus.diagnose.doubts import SENSOR_ERROR
from isthmus.diagnose.explain import MATERIAL
from isthmus.diagnose.felt import felt
from isthmus.diagnose.noise import STRONG, quietest
from isthmus.diagnose.turned import MEAN, SPAN, in_space, rates, turn
from isthmus.diagnose.wander import FEWEST, STRETCH, offset, stretch, stretched
from isthmus.gap.suspect.kin import spatial
from isthmus.gap.tracks import Track
from isthmus.sim.robot import Robot

USUAL = 1.5
"""Times what the noise allows: a mean of few samples is not quite that of a velocity."""
SCALE, ROUGHLY = 0.2, 0.05
"""By how much a sensor's scale may well be wrong, and is where nothing is: a velocity is not the same everywhere in a tick."""
UNIT = 2.0
"""A larger factor is that of a unit."""
QUIET = 0.1
"""Share of a velocity's power that may be noise, for a gain to be told."""


@dataclass(frozen=True)
class Disagreement:
    text: str
    evidence: float
    """Log."""


def disagreements(robot: Robot, found: Sequence[Track]) -> Iterator[Disagreement]:
    """Of all pairs of a position and its velocity, and of an accelerometer with gravity."""
    known = spatial(robot)
    if "accel" in known and "quat" in known:
        text = f"{known['accel']} does not average to gravity, by the attitude that {known['quat']} tells"
        yield Disagreement(text, felt(robot, found).unusual)
    for place, speed in pairs(robot):
        size = SENSOR_ERROR.get(robot.contract[speed].unit)
        parts = [part for track in found if len(part := stretches(robot, track, place, speed)) >= FEWEST]
        if size is not None and parts:
            least = np.full(robot.contract[speed].size, MATERIAL * size)
            evidence = np.sum([offset(part, size, least) for part in parts], axis=0)
            if place != known.get("quat"):
                # A turn is made of small ones, whose errors are not those of noise alone.
                evidence += spread(np.concatenate(parts), allowed(robot, found, place, speed))
            text = f"{speed} does not agree with how {place} changes"
            yield Disagreement(text, float(np.maximum(evidence, 0.0).sum() - np.log(len(evidence))))
        times, sigma = gain(robot, found, place, speed)
        if sigma > 0.0:
            yield Disagreement(f"{speed} is {times:.2f} times how {place} changes", scaled(times, sigma))


def pairs(robot: Robot) -> Iterator[tuple[str, str]]:
    """Names of signals that are a position and its velocity."""
    sources = robot.sources
    yield from in_space(robot)
    for a in robot.contract.signals:
        for b in robot.contract.signals:
            if (sources[a.name], sources[b.name]) == ("qpos", "qvel") and a.labels == b.labels:
                yield a.name, b.name


def stretches(robot: Robot, track: Track, place: str, speed: str) -> np.ndarray:
    """d, (n, components); those in which something was not measured are left out."""
    at, rate = robot.contract.slices(), robot.contract.rate
    p, v = track.measured[:, at[place]], track.measured[:, at[speed]]
    if len(v) <= stretch(rate):
        return np.zeros((0, v.shape[1]))
    change = np.diff(p, axis=0)
    if place == spatial(robot).get("quat"):
        over_two = turn(p[:-2], p[1:-1], p[2:]) / 2.0
        change = np.concatenate([over_two[:1], over_two])
    d = stretched(0.5 * (v[1:] + v[:-1]) - change * rate, rate)
    return d[np.isfinite(d).all(1)]


def spread(d: np.ndarray, sigma: float) -> np.ndarray:
    """(components,) evidence that d, (n, components), varies more than it usually does where noise makes σ of it."""
    r = np.clip(d.std(0) / (USUAL * max(sigma, 1e-12)), 1.0, STRONG)
    return len(d) * (np.log(r) - 0.5 * (1.0 - r**-2.0))


def allowed(robot: Robot, found: Sequence[Track], place: str, speed: str) -> float:
    """σ of d by the noise of both sensors."""
    at = robot.contract.slices()
    p, v = (quietest([track.measured[:, at[name]] for track in found]) for name in (place, speed))
    return float(np.sqrt(2.0 * (p / STRETCH) ** 2 + v**2 / stretch(robot.contract.rate)))


def gain(robot: Robot, found: Sequence[Track], place: str, speed: str) -> tuple[float, float]:
    """How many times the change a velocity is, and how uncertain that is; 0 where nothing moves enough.

    One of them may come a tick later than the other.
    """
    at, tick, attitude = robot.contract.slices(), 1.0 / robot.contract.rate, place == spatial(robot).get("quat")
    # The noise of a velocity makes it larger and tells nothing.
    noise = quietest([track.measured[:, at[speed]] for track in found]) ** 2 * (MEAN**2).sum()
    tried = [(1.0, 0.0, 0.0)]
    for late in (-1, 0, 1) if found else ():
        said, done = [], []
        for track in found:
            p, v = track.measured[:, at[place]], track.measured[:, at[speed]]
            p, v = p[max(-late, 0) : len(p) - max(late, 0)], v[max(late, 0) : len(v) - max(-late, 0)]
            mean, change = rates(p, v, tick, attitude)
            said.append(mean)
            done.append(change)
        tried.append(_gain(np.concatenate(said), np.concatenate(done), noise))
    times, sigma, _ = max(tried, key=lambda one: one[2])
    return times, sigma


def _gain(said: np.ndarray, done: np.ndarray, noise: float) -> tuple[float, float, float]:
    """The gain, its uncertainty, and how much both go together."""
    seen = np.isfinite(said).all(1) & np.isfinite(done).all(1)
    said, done = (x[seen] - x[seen].mean(0) if seen.any() else x[:0] for x in (said, done))
    power, shared = float((said**2).sum()), float((said * done).sum())
    if len(said) < FEWEST * SPAN * SPAN or not noise * said.size < QUIET * power or shared <= 0.0:
        return 1.0, 0.0, 0.0
    alike = shared / np.sqrt(power * float((done**2).sum()))
    power -= noise * said.size
    left = done - said * shared / power
    return power / shared, float(np.sqrt(SPAN * (left**2).sum() / (said.size * power))) * power / shared, alike


def scaled(times: float, sigma: float) -> float:
    """Log evidence that a gain, σ, is that of a wrong scale; one of another unit is not."""
    if not 1.0 / UNIT < times < UNIT:
        return 0.0
    right, wrong = (sigma**2 + s**2 for s in (ROUGHLY, SCALE))
    return 0.5 * float((times - 1.0) ** 2 * (1 / right - 1 / wrong) - np.log(wrong / right))
