"""What is wrong with the samples of a recording: missing, not told, held, constant, stuck, clipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from isthmus.data.checks.findings import Finding, Recording, true_runs
from isthmus.data.checks.limits import is_constant
from isthmus.data.contract import Signal
from isthmus.deploy.links.link import MODES
from isthmus.real2sim.prepare.segments import fallen_mask
from isthmus.real2sim.prepare.tracks import gap_ticks
from isthmus.sim.robot import Robot

MIN_REPEATED_TICKS = 3
"""Equal values in a row that a signal of fine resolution never has by chance."""
MIN_FAULT_TICKS = 5
"""Ticks of such a fault that are worth a word."""
FINE_MIN_VELOCITY_POWER, COARSE_MIN_VELOCITY_POWER = 0.1, 0.25
"""Share of its usual power that a velocity must have, so that a position of fine or coarse resolution cannot stand still."""
MIN_COARSE_STEPS = 50
"""Steps of its resolution that a coarse position must go through to be judged at all."""
MAX_REPEAT_SHARE = 0.01
"""Share of ticks in which a signal that always changes may stay the same."""
CLIP_EDGE_STEPS = 8
"""Steps of its resolution by which a coarse signal comes to its ceiling within two ticks, and leaves it: no crest does."""
MAX_STILL_SECONDS = 0.3
"""s that a position of coarse resolution may at least stay the same, whatever its velocity says."""

JointRates = Mapping[tuple[str, str], np.ndarray]
"""Per signal and label of a position or velocity: how fast its joint moves, (T,), by the other of the two."""


def missing_samples(recording: Recording, robot: Robot) -> Iterator[Finding]:
    """Values that are not numbers."""
    contract, episode = robot.contract, recording.episode
    for signal in contract.signals:
        bad = ~np.isfinite(episode.signals[signal.name])
        if bad.all():
            text = f"{signal.name} was not recorded; it is not compared."
            yield recording.finding("missing", signal.name, "", None, text, excluded=True)
            continue
        for label, where in _by_label(signal, bad):
            text = (
                f"{_component_name(signal, label)} is not a number in {count_text(recording, where)}; there it is not compared."
            )
            yield recording.finding("missing", signal.name, label, where, text, excluded=True)
    target, bad = contract.target, ~np.isfinite(episode.target)
    if bad.all(axis=0).any():
        text = f"{target.name} was not recorded, and without it nothing can be replayed."
        yield recording.finding("missing", target.name, "", None, text, refused=True)
        return
    for label, where in _by_label(target, bad):
        text = (
            f"{_component_name(target, label)} is not a number in {count_text(recording, where)}; the recording is cut there."
        )
        yield recording.finding("missing", target.name, label, where, text)


def time_gaps(recording: Recording, tick: float) -> Iterator[Finding]:
    """Time that jumps, and stretches in which the robot did something else than it was told."""
    episode = recording.episode
    at = gap_ticks(episode.time, tick)
    if len(at):
        longest = float(np.diff(episode.time)[at].max())
        where = np.zeros(len(episode), bool)
        where[at] = True
        times = "once, after" if len(at) == 1 else f"{len(at)} times, first after"
        text = f"time jumps {times} {recording.time_text(at[0])}, by up to {longest:.3g} s; the recording is cut there."
        yield recording.finding("hole", "time", "", where, text)
    mode = episode.status.get("mode")
    if mode is not None:
        away = np.zeros(len(episode), bool)
        for start, stop in true_runs(np.isfinite(mode) & (mode != MODES.index("track"))):
            # When commands begin, a packet or two still tell of the time before.
            away[start:stop] = stop - start >= MIN_REPEATED_TICKS
        if away.any():
            text = f"the robot followed no targets in {count_text(recording, away)}; the recording is cut there."
            yield recording.finding("mode", "time", "", away, text, excluded=True)


def falls(recording: Recording, robot: Robot) -> Iterator[Finding]:
    """Where a robot with feet has fallen: pieces of a recording with such ticks are not used."""
    where = fallen_mask(robot, np.concatenate([recording.episode.signals[s.name] for s in robot.contract.signals], axis=1))
    if where.any():
        text = (
            f"the robot is tilted beyond {robot.contract.safety.tilt:.2g} rad in "
            f"{count_text(recording, where)}; no piece with it is used."
        )
        yield recording.finding("fallen", "time", "", where, text)


def repeated_ticks(recording: Recording, robot: Robot) -> np.ndarray:
    """(T,) ticks at which every signal is what it was at the tick before, though one of them otherwise always changes."""
    y = np.concatenate([recording.episode.signals[s.name] for s in robot.contract.signals], axis=1)
    same = np.zeros(y.shape, bool)
    same[1:] = (y[1:] == y[:-1]) | (np.isnan(y[1:]) & np.isnan(y[:-1]))
    every = np.asarray(same.all(axis=1))
    alone = (same & ~every[:, None]).sum(0)
    restless = np.isfinite(y).any(0) & (alone <= MAX_REPEAT_SHARE * len(y))
    if len(y) < 2 or not restless.any() or every.sum() > 0.5 * len(y):
        return np.zeros(len(y), bool)
    # A robot without noise that has not moved yet repeats itself, too.
    first = int(np.argmin(every[1:])) + 1
    every[:first] = False
    return every


def repeated_values(recording: Recording, robot: Robot, rates: JointRates) -> Iterator[Finding]:
    """Signals that repeat all at once, never change, stop changing, or stay at their highest or lowest."""
    again = repeated_ticks(recording, robot)
    if again.sum() >= MIN_REPEATED_TICKS:
        text = (
            f"all signals repeat the tick before in {count_text(recording, again)}: held, not measured; "
            "there nothing is compared."
        )
        yield recording.finding("held", "time", "", again, text, excluded=True)
    for signal in robot.contract.signals:
        values = recording.episode.signals[signal.name]
        still = np.array([is_constant(v) for v in values.T])
        if signal.name == "quat" and not still.all():
            # A robot that turns about one axis has components that are zero for good.
            still[:] = False
        for label, where in _by_label(signal, np.broadcast_to(still, values.shape)):
            text = f"{_component_name(signal, label)} never changes; it is not compared."
            yield recording.finding("constant", signal.name, label, where, text, excluded=True)
        position = robot.sources[signal.name].partition(":")[0] in ("qpos", "pos", "quat")
        clipped, stuck = np.zeros(values.shape, bool), np.zeros(values.shape, bool)
        for i in np.flatnonzero(~still):
            rate = rates.get((signal.name, signal.labels[i]))
            clipped[:, i], stuck[:, i] = _clipped_and_stuck(
                np.where(again, np.nan, values[:, i]), recording.episode.time, position, rate
            )
        for label, where in _by_label(signal, clipped):
            i = signal.component_index(label or signal.labels[0])
            ends = " and ".join(f"{v:.4g}" for v in np.unique(values[where, i]))
            text = (
                f"{_component_name(signal, label)} sits at its extreme, {ends} {signal.units[i]}, in "
                f"{count_text(recording, where)}: clipped"
            )
            yield recording.finding("saturated", signal.name, label, where, f"{text}; there it is not compared.", excluded=True)
        for label, where in _by_label(signal, stuck):
            text = (
                f"{_component_name(signal, label)} stays the same in {count_text(recording, where)}, "
                "though it moves; there it is not compared."
            )
            yield recording.finding("stuck", signal.name, label, where, text, excluded=True)


def _clipped_and_stuck(
    x: np.ndarray, time: np.ndarray, position: bool, rate: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Where a component, (T,), is clipped at its own extreme, and where it stays the same though it cannot, (T,) each."""
    clipped, stuck = np.zeros(len(x), bool), np.zeros(len(x), bool)
    starts = np.flatnonzero(np.concatenate([[True], x[1:] != x[:-1]]))
    lengths, values = np.diff(starts, append=len(x)), x[starts]
    known = np.unique(x[np.isfinite(x)])
    if len(known) < MIN_FAULT_TICKS:
        return clipped, stuck
    step = resolution(known)
    at: dict[bool, list[slice]] = {True: [], False: []}
    for start, length, value in zip(starts, lengths, values, strict=True):
        run = slice(int(start), int(start + length))
        if length < MIN_REPEATED_TICKS or not np.isfinite(value):
            continue
        extreme = bool(value in (known[0], known[-1]))
        if step == 0.0:
            impossible = rate is None or _velocity_active(rate, run, FINE_MIN_VELOCITY_POWER)
        elif position:
            impossible = (
                rate is not None
                and _velocity_active(rate, run, COARSE_MIN_VELOCITY_POWER)
                and _should_have_moved(time[run], rate[run], known, step)
            )
        else:
            impossible = extreme and _clipped_at_extreme(x, run, CLIP_EDGE_STEPS * step)
        if impossible:
            at[extreme].append(run)
    # A signal that stays the same everywhere else, too, is slow and not clipped; then the first of its values was new.
    slow = len(at[False]) > len(at[True])
    for run in at[False] + (at[True] if slow else []):
        stuck[run.start + 1 : run.stop] = True
    for run in [] if slow else at[True]:
        clipped[run] = True
    return clipped & bool(clipped.sum() >= MIN_FAULT_TICKS), stuck & bool(stuck.sum() >= MIN_FAULT_TICKS)


def _clipped_at_extreme(x: np.ndarray, run: slice, min_step: float) -> bool:
    """Whether a signal comes and goes fast on either side of a run of equal values."""
    sides = [x[run.start - 2] if run.start >= 2 else np.nan, x[run.stop + 1] if run.stop + 1 < len(x) else np.nan]
    return bool(all(abs(side - x[run.start]) > min_step for side in sides))


def _velocity_active(rate: np.ndarray, run: slice, min_power_share: float) -> bool:
    """Whether a velocity has at least this share of its usual power in a run."""
    now, ever = (x[np.isfinite(x)] for x in (rate[run], rate))
    return len(now) > 0 and bool(np.mean(now**2) > min_power_share * np.mean(ever**2))


def _should_have_moved(time: np.ndarray, rate: np.ndarray, distinct_values: np.ndarray, step: float) -> bool:
    """Whether by its velocity a position goes through much of its range while it stays the same for long."""
    span, way = distinct_values[-1] - distinct_values[0], np.nancumsum(rate[:-1] * np.diff(time))
    return bool(time[-1] - time[0] > MAX_STILL_SECONDS and span > MIN_COARSE_STEPS * step and np.ptp(way) > 0.25 * span)


def resolution(distinct_values: np.ndarray) -> float:
    """The step of which all the distinct values of a signal, in order, are multiples; 0 if there is none."""
    gaps = np.diff(distinct_values)
    gaps = gaps[gaps > 1e-5 * np.median(gaps)]
    ratios = gaps / gaps.min()
    # A long gap, measured in steps that are known only roughly, tells nothing.
    ratios = ratios[ratios < 50.0]
    return float(gaps.min()) if np.mean(np.abs(ratios - np.rint(ratios))) < 0.1 else 0.0


def count_text(recording: Recording, mask: np.ndarray) -> str:
    """How many ticks, and where the first is, in words."""
    n = int(mask.sum())
    return f"{n} tick{'s'[: n > 1]}, first at {recording.time_text(int(np.argmax(mask)))}"


def _by_label(signal: Signal, mask: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Per label, the ticks that are bad, (T,); one for all labels if they are the same."""
    if mask.any() and signal.size > 1 and (mask == mask[:, :1]).all():
        yield "", mask[:, 0]
        return
    for label, where in zip(signal.labels, mask.T, strict=True):
        if where.any():
            yield label, where


def _component_name(signal: Signal, label: str) -> str:
    return f"{signal.name} of {label}" if label else signal.name
