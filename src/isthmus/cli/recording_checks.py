"""Findings about recordings, as lines of the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isthmus.cli import render

if TYPE_CHECKING:
    from isthmus.real2sim.result_parts import FindingRecord


def print_findings(findings: Sequence[FindingRecord]) -> None:
    """One line for each fault of a recording."""
    for finding in findings:
        render.print_line(f"{'suspect' if finding.refused else 'note'}: {finding}")
