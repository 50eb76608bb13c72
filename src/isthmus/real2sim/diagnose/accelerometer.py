"""What an accelerometer feels is gravity and, in the long run, nothing else: nobody gets faster forever.

    d = mean of what was felt - gravity where the attitude has it        in the body's frame, one stretch after the other

Who runs in circles does feel something else all the time: v ω, to the side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.core.constants import STANDARD_GRAVITY
from isthmus.core.geometry import rotate_inverse
from isthmus.real2sim.diagnose.bias_random_walk import BIAS_WALK_SHARE, STRETCH_SECONDS, bias_evidence, stretch_means
from isthmus.real2sim.diagnose.extended_parameters import SENSOR_BIAS_STD
from isthmus.real2sim.prepare.kinematics import body_signals
from isthmus.real2sim.prepare.tracks import Track
from isthmus.sim.robot import Robot

SHOCK_BIAS_SHARE = 0.13
"""Of how much it varies, that a mean may well be off: there are few samples of feet that hit the ground."""
MIN_BIAS_STD = 0.12
"""m/s² that it may well be off in any case: an attitude that is wrong by 0.7 degrees."""
TYPICAL_SPEED = 1.0
"""m/s that a robot may well have, or get to."""
OUTLIER_MADS = 4.0
"""Times the usual distance from the median: further off is a change of speed."""
MIN_TRACK_SECONDS = 5.0
"""s from which on there is something to tell."""
ACCELEROMETER_BIAS_STD = SENSOR_BIAS_STD["m/s²"]
TrackMeans = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class AccelerometerBias:
    track_means: tuple[TrackMeans, ...]
    """Of each track that is long enough: d, (n, 3), and how fast it turned, (n, 3)."""
    sample_std: np.ndarray
    """(3,) standard deviation from sample to sample."""

    @property
    def log_evidence_by_axis(self) -> np.ndarray:
        """(3,) log evidence of a bias or a drift in each direction; below zero where there is none."""
        found = [
            bias_evidence(
                d, ACCELEROMETER_BIAS_STD, self.expected_bias_std(len(d)), BIAS_WALK_SHARE, _centripetal_acceleration(turns)
            )
            for d, turns in self.track_means
        ]
        return np.sum(found, axis=0) if found else np.zeros(3)

    @property
    def log_evidence(self) -> float:
        """Log evidence of a bias or a drift."""
        return float(np.maximum(self.log_evidence_by_axis, 0.0).sum() - np.log(3.0))

    def expected_bias_std(self, stretch_count: int) -> np.ndarray:
        """(3,) of a bias, where nothing is wrong."""
        return np.sqrt(
            (SHOCK_BIAS_SHARE * self.sample_std) ** 2
            + MIN_BIAS_STD**2
            + (TYPICAL_SPEED / (STRETCH_SECONDS * stretch_count)) ** 2
        )


def accelerometer_bias(robot: Robot, tracks: Sequence[Track]) -> AccelerometerBias:
    """Nothing, where there is no accelerometer or attitude."""
    known, at = body_signals(robot), robot.contract.slices()
    parts, raw = [], []
    for track in tracks if "accel" in known and "quat" in known else ():
        quat = track.measured[:, at[known["quat"]]]
        gravity = rotate_inverse(quat, np.tile([0.0, 0.0, STANDARD_GRAVITY], (len(quat), 1)))
        each = track.measured[:, at[known["accel"]]] - gravity
        turns = track.measured[:, at[known["angvel"]]] if "angvel" in known else np.zeros_like(each)
        means = [stretch_means(x, robot.contract.rate) for x in (each, turns)]
        seen = np.isfinite(means).all((0, 2))
        if STRETCH_SECONDS * seen.sum() >= MIN_TRACK_SECONDS:
            parts.append((_clip_outliers(means[0][seen]), means[1][seen]))
            raw.append(each)
    return AccelerometerBias(tuple(parts), np.nanstd(np.concatenate(raw), axis=0) if raw else np.ones(3))


def _clip_outliers(d: np.ndarray) -> np.ndarray:
    """Without the moments in which a robot does get faster or slower: what stands out is cut."""
    middle = np.median(d, axis=0)
    most = OUTLIER_MADS * np.median(np.abs(d - middle), axis=0)
    return np.clip(d, middle - most, middle + most)


def _centripetal_acceleration(angular_velocity: np.ndarray) -> np.ndarray:
    """(n, 3) what is felt at the usual speed where a robot turns like that, about its vertical axis."""
    return TYPICAL_SPEED * angular_velocity[:, 2:] * [1.0, 1.0, 0.0]
