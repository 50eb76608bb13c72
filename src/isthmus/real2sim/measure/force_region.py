"""Whether a recording stays where a learned force was taught: inside its region the force acts, far outside it has faded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.core.statistics import Rate
from isthmus.real2sim.measure.behaviour import motor_torques
from isthmus.real2sim.prepare.savitzky_golay import SG_HALF_TICKS
from isthmus.real2sim.prepare.segments import StateReader
from isthmus.real2sim.prepare.tracks import Track
from isthmus.sim.physics.force_features import body_force_features, motor_force_features
from isthmus.sim.physics.learned_force import TRUST_FADE_RATIO, LearnedForce
from isthmus.sim.robot import Robot

MAX_TICKS = 2000
"""Ticks of all recordings that are looked at, at most."""


@dataclass(frozen=True)
class ForceRegionUse:
    kind: str
    names: tuple[str, ...]
    outside: Rate
    """Share of looks beyond the edge of the region, and beyond the distance at which the force has faded altogether."""
    silent: Rate
    furthest: tuple[tuple[int, float, float], ...]
    """Recording, second and distance in units of the edge; the furthest first."""


def force_region_use(robot: Robot, tracks: Sequence[Track]) -> list[ForceRegionUse]:
    """One per learned force of the robot's unit."""
    return [_one_force_region_use(robot, learned, tracks) for learned in robot.unit.learned_forces]


def _one_force_region_use(robot: Robot, learned: LearnedForce, tracks: Sequence[Track], max_listed: int = 10) -> ForceRegionUse:
    rows, every = [], max(1, sum(map(len, tracks)) // MAX_TICKS)
    for track in tracks:
        ticks = np.arange(SG_HALF_TICKS, len(track) - SG_HALF_TICKS, every)
        x = (_body_features if learned.kind == "body" else _motor_features)(robot, learned, track, ticks)
        distance = learned.net.region_distance(x).reshape(len(ticks), -1).max(1) if len(ticks) else np.zeros(0)
        rows += [
            (track.recording, track.start + t / robot.contract.rate, float(d)) for t, d in zip(ticks, distance, strict=True)
        ]
    rows = [r for r in rows if np.isfinite(r[2])]
    far = np.array([r[2] for r in rows])
    outside = sorted((r for r in rows if r[2] > 1.0), key=lambda r: -r[2])
    return ForceRegionUse(
        learned.kind,
        learned.names,
        Rate.from_counts(int((far > 1.0).sum()), len(far)),
        Rate.from_counts(int((far > TRUST_FADE_RATIO).sum()), len(far)),
        tuple(outside[:max_listed]),
    )


def _body_features(robot: Robot, learned: LearnedForce, track: Track, ticks: np.ndarray) -> np.ndarray:
    """(looks, features) with states guessed from the signals, and torques as the motors' law has them."""
    reader, states = body_force_features(robot, robot.model, learned.names), StateReader(robot)
    qpos, qvel = states.states(track.measured, ticks)
    torque, _, _ = motor_torques(robot, track.measured[None], track.target[None])
    return reader.read(qpos, qvel, torque[0, ticks])


def _motor_features(robot: Robot, learned: LearnedForce, track: Track, ticks: np.ndarray) -> np.ndarray:
    """(looks, motors, features): errors and speeds now and at moments of the past."""
    motors = list(motor_force_features(robot, learned, 1.0).motors)
    _, speed, angle = motor_torques(robot, track.measured[None], track.target[None])
    if speed is None or (angle is None and robot.motors.drive != "effort"):
        return np.full((len(ticks), len(motors), len(learned.net.mean)), np.nan)
    first = track.target if angle is None or robot.motors.drive == "effort" else track.target - angle[0]
    back = learned.stride * robot.contract.rate * np.arange(learned.lags + 1)
    rows = []
    for x in (first, speed[0]):
        at = ticks[:, None] - back
        rows.append(np.stack([np.interp(at, np.arange(len(x)), x[:, m]) for m in motors], axis=1))
    return np.concatenate(rows, axis=-1)
