"""Which recordings are wrong, where, and what is done about it, before anything is fitted to them.

findings = suspect(robot, episodes)     what is wrong
refuse(findings)                        a BadInput if some of it cannot be handled
cleaned(episodes, findings)             the recordings without the samples that cannot be trusted
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from isthmus.data.episode import Episode
from isthmus.errors import BadInput
from isthmus.gap.suspect import agree, attitude, effort, reach, samples
from isthmus.gap.suspect.finding import CUT, Finding, Recording
from isthmus.gap.suspect.kin import rates
from isthmus.gap.tracks import check_contract, own_rate, tracks
from isthmus.sim.robot import Robot

SHOWN = 4
"""Refused findings that are quoted in an error."""


def suspect(robot: Robot, episodes: Sequence[Episode], names: Sequence[str] = ()) -> tuple[Finding, ...]:
    """All that is wrong with recordings of a robot, in the order of recordings; `names` are those of the files."""
    found: list[Finding] = []
    for i, episode in enumerate(episodes):
        check_contract(episode, robot.contract)
        name = names[i] if i < len(names) else str(episode.origin.get("file", f"recording {i + 1}"))
        found += _of(Recording(i, name, episode), robot)
    return tuple(found)


def falls(robot: Robot, episodes: Sequence[Episode], names: Sequence[str]) -> tuple[Finding, ...]:
    """Where a robot with feet lies: nothing is wrong with the recording there, but no piece with it is used."""
    found = [samples.lying(Recording(i, name, e), robot) for i, (name, e) in enumerate(zip(names, episodes, strict=True))]
    return tuple(finding for some in found for finding in some)


def _of(of: Recording, robot: Robot) -> list[Finding]:
    tick = 1.0 / own_rate([of.episode], robot.contract)
    found = [
        *samples.missing(of, robot),
        *samples.gaps(of, tick),
        *samples.stays(of, robot, rates(of.episode, robot)),
        *reach.joints(of, robot),
    ]
    # What was found so far must not be found again in disguise.
    rest = cleaned([of.episode], [replace(f, recording=0) for f in found])[0]
    of = replace(of, episode=rest)
    view = agree.View(of, robot, tracks([rest], robot.contract, tick), tick)
    if view.tracks:
        found += attitude.spatially(view)
        found += agree.motions(view, {place for f in found for place in agree.places(f, robot.contract)})
        if not any(f.refused for f in found):
            found += effort.efforts(view)
    wrong = any(f.refused and f.signal in ("time", robot.contract.target.name) for f in found)
    return [*found, *reach.targets(of, robot, wrong)]


def refuse(findings: Sequence[Finding], hint: str = "") -> None:
    """One error with what cannot be handled, and a hint."""
    bad = [f for f in findings if f.refused]
    if bad:
        more = f" And {len(bad) - SHOWN} more." if len(bad) > SHOWN else ""
        raise BadInput(" ".join(map(str, bad[:SHOWN])) + more + hint)


def cleaned(episodes: Sequence[Episode], findings: Sequence[Finding]) -> list[Episode]:
    """The episodes with NaN in place of what is left out; what was refused stays as it is."""
    out = []
    for i, episode in enumerate(episodes):
        signals, target = {n: v.copy() for n, v in episode.signals.items()}, episode.target.copy()
        target[~np.isfinite(target)] = np.nan
        for f in findings:
            if f.recording == i:
                _apply(f, episode, signals, target)
        out.append(replace(episode, signals=signals, target=target))
    return out


def _apply(f: Finding, episode: Episode, signals: dict[str, np.ndarray], target: np.ndarray) -> None:
    if f.kind == "wrapped":
        x = signals[f.signal][:, episode.contract[f.signal].component(f.label)]
        x[np.isfinite(x)] = np.unwrap(x[np.isfinite(x)])
    for start, stop in f.spans:
        if f.kind in CUT:
            target[start:stop] = np.nan
        elif f.signal == "time":
            for s in episode.contract.signals:
                signals[s.name][start:stop] = np.nan
        else:
            labels = f.label.split(", ") if f.label else episode.contract[f.signal].labels
            for label in labels:
                signals[f.signal][start:stop, episode.contract[f.signal].component(label)] = np.nan
