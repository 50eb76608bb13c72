"""How long a loop may still take."""

from __future__ import annotations

from collections.abc import Sequence

TYPICAL_CALLS = (
    *(("train", 60), ("export", 4), ("record", 2), ("diagnose", 30), ("identify", 30), ("force", 30)),
    *(("train", 30), ("export", 4), ("validate", 4), ("record", 2), ("diagnose", 15)),
    *(("sweep", 4), ("sweep", 4), ("virtual-score", 4), ("virtual-score", 4)),
)
"""Calls of a loop that needs everything, with their typical durations relative to each other."""


def remaining_seconds(
    finished: Sequence[tuple[str, float]], name: str = "", elapsed: float = 0.0, own_remaining: float | None = None
) -> float | None:
    """Seconds that a loop may still take, from the names and seconds of its finished calls; None before anything is known.

    `name` is the call at work, `elapsed` its seconds so far, and `own_remaining` its own estimate of what it still needs.
    """
    rest, spent, usual, last = list(TYPICAL_CALLS), 0.0, 0.0, ""
    for before, seconds in finished:
        repeated, last = before == last and rest[:1] and rest[0][0] != before, before
        if repeated:  # a further take, a further training
            continue
        at = next((i for i, (n, _) in enumerate(rest) if n == before), None)
        if at is None:
            continue
        spent, usual = spent + seconds, usual + rest[at][1]
        rest = rest[at + 1 :]
    at = next((i for i, (n, _) in enumerate(rest) if n == name), None)
    this, after = (0.0, rest) if at is None else (rest[at][1], rest[at + 1 :])
    if usual:
        pace = spent / usual
    elif this and own_remaining is not None:
        pace = (elapsed + own_remaining) / this
    else:
        return None
    return sum(t for _, t in after) * pace + max(this * pace - elapsed, own_remaining or 0.0, 0.0)
