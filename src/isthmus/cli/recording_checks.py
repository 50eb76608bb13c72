"""What is wrong with recordings, said before anything is learned from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.cli import render

if TYPE_CHECKING:
    from isthmus.data.checks.findings import Finding
    from isthmus.data.episode import Episode
    from isthmus.real2sim.result_parts import FindingRecord
    from isthmus.sim.robot import Robot


def check_recordings(
    robot: Robot, episodes: Sequence[Episode], paths: Sequence[Path], quiet: bool, trust: bool | None = None, use: str = "fit"
) -> tuple[Finding, ...]:
    """All findings, said unless `silent`; those that cannot be handled are refused unless there is `trust`.

    `trust` is None for commands that have no such option; `use` is what those that have it do with recordings.
    """
    from isthmus.real2sim.prepare.checks.recording_checks import check, find_falls, raise_if_refused

    names = [str(path) for path in paths]
    findings = (*check(robot, episodes, names), *find_falls(robot, episodes, names))
    if not trust:
        raise_if_refused(findings, " Mend them." if trust is None else f" Mend them, or {use} them all the same with --trust.")
    for finding in () if quiet else findings:
        render.print_line(f"{'suspect' if finding.refused else 'note'}: {finding}")
    return findings


def print_findings(findings: Sequence[FindingRecord]) -> None:
    """One line for each fault of a recording."""
    for finding in findings:
        render.print_line(f"{'suspect' if finding.refused else 'note'}: {finding}")
