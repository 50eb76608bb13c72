"""What looks wrong in an imported episode: the mistakes that no unit and no name gives away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.data.clock_alignment import TickGrid
from isthmus.data.contract import Signal
from isthmus.data.episode import Episode

MIN_TICKS_CONSTANT = 10
"""Fewer say nothing about a column that does not change."""
UNIT_NORM_TOLERANCE = 0.02
"""Tolerance of the length of a unit quaternion."""


def import_warnings(episode: Episode, given: Mapping[str, Sequence[bool]], clock: TickGrid) -> Iterator[str]:
    """One sentence per finding; `given` says which components have a column at all."""
    signals = {s.name: (s, episode.signals[s.name]) for s in (*episode.contract.signals, *episode.operator)}
    target = episode.contract.target
    for name, (signal, values) in {**signals, "target": (target, episode.target), "wanted": (target, episode.wanted)}.items():
        if name not in given:
            continue
        yield from _limit_warnings(name, signal, values, clock)
        for i, label in enumerate(signal.labels):
            if given[name][i]:
                yield from _column_warnings(f"{name}.{label}", values[:, i], clock)
        if name == "quat" and signal.size == 4 and len(values):
            norm = np.linalg.norm(values, axis=1)
            off = np.flatnonzero(np.abs(norm - 1.0) > UNIT_NORM_TOLERANCE)
            if len(off):
                yield (
                    f"quat is not of length 1 in {len(off)} ticks, first {norm[off[0]]:.3g} at "
                    f"{clock.describe_tick(int(off[0]))}."
                )


@dataclass(frozen=True)
class LimitViolation:
    """A component that is outside its limit."""

    label: str
    side: str
    """`below` or `above`."""
    limit: float
    ticks: np.ndarray
    """Where."""
    worst: float


def limit_violations(signal: Signal, values: np.ndarray) -> Iterator[LimitViolation]:
    """Which of the values, (T, k), are outside the contract's limits."""
    for limits, side in ((signal.low, "below"), (signal.high, "above")):
        if not limits:
            continue
        excess = (np.array(limits) - values) if side == "below" else (values - np.array(limits))
        # Float32 recordings round a limit a little outward.
        out = excess > 1e-6 * np.maximum(1.0, np.abs(limits))
        for i in np.flatnonzero(out.any(axis=0)):
            ticks = np.flatnonzero(out[:, i])
            yield LimitViolation(signal.labels[i], side, limits[i], ticks, float(values[ticks[np.argmax(excess[ticks, i])], i]))


def is_constant(values: np.ndarray) -> bool:
    """Whether a component, (T,), never changes, as far as it is measured at all."""
    known = values[np.isfinite(values)]
    return len(known) >= MIN_TICKS_CONSTANT and bool(np.ptp(known) == 0.0)


def _limit_warnings(name: str, signal: Signal, values: np.ndarray, clock: TickGrid) -> Iterator[str]:
    for b in limit_violations(signal, values):
        yield (
            f"{name}.{b.label} is {b.side} the contract's limit of {b.limit:.4g} {signal.unit} in {len(b.ticks)} "
            f"ticks, up to {b.worst:.4g}, first at {clock.describe_tick(int(b.ticks[0]))}."
        )


def _column_warnings(name: str, values: np.ndarray, clock: TickGrid) -> Iterator[str]:
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        yield (
            f"{name} is missing or not finite in {len(bad)} of {len(values)} ticks, first at "
            f"{clock.describe_tick(int(bad[0]))}."
        )
    elif is_constant(values):
        yield f"{name} never changes: it is {values[0]:.4g} all the time."
