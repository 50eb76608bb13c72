"""Which recordings are wrong, where, and what is done about it, before anything is fitted to them.

findings = suspect(robot, episodes)     what is wrong
refuse(findings)                        a BadInput if some of it cannot be handled
cleaned(episodes, findings)             the recordings without the samples that cannot be trusted
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.data.checks.findings import CUTTING_KINDS, Finding, Recording
from isthmus.data.episode import Episode
from isthmus.real2sim.prepare.checks import attitude_gyro_accel, inverse_dynamics, kinematic_consistency, limits, samples
from isthmus.real2sim.prepare.kinematics import counterpart_rates
from isthmus.real2sim.prepare.tracks import check_contract, replay_rate, to_tracks
from isthmus.sim.robot import Robot

MAX_QUOTED_FINDINGS = 4
"""Refused findings that are quoted in an error."""


def check(robot: Robot, episodes: Sequence[Episode], names: Sequence[str] = ()) -> tuple[Finding, ...]:
    """All that is wrong with recordings of a robot, in the order of recordings; `names` are those of the files."""
    found: list[Finding] = []
    for i, episode in enumerate(episodes):
        check_contract(episode, robot.contract)
        name = names[i] if i < len(names) else str(episode.origin.get("file", f"recording {i + 1}"))
        found += _check_recording(Recording(i, name, episode), robot)
    return tuple(found)


def find_falls(robot: Robot, episodes: Sequence[Episode], names: Sequence[str]) -> tuple[Finding, ...]:
    """Where a robot with feet lies: nothing is wrong with the recording there, but no piece with it is used."""
    found = [samples.falls(Recording(i, name, e), robot) for i, (name, e) in enumerate(zip(names, episodes, strict=True))]
    return tuple(finding for some in found for finding in some)


def _check_recording(recording: Recording, robot: Robot) -> list[Finding]:
    tick = 1.0 / replay_rate([recording.episode], robot.contract)
    found = [
        *samples.missing_samples(recording, robot),
        *samples.time_gaps(recording, tick),
        *samples.repeated_values(recording, robot, counterpart_rates(recording.episode, robot)),
        *limits.joint_limits(recording, robot),
    ]
    # What was found so far must not be found again in disguise.
    rest = clean_episodes([recording.episode], [replace(f, recording=0) for f in found])[0]
    recording = replace(recording, episode=rest)
    view = kinematic_consistency.TrackView(recording, robot, to_tracks([rest], robot.contract, tick), tick)
    if view.tracks:
        found += attitude_gyro_accel.attitude_consistency(view)
        found += kinematic_consistency.joint_consistency(
            view, {place for f in found for place in kinematic_consistency.refused_components(f, robot.contract)}
        )
        if not any(f.refused for f in found):
            found += inverse_dynamics.effort_consistency(view)
    wrong = any(f.refused and f.signal in ("time", robot.contract.target.name) for f in found)
    return [*found, *limits.target_limits(recording, robot, wrong)]


def raise_if_refused(findings: Sequence[Finding], hint: str = "") -> None:
    """One error with what cannot be handled, and a hint."""
    bad = [f for f in findings if f.refused]
    if bad:
        more = f" And {len(bad) - MAX_QUOTED_FINDINGS} more." if len(bad) > MAX_QUOTED_FINDINGS else ""
        raise BadInput(" ".join(map(str, bad[:MAX_QUOTED_FINDINGS])) + more + hint)


def clean_episodes(episodes: Sequence[Episode], findings: Sequence[Finding]) -> list[Episode]:
    """The episodes with NaN in place of what is left out; what was refused stays as it is."""
    out = []
    for i, episode in enumerate(episodes):
        signals, target = {n: v.copy() for n, v in episode.signals.items()}, episode.target.copy()
        target[~np.isfinite(target)] = np.nan
        for f in findings:
            if f.recording == i:
                _apply_finding(f, episode, signals, target)
        out.append(replace(episode, signals=signals, target=target))
    return out


def _apply_finding(finding: Finding, episode: Episode, signals: dict[str, np.ndarray], target: np.ndarray) -> None:
    if finding.kind == "wrapped":
        x = signals[finding.signal][:, episode.contract[finding.signal].component_index(finding.label)]
        x[np.isfinite(x)] = np.unwrap(x[np.isfinite(x)])
    for start, stop in finding.spans:
        if finding.kind in CUTTING_KINDS:
            target[start:stop] = np.nan
        elif finding.signal == "time":
            for s in episode.contract.signals:
                signals[s.name][start:stop] = np.nan
        else:
            labels = finding.label.split(", ") if finding.label else episode.contract[finding.signal].labels
            for label in labels:
                signals[finding.signal][start:stop, episode.contract[finding.signal].component_index(label)] = np.nan
