"""Learned forces of a robot: as a table for motor_law.c, and as the same law in NumPy where the engine does not run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mujoco
import numpy as np

from isthmus.core.errors import BadInput
from isthmus.sim.indexing import driven_joint_columns
from isthmus.sim.physics.component import Attached
from isthmus.sim.physics.force_features import (
    BodyForceFeatures,
    MotorForceFeatures,
    body_force_features,
    motor_error_and_speed,
    motor_force_features,
)
from isthmus.sim.physics.learned_force import MAX_FEATURES, TRUST_FADE_RATIO, Ensemble
from isthmus.sim.robot import Robot

if TYPE_CHECKING:
    from isthmus.sim.simulation import Simulation


class LearnedForces:
    """All learned forces of a robot, resolved in a model, in the order in which they act."""

    def __init__(self, robot: Robot, model: mujoco.MjModel, dt: float):
        self.features: list[BodyForceFeatures | MotorForceFeatures] = []
        self.ensembles = [learned.net for learned in robot.unit.learned_forces]
        for learned in robot.unit.learned_forces:
            if learned.kind == "motor" and driven_joint_columns(robot, model) is None:
                raise BadInput(f"a learned force of motors makes no sense for {robot.name}, whose motors do not drive joints.")
            reader = (
                motor_force_features(robot, learned, dt)
                if learned.kind == "motor"
                else body_force_features(robot, model, learned.names)
            )
            features = len(reader.labels) if isinstance(reader, BodyForceFeatures) else 2 * len(reader.lag_steps)
            outputs = len(reader.dofs) if isinstance(reader, BodyForceFeatures) else 1
            sizes = learned.net.layer_sizes
            if (sizes[0], sizes[-1]) != (features, outputs) or outputs > MAX_FEATURES:
                raise BadInput(
                    f"a learned force of {robot.name} has {sizes[0]} features and {sizes[-1]} outputs, "
                    f"but the robot has {features} and {outputs}."
                )
            self.features.append(reader)
        self.history_steps = max((max(r.lag_steps) + 1 for r in self.features if isinstance(r, MotorForceFeatures)), default=0)
        """Physics steps of errors and speeds to keep."""

    def __bool__(self) -> bool:
        return bool(self.features)

    def native_table(self) -> list[float]:
        """See forces.h."""
        if not self.features:
            return []
        return [
            float(len(self.features)),
            *(x for r, net in zip(self.features, self.ensembles, strict=True) for x in _native_table_entry(r, net)),
        ]

    def add(
        self,
        out: np.ndarray,
        qpos: np.ndarray,
        qvel: np.ndarray,
        ctrl: np.ndarray,
        memory: np.ndarray,
        newest_slot,
        dof_columns,
    ) -> None:
        """Add to generalised forces `out`, (n, nv); `memory`, (n, past, 2, m), has its newest in slots `now`, (n,)."""
        for reader, net in zip(self.features, self.ensembles, strict=True):
            if isinstance(reader, BodyForceFeatures):
                force = np.zeros_like(out)
                reader.to_generalized_force(net(reader.read(qpos, qvel, ctrl)), qpos, force)
                out += force
                continue
            x = reader.read(memory, newest_slot)
            found = net(x.reshape(-1, x.shape[-1])).reshape(x.shape[:2])
            columns = np.arange(out.shape[1])[dof_columns][list(reader.motors)]
            out[:, columns] += found


class AppliedForces(Attached):
    """Learned forces at work in the worlds of a simulation, with the motors' recent past that they read."""

    def __init__(self, sim: Simulation):
        self._sim, self.law = sim, sim.learned_forces
        self.every = 1 if self.law and not sim.runs_motor_law else 0

    def start(self, ids: np.ndarray, sent: np.ndarray) -> None:
        del sent
        self._sim.userdata["memory"][ids] = self._memory_entry(ids)[:, None]

    def _memory_entry(self, ids: np.ndarray) -> np.ndarray:
        """Error (or torque asked) and speed of the motors now, (k, 2, m)."""
        sim = self._sim
        if sim.driven_joints is None or not self.law.history_steps:
            return np.zeros((len(ids), 2, sim.layout.motor_count))
        q, qd = sim.qpos[ids][:, sim.driven_joints[0]], sim.qvel[ids][:, sim.driven_joints[1]]
        return motor_error_and_speed(sim.motor_law.drive, sim.userdata["targets"][ids][:, 0], q, qd)

    def before_step(self, substep: int) -> None:
        """Write the forces, on top of those of `Simulation.apply_force`."""
        sim = self._sim
        memory, slot = sim.userdata["memory"], np.zeros(sim.n, dtype=int)
        if self.law.history_steps and sim.driven_joints is not None:
            q, qd = sim.qpos[:, sim.driven_joints[0]], sim.qvel[:, sim.driven_joints[1]]
            slot = np.rint(sim.time / sim.dt).astype(int) % self.law.history_steps
            u = sim.motors.target_in_force(substep)
            memory[sim.all_ids, slot] = motor_error_and_speed(sim.motor_law.drive, u, q, qd)
        sim.qfrc_applied[:] = sim.userdata["force"]
        columns = slice(None) if sim.driven_joints is None else sim.driven_joints[1]
        self.law.add(sim.qfrc_applied, sim.qpos, sim.qvel, sim.ctrl, memory, slot, columns)


def _native_table_entry(reader: BodyForceFeatures | MotorForceFeatures, net: Ensemble) -> list[float]:
    if isinstance(reader, BodyForceFeatures):
        where = [len(reader.feature_rows), *(x for row in reader.feature_rows for x in row), len(reader.output_joints)]
        where += [x for force in reader.output_joints for x in force]
    else:
        where = [len(reader.motors), *reader.motors, len(reader.lag_steps), *reader.lag_steps]
    kind = 0 if isinstance(reader, BodyForceFeatures) else 1
    head = [
        kind,
        net.layer_sizes[0],
        net.layer_sizes[-1],
        net.members,
        len(net.weights),
        net.reach,
        net.doubt,
        TRUST_FADE_RATIO,
        *net.layer_sizes[1:],
    ]
    arrays = [net.mean, 1.0 / net.scale, net.root.ravel(), net.unit]
    for k in range(net.members):
        arrays += [part for w, b in zip(net.weights, net.biases, strict=True) for part in (w[k].ravel(), b[k])]
    numbers = [*head, *where, *np.concatenate(arrays)]
    return [float(len(numbers) + 1), *(float(x) for x in numbers)]
