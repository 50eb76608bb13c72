"""All that a comparison found, and the files that hold it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.adapt.comparison.contend import Contender
from isthmus.adapt.comparison.grounds import KINDS, TOTAL, Ground, width
from isthmus.adapt.comparison.measure import Group, Result, Timidity
from isthmus.adapt.comparison.paired import Share
from isthmus.adapt.comparison.recovery import BACK, Event, Recovery
from isthmus.adapt.comparison.sweep import Sweep
from isthmus.errors import BadInput
from isthmus.tasks.task import Task
from isthmus.world import Belief

FEW = 12
"""Realities up to which a figure shows each, and not only all together."""


@dataclass(frozen=True)
class Report:
    task: Task
    entries: list[Contender]
    belief: Belief
    worlds: int
    seed: int
    grounds: list[Ground]
    left_out: list[str]
    """A sentence about each ground that could not be had."""
    results: dict[str, list[Result]]
    """By ground, for each run."""
    groups: dict[str, list[Group]]
    """By ground, for each method."""
    shares: dict[str, list[tuple[str, str, str, Share]]]
    """By ground: who recovered, from where, to where, and how much of it."""
    timidity: list[Timidity]
    sweeps: list[Sweep]
    event: Event | None
    recoveries: tuple[list[Recovery], list[Recovery]]
    """Of each run, and of each method."""

    @property
    def at(self) -> float:
        """s into the episode at which the world changes."""
        assert self.event is not None
        return self.event.tick / self.task.robot.contract.rate

    def worlds_of(self, name: str) -> int:
        """Worlds of a ground; those of all realities for their total."""
        return sum(g.worlds for g in self.grounds if g.name == name or (name == TOTAL and g.reality))

    def to_dict(self) -> dict[str, Any]:
        inputs = {ground.name: ground.to_dict() for ground in self.grounds}
        record = {
            "kind": "comparison",
            "task": self.task.name,
            "worlds": self.worlds,
            "seed": self.seed,
            "space_hash": self.task.robot.space.hash,
            "belief_hash": self.belief.hash,
            "runs": [entry.to_dict() | {"width": width(entry.trained)} for entry in self.entries],
            "grounds": {name: inputs.get(name, {"worlds": self.worlds_of(name)}) | self._ground(name) for name in self.results},
            "left_out": self.left_out,
            "timidity": [t.to_dict() for t in self.timidity],
            "sweep": [s.to_dict() for s in self.sweeps],
        }
        return record | ({"change": self._change(self.event)} if self.event else {})

    def _ground(self, name: str) -> dict[str, Any]:
        shares = [{"method": m, "from": a, "to": b, "of": "return"} | s.to_dict() for m, a, b, s in self.shares[name]]
        runs = [{"name": e.name} | r.to_dict() for e, r in zip(self.entries, self.results[name], strict=True)]
        return {"runs": runs, "methods": [g.to_dict() for g in self.groups[name]], "recovered": shares}

    def _change(self, event: Event) -> dict[str, Any]:
        own = {"at": self.at, "before": dict(event.before), "after": dict(event.after), "back_from": BACK}
        return own | {key: [r.to_dict() for r in part] for key, part in zip(("runs", "methods"), self.recoveries, strict=True)}


def draw(report: Report, main: Path, sweep: Path, recovery: Path) -> list[Path]:
    """Draw the figures that there is something for, each into its file."""
    from isthmus.adapt.comparison import figures

    methods, made = [entry.method for entry in report.entries], {}
    if report.results:
        alone = [name for name in report.results if name not in (*KINDS, TOTAL)]
        shown = {name: found for name, found in report.results.items() if name not in alone or len(alone) <= FEW}
        title = f"{report.task.name}, {report.worlds} worlds per ground; dots are runs, bars 95 % intervals"
        made[main] = figures.comparison(methods, shown, title)
    if report.sweeps:
        made[sweep] = figures.sweeps(report.sweeps, methods)
    if report.event:
        made[recovery] = figures.recovery(report.task, report.recoveries[1], report.at, changes(report.task, report.event))
    for path, figure in made.items():
        figures.save(figure, path)
    return list(made)


def changes(task: Task, event: Event) -> str:
    """What changes, in words: names, values and units."""
    unit = {name: task.robot.space[name].unit for name in event.after}
    texts = (f"{name} {event.before[name]:g} → {value:g}" for name, value in event.after.items())
    return ", ".join(
        f"{text} {unit[name]}" if unit[name] != "1" else text for name, text in zip(event.after, texts, strict=True)
    )


def places(out: Path) -> tuple[Path | None, tuple[Path, Path, Path] | None]:
    """Where the record goes, and the figures: a folder for all, NAME.json for the record or NAME.png for figures alone."""
    if out.suffix == ".json":
        return out, None
    if out.suffix == ".png":
        return None, (out, out.with_name(f"{out.stem}-sweep.png"), out.with_name(f"{out.stem}-recovery.png"))
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file; -o takes a folder, NAME.json or NAME.png.")
    return out / "compare.json", (out / "compare.png", out / "sweep.png", out / "recovery.png")
