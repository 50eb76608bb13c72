"""What is wrong with recordings, said before anything is learned from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.cli import show

if TYPE_CHECKING:
    from isthmus.data.episode import Episode
    from isthmus.gap.suspect.finding import Finding
    from isthmus.sim.robot import Robot


def looked_through(
    robot: Robot, episodes: Sequence[Episode], paths: Sequence[Path], silent: bool, trust: bool | None = None, use: str = "fit"
) -> tuple[Finding, ...]:
    """All findings, said unless `silent`; those that cannot be handled are refused unless there is `trust`.

    `trust` is None for commands that have no such option; `use` is what those that have it do with recordings.
    """
    from isthmus.gap.suspect import falls, refuse, suspect

    names = [str(path) for path in paths]
    findings = (*suspect(robot, episodes, names), *falls(robot, episodes, names))
    if not trust:
        refuse(findings, " Mend them." if trust is None else f" Mend them, or {use} them all the same with --trust.")
    for finding in () if silent else findings:
        show.say(f"{'suspect' if finding.refused else 'note'}: {finding}")
    return findings
