"""Healthy recordings, and how to spoil them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from isthmus.data.episode import Episode
from isthmus.real2sim.prepare.checks.recording_checks import check
from isthmus.robots import get_robot
from isthmus.sim.reality.tables import Faults
from isthmus.sim.reality.wiring_faults import WiringFaults
from isthmus.sim.simulate_recording import random_multisine
from isthmus.sim.simulation import Simulation

RNG = np.random.default_rng
DEG = 180.0 / np.pi
robot_of = cache(get_robot)


def hovering(robot, y: np.ndarray, wave: np.ndarray) -> np.ndarray:
    """A crazyflie's own levelling law, held at its height, with a wave on top."""
    at, law = robot.contract.slices(), robot.contract.safety.level
    u = np.array(law.constant) + sum(np.array(g) @ y[at[name]] for name, g in law.gains.items())
    return u + 0.02 * (1.5 - y[at["position"]][2]) - 0.02 * y[at["velocity"]][2] + wave


@cache
def healthy(name: str, seed: int, seconds: float = 8.0, size: float = 0.5) -> Episode:
    """A recording in a world drawn from the prior, with waves as targets, inside the limits as a guard has them."""
    robot = robot_of(name)
    wave, default = random_multisine(robot, seconds, seed), np.array(robot.default)
    low, high = np.array(robot.contract.target.low), np.array(robot.contract.target.high)
    engine, rng, rows, sent = Simulation(robot, 1, threads=1), RNG(seed), [], []
    engine.apply(robot.prior.sample(RNG(seed), 1), engine.all_ids)
    engine.reset(engine.all_ids)
    for w in wave - default:
        y = engine.signals(rng)[0].astype(float)
        u = hovering(robot, y, 0.2 * size * w) if name == "crazyflie" else default + size * w
        rows.append(y)
        sent.append(np.clip(u, low, high))
        engine.step(sent[-1][None])
    y, u = np.array(rows), np.array(sent)
    signals = {signal: y[:, where] for signal, where in robot.contract.slices().items()}
    return Episode(robot.contract, np.arange(len(y)) / robot.contract.rate, signals, u, u)


def with_signals(episode: Episode, **changes: Callable[[np.ndarray], np.ndarray]) -> Episode:
    """The episode with some signals changed."""
    return replace(episode, signals={n: changes.get(n, lambda v: v)(v.copy()) for n, v in episode.signals.items()})


def wired(episode: Episode, **faults) -> Episode:
    """The signals, but not the targets, as a robot with faulty wires sends them."""
    contract = episode.contract
    y = np.concatenate([episode.signals[s.name] for s in contract.signals], axis=1)
    sent = WiringFaults(Faults(**faults), contract).signals(y)
    return replace(episode, signals={name: sent[:, where] for name, where in contract.slices().items()})


def label(name: str, change: Callable[[np.ndarray], np.ndarray], signal: str, which: str):
    """Change one component."""

    def changed(v: np.ndarray) -> np.ndarray:
        i = robot_of(name).contract[signal].component_index(which)
        v[:, i] = change(v[:, i])
        return v

    return changed


def swapped(i: int, j: int):
    def change(v: np.ndarray) -> np.ndarray:
        v = v.copy()
        v[:, [i, j]] = v[:, [j, i]]
        return v

    return change


def found(name: str, episode: Episode) -> list[tuple[str, str, str, bool]]:
    return [(f.kind, f.signal, f.label, f.refused) for f in check(robot_of(name), [episode])]
