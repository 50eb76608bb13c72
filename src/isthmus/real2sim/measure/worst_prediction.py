"""The seconds of the recordings that the simulator predicts worst, as motion: recorded beside simulated.

    simulated    the recorded targets alone, from the state that a warm-up gave, in one world
    recorded     joints, attitude and place as the sensors tell them, less what that world's sensors add

What no sensor measures is drawn as the simulator has it, so that the two differ in nothing that was not seen. A walking robot
is an exception: its height is that of its lowest foot on the ground, and its place is walked out from the feet that stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from isthmus.core.errors import BadInput
from isthmus.real2sim.measure.predictor import Predictor, warm_up_ticks
from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.savitzky_golay import SG_HALF_TICKS
from isthmus.real2sim.prepare.segments import Segments, cut
from isthmus.real2sim.prepare.state_from_signals import (
    interpolate_gaps,
    measured_qpos_columns,
    measured_states,
    unmeasured_bases,
    unmeasured_joints,
)
from isthmus.real2sim.prepare.tracks import Track
from isthmus.real2sim.residual.estimators import estimator_for, needs_observer
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation

SHOWN_SECONDS, MIN_SHOWN_SECONDS = 2.0, 0.5
"""s that are shown, and the least that is worth it."""
STARTS_PER_LENGTH = 4
"""Pieces begin every so many parts of their length."""
MAX_DERIVATIVE_WORLDS, MIN_SEGMENTS, MAX_SEGMENTS = 400, 4, 40
"""Worlds of a derivative, and pieces that are tried."""


@dataclass(frozen=True)
class WorstSegment:
    """T moments, the first one where the prediction begins."""

    recording: int
    start: float
    """s in that recording."""
    error: float
    """Root mean square over signals and ticks, in units of what it would be in the right simulator."""
    time: np.ndarray
    """(T,) s since `start`."""
    recorded: np.ndarray
    """(T, nq), and the same of the simulator."""
    simulated: np.ndarray
    position_from_feet: bool
    """Whether the place of the recorded robot is not measured but walked out."""
    unmeasured_joints: tuple[str, ...]
    """Joints that no sensor measures, in part or at all."""


def worst_segment(
    robot: Robot, tracks: Sequence[Track], noise: np.ndarray, e: np.ndarray, threads: int = 0
) -> WorstSegment | None:
    """In the world e, (d,); None where no stretch is long enough."""
    rate, warm = robot.contract.rate, warm_up_ticks(robot)
    room = max((len(t) for t in tracks), default=0) - warm - 2 * SG_HALF_TICKS - 1
    ahead = min(round(SHOWN_SECONDS * rate), room)
    if ahead < MIN_SHOWN_SECONDS * rate:
        return None
    try:
        segments = cut(tracks, robot, warm + ahead + SG_HALF_TICKS, max(1, ahead // STARTS_PER_LENGTH))
    except BadInput:
        return None  # it does not stand for so long
    # A robot that is followed needs no derivatives of its starts.
    segments = segments.evenly(
        MAX_SEGMENTS
        if needs_observer(robot)
        else int(np.clip(MAX_DERIVATIVE_WORLDS // (4 * robot.model.nv + 1), MIN_SEGMENTS, MAX_SEGMENTS))
    )
    predictor = Predictor(robot, segments, noise, threads)
    errors = _segment_errors(predictor(e).normalized_error[:, :ahead], Components(robot.contract))
    if not np.isfinite(errors).any():
        return None
    i = int(np.nanargmax(errors))
    one = segments.take(np.array([i]))
    simulated, measured = _simulate_segment(robot, one, noise, e, predictor.starts(e)[[i]], warm, ahead)
    seen = measured_qpos_columns(robot, np.stack([interpolate_gaps(column) for column in measured.T], axis=1))
    return WorstSegment(
        recording=int(one.recording[0]),
        start=float(one.start[0]) + warm / rate,
        error=float(errors[i]),
        time=np.arange(ahead + 1) / rate,
        recorded=measured_states(robot, measured, simulated),
        simulated=simulated,
        position_from_feet=bool(robot.morphology.feet and unmeasured_bases(robot, seen)),
        unmeasured_joints=unmeasured_joints(robot, seen),
    )


def _segment_errors(normalized_error: np.ndarray, components: Components) -> np.ndarray:
    """(S, ticks, components) -> (S,): root mean square over ticks and signals, each the mean over its components."""
    names = [c.signal for c in components.entries]
    with np.errstate(all="ignore"):
        squares = np.where(np.isfinite(normalized_error), normalized_error**2, 0.0).sum(1) / np.isfinite(normalized_error).sum(
            1
        )
        by_signal = [squares[:, [n == name for n in names]] for name in dict.fromkeys(names)]
        means = np.stack([np.nansum(s, 1) / np.isfinite(s).sum(1) for s in by_signal], axis=1)
        return np.sqrt(np.nansum(means, 1) / np.isfinite(means).sum(1))


def _simulate_segment(
    robot: Robot, segment: Segments, noise: np.ndarray, e: np.ndarray, xi: np.ndarray, warm_up: int, predicted_ticks: int
) -> tuple[np.ndarray, np.ndarray]:
    """States after the warm-up, (ahead + 1, nq), at the times of which the sensors speak; and what they measured of them,
    (ahead + 1 + 2 HALF, width), less bias and gain of the world."""
    follower = ParameterResidual(robot, segment, noise, (), 1, estimator=estimator_for(robot, warm_up + 1))
    engine = Simulation(robot, 1, 1)
    engine.apply(e[None], engine.all_ids)
    engine.reset(engine.all_ids, *follower.start_states(segment.qpos, segment.qvel, xi), segment.past_targets)
    states: list[np.ndarray] = []
    for t in range(warm_up + predicted_ticks + 1):
        follower.correct_state(engine, engine.noiseless_signals(), t)
        # A world that blew up stays where it was last seen.
        states.append(states[-1] if states and engine.diverged[0] else engine.qpos[0].copy())
        engine.replay(segment.target[:, t])
    late = float(engine.userdata["sensor_delay"][0]) * robot.contract.rate
    now = warm_up + np.arange(predicted_ticks + 1) - late
    before = np.maximum(np.floor(now).astype(int), 0)
    share = np.clip(now - before, 0.0, 1.0)[:, None]
    all_states = np.array(states)
    between = all_states[before] + share * (all_states[np.minimum(before + 1, warm_up + predicted_ticks)] - all_states[before])
    for row in between:
        mujoco.mj_normalizeQuat(robot.model, row)
    arrays = engine.binding.arrays
    seen = segment.measured[0, warm_up - SG_HALF_TICKS : warm_up + predicted_ticks + SG_HALF_TICKS + 1]
    return between, (seen - arrays["signal.bias"][0]) / arrays["signal.gain"][0]
