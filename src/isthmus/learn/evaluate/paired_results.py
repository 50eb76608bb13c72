"""Policies in the same worlds, world by world: how often each succeeds, and how much better than the first it is.

All meet the same e, starts, commands, pushes and noise; what differs is what they do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isthmus.core.progress import Progress, silent
from isthmus.core.statistics import Rate
from isthmus.learn.evaluate.contenders import Contender, config_facts
from isthmus.learn.evaluate.evaluate import METRIC_UNITS
from isthmus.learn.evaluate.rollout import EpisodeTable, run_episodes
from isthmus.learn.evaluate.statistics import Estimate, GapClosed, estimate, gap_closed, rate_difference, uncertainty_sources
from isthmus.learn.evaluate.world_sets import ALL_REALITIES, WorldSet, covered_fraction
from isthmus.learn.runs import Run
from isthmus.tasks.samplers.sampler import succeeded
from isthmus.tasks.task import Task

ENERGY_METRICS = ("power", "effort")
"""Metrics that say what it costs, the first that a task has."""


@dataclass(frozen=True)
class RunResult:
    """What one run reached on one ground."""

    success: Rate
    failed: Rate
    means: dict[str, Estimate]
    """Of score, return and the task's metrics."""
    difference: dict[str, Estimate]
    """The same minus the first run's in the same worlds, success included."""

    def to_dict(self) -> dict[str, Any]:
        means = {name: m.to_dict() for name, m in self.means.items()}
        against = {name: m.to_dict() for name, m in self.difference.items()}
        return {"success": vars(self.success), "failed": vars(self.failed), "means": means, "difference": against}


@dataclass(frozen=True)
class MethodResult:
    """What the runs of one method reached on one ground."""

    method: str
    runs: int
    uncertainty_over: str
    """What the intervals are over: `worlds`, or `worlds and seeds`."""
    success: Rate
    failed: Rate
    means: dict[str, Estimate]
    spread: dict[str, float]
    """Standard deviation over the runs' means; not a number for a single run."""
    difference: dict[str, Estimate]
    """Minus the first method's."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "runs": self.runs,
            "uncertainty_over": self.uncertainty_over,
            "success": vars(self.success),
            "failed": vars(self.failed),
            "means": {name: m.to_dict() | {"spread": self.spread[name]} for name, m in self.means.items()},
            "difference": {name: m.to_dict() for name, m in self.difference.items()},
        }


def evaluate_contenders(
    task: Task, entries: list[Contender], world_sets: list[WorldSet], progress: Progress
) -> dict[str, list[EpisodeTable]]:
    """One episode of every run in every world of every ground: by ground, one table per run."""
    found: dict[str, list[EpisodeTable]] = {}
    total = len(world_sets) * len(entries)
    for i, ground in enumerate(world_sets):
        for k, entry in enumerate(entries):
            at, note = i * len(entries) + k, f"{ground.name}: {entry.name}"
            found.setdefault(ground.name, []).append(
                evaluate_contender(task, entry, ground, lambda f, _="", /, at=at, note=note: progress((at + f) / total, note))
            )
    real = [g.name for g in world_sets if g.reality is not None]
    if len(real) > 1:
        found[ALL_REALITIES] = [_pool_realities([found[name][k] for name in real]) for k in range(len(entries))]
    return found


def evaluate_contender(task: Task, entry: Contender, world_set: WorldSet, progress: Progress = silent) -> EpisodeTable:
    """The episodes of one run on one ground."""
    rows = run_episodes(
        task, entry.actor, world_set.worlds, world_set.seed, world_set.belief, world_set.e, world_set.reality, progress
    )
    return rows | {"success": succeeded(rows, task.success_threshold)}


def _pool_realities(tables: list[EpisodeTable]) -> EpisodeTable:
    """All realities together. Episodes of one robot are alike: of what is averaged, each reality is one row."""
    whole = ("success", "failed")
    return {
        n: np.concatenate([t[n] for t in tables]) if n in whole else np.array([t[n].mean() for t in tables]) for n in tables[0]
    }


def compared_metrics(task: Task) -> tuple[str, ...]:
    """Numbers that are compared beside success, the most telling first: score, return, error, energy, then the rest."""
    metrics = list(task.metrics)
    energy = [name for name in ENERGY_METRICS if name in metrics][:1]
    return tuple(dict.fromkeys(("score", "return", *metrics[:1], *energy, *metrics)))


def metric_label(metric: str) -> str:
    """A metric's name with its unit."""
    words = metric.replace("_", " ")
    return f"{words}, {METRIC_UNITS[metric]}" if metric in METRIC_UNITS else words


def run_result(task: Task, own: EpisodeTable, first: EpisodeTable) -> RunResult:
    """A run's numbers, and their differences from the first run's."""
    n = len(own["success"])
    names = compared_metrics(task)
    single = lambda rows, name: rows[name][None].astype(float)  # noqa: E731
    return RunResult(
        Rate.from_counts(int(own["success"].sum()), n),
        Rate.from_counts(int(own["failed"].sum()), n),
        {name: estimate((1.0, single(own, name))) for name in names},
        {"success": rate_difference(own["success"], first["success"])}
        | {name: estimate((1.0, single(own, name)), (-1.0, single(first, name))) for name in names},
    )


def stack_by_method(entries: list[Contender], tables: list[EpisodeTable], name: str) -> dict[str, np.ndarray]:
    """One quantity by method, (runs, worlds), in the order in which methods are first named."""
    methods = dict.fromkeys(entry.method for entry in entries)
    return {
        m: np.stack([rows[name].astype(float) for entry, rows in zip(entries, tables, strict=True) if entry.method == m])
        for m in methods
    }


def method_results(task: Task, entries: list[Contender], tables: list[EpisodeTable]) -> list[MethodResult]:
    """Each method's numbers over its runs, and their differences from the first method's."""
    names = ("success", *compared_metrics(task))
    by_name = {name: stack_by_method(entries, tables, name) for name in names}
    first = next(iter(by_name["score"]))
    found = []
    for method, scores in by_name["score"].items():
        runs = len(scores)
        own = {name: by_name[name][method] for name in names}
        spread = {name: float(x.mean(axis=1).std(ddof=1)) if runs > 1 else float("nan") for name, x in own.items()}
        against = {name: estimate((1.0, own[name]), (-1.0, by_name[name][first])) for name in names}
        means = {name: estimate((1.0, own[name])) for name in names}
        rates = pooled_rate(own["success"]), pooled_rate(stack_by_method(entries, tables, "failed")[method])
        found.append(MethodResult(method, runs, uncertainty_sources(scores), *rates, means, spread, against))
    return found


def pooled_rate(happened: np.ndarray) -> Rate:
    """Of something that happened or not, (runs, worlds): never surer than a single run in which it happened as often."""
    worlds, mean = happened.shape[1], estimate((1.0, happened))
    least = Rate.from_counts(round(mean.mean * worlds), worlds)
    ends = (mean.low, mean.high) if mean.low == mean.low else (0.0, 1.0)
    return Rate(mean.mean, max(0.0, min(least.low, ends[0])), min(1.0, max(least.high, ends[1])), worlds)


def gaps_closed(
    entries: list[Contender], tables: list[EpisodeTable], name: str = "return"
) -> list[tuple[str, str, str, GapClosed]]:
    """The part of the gap between ppo and a teacher that each student or rma has closed: names of the three, and the share.

    The teacher is the one's own, if it is there, or else the first; ppo the one that differs least from that teacher.
    """
    by_method = stack_by_method(entries, tables, name)
    runs = {m: [entry.run for entry in entries if entry.method == m] for m in by_method}
    of = lambda *kinds: [m for m in by_method if runs[m][0].config.method in kinds]  # noqa: E731
    found = []
    for m in of("student", "rma"):
        own = {run.config.teacher for run in runs[m]}
        goals = sorted(of("teacher"), key=lambda t: not own & {run.initial_hash for run in runs[t]})
        starts = sorted(of("ppo"), key=lambda s: _count_differences(runs[s][0], runs[goals[0]][0])) if goals else []
        if starts:
            found.append((m, starts[0], goals[0], gap_closed(by_method[starts[0]], by_method[goals[0]], by_method[m])))
    return found


def _count_differences(a: Run, b: Run) -> int:
    """In how many things that were asked of them two runs differ."""
    one, other = config_facts(a), config_facts(b)
    return sum(one.get(key) != other.get(key) for key in one | other)


@dataclass(frozen=True)
class NominalLoss:
    """What a method gives up in the nominal world."""

    method: str
    reference: str
    loss: Estimate
    """Of score, against the method named in `against`."""
    uncertainty_over: str
    """What the interval is over: `worlds`, or `worlds and seeds`."""
    width: float
    """Part of the hard bounds' range that its training covered, mean over parameters and runs …"""
    other_width: float
    """… and the same of the method that it is held against."""
    same_but_ranges: bool
    """Nothing but the ranges was asked differently of the two, so that they are the cause of what differs."""
    margin: float

    @property
    def caused_by_wide_ranges(self) -> bool:
        """It loses more than the margin, beyond chance, and because it trained over wider ranges."""
        return self.significant and self.same_but_ranges and self.width > self.other_width

    @property
    def significant(self) -> bool:
        return self.loss.mean > self.margin and self.loss.low > 0

    def describe(self) -> str:
        loss = f"{self.loss.mean:.2f} ({self.loss.low:.2f} to {self.loss.high:.2f}, over {self.uncertainty_over})"
        what = f"{self.method} loses {loss} of score in the nominal world against {self.reference}"
        ranges = f"it trained on {100 * self.width:.0f} % of the space, the other on {100 * self.other_width:.0f} %"
        return f"{what}; {ranges}" + (": its range is so wide that it turned timid." if self.caused_by_wide_ranges else ".")

    def to_dict(self) -> dict[str, Any]:
        own = {
            "method": self.method,
            "reference": self.reference,
            "loss": self.loss.to_dict(),
            "uncertainty_over": self.uncertainty_over,
        }
        own |= {"margin": self.margin, "width": self.width, "other_width": self.other_width}
        return own | {
            "same_but_ranges": self.same_but_ranges,
            "significant": self.significant,
            "caused_by_wide_ranges": self.caused_by_wide_ranges,
        }


def nominal_losses(
    entries: list[Contender], tables: list[EpisodeTable], margin: float, reference: str = ""
) -> list[NominalLoss]:
    """Each method's loss of nominal score against the named one, or against the best, over the runs of both.

    The best of those with several runs, if there are any: a single run may just have been lucky.
    """
    scores = stack_by_method(entries, tables, "score")
    other = reference or max(scores, key=lambda m: (len(scores[m]) > 1, scores[m].mean()))
    own = {m: [entry for entry in entries if entry.method == m] for m in scores}
    widths = {m: float(np.mean([covered_fraction(entry.training_belief) for entry in own[m]])) for m in scores}
    return [
        NominalLoss(
            *(m, other, estimate((1.0, scores[other]), (-1.0, score)), uncertainty_sources(scores[other], score)),
            *(widths[m], widths[other], _same_but_ranges(own[m][0].run, own[other][0].run), margin),
        )
        for m, score in scores.items()
        if m != other
    ]


def _same_but_ranges(a: Run, b: Run) -> bool:
    """Whether two runs were asked for the same, but for seeds and the worlds of their training."""
    one, other = (replace(run, config=replace(run.config, adr=False), belief=a.belief) for run in (a, b))
    return config_facts(one) == config_facts(other)
