"""`predict`: how well a twin predicts recordings that it was not fitted to.

score, by_signal    error at fixed horizons after a warm-up, × that in the right simulator; 1 = as good as the sensors
error               multi-step error over one horizon, × noise: the quantity that `identify` minimises and reports
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isthmus.core.progress import Progress, silent, sub_progress
from isthmus.core.results import Result
from isthmus.core.statistics import Estimate
from isthmus.real2sim.identify.identification import prepare_segments
from isthmus.real2sim.measure.bootstrap import CONFIDENCE_LEVEL, Interval
from isthmus.real2sim.measure.prediction_error import measure_prediction_error
from isthmus.real2sim.prepare.segments import Segments
from isthmus.real2sim.recordings import Recordings, check_recordings, load_recordings
from isthmus.real2sim.residual.prediction_errors import squared_errors
from isthmus.real2sim.result_parts import FindingRecord, check_not_negative, finding_records
from isthmus.robots.dynamics import load_twin, resolve_robot
from isthmus.robots.twin import Twin
from isthmus.sim.robot import Robot

NOISE_UNIT = "noise"
"""Errors are multiples of the sensor noise."""


@dataclass(frozen=True)
class PredictionResult(Result, kind="prediction"):
    robot: str
    twin_hash: str
    recordings: tuple[str, ...]
    inputs: tuple[str, ...]
    """Hashes of the recordings."""
    score: Estimate
    """Root mean square over horizons, signals and segments."""
    horizons: tuple[float, ...]
    """s"""
    by_signal: Mapping[str, tuple[Estimate, ...]]
    """Signal -> error at each of `horizons`."""
    error: float
    """Multi-step error over `horizon`, × noise, as in IdentifyResult.error."""
    horizon: float
    """s"""
    findings: tuple[FindingRecord, ...]
    seconds: float


def predict(
    twin: Twin | Path | str,
    recordings: Recordings,
    *,
    horizon: float = 0.0,
    trust: bool = False,
    seed: int = 0,
    threads: int = 0,
    progress: Progress = silent,
) -> PredictionResult:
    """Prediction error of a twin on recordings; `horizon` is in s, 0 chooses it by the noise."""
    check_not_negative("horizon", horizon)
    start, unit = time.perf_counter(), load_twin(twin)
    robot = resolve_robot(unit)[0]
    episodes, names = load_recordings(recordings)
    findings = check_recordings(robot, episodes, names, trust)
    parts = prepare_segments(robot, episodes, robot.prior, horizon, threads, findings, trust)
    steps = measure_prediction_error(
        parts.robot, parts.tracks, parts.noise_floor, robot.prior, seed, threads, sub_progress(progress, 0.0, 0.7)
    )
    segments = [s for s in (parts.train, parts.held_out) if s is not None]
    return PredictionResult(
        robot=robot.name,
        twin_hash=unit.hash,
        recordings=tuple(names),
        inputs=tuple(e.hash for e in episodes),
        score=_estimate(steps.score),
        horizons=steps.horizons,
        by_signal={name: tuple(map(_estimate, row)) for name, row in steps.signals.items()},
        error=_overall_error(parts.robot, segments, parts.noise_floor, robot.prior.median(), threads),
        horizon=parts.horizon_seconds,
        findings=finding_records(findings),
        seconds=time.perf_counter() - start,
    )


def _estimate(interval: Interval) -> Estimate:
    return Estimate(interval.value, interval.low, interval.high, NOISE_UNIT, CONFIDENCE_LEVEL)


def _overall_error(robot: Robot, parts: list[Segments], noise: np.ndarray, e: np.ndarray, threads: int) -> float:
    """Root mean square over all segments and components of the error in units of the noise."""
    each = [squared_errors(robot, segments, noise, [e], threads)[0] for segments in parts]
    squares, count = (np.concatenate(column).sum(0) for column in zip(*each, strict=True))
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.sqrt(squares / count) / noise
    return float(np.sqrt(np.nanmean(relative**2)))
