"""Result of one stage of a protocol: decision, success rate, failed worlds, trials. Plain values only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from isthmus.core.statistics import Rate
from isthmus.validation.sequential_test import Decision

Environment = Literal["twin", "prior", "real"]
"""Where trials happen: in worlds of a twin, in those that training assumes, or on a robot."""


@dataclass(frozen=True)
class FailedWorld:
    """One simulated trial without success."""

    trial: int
    seed: int
    """Of its batch of worlds."""
    row: int
    """Index of the world in that batch."""
    score: float
    failed: bool
    """Whether the task's own failure condition ended it."""
    length: float
    """s until the episode ended."""
    e: Mapping[str, float]
    """Dynamics parameters."""
    unusual: tuple[str, ...]
    """Parameters that are furthest from their median, the furthest first."""


@dataclass(frozen=True)
class ParameterDifference:
    """A dynamics parameter in which failed worlds differ from successful ones."""

    name: str
    failures: float
    """Mean over the worlds without success."""
    successes: float
    """Mean over the worlds with success."""
    unit: str
    z: float
    """Difference in standard errors."""


@dataclass(frozen=True)
class TrialRecord:
    """One trial on a robot."""

    trial: int
    setup: Mapping[str, float]
    """Conditions that the operator set, by parameter."""
    command: Mapping[str, float]
    success: bool
    judged_by: Literal["measured", "operator", "file"]
    note: str = ""
    predicted: float = math.nan
    """Success probability in simulation under the same conditions; NaN if it was not used."""


@dataclass(frozen=True)
class UnassistedTest:
    """Where the sequential test would stand without the simulator."""

    decision: Decision
    low: float
    high: float
    trials: int


@dataclass(frozen=True)
class Assistance:
    """How simulated outcomes helped as control variates."""

    estimate: float
    correlation: float
    """Of predicted and observed outcomes."""
    simulated: int
    """Trials in simulation."""
    alone: UnassistedTest


@dataclass(frozen=True)
class StageResult:
    name: str
    description: str
    decision: Decision
    environment: Environment
    success: Rate
    """Of the trials that decided; low and high are the bounds of the sequential test, valid at any stopping time."""
    required: float
    expected: float
    false_pass: float
    """Largest probability of a pass at or below the required rate."""
    false_fail: float
    """Largest probability of a fail at or above the expected rate."""
    trials: int
    max_trials: int
    fixed_size_trials: int
    """Trials that a test of fixed size with the same error rates needs."""
    seed: int
    omitted: tuple[str, ...] = ()
    """Parts of the stage that this robot cannot have, as sentences."""
    predicted: Rate | None = None
    """On a robot: success of the same stage in simulation."""
    stop_reason: str = ""
    """Why trials ended before the decision; empty if they did not."""
    assisted: Assistance | None = None
    simulated: Rate | None = None
    """Over all simulated worlds, those after the decision included, with the interval of a fixed sample size."""
    worst: tuple[FailedWorld, ...] = ()
    parameter_differences: tuple[ParameterDifference, ...] = ()
    records: tuple[TrialRecord, ...] = ()
    """On a robot: every trial in its order."""

    @property
    def passed(self) -> bool:
        return self.decision == "pass"
