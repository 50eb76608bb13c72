"""From recordings to a fitted robot, and how well it predicts what it was not fitted to.

suspect -> tracks -> noise -> horizon -> segments -> fit on four fifths (-> search, and again) (-> draws) -> errors on both
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.data.checks.findings import Finding
from isthmus.data.episode import Episode
from isthmus.real2sim.identify.fit import Fit
from isthmus.real2sim.identify.global_restart import RestartPolicy, RestartResult, fit_with_restart
from isthmus.real2sim.identify.posterior_samples import sample_posterior
from isthmus.real2sim.prepare.checks.recording_checks import check, clean_episodes, raise_if_refused
from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.noise import noise_floor
from isthmus.real2sim.prepare.segments import Segments, cut
from isthmus.real2sim.prepare.tracks import replay_rate, to_tracks
from isthmus.real2sim.residual.estimators import needs_observer
from isthmus.real2sim.residual.horizon import choose_horizon
from isthmus.real2sim.residual.prediction_errors import PredictionErrors, prediction_errors
from isthmus.real2sim.residual.residual import settle_ticks
from isthmus.sim.robot import Robot
from isthmus.world import Belief

HELD_OUT_EVERY = 5
"""One block in so many is held out."""
BLOCK_COUNT = 10
"""Consecutive blocks that the segments are dealt into: neighbours in time stay together."""

PosteriorKind = Literal["gauss", "sample"]


@dataclass(frozen=True)
class Identification:
    fit: Fit
    noise_floor: np.ndarray
    """(components,) noise of the signals by themselves."""
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
    """What a global search brought, if there was one."""
    uses_observer: bool = False
    """Whether the robot was followed tick by tick, instead of predicted so far ahead."""


def identify(
    robot: Robot,
    episodes: Sequence[Episode],
    belief: Belief,
    names: Iterable[str] | None = None,
    horizon_seconds: float = 0.0,
    threads: int = 0,
    report: Callable[[int, float], None] = lambda step, cost: None,
    findings: Sequence[Finding] | None = None,
    trust: bool = False,
    search: RestartPolicy = "auto",
    posterior: PosteriorKind = "gauss",
    seed: int = 0,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> Identification:
    """Fit the robot to recordings, predicting `ahead` seconds; 0 chooses the horizon. `findings` and `trust` as in `prepare`.

    `search` says when to look for a better valley than the one that the belief's middle is in, `posterior` whether the belief
    afterwards is normal or made of draws; both have a `seed`. `report` hears of the fit, `progress` of all else:
    searching, how sure, sampling, judging.
    """
    if posterior == "sample" and needs_observer(robot):
        raise BadInput(f"a belief about {robot.name}, a robot on its feet, cannot be sampled: the ticks repeat each other.")
    parts = prepare_segments(robot, episodes, belief, horizon_seconds, threads, findings, trust)
    robot, noise, train, held_out = parts.robot, parts.noise_floor, parts.train, parts.held_out
    fitted, looked = fit_with_restart(robot, train, belief, noise, names, search, seed, threads, report, progress)
    if posterior == "sample":
        fitted = sample_posterior(
            robot, train, fitted, belief, seed, threads=threads, report=lambda share: progress("sampling", share)
        )
    worlds = (belief.median(), fitted.e)
    progress("judging", 0.0)
    fitted_to = prediction_errors(robot, train, noise, fitted.noise, worlds, threads)
    progress("judging", 0.8)  # about as many pieces are fitted to as this, of all
    held = prediction_errors(robot, held_out, noise, fitted.noise, worlds, threads) if held_out else (None, None)
    before, after = zip(fitted_to, held, strict=True)
    return Identification(
        fitted, noise, parts.horizon_seconds, train, held_out, before, after, parts.findings, looked, needs_observer(robot)
    )


@dataclass(frozen=True)
class PreparedSegments:
    """Recordings as a fit takes them."""

    robot: Robot
    """At the rate of the recordings."""
    noise_floor: np.ndarray
    """(components,) noise of the signals by themselves."""
    horizon_seconds: float
    """s to predict."""
    train: Segments
    held_out: Segments | None
    findings: tuple[Finding, ...]
    """What is wrong with the recordings."""


def prepare_segments(
    robot: Robot,
    episodes: Sequence[Episode],
    belief: Belief,
    horizon_seconds: float = 0.0,
    threads: int = 0,
    findings: Sequence[Finding] | None = None,
    trust: bool = False,
) -> PreparedSegments:
    """Cut recordings into segments to fit to and segments to judge by; an `ahead` of 0 chooses the horizon.

    `findings` are those of `suspect` on these recordings, if the caller has looked already. What can be handled is; the rest
    is refused, unless there is `trust` in the recordings as they are.
    """
    findings = check(robot, episodes) if findings is None else findings
    if not trust:
        raise_if_refused(findings)
    episodes = clean_episodes(episodes, findings)
    robot = robot.at_rate(replay_rate(episodes, robot.contract))
    found = to_tracks(episodes, robot.contract, 1.0 / robot.contract.rate)
    noise = noise_floor(found, Components(robot.contract))
    if not np.isfinite(noise).any():
        raise BadInput("the recordings hold no signal of the robot that could be compared.")
    skip, rate = settle_ticks(robot), robot.contract.rate
    ticks = (
        skip + max(1, round(horizon_seconds * rate))
        if horizon_seconds
        else choose_horizon(found, robot, noise, belief.median(), threads)
    )
    train, held_out = split_held_out(cut(found, robot, ticks, ticks - skip))
    return PreparedSegments(robot, noise, (ticks - skip) / rate, train, held_out, tuple(findings))


def split_held_out(segments: Segments) -> tuple[Segments, Segments | None]:
    """Segments to fit to, and those held out: every fifth block of neighbours; none of fewer than BLOCKS segments."""
    n = len(segments)
    if n < BLOCK_COUNT:
        return segments, None
    block = np.arange(n) * BLOCK_COUNT // n
    # One segment between the parts may overlap both; it goes with neither.
    out = block % HELD_OUT_EVERY == HELD_OUT_EVERY // 2
    edge = out & np.concatenate([[False], ~out[:-1]])
    return segments.take(~out), segments.take(out & ~edge if (out & ~edge).any() else out)
