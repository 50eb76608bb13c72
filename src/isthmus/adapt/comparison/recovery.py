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
import torch

from isthmus.adapt.comparison.contend import Contender
from isthmus.adapt.comparison.measure import Report
from isthmus.adapt.comparison.paired import Estimate, combined
from isthmus.data.rate import Rate
from isthmus.errors import BadInput
from isthmus.learn.actor import Actor, forget
from isthmus.tasks.env import Env
from isthmus.tasks.state import State
from isthmus.tasks.task import Task
from isthmus.world import Belief

BACK = 0.95
"""Part of the score without the change from which on a run counts as back."""
SMOOTH = 0.2
"""s over which scores are averaged."""
LAST = 1.0
"""s at the end of the episode, over which the lasting loss is taken."""
AT = 0.4
"""Part of the episode after which the world changes, unless said otherwise."""
RESAMPLES = 400


@dataclass(frozen=True)
class Event:
    """What changes, and when."""

    before: Mapping[str, float]
    after: Mapping[str, float]
    tick: int
    """First control tick in the changed world."""

    @staticmethod
    def of(task: Task, after: Mapping[str, float], before: Mapping[str, float], seconds: float | None) -> Event:
        """Values outside the hard bounds and times outside the episode are errors; what is not given begins at nominal."""
        space = task.robot.space
        for values in (after, before):
            space.vector(values)
        for name in before:
            if name not in after:
                raise BadInput(f"--before gives {name!r}, which --change does not change.")
        at, rate = AT * task.episode if seconds is None else seconds, task.robot.contract.rate
        if not 1 / rate <= at <= task.episode - 1 / rate:
            raise BadInput(
                f"--at must lie within the episode of {task.name}, between 0 and {task.episode:g} s, not at {at:g} s."
            )
        tick = round(at * rate)
        return Event({name: before.get(name, space[name].nominal) for name in after}, dict(after), tick)


@dataclass(frozen=True)
class Trace:
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
    seconds: Estimate
    """Until back; infinite if not within the episode."""
    back: float
    """Part of the resampled sets of worlds in which it came back."""
    before: float
    """Mean score over the last second before the change."""
    worst: float
    """Largest loss of the mean score."""
    lost: Estimate
    """Score that is still lost in the last second."""
    failed: Rate
    """Worlds that failed after the change, of those that stood then …"""
    failed_anyway: Rate
    """… and without the change."""
    curves: dict[str, np.ndarray]
    """Mean score and error with the change and without, (ticks,); not numbers if no world stands to the end."""

    def to_dict(self) -> dict[str, Any]:
        own = {"name": self.name, "seconds_until_back": self.seconds.to_dict(), "back": self.back}
        own |= {"score_before": self.before, "worst_loss": self.worst, "lost_at_end": self.lost.to_dict()}
        return own | {"failed": vars(self.failed), "failed_without_change": vars(self.failed_anyway), "curves": self.curves}


@torch.no_grad()
def follow(task: Task, actor: Actor, e: np.ndarray, seed: int, event: Event, changes: bool, report=lambda f: None) -> Trace:
    """Live through one episode in each world e, (n, d), with the change or without."""
    n, space = len(e), task.robot.space
    env = Env(task, n, seed=seed, training=False, e=e)
    memory, standing = actor.memory(n), np.ones(n, dtype=bool)
    metric = next(iter(task.metrics.values()))
    look: Callable[[State], tuple[np.ndarray, ...]] = lambda s: (task.score(s).numpy(), metric(s).numpy())  # noqa: E731
    ended: list[tuple[np.ndarray, ...]] = []
    env.at_end = lambda ids: ended.append(look(env.state_now))
    rows: list[tuple[np.ndarray, ...]] = []
    for tick in range(env.horizon):
        if changes and tick == event.tick:
            later = e.copy()
            later[:, [space.index(name) for name in event.after]] = list(event.after.values())
            env.change(later, np.arange(n))
        target, memory = actor(actor.sees(env), memory)
        step = env.step(target)
        # Worlds that ended are at a new start by now; what they were like is what `at_end` saw.
        score, error = ended.pop() if ended else look(env.state_now)
        standing = standing & ~step.failed.numpy()
        rows.append((score, error, standing))
        done = step.failed | step.timed_out
        if done.any():
            forget(memory, done)
        if tick % 20 == 0:
            report(tick / env.horizon)
    return Trace(*(np.stack(part) for part in zip(*rows, strict=True)))


def recoveries(
    task: Task, entries: list[Contender], event: Event, belief: Belief, worlds: int, seed: int, report: Report
) -> tuple[list[Recovery], list[Recovery]]:
    """Of each run, and of each method over its runs."""
    e = belief.sample(np.random.default_rng([seed, 3]), worlds)
    e[:, [task.robot.space.index(name) for name in event.before]] = list(event.before.values())
    traces: list[tuple[Trace, Trace]] = []
    for i, entry in enumerate(entries):
        pair = []
        for k, changes in enumerate((True, False)):
            part = lambda f, at=2 * i + k, who=entry.name: report((at + f) / (2 * len(entries)), f"change: {who}")  # noqa: E731
            pair.append(follow(task, entry.actor, e, seed, event, changes, part))
        traces.append((pair[0], pair[1]))
    tick = 1.0 / task.robot.contract.rate
    alone = [summary(entry.name, *pair, event.tick, tick) for entry, pair in zip(entries, traces, strict=True)]
    together = []
    for method in dict.fromkeys(entry.method for entry in entries):
        own = [pair for entry, pair in zip(entries, traces, strict=True) if entry.method == method]
        changed, same = (_joined([pair[k] for pair in own]) for k in (0, 1))
        together.append(summary(method, changed, same, event.tick, tick, len(own)))
    return alone, together


def _joined(traces: list[Trace]) -> Trace:
    parts = (np.concatenate([getattr(t, name) for t in traces], axis=1) for name in ("score", "error", "standing"))
    return Trace(*parts)


def summary(name: str, changed: Trace, same: Trace, at: int, tick: float, runs: int = 1) -> Recovery:
    """`at` is the first tick in the changed world; `tick` its length, s; columns are the same worlds, `runs` times.

    The interval of the time resamples worlds, and runs where there are several.
    """
    stand = changed.standing[-1] & same.standing[-1]
    n, window = len(stand) // runs, max(1, round(SMOOTH / tick))
    # A world in which only some runs stand would speak of those runs, and not of the method.
    kept = np.tile(stand.reshape(runs, n).all(axis=0), runs)
    rng = np.random.default_rng(0)
    of_world, of_run = (np.concatenate([np.ones((1, k)), rng.multinomial(k, np.full(k, 1 / k), RESAMPLES)]) for k in (n, runs))
    weights = (of_run[:, :, None] * of_world[:, None, :]).reshape(len(of_run), -1)[:, kept]
    found, apart = (smooth(mean_over(t.score[:, kept], weights), window) for t in (changed, same))
    times = np.array([settled(f, a, at) * tick for f, a in zip(found, apart, strict=True)])
    resampled = np.sort(times[1:])
    tail = int(0.025 * RESAMPLES)
    seconds = Estimate(float(times[0]), float(resampled[tail]), float(resampled[-1 - tail]))
    end = -max(1, min(round(LAST / tick), len(found[0]) - at))
    lost = (same.score - changed.score)[end:, kept].mean(axis=0).reshape(runs, -1)
    start = changed.standing[at - 1]
    curves = {
        f"{what}{suffix}": mean_over(getattr(t, what)[:, kept], weights[:1])[0]
        for t, suffix in ((changed, ""), (same, "_without_change"))
        for what in ("score", "error")
    }
    return Recovery(
        name=name,
        seconds=seconds,
        back=float(np.isfinite(resampled).mean()),
        before=float(apart[0, max(0, at - round(LAST / tick)) : at].mean()),
        worst=float(np.max((apart - found)[0, at:], initial=0.0)),
        lost=combined(lost.mean(axis=0), lost.mean(axis=1)) if lost.size else Estimate(*[float("nan")] * 3),
        failed=Rate.of(int((start & ~changed.standing[-1]).sum()), int(start.sum())),
        failed_anyway=Rate.of(int((start & ~same.standing[-1]).sum()), int(start.sum())),
        curves=curves,
    )


def mean_over(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted means over worlds, (ticks, n) and (b, n) -> (b, ticks); not a number if there are none."""
    with np.errstate(invalid="ignore"):
        return (weights @ values.T) / weights.sum(axis=1, keepdims=True)


def smooth(curves: np.ndarray, window: int) -> np.ndarray:
    """Mean of the last `window` ticks, (b, ticks); of fewer at the start."""
    ticks = curves.shape[1]
    total = np.concatenate([np.zeros((len(curves), 1)), np.cumsum(curves, axis=1)], axis=1)
    first = np.maximum(np.arange(ticks) + 1 - window, 0)
    return (total[:, 1:] - total[:, first]) / (np.arange(ticks) + 1 - first)


def settled(found: np.ndarray, apart: np.ndarray, at: int) -> float:
    """Ticks after the change from which on `found` stays at or above BACK of `apart`, (ticks,); 0 if it never fell below."""
    low = ~(found[at:] >= BACK * apart[at:])
    if not low.any():
        return 0.0
    last = int(np.nonzero(low)[0][-1])
    return float("inf") if last == len(low) - 1 else float(last + 2)
