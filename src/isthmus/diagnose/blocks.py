"""What may be wrong, as blocks of doubts: numbers beyond the belief, sensors, missing physics.

outside   one number may be far beyond what is believed, within its hard bounds
sensor    bias of a signal, its drift, its gain, how an inertial sensor is mounted
physics   a force by a law, motors whose strength changes with time
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from isthmus.diagnose.doubts import Doubts
from isthmus.diagnose.explain import Block
from isthmus.gap.segments import Segments
from isthmus.identify.prior import FARTHEST, Prior
from isthmus.world import Target

BEYOND, MOST = 3.0, 9.0
"""How far outside a number may well be, and is at most, in spreads of the belief."""
MODES = 3
"""Slow waves that a drift is made of."""
BIAS, DRIFT = " bias", " drift"
"""Ends of names."""
FADING = 0.5
"""How much a motor's strength may well change, in unconstrained coordinates."""


def blocks(doubts: Doubts, prior: Prior, ends: np.ndarray, segments: Segments) -> list[Block]:
    """All of them; `ends`, (d, 2), are those of the belief."""
    found = (*outside(doubts, prior, ends, segments), *sensors(doubts, segments), *physics(doubts, segments))
    # A signal that never moves and whose unit says nothing has no size by which its errors could be told.
    return [b for b in found if (b.spread > 0).all()]


def of_signals(doubts: Doubts) -> frozenset[str]:
    """Numbers that are errors of sensors."""
    space = doubts.robot.space
    return frozenset(n for n in doubts.names if any(Target.parse(t).kind == "signal" for t in space[n].targets))


def outside(doubts: Doubts, prior: Prior, ends: np.ndarray, segments: Segments) -> Iterator[Block]:
    signals = of_signals(doubts)
    for i, name in enumerate(doubts.names):
        if name not in signals:
            along = np.zeros((1, len(segments), len(doubts)))
            along[0, :, i] = 1.0
            # Where the belief ends with what is possible, there is nothing beyond it.
            far = MOST * prior.spread[i]
            least = 0.0 if ends[i, 0] <= -FARTHEST else -far
            most = 0.0 if ends[i, 1] >= FARTHEST else far
            yield Block("outside", name, along, np.array([BEYOND * prior.spread[i]]), least, most)


def sensors(doubts: Doubts, segments: Segments) -> Iterator[Block]:
    _, bias, gain, tilt, _ = doubts.parts
    contract, waves = doubts.robot.contract, slow(segments)
    for signal, where in contract.slices().items():
        columns = np.arange(bias.start + where.start, bias.start + where.stop)
        yield _block(doubts, segments, signal + BIAS, [(c, np.ones(len(segments))) for c in columns])
        if waves.any():
            yield _block(doubts, segments, signal + DRIFT, [(c, w) for c in columns for w in (waves[0] * 0 + 1, *waves)])
    for name, column in zip(doubts.scaled, range(gain.start, gain.stop), strict=True):
        yield _block(doubts, segments, f"{name} gain", [(column, np.ones(len(segments)))])
    if doubts.tilted:
        yield _block(doubts, segments, "imu tilt", [(c, np.ones(len(segments))) for c in range(tilt.start, tilt.stop)])


def drifts(one: Block, other: Block) -> bool:
    """Whether one is the drift of a signal, and the other its bias."""
    return one.name.endswith(DRIFT) and other.name == one.name.removesuffix(DRIFT) + BIAS


def physics(doubts: Doubts, segments: Segments) -> Iterator[Block]:
    force = doubts.parts[4]
    groups: dict[str, list[int]] = {}
    for i, law in enumerate(doubts.laws):
        groups.setdefault(law.name.split(" along ")[0], []).append(force.start + i)
    for name, columns in groups.items():
        block = _block(doubts, segments, name, [(c, np.ones(len(segments))) for c in columns], "physics")
        yield replace(block, least=-np.inf if name == "pull" else 0.0)
    space = doubts.robot.space
    strong = [
        i for i, n in enumerate(doubts.names)
        if any((t := Target.parse(text)).kind == "motor" and t.field == "strength" for text in space[n].targets)
    ]  # fmt: skip
    time = elapsed(segments)
    if strong and np.ptp(time) > 0:
        along = np.zeros((1, len(segments), len(doubts)))
        along[0][:, strong] = -time[:, None]
        yield Block("physics", "fading strength", along, np.array([FADING]), least=0.0)


def _block(doubts: Doubts, segments: Segments, name: str, parts: list[tuple[int, np.ndarray]], cause: str = "sensor") -> Block:
    along = np.zeros((len(parts), len(segments), len(doubts)))
    for i, (column, course) in enumerate(parts):
        along[i, :, column] = course
    return Block(cause, name, along, np.array([doubts.spread[c] for c, _ in parts]))


def elapsed(segments: Segments) -> np.ndarray:
    """(S,) from 0 at the first piece of each recording to 1 at the end of the longest."""
    first = np.array([segments.start[segments.recording == r].min() for r in segments.recording])
    time = segments.start - first
    return time / max(float(time.max()), 1e-9)


def slow(segments: Segments) -> np.ndarray:
    """(MODES, S) waves of half a period, one, and so on, over a recording; 0 where there are too few pieces to see any."""
    time = elapsed(segments)
    if len(segments) < 2 * MODES or np.ptp(time) == 0:
        return np.zeros((MODES, len(segments)))
    return np.stack([np.cos(np.pi * (k + 1) * time) for k in range(MODES)])
