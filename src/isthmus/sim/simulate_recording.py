"""Recordings of a simulated robot whose numbers are known: what a fit should find is planted first.

The robot is the same model that the fit uses, with its sensors' noise. What differs is e alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isthmus.data.contract import AffineFeedback
from isthmus.data.episode import Episode
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation

MIN_FREQUENCY, MAX_FREQUENCY = 0.3, 3.0
"""Hz of the waves."""
SINES_PER_COMPONENT = 3
"""Per component of the target."""

Driver = Callable[[int, np.ndarray], np.ndarray]
"""Targets (n, m) at a tick, from the signals, (n, width)."""


def random_multisine(robot: Robot, seconds: float, seed: int = 0, size: float = 0.3) -> np.ndarray:
    """Targets that wander about the default, (T, m), by up to `size` of their range."""
    rng, target = np.random.default_rng(seed), robot.contract.target
    t = np.arange(round(seconds * robot.contract.rate)) / robot.contract.rate
    room = size * (np.array(target.high) - np.array(target.low))
    return np.array(robot.default) + room * sum(
        np.sin(2 * np.pi * rng.uniform(MIN_FREQUENCY, MAX_FREQUENCY, target.size) * t[:, None] + rng.uniform(0, 6, target.size))
        / SINES_PER_COMPONENT
        for _ in range(SINES_PER_COMPONENT)
    )


def record_targets(
    robot: Robot, e: np.ndarray, targets: np.ndarray, seed: int | None = None, feedback: AffineFeedback | None = None
) -> Episode:
    """What the robot with the values e would have recorded under targets, (T, m); without a seed its sensors have no noise.

    A `law` is feedback on what the sensors say, added to the targets: what does not stay where it is needs one.
    """
    drive = with_feedback(robot, targets, feedback) if feedback is not None else lambda tick, y: targets[tick][None]
    return record_driver(robot, e, drive, len(targets), None if seed is None else np.random.default_rng(seed))


def record_driver(robot: Robot, e: np.ndarray, drive: Driver, ticks: int, rng: np.random.Generator | None = None) -> Episode:
    """The same under whatever drives it, from home and at rest."""
    engine = Simulation(robot, 1, threads=1)
    engine.apply(e[None], engine.all_ids)
    engine.reset(engine.all_ids)
    return record_engine(engine, drive, ticks, rng)


def record_engine(engine: Simulation, drive: Driver, ticks: int, rng: np.random.Generator | None = None) -> Episode:
    """What the one world of an engine records while it is driven, from where it is; without `rng` its sensors have no noise."""
    contract = engine.robot.contract
    rows, sent = [], []
    for tick in range(ticks):
        y = engine.noiseless_signals() if rng is None else engine.signals(rng)
        u = drive(tick, y)
        rows.append(y[0])
        sent.append(u[0])
        engine.step(u)
    y, target = np.array(rows, float), np.array(sent, float)
    signals = {name: y[:, where] for name, where in contract.slices().items()}
    return Episode(contract, np.arange(ticks) / contract.rate, signals, target, target)


def with_feedback(robot: Robot, targets: np.ndarray, feedback: AffineFeedback) -> Driver:
    """Targets (T, m), with a law's answer to what the sensors say added, inside the limits."""
    contract, slices = robot.contract, robot.contract.slices()
    low, high = np.array(contract.target.low or [-np.inf]), np.array(contract.target.high or [np.inf])
    gain = np.zeros((contract.target.size, sum(s.size for s in contract.signals)))
    for name, rows in feedback.gains.items():
        gain[:, slices[name]] = rows
    return lambda tick, y: np.clip(targets[tick] + np.array(feedback.constant) + y @ gain.T, low, high)
