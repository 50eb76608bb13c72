"""Wiring and configuration: which mistake, if it is undone, makes the recordings agree with the simulator.

A mistake is a change of the recorded signals and targets. All of them are undone, each on its own, and the pieces that come
out are predicted side by side in the middle of the belief. Log-likelihood with the noise that each leaves,

    evidence = Σ n · log(left as it is / left without the mistake)       n: comparisons that speak for themselves
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from isthmus.core.constants import STANDARD_GRAVITY
from isthmus.core.errors import BadInput
from isthmus.core.geometry import rotate_inverse
from isthmus.core.progress import Progress, silent, sub_progress
from isthmus.core.units import conversion_factor
from isthmus.data.contract import Contract, Signal
from isthmus.real2sim.diagnose.baseline import EvidenceBaseline
from isthmus.real2sim.diagnose.baseline_fit import fit_parameters
from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.kinematics import body_signals
from isthmus.real2sim.prepare.noise import noise_floor
from isthmus.real2sim.prepare.segments import Segments, cut
from isthmus.real2sim.prepare.tracks import Track
from isthmus.real2sim.residual.estimators import settle_ticks
from isthmus.real2sim.residual.prediction_errors import squared_errors
from isthmus.sim.robot import Robot
from isthmus.world import Belief

OTHER_UNITS = {"rad": ("deg",), "rad/s": ("deg/s", "rpm"), "m": ("mm", "cm"), "m/s": ("mm/s", "cm/s"), "m/s²": ("g",)}
"""That a signal may come in by mistake."""
SEGMENT_COUNT, SEGMENT_TICKS = 8, 10
"""Short pieces: a wrong wiring shows at once."""
MAX_REFITTED = 3
"""Mistakes that are compared with numbers of their own."""
MIN_EVIDENCE_SHARE = 0.25
"""Of the evidence of the best one at first sight: mistakes with less are not compared."""
START_STEPS = 5
"""Of the search for the starts of pieces: what needs more is not right."""
TICK_REDUNDANCY = 5.0
"""How many times ticks of a robot on its feet usually say the same."""
MAX_GRAVITY_RATIO = 3.0
"""Times its weight that a robot feels at most as a rule, and of which it feels at least a part as large."""
MAX_NOISE_RATIO = 300.0
"""Of the noise: a prediction that is further off counts no more."""


@dataclass(frozen=True)
class Remapping:
    kind: str
    text: str
    """What is wrong, as a sentence without its end."""
    correct: Callable[[Track], Track]


@dataclass(frozen=True)
class RemappingEvidence:
    """One mistake undone."""

    remapping: Remapping
    evidence: float
    noise_ratio: float = np.inf
    """What numbers leave then, in units of the sensors' noise, where that was looked at."""


def remapping_evidence(robot: Robot, tracks: Sequence[Track], e: np.ndarray, threads: int = 0) -> list[RemappingEvidence]:
    """Mistakes that explain recordings better in the world e than none does, best first."""
    asked = [Remapping("none", "nothing is wrong", lambda track: track), *remappings(robot)]
    components = Components(robot.contract)
    cases: list[tuple[Remapping, Segments, np.ndarray]] = []
    for mistake in asked:
        undone = [mistake.correct(track) for track in tracks]
        if mistake.kind == "unit" and feels_one_g(robot, tracks) and not feels_one_g(robot, undone):
            continue
        try:
            cases.append((mistake, _short_segments(robot, undone), noise_floor(undone, components)))
        except BadInput:
            # Without this mistake the robot would have lain on its back: it was not made.
            continue
    if not cases or cases[0][0].kind != "none":
        return []
    scores = np.empty(len(cases))
    # Another unit is another size of noise: each of them is looked at by itself.
    groups = [[i for i, c in enumerate(cases) if c[0].kind != "unit"]] + [
        [i] for i, c in enumerate(cases) if c[0].kind == "unit"
    ]
    for group in groups:
        scores[group] = _negative_log_likelihoods(robot, [cases[i][1] for i in group], [cases[i][2] for i in group], e, threads)
    gain = (scores[0] - scores) / (TICK_REDUNDANCY if robot.morphology.feet else 1.0)
    found_so = [RemappingEvidence(m, float(g)) for (m, _, _), g in zip(cases, gain, strict=True)]
    return sorted((u for u in found_so if u.evidence > 0), key=lambda u: -u.evidence)


def feels_one_g(robot: Robot, tracks: Sequence[Track]) -> bool:
    """Whether an accelerometer, if there is one, feels about one g, as it does in its own unit."""
    accel = body_signals(robot).get("accel")
    if accel is None:
        return True
    where = robot.contract.slices()[accel]
    felt = np.linalg.norm(np.concatenate([track.measured[:, where] for track in tracks]), axis=1)
    felt = felt[np.isfinite(felt)]
    return not len(felt) or bool(1 / MAX_GRAVITY_RATIO < np.median(felt) / STANDARD_GRAVITY < MAX_GRAVITY_RATIO)


def refit_best_remappings(
    robot: Robot,
    tracks: Sequence[Track],
    belief: Belief,
    baseline: EvidenceBaseline,
    threads: int = 0,
    report: Progress = silent,
) -> list[RemappingEvidence]:
    """Mistakes that look best, and how much better they explain recordings than none does, with numbers inside the belief."""
    out, ticks = [], baseline.fit.residual.segments.ticks
    as_it_is = baseline.laplace.outside_gain
    seen = remapping_evidence(robot, tracks, belief.median(), threads)[:MAX_REFITTED]
    for i, first in enumerate(seen):
        if first.evidence < MIN_EVIDENCE_SHARE * seen[0].evidence:
            break
        own = sub_progress(report, (i + 1) / (len(seen) + 1), (i + 2) / (len(seen) + 1))
        try:
            undone = fit_parameters(
                robot, [first.remapping.correct(track) for track in tracks], belief, threads, ticks, True, own
            )
        except BadInput:
            continue
        better = (baseline.fit.cost - undone.cost) * baseline.fit.comparison_count / baseline.tick_redundancy
        out.append(
            replace(
                first,
                evidence=better + as_it_is - undone.cost_inside_belief(belief, baseline.tick_redundancy),
                noise_ratio=undone.noise_ratio,
            )
        )
    return sorted(out, key=lambda u: -u.evidence)


def _short_segments(robot: Robot, tracks: Sequence[Track]) -> Segments:
    skip, longest = settle_ticks(robot), max(len(t) for t in tracks)
    ticks = max(2, min(2 * SEGMENT_TICKS if robot.morphology.feet else SEGMENT_TICKS, longest - skip - 6))
    return cut(tracks, robot, skip + ticks, ticks).evenly(SEGMENT_COUNT)


def _negative_log_likelihoods(
    robot: Robot, segments: list[Segments], noise_floors: list[np.ndarray], e: np.ndarray, threads: int
) -> list[float]:
    """-log-likelihood of each, with the noise that goes with it."""
    fields = Segments.__dataclass_fields__
    together = Segments(*(np.concatenate([getattr(p, f) for p in segments]) for f in fields))
    with warnings.catch_warnings():
        # What was never measured has no noise, and needs none.
        warnings.simplefilter("ignore", RuntimeWarning)
        usual = np.nanmedian(noise_floors, axis=0)
    (squares, count), *_ = squared_errors(robot, together, usual, [e], threads, START_STEPS)
    out, first = [], 0
    for piece, sigma in zip(segments, noise_floors, strict=True):
        rows = slice(first, first + len(piece))
        first += len(piece)
        seen = count[rows].sum(0)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            # A typical piece: one in which the robot falls must not decide.
            each = np.sqrt(squares[rows] / np.maximum(count[rows], 1)) / sigma
            typical = np.clip(np.nanmedian(np.where(count[rows] > 0, each, np.nan), axis=0), 1.0, MAX_NOISE_RATIO)
        out.append(float(np.nansum(seen * np.log(typical))))
    return out


# Mistakes -----------------------------------------------------------------------------------------------------------


def remappings(robot: Robot) -> Iterator[Remapping]:
    """All that make sense for a robot."""
    contract = robot.contract
    labels = contract.target.labels
    for a, b in combinations(labels, 2):
        if _has_joint_signals(contract, a) == _has_joint_signals(contract, b):
            yield Remapping("swapped", f"{a} and {b} are swapped", _remap_motors(contract, {a: b, b: a}, {}))
    for a in labels:
        if _has_joint_signals(contract, a) and (
            contract.has_joint_targets or not contract.target.low or min(contract.target.low) < 0
        ):
            yield Remapping("flipped", f"{a} turns the other way", _remap_motors(contract, {}, {a: -1.0}))
    for signal in contract.signals:
        for unit in OTHER_UNITS.get(signal.unit, ()):
            scale = conversion_factor(unit, signal.unit, signal.name)
            yield Remapping(
                "unit", f"{signal.name} is in {unit} instead of {signal.unit}", _scale_signal(contract, signal, scale)
            )
    yield from _attitude_remappings(robot)


def _attitude_remappings(robot: Robot) -> Iterator[Remapping]:
    contract, found = robot.contract, body_signals(robot)
    quat = found.get("quat")
    if quat is None:
        return
    at = contract.slices()
    where = at[quat]
    yield Remapping("order", f"{quat} is in the order x, y, z, w", _remap_columns(where, [3, 0, 1, 2], [1.0, 1.0, 1.0, 1.0]))
    yield Remapping(
        "order", f"{quat} is that of the world in the body", _remap_columns(where, [0, 1, 2, 3], [1.0, -1.0, -1.0, -1.0])
    )
    for name in (s.name for s in contract.signals if s.frame and s.size == 3 and s.name != found.get("pos")):
        frame, other = contract[name].frame, "world" if contract[name].frame == "body" else "body"
        yield Remapping(
            "frame", f"{name} is in the frame of the {other} instead of the {frame}", _rotate_signal(at[name], where, other)
        )
    if (accel := found.get("accel")) is not None:
        yield Remapping("sign", f"{accel} has the wrong sign", _remap_columns(at[accel], [0, 1, 2], [-1.0, -1.0, -1.0]))


def _has_joint_signals(contract: Contract, label: str) -> bool:
    """Whether a motor has signals of its own: its joint's."""
    return any(label in s.labels and not s.frame for s in contract.signals)


def _remap_motors(contract: Contract, permutation: dict[str, str], signs: dict[str, float]) -> Callable[[Track], Track]:
    """Motors in other places, or turning the other way: their signals and targets alike."""

    def of(signal: Signal) -> tuple[list[int], list[float]]:
        labels = [permutation.get(label, label) for label in signal.labels]
        if signal.frame or not set(labels) <= set(signal.labels):
            labels = list(signal.labels)
        flips = [1.0 if signal.frame else signs.get(label, 1.0) for label in signal.labels]
        return [signal.labels.index(label) for label in labels], flips

    columns, factors = [], []
    for signal, where in zip(contract.signals, contract.slices().values(), strict=True):
        order, flips = of(signal)
        columns += [where.start + i for i in order]
        factors += flips
    target, flips = of(contract.target)
    return lambda t: replace(t, measured=t.measured[:, columns] * factors, target=t.target[:, target] * flips)


def _scale_signal(contract: Contract, signal: Signal, scale: float) -> Callable[[Track], Track]:
    where = contract.slices()[signal.name]
    return _remap_columns(where, list(range(signal.size)), [scale] * signal.size)


def _remap_columns(where: slice, order: list[int], factors: list[float]) -> Callable[[Track], Track]:
    def undo(track: Track) -> Track:
        measured = track.measured.copy()
        measured[:, where] = track.measured[:, where][:, order] * factors
        return replace(track, measured=measured)

    return undo


def _rotate_signal(where: slice, quat: slice, recorded_frame: str) -> Callable[[Track], Track]:
    """A vector that came in another frame than it should."""

    def undo(track: Track) -> Track:
        measured, q = track.measured.copy(), track.measured[:, quat]
        back = q if recorded_frame == "world" else q * [1.0, -1.0, -1.0, -1.0]
        measured[:, where] = rotate_inverse(back, track.measured[:, where])
        return replace(track, measured=measured)

    return undo
