"""How much of a signal is noise: what no smooth motion explains."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.savitzky_golay import SG_HALF_TICKS, SG_VALUE
from isthmus.real2sim.prepare.tracks import Track

NOISE_ONLY_RATIO = 1.05
"""Times the noise: what leaves no more than this explains all."""

MIN_RELATIVE_NOISE = 1e-6
"""Noise is never taken as smaller than this share of the signal's own size, plus this much."""


def noise_floor(tracks: Sequence[Track], components: Components) -> np.ndarray:
    """Noise per component, (components,), from values against the parabola through their neighbours; NaN if never measured.

    Motion faster than a few ticks counts as noise here, so this is an upper bound of a sensor's own noise.
    """
    row = np.eye(len(SG_VALUE))[SG_HALF_TICKS] - SG_VALUE
    rest, size = [], []
    for track in tracks:
        if len(track) < len(row):
            continue
        y = components.unwrapped(track.measured)
        rest.append(np.stack([np.convolve(c, row[::-1], mode="valid") for c in y.T], axis=1) / np.linalg.norm(row))
        size.append(y)
    if not rest:
        return np.full(len(components), np.nan)
    rest, size = np.concatenate(rest), np.concatenate(size)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        # A component that was never measured has no median, and needs none.
        warnings.simplefilter("ignore", RuntimeWarning)
        sigma = 1.4826 * np.nanmedian(np.abs(rest), axis=0)
        # A quantised signal mostly does not change at all: its median is then zero though its error is not.
        sigma = np.where(sigma > 0, sigma, np.sqrt(np.nanmean(rest**2, axis=0)))
        scale = np.nanstd(size, axis=0)
    return np.where(np.isfinite(sigma), np.maximum(sigma, MIN_RELATIVE_NOISE * (1.0 + scale)), np.nan)
