"""Policies in the same worlds, world by world: how often each succeeds, and how much better than the first it is.

All meet the same e, starts, commands, pushes and noise; what differs is what they do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isthmus.adapt.comparison.contend import Contender, facts_of
from isthmus.adapt.comparison.grounds import TOTAL, Ground, width
from isthmus.adapt.comparison.paired import Estimate, Share, estimate, over, rate_difference, share
from isthmus.data.rate import Rate
from isthmus.learn.evaluate import evaluate
from isthmus.learn.runs import Run
from isthmus.tasks.sampler import succeeded
from isthmus.tasks.task import Task

ENERGY = ("power", "effort")
"""Metrics that say what it costs, the first that a task has."""
UNITS = {"velocity_error": "m/s", "distance": "m", "angle_error": "rad", "tilt": "rad", "power": "W", "effort": "of hovering"}
"""Of the metrics that are shown."""
Rows = dict[str, np.ndarray]
"""By name: success, failed, score, return, length and metrics, one number per world."""
Report = Callable[[float, str], None]


@dataclass(frozen=True)
class Result:
    """What one run reached on one ground."""

    success: Rate
    failed: Rate
    means: dict[str, Estimate]
    """Of score, return and the task's metrics."""
    against: dict[str, Estimate]
    """The same minus the first run's in the same worlds, success included."""

    def to_dict(self) -> dict[str, Any]:
        means = {name: m.to_dict() for name, m in self.means.items()}
        against = {name: m.to_dict() for name, m in self.against.items()}
        return {"success": vars(self.success), "failed": vars(self.failed), "means": means, "against_first": against}


@dataclass(frozen=True)
class Group:
    """What the runs of one method reached on one ground."""

    method: str
    runs: int
    over: str
    """What the intervals are over: `worlds`, or `worlds and seeds`."""
    success: Rate
    failed: Rate
    means: dict[str, Estimate]
    spread: dict[str, float]
    """Standard deviation over the runs' means; not a number for a single run."""
    against: dict[str, Estimate]
    """Minus the first method's."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "runs": self.runs,
            "over": self.over,
            "success": vars(self.success),
            "failed": vars(self.failed),
            "means": {name: m.to_dict() | {"spread": self.spread[name]} for name, m in self.means.items()},
            "against_first": {name: m.to_dict() for name, m in self.against.items()},
        }


def measure(task: Task, entries: list[Contender], grounds: list[Ground], report: Report) -> dict[str, list[Rows]]:
    """One episode of every run in every world of every ground: by ground, one table per run."""
    found: dict[str, list[Rows]] = {}
    total = len(grounds) * len(entries)
    for i, ground in enumerate(grounds):
        for k, entry in enumerate(entries):
            at, note = i * len(entries) + k, f"{ground.name}: {entry.name}"
            found.setdefault(ground.name, []).append(
                rows_of(task, entry, ground, lambda f, at=at, note=note: report((at + f) / total, note))
            )
    real = [g.name for g in grounds if g.reality is not None]
    if len(real) > 1:
        found[TOTAL] = [_joined([found[name][k] for name in real]) for k in range(len(entries))]
    return found


def rows_of(task: Task, entry: Contender, ground: Ground, report: Callable[[float], None] = lambda f: None) -> Rows:
    """The episodes of one run on one ground."""
    ran = evaluate(task, entry.actor, ground.worlds, ground.seed, ground.belief, ground.e, ground.reality, report)
    rows = ran.episodes
    return rows | {"success": succeeded(rows, task.success)}


def _joined(tables: list[Rows]) -> Rows:
    """All realities together. Episodes of one robot are alike: of what is averaged, each reality is one row."""
    whole = ("success", "failed")
    return {
        n: np.concatenate([t[n] for t in tables]) if n in whole else np.array([t[n].mean() for t in tables]) for n in tables[0]
    }


def shown(task: Task) -> tuple[str, ...]:
    """Numbers that are compared beside success, the most telling first: score, return, error, energy, then the rest."""
    metrics = list(task.metrics)
    energy = [name for name in ENERGY if name in metrics][:1]
    return tuple(dict.fromkeys(("score", "return", *metrics[:1], *energy, *metrics)))


def label(metric: str) -> str:
    """A metric's name with its unit."""
    words = metric.replace("_", " ")
    return f"{words}, {UNITS[metric]}" if metric in UNITS else words


def result(task: Task, own: Rows, first: Rows) -> Result:
    """A run's numbers, and their differences from the first run's."""
    n = len(own["success"])
    names = shown(task)
    single = lambda rows, name: rows[name][None].astype(float)  # noqa: E731
    return Result(
        Rate.of(int(own["success"].sum()), n),
        Rate.of(int(own["failed"].sum()), n),
        {name: estimate((1.0, single(own, name))) for name in names},
        {"success": rate_difference(own["success"], first["success"])}
        | {name: estimate((1.0, single(own, name)), (-1.0, single(first, name))) for name in names},
    )


def stacked(entries: list[Contender], tables: list[Rows], name: str) -> dict[str, np.ndarray]:
    """One quantity by method, (runs, worlds), in the order in which methods are first named."""
    methods = dict.fromkeys(entry.method for entry in entries)
    return {
        m: np.stack([rows[name].astype(float) for entry, rows in zip(entries, tables, strict=True) if entry.method == m])
        for m in methods
    }


def groups(task: Task, entries: list[Contender], tables: list[Rows]) -> list[Group]:
    """Each method's numbers over its runs, and their differences from the first method's."""
    names = ("success", *shown(task))
    by_name = {name: stacked(entries, tables, name) for name in names}
    first = next(iter(by_name["score"]))
    found = []
    for method, scores in by_name["score"].items():
        runs = len(scores)
        own = {name: by_name[name][method] for name in names}
        spread = {name: float(x.mean(axis=1).std(ddof=1)) if runs > 1 else float("nan") for name, x in own.items()}
        against = {name: estimate((1.0, own[name]), (-1.0, by_name[name][first])) for name in names}
        means = {name: estimate((1.0, own[name])) for name in names}
        rates = rate(own["success"]), rate(stacked(entries, tables, "failed")[method])
        found.append(Group(method, runs, over(scores), *rates, means, spread, against))
    return found


def rate(happened: np.ndarray) -> Rate:
    """Of something that happened or not, (runs, worlds): never surer than a single run in which it happened as often."""
    worlds, mean = happened.shape[1], estimate((1.0, happened))
    least = Rate.of(round(mean.mean * worlds), worlds)
    ends = (mean.low, mean.high) if mean.low == mean.low else (0.0, 1.0)
    return Rate(mean.mean, max(0.0, min(least.low, ends[0])), min(1.0, max(least.high, ends[1])), worlds)


def recovered(entries: list[Contender], tables: list[Rows], name: str = "return") -> list[tuple[str, str, str, Share]]:
    """The part of the gap between ppo and a teacher that each student or rma has closed: names of the three, and the share.

    The teacher is the one's own, if it is there, or else the first; ppo the one that differs least from that teacher.
    """
    by_method = stacked(entries, tables, name)
    runs = {m: [entry.run for entry in entries if entry.method == m] for m in by_method}
    of = lambda *kinds: [m for m in by_method if runs[m][0].plan.method in kinds]  # noqa: E731
    found = []
    for m in of("student", "rma"):
        own = {run.plan.teacher for run in runs[m]}
        goals = sorted(of("teacher"), key=lambda t: not own & {run.origin for run in runs[t]})
        starts = sorted(of("ppo"), key=lambda s: _apart(runs[s][0], runs[goals[0]][0])) if goals else []
        if starts:
            found.append((m, starts[0], goals[0], share(by_method[starts[0]], by_method[goals[0]], by_method[m])))
    return found


def _apart(a: Run, b: Run) -> int:
    """In how many things that were asked of them two runs differ."""
    one, other = facts_of(a), facts_of(b)
    return sum(one.get(key) != other.get(key) for key in one | other)


@dataclass(frozen=True)
class Timidity:
    """What a method gives up in the nominal world."""

    method: str
    against: str
    loss: Estimate
    """Of score, against the method named in `against`."""
    over: str
    """What the interval is over: `worlds`, or `worlds and seeds`."""
    width: float
    """Part of the hard bounds' range that its training covered, mean over parameters and runs …"""
    other_width: float
    """… and the same of the method that it is held against."""
    alike: bool
    """Nothing but the ranges was asked differently of the two, so that they are the cause of what differs."""
    margin: float

    @property
    def timid(self) -> bool:
        """It loses more than the margin, beyond chance, and because it trained over wider ranges."""
        return self.lost and self.alike and self.width > self.other_width

    @property
    def lost(self) -> bool:
        return self.loss.mean > self.margin and self.loss.low > 0

    def sentence(self) -> str:
        loss = f"{self.loss.mean:.2f} ({self.loss.low:.2f} to {self.loss.high:.2f}, over {self.over})"
        what = f"{self.method} loses {loss} of score in the nominal world against {self.against}"
        ranges = f"it trained on {100 * self.width:.0f} % of the space, the other on {100 * self.other_width:.0f} %"
        return f"{what}; {ranges}" + (": its range is so wide that it turned timid." if self.timid else ".")

    def to_dict(self) -> dict[str, Any]:
        own = {"method": self.method, "against": self.against, "loss": self.loss.to_dict(), "over": self.over}
        own |= {"margin": self.margin, "width": self.width, "other_width": self.other_width}
        return own | {"alike_but_for_ranges": self.alike, "lost": self.lost, "timid": self.timid}


def timidity(entries: list[Contender], tables: list[Rows], margin: float, reference: str = "") -> list[Timidity]:
    """Each method's loss of nominal score against the named one, or against the best, over the runs of both.

    The best of those with several runs, if there are any: a single run may just have been lucky.
    """
    scores = stacked(entries, tables, "score")
    other = reference or max(scores, key=lambda m: (len(scores[m]) > 1, scores[m].mean()))
    own = {m: [entry for entry in entries if entry.method == m] for m in scores}
    widths = {m: float(np.mean([width(entry.trained) for entry in own[m]])) for m in scores}
    return [
        Timidity(
            *(m, other, estimate((1.0, scores[other]), (-1.0, score)), over(scores[other], score)),
            *(widths[m], widths[other], _same_but_ranges(own[m][0].run, own[other][0].run), margin),
        )
        for m, score in scores.items()
        if m != other
    ]


def _same_but_ranges(a: Run, b: Run) -> bool:
    """Whether two runs were asked for the same, but for seeds and the worlds of their training."""
    one, other = (replace(run, plan=replace(run.plan, adr=False), belief=a.belief) for run in (a, b))
    return facts_of(one) == facts_of(other)
