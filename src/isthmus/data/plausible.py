"""What looks wrong in an imported episode: the mistakes that no unit and no name gives away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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


def _limits(name: str, signal: Signal, values: np.ndarray, clock: Clock) -> Iterator[str]:
    for limits, side in ((signal.low, "below"), (signal.high, "above")):
        if not limits:
            continue
        beyond = (np.array(limits) - values) if side == "below" else (values - np.array(limits))
        # Float32 recordings round a limit a little outward.
        out = beyond > 1e-6 * np.maximum(1.0, np.abs(limits))
        for i in np.flatnonzero(out.any(axis=0)):
            ticks = np.flatnonzero(out[:, i])
            worst = values[ticks[np.argmax(beyond[ticks, i])], i]
            yield (
                f"{name}.{signal.labels[i]} is {side} the contract's limit of {limits[i]:.4g} {signal.unit} in {len(ticks)} "
                f"ticks, up to {worst:.4g}, first at {clock.at(int(ticks[0]))}."
            )


def _column(name: str, values: np.ndarray, clock: Clock) -> Iterator[str]:
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        yield f"{name} is missing or not finite in {len(bad)} of {len(values)} ticks, first at {clock.at(int(bad[0]))}."
    elif len(values) >= MIN_TICKS and np.ptp(values) == 0.0:
        yield f"{name} never changes: it is {values[0]:.4g} all the time."
