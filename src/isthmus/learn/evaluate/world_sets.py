"""Where policies are compared: sets of worlds, each the same for all of them.

inside      worlds from the belief, as in training
outside     one or two numbers beyond the belief's range, the others from it
nominal     every number at its nominal value
NAME        the robot of a reality file, and `realities`, all of them together
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import content_hash
from isthmus.sim.reality import Reality
from isthmus.sim.reality.hidden import draws_out_of_range
from isthmus.tasks.task import Task
from isthmus.world import Belief
from isthmus.world.factors import Normal

PARAMETRIC_SETS = ("inside", "outside", "nominal")
ALL_REALITIES = "realities"
MAX_REALITIES = 64
"""Realities that are compared at once."""


@dataclass(frozen=True)
class WorldSet:
    name: str
    worlds: int
    seed: int
    """Of starts, commands, pushes and noise, and of e where a belief gives it."""
    belief: Belief | None = None
    e: np.ndarray | None = None
    """(worlds, d): holds for the whole episode."""
    reality: Reality | None = None

    def to_dict(self) -> dict[str, Any]:
        """Worlds, seed, and the hash of what they were made from."""
        own: dict[str, Any] = {"worlds": self.worlds, "seed": self.seed}
        if self.belief is not None:
            own["belief_hash"] = self.belief.hash
        if self.e is not None:
            own["e_hash"] = content_hash(np.ascontiguousarray(self.e).tobytes())
        if self.reality is not None:
            own["reality_hash"] = self.reality.hash
        return own


def parametric_world_sets(kinds: tuple[str, ...], belief: Belief, worlds: int, seed: int) -> tuple[list[WorldSet], list[str]]:
    """Grounds by name, and a sentence about each that cannot be had."""
    found, missing = [], []
    for kind in dict.fromkeys(kinds):
        if kind not in PARAMETRIC_SETS:
            raise unknown_name("set of worlds", kind, PARAMETRIC_SETS)
        if kind == "inside":
            found.append(WorldSet(kind, worlds, seed, belief))
        elif kind == "nominal":
            found.append(WorldSet(kind, worlds, seed, belief.nominal()))
        elif draws_out_of_range(belief):
            found.append(WorldSet(kind, worlds, seed, belief, sample_outside(belief, worlds, seed)))
        else:
            missing.append("outside is left out: no number of the body, the motors or the link has room beyond the belief.")
    return found, missing


def sample_outside(belief: Belief, worlds: int, seed: int) -> np.ndarray:
    """e of worlds, (worlds, d), each with one or two numbers outside the range of the belief, inside the hard bounds."""
    rng = np.random.default_rng([seed, 1])
    e, draws = belief.sample(rng, worlds), draws_out_of_range(belief)
    names = list(draws)
    for row in e:
        for i in rng.choice(len(names), min(int(rng.integers(1, 3)), len(names)), replace=False):
            row[belief.space.index(names[i])] = draws[names[i]](rng)
    return e


def reality_world_sets(source: Path, task: Task, worlds: int, seed: int) -> list[WorldSet]:
    """The realities of a folder, or of one file; worlds are shared between them."""
    paths = sorted(source.glob("*.toml")) if source.is_dir() else [source]
    if not paths:
        raise BadInput(f"{source} holds no reality: there is no .toml file in it.")
    if len(paths) > MAX_REALITIES:
        raise BadInput(f"{source} holds {len(paths)} realities; at most {MAX_REALITIES} are compared at once.")
    if worlds < len(paths):
        raise BadInput(f"{worlds} worlds are too few for the {len(paths)} realities of {source}; at least one each is needed.")
    found = []
    for i, path in enumerate(paths):
        reality = Reality.load(path)
        try:
            reality.check(task.robot)
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from None
        own = worlds // len(paths) + (i < worlds % len(paths))
        found.append(WorldSet(path.stem, own, seed + i, reality=reality))
    taken = [g.name for g in found if g.name in (*PARAMETRIC_SETS, ALL_REALITIES)]
    if taken:
        raise BadInput(f"{source}: a reality cannot be called {taken[0]!r} here; rename its file.")
    return found


def covered_range(belief: Belief, name: str) -> tuple[float, float]:
    """The range of one parameter that a belief covers; of a bell without ends, its middle 99 %."""
    return belief.interval(name, 0.99 if isinstance(belief[name], Normal) else 1.0)


def covered_fraction(belief: Belief) -> float:
    """How much of the space a belief covers: the mean over parameters of its range, in units of the hard bounds'."""
    ends = np.array([covered_range(belief, name) for name in belief.space.names]).T
    low, high = belief.space.unit(ends)
    return float(np.mean(high - low))
