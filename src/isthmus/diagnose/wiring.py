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

from isthmus.data.contract import Contract, Signal
from isthmus.data.units import GRAVITY, factor
from isthmus.diagnose.base import Base
from isthmus.diagnose.numbers import fitted
from isthmus.errors import BadInput
from isthmus.gap.noise import floor
from isthmus.gap.residual import Components, skipped
from isthmus.gap.segments import Segments, cut
from isthmus.gap.suspect.kin import spatial
from isthmus.gap.tracks import Track
from isthmus.identify.study import misses
from isthmus.progress import Report, part, silent
from isthmus.sim.robot import Robot
from isthmus.sim.sources import unrotate
from isthmus.world import Belief

OTHER_UNITS = {"rad": ("deg",), "rad/s": ("deg/s", "rpm"), "m": ("mm", "cm"), "m/s": ("mm/s", "cm/s"), "m/s²": ("g",)}
"""That a signal may come in by mistake."""
PIECES, TICKS = 8, 10
"""Short pieces: a wrong wiring shows at once."""
TRIED = 3
"""Mistakes that are compared with numbers of their own."""
HOPELESS = 0.25
"""Of the evidence of the best one at first sight: mistakes with less are not compared."""
STEPS = 5
"""Of the search for the starts of pieces: what needs more is not right."""
REPEATED = 5.0
"""How many times ticks of a robot on its feet usually say the same."""
WEIGHT = 3.0
"""Times its weight that a robot feels at most as a rule, and of which it feels at least a part as large."""
AT_MOST = 300.0
"""Of the noise: a prediction that is further off counts no more."""


@dataclass(frozen=True)
class Mistake:
    kind: str
    text: str
    """What is wrong, as a sentence without its end."""
    undo: Callable[[Track], Track]


@dataclass(frozen=True)
class Undone:
    """One mistake undone."""

    mistake: Mistake
    evidence: float
    left: float = np.inf
    """What numbers leave then, in units of the sensors' noise, where that was looked at."""


def wiring(robot: Robot, found: Sequence[Track], e: np.ndarray, threads: int = 0) -> list[Undone]:
    """Mistakes that explain recordings better in the world e than none does, best first."""
    asked = [Mistake("none", "nothing is wrong", lambda track: track), *mistakes(robot)]
    components = Components(robot.contract)
    cases: list[tuple[Mistake, Segments, np.ndarray]] = []
    for mistake in asked:
        undone = [mistake.undo(track) for track in found]
        if mistake.kind == "unit" and weighed(robot, found) and not weighed(robot, undone):
            continue
        try:
            cases.append((mistake, _pieces(robot, undone), floor(undone, components)))
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
        scores[group] = _scores(robot, [cases[i][1] for i in group], [cases[i][2] for i in group], e, threads)
    gain = (scores[0] - scores) / (REPEATED if robot.feet else 1.0)
    found_so = [Undone(m, float(g)) for (m, _, _), g in zip(cases, gain, strict=True)]
    return sorted((u for u in found_so if u.evidence > 0), key=lambda u: -u.evidence)


def weighed(robot: Robot, found: Sequence[Track]) -> bool:
    """Whether an accelerometer, if there is one, feels about one g, as it does in its own unit."""
    accel = spatial(robot).get("accel")
    if accel is None:
        return True
    where = robot.contract.slices()[accel]
    felt = np.linalg.norm(np.concatenate([track.measured[:, where] for track in found]), axis=1)
    felt = felt[np.isfinite(felt)]
    return not len(felt) or bool(1 / WEIGHT < np.median(felt) / float(GRAVITY) < WEIGHT)


def compared(
    robot: Robot, found: Sequence[Track], belief: Belief, at: Base, threads: int = 0, report: Report = silent
) -> list[Undone]:
    """Mistakes that look best, and how much better they explain recordings than none does, with numbers inside the belief."""
    out, ticks = [], at.fitted.residual.segments.ticks
    as_it_is = at.quadratic.soft
    seen = wiring(robot, found, belief.median(), threads)[:TRIED]
    for i, first in enumerate(seen):
        if first.evidence < HOPELESS * seen[0].evidence:
            break
        own = part(report, (i + 1) / (len(seen) + 1), (i + 2) / (len(seen) + 1))
        try:
            undone = fitted(robot, [first.mistake.undo(track) for track in found], belief, threads, ticks, True, own)
        except BadInput:
            continue
        better = (at.fitted.cost - undone.cost) * at.fitted.count / at.repeated
        out.append(replace(first, evidence=better + as_it_is - undone.forced(belief, at.repeated), left=undone.times))
    return sorted(out, key=lambda u: -u.evidence)


def _pieces(robot: Robot, found: Sequence[Track]) -> Segments:
    skip, longest = skipped(robot), max(len(t) for t in found)
    ticks = max(2, min(2 * TICKS if robot.feet else TICKS, longest - skip - 6))
    return cut(found, robot, skip + ticks, ticks).spread(PIECES)


def _scores(robot: Robot, pieces: list[Segments], floors: list[np.ndarray], e: np.ndarray, threads: int) -> list[float]:
    """-log-likelihood of each, with the noise that goes with it."""
    fields = Segments.__dataclass_fields__
    together = Segments(*(np.concatenate([getattr(p, f) for p in pieces]) for f in fields))
    with warnings.catch_warnings():
        # What was never measured has no noise, and needs none.
        warnings.simplefilter("ignore", RuntimeWarning)
        usual = np.nanmedian(floors, axis=0)
    (squares, count), *_ = misses(robot, together, usual, [e], threads, STEPS)
    out, first = [], 0
    for piece, sigma in zip(pieces, floors, strict=True):
        rows = slice(first, first + len(piece))
        first += len(piece)
        seen = count[rows].sum(0)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            # A typical piece: one in which the robot falls must not decide.
            each = np.sqrt(squares[rows] / np.maximum(count[rows], 1)) / sigma
            typical = np.clip(np.nanmedian(np.where(count[rows] > 0, each, np.nan), axis=0), 1.0, AT_MOST)
        out.append(float(np.nansum(seen * np.log(typical))))
    return out


# Mistakes -----------------------------------------------------------------------------------------------------------


def mistakes(robot: Robot) -> Iterator[Mistake]:
    """All that make sense for a robot."""
    contract = robot.contract
    labels = contract.target.labels
    for a, b in combinations(labels, 2):
        if _wired(contract, a) == _wired(contract, b):
            yield Mistake("swapped", f"{a} and {b} are swapped", _rewired(contract, {a: b, b: a}, {}))
    for a in labels:
        if _wired(contract, a) and (contract.joints or not contract.target.low or min(contract.target.low) < 0):
            yield Mistake("flipped", f"{a} turns the other way", _rewired(contract, {}, {a: -1.0}))
    for signal in contract.signals:
        for unit in OTHER_UNITS.get(signal.unit, ()):
            scale = factor(unit, signal.unit, signal.name)
            yield Mistake("unit", f"{signal.name} is in {unit} instead of {signal.unit}", _scaled(contract, signal, scale))
    yield from _of_attitude(robot)


def _of_attitude(robot: Robot) -> Iterator[Mistake]:
    contract, found = robot.contract, spatial(robot)
    quat = found.get("quat")
    if quat is None:
        return
    at = contract.slices()
    where = at[quat]
    yield Mistake("order", f"{quat} is in the order x, y, z, w", _columns(where, [3, 0, 1, 2], [1.0, 1.0, 1.0, 1.0]))
    yield Mistake("order", f"{quat} is that of the world in the body", _columns(where, [0, 1, 2, 3], [1.0, -1.0, -1.0, -1.0]))
    for name in (s.name for s in contract.signals if s.frame and s.size == 3 and s.name != found.get("pos")):
        frame, other = contract[name].frame, "world" if contract[name].frame == "body" else "body"
        yield Mistake("frame", f"{name} is in the frame of the {other} instead of the {frame}", _turned(at[name], where, other))
    if (accel := found.get("accel")) is not None:
        yield Mistake("sign", f"{accel} has the wrong sign", _columns(at[accel], [0, 1, 2], [-1.0, -1.0, -1.0]))


def _wired(contract: Contract, label: str) -> bool:
    """Whether a motor has signals of its own: its joint's."""
    return any(label in s.labels and not s.frame for s in contract.signals)


def _rewired(contract: Contract, other: dict[str, str], sign: dict[str, float]) -> Callable[[Track], Track]:
    """Motors in other places, or turning the other way: their signals and targets alike."""

    def of(signal: Signal) -> tuple[list[int], list[float]]:
        labels = [other.get(label, label) for label in signal.labels]
        if signal.frame or not set(labels) <= set(signal.labels):
            labels = list(signal.labels)
        flips = [1.0 if signal.frame else sign.get(label, 1.0) for label in signal.labels]
        return [signal.labels.index(label) for label in labels], flips

    columns, factors = [], []
    for signal, where in zip(contract.signals, contract.slices().values(), strict=True):
        order, flips = of(signal)
        columns += [where.start + i for i in order]
        factors += flips
    target, flips = of(contract.target)
    return lambda t: replace(t, measured=t.measured[:, columns] * factors, target=t.target[:, target] * flips)


def _scaled(contract: Contract, signal: Signal, scale: float) -> Callable[[Track], Track]:
    where = contract.slices()[signal.name]
    return _columns(where, list(range(signal.size)), [scale] * signal.size)


def _columns(where: slice, order: list[int], factors: list[float]) -> Callable[[Track], Track]:
    def undo(track: Track) -> Track:
        measured = track.measured.copy()
        measured[:, where] = track.measured[:, where][:, order] * factors
        return replace(track, measured=measured)

    return undo


def _turned(where: slice, quat: slice, came_in: str) -> Callable[[Track], Track]:
    """A vector that came in another frame than it should."""

    def undo(track: Track) -> Track:
        measured, q = track.measured.copy(), track.measured[:, quat]
        back = q if came_in == "world" else q * [1.0, -1.0, -1.0, -1.0]
        measured[:, where] = unrotate(back, track.measured[:, where])
        return replace(track, measured=measured)

    return undo
