"""The limits of a robot's contract as arrays: which signals break them, and the nearest target that does not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from isthmus.data.contract import NO_LIMIT, Contract
from isthmus.deploy.rules import Thresholds

AHEAD = 0.5
Range = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Lowest and highest target, given the last one and the signals."""


class Limits:
    """The contract's limits as arrays, resolved once."""

    def __init__(self, contract: Contract, thresholds: Thresholds):
        self._labels, self._at = contract.target.labels, contract.slices()
        self._watch_signals(contract, thresholds)
        self._q = self._columns(contract, "joint_pos", contract.target.labels) if contract.joints else None
        self._span = np.full(contract.target.size, np.inf)
        """Range of each joint, rad or m."""
        if self._q is not None and contract["joint_pos"].low and contract["joint_pos"].high:
            s = contract["joint_pos"]
            self._span = (np.array(s.high) - np.array(s.low))[self._q - self._at["joint_pos"].start]
        self.ahead = np.zeros(contract.target.size)
        """How far from the pose a first target may be: for the share AHEAD of the joint's torque."""
        self._ranges: list[tuple[str, str, Range]] = []
        """Rule, what to say, and the range that it allows."""
        self._bound_targets(contract)

    def _columns(self, contract: Contract, name: str, labels: tuple[str, ...]) -> np.ndarray:
        return np.array([self._at[name].start + contract[name].component(x) for x in labels])

    def _watch_signals(self, contract: Contract, thresholds: Thresholds) -> None:
        self._names = contract.names
        low, high, self._rules = [], [], []
        for s in contract.signals:
            least, most = np.array(s.low or [-np.inf] * s.size), np.array(s.high or [np.inf] * s.size)
            if s.name == "joint_pos":
                slack = np.minimum(thresholds.position, 0.1 * (most - least)) * np.ones((2, 1))
            else:
                slack = (thresholds.excess - 1.0) * np.abs([least, most])
            low += (least - slack[0]).tolist()
            high += (most + slack[1]).tolist()
            self._rules += [{"joint_pos": "position", "joint_vel": "speed"}.get(s.name, "range")] * s.size
        self._low, self._high = np.array(low), np.array(high)
        tilt = contract.safety.tilt
        self._upright = math.cos(tilt) if tilt and contract.has("quat") else -2.0
        self._quat = self._columns(contract, "quat", ("w", "x", "y", "z")) if self._upright > -2.0 else np.zeros(0, int)

    def _bound_targets(self, contract: Contract) -> None:
        target, safety, m = contract.target, contract.safety, contract.target.size
        self._least, self._most = np.array(target.low or [-np.inf] * m), np.array(target.high or [np.inf] * m)
        self._ranges.append(("limit", "the target is outside its limits", lambda last, y: (self._least, self._most)))
        if not (contract.joints and contract.has("joint_vel") and set(target.labels) <= set(contract["joint_vel"].labels)):
            return
        q, qd = self._q, self._columns(contract, "joint_vel", target.labels)
        if contract["joint_vel"].high:
            step = np.array(contract["joint_vel"].high)[qd - self._at["joint_vel"].start] / contract.rate
            text = "the target jumps further than the joint can go in a tick"
            self._ranges.append(("jump", text, lambda last, y: (last - step, last + step)))
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
            self.ahead = np.where(known, AHEAD * reach, 0.0)
            self._ranges.append(("torque", "the target asks for too much torque", strong))

    def nearest(self, wanted: np.ndarray, last: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, dict[str, str]]:
        """The nearest target within limits, jump and predicted torque, and which of them changed it and how."""
        out, said = wanted, {}
        for rule, what, allowed in self._ranges:
            low, high = allowed(last, values)
            if np.count_nonzero((out < low) | (out > high)):
                before, out = out, between(out, low, high)
                i = int(np.abs(before - out).argmax())
                said[rule] = f"{what}: {self._labels[i]} clipped from {before[i]:.3g} to {out[i]:.3g}"
        # The limits come last as well: a joint that was pushed beyond them must not be told to stay there.
        return (between(out, self._least, self._most), said) if said else (out, said)

    def share(self, most: float) -> np.ndarray:
        """`most` rad or m for each joint, but for one with a short way at most a quarter of it per 0.4."""
        return np.minimum(most, most / 1.6 * self._span)

    def pose(self, values: np.ndarray) -> np.ndarray | None:
        """Positions of the joints behind the targets, in their order; None where targets are no poses."""
        return None if self._q is None else values[self._q]

    def broken(self, values: np.ndarray) -> dict[str, str]:
        """Rules that these signals break, and how."""
        found = {}
        out = (values < self._low) | (values > self._high)
        if np.count_nonzero(out):
            for i in np.nonzero(out)[0]:
                found.setdefault(self._rules[i], f"{self._names[i]} is {values[i]:.3g}")
        if self._upright > -2.0:
            w, x, y, z = values[self._quat].tolist()
            norm = w * w + x * x + y * y + z * z
            upright = 1.0 - 2.0 * (x * x + y * y) / norm if norm > 0.25 else -1.0
            if upright < self._upright:
                found["tilt"] = f"the body is tilted by {math.degrees(math.acos(max(-1.0, upright))):.0f} degrees"
        return found


def between(u: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.minimum(np.maximum(u, low), high)


def finite(values: np.ndarray) -> bool:
    """Whether all are numbers, none of them absurd; the square of anything else is not a number or infinite."""
    return float(values @ values) < math.inf
