"""Short windows of signals and targets as points of one space.

Where a robot is and which way it heads does not matter to physics, so it is left out: places count from the first tick of a
window, an attitude is the way down in the body's frame, and an angle that can turn for ever is its sine and cosine.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from isthmus.core.geometry import rotate_inverse
from isthmus.sim.indexing import signal_sources
from isthmus.sim.robot import Robot

WINDOW_SECONDS, SAMPLES_PER_WINDOW = 0.2, 6
"""Length of a window, and the ticks of it that are looked at."""
EXPLAINED_VARIANCE, MAX_AXES = 0.99, 12
"""Share of the simulated windows' variance that the axes hold, and their largest number."""
MIN_FEATURE_SPREAD = 1e-3
"""A feature that varies by less than this share of the typical one, in its unit, is not stretched to match it."""


@dataclass(frozen=True)
class Windows:
    """N windows."""

    features: np.ndarray
    """(N, looks · width)"""
    episode: np.ndarray
    """(N,) which of the episodes they were cut from, and the second in it."""
    start: np.ndarray


def window_ticks(robot: Robot) -> int:
    return max(2, round(WINDOW_SECONDS * robot.contract.rate))


def cut_windows(robot: Robot, measured: np.ndarray, target: np.ndarray) -> Windows:
    """Of n episodes of T ticks, (n, T, width) and (n, T, m), one window after the other; those with a hole are left out."""
    ticks, rate = window_ticks(robot), robot.contract.rate
    looks = np.unique(np.linspace(0, ticks - 1, SAMPLES_PER_WINDOW).round().astype(int))
    firsts = np.arange(0, measured.shape[1] - ticks + 1, ticks)
    at = firsts[:, None] + looks
    x = _window_features(robot, measured[:, at], target[:, at])
    flat = x.reshape(len(measured), len(firsts), -1)
    good = np.isfinite(flat).all(-1)
    episode, which = np.nonzero(good)
    return Windows(flat[good], episode, firsts[which] / rate)


def feature_labels(robot: Robot) -> tuple[str, ...]:
    """Of the numbers of one look."""
    names: list[str] = []
    for signal, kind in zip(robot.contract.signals, _signal_kinds(robot), strict=True):
        if kind == "quat":
            names += [f"down {axis}" for axis in "xyz"]
        elif kind == "turns":
            names += [f"{f} {signal.name} {label}" for f in ("sin", "cos") for label in signal.labels]
        else:
            names += [f"{signal.name} {label}" for label in signal.labels]
    return (*names, *(f"{robot.contract.target.name} {label}" for label in robot.contract.target.labels))


def _signal_kinds(robot: Robot) -> list[str]:
    """How each signal is read: quat, place, turns or plain."""
    model, found = robot.model, []
    endless = {
        int(model.jnt_qposadr[j])
        for j in range(model.njnt)
        if int(model.jnt_type[j]) == int(mujoco.mjtJoint.mjJNT_HINGE) and not model.jnt_limited[j]
    }
    for signal, (array, columns) in zip(robot.contract.signals, signal_sources(robot, model), strict=True):
        source = robot.sources[signal.name]
        if source.startswith("quat:"):
            found.append("quat")
        elif source.startswith("pos:"):
            found.append("place")
        else:
            found.append("turns" if array == "qpos" and set(columns) <= endless else "plain")
    return found


def _window_features(robot: Robot, y: np.ndarray, u: np.ndarray) -> np.ndarray:
    """(n, windows, looks, width) and (…, m) -> (n, windows, looks, labels)."""
    parts = []
    for kind, where in zip(_signal_kinds(robot), robot.contract.slices().values(), strict=True):
        x = y[..., where]
        if kind == "quat":
            flat = x.reshape(-1, 4)
            with np.errstate(all="ignore"):
                flat = flat / np.linalg.norm(flat, axis=1, keepdims=True)
            parts.append(rotate_inverse(flat, np.tile([0.0, 0.0, -1.0], (len(flat), 1))).reshape(*x.shape[:-1], 3))
        elif kind == "place":
            parts.append(x - x[:, :, :1])
        elif kind == "turns":
            parts += [np.sin(x), np.cos(x)]
        else:
            parts.append(x)
    return np.concatenate([*parts, u], axis=-1)


@dataclass(frozen=True)
class PrincipalAxes:
    """Principal axes of simulated windows, and a last coordinate for what they do not hold."""

    mean: np.ndarray
    scale: np.ndarray
    axes: np.ndarray
    """(k, features)"""
    explained_variance: np.ndarray
    """(k,) share of the variance."""

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """(N, k + 1); the last is the length of the rest."""
        z = (features - self.mean) / self.scale
        on = z @ self.axes.T
        rest = np.linalg.norm(z - on @ self.axes, axis=1)
        return np.concatenate([on, rest[:, None]], axis=1)


def principal_axes(features: np.ndarray) -> PrincipalAxes:
    """Of simulated windows, (N, features)."""
    mean, scale = mean_and_scale(features)
    z = (features - mean) / scale
    _, s, axes = np.linalg.svd(z, full_matrices=False)
    share = s**2 / max(float((s**2).sum()), 1e-300)
    k = int(np.clip(np.searchsorted(np.cumsum(share), EXPLAINED_VARIANCE) + 1, min(2, len(share)), MAX_AXES))
    return PrincipalAxes(mean, scale, axes[:k], share[:k])


def mean_and_scale(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread of each feature, by which they are made alike."""
    spread = features.std(0)
    return features.mean(0), np.maximum(spread, MIN_FEATURE_SPREAD * max(float(np.median(spread)), 1e-9))
