"""Has a unit changed since its twin was fitted: which number, since when, by how much, and what must be done about it.

    score       every recording at the twin's numbers
    test        each number by itself, as if it alone could have changed; what recordings do not tell is not tested
    explain     the one with the most evidence is taken for changed, recordings are scored again with it, the rest tested again
    left        errors that rise though no number explains it: physics beyond the numbers

Two numbers that leave the same trace are named together: recordings cannot tell which of them it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import numpy as np

from isthmus.gap.drift import Evidence, Shape, Size, course, evidence, level, size
from isthmus.identify.information import Direction, undetermined
from isthmus.identify.score import Score, Unit, alone, score, told

MOST = 4
"""Changed numbers that are looked for."""
AGAIN = 2
"""Times that recordings are scored again with a change that was found."""
RIVALS, TRIED, STEPS, FARTHEST, SETTLED = 8, 2, 4, 1.5, 0.02
"""Numbers that are tried as the one that changed, in how many of the last recordings, in how many steps of at most how far,
and the step at which that is enough."""
ALIKE = 3.0
"""Another number whose log likelihood is short of the best by less cannot be told from it."""
LEVEL_OFF, SCATTER = 0.2, 0.03
"""Of the logarithm of what no number explains: how far off its level may be, and how it scatters beyond the noise."""
BOUND = 6.0
"""Farthest in unconstrained coordinates that a changed number is simulated at."""


@dataclass(frozen=True)
class Change:
    """Of one number."""

    name: str
    alarm: int
    """Recording after which it was certain, from 0."""
    evidence: Evidence
    size: Size
    """In unconstrained coordinates."""
    shape: Shape | None
    since: tuple[int, int, int]
    """First changed recording: the most likely one and its 90 % interval."""
    alike: tuple[str, ...] = ()
    """Other numbers that could as well have changed."""


@dataclass(frozen=True)
class Watched:
    unit: Unit
    changes: tuple[Change, ...]
    beyond: Change | None
    """Errors that no number explains have risen; the size is a logarithm of their square."""
    estimates: np.ndarray
    """(n, d) what each recording by itself says about the change of each number, (n, d), and its standard error."""
    errors: np.ndarray
    left: np.ndarray
    """(n,) error that no number explains, in units of the noise."""
    evidence: dict[str, Evidence]
    """Of the first test of each number."""
    undetermined: tuple[Direction, ...]
    level: float
    """Of the evidence, for an alarm."""
    widened: float
    """By how much the twin's intervals were too narrow for the recordings without change; 1 if not."""
    scores: Score = field(repr=False)


def watch(
    unit: Unit,
    alarms: float = 1.0,
    unchanged: int = 0,
    own: Collection[int] = (),
    report: Callable[[float], None] = lambda share: None,
    scores: Score | None = None,
    said: np.ndarray | None = None,
) -> Watched:
    """Look for changes with at most `alarms` false ones per 1,000 recordings.

    The first `unchanged` recordings are known to be without a change; the twin was fitted to the recordings `own`, which say
    nothing new about its error. `scores` and `said` are those of `score` and `told`, if the caller has them.
    """
    said = told(unit) if said is None else said
    scores = score(unit, report=lambda share: report(0.9 * share)) if scores is None else scores
    test = _Test(unit, scores, unchanged, frozenset(own))
    first, threshold = examine(unit, scores, said, alarms, unchanged, own)
    names, n = [*first], len(scores.s)
    tests, found, first_scores = dict(first), [], scores
    while len(found) < MOST:
        over = {name: at for name, e in tests.items() if (at := e.alarm(threshold)) is not None}
        if not over:
            break
        name, near, value = _contest(test, tests)
        test, change = _explained(test, name, _leading(tests), min(over.values()), near, value)
        found.append(change)
        tests = {o: test.of(o) for o in names if o not in {c.name for c in found}}
    beyond = test.rest(threshold)
    F = np.maximum(np.diagonal(first_scores.F, axis1=1, axis2=2), 1e-300)
    report(1.0)
    return Watched(
        unit, tuple(found), beyond, first_scores.s / F, 1.0 / np.sqrt(F), np.exp(0.5 * test.scores.left[:n]), first,
        undetermined(unit.wide, said, unit.now.mean), threshold, float(np.sqrt(test.wider)), test.scores,
    )  # fmt: skip


def examine(
    unit: Unit, scores: Score, said: np.ndarray, alarms: float, unchanged: int = 0, own: Collection[int] = ()
) -> tuple[dict[str, Evidence], float]:
    """Evidence for a change of each number that recordings tell, as if it alone could have changed, and that for an alarm."""
    known = np.diag(said) * unit.wide.spread**2 >= 1.0
    names = [n for n, k in zip(unit.now.space.names, known, strict=True) if k]
    test = _Test(unit, scores, unchanged, frozenset(own))
    return {name: test.of(name) for name in names}, level(alarms, len(names) + 1)


def name_it(unit: Unit, scores: Score, tests: dict[str, Evidence]) -> tuple[str, ...]:
    """The number whose change explains the last recordings best, and those that do so as well."""
    name, alike, _ = _contest(_Test(unit, scores, 0, frozenset()), tests)
    return (name, *alike)


@dataclass(frozen=True)
class _Test:
    """Scores, and the changes that they were taken with."""

    unit: Unit
    scores: Score
    unchanged: int
    own: frozenset[int]
    known: tuple[Change, ...] = ()

    @property
    def wider(self) -> float:
        """How much larger the variance of the twin's error is than believed, by the recordings without change."""
        which = [i for i in range(self.unchanged) if i not in self.own]
        if not which:
            return 1.0
        s, F = self.scores.s[which].sum(0), self.scores.F[which].sum(0)
        spread = F @ np.linalg.inv(self.unit.now.precision) @ F + F
        values, vectors = np.linalg.eigh(spread)
        keep = values > 1e-9 * values.max()
        return max(1.0, float(((vectors[:, keep].T @ s) ** 2 / values[keep]).sum() / keep.sum()))

    def series(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Changes of a number by recording, (n,), and their covariance without a change of it, (n, n)."""
        unit, scores = self.unit, self.scores
        j = unit.now.space.index(name)
        F = np.maximum(scores.F[:, j, j], 1e-6 / unit.wide.spread[j] ** 2)
        mixed = scores.F[:, j] / F[:, None]
        y = scores.z[:, j] - unit.now.mean[j] + scores.s[:, j] / F
        shared = mixed.copy()
        shared[sorted(self.own)] = 0.0
        covariance = np.diag(1.0 / F) + self.wider * shared @ np.linalg.solve(unit.now.precision, shared.T)
        for change in self.known:
            if change.name == name:
                continue
            other = unit.now.space.index(change.name)
            for shape in (change.shape,) if change.shape else ("jump", "drift"):
                u = course(len(y), shape, change.since[0])
                trace = mixed[:, other] * u / u.max() * unit.wide.spread[other]
                covariance += np.outer(trace, trace)
        return y, covariance

    def of(self, name: str) -> Evidence:
        return evidence(*self.series(name), self.unchanged)

    def rest(self, threshold: float) -> Change | None:
        """Whether errors rise though no number explains it."""
        y = self.scores.left
        covariance = np.diag(2.0 / self.scores.freedom + SCATTER**2) + LEVEL_OFF**2
        found = evidence(y, covariance, self.unchanged)
        at = found.alarm(threshold)
        if at is None:
            return None
        shape, since = found.shape, found.since
        large = size(y, covariance, shape or "jump", since[0])
        return Change("", at, found, large, shape, since) if large.now > 0 else None


def _leading(tests: dict[str, Evidence]) -> Evidence:
    return max(tests.values(), key=lambda e: e.total[-1])


def _contest(test: _Test, rivals: dict[str, Evidence]) -> tuple[str, tuple[str, ...], float]:
    """Which number, changed as it suits it best, explains the last recordings best; those that do so as well; its value.

    Far from the twin's numbers a linearisation says whether something has changed, but not what.
    """
    unit, n, says = test.unit, len(test.scores.s), _leading(rivals)
    k, found = says.since[0], {}
    which = list(range(max(k, n - TRIED), n))
    for name in sorted(rivals, key=lambda o: -rivals[o].total[-1])[:RIVALS]:
        j = unit.now.space.index(name)
        at = test.scores.z[-1].copy()
        at[j] = unit.now.mean[j] + size(*test.series(name), says.shape or "jump", k).now
        one, best = alone(unit, name, at), (np.inf, 0.0)
        z = np.clip(one.now.mean, -BOUND, BOUND)
        for _ in range(STEPS):
            here = score(one, which, z)
            best = min(best, (float((here.cost - test.scores.cost[which]).sum()), float(z[0])))
            step = here.s.sum(0) / (here.F.sum(0)[0] + one.wide.precision[0])
            z = np.clip(z + np.clip(step, -FARTHEST, FARTHEST), -BOUND, BOUND)
            if abs(step[0]) < SETTLED:
                break
        found[name] = best
    name = min(found, key=lambda o: found[o])
    alike = tuple(o for o in found if o != name and found[o][0] < found[name][0] + ALIKE)
    return name, alike, found[name][1]


def _explained(
    test: _Test, name: str, found: Evidence, alarm: int, alike: tuple[str, ...], value: float
) -> tuple[_Test, Change]:
    """The change of a number to a value, and the recordings scored with it."""
    unit = test.unit
    j = unit.now.space.index(name)
    moved = unit.now.mean[j] + (value - unit.now.mean[j]) * _share(found, len(test.scores.s))
    for _ in range(AGAIN):
        k, scores = found.since[0], test.scores
        for part in _groups(moved[k:]):
            z = scores.z[k + part[0]].copy()
            z[j] = moved[k + part].mean()
            scores = scores.put(k + part, score(unit, (k + part).tolist(), z))
        test = replace(test, scores=scores)
        found = test.of(name)
        moved = unit.now.mean[j] + size(*test.series(name), found.shape or "jump", found.since[0]).course
        moved = np.clip(moved, -BOUND, BOUND)
    large = size(*test.series(name), found.shape or "jump", found.since[0])
    change = Change(name, alarm, found, large, found.shape, found.since, alike)
    return replace(test, known=(*test.known, change)), change


def _share(found: Evidence, n: int) -> np.ndarray:
    """Of the change after the last recording, at each one, (n,)."""
    u = course(n, found.shape or "jump", found.since[0])
    return u / u[-1]


def _groups(values: np.ndarray, most: int = 6) -> list[np.ndarray]:
    """Neighbours with nearly the same value: at most so many groups."""
    if np.ptp(values) == 0.0:
        return [np.arange(len(values))]
    return [part for part in np.array_split(np.arange(len(values)), min(most, len(values))) if len(part)]
