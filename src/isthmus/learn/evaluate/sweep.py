"""How policies do as one parameter goes from one hard bound to the other, everything else drawn from the belief."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.core.progress import Progress
from isthmus.core.statistics import Rate
from isthmus.learn.evaluate.contenders import Contender
from isthmus.learn.evaluate.paired_results import evaluate_contender
from isthmus.learn.evaluate.statistics import Estimate, estimate
from isthmus.learn.evaluate.world_sets import WorldSet, covered_range
from isthmus.tasks.task import Task
from isthmus.world import Belief, Space

GRID_SIZE = 9
"""Values of the parameter, evenly spread in its own scale, hard bounds included."""
WORLDS_PER_VALUE_DIVISOR = 5
"""Each value gets this part of the comparison's worlds."""


@dataclass(frozen=True)
class SweepCurve:
    """One run over the values of one parameter."""

    name: str
    training_range: tuple[float, float]
    """Range that its training covered."""
    success: tuple[Rate, ...]
    score: tuple[Estimate, ...]

    def to_dict(self) -> dict[str, Any]:
        success, score = [vars(r) for r in self.success], [s.to_dict() for s in self.score]
        return {"name": self.name, "trained": list(self.training_range), "success": success, "score": score}


@dataclass(frozen=True)
class Sweep:
    param: str
    unit: str
    log_scale: bool
    worlds: int
    """Per value; the same starts, commands, pushes and other numbers at each."""
    values: tuple[float, ...]
    curves: tuple[SweepCurve, ...]

    def to_dict(self) -> dict[str, Any]:
        own = {"param": self.param, "unit": self.unit, "worlds": self.worlds, "values": list(self.values)}
        return own | {"curves": [c.to_dict() for c in self.curves]}


def parameter_grid(space: Space, name: str) -> np.ndarray:
    """Values of a parameter from hard bound to hard bound, (VALUES,)."""
    return Space((space[name],)).from_unit(np.linspace(0, 1, GRID_SIZE)[:, None])[:, 0]


def sweep_parameter(
    task: Task, entries: list[Contender], name: str, belief: Belief, worlds: int, seed: int, progress: Progress
) -> Sweep:
    space = task.robot.space
    param, values, k = space[name], parameter_grid(space, name), max(1, worlds // WORLDS_PER_VALUE_DIVISOR)
    drawn = belief.sample(np.random.default_rng([seed, 2]), k)
    curves = []
    for i, entry in enumerate(entries):
        tables = []
        for j, value in enumerate(values):
            e = drawn.copy()
            e[:, space.index(name)] = value
            at, total = i * GRID_SIZE + j, len(entries) * GRID_SIZE
            part = lambda f, _="", /, at=at, total=total, who=entry.name: progress((at + f) / total, f"{name}: {who}")  # noqa: E731
            tables.append(evaluate_contender(task, entry, WorldSet(name, k, seed, e=e), part))
        success = tuple(Rate.from_counts(int(rows["success"].sum()), k) for rows in tables)
        score = tuple(estimate((1.0, rows["score"][None].astype(float))) for rows in tables)
        curves.append(SweepCurve(entry.name, covered_range(entry.training_belief, name), success, score))
    return Sweep(name, param.unit, param.scale == "log", k, tuple(values.tolist()), tuple(curves))
