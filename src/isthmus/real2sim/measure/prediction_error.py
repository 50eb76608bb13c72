"""How far recordings are from a simulator: errors of prediction per signal and horizon, and a score.

one step, many steps    errors at fixed horizons beyond a warm-up, 1 in the right simulator (see `predict`)
score                   root mean square over horizons up to SCORED, signals and segments; 1: as good as the sensors
replay                  the recorded targets alone, for seconds: when has the simulator lost the robot?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.statistics import Rate
from isthmus.data.contract import Signal
from isthmus.real2sim.measure.bootstrap import Interval, bootstrap_interval
from isthmus.real2sim.measure.predictor import Prediction, Predictor, warm_up_ticks
from isthmus.real2sim.prepare.components import Component, Components
from isthmus.real2sim.prepare.savitzky_golay import SG_HALF_TICKS
from isthmus.real2sim.prepare.segments import Segments, cut
from isthmus.real2sim.prepare.tracks import Track
from isthmus.sim.robot import Robot
from isthmus.world import Belief

HORIZON_SECONDS = (0.05, 0.1, 0.2, 0.5)
"""s, after that of one tick. The score is over these, so that it means the same for every recording of a robot."""
REPLAY_SECONDS, MIN_REPLAY_SECONDS = 4.0, 1.0
"""s that are replayed, and the least that is worth it."""
DIVERGED_SPREADS = 0.5
"""Of a signal's own spread: a prediction that is further off says no more than that the robot moves."""
MOTIONLESS_NOISE_RATIO = 3.0
"""A signal that spreads by less than so many times its noise does not move."""
MAX_TARGET_NOISE_SHARE, WHITE_NOISE_THIRD_DIFFERENCE = 0.1, 0.6745 * np.sqrt(20.0)
"""Of what can be asked: larger targets are no noise. And the median of |third difference| of white noise, σ = 1."""
SAMPLED_WORLDS = 16
"""Of the belief, beside its middle."""
MIN_SEGMENTS, MAX_SEGMENTS = 4, 120
"""Segments."""
MAX_DERIVATIVE_WORLDS = 2400
"""Worlds of a derivative, at most."""


@dataclass(frozen=True)
class PredictionError:
    components: tuple[Component, ...]
    noise: np.ndarray
    """(components,) σ."""
    horizons: tuple[float, ...]
    """s"""
    error: np.ndarray
    """(horizons, components) root mean square of the errors over what they would be in the right simulator."""
    signals: dict[str, list[Interval]]
    """By signal, for each horizon."""
    score: Interval
    world_scores: np.ndarray
    """(k,) scores of worlds drawn from the belief."""
    replay: OpenLoopReplay | None
    segments: Segments


@dataclass(frozen=True)
class OpenLoopReplay:
    time: np.ndarray
    """(T,) s of replay."""
    error: np.ndarray
    """(T,) typical distance from the recording, in units of the signals' own spread."""
    expected_error: np.ndarray
    """(T,) the same in the right simulator."""
    divergence_time: Interval
    """s until half of the replays have lost the robot; those that never do count with their whole length."""
    diverged: Rate
    """Share of replays that do."""
    achievable_time: float
    """s for which the right simulator would hold, as far as the replays are long."""


def is_motionless(tracks: Sequence[Track], components: Components, noise: np.ndarray) -> bool:
    """Whether nothing moves, and nothing was asked to: targets of a policy that stands only carry on its sensors' noise."""
    if not tracks:
        return False
    y = np.concatenate([components.unwrapped(t.measured) for t in tracks])
    target = np.concatenate([t.target for t in tracks])
    with np.errstate(all="ignore"):
        moves = np.nanstd(y, axis=0) > MOTIONLESS_NOISE_RATIO * noise
    return len(y) > 0 and not moves.any() and _targets_constant(target, components.contract.target)


def _targets_constant(target: np.ndarray, signal: Signal) -> bool:
    """Whether targets, (T, m), stay where they are, but for noise that is small against what can be asked."""
    span, size = np.ptp(target, axis=0), np.abs(target).max(0)
    rough = (
        np.median(np.abs(np.diff(target, 3, axis=0)), axis=0) / WHITE_NOISE_THIRD_DIFFERENCE
        if len(target) > 3
        else np.zeros(len(span))
    )
    room = np.array(signal.high) - np.array(signal.low) if signal.low and signal.high else size
    noise = (target.std(0) <= MOTIONLESS_NOISE_RATIO * rough) & (span <= MAX_TARGET_NOISE_SHARE * room)
    return bool((noise | (span <= 1e-6 * (1.0 + size))).all())


def measure_prediction_error(
    robot: Robot,
    tracks: Sequence[Track],
    noise: np.ndarray,
    belief: Belief,
    seed: int = 0,
    threads: int = 0,
    report: Callable[[float], None] = lambda share: None,
) -> PredictionError:
    """Of recordings on the robot's own ticks, in the middle of the belief and in some worlds drawn from it."""
    rate, warm = robot.contract.rate, warm_up_ticks(robot)
    horizons = sorted({1, *(max(1, round(h * rate)) for h in HORIZON_SECONDS)})
    segments = _cut_segments(tracks, robot, warm, horizons[-1])
    predictor, e = Predictor(robot, segments, noise, threads), belief.median()
    report(0.1)
    here = predictor(e)
    report(0.4)
    draws = belief.sample(np.random.default_rng(seed), SAMPLED_WORLDS)
    others = predictor.predict_worlds(draws, e, here.expected_std)
    report(0.6)
    components = tuple(Components(robot.contract).entries)
    names = list(dict.fromkeys(c.signal for c in components))
    squares = _squared_errors(here, horizons)
    groups = segments.recording
    by_signal = _mean_by_signal(squares, components)
    return PredictionError(
        components=components,
        noise=noise,
        horizons=tuple(h / rate for h in horizons),
        error=np.sqrt(_nan_mean(squares, 0)),
        signals={
            name: [bootstrap_interval(by_signal[:, h, i], groups, _root_nan_mean, seed) for h in range(len(horizons))]
            for i, name in enumerate(names)
        },
        score=bootstrap_interval(_segment_scores(by_signal), groups, _root_nan_mean, seed),
        world_scores=np.array(
            [
                _root_nan_mean(_segment_scores(_mean_by_signal(_squared_errors(p, horizons), components))[None])[0]
                for p in others
            ]
        ),
        replay=open_loop_replay(robot, tracks, noise, e, seed, threads),
        segments=segments,
    )


def _cut_segments(tracks: Sequence[Track], robot: Robot, warm_up: int, predicted_ticks: int) -> Segments:
    longest = max((len(t) for t in tracks), default=0)
    need = warm_up + predicted_ticks + MIN_SEGMENTS + SG_HALF_TICKS
    if longest < need:
        rate = robot.contract.rate
        raise BadInput(
            f"the recordings are too short: a stretch of {need / rate:.2g} s without a hole is needed to predict from, "
            f"the longest has {longest / rate:.2g} s."
        )
    # Segments may share a warm-up with what another one predicts, but never what they predict; a short recording's do.
    available = sum(max(len(t) - SG_HALF_TICKS - warm_up - predicted_ticks, 0) for t in tracks)
    return _limit_segments(
        cut(tracks, robot, warm_up + predicted_ticks, max(1, min(predicted_ticks, available // MIN_SEGMENTS))),
        robot,
        MAX_DERIVATIVE_WORLDS,
    )


def _limit_segments(segments: Segments, robot: Robot, max_worlds: int) -> Segments:
    """Evenly over the recordings, as many as derivatives of their starts take little time."""
    most = int(np.clip(max_worlds // (4 * robot.model.nv + 1), MIN_SEGMENTS, MAX_SEGMENTS))
    return segments.evenly(most)


def open_loop_replay(
    robot: Robot, tracks: Sequence[Track], noise: np.ndarray, e: np.ndarray, seed: int, threads: int
) -> OpenLoopReplay | None:
    """The recorded targets alone; None where no stretch is long enough."""
    rate, warm = robot.contract.rate, warm_up_ticks(robot)
    room = max((len(t) for t in tracks), default=0) - warm - SG_HALF_TICKS - 2
    ahead = min(round(REPLAY_SECONDS * rate), room)
    if ahead < MIN_REPLAY_SECONDS * rate:
        return None
    segments = _limit_segments(cut(tracks, robot, warm + ahead, max(1, ahead // 2)), robot, MAX_DERIVATIVE_WORLDS // 4)
    p = Predictor(robot, segments, noise, threads)(e)
    components = Components(robot.contract)
    y = np.concatenate([components.unwrapped(t.measured) for t in tracks])
    with np.errstate(all="ignore"):
        spread = np.maximum(np.nanstd(y, axis=0), MOTIONLESS_NOISE_RATIO * noise)
    error, expected = (_rms_over_signals(x * noise / spread, components.entries) for x in (p.error, p.expected_std))
    smooth = max(1, round(0.1 * rate))
    error, expected = (np.apply_along_axis(_moving_average, 1, x, smooth) for x in (error, expected))
    lost = error > DIVERGED_SPREADS
    first = np.where(lost.any(1), lost.argmax(1), lost.shape[1]) / rate
    apart = np.median(expected, axis=0) > DIVERGED_SPREADS
    time = np.arange(1, lost.shape[1] + 1) / rate
    return OpenLoopReplay(
        time=time,
        error=np.median(error, axis=0),
        expected_error=np.median(expected, axis=0),
        divergence_time=bootstrap_interval(first, segments.recording, lambda x: np.median(x, axis=1), seed),
        diverged=Rate.from_counts(int(lost.any(1).sum()), len(lost)),
        achievable_time=float(time[apart.argmax()] if apart.any() else time[-1]),
    )


def _moving_average(x: np.ndarray, ticks: int) -> np.ndarray:
    """Mean over the last few ticks."""
    total = np.concatenate([[0.0], np.cumsum(x)])
    i = np.arange(1, len(x) + 1)
    start = np.maximum(i - ticks, 0)
    return (total[i] - total[start]) / (i - start)


def _rms_over_signals(x: np.ndarray, components: Sequence[Component]) -> np.ndarray:
    """(S, T, components) -> (S, T): root mean square over signals, each the mean over its components."""
    return np.sqrt(np.nan_to_num(_nan_mean(_mean_by_signal(x**2, components), 2)))


def _squared_errors(prediction: Prediction, horizons: Sequence[int]) -> np.ndarray:
    """(S, horizons, components)"""
    return prediction.normalized_error[:, [h - 1 for h in horizons]] ** 2


def _mean_by_signal(squares: np.ndarray, components: Sequence[Component]) -> np.ndarray:
    """(S, …, components) -> (S, …, signals)"""
    names = list(dict.fromkeys(c.signal for c in components))
    columns = [[i for i, c in enumerate(components) if c.signal == name] for name in names]
    return np.stack([_nan_mean(squares[..., c], -1) for c in columns], axis=-1)


def _segment_scores(by_signal: np.ndarray) -> np.ndarray:
    """(S, horizons, signals) -> (S,)"""
    return _nan_mean(_nan_mean(by_signal, 2), 1)


def _nan_mean(x: np.ndarray, axis: int) -> np.ndarray:
    """Of what is there; NaN where nothing is."""
    there = np.isfinite(x)
    with np.errstate(all="ignore"):
        return np.where(there, x, 0.0).sum(axis) / there.sum(axis)


def _root_nan_mean(x: np.ndarray) -> np.ndarray:
    return np.sqrt(_nan_mean(x, 1))
