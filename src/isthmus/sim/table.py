"""Learned forces of a robot in one engine: as numbers for motors.c, and as the same law in NumPy."""

from __future__ import annotations

import mujoco
import numpy as np

from isthmus.errors import BadInput
from isthmus.sim.features import BodyReader, MotorReader, body_reader, motor_reader
from isthmus.sim.learned import FADE, MOST_FEATURES, Ensemble
from isthmus.sim.robot import Robot
from isthmus.sim.sources import target_joints


class Forces:
    """All learned forces of a robot, resolved in a model, in the order in which they act."""

    def __init__(self, robot: Robot, model: mujoco.MjModel, dt: float):
        self.readers: list[BodyReader | MotorReader] = []
        self.nets = [learned.net for learned in robot.unit.learned]
        for learned in robot.unit.learned:
            if learned.kind == "motor" and target_joints(robot, model) is None:
                raise BadInput(f"a learned force of motors makes no sense for {robot.name}, whose motors do not drive joints.")
            reader = motor_reader(robot, learned, dt) if learned.kind == "motor" else body_reader(robot, model, learned.names)
            features = len(reader.labels) if isinstance(reader, BodyReader) else 2 * len(reader.back)
            outputs = len(reader.dofs) if isinstance(reader, BodyReader) else 1
            sizes = learned.net.sizes
            if (sizes[0], sizes[-1]) != (features, outputs) or outputs > MOST_FEATURES:
                raise BadInput(
                    f"a learned force of {robot.name} has {sizes[0]} features and {sizes[-1]} outputs, "
                    f"but the robot has {features} and {outputs}."
                )
            self.readers.append(reader)
        self.past = max((max(r.back) + 1 for r in self.readers if isinstance(r, MotorReader)), default=0)
        """Physics steps of errors and speeds to keep."""

    def __bool__(self) -> bool:
        return bool(self.readers)

    def numbers(self) -> list[float]:
        """See forces.h."""
        if not self.readers:
            return []
        return [float(len(self.readers)), *(x for r, net in zip(self.readers, self.nets, strict=True) for x in _one(r, net))]

    def add(self, out: np.ndarray, qpos: np.ndarray, qvel: np.ndarray, ctrl: np.ndarray, memory: np.ndarray, now, v) -> None:
        """Add to generalised forces `out`, (n, nv); `memory`, (n, past, 2, m), has its newest in slots `now`, (n,)."""
        for reader, net in zip(self.readers, self.nets, strict=True):
            if isinstance(reader, BodyReader):
                force = np.zeros_like(out)
                reader.spread(net(reader.read(qpos, qvel, ctrl)), qpos, force)
                out += force
                continue
            x = reader.read(memory, now)
            found = net(x.reshape(-1, x.shape[-1])).reshape(x.shape[:2])
            columns = np.arange(out.shape[1])[v][list(reader.motors)]
            out[:, columns] += found


def _one(reader: BodyReader | MotorReader, net: Ensemble) -> list[float]:
    if isinstance(reader, BodyReader):
        where = [len(reader.rows), *(x for row in reader.rows for x in row), len(reader.forces)]
        where += [x for force in reader.forces for x in force]
    else:
        where = [len(reader.motors), *reader.motors, len(reader.back), *reader.back]
    kind = 0 if isinstance(reader, BodyReader) else 1
    head = [kind, net.sizes[0], net.sizes[-1], net.members, len(net.weights), net.reach, net.doubt, FADE, *net.sizes[1:]]
    arrays = [net.mean, 1.0 / net.scale, net.root.ravel(), net.unit]
    for k in range(net.members):
        arrays += [part for w, b in zip(net.weights, net.biases, strict=True) for part in (w[k].ravel(), b[k])]
    numbers = [*head, *where, *np.concatenate(arrays)]
    return [float(len(numbers) + 1), *(float(x) for x in numbers)]
