"""Delay in both directions between the policy and the robot, per world, finer than a control tick.

Delays are continuous: within a physics step the motor sees the mean of the old and the new target, and a late
signal is interpolated between two steps, so that a fit can take derivatives with respect to them.
"""

from __future__ import annotations

import numpy as np


def target_history_length(max_delay: float, substeps: int, dt: float) -> int:
    """How many past targets a delay of up to `longest` seconds needs."""
    return 2 + int(np.ceil(max_delay / dt / substeps - 1e-9))


def signal_history_length(max_delay: float, dt: float) -> int:
    """How many past physics steps of signals a delay of up to `longest` seconds needs."""
    return 2 + int(np.ceil(max_delay / dt - 1e-9))


def target_in_force(sent: np.ndarray, delay: np.ndarray, substep: int, substeps: int, dt: float) -> np.ndarray:
    """Targets in force during one physics step, (n, m), of targets sent, (n, kept, m), newest first."""
    return mean_target(sent, *arrival(delay, substep, substeps, dt))


def arrival(delay: np.ndarray, substep: int, substeps: int, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """How many targets before the newest a physics step begins with, (n,), and the part of it that has the next, (n, 1)."""
    start = substep - delay / dt
    tick = np.floor(start / substeps + 1e-12)
    return (-tick).astype(int), np.clip(start + 1.0 - (tick + 1.0) * substeps, 0.0, 1.0)[:, None]


def mean_target(sent: np.ndarray, ticks_back: np.ndarray, fraction_new: np.ndarray) -> np.ndarray:
    """Targets in force during one physics step, (n, m), by its `arrival`."""
    rows = np.arange(len(sent))
    old = sent[rows, ticks_back]
    return old + fraction_new * (sent[rows, np.maximum(ticks_back - 1, 0)] - old)


def read_late(ring: np.ndarray, newest: np.ndarray, delay: np.ndarray, dt: float) -> np.ndarray:
    """Signals as old as each world's delay, (n, width), from a ring of past steps, (n, kept, width).

    `newest` is the slot of each world's present, (n,).
    """
    kept, rows = ring.shape[1], np.arange(len(ring))
    steps = np.floor(delay / dt + 1e-12)
    older = np.maximum(delay / dt - steps, 0.0)[:, None]
    slot = newest - steps.astype(int)
    near, far = ring[rows, slot % kept], ring[rows, (slot - 1) % kept]
    return near + older * (far - near)
