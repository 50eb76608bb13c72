"""Result of one run of a controller on a robot: plain values only; the recording holds the samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from isthmus.core.results import Result
from isthmus.core.statistics import Rate
from isthmus.deploy.preflight import Check

RunStatus = Literal["completed", "guard", "interrupted", "refused"]
"""`completed`: the time was over; `guard`: the guard ended it; `interrupted`: the operator ended it; `refused`: a preflight
check failed and no command was sent."""
WAKE_LATENCY_EDGES = (20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3)
"""s: inner edges of the histogram of wake latency."""
UNKNOWN_RATE = Rate.from_counts(0, 0)


@dataclass(frozen=True)
class Timing:
    """Quantiles of a duration, s; NaN where nothing was measured."""

    p50: float = math.nan
    p99: float = math.nan
    p999: float = math.nan
    max: float = math.nan

    @staticmethod
    def from_samples(samples: np.ndarray) -> Timing:
        """Of durations in s, (n,)."""
        return Timing(*np.quantile(samples, (0.5, 0.99, 0.999, 1)).tolist()) if len(samples) else Timing()


@dataclass(frozen=True)
class Histogram:
    """How many samples lie between the edges, in s; the first and the last bin are open."""

    edges: tuple[float, ...] = WAKE_LATENCY_EDGES
    counts: tuple[int, ...] = (0,) * (len(WAKE_LATENCY_EDGES) + 1)

    @staticmethod
    def from_samples(samples: np.ndarray) -> Histogram:
        """Of durations in s, (n,)."""
        counts = np.histogram(samples, [-np.inf, *WAKE_LATENCY_EDGES, np.inf])[0]
        return Histogram(WAKE_LATENCY_EDGES, tuple(counts.tolist()))


@dataclass(frozen=True)
class RunResult(Result, kind="run"):
    status: RunStatus
    reason: str
    """Why the guard ended it, why it was interrupted, or which checks failed; empty if it was completed."""
    seconds: float = 0.0
    """s that the policy was in control."""
    ticks: int = 0
    checks: tuple[Check, ...] = ()
    """Preflight checks in their order."""
    missed: Rate = UNKNOWN_RATE
    """Fraction of deadlines at which no target was sent in time."""
    interventions: Rate = UNKNOWN_RATE
    """Fraction of ticks in which the guard sent something else than the policy's target."""
    rules: Mapping[str, int] = field(default_factory=dict)
    """Activations of each rule of the guard."""
    wake_latency: Timing = Timing()
    """s after each deadline that the loop woke."""
    wake_latency_histogram: Histogram = Histogram()
    compute_time: Timing = Timing()
    """s from waking until the target was sent."""
    recording: str = ""
    """File of the recording, if one was made."""
    recording_hash: str = ""
    """Hash of the recorded episode; empty if the file cannot be read."""
    recorded_ticks: int = 0
    lost_ticks: int = 0
    """Ticks that are missing from the recording."""
    recording_problem: str = ""
    """Why they are missing."""
    controller: str = ""
    controller_hash: str = ""
    link: str = ""
    unit: str = ""
    """Serial name of the robot."""
    source: Literal["", "real", "virtual"] = ""
    """What the robot says it is; empty if it did not answer."""
