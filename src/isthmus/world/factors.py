"""The building blocks of a Belief: how one parameter, or a group that varies together, is distributed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np

from isthmus.core.errors import BadInput, unknown_name
from isthmus.world.param import Param
from isthmus.world.space import Space

MAX_PARTICLES = 1_000_000
MAX_UNCONSTRAINED = 1e12
"""No mean or variance in unconstrained coordinates is meant to be larger."""


class Factor(Protocol):
    """A distribution over the parameters `names`; all draws lie inside the hard bounds of the space."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def check(self, space: Space) -> None:
        """Raise BadInput if the factor does not fit the space."""
        ...

    def sample(self, rng: np.random.Generator, n: int, space: Space) -> np.ndarray:
        """Draws, shape (n, len(names))."""
        ...

    def quantile(self, name: str, q: np.ndarray, space: Space) -> np.ndarray:
        """Marginal quantiles of one of its parameters, same shape as q."""
        ...

    def scaled(self, width: float, space: Space) -> Factor:
        """The same factor, `width` times as wide about its middle, inside the hard bounds."""
        ...

    def without(self, names: set[str]) -> Factor | None:
        """The distribution of its other parameters alone; None if none is left."""
        ...

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Fixed:
    name: str
    value: float

    def __post_init__(self) -> None:
        _coerce_floats(self, value=0)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def check(self, space: Space) -> None:
        space.vector({self.name: self.value})

    def sample(self, rng: np.random.Generator, n: int, space: Space) -> np.ndarray:
        return np.full((n, 1), self.value)

    def quantile(self, name: str, q: np.ndarray, space: Space) -> np.ndarray:
        return np.full_like(q, self.value, dtype=float)

    def scaled(self, width: float, space: Space) -> Factor:
        return self

    def without(self, names: set[str]) -> Factor | None:
        return None if self.name in names else self

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "fixed", "name": self.name, "value": self.value}


@dataclass(frozen=True)
class Uniform:
    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        _coerce_floats(self, low=0, high=0)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def check(self, space: Space) -> None:
        _check_range(self.name, self.low, self.high, space)

    def sample(self, rng: np.random.Generator, n: int, space: Space) -> np.ndarray:
        return rng.uniform(self.low, self.high, (n, 1))

    def quantile(self, name: str, q: np.ndarray, space: Space) -> np.ndarray:
        return self.low + q * (self.high - self.low)

    def scaled(self, width: float, space: Space) -> Factor:
        centre = float(np.clip(space[self.name].nominal, self.low, self.high))
        if width <= 0:
            return Fixed(self.name, centre)
        ends = (centre + width * (self.low - centre), centre + width * (self.high - centre))
        return self if width == 1 else Uniform(self.name, *_clipped_range(ends, (self.low, self.high), width, space[self.name]))

    def without(self, names: set[str]) -> Factor | None:
        return None if self.name in names else self

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "uniform", "name": self.name, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class LogUniform:
    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        _coerce_floats(self, low=0, high=0)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def check(self, space: Space) -> None:
        _check_range(self.name, self.low, self.high, space)
        if self.low <= 0:
            raise BadInput(f"the log-uniform range of {self.name!r} must start above zero, not at {self.low:g}.")

    def sample(self, rng: np.random.Generator, n: int, space: Space) -> np.ndarray:
        e = np.exp(rng.uniform(np.log(self.low), np.log(self.high), (n, 1)))
        return np.clip(e, self.low, self.high)

    def quantile(self, name: str, q: np.ndarray, space: Space) -> np.ndarray:
        return np.clip(self.low * (self.high / self.low) ** q, self.low, self.high)

    def scaled(self, width: float, space: Space) -> Factor:
        centre = float(np.clip(space[self.name].nominal, self.low, self.high))
        if width <= 0:
            return Fixed(self.name, centre)
        ends = centre * (self.low / centre) ** width, centre * (self.high / centre) ** width
        return (
            self if width == 1 else LogUniform(self.name, *_clipped_range(ends, (self.low, self.high), width, space[self.name]))
        )

    def without(self, names: set[str]) -> Factor | None:
        return None if self.name in names else self

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "log_uniform", "name": self.name, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Normal:
    """Jointly normal in unconstrained coordinates: z ~ N(mean, covariance), e = from_unconstrained(z)."""

    names: tuple[str, ...]
    mean: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        _coerce_floats(self, mean=1, covariance=2)

    def check(self, space: Space) -> None:
        d = len(self.names)
        if not d or len(self.mean) != d or [len(row) for row in self.covariance] != [d] * d:
            raise BadInput(f"the normal over {', '.join(self.names)} needs {d} means and a {d} by {d} covariance.")
        cov = np.array(self.covariance)
        if not (
            np.abs(self.mean).max() < MAX_UNCONSTRAINED and np.abs(cov).max() < MAX_UNCONSTRAINED and np.allclose(cov, cov.T)
        ):
            raise BadInput(f"the normal over {', '.join(self.names)} has a covariance that is not symmetric and finite.")
        if np.linalg.eigvalsh(cov).min() < -1e-9 * max(1.0, float(np.abs(cov).max())):
            raise BadInput(f"the normal over {', '.join(self.names)} has a covariance with a negative variance.")

    def _subspace(self, space: Space) -> Space:
        return Space(tuple(space[name] for name in self.names))

    def sample(self, rng: np.random.Generator, n: int, space: Space) -> np.ndarray:
        values, vectors = np.linalg.eigh(np.array(self.covariance))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        z = np.array(self.mean) + rng.standard_normal((n, len(self.names))) @ root.T
        return self._subspace(space).from_unconstrained(z)

    def quantile(self, name: str, q: np.ndarray, space: Space) -> np.ndarray:
        i = self.names.index(name)
        spread = max(self.covariance[i][i], 0.0) ** 0.5
        z = np.array([self.mean[i] + (spread * _normal_quantile(float(p)) if spread else 0.0) for p in q])
        return Space((space[name],)).from_unconstrained(z[:, None])[:, 0]

    def scaled(self, width: float, space: Space) -> Factor:
        if width <= 0:
            mean = Space(tuple(space[n] for n in self.names)).from_unconstrained(np.array(self.mean))
            return Particles(self.names, (tuple(float(v) for v in mean),))
        cov = np.array(self.covariance) * width**2
        return self if width == 1 else Normal(self.names, self.mean, tuple(tuple(row) for row in cov.tolist()))

    def without(self, names: set[str]) -> Factor | None:
        kept = [i for i, name in enumerate(self.names) if name not in names]
        covariance = tuple(tuple(self.covariance[i][j] for j in kept) for i in kept)
        return Normal(tuple(self.names[i] for i in kept), tuple(self.mean[i] for i in kept), covariance) if kept else None

    def to_dict(self) -> dict[str, Any]:
        rows = [list(row) for row in self.covariance]
        return {"kind": "normal", "names": list(self.names), "mean": list(self.mean), "covariance": rows}


@dataclass(frozen=True)
class Particles:
    """A weighted set of joint values, drawn with replacement."""

    names: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...] = ()
    """One non-negative weight per particle; empty means equal."""

    def __post_init__(self) -> None:
        _coerce_floats(self, values=2, weights=1)

    def check(self, space: Space) -> None:
        d = len(self.names)
        if not d or not self.values or any(len(row) != d for row in self.values):
            raise BadInput(f"particles over {', '.join(self.names)} need rows of {d} numbers.")
        values = np.array(self.values)
        Space(tuple(space[name] for name in self.names)).check(values)
        if self.weights:
            w = np.array(self.weights)
            if w.shape != (len(values),) or not (w.min() >= 0 and 0 < w.sum() < np.inf):
                raise BadInput("particle weights must be one non-negative number per particle, not all zero.")

    def _probability(self) -> np.ndarray:
        w = np.array(self.weights if self.weights else np.ones(len(self.values)), dtype=float)
        return w / w.sum()

    def sample(self, rng: np.random.Generator, n: int, space: Space) -> np.ndarray:
        rows = rng.choice(len(self.values), size=n, p=self._probability())
        return np.array(self.values, dtype=float)[rows]

    def quantile(self, name: str, q: np.ndarray, space: Space) -> np.ndarray:
        column = np.array(self.values, dtype=float)[:, self.names.index(name)]
        order = np.argsort(column)
        reached = np.cumsum(self._probability()[order])
        return column[order][np.minimum(np.searchsorted(reached, q - 1e-12), len(column) - 1)]

    def scaled(self, width: float, space: Space) -> Factor:
        """Shrink towards the mean particle, in even coordinates."""
        sub = Space(tuple(space[name] for name in self.names))
        u = sub.unit(np.array(self.values, dtype=float))
        centre = self._probability() @ u
        e = sub.from_unit(centre + max(width, 0.0) * (u - centre))
        return self if width == 1 else Particles(self.names, tuple(tuple(row) for row in e.tolist()), self.weights)

    def without(self, names: set[str]) -> Factor | None:
        kept = [i for i, name in enumerate(self.names) if name not in names]
        values = tuple(tuple(row[i] for i in kept) for row in self.values)
        return Particles(tuple(self.names[i] for i in kept), values, self.weights) if kept else None

    def to_dict(self) -> dict[str, Any]:
        rows = [list(row) for row in self.values]
        return {"kind": "particles", "names": list(self.names), "values": rows, "weights": list(self.weights)}


def _clipped_range(ends: tuple[float, float], current: tuple[float, float], width: float, param: Param) -> tuple[float, float]:
    """Ends of a scaled range, free of rounding: a narrower one lies in the old one, a wider one in the hard bounds."""
    low, high = current if width < 1 else (param.low, param.high)
    return max(ends[0], low), min(ends[1], high)


def _check_range(name: str, low: float, high: float, space: Space) -> None:
    space.vector({name: low})
    space.vector({name: high})
    if low > high:
        raise BadInput(f"the range of {name!r} is upside down: {low:g} is above {high:g}.")


FACTOR_KINDS: dict[str, type] = {
    "fixed": Fixed,
    "uniform": Uniform,
    "log_uniform": LogUniform,
    "normal": Normal,
    "particles": Particles,
}


def factor_from_dict(row: Any, where: str) -> Factor:
    """Read one factor; text where a number belongs, a missing or an unknown field is a BadInput."""
    name = row.get("kind") if isinstance(row, dict) else row
    if not isinstance(row, dict) or not isinstance(name, str) or name not in FACTOR_KINDS:
        raise unknown_name("kind of factor", str(name), FACTOR_KINDS, where)
    kind = FACTOR_KINDS[name]
    wanted = set(kind.__dataclass_fields__)
    given = {k: v for k, v in row.items() if k != "kind"}
    for key, value in given.items():
        if key not in wanted:
            raise unknown_name("field", str(key), wanted, f"a {name} factor of {where}")
        if key == "name" and not isinstance(value, str):
            raise BadInput(f"{where}: the name in a {name} factor must be text.")
        if key == "names" and not (isinstance(value, list) and all(isinstance(n, str) for n in value)):
            raise BadInput(f"{where}: the names in a {name} factor must be a list of texts.")
        if key == "values" and isinstance(value, list) and len(value) > MAX_PARTICLES:
            raise BadInput(f"{where}: more than {MAX_PARTICLES} particles are not read.")
    if "names" in given:
        given["names"] = tuple(given["names"])
    try:
        return kind(**given)
    except TypeError as error:
        raise BadInput(f"{where}: a {name} factor is incomplete: {error}.") from None


def _coerce_floats(factor: Any, **depths: int) -> None:
    """Make the given fields floats (depth 0), tuples of floats (1) or tuples of those (2), so that equal means equal hash."""
    for field, depth in depths.items():
        value = _to_nested_floats(
            getattr(factor, field), depth, f"{field!r} of the factor for {', '.join(map(str, factor.names))}"
        )
        object.__setattr__(factor, field, value)


def _to_nested_floats(value: Any, depth: int, what: str) -> Any:
    if depth:
        if not isinstance(value, list | tuple):
            raise BadInput(f"{what} must be a list, not {value!r:.40}.")
        return tuple(_to_nested_floats(v, depth - 1, what) for v in value)
    if not isinstance(value, Real) or isinstance(value, bool):
        raise BadInput(f"{what} must be made of numbers, not {value!r:.40}.")
    try:
        return float(value)
    except OverflowError:
        raise BadInput(f"{what} has a number that is too large.") from None


def _normal_quantile(p: float) -> float:
    return NormalDist().inv_cdf(p) if 0 < p < 1 else math.copysign(math.inf, p - 0.5)
