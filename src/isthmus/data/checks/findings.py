"""What is wrong with a recording: one finding per fault, with its place, and what is done about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from isthmus.data.episode import Episode

FindingKind = Literal[
    "missing", "hole", "mode", "fallen", "held", "constant", "stuck", "saturated", "wrapped", "limit",
    "range", "unit", "sign", "swapped", "order", "frame", "mismatch",
]  # fmt: skip
CUTTING_KINDS: tuple[FindingKind, ...] = ("mode",)
"""The targets of these ticks were not followed: nothing is replayed across them."""


@dataclass(frozen=True)
class Finding:
    recording: int
    """Which of the recordings, from 0, and its name."""
    name: str
    signal: str
    """A signal of the contract, its target, or `time`."""
    label: str
    """Component, or components with commas; empty: all of them."""
    kind: FindingKind
    start: float
    """s since the start of the recording, where it is first seen."""
    ticks: int
    """In how many ticks."""
    refused: bool
    """Whether it is reason enough not to fit; otherwise it is handled as the sentence says."""
    text: str
    """One sentence."""
    spans: tuple[tuple[int, int], ...] = ()
    """Ticks that are left out of the comparison, as half-open ranges."""

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"

    def to_dict(self) -> dict[str, Any]:
        fields = ("recording", "name", "signal", "label", "kind", "start", "ticks", "refused", "text")
        return {name: getattr(self, name) for name in fields}


@dataclass(frozen=True)
class Recording:
    """A recording under examination."""

    index: int
    name: str
    episode: Episode

    def time_text(self, tick: int) -> str:
        return f"{self.episode.time[tick]:.2f} s"

    def finding(
        self,
        kind: FindingKind,
        signal: str,
        label: str,
        mask: np.ndarray | None,
        text: str,
        refused: bool = False,
        excluded: bool = False,
    ) -> Finding:
        """`where`, (T,), are the ticks in question, None for all; `left_out` takes them out of the comparison."""
        ticks = np.ones(len(self.episode), bool) if mask is None else mask
        first = int(np.argmax(ticks)) if ticks.any() else 0
        start = float(self.episode.time[first]) if len(self.episode) else 0.0
        spans = true_runs(ticks) if excluded else ()
        return Finding(self.index, self.name, signal, label, kind, start, int(ticks.sum()), refused, text, spans)


def true_runs(mask: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Stretches of True, (T,), as half-open ranges."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(int)))
    return tuple((int(a), int(b)) for a, b in edges.reshape(-1, 2))
