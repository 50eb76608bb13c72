"""An ordered set of unknowns, and the coordinates in which they are handled.

e   physical values, shape (..., d)
u   unit cube: u = (s(e) - s(low)) / (s(high) - s(low)), with s the identity or the logarithm
z   unconstrained: z = logit(u), the whole real line
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import content_hash, read_json, write_json
from isthmus.world.param import Param

MAX_PARAMS = 4096


@dataclass(frozen=True)
class Space:
    params: tuple[Param, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for p in self.params:
            if p.name in seen:
                raise BadInput(f"parameter {p.name!r} appears twice in the space.")
            seen.add(p.name)

    def __len__(self) -> int:
        return len(self.params)

    def __getitem__(self, name: str) -> Param:
        return self.params[self.index(name)]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.params)

    @cached_property
    def _index_by_name(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def index(self, name: str) -> int:
        try:
            return self._index_by_name[name]
        except KeyError:
            raise unknown_name("parameter", name, self.names) from None

    @cached_property
    def nominal(self) -> np.ndarray:
        return np.array([p.nominal for p in self.params], dtype=float)

    @cached_property
    def low(self) -> np.ndarray:
        return np.array([p.low for p in self.params], dtype=float)

    @cached_property
    def high(self) -> np.ndarray:
        return np.array([p.high for p in self.params], dtype=float)

    @cached_property
    def is_log(self) -> np.ndarray:
        return np.array([p.scale == "log" for p in self.params], dtype=bool)

    def subset(self, names: Iterable[str]) -> Space:
        """Return the space of the named parameters, in this space's order."""
        wanted = set(names)
        for name in wanted:
            self.index(name)
        return Space(tuple(p for p in self.params if p.name in wanted))

    def vector(self, values: Mapping[str, float]) -> np.ndarray:
        """Return e, shape (d,): the given values, nominal elsewhere; outside the hard bounds is an error."""
        e = self.nominal.copy()
        for name, value in values.items():
            e[self.index(name)] = value
        self.check(e)
        return e

    def check(self, e: np.ndarray) -> None:
        """Raise BadInput unless every value of e, shape (..., d), is finite and inside the hard bounds."""
        e = np.asarray(e, dtype=float)
        if e.shape[-1:] != (len(self),):
            raise BadInput(f"a value of this space has {len(self)} numbers, not {e.shape[-1] if e.ndim else 1}.")
        bad = ~((e >= self.low) & (e <= self.high))
        if bad.any():
            where = np.argwhere(bad)[0]
            p = self.params[where[-1]]
            raise BadInput(
                f"parameter {p.name!r} = {e[tuple(where)]:g} {p.unit} lies outside its hard bounds [{p.low:g}, {p.high:g}]."
            )

    # Coordinates ---------------------------------------------------------------------------------------------

    def _to_scale(self, e: np.ndarray) -> np.ndarray:
        """The coordinate in which distances are even: log e where the scale is log, else e."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.is_log, np.log(np.where(self.is_log, e, 1.0)), e)

    @cached_property
    def _scaled_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The lower bounds and the widths, in even coordinates."""
        low = self._to_scale(self.low)
        return low, self._to_scale(self.high) - low

    def unit(self, e: np.ndarray) -> np.ndarray:
        """Map e, shape (..., d), to the unit cube."""
        low, span = self._scaled_bounds
        return (self._to_scale(np.asarray(e, dtype=float)) - low) / span

    def from_unit(self, u: np.ndarray) -> np.ndarray:
        """Inverse of `unit`; the ends of the cube give the bounds exactly."""
        low, span = self._scaled_bounds
        u = np.asarray(u, dtype=float)
        even = low + u * span
        e = np.where(self.is_log, np.exp(np.where(self.is_log, even, 0.0)), even)
        return np.where(u <= 0, self.low, np.where(u >= 1, self.high, np.clip(e, self.low, self.high)))

    def unconstrained(self, e: np.ndarray) -> np.ndarray:
        """Map e to the real line, z = log(u / (1 - u)); a bound maps to a large finite number."""
        u = np.clip(self.unit(e), 1e-12, 1 - 1e-12)
        return np.log(u) - np.log1p(-u)

    def from_unconstrained(self, z: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return self.from_unit(1.0 / (1.0 + np.exp(-np.asarray(z, dtype=float))))

    # Files -----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "space", "params": [asdict(p) for p in self.params]}

    @staticmethod
    def from_dict(data: Mapping[str, Any], where: str = "space") -> Space:
        rows = data.get("params")
        if data.get("kind") != "space" or not isinstance(rows, list):
            raise BadInput(f"{where} is not a space: it needs kind 'space' and a list 'params'.")
        if len(rows) > MAX_PARAMS:
            raise BadInput(f"{where} has {len(rows)} parameters; at most {MAX_PARAMS} are read.")
        return Space(tuple(_param_from_dict(row, where) for row in rows))

    @cached_property
    def hash(self) -> str:
        return content_hash(self.to_dict())

    def save(self, path: Path) -> None:
        write_json(path, self.to_dict() | {"hash": self.hash})

    @staticmethod
    def load(path: Path) -> Space:
        return Space.from_dict(read_json(path), str(path))


def _param_from_dict(row: Any, where: str) -> Param:
    known = {f.name: f for f in fields(Param)}
    if not isinstance(row, dict):
        raise BadInput(f"{where}: a parameter must be a table of fields, not {type(row).__name__}.")
    for key in row:
        if key not in known:
            raise unknown_name("field", str(key), known, f"parameter {row.get('name', '?')!r} of {where}")
    for key in ("name", "unit", "nominal", "low", "high", "targets"):
        if key not in row:
            raise BadInput(f"{where}: parameter {row.get('name', '?')!r} has no field {key!r}.")
    for key in ("nominal", "low", "high"):
        if not isinstance(row[key], int | float) or isinstance(row[key], bool):
            raise BadInput(f"{where}: parameter {row['name']!r} needs a number for {key!r}, not {row[key]!r}.")
    for key in ("name", "unit", "scale", "how", "doc"):
        if not isinstance(row.get(key, ""), str):
            raise BadInput(f"{where}: parameter {row['name']!r} needs text for {key!r}, not {row[key]!r}.")
    targets = row["targets"]
    if not isinstance(targets, list | tuple) or not all(isinstance(t, str) for t in targets):
        raise BadInput(f"{where}: parameter {row['name']!r} needs a list of texts for 'targets'.")
    try:
        for text in (row["name"], row["unit"], row.get("doc", ""), *targets):
            text.encode()
        given: dict[str, Any] = row | {"targets": tuple(targets)}
        return Param(**given)
    except UnicodeEncodeError:
        raise BadInput(f"{where}: parameter {row['name']!r} has text that is not Unicode.") from None
    except OverflowError:
        raise BadInput(f"{where}: parameter {row['name']!r} has a number that is too large.") from None
