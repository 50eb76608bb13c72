"""Keeps simulated robots on their feet close to a recorded one, so that a prediction need not begin with an unknown state.

What a foot does hangs on height and speed of the base, which no sensor of a walking robot measures, and no search over
starts finds well: the error of a start jumps when a foot touches a tick earlier. So the state is not searched for but
followed. After every tick, what is measured pulls the simulated state towards it by a share of the difference,

    x ← x + K (measured - predicted)

and the rest, height and speed of the base, comes from the feet on the ground. What is compared is each prediction before it
is corrected: one tick ahead, from a state that the world in question has itself made of the past.
"""

from __future__ import annotations

import numpy as np

from isthmus.sim.engines.mujoco.tangent import dof_of, integrate
from isthmus.sim.indexing import signal_sources
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation

OBSERVER_GAIN = 0.3
"""Share of a difference by which a position, an attitude or a velocity is corrected in each tick."""
ANGLE_PER_QUATERNION_VECTOR = 2.0
"""Angle of a small rotation over the vector part of its quaternion."""


def needs_observer(robot: Robot) -> bool:
    """Whether a robot is followed, because its starts cannot be searched for: it stands on feet."""
    return bool(robot.morphology.feet)


class Observer:
    """Of one robot; rows are worlds."""

    def __init__(self, robot: Robot):
        model = robot.model
        self._model = model
        positions: list[tuple[int, int, float]] = []
        velocities: list[tuple[int, int, float]] = []
        at = 0
        for signal, (array, columns) in zip(robot.contract.signals, signal_sources(robot, model), strict=True):
            if signal.name == "quat" and signal.labels == ("w", "x", "y", "z"):
                if array == "qpos":
                    positions += [
                        (at + i, dof_of(model, columns[1 + i]), ANGLE_PER_QUATERNION_VECTOR * OBSERVER_GAIN) for i in range(3)
                    ]
                at += 3
                continue
            for i, column in enumerate(columns):
                if array == "qpos":
                    positions.append((at + i, dof_of(model, column), OBSERVER_GAIN))
                elif array == "qvel":
                    velocities.append((at + i, column, OBSERVER_GAIN))
            at += signal.size
        self._position, self._velocity = _CorrectedDofs(positions), _CorrectedDofs(velocities)

    def correct(self, engine: Simulation, error: np.ndarray) -> None:
        """Correct the worlds of an engine that is `off` by predicted - measured, (n, components); NaN corrects nothing."""
        error = np.nan_to_num(error)
        step, change = np.zeros((2, engine.n, engine.model.nv))
        if len(self._position.dofs):
            step[:, self._position.dofs] = -self._position.gain * error[:, self._position.components]
            engine.qpos[:] = integrate(self._model, engine.qpos, step)
        change[:, self._velocity.dofs] = -self._velocity.gain * error[:, self._velocity.components]
        engine.qvel[:] += change
        engine.correct(step, change)


class _CorrectedDofs:
    """Components that are compared, the degrees of freedom that they measure, and shares."""

    def __init__(self, rows: list[tuple[int, int, float]]):
        self.components = np.array([c for c, _, _ in rows], dtype=int)
        self.dofs = np.array([d for _, d, _ in rows], dtype=int)
        self.gain = np.array([s for _, _, s in rows])
