"""What we think e is: a distribution over a Space.

The prior that training draws worlds from, a curriculum's narrower version of it, the posterior that
identification returns and the state of a twin are all Beliefs. A Belief is a product of independent factors,
each over one or more parameters; a parameter that no factor names is held fixed at its nominal value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import content_hash, read_json, write_json
from isthmus.world.factors import Factor, Fixed, LogUniform, Uniform, factor_from_dict
from isthmus.world.space import Space


@dataclass(frozen=True)
class Belief:
    space: Space
    factors: tuple[Factor, ...] = ()

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for factor in self.factors:
            for name in factor.names:
                if name in seen:
                    raise BadInput(f"parameter {name!r} is described twice in the belief.")
                seen.add(name)
                self.space.index(name)
            factor.check(self.space)

    def __getitem__(self, name: str) -> Factor:
        """The factor that describes the named parameter."""
        self.space.index(name)
        for factor in self.factors:
            if name in factor.names:
                return factor
        return Fixed(name, self.space[name].nominal)

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draw n values of e, shape (n, d), inside the hard bounds."""
        e = np.tile(self.space.nominal, (n, 1))
        ranges, logs, rest = self._sampling_plan
        for columns, low, high, even in (*ranges, *logs):
            draw = rng.uniform(size=(n, len(columns)))
            e[:, columns] = low + draw * (high - low) if even else np.clip(low * (high / low) ** draw, low, high)
        for factor, columns in rest:
            e[:, columns] = factor.sample(rng, n, self.space)
        return e

    @cached_property
    def _sampling_plan(self) -> tuple[list, list, list]:
        """Factors as `sample` takes them: all ranges of one kind in a single draw, the others one by one."""
        plan: list[list] = []
        for kind in (Uniform, LogUniform):
            same = [f for f in self.factors if isinstance(f, kind)]
            columns = np.array([self.space.index(f.name) for f in same], dtype=int)
            low, high = np.array([f.low for f in same]), np.array([f.high for f in same])
            plan.append([(columns, low, high, kind is Uniform)] if same else [])
        others = [f for f in self.factors if not isinstance(f, Uniform | LogUniform)]
        return plan[0], plan[1], [(f, [self.space.index(name) for name in f.names]) for f in others]

    def free(self) -> Space:
        """The parameters that are not fixed."""
        varying = {n for f in self.factors if not isinstance(f, Fixed) for n in f.names}
        return self.space.subset(varying)

    def interval(self, name: str, level: float = 0.95) -> tuple[float, float]:
        """The central interval of one parameter that holds `level` of the belief."""
        tail = (1 - level) / 2
        low, high = self[name].quantile(name, np.array([tail, 1 - tail]), self.space)
        return float(low), float(high)

    def median(self) -> np.ndarray:
        """Per-parameter medians, shape (d,)."""
        return np.array([self[n].quantile(n, np.array([0.5]), self.space)[0] for n in self.space.names])

    # New beliefs from this one ---------------------------------------------------------------------------------

    def replace(self, *factors: Factor) -> Belief:
        """A belief in which the given factors describe their parameters; whole joint factors give way."""
        named = {n for f in factors for n in f.names}
        for name in named:
            self.space.index(name)
        kept = tuple(f for f in self.factors if not named & set(f.names))
        return Belief(self.space, kept + factors)

    def with_factors(self, *factors: Factor) -> Belief:
        """A belief in which the given factors describe their parameters; what varied together with them goes on as it did."""
        named = {n for f in factors for n in f.names}
        rest = [f.without(named) for f in self.factors]
        return Belief(self.space, tuple(f for f in rest if f is not None) + factors)

    def fix(self, values: Mapping[str, float]) -> Belief:
        """Hold parameters at values; what varied together with them goes on varying as it did."""
        return self.with_factors(*(Fixed(name, value) for name, value in values.items()))

    def nominal(self) -> Belief:
        """Every parameter held at its nominal value."""
        return Belief(self.space)

    def scaled(self, width: float) -> Belief:
        """Every factor `width` times as wide about its middle, which is nominal for a range.

        0 holds it there, 1 is this belief, more ends at the hard bounds.
        """
        return Belief(self.space, tuple(f.scaled(width, self.space) for f in self.factors))

    # Files -----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "belief", "space": self.space.to_dict(), "factors": [f.to_dict() for f in self.factors]}

    @staticmethod
    def from_dict(data: Mapping[str, Any], where: str = "belief") -> Belief:
        if data.get("kind") != "belief" or not isinstance(data.get("space"), dict):
            raise BadInput(f"{where} is not a belief: it needs kind 'belief' and a 'space'.")
        rows = data.get("factors", [])
        if not isinstance(rows, list):
            raise BadInput(f"{where}: 'factors' must be a list.")
        space = Space.from_dict(data["space"], where)
        return Belief(space, tuple(factor_from_dict(row, where) for row in rows))

    @cached_property
    def hash(self) -> str:
        return content_hash(self.to_dict())

    def save(self, path: Path) -> None:
        write_json(path, self.to_dict() | {"hash": self.hash})

    @staticmethod
    def load(path: Path) -> Belief:
        return Belief.from_dict(read_json(path), str(path))

    @staticmethod
    def from_ranges(space: Space, ranges: Mapping[str, tuple[float, float]]) -> Belief:
        """Independent ranges, uniform in each parameter's own scale; parameters left out are fixed at nominal."""
        factors: list[Factor] = []
        for name, (low, high) in ranges.items():
            kind = LogUniform if space[name].scale == "log" else Uniform
            factors.append(kind(name, low, high))
        return Belief(space, tuple(factors))


def belief_on_space(belief: Belief, space: Space, where: str = "belief") -> Belief:
    """Read a belief written for another version of a space: same names and meaning, or a clear error."""
    missing = set(belief.space.names) - set(space.names)
    for name in sorted(missing):
        raise unknown_name("parameter", name, space.names, where)
    for p in belief.space.params:
        if space[p.name] != p:
            raise BadInput(f"{where}: parameter {p.name!r} means something else here (unit, bounds or target differ).")
    return Belief(space, belief.factors)
