"""Errors of the sensors: mounting, scale, bias, drift and noise, on all signals of a contract side by side, (n, width).

seen = scale · mounted(true) + bias + walk + noise        walk: d walk = drift dW
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.geometry import from_rotation_vector
from isthmus.sim.physics.component import Attached
from isthmus.sim.reality.tables import Sensors, Values
from isthmus.sim.robot import Robot

IMU_SIGNALS = ("quat", "gyro", "accel")


class SensorErrors(Attached):
    """Resolves names once; then `add` is arithmetic."""

    def __init__(self, sensors: Sensors, robot: Robot, n: int):
        self.scale = _signal_row(robot, sensors.scale, 1.0, "scale")
        self.bias = _signal_row(robot, sensors.bias, 0.0, "bias") + _encoder_row(robot, sensors.encoder_offset)
        self.drift = _signal_row(robot, sensors.drift, 0.0, "drift")
        self.noise = _signal_row(robot, sensors.noise, 0.0, "noise")
        self.mounting = _mounting(robot, sensors.imu_tilt)
        self.bias_walk = np.zeros((n, robot.contract.width))
        """Where the drift has come to."""
        self._nonzero = {
            name: bool(row.any()) for name, row in (("bias", self.bias), ("drift", self.drift), ("noise", self.noise))
        }

    def reset(self, ids: np.ndarray) -> None:
        self.bias_walk[ids] = 0.0

    def add(self, true_signals: np.ndarray, elapsed: float, rng: np.random.Generator) -> np.ndarray:
        """The signals, (n, width), `elapsed` seconds after the last ones."""
        seen = true_signals.copy()
        for where, matrix in self.mounting:
            seen[:, where] = seen[:, where] @ matrix.T
        seen *= self.scale
        if self._nonzero["bias"]:
            seen += self.bias
        if self._nonzero["drift"]:
            self.bias_walk += self.drift * np.sqrt(elapsed) * rng.standard_normal(self.bias_walk.shape)
            seen += self.bias_walk
        if self._nonzero["noise"]:
            seen += self.noise * rng.standard_normal(seen.shape)
        return seen

    def signals(self, values: np.ndarray, elapsed: float, rng: np.random.Generator) -> np.ndarray:
        return self.add(values.astype(np.float64), elapsed, rng)

    def state(self) -> dict[str, np.ndarray]:
        return {"walk": self.bias_walk.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.bias_walk[:] = state["walk"]


def _mounting(robot: Robot, tilt: tuple[float, float]) -> list[tuple[slice, np.ndarray]]:
    """Matrices on quat, gyro and accel of a sensor that is turned by `tilt` against the body.

    It reports its own orientation q ⊗ t, and vectors in its own frame, Rᵀ v.
    """
    if not any(tilt):
        return []
    w, x, y, z = t = from_rotation_vector(np.array([*tilt, 0.0]))
    product = np.array([[w, -x, -y, -z], [x, w, z, -y], [y, -z, w, x], [z, y, -x, w]])
    turn = np.eye(3) + 2 * w * _skew(t[1:]) + 2 * _skew(t[1:]) @ _skew(t[1:])
    slices = robot.contract.slices()
    found = [(slices[name], product if name == "quat" else turn.T) for name in IMU_SIGNALS if name in slices]
    if not found:
        raise BadInput(f"imu_tilt needs an inertial sensor, and {robot.name} has none of {', '.join(IMU_SIGNALS)}.")
    return found


def _skew(v: np.ndarray) -> np.ndarray:
    return np.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])


def _signal_row(robot: Robot, table: Mapping[str, Values], default: float, kind: str) -> np.ndarray:
    """Values of some signals as a row over all of them, (width,)."""
    row, slices = np.full(robot.contract.width, default), robot.contract.slices()
    for name, values in table.items():
        signal, where = robot.contract[name], f"{name}_{kind}"
        if isinstance(values, Mapping):
            for label, value in values.items():
                row[slices[name].start + signal.component_index(label)] = value
        else:
            if isinstance(values, tuple) and len(values) != signal.size:
                raise BadInput(f"{where} needs {signal.size} numbers ({', '.join(signal.labels)}), not {len(values)}.")
            row[slices[name]] = values
    return row


def _encoder_row(robot: Robot, offsets: Mapping[str, float]) -> np.ndarray:
    row, slices = np.zeros(robot.contract.width), robot.contract.slices()
    encoders = {
        label: slices[signal.name].start + k
        for signal in robot.contract.signals
        if robot.sources[signal.name] == "qpos"
        for k, label in enumerate(signal.labels)
    }
    for joint, offset in offsets.items():
        if joint not in encoders:
            raise unknown_name("encoder", joint, encoders, f"encoder_offset of {robot.name}")
        row[encoders[joint]] = offset
    return row
