"""All that a comparison found, and the files that hold it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.core.errors import BadInput
from isthmus.learn.evaluate.compare import MethodResult, NominalLoss, RunResult
from isthmus.learn.evaluate.contenders import Contender
from isthmus.learn.evaluate.recovery import RECOVERED_FRACTION, Recovery, WorldChange
from isthmus.learn.evaluate.statistics import GapClosed
from isthmus.learn.evaluate.sweep import Sweep
from isthmus.learn.evaluate.world_sets import ALL_REALITIES, WorldSet, covered_fraction
from isthmus.tasks.task import Task
from isthmus.world import Belief


@dataclass(frozen=True)
class Comparison:
    task: Task
    contenders: list[Contender]
    belief: Belief
    worlds: int
    seed: int
    world_sets: list[WorldSet]
    omitted: list[str]
    """A sentence about each ground that could not be had."""
    run_results: dict[str, list[RunResult]]
    """By ground, for each run."""
    method_results: dict[str, list[MethodResult]]
    """By ground, for each method."""
    gaps_closed: dict[str, list[tuple[str, str, str, GapClosed]]]
    """By ground: who recovered, from where, to where, and how much of it."""
    nominal_losses: list[NominalLoss]
    sweeps: list[Sweep]
    change: WorldChange | None
    recoveries: tuple[list[Recovery], list[Recovery]]
    """Of each run, and of each method."""

    @property
    def change_time(self) -> float:
        """s into the episode at which the world changes."""
        assert self.change is not None
        return self.change.tick / self.task.robot.contract.rate

    def world_count(self, name: str) -> int:
        """Worlds of a ground; those of all realities for their total."""
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
            "grounds": {
                name: inputs.get(name, {"worlds": self.world_count(name)}) | self._world_set_dict(name)
                for name in self.run_results
            },
            "left_out": self.omitted,
            "timidity": [t.to_dict() for t in self.nominal_losses],
            "sweep": [s.to_dict() for s in self.sweeps],
        }
        return record | ({"change": self._change_dict(self.change)} if self.change else {})

    def _world_set_dict(self, name: str) -> dict[str, Any]:
        shares = [{"method": m, "from": a, "to": b, "of": "return"} | s.to_dict() for m, a, b, s in self.gaps_closed[name]]
        runs = [{"name": e.name} | r.to_dict() for e, r in zip(self.contenders, self.run_results[name], strict=True)]
        return {"runs": runs, "methods": [g.to_dict() for g in self.method_results[name]], "recovered": shares}

    def _change_dict(self, event: WorldChange) -> dict[str, Any]:
        own = {
            "at": self.change_time,
            "before": dict(event.before),
            "after": dict(event.after),
            "back_from": RECOVERED_FRACTION,
        }
        return own | {key: [r.to_dict() for r in part] for key, part in zip(("runs", "methods"), self.recoveries, strict=True)}


def describe_change(task: Task, event: WorldChange) -> str:
    """What changes, in words: names, values and units."""
    unit = {name: task.robot.space[name].unit for name in event.after}
    texts = (f"{name} {event.before[name]:g} → {value:g}" for name, value in event.after.items())
    return ", ".join(
        f"{text} {unit[name]}" if unit[name] != "1" else text for name, text in zip(event.after, texts, strict=True)
    )


def output_paths(out: Path) -> tuple[Path | None, tuple[Path, Path, Path] | None]:
    """Where the record goes, and the figures: a folder for all, NAME.json for the record or NAME.png for figures alone."""
    if out.suffix == ".json":
        return out, None
    if out.suffix == ".png":
        return None, (out, out.with_name(f"{out.stem}-sweep.png"), out.with_name(f"{out.stem}-recovery.png"))
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file; -o takes a folder, NAME.json or NAME.png.")
    return out / "compare.json", (out / "compare.png", out / "sweep.png", out / "recovery.png")
