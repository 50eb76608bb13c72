"""Recordings of a simulated robot whose numbers are known: what a fit should find is planted first.

The robot is the same model that the fit uses, with its sensors' noise. What differs is e alone.
"""

from __future__ import annotations

import numpy as np

from isthmus.data.contract import Law
from isthmus.data.episode import Episode
from isthmus.sim.engine import Engine
from isthmus.sim.robot import Robot

SLOWEST, FASTEST = 0.3, 3.0
"""Hz of the waves."""
WAVES = 3
"""Per component of the target."""


def waves(robot: Robot, seconds: float, seed: int = 0, size: float = 0.3) -> np.ndarray:
    """Targets that wander about the default, (T, m), by up to `size` of their range."""
    rng, target = np.random.default_rng(seed), robot.contract.target
    t = np.arange(round(seconds * robot.contract.rate)) / robot.contract.rate
    room = size * (np.array(target.high) - np.array(target.low))
    return np.array(robot.default) + room * sum(
        np.sin(2 * np.pi * rng.uniform(SLOWEST, FASTEST, target.size) * t[:, None] + rng.uniform(0, 6, target.size)) / WAVES
        for _ in range(WAVES)
    )


def record(robot: Robot, e: np.ndarray, targets: np.ndarray, seed: int | None = None, law: Law | None = None) -> Episode:
    """What the robot with the values e would have recorded under targets, (T, m); without a seed its sensors have no noise.

    A `law` is feedback on what the sensors say, added to the targets: what does not stay where it is needs one.
    """
    contract = robot.contract
    engine, rng = Engine(robot, 1, threads=1), np.random.default_rng(seed or 0)
    engine.apply(e[None], engine.all)
    engine.reset(engine.all)
    low, high = np.array(contract.target.low or [-np.inf]), np.array(contract.target.high or [np.inf])
    gain = _gain(robot, law)
    rows, sent = [], []
    for wanted in targets:
        y = engine.noiseless()[0] if seed is None else engine.measured(rng)[0]
        u = wanted if law is None else np.clip(wanted + np.array(law.constant) + gain @ y, low, high)
        rows.append(y)
        sent.append(u)
        engine.step(u[None])
    y, target = np.array(rows, float), np.array(sent, float)
    signals = {name: y[:, where] for name, where in contract.slices().items()}
    return Episode(contract, np.arange(len(y)) / contract.rate, signals, target, target)


def _gain(robot: Robot, law: Law | None) -> np.ndarray:
    """(m, width) of the law."""
    slices = robot.contract.slices()
    out = np.zeros((robot.contract.target.size, sum(s.size for s in robot.contract.signals)))
    for name, rows in (law.gains if law else {}).items():
        out[:, slices[name]] = rows
    return out
