"""`identify`: recordings of one robot -> a twin, with an interval for each parameter and what the recordings do not determine.

identify(robot, recordings, out)     -> IdentifyResult; writes the twin
identify_twin(robot, recordings)     -> IdentifiedTwin: the Twin, all arrays of the fit and the result, in memory
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.core.errors import BadInput
from isthmus.core.files import check_writable
from isthmus.core.plain import to_plain
from isthmus.core.progress import Progress, silent
from isthmus.core.results import Result
from isthmus.data.mcap.reader import read_episode
from isthmus.real2sim.identify.fit import noise_by_signal, posterior_belief
from isthmus.real2sim.identify.global_restart import RestartPolicy
from isthmus.real2sim.identify.identification import Identification, PosteriorKind, fit_recordings
from isthmus.real2sim.identify.motor_law_files import belief_with_delay, load_law_onto
from isthmus.real2sim.recordings import Recordings, check_recordings, load_recordings
from isthmus.real2sim.residual.prediction_errors import PredictionErrors
from isthmus.real2sim.residual.prior import free_parameters, noise_parameters
from isthmus.real2sim.result_parts import (
    INTERVAL_LEVEL,
    ErrorChange,
    ErrorPair,
    FindingRecord,
    SegmentCounts,
    UndeterminedDirection,
    check_not_negative,
    check_twin_path,
    finding_records,
)
from isthmus.robots.dynamics import resolve_dynamics, resolve_robot, source_name
from isthmus.robots.twin import Twin

if TYPE_CHECKING:
    from isthmus.robots.dynamics import DynamicsSource, RobotSource
    from isthmus.sim.robot import Robot
    from isthmus.world import Belief


@dataclass(frozen=True)
class ParameterEstimate:
    value: float
    low: float
    """Ends of the interval of IdentifyResult.level."""
    high: float
    before: tuple[float, float]
    """The same interval before the recordings."""
    unit: str


@dataclass(frozen=True)
class SignalErrors:
    """Multi-step prediction error of one component, in its unit; NaN where nothing was compared."""

    signal: str
    label: str
    unit: str
    noise: float
    """Standard deviation of the sensor noise."""
    before_fitted: float
    before_held_out: float
    after_fitted: float
    after_held_out: float


@dataclass(frozen=True)
class RestartRecord:
    """What a global search for a better start brought."""

    worlds: int
    """Simulated."""
    kept: bool
    gain: float
    """nats of log posterior density over the fit from the prior's median."""
    unexplained_noise: tuple[float, float]
    """× sensor noise, of the fit from the prior's median and of the fit after the search."""


@dataclass(frozen=True)
class PosteriorRecord:
    kind: PosteriorKind
    particles: int = 0
    ess: float | None = None
    """Effective number of independent draws."""
    acceptance: float | None = None
    """Share of proposals that were accepted."""
    rhat: float | None = None
    """Gelman-Rubin statistic; 1 = the walkers agree."""
    sweeps: int = 0


@dataclass(frozen=True)
class IdentifyResult(Result, kind="identification"):
    robot: str
    recordings: tuple[str, ...]
    inputs: tuple[str, ...]
    """Hashes of the recordings."""
    twin: str | None
    """File that was written."""
    twin_hash: str
    level: float
    """Probability of the intervals."""
    parameters: Mapping[str, ParameterEstimate]
    correlations: tuple[tuple[float, ...], ...]
    """Of the posterior, in the order of `parameters`."""
    undetermined: tuple[UndeterminedDirection, ...]
    at_bounds: tuple[str, ...]
    """Parameters at a hard bound."""
    signals: tuple[SignalErrors, ...]
    error: ErrorChange
    findings: tuple[FindingRecord, ...]
    horizon: float
    """s that were predicted."""
    uses_observer: bool
    """Whether a state observer followed the robot, instead of free initial states."""
    segments: SegmentCounts
    steps: int
    """Gauss-Newton steps."""
    search: RestartRecord | None
    posterior: PosteriorRecord
    seconds: float
    expected: Mapping[str, tuple[float, float]]
    """Intervals that the experiment of `excite` was expected to give, if one was named."""


@dataclass(frozen=True)
class IdentifiedTwin:
    """A twin in memory, with everything that it was made from."""

    twin: Twin
    identification: Identification
    result: IdentifyResult


def identify(
    robot: RobotSource,
    recordings: Recordings,
    out: Path | None = None,
    *,
    dynamics: DynamicsSource | None = None,
    actuator: Path | None = None,
    only: tuple[str, ...] = (),
    fix: tuple[str, ...] = (),
    horizon: float = 0.0,
    search: RestartPolicy = "auto",
    posterior: PosteriorKind = "gauss",
    trust: bool = False,
    expected: Path | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> IdentifyResult:
    """Fit a robot's parameters to recordings of it, and write the twin to `out`.

    `dynamics` is the prior: by default the robot's, or the belief of the twin that is given as `robot`. `actuator` is a motor
    law of `fit_actuator`. `only` and `fix` choose parameters. `horizon` is in s; 0 chooses it by the noise. `search` says when
    to restart from a global search. With `trust`, suspicious recordings are reported but not refused. `expected` is an
    experiment of `excite`, whose expected intervals the result repeats.
    """
    return identify_twin(
        robot,
        recordings,
        out,
        dynamics=dynamics,
        actuator=actuator,
        only=only,
        fix=fix,
        horizon=horizon,
        search=search,
        posterior=posterior,
        trust=trust,
        expected=expected,
        seed=seed,
        progress=progress,
    ).result


def identify_twin(
    robot: RobotSource,
    recordings: Recordings,
    out: Path | None = None,
    *,
    dynamics: DynamicsSource | None = None,
    actuator: Path | None = None,
    only: tuple[str, ...] = (),
    fix: tuple[str, ...] = (),
    horizon: float = 0.0,
    search: RestartPolicy = "auto",
    posterior: PosteriorKind = "gauss",
    trust: bool = False,
    expected: Path | None = None,
    seed: int = 0,
    threads: int = 0,
    progress: Progress = silent,
) -> IdentifiedTwin:
    """As `identify`, with the Twin and all arrays in memory."""
    check_twin_path(out)
    check_not_negative("horizon", horizon)
    check_not_negative("seed", seed)
    model, old = resolve_robot(robot)
    if dynamics is not None and old is not None:
        raise BadInput("a twin brings its own belief; give another one only with a robot.")
    belief = resolve_dynamics(dynamics, model)[1]
    expected_intervals = _expected_intervals(expected)
    if actuator is not None:
        model, delay = load_law_onto(actuator, model)
        belief = belief_with_delay(model, belief, delay)
    names = _parameters_to_fit(model, belief, only, fix)
    episodes, files = load_recordings(recordings)
    findings = check_recordings(model, episodes, files, trust)
    check_writable(out)
    start = time.perf_counter()
    found = fit_recordings(
        model,
        episodes,
        belief,
        names,
        horizon,
        threads,
        findings=findings,
        trust=trust,
        search=search,
        posterior=posterior,
        seed=seed,
        progress=progress,
    )
    seconds = time.perf_counter() - start
    after, records = posterior_belief(model, found.fit, belief), finding_records(findings)
    error = ErrorChange(_error_pair(found.errors_before), _error_pair(found.errors_after))
    entry = {
        "recordings": [e.hash for e in episodes],
        "findings": to_plain(records),
        "error": to_plain(error),
        "left": noise_by_signal(model, found.fit.noise),
        "before": belief.to_dict(),
        "belief": after.to_dict(),
    }
    twin = replace(old or Twin(source_name(robot), model.model_hash, belief), unit=model.unit).with_fit(after, entry)
    twin = twin.save(out) if out is not None else twin
    result = IdentifyResult(
        robot=model.name,
        recordings=tuple(files),
        inputs=tuple(e.hash for e in episodes),
        twin=str(out) if out is not None else None,
        twin_hash=twin.hash,
        level=INTERVAL_LEVEL,
        parameters=_parameter_estimates(model, found, belief),
        correlations=tuple(map(tuple, found.fit.correlations().round(4).tolist())),
        undetermined=tuple(
            UndeterminedDirection(dict(d.parts), d.information, d.text) for d in found.fit.undetermined_directions()
        ),
        at_bounds=found.fit.at_bounds(),
        signals=_signal_errors(found),
        error=error,
        findings=records,
        horizon=found.horizon_seconds,
        uses_observer=found.uses_observer,
        segments=SegmentCounts(len(found.train), len(found.held_out) if found.held_out else 0),
        steps=found.fit.steps,
        search=_restart_record(found),
        posterior=_posterior_record(found),
        seconds=seconds,
        expected=expected_intervals,
    )
    return IdentifiedTwin(twin, found, result)


def _parameters_to_fit(robot: Robot, belief: Belief, only: tuple[str, ...], fix: tuple[str, ...]) -> tuple[str, ...]:
    for name in (*only, *fix):
        robot.space.index(name)
    for name in only:
        if name in noise_parameters(robot.space):
            raise BadInput(f"{name} is not fitted: sensor noise is estimated from the residual of the fit.")
    names = tuple(n for n in (only or free_parameters(robot, belief)) if n not in fix)
    if not names:
        raise BadInput("no parameter is left to fit.")
    return names


def _expected_intervals(path: Path | None) -> dict[str, tuple[float, float]]:
    """The intervals that an experiment of `excite` was expected to give."""
    if path is None:
        return {}
    found = read_episode(path).origin.get("expected")
    if not isinstance(found, dict):
        raise BadInput(f"{path} is not an experiment of `isthmus excite`: it does not say what to expect.")
    return {name: (float(low), float(high)) for name, (low, high) in found.items()}


def _error_pair(pair: tuple[PredictionErrors, PredictionErrors | None]) -> ErrorPair:
    fitted, held_out = pair
    return ErrorPair(fitted.overall, held_out.overall if held_out else float("nan"))


def _parameter_estimates(robot: Robot, found: Identification, belief: Belief) -> dict[str, ParameterEstimate]:
    fit = found.fit
    return {
        name: ParameterEstimate(
            fit.value(name),
            *fit.interval(name, INTERVAL_LEVEL),
            belief.interval(name, INTERVAL_LEVEL),
            robot.space[name].unit,
        )
        for name in fit.space.names
    }


def _signal_errors(found: Identification) -> tuple[SignalErrors, ...]:
    pairs = (*found.errors_before, *found.errors_after)
    return tuple(
        SignalErrors(
            *(c.signal, c.label, c.unit, float(found.noise_floor[i])),
            *(float(errors.rms[i]) if errors else float("nan") for errors in pairs),
        )
        for i, c in enumerate(found.errors_after[0].components)
    )


def _restart_record(found: Identification) -> RestartRecord | None:
    r = found.restart
    return RestartRecord(r.worlds, r.kept, r.gain, r.left) if r else None


def _posterior_record(found: Identification) -> PosteriorRecord:
    samples = found.fit.samples
    if samples is None:
        return PosteriorRecord("gauss")
    return PosteriorRecord("sample", len(samples.z), samples.ess, samples.acceptance, samples.rhat, samples.sweeps)
