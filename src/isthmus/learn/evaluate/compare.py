"""Compare policies world by world, inside and outside of what they trained on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import BadInput
from isthmus.core.files import check_writable
from isthmus.core.progress import Progress, silent, sub_progress
from isthmus.learn import runs as run_folders
from isthmus.learn.evaluate import paired_results, recovery
from isthmus.learn.evaluate.contenders import Contender, load_contenders
from isthmus.learn.evaluate.evaluate import write_episodes
from isthmus.learn.evaluate.paired_results import MethodResult, NominalLoss, RunResult
from isthmus.learn.evaluate.recovery import RECOVERED_FRACTION, Recovery, WorldChange
from isthmus.learn.evaluate.rollout import EpisodeTable
from isthmus.learn.evaluate.statistics import GapClosed
from isthmus.learn.evaluate.sweep import Sweep, sweep_parameter
from isthmus.learn.evaluate.world_sets import (
    ALL_REALITIES,
    PARAMETRIC_SETS,
    WorldSet,
    covered_fraction,
    parametric_world_sets,
    reality_world_sets,
)
from isthmus.robots.dynamics import resolve_dynamics
from isthmus.tasks.catalogue import get_task
from isthmus.tasks.task import Task
from isthmus.world import Belief

if TYPE_CHECKING:
    from isthmus.robots.dynamics import DynamicsSource

DEFAULT_NOMINAL_MARGIN = 0.05
"""Score that a method may lose in the nominal world before that is reported."""
SWEEP_WEIGHT = 5
"""Time of one sweep, relative to one set of worlds."""
CHANGE_WEIGHT = 3
"""Time of the change, relative to one set of worlds."""


@dataclass(frozen=True)
class Comparison:
    """Result of `compare`. `to_dict` is what --json prints; it also holds the policies, for tables and figures."""

    task: Task
    contenders: list[Contender]
    belief: Belief
    worlds: int
    seed: int
    world_sets: list[WorldSet]
    omitted: list[str]
    """A sentence about each set of worlds that could not be made."""
    run_results: dict[str, list[RunResult]]
    """By set of worlds, for each run."""
    method_results: dict[str, list[MethodResult]]
    """By set of worlds, for each method."""
    gaps_closed: dict[str, list[tuple[str, str, str, GapClosed]]]
    """By set of worlds: method, from which, to which, and the part of that gap that it closed."""
    nominal_losses: list[NominalLoss]
    sweeps: list[Sweep]
    change: WorldChange | None
    recoveries: tuple[list[Recovery], list[Recovery]]
    """Of each run, and of each method."""
    margin: float = DEFAULT_NOMINAL_MARGIN
    """Score that a method may lose in the nominal world."""
    files: tuple[str, ...] = ()
    """Lists of episodes, record and figures that were written."""

    @property
    def change_time(self) -> float:
        """s into the episode at which the world changes."""
        assert self.change is not None
        return self.change.tick / self.task.robot.contract.rate

    def world_count(self, name: str) -> int:
        """Worlds of a set; those of all realities for their total."""
        return sum(g.worlds for g in self.world_sets if g.name == name or (name == ALL_REALITIES and g.reality))

    def to_dict(self) -> dict[str, Any]:
        inputs = {ground.name: ground.to_dict() for ground in self.world_sets}
        record = {
            "kind": "comparison",
            "task": self.task.name,
            "worlds": self.worlds,
            "seed": self.seed,
            "space_hash": self.task.robot.space.hash,
            "belief_hash": self.belief.hash,
            "runs": [entry.to_dict() | {"width": covered_fraction(entry.training_belief)} for entry in self.contenders],
            "sets": {
                name: inputs.get(name, {"worlds": self.world_count(name)}) | self._world_set_dict(name)
                for name in self.run_results
            },
            "omitted": self.omitted,
            "nominal_losses": [t.to_dict() for t in self.nominal_losses],
            "sweeps": [s.to_dict() for s in self.sweeps],
        }
        change = {"change": self._change_dict(self.change)} if self.change else {}
        return record | change | {"files": list(self.files)}

    def _world_set_dict(self, name: str) -> dict[str, Any]:
        shares = [{"method": m, "from": a, "to": b, "of": "return"} | s.to_dict() for m, a, b, s in self.gaps_closed[name]]
        runs = [{"name": e.name} | r.to_dict() for e, r in zip(self.contenders, self.run_results[name], strict=True)]
        return {"runs": runs, "methods": [g.to_dict() for g in self.method_results[name]], "gaps_closed": shares}

    def _change_dict(self, event: WorldChange) -> dict[str, Any]:
        own = {
            "at": self.change_time,
            "before": dict(event.before),
            "after": dict(event.after),
            "recovered_from": RECOVERED_FRACTION,
        }
        return own | {key: [r.to_dict() for r in part] for key, part in zip(("runs", "methods"), self.recoveries, strict=True)}


def compare(
    runs: Sequence[Path | str],
    *,
    worlds: int = 500,
    task: str | Task = "",
    sets: Sequence[str] = PARAMETRIC_SETS,
    dynamics: DynamicsSource | None = None,
    reality: Path | str | None = None,
    sweep: Sequence[str] = (),
    change: Mapping[str, float] | None = None,
    before: Mapping[str, float] | None = None,
    at: float | None = None,
    margin: float | None = None,
    reference: Path | str | None = None,
    by_name: bool = False,
    seed: int = 1000,
    episodes: Path | str | None = None,
    progress: Progress = silent,
) -> Comparison:
    """Run the newest policies of several runs in the same worlds; differences are against the first.

    worlds      per set, one episode in each. Realities share them; each value of a sweep gets a fifth
    task        that all are compared on; by default that of the first run
    sets        inside, outside, nominal: worlds of `dynamics` (by default the robot's prior), beyond it, and nominal
    reality     folder of reality files, or one file: each is a set of its own
    sweep       parameters to vary one by one between their hard bounds
    change      values that parameters take `at` seconds into the episode, from `before` (by default nominal)
    margin      score that a method may lose in the nominal world against `reference`, by default the best method
    by_name     runs whose folder names differ only in a number at the end are one method
    episodes    folder for lists of all episodes, one per set and run
    """
    folders = tuple(Path(run) for run in runs)
    _check(folders, worlds, seed, sets, margin, reference, sweep, change, before, at)
    if episodes is not None and not (sets or reality):
        raise BadInput("episodes lists episodes of sets and realities; give sets or a reality.")
    if not (sets or reality or sweep or change):
        raise BadInput("there is nothing to compare on: give sets, a reality, a sweep or a change.")
    if not isinstance(task, Task):
        task = get_task(task) if task else run_folders.load(folders[0]).task.nominal_unit()
    robot, belief = resolve_dynamics(dynamics, task.robot)
    task = task.on(robot)
    entries = load_contenders(folders, task, by_name)
    against = _reference_method(reference, folders, [e.method for e in entries])
    margin = DEFAULT_NOMINAL_MARGIN if margin is None else margin
    chosen, omitted = parametric_world_sets(tuple(sets), belief, worlds, seed)
    chosen += reality_world_sets(Path(reality), task, worlds, seed) if reality else []
    for name in sweep:
        task.robot.space.index(name)
    event = WorldChange.for_task(task, change, before or {}, at) if change else None
    lists = _episode_list_paths(episodes, entries, chosen)
    check_writable(*lists)

    parts = _progress_parts(progress, [len(chosen), *([SWEEP_WEIGHT] * len(sweep)), *([CHANGE_WEIGHT] if event else [])])
    tables = paired_results.evaluate_contenders(task, entries, chosen, next(parts))
    swept = [sweep_parameter(task, entries, name, belief, worlds, seed, next(parts)) for name in sweep]
    changed = recovery.measure_recovery(task, entries, event, belief, worlds, seed, next(parts)) if event else ([], [])
    result = Comparison(
        *(task, entries, belief, worlds, seed, chosen, omitted),
        run_results={name: [paired_results.run_result(task, own, found[0]) for own in found] for name, found in tables.items()},
        method_results={name: paired_results.method_results(task, entries, found) for name, found in tables.items()},
        gaps_closed={name: paired_results.gaps_closed(entries, found) for name, found in tables.items()},
        nominal_losses=paired_results.nominal_losses(entries, tables["nominal"], margin, against)
        if "nominal" in tables
        else [],
        sweeps=swept,
        change=event,
        recoveries=changed,
        margin=margin,
    )
    _write_episode_lists(lists, task, entries, chosen, tables)
    return replace(result, files=tuple(map(str, lists)))


def _check(
    folders: tuple[Path, ...],
    worlds: int,
    seed: int,
    sets: Sequence[str],
    margin: float | None,
    reference: Path | str | None,
    sweep: Sequence[str],
    change: Mapping[str, float] | None,
    before: Mapping[str, float] | None,
    at: float | None,
) -> None:
    """Raise BadInput for arguments that say nothing or contradict each other."""
    if not folders:
        raise BadInput("say which runs to compare.")
    if worlds < 1:
        raise BadInput("worlds must be at least 1.")
    if seed < 0:
        raise BadInput("seed must not be negative.")
    if margin is not None and not 0 <= margin < math.inf:
        raise BadInput("margin must be a finite number, not negative.")
    for name, value in (("margin", margin), ("reference", reference)):
        if value is not None and "nominal" not in sets:
            raise BadInput(f"{name} needs the nominal worlds; add nominal to sets.")
    for name in sweep:
        if list(sweep).count(name) > 1:
            raise BadInput(f"sweep names {name!r} more than once.")
    if not change and (before or at is not None):
        raise BadInput("before and at go with change.")


def _reference_method(reference: Path | str | None, folders: tuple[Path, ...], methods: list[str]) -> str:
    """The method that nominal scores are held against; empty for the best."""
    if reference is None:
        return ""
    for folder, method in zip(folders, methods, strict=True):
        if Path(reference).absolute() == folder.absolute():
            return method
    raise BadInput(f"the reference {reference} is not among the runs that are compared.")


def _progress_parts(progress: Progress, weights: list[int]) -> Iterator[Progress]:
    """Progress of consecutive parts of the work, which take times in proportion to their weights."""
    total, begun = float(sum(weights) or 1), 0.0
    for weight in weights:
        yield sub_progress(progress, begun / total, (begun + weight) / total)
        begun += weight


def _episode_list_paths(folder: Path | str | None, entries: list[Contender], sets: list[WorldSet]) -> list[Path]:
    """A file for each set and run, in this order; none without a folder."""
    if folder is None:
        return []
    return [Path(folder) / f"{i + 1:02d}-{k + 1:02d}.parquet" for i in range(len(sets)) for k in range(len(entries))]


def _write_episode_lists(
    files: list[Path], task: Task, entries: list[Contender], sets: list[WorldSet], tables: dict[str, list[EpisodeTable]]
) -> None:
    """Every episode of every set, as lists for the store."""
    places = iter(files)
    for world_set in sets if files else []:
        hashes = {
            "belief": world_set.belief.hash if world_set.belief else None,
            "reality": world_set.reality.hash if world_set.reality else None,
        }
        for entry, rows in zip(entries, tables[world_set.name], strict=True):
            write_episodes(next(places), entry.run, task, rows, world_set.seed, [world_set.name], **hashes)


def describe_change(task: Task, event: WorldChange) -> str:
    """What changes, in words: names, values and units."""
    unit = {name: task.robot.space[name].unit for name in event.after}
    texts = (f"{name} {event.before[name]:g} → {value:g}" for name, value in event.after.items())
    return ", ".join(
        f"{text} {unit[name]}" if unit[name] != "1" else text for name, text in zip(event.after, texts, strict=True)
    )
