"""The equations of the physics that training does not have, one function each. Arrays are (n, …): n worlds."""

from __future__ import annotations

import numpy as np

from isthmus.core.geometry import z_axis
from isthmus.sim.reality.tables import BatterySag, Cable, Stribeck

MIN_TORQUE_FRACTION = 0.1
"""Part of its torque that even a hot motor keeps."""
CABLE_TAUT_DISTANCE = 0.05
"""m over which a cable goes from slack to its full pull."""
MIN_GROUND_EFFECT_HEIGHT = 0.5
"""Rotor radii: the ground effect of a rotor closer to the ground than this is that at this height."""


def stribeck_friction(qd: np.ndarray, law: Stribeck) -> np.ndarray:
    """Friction at speed qd: coulomb + (static - coulomb) exp(-(q̇ / v)²)."""
    return law.coulomb + (law.static - law.coulomb) * np.exp(-((qd / law.velocity) ** 2))


def battery_voltage_fraction(seconds: np.ndarray, law: BatterySag) -> np.ndarray:
    """What is left of the voltage after `used` seconds: falls evenly, then stays."""
    return 1.0 - law.loss * np.minimum(seconds / law.seconds, 1.0)


def full_load_minutes(tau: np.ndarray, full_torque: np.ndarray, dt: float) -> np.ndarray:
    """Minutes at full load that dt seconds at torque tau are worth: losses go with the square of the torque."""
    return (tau / full_torque) ** 2 * (dt / 60.0)


def thermal_torque_fraction(heat: np.ndarray, loss: float) -> np.ndarray:
    """Part of its torque that a motor gives after `heat` minutes at full load."""
    return np.maximum(1.0 - loss * heat, MIN_TORQUE_FRACTION)


def cable_force(displacement: np.ndarray, law: Cable) -> np.ndarray:
    """Force on a body that is `away`, (n, 3), from where its cable is fixed."""
    distance = np.sqrt((displacement**2).sum(1, keepdims=True))
    taut = np.clip((distance - law.slack) / CABLE_TAUT_DISTANCE, 0.0, 1.0)
    return -law.force * taut * displacement / np.maximum(distance, 1e-9)


def rotor_drag(v: np.ndarray, quat: np.ndarray, thrust: np.ndarray, hover: np.ndarray, coefficient: float) -> np.ndarray:
    """Force against the part of v, (n, 3), in the plane of the rotors: -c · mean √(thrust / hover) · (v - (v·z) z)."""
    power = np.sqrt(np.maximum(thrust, 0.0) / hover).mean(1, keepdims=True)
    z = z_axis(quat)
    return -coefficient * power * (v - (v * z).sum(1, keepdims=True) * z)


def ground_effect(height: np.ndarray, radius: float) -> np.ndarray:
    """Thrust against that far from the ground, at a height above it: 1 / (1 - (r / 4z)²) (Cheeseman and Bennett)."""
    z = np.maximum(height, MIN_GROUND_EFFECT_HEIGHT * radius)
    return 1.0 / (1.0 - (radius / (4.0 * z)) ** 2)
