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

from isthmus.data.checks.findings import Finding, FindingKind, Recording
from isthmus.data.contract import Contract, Signal
from isthmus.real2sim.prepare.checks.matching import (
    COMMON_GAIN_RATIO,
    MAX_UNRELATED_CORRELATION,
    ColumnMatch,
    Mismatch,
    RatePair,
    match_columns,
    mismatches,
    swapped_columns,
)
from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.kinematics import (
    UNIT_FACTOR_TOLERANCE,
    PositionVelocityPair,
    position_velocity_pairs,
    unit_by_factor,
)
from isthmus.real2sim.prepare.noise import noise_floor
from isthmus.real2sim.prepare.tracks import Track
from isthmus.sim.robot import Robot

MAX_SIZE_RATIO = 1.6
"""Ratio of a velocity's integral to a position's change that is still fine."""
TARGET_RESPONSE_RANGE = (0.2, 20.0)
"""Ratio of a target's change to its joint's that is still fine: weak, blocked and resonant joints are in no other unit."""
MIRRORED_DISTANCE_RATIO = 0.5
"""A joint is where the opposite of its target is if that is closer by this factor."""
MAX_MOTOR_LAG = 0.05
"""s by which a motor may lag, beside all delays."""
MISMATCH_WINDOW, MISMATCH_POWER_RATIO = 0.2, 10.0
"""A velocity, and the change of its position over so many s, with so many times the power of their noise must go together."""


@dataclass(frozen=True)
class TrackView:
    """The tracks of one recording, on ticks of `tick` seconds, and where its signals are in them."""

    recording: Recording
    robot: Robot
    tracks: Sequence[Track]
    tick: float

    def values(self, signal: str, labels: Sequence[str] = ()) -> list[np.ndarray]:
        """Per track, (T, k)."""
        where, known = self.robot.contract.slices()[signal], self.robot.contract[signal]
        at = [where.start + known.component_index(label) for label in labels or known.labels]
        return [t.measured[:, at] for t in self.tracks]

    def refused_finding(self, kind: FindingKind, signal: str, labels: Sequence[str], text: str) -> Finding:
        return self.recording.finding(kind, signal, ", ".join(labels), None, text, refused=True)


SignalComponent = tuple[str, str]
"""A signal, or the target, and a label."""


def refused_components(finding: Finding, contract: Contract) -> set[SignalComponent]:
    """What a finding refuses."""
    if not finding.refused or finding.signal == "time":
        return set()
    signal = contract.target if finding.signal == contract.target.name else contract[finding.signal]
    labels = finding.label.split(", ") if finding.label else signal.labels
    return {(signal.name, label) for label in labels}


@dataclass(frozen=True)
class SignalRelation:
    """Two signals that tell of one motion, a and b."""

    a: Signal
    b: Signal
    a_phrase: str
    """In words: `the change of joint_pos`."""
    b_phrase: str
    labels: tuple[str, ...]
    """Per row of the match."""
    blamed_signal: str = ""
    """Name of the signal that is wrong where either may be; b's by default."""
    unit_tolerance: float = UNIT_FACTOR_TOLERANCE
    """Ratio up to which their sizes tell a unit."""


def tick_rates(values: Sequence[np.ndarray], tick: float) -> list[np.ndarray]:
    """Rates from tick to tick, (T - 1, k), of values, (T, k)."""
    return [np.diff(v, axis=0) / tick for v in values]


def tick_midpoints(values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Means of two ticks, (T - 1, k)."""
    return [0.5 * (v[1:] + v[:-1]) for v in values]


def mismatch_finding(view: TrackView, relation: SignalRelation, mismatch: Mismatch) -> Finding:
    """A verdict as a finding, in words."""
    a, b, labels = relation.a, relation.b, [relation.labels[i] for i in mismatch.columns]
    blame, which = relation.blamed_signal or b.name, relation.blamed_signal or "one of the two"
    named = [] if len(labels) == len(relation.labels) > 1 else labels
    if mismatch.kind == "swapped":
        pair = f"{relation.a_phrase} at {labels[0]} goes with {relation.b_phrase} at {labels[1]}"
        return view.refused_finding("swapped", blame, labels, f"{pair}: {join_words(labels)} are exchanged in {which}.")
    of = f" of {join_words(named)}" if named else ""
    if mismatch.kind == "sign":
        at = f" at {join_words(named)}" if named else ""
        text = f"{relation.b_phrase}{at} goes against {relation.a_phrase}: {which} has the wrong sign."
        return view.refused_finding("sign", blame, named, text)
    mine, other = (dict(zip(s.labels, s.units, strict=True)).get(labels[0], s.units[0]) for s in (a, b))
    looks = "does not fit"
    if unit := unit_by_factor(other, mismatch.gain, relation.unit_tolerance):
        blame, looks = b.name, f"looks like {unit}"
    elif a is not b and (unit := unit_by_factor(mine, 1.0 / mismatch.gain, relation.unit_tolerance)):
        blame, looks = a.name, f"looks like {unit}"
    text = f"{blame}{of} {looks}: {relation.b_phrase} is {mismatch.gain:.3g} times {relation.a_phrase}."
    return view.refused_finding("unit", blame, named, text)


def join_words(names: Sequence[str]) -> str:
    """a, b and c"""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def joint_consistency(view: TrackView, refused: set[SignalComponent]) -> Iterator[Finding]:
    """Positions against velocities and targets; what is known to be `wrong` already is not judged again."""
    groups: dict[tuple[str, str], list[PositionVelocityPair]] = {}
    for pair in position_velocity_pairs(view.robot):
        groups.setdefault((pair.position, pair.velocity), []).append(pair)
    found = {key: match_columns(_rate_pairs(view, group), view.tick) for key, group in groups.items()}
    late = view.robot.contract.rate * view.tick
    gains = [m.gain[i, i] for m in found.values() for i in range(len(m.gain)) if m.is_clear(i)]
    if (
        gains
        and not 1 / MAX_SIZE_RATIO < late < MAX_SIZE_RATIO
        and all(1 / COMMON_GAIN_RATIO < g / late < COMMON_GAIN_RATIO for g in gains)
    ):
        unit = unit_by_factor("s", float(np.median(gains)))
        text = (
            f"time {f'looks like {unit}' if unit else 'does not fit'}: positions change {np.median(gains):.3g} times less than "
            f"velocities say, and there are {1 / view.tick:.4g} ticks per second instead of {view.robot.contract.rate:g}."
        )
        yield view.refused_finding("unit", "time", (), text)
        return
    if view.robot.contract.has_joint_targets:
        sound = {
            p.position_label
            for key, m in found.items()
            for i, p in enumerate(groups[key])
            if m.is_clear(i) and not _inconsistent(m, i)
            if p.position == "joint_pos"
        }  # fmt: skip
        for finding in _target_findings(view, sound, refused):
            yield finding
            refused = refused | refused_components(finding, view.robot.contract)
    for key, group in groups.items():
        yield from _velocity_findings(view, group, found[key], refused)


def _inconsistent(match: ColumnMatch, column: int) -> bool:
    return match.corr[column, column] < 0 or not 1 / MAX_SIZE_RATIO < match.gain[column, column] < MAX_SIZE_RATIO


def _rate_pairs(view: TrackView, group: Sequence[PositionVelocityPair]) -> list[RatePair]:
    positions = view.values(group[0].position, [p.position_label for p in group])
    speeds = view.values(group[0].velocity, [p.velocity_label for p in group])
    return list(zip(tick_rates(positions, view.tick), tick_midpoints(speeds), strict=True))


def _velocity_findings(
    view: TrackView, group: Sequence[PositionVelocityPair], match: ColumnMatch, refused: set[SignalComponent]
) -> Iterator[Finding]:
    contract = view.robot.contract
    a, b = contract[group[0].position], contract[group[0].velocity]
    labels = tuple(p.position_label for p in group)
    relation = SignalRelation(a, b, f"the change of {a.name}", f"the integral of {b.name}", labels)
    said = {i for i, p in enumerate(group) if {(a.name, p.position_label), (b.name, p.velocity_label)} & refused}
    for verdict in mismatches(match, (1 / MAX_SIZE_RATIO, MAX_SIZE_RATIO), swapped_columns(match, exact=True)):
        if not said & set(verdict.columns):
            yield mismatch_finding(view, relation, verdict)
        said |= set(verdict.columns)
    components = Components(contract)
    noise = dict(zip(((c.signal, c.label) for c in components.entries), noise_floor(view.tracks, components), strict=True))
    for i, pair in enumerate(group):
        if i in said or not abs(match.corr[i, i]) < MAX_UNRELATED_CORRELATION:
            continue
        sigma = noise[a.name, pair.position_label], noise[b.name, pair.velocity_label]
        if _well_above_noise(view, pair, *sigma):
            text = f"{b.name} of {pair.velocity_label} is not the rate at which {a.name} of {pair.position_label} changes."
            yield view.refused_finding("mismatch", b.name, [pair.velocity_label], text)


def _well_above_noise(view: TrackView, pair: PositionVelocityPair, position_noise: float, velocity_noise: float) -> bool:
    """Whether a position and its velocity, over AHEAD seconds, change by far more than their noise."""
    ticks = max(1, round(MISMATCH_WINDOW / view.tick))
    steps = np.concatenate([x[ticks:, 0] - x[:-ticks, 0] for x in view.values(pair.position, [pair.position_label])])
    speeds = np.concatenate([x[::ticks, 0] for x in view.values(pair.velocity, [pair.velocity_label])])
    powers = np.nanvar(steps) / (2 * position_noise**2), np.nanvar(speeds) / velocity_noise**2
    return bool(min(powers) > MISMATCH_POWER_RATIO)


def _at_mirrored_target(view: TrackView, rows: Sequence[int]) -> bool:
    """Whether joints also stand where the opposite of their targets is.

    Under the weight of a body a joint gives way, and a policy that corrects it makes its target go the other way.
    """
    is_at = np.concatenate(view.values("joint_pos", view.robot.contract.target.labels))[:, list(rows)]
    told = np.concatenate([t.target for t in view.tracks])[:, list(rows)]
    both = np.isfinite(is_at) & np.isfinite(told)
    at, to = (np.where(both, x, 0.0).sum(0) / np.maximum(both.sum(0), 1) for x in (is_at, told))
    return bool((np.abs(at + to) < MIRRORED_DISTANCE_RATIO * np.abs(at - to)).all())


def _target_findings(view: TrackView, consistent_joints: set[str], refused: set[SignalComponent]) -> Iterator[Finding]:
    """Joints against the targets that they are told; `sound` are those whose position and velocity agree."""
    contract = view.robot.contract
    target, position = contract.target, contract["joint_pos"]
    late = view.robot.max_delay("action_delay") + view.robot.max_delay("sensor_delay") + MAX_MOTOR_LAG
    told_to = tick_rates([t.target for t in view.tracks], view.tick)
    does = tick_rates(view.values("joint_pos", target.labels), view.tick)
    m = match_columns(list(zip(does, told_to, strict=True)), view.tick, late)
    for verdict in mismatches(m, TARGET_RESPONSE_RANGE, swapped_columns(m)):
        labels = {target.labels[i] for i in verdict.columns}
        if {(position.name, label) for label in labels} & refused:
            continue
        if (
            verdict.kind == "sign"
            and view.robot.morphology.feet
            and labels <= consistent_joints
            and not _at_mirrored_target(view, verdict.columns)
        ):
            continue
        # Two signals against one.
        blame = target.name if labels <= consistent_joints else position.name
        relation = SignalRelation(
            position, target, f"the change of {position.name}", f"the change of {target.name}", target.labels, blame
        )
        yield mismatch_finding(view, relation, verdict)
