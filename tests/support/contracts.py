"""Contracts of robots, and signals of a robot that stands, is tilted, or names its parts in another order."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from isthmus.data.contract import Contract, Safety, Signal, vector_signal
from isthmus.robots import ROBOTS

GRAVITY = 9.81


def arm() -> Contract:
    """A robot that nobody has built: 200 Hz, motors in another order than the encoders, a battery, x before w."""
    return Contract(
        robot="arm",
        rate=200.0,
        signals=(
            Signal("battery", "V", ("v",), low=(20.0,), high=(30.0,)),
            Signal("quat", "1", ("x", "y", "z", "w"), "world"),
            Signal("joint_vel", "rad/s", ("elbow", "wrist", "shoulder"), low=(-4.0, -6.0, -2.0), high=(4.0, 6.0, 2.0)),
            Signal("joint_pos", "rad", ("wrist", "shoulder", "elbow"), low=(-1.0, -2.0, -1.5), high=(1.0, 2.0, 1.5)),
            vector_signal("gyro", "rad/s", "body", 20.0),
            Signal("accel", "m/s²", ("z", "x", "y"), "body", (-90.0,) * 3, (90.0,) * 3),
        ),
        target=Signal("joint_target", "rad", ("shoulder", "elbow"), low=(-2.0, -1.5), high=(2.0, 1.5)),
        gains={"kp": (40.0, 20.0), "kd": (2.0, 0.5)},
        safety=Safety(effort=(30.0, 12.0), tilt=0.5, rest=(0.4, -0.6), damping=(2.0, 1.0)),
    )


def contracts() -> dict[str, tuple[Contract, np.ndarray]]:
    """Contract and default target: position drives, an effort drive without limits of position, one with, and a flyer."""
    shipped = {name: make() for name, make in ROBOTS.items()}
    return {name: (r.contract, np.array(r.default)) for name, r in shipped.items()} | {"arm": (arm(), np.array([0.1, -0.2]))}


def still(contract: Contract, pose: np.ndarray | None = None) -> np.ndarray:
    """Signals of a robot that stands upright and at rest, its joints in that pose, (width,)."""
    values, at = np.zeros(contract.width), contract.slices()
    for s in contract.signals:
        if s.low and s.high:
            values[at[s.name]] = (np.array(s.low) + np.array(s.high)) / 2
    put(contract, values, "quat", w=1.0, x=0.0, y=0.0, z=0.0)
    put(contract, values, "accel", x=0.0, y=0.0, z=GRAVITY)
    if pose is not None and contract.has_joint_targets:
        put(contract, values, "joint_pos", **dict(zip(contract.target.labels, pose, strict=True)))
    return values


def put(contract: Contract, values: np.ndarray, name: str, **components: float) -> np.ndarray:
    """Set components of a signal by their labels, in place; a signal that the robot lacks is left out."""
    if contract.has(name):
        start = contract.slices()[name].start
        for label, x in components.items():
            values[start + contract[name].component_index(label)] = x
    return values


def tilted(contract: Contract, values: np.ndarray, angle: float) -> np.ndarray:
    """The same body, pitched by `angle`, with an accelerometer that shows it."""
    out = put(contract, values.copy(), "quat", w=math.cos(angle / 2), x=0.0, y=math.sin(angle / 2), z=0.0)
    return put(contract, out, "accel", x=-GRAVITY * math.sin(angle), y=0.0, z=GRAVITY * math.cos(angle))


def reordered(contract: Contract, seed: int = 0) -> Contract:
    """The same robot with its signals, their components and its motors in another order."""
    rng = np.random.default_rng(seed)

    def shuffled(s: Signal) -> tuple[Signal, np.ndarray]:
        order = rng.permutation(s.size)
        pick = lambda row: tuple(row[i] for i in order) if row else ()
        return replace(s, labels=pick(s.labels), low=pick(s.low), high=pick(s.high)), order

    signals = tuple(shuffled(s)[0] for s in contract.signals)
    target, order = shuffled(contract.target)
    pick = lambda row: tuple(row[i] for i in order) if row else ()
    safety = contract.safety
    safety = replace(safety, effort=pick(safety.effort), rest=pick(safety.rest), damping=pick(safety.damping))
    where = rng.permutation(len(signals))
    gains = {k: pick(v) for k, v in contract.gains.items()}
    return replace(contract, signals=tuple(signals[i] for i in where), target=target, gains=gains, safety=safety)
