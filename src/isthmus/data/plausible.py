"""What looks wrong in an imported episode: the mistakes that no unit and no name gives away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.data.align import Clock
from isthmus.data.contract import Signal
from isthmus.data.episode import Episode

MIN_TICKS = 10
"""Fewer say nothing about a column that does not change."""
NORM = 0.02
"""Tolerance of the length of a unit quaternion."""


def warnings(episode: Episode, given: Mapping[str, Sequence[bool]], clock: Clock) -> Iterator[str]:
    """One sentence per finding; `given` says which components have a column at all."""
    signals = {s.name: (s, episode.signals[s.name]) for s in (*episode.contract.signals, *episode.operator)}
    target = episode.contract.target
    for name, (signal, values) in {**signals, "target": (target, episode.target), "wanted": (target, episode.wanted)}.items():
        if name not in given:
            continue
        yield from _limits(name, signal, values, clock)
        for i, label in enumerate(signal.labels):
            if given[name][i]:
                yield from _column(f"{name}.{label}", values[:, i], clock)
        if name == "quat" and signal.size == 4 and len(values):
            norm = np.linalg.norm(values, axis=1)
            off = np.flatnonzero(np.abs(norm - 1.0) > NORM)
            if len(off):
                yield f"quat is not of length 1 in {len(off)} ticks, first {norm[off[0]]:.3g} at {clock.at(int(off[0]))}."


@dataclass(frozen=True)
class Beyond:
    """A component that is outside its limit."""

    label: str
    side: str
    """`below` or `above`."""
    limit: float
    ticks: np.ndarray
    """Where."""
    worst: float


def beyond(signal: Signal, values: np.ndarray) -> Iterator[Beyond]:
    """Which of the values, (T, k), are outside the contract's limits."""
    for limits, side in ((signal.low, "below"), (signal.high, "above")):
        if not limits:
            continue
        excess = (np.array(limits) - values) if side == "below" else (values - np.array(limits))
        # Float32 recordings round a limit a little outward.
        out = excess > 1e-6 * np.maximum(1.0, np.abs(limits))
        for i in np.flatnonzero(out.any(axis=0)):
            ticks = np.flatnonzero(out[:, i])
            yield Beyond(signal.labels[i], side, limits[i], ticks, float(values[ticks[np.argmax(excess[ticks, i])], i]))


def constant(values: np.ndarray) -> bool:
    """Whether a component, (T,), never changes, as far as it is measured at all."""
    known = values[np.isfinite(values)]
    return len(known) >= MIN_TICKS and bool(np.ptp(known) == 0.0)


def _limits(name: str, signal: Signal, values: np.ndarray, clock: Clock) -> Iterator[str]:
    for b in beyond(signal, values):
        yield (
            f"{name}.{b.label} is {b.side} the contract's limit of {b.limit:.4g} {signal.unit} in {len(b.ticks)} "
            f"ticks, up to {b.worst:.4g}, first at {clock.at(int(b.ticks[0]))}."
        )


def _column(name: str, values: np.ndarray, clock: Clock) -> Iterator[str]:
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        yield f"{name} is missing or not finite in {len(bad)} of {len(values)} ticks, first at {clock.at(int(bad[0]))}."
    elif constant(values):
        yield f"{name} never changes: it is {values[0]:.4g} all the time."
