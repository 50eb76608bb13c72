"""What a learned force would have read, at every physics step of every segment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isthmus.gap.residual import Residual
from isthmus.sim.engine import Engine
from isthmus.sim.features import BodyReader, body_reader, motor_reader
from isthmus.sim.learned import Ensemble, Kind, Learned
from isthmus.sim.robot import Robot

LOOKS = 3
"""Physics steps of a tick whose mean stands for the tick."""


def with_force(robot: Robot, learned: Learned) -> Robot:
    """The robot with one more learned force."""
    return replace(robot, unit=replace(robot.unit, learned=(*robot.unit.learned, learned)))


def silent(robot: Robot, kind: Kind, names: tuple[str, ...], lags: int = 2, stride: float = 0.01) -> Learned:
    """A force of that kind which is always zero."""
    outputs = 1
    if kind == "body":
        reader = body_reader(robot, robot.model, names)
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
    return Learned(kind, names, net, lags if kind == "motor" else 0, stride)


def feature_names(robot: Robot, learned: Learned) -> tuple[str, ...]:
    if learned.kind == "body":
        return body_reader(robot, robot.model, learned.names).labels
    back = [f"{1e3 * learned.stride * i:g} ms ago" if i else "now" for i in range(learned.lags + 1)]
    first = "torque asked" if robot.motors.drive == "effort" else "error"
    return tuple(f"{what} {when}" for what in (first, "speed") for when in back)


class _Tape(Engine):
    """An engine that notes the features of its last learned force before every physics step."""

    noted: list[np.ndarray]
    states: list[np.ndarray]

    def _physics(self, steps: int) -> None:
        reader = self.forces.readers[-1]
        if isinstance(reader, BodyReader):
            x = reader.read(self.qpos, self.qvel, self.ctrl)[:, None]
        else:
            now = np.rint(self.time / self.dt).astype(int) % self.forces.past
            x = reader.read(self.view["memory"], now)
        self.noted.append(x)
        self.states.append(self.qpos.copy())
        super()._physics(steps)


def features(residual: Residual, learned: Learned, e: np.ndarray, xi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x, (S, ticks, looks, groups, features), and qpos there, (S, ticks, looks, nq), in the world e from starts ξ.

    A look is at one of a few physics steps of a tick; a group is a motor that shares the force, or the whole body. `learned`
    acts, too.
    """
    robot, segments = residual.robot, residual.segments
    S, ticks = len(segments), segments.ticks
    tape = _Tape(with_force(robot, learned), S, residual.threads, compiled=False)
    tape.apply(np.repeat(e[None], S, axis=0), tape.all)
    tape.reset(tape.all, *residual.moved(segments.qpos, segments.qvel, xi), segments.sent)
    tape.noted, tape.states = [], []
    for t in range(ticks):
        residual.follow(tape, tape.noiseless(), t)
        tape.replay(segments.target[:, t])
    x, q = (np.stack(noted, axis=1) for noted in (tape.noted, tape.states))
    looks = np.unique(np.linspace(0, robot.substeps - 1, LOOKS).round().astype(int))
    x, q = (a.reshape(S, ticks, robot.substeps, *a.shape[2:])[:, :, looks] for a in (x, q))
    return x, q


def motors_of(robot: Robot, learned: Learned) -> list[int]:
    return list(motor_reader(robot, learned, 1.0).motors)
