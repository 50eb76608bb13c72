"""The limits of a robot's contract as arrays: which signals break them, and the nearest target that does not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from isthmus.data.contract import NO_LIMIT, Contract
from isthmus.deploy.guard.rules import Thresholds

START_TORQUE_FRACTION = 0.5
TargetRange = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Lowest and highest target, given the last one and the signals."""


class SafetyLimits:
    """The contract's limits as arrays, resolved once."""

    def __init__(self, contract: Contract, thresholds: Thresholds):
        self._target_labels, self._signal_slices = contract.target.labels, contract.slices()
        self._init_signal_limits(contract, thresholds)
        self._joint_columns = (
            self._columns(contract, "joint_pos", contract.target.labels) if contract.has_joint_targets else None
        )
        self._joint_ranges = np.full(contract.target.size, np.inf)
        """Range of each joint, rad or m."""
        if self._joint_columns is not None and contract["joint_pos"].low and contract["joint_pos"].high:
            s = contract["joint_pos"]
            self._joint_ranges = (np.array(s.high) - np.array(s.low))[
                self._joint_columns - self._signal_slices["joint_pos"].start
            ]
        self.max_start_offset = np.zeros(contract.target.size)
        """How far from the pose a first target may be: for the share AHEAD of the joint's torque."""
        self._target_ranges: list[tuple[str, str, TargetRange]] = []
        """Rule, what to say, and the range that it allows."""
        self._init_target_limits(contract)

    def _columns(self, contract: Contract, name: str, labels: tuple[str, ...]) -> np.ndarray:
        return np.array([self._signal_slices[name].start + contract[name].component_index(x) for x in labels])

    def _init_signal_limits(self, contract: Contract, thresholds: Thresholds) -> None:
        self._component_names = contract.component_names
        low, high, self._component_rules = [], [], []
        for s in contract.signals:
            least, most = np.array(s.low or [-np.inf] * s.size), np.array(s.high or [np.inf] * s.size)
            if s.name == "joint_pos":
                slack = np.minimum(thresholds.position_margin, 0.1 * (most - least)) * np.ones((2, 1))
            else:
                slack = (thresholds.limit_factor - 1.0) * np.abs([least, most])
            low += (least - slack[0]).tolist()
            high += (most + slack[1]).tolist()
            self._component_rules += [{"joint_pos": "position", "joint_vel": "speed"}.get(s.name, "range")] * s.size
        self._low, self._high = np.array(low), np.array(high)
        tilt = contract.safety.tilt
        self._min_upright_cosine = math.cos(tilt) if tilt and contract.has("quat") else -2.0
        self._quat = (
            self._columns(contract, "quat", ("w", "x", "y", "z")) if self._min_upright_cosine > -2.0 else np.zeros(0, int)
        )

    def _init_target_limits(self, contract: Contract) -> None:
        target, safety, m = contract.target, contract.safety, contract.target.size
        self._target_low, self._target_high = np.array(target.low or [-np.inf] * m), np.array(target.high or [np.inf] * m)
        self._target_ranges.append(
            ("limit", "the target is outside its limits", lambda last, y: (self._target_low, self._target_high))
        )
        if not (
            contract.has_joint_targets and contract.has("joint_vel") and set(target.labels) <= set(contract["joint_vel"].labels)
        ):
            return
        q, qd = self._joint_columns, self._columns(contract, "joint_vel", target.labels)
        if contract["joint_vel"].high:
            step = np.array(contract["joint_vel"].high)[qd - self._signal_slices["joint_vel"].start] / contract.rate
            text = "the target jumps further than the joint can go in a tick"
            self._target_ranges.append(("jump", text, lambda last, y: (last - step, last + step)))
        kp, kd = (np.array(contract.gains.get(g, ())) for g in ("kp", "kd"))
        if len(kp) and len(kd) and safety.effort and (kp > 0).any():
            # A joint without stiffness can be told any position.
            springs = np.where(kp > 0, kp, np.inf)
            reach, lead = np.where(kp > 0, np.array(safety.effort) / springs, np.inf), kd / springs

            def strong(last: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
                """kp (u - q) - kd q̇ inside ± effort, solved for u."""
                middle = y[q] + lead * y[qd]
                return middle - reach, middle + reach

            known = (kp > 0) & (np.array(safety.effort) < NO_LIMIT)
            self.max_start_offset = np.where(known, START_TORQUE_FRACTION * reach, 0.0)
            self._target_ranges.append(("torque", "the target asks for too much torque", strong))

    def nearest_safe_target(
        self, policy_target: np.ndarray, last: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, dict[str, str]]:
        """The nearest target within limits, jump and predicted torque, and which of them changed it and how."""
        out, said = policy_target, {}
        for rule, what, allowed in self._target_ranges:
            low, high = allowed(last, values)
            if np.count_nonzero((out < low) | (out > high)):
                before, out = out, clamp(out, low, high)
                i = int(np.abs(before - out).argmax())
                said[rule] = f"{what}: {self._target_labels[i]} clipped from {before[i]:.3g} to {out[i]:.3g}"
        # The limits come last as well: a joint that was pushed beyond them must not be told to stay there.
        return (clamp(out, self._target_low, self._target_high), said) if said else (out, said)

    def joint_tolerance(self, tolerance: float) -> np.ndarray:
        """`most` rad or m for each joint, but for one with a short way at most a quarter of it per 0.4."""
        return np.minimum(tolerance, tolerance / 1.6 * self._joint_ranges)

    def pose(self, values: np.ndarray) -> np.ndarray | None:
        """Positions of the joints behind the targets, in their order; None where targets are no poses."""
        return None if self._joint_columns is None else values[self._joint_columns]

    def violated_rules(self, values: np.ndarray) -> dict[str, str]:
        """Rules that these signals break, and how."""
        found = {}
        out = (values < self._low) | (values > self._high)
        if np.count_nonzero(out):
            for i in np.nonzero(out)[0]:
                found.setdefault(self._component_rules[i], f"{self._component_names[i]} is {values[i]:.3g}")
        if self._min_upright_cosine > -2.0:
            w, x, y, z = values[self._quat].tolist()
            norm = w * w + x * x + y * y + z * z
            upright = 1.0 - 2.0 * (x * x + y * y) / norm if norm > 0.25 else -1.0
            if upright < self._min_upright_cosine:
                found["tilt"] = f"the body is tilted by {math.degrees(math.acos(max(-1.0, upright))):.0f} degrees"
        return found


def clamp(u: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.minimum(np.maximum(u, low), high)


def all_finite(values: np.ndarray) -> bool:
    """Whether all are numbers, none of them absurd; the square of anything else is not a number or infinite."""
    return float(values @ values) < math.inf
