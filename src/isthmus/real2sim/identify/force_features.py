"""What a learned force would have read, at every physics step of every segment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.sim.engines.batch.engine import BatchEngines
from isthmus.sim.physics.component import Attached, Component, training_components
from isthmus.sim.physics.force_features import BodyForceFeatures, body_force_features, motor_force_features
from isthmus.sim.physics.learned_force import Ensemble, ForceKind, LearnedForce
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation

SAMPLES_PER_TICK = 3
"""Physics steps of a tick whose mean stands for the tick."""


def with_learned_force(robot: Robot, learned: LearnedForce) -> Robot:
    """The robot with one more learned force."""
    return replace(robot, unit=replace(robot.unit, learned_forces=(*robot.unit.learned_forces, learned)))


def zero_force(robot: Robot, kind: ForceKind, names: tuple[str, ...], lags: int = 2, stride: float = 0.01) -> LearnedForce:
    """A force of that kind which is always zero."""
    outputs = 1
    if kind == "body":
        reader = body_force_features(robot, robot.model, names)
        features, outputs = len(reader.labels), len(reader.dofs)
    else:
        features = 2 * (lags + 1)
    net = Ensemble(
        weights=(np.zeros((1, features, outputs)),),
        biases=(np.zeros((1, outputs)),),
        mean=np.zeros(features),
        scale=np.ones(features),
        root=np.eye(features),
        reach=1.0,
        doubt=1.0,
        unit=np.ones(outputs),
    )
    return LearnedForce(kind, names, net, lags if kind == "motor" else 0, stride)


def force_feature_names(robot: Robot, learned: LearnedForce) -> tuple[str, ...]:
    if learned.kind == "body":
        return body_force_features(robot, robot.model, learned.names).labels
    back = [f"{1e3 * learned.stride * i:g} ms ago" if i else "now" for i in range(learned.lags + 1)]
    first = "torque asked" if robot.motors.drive == "effort" else "error"
    return tuple(f"{what} {when}" for what in (first, "speed") for when in back)


class _FeatureRecorder(Attached):
    """Records the features of the last learned force, and qpos, before every physics step."""

    every = 1

    def __init__(self, sim: Simulation):
        self._sim, self._reader = sim, sim.learned_forces.features[-1]
        self.features: list[np.ndarray] = []
        self.qpos: list[np.ndarray] = []

    def before_step(self, substep: int) -> None:
        del substep
        sim = self._sim
        if isinstance(self._reader, BodyForceFeatures):
            x = self._reader.read(sim.qpos, sim.qvel, sim.ctrl)[:, None]
        else:
            now = np.rint(sim.time / sim.dt).astype(int) % sim.learned_forces.history_steps
            x = self._reader.read(sim.userdata["memory"], now)
        self.features.append(x)
        self.qpos.append(sim.qpos.copy())


def rollout_features(
    residual: ParameterResidual, learned: LearnedForce, e: np.ndarray, xi: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """x, (S, ticks, looks, groups, features), and qpos there, (S, ticks, looks, nq), in the world e from starts ξ.

    A look is at one of a few physics steps of a tick; a group is a motor that shares the force, or the whole body. `learned`
    acts, too.
    """
    robot, segments = residual.robot, residual.segments
    S, ticks = len(segments), segments.ticks
    forced = with_learned_force(robot, learned)
    components = (*training_components(forced), Component(_FeatureRecorder))
    sim = Simulation(forced, S, residual.threads, engine=BatchEngines(native_motor_law=False), components=components)
    sim.apply(np.repeat(e[None], S, axis=0), sim.all_ids)
    sim.reset(sim.all_ids, *residual.start_states(segments.qpos, segments.qvel, xi), segments.past_targets)
    for t in range(ticks):
        residual.correct_state(sim, sim.noiseless_signals(), t)
        sim.replay(segments.target[:, t])
    recorder = sim.part(_FeatureRecorder)
    x, q = (np.stack(rows, axis=1) for rows in (recorder.features, recorder.qpos))
    looks = np.unique(np.linspace(0, robot.substeps - 1, SAMPLES_PER_TICK).round().astype(int))
    x, q = (a.reshape(S, ticks, robot.substeps, *a.shape[2:])[:, :, looks] for a in (x, q))
    return x, q


def motor_indices(robot: Robot, learned: LearnedForce) -> list[int]:
    return list(motor_force_features(robot, learned, 1.0).motors)
