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

from isthmus.errors import BadInput
from isthmus.gap.observer import follows
from isthmus.gap.parabola import HALF
from isthmus.gap.predict import Predictor, warmed
from isthmus.gap.residual import Components, Residual
from isthmus.gap.seen import bridged, columns, lost_bases, states, unseen_joints
from isthmus.gap.segments import Segments, cut
from isthmus.gap.tracks import Track
from isthmus.sim.engine import Engine
from isthmus.sim.robot import Robot

SECONDS, SHORTEST = 2.0, 0.5
"""s that are shown, and the least that is worth it."""
OVERLAP = 4
"""Pieces begin every so many parts of their length."""
COPIES, FEWEST, MOST = 400, 4, 40
"""Worlds of a derivative, and pieces that are tried."""


@dataclass(frozen=True)
class Worst:
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
    walked: bool
    """Whether the place of the recorded robot is not measured but walked out."""
    unseen: tuple[str, ...]
    """Joints that no sensor measures, in part or at all."""


def worst(robot: Robot, found: Sequence[Track], noise: np.ndarray, e: np.ndarray, threads: int = 0) -> Worst | None:
    """In the world e, (d,); None where no stretch is long enough."""
    rate, warm = robot.contract.rate, warmed(robot)
    room = max((len(t) for t in found), default=0) - warm - 2 * HALF - 1
    ahead = min(round(SECONDS * rate), room)
    if ahead < SHORTEST * rate:
        return None
    try:
        segments = cut(found, robot, warm + ahead + HALF, max(1, ahead // OVERLAP))
    except BadInput:
        return None  # it does not stand for so long
    # A robot that is followed needs no derivatives of its starts.
    segments = segments.spread(MOST if follows(robot) else int(np.clip(COPIES // (4 * robot.model.nv + 1), FEWEST, MOST)))
    predictor = Predictor(robot, segments, noise, threads)
    errors = _errors(predictor(e).relative[:, :ahead], Components(robot.contract))
    if not np.isfinite(errors).any():
        return None
    i = int(np.nanargmax(errors))
    one = segments.take(np.array([i]))
    simulated, measured = _live(robot, one, noise, e, predictor.starts(e)[[i]], warm, ahead)
    seen = columns(robot, np.stack([bridged(column) for column in measured.T], axis=1))
    return Worst(
        recording=int(one.recording[0]),
        start=float(one.start[0]) + warm / rate,
        error=float(errors[i]),
        time=np.arange(ahead + 1) / rate,
        recorded=states(robot, measured, simulated),
        simulated=simulated,
        walked=bool(robot.feet and lost_bases(robot, seen)),
        unseen=unseen_joints(robot, seen),
    )


def _errors(relative: np.ndarray, components: Components) -> np.ndarray:
    """(S, ticks, components) -> (S,): root mean square over ticks and signals, each the mean over its components."""
    names = [c.signal for c in components.all]
    with np.errstate(all="ignore"):
        squares = np.where(np.isfinite(relative), relative**2, 0.0).sum(1) / np.isfinite(relative).sum(1)
        by_signal = [squares[:, [n == name for n in names]] for name in dict.fromkeys(names)]
        means = np.stack([np.nansum(s, 1) / np.isfinite(s).sum(1) for s in by_signal], axis=1)
        return np.sqrt(np.nansum(means, 1) / np.isfinite(means).sum(1))


def _live(
    robot: Robot, one: Segments, noise: np.ndarray, e: np.ndarray, xi: np.ndarray, warm: int, ahead: int
) -> tuple[np.ndarray, np.ndarray]:
    """States after the warm-up, (ahead + 1, nq), at the times of which the sensors speak; and what they measured of them,
    (ahead + 1 + 2 HALF, width), less bias and gain of the world."""
    follower = Residual(robot, one, noise, (), 1, followed=warm + 1)
    engine = Engine(robot, 1, 1)
    engine.apply(e[None], engine.all)
    engine.reset(engine.all, *follower.moved(one.qpos, one.qvel, xi), one.sent)
    states: list[np.ndarray] = []
    for t in range(warm + ahead + 1):
        follower.follow(engine, engine.noiseless(), t)
        # A world that blew up stays where it was last seen.
        states.append(states[-1] if states and engine.blown[0] else engine.qpos[0].copy())
        engine.replay(one.target[:, t])
    late = float(engine.view["sensor_delay"][0]) * robot.contract.rate
    now = warm + np.arange(ahead + 1) - late
    before = np.maximum(np.floor(now).astype(int), 0)
    share = np.clip(now - before, 0.0, 1.0)[:, None]
    all_states = np.array(states)
    between = all_states[before] + share * (all_states[np.minimum(before + 1, warm + ahead)] - all_states[before])
    for row in between:
        mujoco.mj_normalizeQuat(robot.model, row)
    arrays = engine.binding.arrays
    seen = one.measured[0, warm - HALF : warm + ahead + HALF + 1]
    return between, (seen - arrays["signal.bias"][0]) / arrays["signal.gain"][0]
