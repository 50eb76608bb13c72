"""Sensors by kinematics alone: a velocity is how a position changes, in the long run exactly.

An observer that is corrected by a sensor believes it; this does not need to.

    d        mean of a velocity less the change of what it is the velocity of, in one stretch after the other
    offset   d has a mean, or wanders: log-likelihood of d ~ N(0, s² I + b² 1 1ᵀ + w² K), K that of a random walk, against that
             of a bias too small to matter; s from how stretches that follow each other differ
    spread   d varies more than the noise of both sensors allows: one of them wanders quickly, or has another scale
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.diagnose.doubts import SENSOR_ERROR
from isthmus.diagnose.explain import MATERIAL
from isthmus.diagnose.noise import STRONG, quietest
from isthmus.diagnose.turned import turn
from isthmus.gap.suspect.kin import spatial
from isthmus.gap.tracks import Track
from isthmus.sim.robot import Robot

STRETCH = 25
"""Ticks."""
FEWEST = 6
"""Stretches from which on there is something to tell."""
WALKS = 0.3
"""Of the bias that a sensor may well have: how far it may well wander in 1 s."""
USUAL = 1.5
"""Times what the noise allows: a mean of few samples is not quite that of a velocity."""


@dataclass(frozen=True)
class Disagreement:
    place: str
    speed: str
    evidence: float
    """Log."""

    @property
    def text(self) -> str:
        return f"{self.speed} does not agree with how {self.place} changes"


def disagreements(robot: Robot, found: Sequence[Track]) -> Iterator[Disagreement]:
    """Of all pairs of a position and its velocity."""
    tick = 1.0 / robot.contract.rate
    for place, speed in pairs(robot):
        size = SENSOR_ERROR.get(robot.contract[speed].unit)
        parts = [part for track in found if len(part := stretches(robot, track, place, speed)) >= FEWEST]
        if size is not None and parts:
            evidence = np.sum([offset(part, size, STRETCH * tick) for part in parts], axis=0)
            if place != spatial(robot).get("quat"):
                # A turn is made of small ones, whose errors are not those of noise alone.
                evidence += spread(np.concatenate(parts), allowed(robot, found, place, speed))
            yield Disagreement(place, speed, float(np.maximum(evidence, 0.0).sum() - np.log(len(evidence))))


def pairs(robot: Robot) -> Iterator[tuple[str, str]]:
    """Names of signals that are a position and its velocity."""
    known, sources = spatial(robot), robot.sources
    yield from ((known[p], known[v]) for p, v in (("quat", "angvel"), ("pos", "linvel")) if p in known and v in known)
    for a in robot.contract.signals:
        for b in robot.contract.signals:
            if (sources[a.name], sources[b.name]) == ("qpos", "qvel") and a.labels == b.labels:
                yield a.name, b.name


def stretches(robot: Robot, track: Track, place: str, speed: str) -> np.ndarray:
    """d, (n, components); those in which something was not measured are left out."""
    at, rate = robot.contract.slices(), robot.contract.rate
    p, v = track.measured[:, at[place]], track.measured[:, at[speed]]
    if len(v) <= STRETCH:
        return np.zeros((0, v.shape[1]))
    change = np.diff(p, axis=0)
    if place == spatial(robot).get("quat"):
        over_two = turn(p[:-2], p[1:-1], p[2:]) / 2.0
        change = np.concatenate([over_two[:1], over_two])
    d = 0.5 * (v[1:] + v[:-1]) - change * rate
    n = len(d) // STRETCH
    d = d[: n * STRETCH].reshape(n, STRETCH, -1).mean(1)
    return d[np.isfinite(d).all(1)]


def offset(d: np.ndarray, size: float, seconds: float) -> np.ndarray:
    """(components,) evidence that d, (n, components), is off by a bias of about `size`, or wanders; stretches of `seconds`."""
    n, noise = len(d), 0.5 * (np.diff(d, axis=0) ** 2).mean(0) + 1e-12
    passed = seconds * np.arange(1, n + 1)
    walk = np.minimum(passed[:, None], passed)

    def likely(y: np.ndarray, s2: float, bias: float, wanders: float) -> float:
        C = s2 * np.eye(n) + bias**2 + wanders**2 * walk
        return -0.5 * float(y @ np.linalg.solve(C, y) + np.linalg.slogdet(C)[1])

    return np.array([
        max(likely(y, s2, size, 0.0), likely(y, s2, size, WALKS * size)) - likely(y, s2, MATERIAL * size, 0.0)
        for y, s2 in zip(d.T, noise, strict=True)
    ])  # fmt: skip


def spread(d: np.ndarray, sigma: float) -> np.ndarray:
    """(components,) evidence that d, (n, components), varies more than it usually does where noise makes σ of it."""
    r = np.clip(d.std(0) / (USUAL * max(sigma, 1e-12)), 1.0, STRONG)
    return len(d) * (np.log(r) - 0.5 * (1.0 - r**-2.0))


def allowed(robot: Robot, found: Sequence[Track], place: str, speed: str) -> float:
    """σ of d by the noise of both sensors."""
    at, seconds = robot.contract.slices(), STRETCH / robot.contract.rate
    p, v = (quietest([track.measured[:, at[name]] for track in found]) for name in (place, speed))
    return float(np.sqrt(2.0 * (p / seconds) ** 2 + v**2 / STRETCH))
