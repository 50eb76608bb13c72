"""Faults of the wiring and configuration between a robot and whoever uses it, as functions of vectors.

`WiringFaults` turns what the robot senses into what it sends, and what it is sent into what it does. Swapped and flipped motors
change every joint signal and the target alike, as wrong motor ids do.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.geometry import rotate, rotate_inverse
from isthmus.data.contract import Contract, Signal
from isthmus.sim.physics.component import Attached
from isthmus.sim.reality.tables import Faults


class WiringFaults:
    """Resolves names once. Both functions are linear but for frames, which turn with the body."""

    def __init__(self, faults: Faults, contract: Contract):
        slices = contract.slices()
        self._width = contract.width
        columns = [np.arange(s.size) for s in contract.signals]
        factors = [np.ones(s.size) for s in contract.signals]
        target = np.arange(contract.target.size)
        self._target_factor = np.ones(contract.target.size)
        _check_labels(faults, contract)
        for i, signal in enumerate((*contract.signals, contract.target)):
            order, sign = _order_and_sign(signal, faults)
            if signal is contract.target:
                target, self._target_factor = order, sign
            else:
                columns[i], factors[i] = order, sign
        for name, unit in faults.units.items():
            if name == contract.target.name:
                self._target_factor = self._target_factor * _unit_factor(unit, contract.target.unit, f"units of {name}")
            else:
                i = [s.name for s in contract.signals].index(contract[name].name)
                factors[i] = factors[i] * _unit_factor(contract[name].unit, unit, f"units of {name}")
        if faults.quaternion == "xyzw":
            if not contract.has("quat"):
                raise BadInput(f"an order of the quaternion makes no sense for {contract.robot}, which sends none.")
            i = [s.name for s in contract.signals].index("quat")
            columns[i] = columns[i][[1, 2, 3, 0]]
        self._columns = np.concatenate([slices[s.name].start + c for s, c in zip(contract.signals, columns, strict=True)])
        self._factors = np.concatenate(factors)
        self._target_columns = target
        self._frames = _frame_rotations(faults.frames, contract)
        self._quat = slices.get("quat")
        plain = np.array_equal(self._columns, np.arange(self._width)) and (self._factors == 1).all()
        self._signals_unchanged = bool(plain and not self._frames)
        self._target_unchanged = np.array_equal(target, np.arange(len(target))) and bool((self._target_factor == 1).all())

    def signals(self, sensed: np.ndarray) -> np.ndarray:
        """What the robot sends, (n, width), of what it senses."""
        if self._signals_unchanged:
            return sensed
        if self._frames:
            assert self._quat is not None
            sensed, quat = sensed.copy(), sensed[:, self._quat]
            for where, turn in self._frames:
                sensed[:, where] = turn(quat, sensed[:, where])
        return sensed[:, self._columns] * self._factors

    def target(self, target: np.ndarray) -> np.ndarray:
        """What the motors are told, (n, m), of what was sent."""
        return target if self._target_unchanged else target[..., self._target_columns] * self._target_factor


def _check_labels(faults: Faults, contract: Contract) -> None:
    """Motors are known by the target's labels; encoders of joints without a motor by those of their signals."""
    joints = [s for s in contract.signals if set(s.labels) & set(contract.target.labels) or not s.frame]
    known = {label for s in (*joints, contract.target) for label in s.labels}
    for label in (*faults.flip, *(x for pair in faults.swap for x in pair)):
        if label not in known:
            raise unknown_name("joint", label, known, f"[faults] of {contract.robot}")
    for a, b in faults.swap:
        if not any({a, b} <= set(s.labels) for s in (*joints, contract.target)):
            raise BadInput(f"{a!r} and {b!r} cannot be swapped: no signal or target of {contract.robot} has both.")


def _order_and_sign(signal: Signal, faults: Faults) -> tuple[np.ndarray, np.ndarray]:
    """For each component, which one is really behind it, and with which sign."""
    order, sign = np.arange(signal.size), np.ones(signal.size)
    if signal.frame:
        return order, sign
    for label in faults.flip:
        if label in signal.labels:
            sign[signal.component_index(label)] = -1.0
    for a, b in faults.swap:
        if {a, b} <= set(signal.labels):
            i, j = signal.component_index(a), signal.component_index(b)
            order[[i, j]] = order[[j, i]]
    return order, sign[order]


def _unit_factor(from_unit: str, to_unit: str, where: str) -> float:
    from isthmus.core.units import conversion_factor

    return float(conversion_factor(from_unit, to_unit, where))


def _frame_rotations(frames: Mapping[str, str], contract: Contract) -> list:
    """Columns of the vectors that come in another frame than the contract says, each with its turn."""
    found = []
    for name, frame in frames.items():
        signal = contract[name]
        if not (signal.frame and signal.size == 3 and contract.has("quat")):
            raise BadInput(f"frames: {name!r} of {contract.robot} is not a vector that a frame could change.")
        if frame != signal.frame:
            found.append((contract.slices()[name], rotate if frame == "world" else rotate_inverse))
    return found


class AttachedWiring(Attached):
    """Wiring faults between a simulation and whoever uses it."""

    def __init__(self, faults: WiringFaults):
        self.faults = faults

    def target(self, target: np.ndarray) -> np.ndarray:
        return self.faults.target(target)

    def signals(self, values: np.ndarray, elapsed: float, rng: np.random.Generator) -> np.ndarray:
        del elapsed, rng
        return self.faults.signals(values)
