"""Whether a recording stays where a learned force was taught: inside its region the force acts, far outside it has faded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.data.rate import Rate
from isthmus.gap.behaviour import motor_signals
from isthmus.gap.parabola import HALF
from isthmus.gap.segments import StateReader
from isthmus.gap.tracks import Track
from isthmus.sim.features import body_reader, motor_reader
from isthmus.sim.learned import FADE, Learned
from isthmus.sim.robot import Robot

LOOKS = 2000
"""Ticks of all recordings that are looked at, at most."""


@dataclass(frozen=True)
class Region:
    kind: str
    names: tuple[str, ...]
    outside: Rate
    """Share of looks beyond the edge of the region, and beyond the distance at which the force has faded altogether."""
    silent: Rate
    furthest: tuple[tuple[int, float, float], ...]
    """Recording, second and distance in units of the edge; the furthest first."""


def regions(robot: Robot, found: Sequence[Track]) -> list[Region]:
    """One per learned force of the robot's unit."""
    return [_region(robot, learned, found) for learned in robot.unit.learned]


def _region(robot: Robot, learned: Learned, found: Sequence[Track], most: int = 10) -> Region:
    rows, every = [], max(1, sum(map(len, found)) // LOOKS)
    for track in found:
        ticks = np.arange(HALF, len(track) - HALF, every)
        x = (_body if learned.kind == "body" else _motor)(robot, learned, track, ticks)
        distance = learned.net.distance(x).reshape(len(ticks), -1).max(1) if len(ticks) else np.zeros(0)
        rows += [
            (track.recording, track.start + t / robot.contract.rate, float(d)) for t, d in zip(ticks, distance, strict=True)
        ]
    rows = [r for r in rows if np.isfinite(r[2])]
    far = np.array([r[2] for r in rows])
    outside = sorted((r for r in rows if r[2] > 1.0), key=lambda r: -r[2])
    return Region(
        learned.kind,
        learned.names,
        Rate.of(int((far > 1.0).sum()), len(far)),
        Rate.of(int((far > FADE).sum()), len(far)),
        tuple(outside[:most]),
    )


def _body(robot: Robot, learned: Learned, track: Track, ticks: np.ndarray) -> np.ndarray:
    """(looks, features) with states guessed from the signals, and torques as the motors' law has them."""
    reader, states = body_reader(robot, robot.model, learned.names), StateReader(robot)
    qpos, qvel = states.at(track.measured, ticks)
    torque, _, _ = motor_signals(robot, track.measured[None], track.target[None])
    return reader.read(qpos, qvel, torque[0, ticks])


def _motor(robot: Robot, learned: Learned, track: Track, ticks: np.ndarray) -> np.ndarray:
    """(looks, motors, features): errors and speeds now and at moments of the past."""
    motors = list(motor_reader(robot, learned, 1.0).motors)
    _, speed, angle = motor_signals(robot, track.measured[None], track.target[None])
    if speed is None or (angle is None and robot.motors.drive != "effort"):
        return np.full((len(ticks), len(motors), len(learned.net.mean)), np.nan)
    first = track.target if angle is None or robot.motors.drive == "effort" else track.target - angle[0]
    back = learned.stride * robot.contract.rate * np.arange(learned.lags + 1)
    rows = []
    for x in (first, speed[0]):
        at = ticks[:, None] - back
        rows.append(np.stack([np.interp(at, np.arange(len(x)), x[:, m]) for m in motors], axis=1))
    return np.concatenate(rows, axis=-1)
