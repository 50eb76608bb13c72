"""What a recording shows that no simulated world does, and whether recordings and worlds are alike at all.

distance     of a window to the nearest simulated one of another episode, on the principal axes
threshold    that quantile of the distances of each simulated episode to all others which keeps the stated rate of false
             alarms: a recording that is one more draw from the belief raises no more
alike        energy distance between recording and worlds; p by letting every world take the place of the recording
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from isthmus.core.statistics import Rate
from isthmus.real2sim.measure.closed_loop import ControlledStretch, Rollouts
from isthmus.real2sim.measure.windows import PrincipalAxes, cut_windows, feature_labels, principal_axes, window_ticks
from isthmus.sim.robot import Robot

FALSE_ALARM_RATE = 0.01
"""Stated rate of false alarms, of windows."""
MAX_PERMUTATIONS = 999
"""Exchanges of recordings and worlds that are tried, where there are more than so many."""
MAX_WINDOWS_PER_EPISODE = 120
"""Windows of an episode that the energy distance looks at, at most."""


@dataclass(frozen=True)
class UncoveredWindow:
    """A window that no simulated world covers."""

    recording: int
    second: float
    seconds: float
    """Its length."""
    distance: float
    """In units of the threshold."""
    why: tuple[str, ...]
    """The numbers that are furthest from the nearest simulated window, and which way."""


@dataclass(frozen=True)
class Coverage:
    false_alarm_rate: float
    """Stated rate."""
    threshold: float
    uncovered: Rate
    """Share of recorded windows."""
    p_uncovered: float
    """How likely a world of the belief is to have as large a share."""
    energy_distance: float
    """Energy distance."""
    p_same_distribution: float
    """How likely it would be so large if the recordings were worlds of the belief."""
    uncovered_windows: tuple[UncoveredWindow, ...]
    """The furthest first."""
    axes: PrincipalAxes
    real_points: np.ndarray
    """(N, k + 1) places of the recorded windows; their recording, second and distance in units of the threshold, (N,)."""
    recording: np.ndarray
    second: np.ndarray
    distance: np.ndarray
    sim_points: np.ndarray
    """(M, k + 1) of the simulated ones; their world and second, (M,)."""
    world: np.ndarray
    sim_second: np.ndarray


def window_coverage(
    robot: Robot,
    stretches_and_rollouts: Sequence[tuple[ControlledStretch, Rollouts]],
    false_alarm_rate: float = FALSE_ALARM_RATE,
    seed: int = 0,
) -> Coverage | None:
    """Of recordings against the worlds that lived through the same; None where there are no whole windows."""
    real = [cut_windows(robot, s.measured[None], s.target[None]) for s, _ in stretches_and_rollouts]
    sim = [cut_windows(robot, lived.measured, lived.target) for _, lived in stretches_and_rollouts]
    n = len(stretches_and_rollouts[0][1].target)
    if not all(len(w.features) for w in real) or not all(len(np.unique(w.episode)) > 1 for w in sim):
        return None
    axes = principal_axes(np.concatenate([w.features for w in sim]))
    real_at = [axes(w.features) for w in real]
    sim_at = [axes(w.features) for w in sim]
    # One episode is all that a world did, in all stretches; a recording stands beside the worlds of its own stretch.
    world = np.concatenate([w.episode for w in sim])
    cloud = np.concatenate(sim_at)
    own = distance_to_other_episodes(cloud, world)
    threshold = conformal_threshold(own, false_alarm_rate)
    distance, nearest = _nearest_neighbours(cloud, np.concatenate(real_at))
    hits = distance > threshold
    shares = np.array([(own[world == i] > threshold).mean() for i in np.unique(world)])
    energy, p = energy_test(real_at, [[at[w.episode == i] for i in range(n)] for at, w in zip(sim_at, sim, strict=True)], seed)
    which = np.concatenate([np.full(len(at), s.recording) for at, (s, _) in zip(real_at, stretches_and_rollouts, strict=True)])
    second = np.concatenate([w.start + s.start for w, (s, _) in zip(real, stretches_and_rollouts, strict=True)])
    names, length = feature_labels(robot), window_ticks(robot) / robot.contract.rate
    features, simulated = np.concatenate([w.features for w in real]), np.concatenate([w.features for w in sim])
    listed = [
        UncoveredWindow(
            int(which[i]),
            float(second[i]),
            length,
            float(distance[i] / threshold),
            _largest_differences(features[i], simulated[nearest[i]], axes, names),
        )
        for i in np.flatnonzero(hits)[np.argsort(-distance[hits], kind="stable")]
    ]
    return Coverage(
        false_alarm_rate=false_alarm_rate,
        threshold=threshold,
        uncovered=Rate.from_counts(int(hits.sum()), len(hits)),
        p_uncovered=float((1 + (shares >= hits.mean()).sum()) / (1 + len(shares))),
        energy_distance=energy,
        p_same_distribution=p,
        uncovered_windows=tuple(listed),
        axes=axes,
        real_points=np.concatenate(real_at),
        recording=which,
        second=second,
        distance=distance / threshold,
        sim_points=cloud,
        world=world,
        sim_second=np.concatenate([w.start for w in sim]),
    )


def _nearest_neighbours(cloud: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    distance, which = KDTree(cloud).query(points)
    return np.asarray(distance), np.asarray(which)


def distance_to_other_episodes(cloud: np.ndarray, episode: np.ndarray) -> np.ndarray:
    """Distance of each point, (M,), to the nearest one of another episode."""
    out = np.empty(len(cloud))
    for i in np.unique(episode):
        mine = episode == i
        out[mine] = _nearest_neighbours(cloud[~mine], cloud[mine])[0]
    return out


def conformal_threshold(distances: np.ndarray, false_alarm_rate: float) -> float:
    """The distance that one more of the same exceeds with a probability of at most `alarms`."""
    n = len(distances)
    rank = int(np.ceil((n + 1) * (1.0 - false_alarm_rate)))
    return float(np.sort(distances)[min(rank, n) - 1])


def _mean_pairwise_distances(clouds: Sequence[np.ndarray]) -> np.ndarray:
    """Mean distance from a point of each cloud, (N, k), to one of each, (n, n)."""
    everything, ends = np.concatenate(clouds), np.cumsum([len(c) for c in clouds])
    parts = [slice(end - len(c), end) for c, end in zip(clouds, ends, strict=True)]
    total = np.array([[np.add.reduce(far[:, p].ravel()) for p in parts] for far in (cdist(c, everything) for c in clouds)])
    sizes = np.diff(ends, prepend=0)
    return total / np.multiply.outer(sizes, sizes)


def energy_test(real: Sequence[np.ndarray], sim: Sequence[Sequence[np.ndarray]], seed: int = 0) -> tuple[float, float]:
    """Energy distance between recordings, (N, k) each, and the worlds of each, and its p-value.

    Windows of an episode are not independent, so whole episodes change places: every world takes the place of its recording.
    """
    rng = np.random.default_rng(seed)
    tables = []
    for mine, worlds in zip(real, sim, strict=True):
        some = [_subsample(x) for x in (mine, *(w for w in worlds if len(w)))]
        between, n = _mean_pairwise_distances(some), len(some)
        others = (between.sum(1) - between.diagonal()) / (n - 1)
        total = between.sum()
        within = (total - 2 * between.sum(1) + between.diagonal()) / (n - 1) ** 2
        tables.append(2 * others - between.diagonal() - within)
    found = float(sum(t[0] for t in tables) / len(tables))
    if len(tables) == 1:
        null = tables[0][1:]
    else:
        null = np.mean([rng.choice(t, MAX_PERMUTATIONS) for t in tables], axis=0)
    return found, float((1 + (null >= found - 1e-12).sum()) / (1 + len(null)))


def _subsample(x: np.ndarray) -> np.ndarray:
    return x[np.unique(np.linspace(0, len(x) - 1, MAX_WINDOWS_PER_EPISODE).round().astype(int))]


def _largest_differences(
    window: np.ndarray, nearest: np.ndarray, axes: PrincipalAxes, names: tuple[str, ...], max_count: int = 3
) -> tuple[str, ...]:
    """The numbers of a window that differ most from its nearest neighbour, averaged over its looks."""
    off = ((window - nearest) / axes.scale).reshape(-1, len(names)).mean(0)
    order = np.argsort(-np.abs(off), kind="stable")[:max_count]
    return tuple(f"{names[i]} {'higher' if off[i] > 0 else 'lower'}" for i in order if abs(off[i]) > 0)
