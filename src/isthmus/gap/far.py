"""How far recordings are from a simulator: errors of prediction per signal and horizon, and a score.

one step, many steps    errors at fixed horizons beyond a warm-up, 1 in the right simulator (see `predict`)
score                   root mean square over horizons up to SCORED, signals and segments; 1: as good as the sensors
replay                  the recorded targets alone, for seconds: when has the simulator lost the robot?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.data.contract import Signal
from isthmus.data.rate import Rate
from isthmus.errors import BadInput
from isthmus.gap.bootstrap import Measured, interval
from isthmus.gap.parabola import HALF
from isthmus.gap.predict import Predicted, Predictor, warmed
from isthmus.gap.residual import Component, Components
from isthmus.gap.segments import Segments, cut
from isthmus.gap.tracks import Track
from isthmus.sim.robot import Robot
from isthmus.world import Belief

HORIZONS = (0.05, 0.1, 0.2, 0.5)
"""s, after that of one tick. The score is over these, so that it means the same for every recording of a robot."""
REPLAY, SHORTEST = 4.0, 1.0
"""s that are replayed, and the least that is worth it."""
LOST = 0.5
"""Of a signal's own spread: a prediction that is further off says no more than that the robot moves."""
CALM = 3.0
"""A signal that spreads by less than so many times its noise does not move."""
SMALL, WHITE = 0.1, 0.6745 * np.sqrt(20.0)
"""Of what can be asked: larger targets are no noise. And the median of |third difference| of white noise, σ = 1."""
WORLDS = 16
"""Of the belief, beside its middle."""
FEWEST, MOST = 4, 120
"""Segments."""
COPIES = 2400
"""Worlds of a derivative, at most."""


@dataclass(frozen=True)
class Far:
    components: tuple[Component, ...]
    noise: np.ndarray
    """(components,) σ."""
    horizons: tuple[float, ...]
    """s"""
    error: np.ndarray
    """(horizons, components) root mean square of the errors over what they would be in the right simulator."""
    signals: dict[str, list[Measured]]
    """By signal, for each horizon."""
    score: Measured
    worlds: np.ndarray
    """(k,) scores of worlds drawn from the belief."""
    replay: Replay | None
    segments: Segments


@dataclass(frozen=True)
class Replay:
    time: np.ndarray
    """(T,) s of replay."""
    error: np.ndarray
    """(T,) typical distance from the recording, in units of the signals' own spread."""
    expected: np.ndarray
    """(T,) the same in the right simulator."""
    lost_after: Measured
    """s until half of the replays have lost the robot; those that never do count with their whole length."""
    lost: Rate
    """Share of replays that do."""
    possible: float
    """s for which the right simulator would hold, as far as the replays are long."""


def still(found: Sequence[Track], components: Components, noise: np.ndarray) -> bool:
    """Whether nothing moves, and nothing was asked to: targets of a policy that stands only carry on its sensors' noise."""
    if not found:
        return False
    y = np.concatenate([components.unrolled(t.measured) for t in found])
    target = np.concatenate([t.target for t in found])
    with np.errstate(all="ignore"):
        moves = np.nanstd(y, axis=0) > CALM * noise
    return len(y) > 0 and not moves.any() and _asked_nothing(target, components.contract.target)


def _asked_nothing(target: np.ndarray, signal: Signal) -> bool:
    """Whether targets, (T, m), stay where they are, but for noise that is small against what can be asked."""
    span, size = np.ptp(target, axis=0), np.abs(target).max(0)
    rough = np.median(np.abs(np.diff(target, 3, axis=0)), axis=0) / WHITE if len(target) > 3 else np.zeros(len(span))
    room = np.array(signal.high) - np.array(signal.low) if signal.low and signal.high else size
    noise = (target.std(0) <= CALM * rough) & (span <= SMALL * room)
    return bool((noise | (span <= 1e-6 * (1.0 + size))).all())


def far(
    robot: Robot,
    found: Sequence[Track],
    noise: np.ndarray,
    belief: Belief,
    seed: int = 0,
    threads: int = 0,
    report: Callable[[float], None] = lambda share: None,
) -> Far:
    """Of recordings on the robot's own ticks, in the middle of the belief and in some worlds drawn from it."""
    rate, warm = robot.contract.rate, warmed(robot)
    horizons = sorted({1, *(max(1, round(h * rate)) for h in HORIZONS)})
    segments = _segments(found, robot, warm, horizons[-1])
    predictor, e = Predictor(robot, segments, noise, threads), belief.median()
    report(0.1)
    here = predictor(e)
    report(0.4)
    draws = belief.sample(np.random.default_rng(seed), WORLDS)
    others = predictor.worlds(draws, e, here.expected)
    report(0.6)
    components = tuple(Components(robot.contract).all)
    names = list(dict.fromkeys(c.signal for c in components))
    squares = _squares(here, horizons)
    groups = segments.recording
    by_signal = _by_signal(squares, components)
    return Far(
        components=components,
        noise=noise,
        horizons=tuple(h / rate for h in horizons),
        error=np.sqrt(_mean(squares, 0)),
        signals={
            name: [interval(by_signal[:, h, i], groups, _root_mean, seed) for h in range(len(horizons))]
            for i, name in enumerate(names)
        },
        score=interval(_scores(by_signal), groups, _root_mean, seed),
        worlds=np.array([_root_mean(_scores(_by_signal(_squares(p, horizons), components))[None])[0] for p in others]),
        replay=replay(robot, found, noise, e, seed, threads),
        segments=segments,
    )


def _segments(found: Sequence[Track], robot: Robot, warm: int, ahead: int) -> Segments:
    longest = max((len(t) for t in found), default=0)
    need = warm + ahead + FEWEST + HALF
    if longest < need:
        rate = robot.contract.rate
        raise BadInput(
            f"the recordings are too short: a stretch of {need / rate:.2g} s without a hole is needed to predict from, "
            f"the longest has {longest / rate:.2g} s."
        )
    # Segments may share a warm-up with what another one predicts, but never what they predict; a short recording's do.
    available = sum(max(len(t) - HALF - warm - ahead, 0) for t in found)
    return _some(cut(found, robot, warm + ahead, max(1, min(ahead, available // FEWEST))), robot, COPIES)


def _some(segments: Segments, robot: Robot, copies: int) -> Segments:
    """Evenly over the recordings, as many as derivatives of their starts take little time."""
    most = int(np.clip(copies // (4 * robot.model.nv + 1), FEWEST, MOST))
    return segments.spread(most)


def replay(robot: Robot, found: Sequence[Track], noise: np.ndarray, e: np.ndarray, seed: int, threads: int) -> Replay | None:
    """The recorded targets alone; None where no stretch is long enough."""
    rate, warm = robot.contract.rate, warmed(robot)
    room = max((len(t) for t in found), default=0) - warm - HALF - 2
    ahead = min(round(REPLAY * rate), room)
    if ahead < SHORTEST * rate:
        return None
    segments = _some(cut(found, robot, warm + ahead, max(1, ahead // 2)), robot, COPIES // 4)
    p = Predictor(robot, segments, noise, threads)(e)
    components = Components(robot.contract)
    y = np.concatenate([components.unrolled(t.measured) for t in found])
    with np.errstate(all="ignore"):
        spread = np.maximum(np.nanstd(y, axis=0), CALM * noise)
    error, expected = (_distance(x * noise / spread, components.all) for x in (p.error, p.expected))
    smooth = max(1, round(0.1 * rate))
    error, expected = (np.apply_along_axis(_smoothed, 1, x, smooth) for x in (error, expected))
    lost = error > LOST
    first = np.where(lost.any(1), lost.argmax(1), lost.shape[1]) / rate
    apart = np.median(expected, axis=0) > LOST
    time = np.arange(1, lost.shape[1] + 1) / rate
    return Replay(
        time=time,
        error=np.median(error, axis=0),
        expected=np.median(expected, axis=0),
        lost_after=interval(first, segments.recording, lambda x: np.median(x, axis=1), seed),
        lost=Rate.of(int(lost.any(1).sum()), len(lost)),
        possible=float(time[apart.argmax()] if apart.any() else time[-1]),
    )


def _smoothed(x: np.ndarray, ticks: int) -> np.ndarray:
    """Mean over the last few ticks."""
    total = np.concatenate([[0.0], np.cumsum(x)])
    i = np.arange(1, len(x) + 1)
    start = np.maximum(i - ticks, 0)
    return (total[i] - total[start]) / (i - start)


def _distance(x: np.ndarray, components: Sequence[Component]) -> np.ndarray:
    """(S, T, components) -> (S, T): root mean square over signals, each the mean over its components."""
    return np.sqrt(np.nan_to_num(_mean(_by_signal(x**2, components), 2)))


def _squares(p: Predicted, horizons: Sequence[int]) -> np.ndarray:
    """(S, horizons, components)"""
    return p.relative[:, [h - 1 for h in horizons]] ** 2


def _by_signal(squares: np.ndarray, components: Sequence[Component]) -> np.ndarray:
    """(S, …, components) -> (S, …, signals)"""
    names = list(dict.fromkeys(c.signal for c in components))
    columns = [[i for i, c in enumerate(components) if c.signal == name] for name in names]
    return np.stack([_mean(squares[..., c], -1) for c in columns], axis=-1)


def _scores(by_signal: np.ndarray) -> np.ndarray:
    """(S, horizons, signals) -> (S,)"""
    return _mean(_mean(by_signal, 2), 1)


def _mean(x: np.ndarray, axis: int) -> np.ndarray:
    """Of what is there; NaN where nothing is."""
    there = np.isfinite(x)
    with np.errstate(all="ignore"):
        return np.where(there, x, 0.0).sum(axis) / there.sum(axis)


def _root_mean(x: np.ndarray) -> np.ndarray:
    return np.sqrt(_mean(x, 1))
