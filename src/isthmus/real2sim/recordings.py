"""Recordings as verbs take them: Episodes or paths of .mcap files, loaded and checked before anything is fitted to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from isthmus.core.errors import BadInput
from isthmus.data.checks.findings import Finding
from isthmus.data.episode import Episode
from isthmus.data.mcap.reader import read_episode
from isthmus.real2sim.prepare.checks.recording_checks import check, find_falls, raise_if_refused
from isthmus.sim.robot import Robot

Recordings = Sequence[Episode | Path | str]

TRUST_HINT = " Correct them, or use them anyway with --trust."
"""For verbs with the option `trust`."""


def load_recordings(recordings: Recordings) -> tuple[list[Episode], list[str]]:
    """The episodes and their names: paths, or `recording 1` … for Episodes that do not say which file they are from."""
    if not recordings:
        raise BadInput("give at least one recording.")
    episodes = [r if isinstance(r, Episode) else read_episode(Path(r)) for r in recordings]
    names = [
        str(r.origin.get("file", f"recording {i + 1}")) if isinstance(r, Episode) else str(r) for i, r in enumerate(recordings)
    ]
    return episodes, names


def check_recordings(
    robot: Robot, episodes: Sequence[Episode], names: Sequence[str], trust: bool = False, hint: str = TRUST_HINT
) -> tuple[Finding, ...]:
    """Everything that is wrong with the recordings; without `trust`, BadInput if any of it cannot be handled."""
    findings = (*check(robot, episodes, names), *find_falls(robot, episodes, names))
    if not trust:
        raise_if_refused(findings, hint)
    return findings
