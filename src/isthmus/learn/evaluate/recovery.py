"""How a policy takes a sudden change of its world: what it loses, and how long until it is back.

The same worlds are lived through twice, with the change and without it. Until the change both are equal, bit for bit; after
it the difference is what the change does, and not a gust, a push or the way from the start.

    back    from when on the mean score, over 0.2 s, stays at or above 95 % of what it is without the change

Scores are those of the worlds that stand to the end both times: were a failing world to leave the mean midway, the others
would seem to recover. Worlds that fail are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.progress import Progress, silent
from isthmus.core.statistics import Rate
from isthmus.learn.evaluate.contenders import Contender
from isthmus.learn.evaluate.rollout import rollout
from isthmus.learn.evaluate.statistics import Estimate, estimate_from_means
from isthmus.learn.policies.actor import Actor
from isthmus.tasks.env import Env
from isthmus.tasks.state import State
from isthmus.tasks.task import Task
from isthmus.world import Belief

RECOVERED_FRACTION = 0.95
"""Part of the score without the change from which on a run counts as back."""
SMOOTHING_SECONDS = 0.2
"""s over which scores are averaged."""
FINAL_SECONDS = 1.0
"""s at the end of the episode, over which the lasting loss is taken."""
DEFAULT_CHANGE_FRACTION = 0.4
"""Part of the episode after which the world changes, unless said otherwise."""
BOOTSTRAP_SAMPLES = 400


@dataclass(frozen=True)
class WorldChange:
    """What changes, and when."""

    before: Mapping[str, float]
    after: Mapping[str, float]
    tick: int
    """First control tick in the changed world."""

    @staticmethod
    def for_task(task: Task, after: Mapping[str, float], before: Mapping[str, float], seconds: float | None) -> WorldChange:
        """Values outside the hard bounds and times outside the episode are errors; what is not given begins at nominal."""
        space = task.robot.space
        for values in (after, before):
            space.vector(values)
        for name in before:
            if name not in after:
                raise BadInput(f"before gives {name!r}, which change does not change.")
        at, rate = DEFAULT_CHANGE_FRACTION * task.episode if seconds is None else seconds, task.robot.contract.rate
        if not 1 / rate <= at <= task.episode - 1 / rate:
            raise BadInput(f"at must lie within the episode of {task.name}, between 0 and {task.episode:g} s, not at {at:g} s.")
        tick = round(at * rate)
        return WorldChange({name: before.get(name, space[name].nominal) for name in after}, dict(after), tick)


@dataclass(frozen=True)
class EpisodeTrace:
    """One run in n worlds, tick by tick, (ticks, n)."""

    score: np.ndarray
    error: np.ndarray
    """The task's first metric."""
    standing: np.ndarray
    """Until the tick in which the first episode failed."""


@dataclass(frozen=True)
class Recovery:
    """One run, or all runs of one method, through the change."""

    name: str
    recovery_seconds: Estimate
    """Until back; infinite if not within the episode."""
    recovered_fraction: float
    """Part of the resampled sets of worlds in which it came back."""
    score_before: float
    """Mean score over the last second before the change."""
    worst_loss: float
    """Largest loss of the mean score."""
    final_loss: Estimate
    """Score that is still lost in the last second."""
    failed: Rate
    """Worlds that failed after the change, of those that stood then …"""
    failed_without_change: Rate
    """… and without the change."""
    curves: dict[str, np.ndarray]
    """Mean score and error with the change and without, (ticks,); not numbers if no world stands to the end."""

    def to_dict(self) -> dict[str, Any]:
        own = {
            "name": self.name,
            "recovery_seconds": self.recovery_seconds.to_dict(),
            "recovered_fraction": self.recovered_fraction,
        }
        own |= {"score_before": self.score_before, "worst_loss": self.worst_loss, "final_loss": self.final_loss.to_dict()}
        return own | {
            "failed": vars(self.failed),
            "failed_without_change": vars(self.failed_without_change),
            "curves": self.curves,
        }


def record_trace(
    task: Task, actor: Actor, e: np.ndarray, seed: int, change: WorldChange, with_change: bool, progress: Progress = silent
) -> EpisodeTrace:
    """One episode in each world e, (n, d), with the change or without."""
    n, space = len(e), task.robot.space
    env = Env(task, n, seed=seed, training=False, e=e)
    standing = np.ones(n, dtype=bool)
    metric = next(iter(task.metrics.values()))
    measure: Callable[[State], tuple[np.ndarray, ...]] = lambda s: (task.score(s).numpy(), metric(s).numpy())  # noqa: E731
    ended: list[tuple[np.ndarray, ...]] = []
    env.on_episode_end = lambda ids: ended.append(measure(env.true_state))

    def apply_change(tick: int) -> None:
        if with_change and tick == change.tick:
            later = e.copy()
            later[:, [space.index(name) for name in change.after]] = list(change.after.values())
            env.set_parameters(later, np.arange(n))

    rows: list[tuple[np.ndarray, ...]] = []
    for tick in rollout(env, actor, before_tick=apply_change, progress=progress):
        # Worlds that ended are at a new start by now; `on_episode_end` saw their last state.
        score, error = ended.pop() if ended else measure(env.true_state)
        standing = standing & ~tick.step.terminated.numpy()
        rows.append((score, error, standing))
    return EpisodeTrace(*(np.stack(part) for part in zip(*rows, strict=True)))


def measure_recovery(
    task: Task, entries: list[Contender], change: WorldChange, belief: Belief, worlds: int, seed: int, progress: Progress
) -> tuple[list[Recovery], list[Recovery]]:
    """Of each run, and of each method over its runs."""
    e = belief.sample(np.random.default_rng([seed, 3]), worlds)
    e[:, [task.robot.space.index(name) for name in change.before]] = list(change.before.values())
    traces: list[tuple[EpisodeTrace, EpisodeTrace]] = []
    for i, entry in enumerate(entries):
        pair = []
        for k, changes in enumerate((True, False)):
            part = lambda f, _="", /, at=2 * i + k, who=entry.name: progress(  # noqa: E731
                (at + f) / (2 * len(entries)), f"change: {who}"
            )
            pair.append(record_trace(task, entry.actor, e, seed, change, changes, part))
        traces.append((pair[0], pair[1]))
    tick = 1.0 / task.robot.contract.rate
    alone = [summarize_recovery(entry.name, *pair, change.tick, tick) for entry, pair in zip(entries, traces, strict=True)]
    together = []
    for method in dict.fromkeys(entry.method for entry in entries):
        own = [pair for entry, pair in zip(entries, traces, strict=True) if entry.method == method]
        changed, same = (_pool_runs([pair[k] for pair in own]) for k in (0, 1))
        together.append(summarize_recovery(method, changed, same, change.tick, tick, len(own)))
    return alone, together


def _pool_runs(traces: list[EpisodeTrace]) -> EpisodeTrace:
    parts = (np.concatenate([getattr(t, name) for t in traces], axis=1) for name in ("score", "error", "standing"))
    return EpisodeTrace(*parts)


def summarize_recovery(
    name: str, changed: EpisodeTrace, unchanged: EpisodeTrace, change_tick: int, tick: float, runs: int = 1
) -> Recovery:
    """`at` is the first tick in the changed world; `tick` its length, s; columns are the same worlds, `runs` times.

    The interval of the time resamples worlds, and runs where there are several.
    """
    stand = changed.standing[-1] & unchanged.standing[-1]
    n, window = len(stand) // runs, max(1, round(SMOOTHING_SECONDS / tick))
    # A world in which only some runs stand would speak of those runs, and not of the method.
    kept = np.tile(stand.reshape(runs, n).all(axis=0), runs)
    rng = np.random.default_rng(0)
    of_world, of_run = (
        np.concatenate([np.ones((1, k)), rng.multinomial(k, np.full(k, 1 / k), BOOTSTRAP_SAMPLES)]) for k in (n, runs)
    )
    weights = (of_run[:, :, None] * of_world[:, None, :]).reshape(len(of_run), -1)[:, kept]
    found, apart = (moving_average(weighted_mean(t.score[:, kept], weights), window) for t in (changed, unchanged))
    times = np.array([ticks_to_recover(f, a, change_tick) * tick for f, a in zip(found, apart, strict=True)])
    resampled = np.sort(times[1:])
    tail = int(0.025 * BOOTSTRAP_SAMPLES)
    seconds = Estimate(float(times[0]), float(resampled[tail]), float(resampled[-1 - tail]))
    end = -max(1, min(round(FINAL_SECONDS / tick), len(found[0]) - change_tick))
    lost = (unchanged.score - changed.score)[end:, kept].mean(axis=0).reshape(runs, -1)
    start = changed.standing[change_tick - 1]
    curves = {
        f"{what}{suffix}": weighted_mean(getattr(t, what)[:, kept], weights[:1])[0]
        for t, suffix in ((changed, ""), (unchanged, "_without_change"))
        for what in ("score", "error")
    }
    return Recovery(
        name=name,
        recovery_seconds=seconds,
        recovered_fraction=float(np.isfinite(resampled).mean()),
        score_before=float(apart[0, max(0, change_tick - round(FINAL_SECONDS / tick)) : change_tick].mean()),
        worst_loss=float(np.max((apart - found)[0, change_tick:], initial=0.0)),
        final_loss=estimate_from_means(lost.mean(axis=0), lost.mean(axis=1)) if lost.size else Estimate(*[float("nan")] * 3),
        failed=Rate.from_counts(int((start & ~changed.standing[-1]).sum()), int(start.sum())),
        failed_without_change=Rate.from_counts(int((start & ~unchanged.standing[-1]).sum()), int(start.sum())),
        curves=curves,
    )


def weighted_mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted means over worlds, (ticks, n) and (b, n) -> (b, ticks); not a number if there are none."""
    with np.errstate(invalid="ignore"):
        return (weights @ values.T) / weights.sum(axis=1, keepdims=True)


def moving_average(curves: np.ndarray, window: int) -> np.ndarray:
    """Mean of the last `window` ticks, (b, ticks); of fewer at the start."""
    ticks = curves.shape[1]
    total = np.concatenate([np.zeros((len(curves), 1)), np.cumsum(curves, axis=1)], axis=1)
    first = np.maximum(np.arange(ticks) + 1 - window, 0)
    return (total[:, 1:] - total[:, first]) / (np.arange(ticks) + 1 - first)


def ticks_to_recover(changed: np.ndarray, unchanged: np.ndarray, change_tick: int) -> float:
    """Ticks after the change from which on `found` stays at or above BACK of `apart`, (ticks,); 0 if it never fell below."""
    low = ~(changed[change_tick:] >= RECOVERED_FRACTION * unchanged[change_tick:])
    if not low.any():
        return 0.0
    last = int(np.nonzero(low)[0][-1])
    return float("inf") if last == len(low) - 1 else float(last + 2)
