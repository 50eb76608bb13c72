"""The limits of a robot's contract as arrays: which signals break them, and the nearest target that does not."""

from __future__ import annotations

import math

import numpy as np

from isthmus.data.contract import Contract
from isthmus.deploy.rules import Thresholds

AHEAD = 0.5


class Limits:
    """The contract's limits as arrays, resolved once."""

    def __init__(self, contract: Contract, thresholds: Thresholds):
        target, safety, at, m = contract.target, contract.safety, contract.slices(), contract.target.size
        self.labels = [f"{s.name} of {label}" for s in contract.signals for label in s.labels]
        low, high, self._rules = [], [], []
        for s in contract.signals:
            more = thresholds.position if s.name == "joint_pos" else 0.0
            factor = 1.0 if s.name == "joint_pos" else thresholds.excess
            low += [factor * x - more for x in s.low] or [-np.inf] * s.size
            high += [factor * x + more for x in s.high] or [np.inf] * s.size
            self._rules += [{"joint_pos": "position", "joint_vel": "speed"}.get(s.name, "range")] * s.size
        self._low, self._high = np.array(low), np.array(high)
        self._upright = math.cos(safety.tilt) if safety.tilt and contract.has("quat") else -2.0
        self._quat = at["quat"] if contract.has("quat") else slice(0, 0)

        columns = lambda name: np.array([at[name].start + contract[name].component(x) for x in target.labels])  # noqa: E731
        self._q = columns("joint_pos") if contract.joints else None
        low, high = np.array(target.low or [-np.inf] * m), np.array(target.high or [np.inf] * m)
        self.clips = [("limit", "the target is outside its limits", lambda u, last, y: between(u, low, high))]
        """Rule, what to say, and the nearest good target to (wanted, last, signals)."""
        self.ahead = np.zeros(m)
        """How far from the pose a first target may be: for the share AHEAD of the joint's torque."""
        speeds = contract.joints and contract.has("joint_vel") and set(target.labels) <= set(contract["joint_vel"].labels)
        if speeds and contract["joint_vel"].high:
            most = np.array(contract["joint_vel"].high)[columns("joint_vel") - at["joint_vel"].start] / contract.rate
            jump = "the target jumps further than the joint can go in a tick"
            self.clips.append(("jump", jump, lambda u, last, y: between(u, last - most, last + most)))
        kp, kd = (np.array(contract.gains.get(g, ())) for g in ("kp", "kd"))
        if speeds and len(kp) and len(kd) and safety.effort and (kp > 0).all():
            q, qd, reach = self._q, columns("joint_vel"), np.array(safety.effort) / kp

            def weak(u: np.ndarray, last: np.ndarray, y: np.ndarray) -> np.ndarray:
                """kp (u - q) - kd q̇ inside ± effort, solved for u, and not outside the limits for it."""
                middle = y[q] + kd * y[qd] / kp
                return between(between(u, middle - reach, middle + reach), low, high)

            self.ahead = AHEAD * reach
            self.clips.append(("torque", "the target asks for too much torque", weak))

    def pose(self, values: np.ndarray) -> np.ndarray | None:
        """Positions of the joints behind the targets, in their order; None where targets are no poses."""
        return None if self._q is None else values[self._q]

    def broken(self, values: np.ndarray) -> dict[str, str]:
        """Rules that these signals break, and how."""
        found = {}
        out = (values < self._low) | (values > self._high)
        if out.any():
            for i in np.nonzero(out)[0]:
                found.setdefault(self._rules[i], f"{self.labels[i]} is {values[i]:.3g}")
        if self._upright > -2.0:
            w, x, y, z = values[self._quat].tolist()
            norm = w * w + x * x + y * y + z * z
            upright = 1.0 - 2.0 * (x * x + y * y) / norm if norm > 0.25 else -1.0
            if upright < self._upright:
                found["tilt"] = f"the body is tilted by {math.degrees(math.acos(max(-1.0, upright))):.0f} degrees"
        return found


def between(u: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.minimum(np.maximum(u, low), high)
