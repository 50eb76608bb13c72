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

from isthmus.real2sim.drift.change_detection import (
    ChangeEvidence,
    ChangeShape,
    ChangeSize,
    alarm_threshold,
    change_evidence,
    change_profile,
    change_size,
)
from isthmus.real2sim.drift.score_statistics import (
    DriftInputs,
    ScoreStatistics,
    recording_information,
    score_recordings,
    with_single_parameter,
)
from isthmus.real2sim.identify.identifiability import Direction, undetermined_directions

MAX_CHANGES = 4
"""Changed numbers that are looked for."""
RESCORING_ROUNDS = 2
"""Times that recordings are scored again with a change that was found."""
MAX_RIVALS, RIVAL_RECORDINGS, RIVAL_STEPS, MAX_RIVAL_STEP, RIVAL_STEP_TOLERANCE = 8, 2, 4, 1.5, 0.02
"""Numbers that are tried as the one that changed, in how many of the last recordings, in how many steps of at most how far,
and the step at which that is enough."""
INDISTINGUISHABLE_NATS = 3.0
"""Another number whose log likelihood is short of the best by less cannot be told from it."""
UNEXPLAINED_OFFSET_STD, UNEXPLAINED_SCATTER_STD = 0.2, 0.03
"""Of the logarithm of what no number explains: how far off its level may be, and how it scatters beyond the noise."""
MAX_ABS_Z = 6.0
"""Farthest in unconstrained coordinates that a changed number is simulated at."""


@dataclass(frozen=True)
class ParameterChange:
    """Of one number."""

    name: str
    alarm_recording: int
    """Recording after which it was certain, from 0."""
    evidence: ChangeEvidence
    size: ChangeSize
    """In unconstrained coordinates."""
    shape: ChangeShape | None
    change_start: tuple[int, int, int]
    """First changed recording: the most likely one and its 90 % interval."""
    indistinguishable: tuple[str, ...] = ()
    """Other numbers that could as well have changed."""


@dataclass(frozen=True)
class DriftAnalysis:
    inputs: DriftInputs
    changes: tuple[ParameterChange, ...]
    unexplained_change: ParameterChange | None
    """Errors that no number explains have risen; the size is a logarithm of their square."""
    estimates: np.ndarray
    """(n, d) what each recording by itself says about the change of each number, (n, d), and its standard error."""
    standard_errors: np.ndarray
    unexplained_error: np.ndarray
    """(n,) error that no number explains, in units of the noise."""
    evidence: dict[str, ChangeEvidence]
    """Of the first test of each number."""
    undetermined_directions: tuple[Direction, ...]
    alarm_threshold: float
    """Of the evidence, for an alarm."""
    interval_inflation: float
    """By how much the twin's intervals were too narrow for the recordings without change; 1 if not."""
    scores: ScoreStatistics = field(repr=False)


def find_changes(
    inputs: DriftInputs,
    false_alarms_per_1000: float = 1.0,
    unchanged: int = 0,
    fitted_recordings: Collection[int] = (),
    report: Callable[[float], None] = lambda share: None,
    scores: ScoreStatistics | None = None,
    information: np.ndarray | None = None,
) -> DriftAnalysis:
    """Look for changes with at most `alarms` false ones per 1,000 recordings.

    The first `unchanged` recordings are known to be without a change; the twin was fitted to the recordings `own`, which say
    nothing new about its error. `scores` and `said` are those of `score` and `told`, if the caller has them.
    """
    information = recording_information(inputs) if information is None else information
    scores = score_recordings(inputs, report=lambda share: report(0.9 * share)) if scores is None else scores
    test = _ChangeTest(inputs, scores, unchanged, frozenset(fitted_recordings))
    first, threshold = parameter_change_evidence(
        inputs, scores, information, false_alarms_per_1000, unchanged, fitted_recordings
    )
    names, n = [*first], len(scores.s)
    tests, found, first_scores = dict(first), [], scores
    while len(found) < MAX_CHANGES:
        over = {name: at for name, e in tests.items() if (at := e.first_alarm(threshold)) is not None}
        if not over:
            break
        name, near, value = _best_explanation(test, tests)
        test, change = _rescore_with_change(test, name, _strongest(tests), min(over.values()), near, value)
        found.append(change)
        tests = {o: test.evidence_for(o) for o in names if o not in {c.name for c in found}}
    beyond = test.unexplained_change(threshold)
    F = np.maximum(np.diagonal(first_scores.F, axis1=1, axis2=2), 1e-300)
    report(1.0)
    return DriftAnalysis(
        inputs, tuple(found), beyond, first_scores.s / F, 1.0 / np.sqrt(F), np.exp(0.5 * test.scores.log_unexplained[:n]),
        first, undetermined_directions(inputs.population_prior, information, inputs.twin_prior.mean), threshold,
        float(np.sqrt(test.variance_inflation)), test.scores,
    )  # fmt: skip


def parameter_change_evidence(
    inputs: DriftInputs,
    scores: ScoreStatistics,
    information: np.ndarray,
    false_alarms_per_1000: float,
    unchanged: int = 0,
    fitted_recordings: Collection[int] = (),
) -> tuple[dict[str, ChangeEvidence], float]:
    """Evidence for a change of each number that recordings tell, as if it alone could have changed, and that for an alarm."""
    known = np.diag(information) * inputs.population_prior.std**2 >= 1.0
    names = [n for n, k in zip(inputs.twin_prior.space.names, known, strict=True) if k]
    test = _ChangeTest(inputs, scores, unchanged, frozenset(fitted_recordings))
    return {name: test.evidence_for(name) for name in names}, alarm_threshold(false_alarms_per_1000, len(names) + 1)


def attribute(inputs: DriftInputs, scores: ScoreStatistics, tests: dict[str, ChangeEvidence]) -> tuple[str, ...]:
    """The number whose change explains the last recordings best, and those that do so as well."""
    name, alike, _ = _best_explanation(_ChangeTest(inputs, scores, 0, frozenset()), tests)
    return (name, *alike)


@dataclass(frozen=True)
class _ChangeTest:
    """Scores, and the changes that they were taken with."""

    inputs: DriftInputs
    scores: ScoreStatistics
    unchanged: int
    fitted_recordings: frozenset[int]
    found_changes: tuple[ParameterChange, ...] = ()

    @property
    def variance_inflation(self) -> float:
        """How much larger the variance of the twin's error is than believed, by the recordings without change."""
        which = [i for i in range(self.unchanged) if i not in self.fitted_recordings]
        if not which:
            return 1.0
        s, F = self.scores.s[which].sum(0), self.scores.F[which].sum(0)
        spread = F @ np.linalg.inv(self.inputs.twin_prior.precision) @ F + F
        values, vectors = np.linalg.eigh(spread)
        keep = values > 1e-9 * values.max()
        return max(1.0, float(((vectors[:, keep].T @ s) ** 2 / values[keep]).sum() / keep.sum()))

    def series(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Changes of a number by recording, (n,), and their covariance without a change of it, (n, n)."""
        unit, scores = self.inputs, self.scores
        j = unit.twin_prior.space.index(name)
        F = np.maximum(scores.F[:, j, j], 1e-6 / unit.population_prior.std[j] ** 2)
        mixed = scores.F[:, j] / F[:, None]
        y = scores.z[:, j] - unit.twin_prior.mean[j] + scores.s[:, j] / F
        shared = mixed.copy()
        shared[sorted(self.fitted_recordings)] = 0.0
        covariance = np.diag(1.0 / F) + self.variance_inflation * shared @ np.linalg.solve(unit.twin_prior.precision, shared.T)
        for change in self.found_changes:
            if change.name == name:
                continue
            other = unit.twin_prior.space.index(change.name)
            for shape in (change.shape,) if change.shape else ("jump", "drift"):
                u = change_profile(len(y), shape, change.change_start[0])
                trace = mixed[:, other] * u / u.max() * unit.population_prior.std[other]
                covariance += np.outer(trace, trace)
        return y, covariance

    def evidence_for(self, name: str) -> ChangeEvidence:
        return change_evidence(*self.series(name), self.unchanged)

    def unexplained_change(self, threshold: float) -> ParameterChange | None:
        """Whether errors rise though no number explains it."""
        y = self.scores.log_unexplained
        covariance = np.diag(2.0 / self.scores.degrees_of_freedom + UNEXPLAINED_SCATTER_STD**2) + UNEXPLAINED_OFFSET_STD**2
        found = change_evidence(y, covariance, self.unchanged)
        at = found.first_alarm(threshold)
        if at is None:
            return None
        shape, since = found.shape, found.change_start
        large = change_size(y, covariance, shape or "jump", since[0])
        return ParameterChange("", at, found, large, shape, since) if large.final_value > 0 else None


def _strongest(tests: dict[str, ChangeEvidence]) -> ChangeEvidence:
    return max(tests.values(), key=lambda e: e.log_evidence[-1])


def _best_explanation(test: _ChangeTest, candidates: dict[str, ChangeEvidence]) -> tuple[str, tuple[str, ...], float]:
    """Which number, changed as it suits it best, explains the last recordings best; those that do so as well; its value.

    Far from the twin's numbers a linearisation says whether something has changed, but not what.
    """
    unit, n, says = test.inputs, len(test.scores.s), _strongest(candidates)
    k, found = says.change_start[0], {}
    which = list(range(max(k, n - RIVAL_RECORDINGS), n))
    for name in sorted(candidates, key=lambda o: -candidates[o].log_evidence[-1])[:MAX_RIVALS]:
        j = unit.twin_prior.space.index(name)
        at = test.scores.z[-1].copy()
        at[j] = unit.twin_prior.mean[j] + change_size(*test.series(name), says.shape or "jump", k).final_value
        one, best = with_single_parameter(unit, name, at), (np.inf, 0.0)
        z = np.clip(one.twin_prior.mean, -MAX_ABS_Z, MAX_ABS_Z)
        for _ in range(RIVAL_STEPS):
            here = score_recordings(one, which, z)
            best = min(best, (float((here.cost - test.scores.cost[which]).sum()), float(z[0])))
            step = here.s.sum(0) / (here.F.sum(0)[0] + one.population_prior.precision[0])
            z = np.clip(z + np.clip(step, -MAX_RIVAL_STEP, MAX_RIVAL_STEP), -MAX_ABS_Z, MAX_ABS_Z)
            if abs(step[0]) < RIVAL_STEP_TOLERANCE:
                break
        found[name] = best
    name = min(found, key=lambda o: found[o])
    alike = tuple(o for o in found if o != name and found[o][0] < found[name][0] + INDISTINGUISHABLE_NATS)
    return name, alike, found[name][1]


def _rescore_with_change(
    test: _ChangeTest, name: str, strongest: ChangeEvidence, alarm: int, indistinguishable: tuple[str, ...], value: float
) -> tuple[_ChangeTest, ParameterChange]:
    """The change of a number to a value, and the recordings scored with it."""
    unit = test.inputs
    j = unit.twin_prior.space.index(name)
    moved = unit.twin_prior.mean[j] + (value - unit.twin_prior.mean[j]) * _change_share(strongest, len(test.scores.s))
    for _ in range(RESCORING_ROUNDS):
        k, scores = strongest.change_start[0], test.scores
        for part in _value_groups(moved[k:]):
            z = scores.z[k + part[0]].copy()
            z[j] = moved[k + part].mean()
            scores = scores.with_recordings(k + part, score_recordings(unit, (k + part).tolist(), z))
        test = replace(test, scores=scores)
        strongest = test.evidence_for(name)
        moved = (
            unit.twin_prior.mean[j]
            + change_size(*test.series(name), strongest.shape or "jump", strongest.change_start[0]).profile
        )
        moved = np.clip(moved, -MAX_ABS_Z, MAX_ABS_Z)
    large = change_size(*test.series(name), strongest.shape or "jump", strongest.change_start[0])
    change = ParameterChange(name, alarm, strongest, large, strongest.shape, strongest.change_start, indistinguishable)
    return replace(test, found_changes=(*test.found_changes, change)), change


def _change_share(strongest: ChangeEvidence, n: int) -> np.ndarray:
    """Of the change after the last recording, at each one, (n,)."""
    u = change_profile(n, strongest.shape or "jump", strongest.change_start[0])
    return u / u[-1]


def _value_groups(values: np.ndarray, max_groups: int = 6) -> list[np.ndarray]:
    """Neighbours with nearly the same value: at most so many groups."""
    if np.ptp(values) == 0.0:
        return [np.arange(len(values))]
    return [part for part in np.array_split(np.arange(len(values)), min(max_groups, len(values))) if len(part)]
