"""Do the signals of a recording agree with each other? Units, signs, frames and exchanged joints show where they do not.

    position and velocity   the integral of the velocity is the change of the position
    position and target     a joint that is told positions follows its own target
    attitude and gyroscope  the attitude changes as the gyroscope turns
    accelerometer           on average it feels gravity, and nothing else
    effort and motion       the efforts that were sent are those that the motion takes, as far as the model knows

Each verdict needs motion well above the noise: a recording in which nothing moves is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.data.contract import Contract, Signal
from isthmus.gap.noise import floor
from isthmus.gap.residual import Components
from isthmus.gap.suspect.finding import Finding, Kind, Recording
from isthmus.gap.suspect.follow import ALIKE, UNLIKE, Match, Stretch, Verdict, exchanged, match, verdicts
from isthmus.gap.suspect.kin import CLOSE, Pair, likely, pairs
from isthmus.gap.tracks import Track
from isthmus.sim.robot import Robot

SIZE = 1.6
"""Ratio of a velocity's integral to a position's change that is still fine."""
RESPONSE = (0.2, 20.0)
"""Ratio of a target's change to its joint's that is still fine: weak, blocked and resonant joints are in no other unit."""
MIRRORED = 0.5
"""A joint is where the opposite of its target is if that is closer by this factor."""
SLUGGISH = 0.05
"""s by which a motor may lag, beside all delays."""
AHEAD, LOUD = 0.2, 10.0
"""A velocity, and the change of its position over so many s, with so many times the power of their noise must go together."""


@dataclass(frozen=True)
class View:
    """The tracks of one recording, on ticks of `tick` seconds, and where its signals are in them."""

    of: Recording
    robot: Robot
    tracks: Sequence[Track]
    tick: float

    def values(self, signal: str, labels: Sequence[str] = ()) -> list[np.ndarray]:
        """Per track, (T, k)."""
        where, known = self.robot.contract.slices()[signal], self.robot.contract[signal]
        at = [where.start + known.component(label) for label in labels or known.labels]
        return [t.measured[:, at] for t in self.tracks]

    def refuse(self, kind: Kind, signal: str, labels: Sequence[str], text: str) -> Finding:
        return self.of.finding(kind, signal, ", ".join(labels), None, text, refused=True)


Place = tuple[str, str]
"""A signal, or the target, and a label."""


def places(finding: Finding, contract: Contract) -> set[Place]:
    """What a finding refuses."""
    if not finding.refused or finding.signal == "time":
        return set()
    signal = contract.target if finding.signal == contract.target.name else contract[finding.signal]
    labels = finding.label.split(", ") if finding.label else signal.labels
    return {(signal.name, label) for label in labels}


@dataclass(frozen=True)
class Relation:
    """Two signals that tell of one motion, a and b."""

    a: Signal
    b: Signal
    a_says: str
    """In words: `the change of joint_pos`."""
    b_says: str
    labels: tuple[str, ...]
    """Per row of the match."""
    blame: str = ""
    """Name of the signal that is wrong where either may be; b's by default."""
    close: float = CLOSE
    """Ratio up to which their sizes tell a unit."""


def changing(values: Sequence[np.ndarray], tick: float) -> list[np.ndarray]:
    """Rates from tick to tick, (T - 1, k), of values, (T, k)."""
    return [np.diff(v, axis=0) / tick for v in values]


def between(values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Means of two ticks, (T - 1, k)."""
    return [0.5 * (v[1:] + v[:-1]) for v in values]


def told(view: View, relation: Relation, verdict: Verdict) -> Finding:
    """A verdict as a finding, in words."""
    a, b, labels = relation.a, relation.b, [relation.labels[i] for i in verdict.rows]
    blame, which = relation.blame or b.name, relation.blame or "one of the two"
    named = [] if len(labels) == len(relation.labels) > 1 else labels
    if verdict.kind == "swapped":
        pair = f"{relation.a_says} at {labels[0]} goes with {relation.b_says} at {labels[1]}"
        return view.refuse("swapped", blame, labels, f"{pair}: {joined(labels)} are exchanged in {which}.")
    of = f" of {joined(named)}" if named else ""
    if verdict.kind == "sign":
        at = f" at {joined(named)}" if named else ""
        text = f"{relation.b_says}{at} goes against {relation.a_says}: {which} has the wrong sign."
        return view.refuse("sign", blame, named, text)
    mine, other = (dict(zip(s.labels, s.units, strict=True)).get(labels[0], s.units[0]) for s in (a, b))
    looks = "does not fit"
    if unit := likely(other, verdict.gain, relation.close):
        blame, looks = b.name, f"looks like {unit}"
    elif a is not b and (unit := likely(mine, 1.0 / verdict.gain, relation.close)):
        blame, looks = a.name, f"looks like {unit}"
    text = f"{blame}{of} {looks}: {relation.b_says} is {verdict.gain:.3g} times {relation.a_says}."
    return view.refuse("unit", blame, named, text)


def joined(names: Sequence[str]) -> str:
    """a, b and c"""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def motions(view: View, wrong: set[Place]) -> Iterator[Finding]:
    """Positions against velocities and targets; what is known to be `wrong` already is not judged again."""
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs(view.robot):
        groups.setdefault((pair.position, pair.velocity), []).append(pair)
    found = {key: match(_rates(view, group), view.tick) for key, group in groups.items()}
    late = view.robot.contract.rate * view.tick
    gains = [m.gain[i, i] for m in found.values() for i in range(len(m.gain)) if m.clear(i)]
    if gains and not 1 / SIZE < late < SIZE and all(1 / ALIKE < g / late < ALIKE for g in gains):
        unit = likely("s", float(np.median(gains)))
        text = (
            f"time {f'looks like {unit}' if unit else 'does not fit'}: positions change {np.median(gains):.3g} times less than "
            f"velocities say, and there are {1 / view.tick:.4g} ticks per second instead of {view.robot.contract.rate:g}."
        )
        yield view.refuse("unit", "time", (), text)
        return
    if view.robot.contract.joints:
        sound = {
            p.label for key, m in found.items() for i, p in enumerate(groups[key]) if m.clear(i) and not _odd(m, i)
            if p.position == "joint_pos"
        }  # fmt: skip
        for finding in _targets(view, sound, wrong):
            yield finding
            wrong = wrong | places(finding, view.robot.contract)
    for key, group in groups.items():
        yield from _velocities(view, group, found[key], wrong)


def _odd(m: Match, i: int) -> bool:
    return m.corr[i, i] < 0 or not 1 / SIZE < m.gain[i, i] < SIZE


def _rates(view: View, group: Sequence[Pair]) -> list[Stretch]:
    positions = view.values(group[0].position, [p.label for p in group])
    speeds = view.values(group[0].velocity, [p.label_there for p in group])
    return list(zip(changing(positions, view.tick), between(speeds), strict=True))


def _velocities(view: View, group: Sequence[Pair], m: Match, wrong: set[Place]) -> Iterator[Finding]:
    contract = view.robot.contract
    a, b = contract[group[0].position], contract[group[0].velocity]
    labels = tuple(p.label for p in group)
    relation = Relation(a, b, f"the change of {a.name}", f"the integral of {b.name}", labels)
    said = {i for i, p in enumerate(group) if {(a.name, p.label), (b.name, p.label_there)} & wrong}
    for verdict in verdicts(m, (1 / SIZE, SIZE), exchanged(m, exact=True)):
        if not said & set(verdict.rows):
            yield told(view, relation, verdict)
        said |= set(verdict.rows)
    components = Components(contract)
    noise = dict(zip(((c.signal, c.label) for c in components.all), floor(view.tracks, components), strict=True))
    for i, pair in enumerate(group):
        if i in said or not abs(m.corr[i, i]) < UNLIKE:
            continue
        sigma = noise[a.name, pair.label], noise[b.name, pair.label_there]
        if _loud(view, pair, *sigma):
            text = f"{b.name} of {pair.label_there} is not the rate at which {a.name} of {pair.label} changes."
            yield view.refuse("mismatch", b.name, [pair.label_there], text)


def _loud(view: View, pair: Pair, of_position: float, of_velocity: float) -> bool:
    """Whether a position and its velocity, over AHEAD seconds, change by far more than their noise."""
    ticks = max(1, round(AHEAD / view.tick))
    steps = np.concatenate([x[ticks:, 0] - x[:-ticks, 0] for x in view.values(pair.position, [pair.label])])
    speeds = np.concatenate([x[::ticks, 0] for x in view.values(pair.velocity, [pair.label_there])])
    powers = np.nanvar(steps) / (2 * of_position**2), np.nanvar(speeds) / of_velocity**2
    return bool(min(powers) > LOUD)


def _mirrored(view: View, rows: Sequence[int]) -> bool:
    """Whether joints also stand where the opposite of their targets is.

    Under the weight of a body a joint gives way, and a policy that corrects it makes its target go the other way.
    """
    is_at = np.concatenate(view.values("joint_pos", view.robot.contract.target.labels))[:, list(rows)]
    told = np.concatenate([t.target for t in view.tracks])[:, list(rows)]
    both = np.isfinite(is_at) & np.isfinite(told)
    at, to = (np.where(both, x, 0.0).sum(0) / np.maximum(both.sum(0), 1) for x in (is_at, told))
    return bool((np.abs(at + to) < MIRRORED * np.abs(at - to)).all())


def _targets(view: View, sound: set[str], wrong: set[Place]) -> Iterator[Finding]:
    """Joints against the targets that they are told; `sound` are those whose position and velocity agree."""
    contract = view.robot.contract
    target, position = contract.target, contract["joint_pos"]
    late = view.robot.longest("action_delay") + view.robot.longest("sensor_delay") + SLUGGISH
    told_to = changing([t.target for t in view.tracks], view.tick)
    does = changing(view.values("joint_pos", target.labels), view.tick)
    m = match(list(zip(does, told_to, strict=True)), view.tick, late)
    for verdict in verdicts(m, RESPONSE, exchanged(m)):
        labels = {target.labels[i] for i in verdict.rows}
        if {(position.name, label) for label in labels} & wrong:
            continue
        if verdict.kind == "sign" and view.robot.feet and labels <= sound and not _mirrored(view, verdict.rows):
            continue
        # Two signals against one.
        blame = target.name if labels <= sound else position.name
        relation = Relation(
            position, target, f"the change of {position.name}", f"the change of {target.name}", target.labels, blame
        )
        yield told(view, relation, verdict)
