"""`drift`: has a unit changed since its twin was fitted? Which parameter, since when, by how much, and what is needed.

drift(twin, recordings)           -> DriftResult
analyse_drift(twin, recordings)   -> AnalysedDrift: the result and all arrays, for plots
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.progress import Progress, silent
from isthmus.core.results import Result
from isthmus.data.episode import Episode
from isthmus.real2sim.drift.change_detection import ChangeShape
from isthmus.real2sim.drift.parameter_changes import DriftAnalysis, ParameterChange, find_changes
from isthmus.real2sim.drift.score_statistics import drift_inputs
from isthmus.real2sim.prepare.prepare import prepare
from isthmus.real2sim.prepare.tracks import check_contract
from isthmus.real2sim.recordings import Recordings, check_recordings, load_recordings
from isthmus.real2sim.result_parts import INTERVAL_LEVEL, FindingRecord, check_not_negative, finding_records
from isthmus.robots import get_robot
from isthmus.robots.dynamics import load_twin, resolve_dynamics
from isthmus.robots.twin import Twin
from isthmus.sim.robot import Robot
from isthmus.world import Belief, Target, belief_on_space

if TYPE_CHECKING:
    from isthmus.robots.dynamics import DynamicsSource

TRAINING_INTERVAL_LEVEL = 0.99
"""A parameter outside this interval of the training distribution calls for retraining."""
MAX_LOG_EVIDENCE = 600.0
"""Larger evidence does not fit into a number."""

Needed = Literal["none", "re-identification", "retraining"]
NEEDED_ORDER: tuple[Needed, ...] = ("none", "re-identification", "retraining")

POSSIBLE_CAUSES = (
    (("coulomb", "viscous", "damping", "frictionloss"), "wear of the joint", "a joint that has run in or warmed up"),
    (("strength", "kp", "torque_limit"), "a fresh battery or cooler motors", "an empty battery, hot motors or a worn one"),
    (("payload", "mass"), "a load put on", "a load taken off"),
    (("friction",), "rougher ground or new soles", "worn soles or smoother ground"),
    (("bias",), "a sensor that has moved", "a sensor that has moved"),
    (("action_delay", "sensor_delay", "lag"), "a slower link or motor", "a faster link or motor"),
)
"""Fields that a parameter acts on, and a possible cause of an increase and of a decrease."""


@dataclass(frozen=True)
class ChangeStart:
    """First changed recording, from 0, with its 90 % interval."""

    recording: int
    low: int
    high: int
    file: str


@dataclass(frozen=True)
class Alarm:
    """Recording, from 0, after which the change was certain."""

    recording: int
    file: str


@dataclass(frozen=True)
class ChangeRecord:
    """A parameter that has changed."""

    name: str
    unit: str
    before: float
    after: float
    low: float
    """90 % interval of `after`."""
    high: float
    indistinguishable: tuple[str, ...]
    """Other parameters that explain it as well."""
    possible_cause: str
    needed: Needed
    shape: ChangeShape | None
    """None: jump or gradual, not known."""
    since: ChangeStart
    alarm: Alarm


@dataclass(frozen=True)
class UnexplainedGrowth:
    """Errors that no parameter explains have grown."""

    factor: float
    shape: ChangeShape | None
    since: ChangeStart
    alarm: Alarm


@dataclass(frozen=True)
class MonitoredParameter:
    monitored: bool
    """False if the recordings do not determine it."""
    evidence: tuple[float, ...] | None
    """Shiryaev-Roberts statistic after each recording."""


@dataclass(frozen=True)
class UndeterminedCombination:
    parts: Mapping[str, float]
    text: str


@dataclass(frozen=True)
class DriftResult(Result, kind="drift"):
    robot: str
    twin: str | None
    twin_hash: str
    recordings: tuple[str, ...]
    inputs: tuple[str, ...]
    """Hashes of the recordings."""
    trained_on: str | None
    """Hash of the training distribution."""
    false_alarms_per_1000: float
    false_alarm_bound: float
    """Probability of a false alarm in these recordings, at most."""
    alarm_threshold: float
    """Of the evidence."""
    baseline: int
    """Leading recordings that are known to be without a change."""
    interval_inflation: float
    """Factor by which the twin's intervals were too narrow; 1 if they were not."""
    changed: bool
    needed: Needed
    changes: tuple[ChangeRecord, ...]
    unexplained_growth: UnexplainedGrowth | None
    unexplained_error: tuple[float, ...]
    """By recording: error that no parameter explains, × noise."""
    parameters: Mapping[str, MonitoredParameter]
    undetermined: tuple[UndeterminedCombination, ...]
    horizon: float
    """s"""
    findings: tuple[FindingRecord, ...]


@dataclass(frozen=True)
class AnalysedDrift:
    """The result and all arrays behind it."""

    analysis: DriftAnalysis
    result: DriftResult


def drift(
    twin: Twin | Path | str,
    recordings: Recordings,
    *,
    alarms_per_1000: float = 1.0,
    baseline: int = 0,
    trained_on: DynamicsSource | None = None,
    only: tuple[str, ...] = (),
    horizon: float = 0.0,
    trust: bool = False,
    progress: Progress = silent,
) -> DriftResult:
    """Test recordings, in the order of time, for changes of the unit since its twin was fitted.

    At most `alarms_per_1000` false alarms per 1,000 recordings; the first `baseline` recordings are known to be without a
    change. `trained_on` is the distribution that the policy was trained on: a belief, a twin or a run's folder. `only` chooses
    parameters; `horizon` is in s, 0 chooses it by the noise.
    """
    return analyse_drift(
        twin,
        recordings,
        alarms_per_1000=alarms_per_1000,
        baseline=baseline,
        trained_on=trained_on,
        only=only,
        horizon=horizon,
        trust=trust,
        progress=progress,
    ).result


def analyse_drift(
    twin: Twin | Path | str,
    recordings: Recordings,
    *,
    alarms_per_1000: float = 1.0,
    baseline: int = 0,
    trained_on: DynamicsSource | None = None,
    only: tuple[str, ...] = (),
    horizon: float = 0.0,
    trust: bool = False,
    progress: Progress = silent,
) -> AnalysedDrift:
    """As `drift`, with all arrays in memory."""
    if not 0 < alarms_per_1000 <= 1000:
        raise BadInput("false alarms per 1,000 recordings (--alarms) must be more than 0 and at most 1000.")
    if recordings and not 0 <= baseline < len(recordings):
        raise BadInput(f"the baseline (--baseline) takes 0 to {len(recordings) - 1} of the {len(recordings)} recordings.")
    check_not_negative("horizon", horizon)
    unit = load_twin(twin)
    design = get_robot(unit.robot)
    robot = unit.apply_to(design, "the twin" if isinstance(twin, Twin) else str(twin))
    for name in only:
        robot.space.index(name)
    trained = _training_belief(trained_on, robot)
    episodes, files = load_recordings(recordings)
    _check_sequence(episodes, files, robot)
    findings = check_recordings(robot, episodes, files, trust)
    fitted = set(unit.history[-1].get("recordings", ())) if unit.history else set()
    own = [i for i, e in enumerate(episodes) if e.hash in fitted]
    inputs = drift_inputs(
        prepare(robot, episodes, files, findings),
        unit.belief,
        design.prior,
        only,
        horizon,
        unexplained_noise=unit.unexplained_noise,
    )
    found = find_changes(inputs, alarms_per_1000, baseline, own, report=lambda share: progress(min(share, 0.99)))
    changes = tuple(_change_record(found, c, unit.belief, trained, files) for c in found.changes)
    growth = found.unexplained_change and UnexplainedGrowth(
        float(np.exp(0.5 * found.unexplained_change.size.final_value)), *_timing(found.unexplained_change, files)
    )
    result = DriftResult(
        robot=found.inputs.robot.name,
        twin=None if isinstance(twin, Twin) else str(twin),
        twin_hash=unit.hash,
        recordings=tuple(files),
        inputs=tuple(e.hash for e in episodes),
        trained_on=trained.hash if trained is not None else None,
        false_alarms_per_1000=alarms_per_1000,
        false_alarm_bound=min(1.0, alarms_per_1000 * (len(files) - baseline) / 1000.0),
        alarm_threshold=found.alarm_threshold,
        baseline=baseline,
        interval_inflation=found.interval_inflation,
        changed=bool(changes or growth),
        needed=max([*(c.needed for c in changes), "re-identification" if growth else "none"], key=NEEDED_ORDER.index),
        changes=changes,
        unexplained_growth=growth,
        unexplained_error=tuple(found.unexplained_error.tolist()),
        parameters=_monitored_parameters(found),
        undetermined=tuple(UndeterminedCombination(dict(d.parts), d.text) for d in found.undetermined_directions),
        horizon=found.inputs.horizon_seconds,
        findings=finding_records(findings),
    )
    return AnalysedDrift(found, result)


def _training_belief(source: DynamicsSource | None, robot: Robot) -> Belief | None:
    if source is None:
        return None
    if isinstance(source, str | Path) and Path(source).is_dir():
        from isthmus.learn import runs  # imports torch

        return belief_on_space(runs.load(Path(source)).belief, robot.space, str(source))
    return resolve_dynamics(source, robot)[1]


def _check_sequence(episodes: Sequence[Episode], files: Sequence[str], robot: Robot) -> None:
    """Recordings are of this robot, not empty, each given once and in the order of time."""
    seen: dict[str, str] = {}
    last: tuple[float, str] | None = None
    for episode, name in zip(episodes, files, strict=True):
        try:
            check_contract(episode, robot.contract)
        except BadInput as error:
            raise BadInput(f"{name}: {error}") from None
        if len(episode) < 2:
            raise BadInput(f"{name} is empty: it has {len(episode)} ticks.")
        if episode.hash in seen:
            raise BadInput(f"{name} is the same recording as {seen[episode.hash]}.")
        seen[episode.hash] = name
        started = episode.origin.get("started")
        if isinstance(started, int | float) and not isinstance(started, bool):
            if last is not None and started < last[0]:
                raise BadInput(f"{name} was recorded before {last[1]}; give recordings in the order of time.")
            last = (float(started), name)


def _change_record(
    found: DriftAnalysis, change: ParameterChange, belief: Belief, trained: Belief | None, files: Sequence[str]
) -> ChangeRecord:
    prior, robot = found.inputs.twin_prior, found.inputs.robot
    space = prior.space.subset([change.name])
    mean = prior.mean[prior.space.index(change.name)]

    def value(offset: float) -> float:
        return float(space.from_unconstrained(mean[None] + offset)[0])

    def within(distribution: Belief, level: float) -> bool:
        low, high = distribution.interval(change.name, level)
        return low <= after <= high

    after = value(change.size.final_value)
    low, high = (value(x) for x in change.size.interval(INTERVAL_LEVEL))
    needed: Needed = "none" if within(belief, INTERVAL_LEVEL) else "re-identification"
    if trained is not None and not within(trained, TRAINING_INTERVAL_LEVEL):
        needed = "retraining"
    return ChangeRecord(
        change.name,
        robot.space[change.name].unit,
        value(0.0),
        after,
        low,
        high,
        change.indistinguishable,
        _possible_cause(robot, change.name, change.size.final_value > 0),
        needed,
        *_timing(change, files),
    )


def _timing(change: ParameterChange, files: Sequence[str]) -> tuple[ChangeShape | None, ChangeStart, Alarm]:
    at, low, high = change.change_start
    alarm = Alarm(change.alarm_recording, files[change.alarm_recording])
    return change.shape, ChangeStart(at, low, high, files[at]), alarm


def _possible_cause(robot: Robot, name: str, increased: bool) -> str:
    fields = {Target.parse(t).field for t in robot.space[name].targets}
    return next((rise if increased else fall for known, rise, fall in POSSIBLE_CAUSES if fields & set(known)), "")


def _monitored_parameters(found: DriftAnalysis) -> dict[str, MonitoredParameter]:
    records = {}
    for name in found.inputs.twin_prior.space.names:
        test = found.evidence.get(name)
        evidence = tuple(np.exp(np.minimum(test.log_evidence, MAX_LOG_EVIDENCE)).tolist()) if test else None
        records[name] = MonitoredParameter(test is not None, evidence)
    return records
