"""The mathematics of `identify`: recordings -> fitted parameters and prediction errors, held-out ones included.

check -> tracks -> noise -> horizon -> segments -> fit on 4/5 (-> global search, fit again) (-> samples) -> errors on both
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.progress import Progress, silent
from isthmus.data.checks.findings import Finding
from isthmus.data.episode import Episode
from isthmus.real2sim.identify.fit import Fit
from isthmus.real2sim.identify.global_restart import RestartPolicy, RestartResult, fit_with_restart
from isthmus.real2sim.identify.posterior_samples import sample_posterior
from isthmus.real2sim.prepare.prepare import prepare
from isthmus.real2sim.prepare.segments import Segments, cut
from isthmus.real2sim.prepare.tracks import Track
from isthmus.real2sim.residual.estimators import needs_observer, settle_ticks
from isthmus.real2sim.residual.horizon import choose_horizon
from isthmus.real2sim.residual.prediction_errors import PredictionErrors, prediction_errors
from isthmus.sim.robot import Robot
from isthmus.world import Belief

HELD_OUT_EVERY = 5
"""One block in so many is held out."""
BLOCK_COUNT = 10
"""Consecutive blocks that the segments are dealt into: neighbours in time stay together."""

TYPICAL_FIT_STEPS = 25
"""Gauss-Newton steps of a fit, for the progress bar."""
STAGE_PROGRESS = {"covariance": (0.55, 0.9), "held-out errors": (0.9, 0.99)}
"""Share of the whole time at which these stages begin and end."""

PosteriorKind = Literal["gauss", "sample"]


@dataclass(frozen=True)
class Identification:
    fit: Fit
    noise_floor: np.ndarray
    """(components,) noise of the signals, estimated without a simulator."""
    horizon_seconds: float
    """s that were predicted."""
    train: Segments
    held_out: Segments | None
    errors_before: tuple[PredictionErrors, PredictionErrors | None]
    """At the belief's median, on the segments fitted to and on those held out."""
    errors_after: tuple[PredictionErrors, PredictionErrors | None]
    """At the optimum."""
    findings: tuple[Finding, ...] = ()
    """What is wrong with the recordings."""
    restart: RestartResult | None = None
    """Result of the global search, if there was one."""
    uses_observer: bool = False
    """Whether a state observer followed the robot, instead of free initial states."""


def fit_recordings(
    robot: Robot,
    episodes: Sequence[Episode],
    belief: Belief,
    names: Iterable[str] | None = None,
    horizon_seconds: float = 0.0,
    threads: int = 0,
    findings: Sequence[Finding] | None = None,
    trust: bool = False,
    search: RestartPolicy = "auto",
    posterior: PosteriorKind = "gauss",
    seed: int = 0,
    progress: Progress = silent,
) -> Identification:
    """Fit the named parameters to recordings; `horizon_seconds` = 0 chooses how far to predict by the noise.

    `findings` and `trust` as in `prepare_segments`. `search` says when to restart the fit from a global search; the posterior
    is Gaussian or made of samples. Search and samples use `seed`.
    """
    if posterior == "sample" and needs_observer(robot):
        raise BadInput(f"a belief about {robot.name}, a robot on its feet, cannot be sampled: ticks are not independent.")
    parts = prepare_segments(robot, episodes, belief, horizon_seconds, threads, findings, trust)
    robot, noise, train, held_out = parts.robot, parts.noise_floor, parts.train, parts.held_out

    def report_stage(stage: str, share: float) -> None:
        low, high = STAGE_PROGRESS.get(stage, (0.0, 0.99))
        progress(low + (high - low) * min(share, 1.0), stage)

    def report_step(step: int, cost: float) -> None:
        progress(STAGE_PROGRESS["covariance"][0] * min(step / TYPICAL_FIT_STEPS, 1.0))

    fitted, restart = fit_with_restart(robot, train, belief, noise, names, search, seed, threads, report_step, report_stage)
    if posterior == "sample":
        fitted = sample_posterior(
            robot, train, fitted, belief, seed, threads=threads, report=lambda share: report_stage("sampling", share)
        )
    worlds = (belief.median(), fitted.e)
    report_stage("held-out errors", 0.0)
    fitted_to = prediction_errors(robot, train, noise, fitted.noise, worlds, threads)
    report_stage("held-out errors", 0.8)  # about this share of the segments is fitted to
    held = prediction_errors(robot, held_out, noise, fitted.noise, worlds, threads) if held_out else (None, None)
    before, after = zip(fitted_to, held, strict=True)
    return Identification(
        fitted, noise, parts.horizon_seconds, train, held_out, before, after, parts.findings, restart, needs_observer(robot)
    )


@dataclass(frozen=True)
class PreparedSegments:
    """Recordings as a fit takes them."""

    robot: Robot
    """At the rate of the recordings."""
    noise_floor: np.ndarray
    """(components,) noise of the signals, estimated without a simulator."""
    horizon_seconds: float
    """s to predict."""
    train: Segments
    held_out: Segments | None
    findings: tuple[Finding, ...]
    """What is wrong with the recordings."""
    tracks: tuple[Track, ...] = ()
    """What the segments were cut from."""


def prepare_segments(
    robot: Robot,
    episodes: Sequence[Episode],
    belief: Belief,
    horizon_seconds: float = 0.0,
    threads: int = 0,
    findings: Sequence[Finding] | None = None,
    trust: bool = False,
) -> PreparedSegments:
    """Recordings cut into segments to fit to and held-out ones; `horizon_seconds` = 0 chooses the horizon by the noise.

    `findings` are those of `check` on these recordings, if the caller has them. Samples that cannot be used are removed; other
    faults are refused, unless `trust`.
    """
    prepared = prepare(robot, episodes, findings=findings, refuse=not trust)
    if not prepared.is_comparable:
        raise BadInput("the recordings hold no signal of the robot that could be compared.")
    robot, noise, found = prepared.robot, prepared.noise, prepared.tracks
    skip, rate = settle_ticks(robot), robot.contract.rate
    ticks = (
        skip + max(1, round(horizon_seconds * rate))
        if horizon_seconds
        else choose_horizon(found, robot, noise, belief.median(), threads)
    )
    train, held_out = split_held_out(cut(found, robot, ticks, ticks - skip))
    return PreparedSegments(robot, noise, (ticks - skip) / rate, train, held_out, prepared.findings, found)


def split_held_out(segments: Segments) -> tuple[Segments, Segments | None]:
    """Segments to fit to, and held-out ones: every fifth block of neighbours; none of fewer than BLOCK_COUNT segments."""
    n = len(segments)
    if n < BLOCK_COUNT:
        return segments, None
    block = np.arange(n) * BLOCK_COUNT // n
    # One segment between the parts may overlap both; it goes with neither.
    out = block % HELD_OUT_EVERY == HELD_OUT_EVERY // 2
    edge = out & np.concatenate([[False], ~out[:-1]])
    return segments.take(~out), segments.take(out & ~edge if (out & ~edge).any() else out)
