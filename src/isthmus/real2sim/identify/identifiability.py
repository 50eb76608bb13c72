"""What the data say and what they cannot: the spectrum of the Fisher information, in words.

Coordinates are those in which what was believed before is a unit sphere. A direction is *determined* if the data alone say
more about it than was believed before: if its information there exceeds 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr

from isthmus.real2sim.residual.prior import GaussianPrior
from isthmus.world import Space

MIN_COMPONENT_SHARE = 0.25
"""Share of the largest part of a direction below which a parameter is not named in it."""
EQUAL_STEP_TOLERANCE = 0.25
"""Two parts whose sizes differ by less than this share are called equal."""
MAX_NAMED_PARAMETERS = 4


@dataclass(frozen=True)
class Direction:
    """One combination of parameters, and how much the data say about it."""

    parts: tuple[tuple[str, float], ...]
    """Name and share of each parameter that matters in it, the largest first."""
    information: float
    """In units of what was believed before; below 1 the data say less than that."""
    text: str
    """One sentence."""


def undetermined_directions(prior: GaussianPrior, information: np.ndarray, z: np.ndarray) -> tuple[Direction, ...]:
    """Directions that the information about z, (d, d), at z does not determine, the least known first."""
    root = np.linalg.cholesky(np.linalg.inv(prior.precision))
    seen = root.T @ information @ root
    values, vectors = np.linalg.eigh(seen)
    weak = vectors[:, values < 1.0]
    if not weak.shape[1]:
        return ()
    u = 1.0 / (1.0 + np.exp(-z))
    found = []
    for v in _sparse_basis(weak).T:
        # As shares of what was believed of each parameter, and as steps in the coordinate in which it is even.
        shares = root @ v / prior.std
        found.append(_direction(prior.space, shares, shares * prior.std * u * (1.0 - u), float(max(v @ seen @ v, 0.0))))
    return tuple(sorted(found, key=lambda d: d.information))


def _sparse_basis(basis: np.ndarray) -> np.ndarray:
    """Another basis of the same subspace, (d, k), each of whose directions has as many zeros as can be had by elimination.

    All of the subspace is undetermined, so any basis of it says the same; this one names the fewest parameters at a time.
    """
    pivots = np.asarray(qr(basis.T, mode="r", pivoting=True)[-1])[: basis.shape[1]]
    sparse = basis @ np.linalg.inv(basis[pivots])
    return sparse / np.linalg.norm(sparse, axis=0)


def _direction(space: Space, shares: np.ndarray, step: np.ndarray, information: float) -> Direction:
    order = np.argsort(-np.abs(shares))
    order = [int(i) for i in order if abs(shares[i]) > MIN_COMPONENT_SHARE * abs(shares[order[0]])]
    parts = tuple((space.names[i], float(shares[i])) for i in order)
    return Direction(parts, information, _sentence(space, step, order))


def _sentence(space: Space, step: np.ndarray, order: list[int]) -> str:
    names = [space.names[i] for i in order]
    if len(order) == 1:
        return f"{names[0]} is not determined."
    if len(order) == 2:
        return f"only the {_pair(space, step, order)} is determined."
    rest = names[1:MAX_NAMED_PARAMETERS] + (["others"] if len(names) > MAX_NAMED_PARAMETERS else [])
    return f"{names[0]} and a mixture of {', '.join(rest[:-1])} and {rest[-1]} can stand in for each other."


def _pair(space: Space, step: np.ndarray, order: list[int]) -> str:
    """What is known of two parameters of which one combination is not."""
    a, b = (space.params[i] for i in order)
    both = f"{a.name} and {b.name}"
    logs = a.scale == b.scale == "log"
    if not logs and not (a.scale == b.scale == "linear" and a.unit == b.unit):
        return f"combined effect of {both}"
    spans = [np.log(p.high / p.low) if logs else p.high - p.low for p in (a, b)]
    x, y = step[order[0]] * spans[0], step[order[1]] * spans[1]
    if abs(abs(x) - abs(y)) > EQUAL_STEP_TOLERANCE * max(abs(x), abs(y)):
        return f"combined effect of {both}"
    # What moves both the same way goes unseen, so what is seen is their ratio or difference.
    if x * y > 0:
        return f"ratio of {a.name} to {b.name}" if logs else f"difference of {both}"
    return f"product of {both}" if logs else f"sum of {both}"
