"""Parts that the results of several verbs share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from isthmus.core.errors import BadInput
from isthmus.data.checks.findings import Finding, FindingKind

INTERVAL_LEVEL = 0.9
"""Probability of the intervals of parameters in results."""


@dataclass(frozen=True)
class FindingRecord:
    """What is wrong with a recording; a Finding without its ticks."""

    recording: int
    name: str
    signal: str
    label: str
    kind: FindingKind
    start: float
    """s"""
    ticks: int
    refused: bool
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


def finding_records(findings: Iterable[Finding]) -> tuple[FindingRecord, ...]:
    names = [f.name for f in fields(FindingRecord)]
    return tuple(FindingRecord(**{name: getattr(finding, name) for name in names}) for finding in findings)


@dataclass(frozen=True)
class ErrorPair:
    """Root mean square prediction error, × noise; NaN where nothing was compared."""

    fitted: float
    """Of segments that were fitted to."""
    held_out: float


@dataclass(frozen=True)
class ErrorChange:
    before: ErrorPair
    after: ErrorPair


@dataclass(frozen=True)
class SegmentCounts:
    fitted: int
    held_out: int


@dataclass(frozen=True)
class UndeterminedDirection:
    """A combination of parameters that recordings hardly determine."""

    parts: Mapping[str, float]
    """Parameter -> share, the largest first."""
    information: float
    """Of the recordings, in units of the prior's; below 1 they say less than the prior."""
    text: str


def check_not_negative(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise BadInput(f"{name} must be a finite number, not negative.")


def check_twin_path(path: Path | None) -> None:
    if path is not None and path.suffix != ".twin":
        raise BadInput(f"a twin is written to a file NAME.twin, not {path}.")
