"""Recordings prepared once for every use: checked, cleaned, on the robot's ticks, with the noise of each signal.

recordings -> check -> clean -> resample to tracks -> noise floor
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isthmus.data.checks.findings import Finding
from isthmus.data.episode import Episode
from isthmus.real2sim.prepare.checks.recording_checks import check, clean_episodes, raise_if_refused
from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.noise import noise_floor
from isthmus.real2sim.prepare.tracks import Track, in_control, replay_rate, to_tracks
from isthmus.sim.robot import Robot

MIN_CONTROL_SECONDS = 3.0
"""s in one piece that the policy must have been in control for the rest of the recordings to be left out."""


@dataclass(frozen=True)
class Prepared:
    """Recordings of one robot, ready to be compared with a simulator."""

    robot: Robot
    """At the rate of the recordings: their median, or the robot's own where they are close to it."""
    names: tuple[str, ...]
    """Of the recordings."""
    raw: tuple[Episode, ...]
    """As recorded: what link quality, controller replay and units at rest are judged by."""
    episodes: tuple[Episode, ...]
    """Cleaned: NaN in place of samples that cannot be trusted."""
    findings: tuple[Finding, ...]
    """What is wrong with the recordings."""
    tracks: tuple[Track, ...]
    """Of the cleaned recordings: stretches without a gap, at the robot's rate."""
    noise: np.ndarray
    """(components,) standard deviation of each signal's noise by itself, in its unit; NaN where it was never measured."""

    @property
    def components(self) -> Components:
        return Components(self.robot.contract)

    @property
    def is_comparable(self) -> bool:
        """Whether any signal of the robot was measured for long enough to be compared."""
        return bool(np.isfinite(self.noise).any())

    def in_control(self, min_seconds: float = MIN_CONTROL_SECONDS) -> Prepared:
        """Of a robot on feet, the parts in which its policy was in control, if one is that long; else all. Noise is estimated
        anew. A robot that gets up or lies down touches the ground with more than its feet, which no policy is about."""
        parts = in_control(self.robot, self.episodes, self.tracks) if self.robot.morphology.feet else []
        long_enough = any(len(track) >= min_seconds * self.robot.contract.rate for track in parts)
        return self._with_tracks(parts) if long_enough else self

    def subset(self, recordings: Iterable[int]) -> Prepared:
        """Tracks of some recordings; noise is estimated anew."""
        kept = frozenset(recordings)
        return self._with_tracks([track for track in self.tracks if track.recording in kept])

    def _with_tracks(self, tracks: Sequence[Track]) -> Prepared:
        return replace(self, tracks=tuple(tracks), noise=noise_floor(tracks, self.components))


def prepare(
    robot: Robot,
    episodes: Sequence[Episode],
    names: Sequence[str] = (),
    findings: Sequence[Finding] | None = None,
    refuse: bool = False,
) -> Prepared:
    """Recordings of a robot, checked, cleaned and resampled; `findings` are those of `check`, where the caller has them.

    `refuse`: raise BadInput where a finding cannot be handled by leaving samples out.
    """
    findings = check(robot, episodes, names) if findings is None else findings
    if refuse:
        raise_if_refused(findings)
    clean = clean_episodes(episodes, findings)
    robot = robot.at_rate(replay_rate(clean, robot.contract))
    tracks = to_tracks(clean, robot.contract, 1.0 / robot.contract.rate)
    names = tuple(names) or tuple(f"recording {i + 1}" for i in range(len(episodes)))
    noise = noise_floor(tracks, Components(robot.contract))
    return Prepared(robot, names, tuple(episodes), tuple(clean), tuple(findings), tuple(tracks), noise)
